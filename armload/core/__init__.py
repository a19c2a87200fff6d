"""Values, errors, the workspace and small helpers that every other package may use."""
