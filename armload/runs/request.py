"""Where something is to run, and how it is built for that."""

from __future__ import annotations

from typing import Annotated, ClassVar

from armload.core.options import Alternatives, Exclusive, Option, OptionGroup, Seconds, Yields

DEFAULT_WAIT_S = 3600


class Compilation(OptionGroup):
    """How the engine is compiled, and where.

    Attributes:
        compiler: ``zig``, ``gnu`` or ``native``; empty for what is usual there.
        on: a build host that compiles the engine; empty for this machine.
    """

    heading = "Build"
    alternatives: ClassVar[Alternatives] = (Exclusive((("compiler=zig",), ("on",))),)

    compiler: Annotated[
        str,
        Option(
            "zig, gnu (the distribution's cross gcc) or native",
            "COMPILER",
            "zig; native with --on",
            harmless="anywhere",
        ),
    ] = ""
    on: Annotated[
        str, Option("compile on that board, such as an ARM server", "BOARD", "this machine")
    ] = ""


class SourceRef(OptionGroup):
    """What is compiled.

    Attributes:
        source: a file in ``toolchains/sources``, a llama.cpp folder, or the address of a git
            repository; empty for the pinned source.
        ref: a branch, tag or commit of the repository; empty for its default branch.
    """

    heading = "Build"
    yields: ClassVar[Yields] = {"ref": ("source",)}

    source: Annotated[
        str,
        Option(
            "file in toolchains/sources/, llama.cpp folder, or git address",
            "SOURCE",
            "pinned release",
        ),
    ] = ""
    ref: Annotated[
        str,
        Option(
            "branch, tag or commit, if the source is a git repository", "REF", "its default branch"
        ),
    ] = ""


class EngineSource(Compilation, SourceRef):
    """What is compiled, how, and where."""


class Waiting(OptionGroup):
    """How long to wait for a board that somebody else uses."""

    heading = "Board"

    wait_s: Annotated[
        Seconds, Option("seconds to wait while the board is in use", "SECONDS", name="wait")
    ] = DEFAULT_WAIT_S


class Metering(OptionGroup):
    """How the energy of a board with a power meter counts."""

    heading = "Conditions"

    subtract_idle: Annotated[
        bool,
        Option(
            "subtract the board's idle power, measured beforehand, from energy figures",
            harmless="anywhere",
        ),
    ] = False


class Resuming(OptionGroup):
    """Whether to start again, even if an interrupted command left the same one on the board."""

    heading = "Plan"

    new: Annotated[
        bool, Option("start over instead of resuming an interrupted command", harmless="anywhere")
    ] = False


class Request(Resuming, Metering, Waiting, EngineSource):
    """Where something is to run, and how it is built for that.

    Attributes:
        board: a file in ``boards/``.
        vulkan: programs are to compute on its GPU.
    """

    board: str
    vulkan: bool = False
