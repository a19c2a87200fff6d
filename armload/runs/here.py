"""Asking a program for boards on this machine, which may emulate it, with a header alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.cached import cached_builds
from armload.build.prebuilt import prebuilt_targets
from armload.build.record import runner
from armload.build.source import pinned_source
from armload.build.target import load_target, machine_architecture
from armload.core.bounds import TooMuchError, run_bounded
from armload.core.errors import ArmloadError
from armload.core.places import cache_folder
from armload.engines.completion import PROGRAM
from armload.engines.engine import Simulation
from armload.engines.footprint import FOOTPRINT_VARIABLE, Footprint, read_footprint
from armload.engines.llama_cpp import command, context_tokens, offers
from armload.engines.model_program import working_bytes
from armload.engines.plan import MICRO_BATCH_TOKENS, Plan
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs.cached_answers import cached_path, read_cached, write_cached

_TIME_LIMIT_S = 60.0
_MOST_BYTES = 1 << 24
_NO_FILE = PurePosixPath("/nonexistent.gguf")


def answer_here(
    binary: Binary,
    words: Sequence[str],
    header: WholeHeader,
    batch_tokens: int,
    also: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Let a program say what it would do with a model; return what it wrote.

    Args:
        words: of its command line, without the program.
        also: further variables for it.

    Returns:
        None where this machine cannot run it, it did not end in time, or wrote too much.
    """
    before = runner(binary.architecture)
    if before is None:
        return None
    # llama.cpp takes options from variables, which are those of somebody else's programs.
    size = f"{header.file_bytes},{batch_tokens}"
    environment = {FOOTPRINT_VARIABLE: size, "LC_ALL": "C", **also}
    try:
        done = run_bounded(
            [*before, str(binary.path), *words],
            given=header.content,
            environment=environment,
            most_bytes=_MOST_BYTES,
            limit_s=_TIME_LIMIT_S,
        )
    except (OSError, TooMuchError, TimeoutError):
        return None
    return b"\n".join((done.stdout, done.stderr)).decode("utf-8", "replace")


def words_of(asked: Simulation, launcher: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command for a board that follow its program."""
    return asked.command[len(launcher) + 1 :]


@lru_cache(maxsize=4)
def program_here(cache: Path) -> Binary | None:
    """Return a build of the pinned llama.cpp that this machine can run, without compiling one.

    It is one of the cache, a native one if there is, or came with the release; none where there is
    neither.

    Args:
        cache: armload's, for which the answer is remembered.
    """
    source = pinned_source().label
    found = [
        program
        for each in cached_builds()
        for program in each.programs
        if program.path.is_relative_to(cache)
        and program.program == PROGRAM
        and program.source == source
        and runner(program.architecture) is not None
        and offers(program.path, FOOTPRINT_VARIABLE)
    ]
    if found:
        return min(found, key=lambda each: each.architecture != machine_architecture())
    for name in sorted(prebuilt_targets()):
        target = load_target(name)
        if runner(target.architecture) is not None:
            try:
                (carried,) = build(target, programs=[PROGRAM])
            except ArmloadError:
                continue
            return carried
    return None


def footprint_here(model: Model, header: WholeHeader, plan: Plan) -> Footprint | None:
    """Return what llama.cpp itself would allocate for a run, with weights as they are in the file.

    Args:
        header: of the model, whose file may be missing.

    Returns:
        None where no program of the pinned source can run here, or it does not answer.
    """
    binary = program_here(cache_folder())
    if binary is None:
        return None
    context = context_tokens(plan, model)
    spoken = plan.model_copy(
        update={
            "prompt": "x",
            "prompt_tokens": None,
            "depth_tokens": 0,
            "context_tokens": context,
        }
    )
    program, *words = command(
        spoken,
        model,
        binary.path,
        on_board=PurePosixPath(PROGRAM),
        model_on_board=_NO_FILE,
        memory_bytes=1 << 62,
        memory_available_bytes=0,  # nothing is laid out anew
        streamed=False,
    )
    batch_tokens = min(plan.micro_batch_tokens or MICRO_BATCH_TOKENS, context)
    identity = [program, words, batch_tokens, binary.sha256, header.file_bytes]
    kept = cached_path("footprints/here", identity, header.content)
    footprint = read_cached(Footprint, kept)
    if footprint is None:
        answer = answer_here(binary, words, header, batch_tokens)
        footprint = read_footprint(answer or "")
        if footprint is None:
            return None
        # An emulator's own memory is among what a program shows of itself.
        own_bytes = min(footprint.own_bytes, working_bytes(model, 0))
        footprint = footprint.model_copy(update={"own_bytes": own_bytes})
        write_cached(kept, footprint)
    return footprint
