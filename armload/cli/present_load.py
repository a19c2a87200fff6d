"""Put a service under load, and lay the figures before a person, or a program."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.objectives import Objectives
from armload.cli import terminal
from armload.cli.document import show_document
from armload.core.errors import InterruptionError
from armload.report.layout import whole
from armload.report.load.document import LoadDocument, measured_points
from armload.report.load.table import load_view
from armload.serving.exports import export
from armload.serving.loading import Loading
from armload.serving.target import Extent, Pace


def load_and_present(
    loading: Loading,
    paces: Sequence[Pace],
    extent: Extent,
    objectives: Objectives | None,
    formats: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Run all points and show their figures; after a failure, or Ctrl-C, those that there are.

    Raises:
        ArmloadError: the load ended early.
    """
    try:
        loading.run(paces, extent)
    except KeyboardInterrupt:
        _present(loading, objectives, formats, as_json=as_json)
        raise InterruptionError("Interrupted. The records of all requests are kept.") from None
    except BaseException:
        _present(loading, objectives, formats, as_json=as_json)
        raise
    _present(loading, objectives, formats, as_json=as_json)


def _present(
    loading: Loading, objectives: Objectives | None, formats: Sequence[str], *, as_json: bool
) -> None:
    kept = loading.kept
    if kept is None or not kept.load.points:
        return
    points = measured_points(kept, objectives)
    files = export(kept, formats, objectives)
    if as_json:
        show_document(LoadDocument.of(kept, points))
        return
    terminal.show(load_view(points))
    terminal.show("")
    for name, path in (("load", kept.folder), *(("export", each) for each in files)):
        terminal.show(whole(f"{name:6}  {path}"))
