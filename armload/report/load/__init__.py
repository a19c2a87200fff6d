"""A load on a service, for a terminal, as JSON, and as a page."""
