"""How a service is asked, and how its streams are read: one file for each protocol."""
