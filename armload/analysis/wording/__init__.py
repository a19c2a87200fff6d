"""The sentences on loads and comparisons."""
