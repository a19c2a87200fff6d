"""``inspect``: what a program from elsewhere needs, and where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from armload.cli.options import Output
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.build.target import Target


class InspectOptions(Output):
    """A program, and the target that it must suit."""

    file: Annotated[str, Option("a program, such as llama-completion", is_argument=True)]
    target: Annotated[
        str,
        Option("fail unless it runs on this target: a file in toolchains/, such as rk3568"),
    ] = ""


@verb(InspectOptions)
def inspect(options: InspectOptions) -> None:
    """Show what a program requires of a board, and on which targets it runs.

    Example: armload inspect llama-completion --target rk3568
    """
    from pathlib import Path

    from armload.build import inspection
    from armload.build.fit import fits
    from armload.build.record import with_recorded_features
    from armload.build.target import load_target
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.report.inspected import Inspected, inspection_table

    path = Path(options.file).expanduser()
    targets = [load_target(options.target)] if options.target else _all_targets()
    found = with_recorded_features(inspection.inspect(path))
    suits = list(fits(found, targets))
    if options.as_json:
        show_document(Inspected.of(found, suits))
    else:
        terminal.show(inspection_table(found, suits))
    if options.target:
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
