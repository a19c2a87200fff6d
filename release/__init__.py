"""How a release is made; not part of the package."""
