"""Models that a board serves whenever it is on."""
