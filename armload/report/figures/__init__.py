"""The figures of a report: each a specification and one sentence of result."""
