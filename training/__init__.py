"""How the models that armload ships were trained; not part of the package."""
