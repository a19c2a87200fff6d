"""A board's facts, how it is reached, and boards that exist only in software."""
