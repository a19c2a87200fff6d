"""Putting files on a board, running a program there, and bringing results back."""
