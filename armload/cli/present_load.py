"""A load laid before a person or a program, whole or as far as it came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from armload.cli import terminal
from armload.cli.streams import show_document
from armload.core.errors import InterruptionError
from armload.report.layout import whole
from armload.report.load.loaded import LoadDocument, LoadView
from armload.report.load.page import load_page
from armload.report.load.table import load_view
from armload.report.pages import write_page
from armload.serving.exports import export
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder


def load_and_present(
    loading: LoadRunner,
    run: Callable[[], object],
    formats: Sequence[str],
    *,
    probing: LoadRunner,
    as_json: bool,
) -> None:
    """Run all points and show their figures; after a failure, or Ctrl-C, those that there are.

    Args:
        run: runs them.
        probing: what a search begins with.

    Raises:
        ArmloadError: the load ended early.
    """
    try:
        run()
    except KeyboardInterrupt:
        raise _interruption(loading.kept, probing.kept) from None
    finally:
        _present_kept(loading, formats, as_json=as_json)


def _interruption(kept: LoadFolder | None, probe: LoadFolder | None) -> InterruptionError:
    if kept is not None:
        again = "to start the search over" if kept.load.finds_rate else "to start over"
        return InterruptionError(
            "Interrupted. The records of all requests are kept.",
            f"Run the command again {again}. To show them: armload show {kept.load.id}",
        )
    if probe is not None:
        return InterruptionError(
            "Interrupted. The records of the probe are kept; no rate was tried yet.",
            f"Run the command again to start over. To show them: armload show {probe.load.id}",
        )
    return InterruptionError("Interrupted before any request was sent.")


def present(kept: LoadFolder, files: Sequence[Path] = (), *, as_json: bool) -> None:
    """Show the figures of a load, and write its page where its folder can be written.

    Args:
        files: that it was exported to.

    Raises:
        DataError: a record was modified.
    """
    loaded = LoadView.of(kept)
    page = _written(loaded, kept.folder) if loaded.points else None
    if as_json:
        show_document(LoadDocument.of(loaded))
        return
    if loaded.points:
        terminal.show(load_view(loaded))
        terminal.show("")
    places = [("load", kept.folder), *(("export", each) for each in files)]
    for name, path in (*places, *([("page", page)] if page else [])):
        terminal.show(whole(f"{name:6}  {path}"))


def _written(loaded: LoadView, folder: Path) -> Path | None:
    try:
        return write_page(load_page(loaded), folder)
    except OSError as error:
        terminal.progress().say(f"The page was not written: {folder}: {error.strerror or error}.")
        return None


def _present_kept(loading: LoadRunner, formats: Sequence[str], *, as_json: bool) -> None:
    kept = loading.kept
    if kept is None or not kept.load.points:
        return
    present(kept, export(kept, formats, kept.load.objectives), as_json=as_json)
