"""From the requests of a load on a service to its figures, and why slow ones were slow."""
