"""The verbs: the only room that parses arguments, prints, or asks."""
