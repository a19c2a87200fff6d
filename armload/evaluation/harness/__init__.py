"""Tasks of lm-evaluation-harness, answered by a model on a board."""
