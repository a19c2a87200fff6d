"""``build``: from source to inspected static binaries."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP, SOURCE_HELP
from armload.cli.verb import Verb

MOST_JOBS = 1024
MOST_NICE = 19
_TARGET = "rk3568"


@task(
    klass=Verb,
    help={
        "target": "what to build for: the name of a file in toolchains/, such as rk3568",
        "programs": "comma-separated: llama-completion, llama-cli, llama-bench, llama-server, "
        "llama-quantize, llama-perplexity, llama-speculative-simple, rpc-server, armload-score "
        "(llama-completion, which bench runs)",
        **SOURCE_HELP,
        "jobs": "parallel compile jobs; 0: one per core (0; with --on, from the board's file)",
        "nice": "niceness of the compiler, 0 to 19 (0; with --on, from the board's file)",
        "list": "list existing builds instead of building",
        **JSON_HELP,
    },
)
def build(
    c: Context,
    target: str = _TARGET,
    programs: str = "",
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    jobs: str = "",
    nice: str = "",
    list_: bool = False,
    json: bool = False,
) -> None:
    """Build static llama.cpp for a board's CPU, and inspect it.

    Example: armload build --target rk3568 --programs llama-completion,llama-bench
    """
    del c
    from armload.build.binary import Binary
    from armload.build.builder import build as build_binaries
    from armload.build.source import choose
    from armload.build.target import load_target
    from armload.buildhost.choose import workshop
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.numbers import whole_number
    from armload.core.errors import UsageError
    from armload.core.values import ValueList
    from armload.report.binaries import binaries_table

    if list_:
        unused = {
            "--target": target != _TARGET,
            "--programs": programs,
            "--source": source,
            "--ref": ref,
            "--compiler": compiler,
            "--on": on,
            "--jobs": jobs,
            "--nice": nice,
        }
        if named := [option for option, value in unused.items() if value]:
            raise UsageError(
                f"{', '.join(named)}: not with --list, which lists all builds.", "Leave that out."
            )
        _show_builds(as_json=json)
        return
    progress = terminal.progress()
    chosen = load_target(target)
    engine = choose(source, ref=ref, progress=progress)
    with workshop(
        on=on,
        compiler=compiler,
        jobs=whole_number("jobs", jobs, most=MOST_JOBS),
        nice=whole_number("nice", nice, most=MOST_NICE),
        progress=progress,
    ) as where:
        binaries = build_binaries(
            chosen,
            programs=[name.strip() for name in programs.split(",") if name.strip()],
            source=engine,
            workshop=where,
            progress=progress,
        )
    if json:
        show_document(ValueList[Binary](tuple(binaries)))
    else:
        terminal.show(binaries_table(binaries))


def _show_builds(*, as_json: bool) -> None:
    from armload.build.shelf import ShelvedBuild, shelved_builds
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.core.values import ValueList
    from armload.report.cache import builds_table

    builds = shelved_builds()
    if as_json:
        show_document(ValueList[ShelvedBuild](tuple(builds)))
    elif builds:
        terminal.show(builds_table(builds))
    else:
        terminal.progress().say("Nothing has been built yet. Start with: armload build.")
