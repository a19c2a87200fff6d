"""The Invoke face of armload: ``invoke VERB`` is ``armload VERB``."""

from armload.cli.program import namespace
from armload.cli.streams import make_streams_usable

__all__ = ["namespace"]

make_streams_usable()
