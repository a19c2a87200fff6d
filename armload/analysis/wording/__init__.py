"""The sentences that a person reads of a run, a load, a prediction or a comparison.

The analysis of a run returns numbers; its sentences are made here when a record is written, which
is why they lie below the packages that keep runs.
"""
