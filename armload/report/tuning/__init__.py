"""A search for settings as a page."""
