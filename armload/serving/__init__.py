"""A model served on a board, the load on it, and what became of each request."""
