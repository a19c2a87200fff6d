"""Models that are made of others: quantised files, and checkpoints turned into files."""
