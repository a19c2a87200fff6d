"""``build``: from source to inspected static binaries."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb

MOST_JOBS = 1024
MOST_NICE = 19


@task(
    klass=Verb,
    help={
        "target": "what to build for: a file in toolchains/, such as rk3568",
        "programs": "which, with commas between: llama-completion, llama-cli, llama-bench, "
        "llama-server, llama-quantize, llama-perplexity, rpc-server; left out: what bench needs",
        "source": "a file in toolchains/sources/, a llama.cpp folder, or a git address",
        "ref": "branch, tag or commit, where the source is a git repository",
        "compiler": "zig, gnu (the distribution's cross gcc) or native; left out: zig here, native "
        "on a build host",
        "on": "compile on a board, such as an ARM server, instead of here",
        "jobs": "compile jobs at a time; 0: one for each core",
        "nice": "how much the compiler steps back for other programs, 0 to 19",
        "list": "show what has been built, and build nothing",
        "json": "print one JSON document",
    },
)
def build(
    c: Context,
    target: str = "rk3568",
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
    from armload.build.builder import build as build_binaries
    from armload.build.source import choose
    from armload.build.target import load_target
    from armload.buildhost.choose import workshop
    from armload.cli import terminal
    from armload.cli.numbers import whole_number
    from armload.report.binaries import binaries_table

    if list_:
        _show_builds(as_json=json)
        return
    progress = terminal.progress()
    chosen = load_target(target)
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
            source=choose(source, ref=ref, progress=progress),
            workshop=where,
            progress=progress,
        )
    if json:
        terminal.show_json("[" + ",".join(each.model_dump_json() for each in binaries) + "]")
    else:
        terminal.show(binaries_table(binaries))


def _show_builds(*, as_json: bool) -> None:
    from armload.build.shelf import shelved_builds
    from armload.cli import terminal
    from armload.report.cache import builds_table

    builds = shelved_builds()
    if as_json:
        terminal.show_json("[" + ",".join(each.model_dump_json() for each in builds) + "]")
    elif builds:
        terminal.show(builds_table(builds))
    else:
        terminal.progress().say("Nothing has been built yet: armload build.")
