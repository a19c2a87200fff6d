"""Logits of a model on a board, against a reference."""
