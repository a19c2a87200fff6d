"""Values, errors, the workspace and small helpers that every other room may use."""
