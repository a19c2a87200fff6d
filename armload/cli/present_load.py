"""Put a service under load, and lay the figures before a person, or a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from armload.cli import terminal
from armload.cli.document import show_document
from armload.core.errors import InterruptionError
from armload.report.layout import whole
from armload.report.load.document import LoadDocument
from armload.report.load.loaded import loaded_of
from armload.report.load.page import write_page
from armload.report.load.table import load_view
from armload.serving.exports import export
from armload.serving.loading import Loading
from armload.serving.loads import KeptLoad


def load_and_present(
    loading: Loading,
    run: Callable[[], object],
    formats: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Run all points and show their figures; after a failure, or Ctrl-C, those that there are.

    Args:
        run: runs them.

    Raises:
        ArmloadError: the load ended early.
    """
    try:
        run()
    except KeyboardInterrupt:
        raise InterruptionError("Interrupted. The records of all requests are kept.") from None
    finally:
        _present(loading, formats, as_json=as_json)


def present(kept: KeptLoad, files: Sequence[Path] = (), *, as_json: bool) -> None:
    """Show the figures of a load, and write its page.

    Args:
        files: that it was exported to.

    Raises:
        DataError: a record was modified.
    """
    loaded = loaded_of(kept)
    page = write_page(loaded, kept.folder) if loaded.points else None
    if as_json:
        show_document(LoadDocument.of(loaded))
        return
    if loaded.points:
        terminal.show(load_view(loaded))
        terminal.show("")
    places = [("load", kept.folder), *(("export", each) for each in files)]
    for name, path in (*places, *([("page", page)] if page else [])):
        terminal.show(whole(f"{name:6}  {path}"))


def _present(loading: Loading, formats: Sequence[str], *, as_json: bool) -> None:
    kept = loading.kept
    if kept is None or not kept.load.points:
        return
    present(kept, export(kept, formats, kept.load.objectives), as_json=as_json)
