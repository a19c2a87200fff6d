"""``build``: from source to inspected static binaries."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb


@task(
    klass=Verb,
    help={
        "target": "what to build for: a file in toolchains/, such as rk3568",
        "source": "a llama.cpp folder; left out: the pinned source archive",
        "jobs": "compile jobs at a time; 0: one for each core",
        "json": "print one JSON document",
    },
)
def build(
    c: Context, target: str = "rk3568", source: str = "", json: bool = False, jobs: str = "0"
) -> None:
    """Build static llama.cpp for a board's CPU, and inspect it.

    Example: armload build --target rk3568
    """
    del c
    from armload.build.builder import build as build_binaries
    from armload.build.source import choose
    from armload.build.target import load_target
    from armload.build.workshop import LocalWorkshop
    from armload.cli import terminal
    from armload.report.table import binaries_table

    binaries = build_binaries(
        load_target(target),
        source=choose(source),
        progress=terminal.progress(),
        workshop=LocalWorkshop(jobs=_count(jobs)),
    )
    if json:
        terminal.show_json("[" + ",".join(each.model_dump_json() for each in binaries) + "]")
    else:
        terminal.show(binaries_table(binaries))


def _count(text: str) -> int | None:
    from armload.core.errors import UsageError

    if not text.isdecimal():
        raise UsageError(f"--jobs {text}: a whole number is needed.", "0 lets the builder choose.")
    return int(text) or None
