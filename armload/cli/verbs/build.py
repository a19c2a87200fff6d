"""``build`` and ``inspect``: static binaries from source, and what any program needs."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from armload.build.vulkan import GLIBC
from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Names, Option, Yields
from armload.runs.request import EngineSource

if TYPE_CHECKING:
    from armload.build.target import Target
    from armload.report.result import Result


MOST_JOBS = 1024
MOST_NICE = 19


class BuildOptions(EngineSource, OutputOptions):
    """What is built, for what, and how much of a machine that may take."""

    heading = "Build"
    yields: ClassVar[Yields] = {
        "list_": (
            "target",
            "programs",
            "backend",
            "jobs",
            "nice",
            "rebuild",
            *EngineSource.model_fields,
        )
    }

    target: Annotated[
        str,
        Option(
            "what to build for: the name of a file in toolchains/, such as rk3568",
            harmless="anywhere",
        ),
    ] = "rk3568"
    programs: Annotated[
        Names,
        Option(
            "llama-completion, llama-cli, llama-bench, llama-server, llama-quantize, "
            "llama-perplexity, llama-embedding, llama-speculative-simple, rpc-server, "
            "armload-score, armload-score-media",
            "NAMES",
            "llama-completion, which bench runs",
            "commas",
            harmless="anywhere",
        ),
    ] = ()
    backend: Annotated[
        Literal["cpu", "vulkan"],
        Option(
            "cpu: static programs; vulkan: programs that also compute on GPUs, for boards with "
            f"glibc {GLIBC} or newer and a Vulkan loader",
            "cpu|vulkan",
            harmless="anywhere",
        ),
    ] = "cpu"
    jobs: Annotated[
        Annotated[int, Field(ge=0, le=MOST_JOBS)] | None,
        Option(
            "parallel compile jobs; 0: one per core",
            "N",
            "0; with --on, the value in the board's file",
        ),
    ] = None
    nice: Annotated[
        Annotated[int, Field(ge=0, le=MOST_NICE)] | None,
        Option(
            "niceness of the compiler, 0 to 19", "N", "0; with --on, the value in the board's file"
        ),
    ] = None
    rebuild: Annotated[
        bool,
        Option("compile again what is built already or came with armload, and compare the SHA-256"),
    ] = False
    list_: Annotated[
        bool,
        Option("list existing builds instead of building", heading="Output", harmless="anywhere"),
    ] = False


@verb(BuildOptions, keeps=True)
def build(options: BuildOptions) -> Result:
    """Build llama.cpp for a board's CPU, or its GPU, and inspect it.

    Example: armload build --target rk3568 --programs llama-completion,llama-bench
    """
    from armload.build.binary import Binary
    from armload.build.builder import build as build_binaries
    from armload.build.source import choose
    from armload.build.target import load_target
    from armload.buildhost.remote import build_backend
    from armload.cli import terminal
    from armload.core.values import ValueList
    from armload.report.binaries import binaries_table
    from armload.report.result import as_result

    if options.list_:
        options = options.refuse(
            BuildOptions.yields["list_"],
            "--list, which lists all builds",
            "Remove it.",
        )
        return _builds()
    progress = terminal.progress()
    chosen = load_target(options.target)
    engine = choose(options.source, ref=options.ref, progress=progress)
    with build_backend(
        on=options.on,
        compiler=options.compiler,
        jobs=options.jobs,
        nice=options.nice,
        vulkan=options.backend == "vulkan",
        progress=progress,
    ) as where:
        binaries = build_binaries(
            chosen,
            programs=[name.strip() for name in options.programs if name.strip()],
            source=engine,
            backend=where,
            progress=progress,
            rebuild=options.rebuild,
        )
    return as_result(ValueList[Binary](tuple(binaries)), binaries_table(binaries))


def _builds() -> Result:
    from armload.build.cached import CachedBuild, cached_builds
    from armload.core.values import ValueList
    from armload.report.cache import builds_view
    from armload.report.result import as_result

    builds = cached_builds()
    return as_result(ValueList[CachedBuild](tuple(builds)), builds_view(builds))


class ProgramOptions(OutputOptions):
    """A program, and the target that it must suit."""

    file: Annotated[str, Option("a program, such as llama-completion", is_argument=True)]
    target: Annotated[
        str,
        Option(
            "fail unless it runs on this target: a file in toolchains/, such as rk3568",
            harmless="anywhere",
        ),
    ] = ""


@verb(ProgramOptions)
def inspect(options: ProgramOptions) -> Generator[Result, None, None]:
    """Show what a program requires of a board, and which targets it runs on.

    Example: armload inspect llama-completion --target rk3568
    """
    from pathlib import Path

    from armload.build import inspection
    from armload.build.fit import fits
    from armload.build.record import with_build_record
    from armload.build.target import load_target
    from armload.core.trust import describing
    from armload.report.binaries import Inspected, inspection_table
    from armload.report.result import as_result

    path = Path(options.file).expanduser()
    with describing():  # nothing is built for them
        targets = [load_target(options.target)] if options.target else _all_targets()
    found = with_build_record(inspection.inspect(path))
    suits = list(fits(found, targets))
    yield as_result(Inspected.of(found, suits), inspection_table(found, suits))
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
            terminal.progress().say(f"Skipped the target {name}: {error}")
    return targets
