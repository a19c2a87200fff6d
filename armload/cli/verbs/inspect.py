"""``inspect``: what a program from elsewhere needs, and where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb

if TYPE_CHECKING:
    from armload.build.target import Target


@task(
    klass=Verb,
    help={
        "file": "a program, such as llama-completion",
        "target": "fail unless it runs on this target: a file in toolchains/, such as rk3568",
        **JSON_HELP,
    },
)
def inspect(c: Context, file: str, target: str = "", json: bool = False) -> None:
    """Show what a program requires of a board, and on which targets it runs.

    Example: armload inspect llama-completion --target rk3568
    """
    del c
    from pathlib import Path

    from armload.build import inspection
    from armload.build.fit import fits
    from armload.build.record import with_recorded_features
    from armload.build.target import load_target
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.report.inspected import Inspected, inspection_table

    path = Path(file).expanduser()
    targets = [load_target(target)] if target else _all_targets()
    found = with_recorded_features(inspection.inspect(path))
    suits = list(fits(found, targets))
    if json:
        show_document(Inspected.of(found, suits))
    else:
        terminal.show(inspection_table(found, suits))
    if target:
        inspection.check(found, targets[0])


def _all_targets() -> list[Target]:
    from armload.build.target import load_target
    from armload.cli import terminal
    from armload.core.errors import ArmloadError
    from armload.core.workspace import data_names

    targets = []
    for name in data_names("toolchains"):
        try:
            targets.append(load_target(name))
        except ArmloadError as error:
            terminal.progress().say(f"skipped: {error}")
    return targets
