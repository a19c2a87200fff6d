"""The verbs: the only package that parses arguments, prints, or asks."""
