"""The seed experiment's own settings, quick to import for the command line's help."""

SEED_PROMPT = "I believe the meaning of life is"
SEED_N_PREDICT = 128
