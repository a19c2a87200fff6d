"""The sentences that a person reads of a run, a load, a prediction or a comparison.

Only here does the analysis have sentences: the rest returns numbers. They are made when a record is
written, which is why they lie below the packages that keep runs.
"""
