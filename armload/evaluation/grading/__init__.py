"""Graders: each decides whether the text of an answer is right."""
