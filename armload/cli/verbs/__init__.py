"""One file for each group of verbs."""
