"""The Invoke face of armload: ``invoke VERB`` is ``armload VERB``."""

from armload.cli.main import namespace

__all__ = ["namespace"]
