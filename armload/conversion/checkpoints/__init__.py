"""Hugging Face checkpoints, and what turns them into models that boards can run."""
