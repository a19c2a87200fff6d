"""The seed experiment's own settings, quick to import for the command line's help."""

SEED_PROMPT = "I believe the meaning of life is"
SEED_N_PREDICT = 128
DEFAULT_TIME_LIMIT_S = 6 * 3600
DEFAULT_WAIT_S = 3600
DEFAULT_PRECISION = 0.05
DEFAULT_PRECISION_TIME_S = 60
REQUEST_TIMEOUT_S = 600.0
"""Of one request to a service."""

TUNED_REQUESTS = 40
"""Of each trial of a search for the highest rate."""
