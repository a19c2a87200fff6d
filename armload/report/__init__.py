"""Tables, charts and pages that a person reads."""
