"""A service that answers in another server's protocol."""
