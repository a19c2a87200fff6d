"""A llama.cpp program that armload did not build, on a group of boards."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from armload.build.inspection import Inspection
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import whole_number
from armload.deploy.payload import Payload, find_payload, read_payload
from armload.engines.engine import MemoryNeed, RunContext, Spreadable
from armload.engines.model_program import memory_of
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.engines.watched.command import Script, file_among
from armload.engines.watched.engine import WatchedProgram, WatchRequest
from armload.models.gguf import read_model
from armload.models.model import Model

BENCH = "llama-bench"
_PROGRAMS = (
    *(BENCH, "llama-batched-bench", "llama-cli", "llama-completion", "llama-imatrix"),
    *("llama-perplexity", "llama-server", "llama-simple-chat"),
)
"""Those that take ``--rpc``."""

_DIVIDING = (
    *("--rpc", "-rpc", "-sm", "--split-mode", "-ngl", "--gpu-layers", "--n-gpu-layers"),
    *("-ts", "--tensor-split"),
)
_MODEL, _CONTEXT, _THREADS = ("-m", "--model"), ("-c", "--ctx-size"), ("-t", "--threads")
_BENCHMARKED_TOKENS = ("-p", "--n-prompt"), ("-n", "--n-gen")
_USUAL_CONTEXT = 4096
_USUAL_BENCHMARK = 512


class WatchedOnGroup(WatchedProgram):
    """A llama.cpp program whose model the members of a group compute.

    Args:
        model: as its words name it.
    """

    def __init__(
        self,
        request: WatchRequest,
        payload: Sequence[Payload],
        program: Inspection | Script | str,
        model: Model,
        stdin: Payload | None = None,
    ) -> None:
        super().__init__(request, payload, program, stdin)
        self._model_file = model

    @classmethod
    def on_group(
        cls, request: WatchRequest, program: Inspection | Script | str, progress: Progress
    ) -> WatchedOnGroup:
        """Read the model, and what is to be put on the board."""
        model = read_model(model_of(request), progress)
        payload = [read_payload(path, progress) for path in request.put]
        stdin = read_payload(request.stdin, progress) if request.stdin else None
        return cls(request, payload, program, model, stdin)

    @property
    def spreadable(self) -> Spreadable:
        """The model, in whole layers."""
        threads = _number(self._request.words, _THREADS)
        return Spreadable(model=self._model_file, threads=threads)

    @property
    def memory(self) -> MemoryNeed:
        """What the model takes with the context that the words ask for."""
        return memory_of(
            self._model_file,
            self._context_tokens,
            (1.0, 1.0),
            batch_tokens=MICRO_BATCH_TOKENS,
        )

    @property
    def _context_tokens(self) -> int:
        words, most = self._request.words, self._model_file.context_length
        if _is_bench(words):
            parts = [_number(words, names) or _USUAL_BENCHMARK for names in _BENCHMARKED_TOKENS]
            return min(most, sum(parts))
        return _number(words, _CONTEXT) or min(most, _USUAL_CONTEXT)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start it under ``watch``, with those for the members."""
        words = super().command(context)
        if context.spread is None:
            return words
        if _is_bench(self._request.words):
            return (*words, *context.spread.words(context.servers, separator="/"))
        length = ("-c", str(self._context_tokens))
        has_context = _number(self._request.words, _CONTEXT) is not None
        return (*words, *(() if has_context else length), *context.spread.words(context.servers))


def model_of(request: WatchRequest) -> Path:
    """Return the model that a llama.cpp program is to compute on a group."""
    name = Path(request.words[0]).name
    if name not in _PROGRAMS:
        raise UsageError(
            f"{name}: only llama.cpp's programs run on a group of boards: {', '.join(_PROGRAMS)}.",
            "Name one of the group's members to run another program there.",
        )
    divides = next((word for word in request.words if word in _DIVIDING), None)
    if divides is not None:
        raise UsageError(
            f"{divides}: armload divides the model between the members itself.",
            f"Remove {divides} and its value.",
        )
    found = [find_payload(path) for path in request.put]
    for option, value in itertools.pairwise(request.words):
        if option in _MODEL and (file := file_among(value, found)) is not None:
            return file.local
    raise UsageError(
        f"{name}: no model is named that could be divided between the members.",
        f"Example: --put {name} --put model.gguf -- {name} -m model.gguf",
    )


def _is_bench(words: Sequence[str]) -> bool:
    return Path(words[0]).name == BENCH


def _number(words: Sequence[str], names: Sequence[str]) -> int | None:
    for option, value in itertools.pairwise(words):
        if option in names:
            return whole_number(value)
    return None
