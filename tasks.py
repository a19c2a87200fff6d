"""The Invoke face of armload: ``invoke VERB`` is ``armload VERB``."""

from armload.cli.invoke_tasks import tasks
from armload.cli.streams import make_streams_usable

namespace = tasks()

make_streams_usable()
