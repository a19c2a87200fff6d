"""The search for the best settings of a model on a board."""
