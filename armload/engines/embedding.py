"""llama.cpp's ``llama-embedding``: texts of equal length become embeddings, or scores."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import JsonValue

from armload.build.binary import Binary
from armload.core.cache import CacheKind
from armload.core.errors import UsageError
from armload.core.files import content, write_whole
from armload.core.ids import fingerprint_of
from armload.core.places import cache_folder
from armload.core.values import counted, format_bytes
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE, TRACE_FILE
from armload.deploy.payload import Payload
from armload.engines.completion import Completion
from armload.engines.engine import MemoryNeed, RunContext
from armload.engines.job import Job, RunSpec
from armload.engines.llama_cpp import KV_ROUNDING_TOKENS, if_offered, settings_words
from armload.engines.model_program import memory_of, peak_memory
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.prediction import Sequences
from armload.engines.trace import read_trace
from armload.models.model import Model, check_pools
from armload.models.tokens import prompt_of

EMBEDDING_PROGRAM = "llama-embedding"
EMBEDDED_TOKENS = 128
"""Of a text, where nothing is said of its length."""

_PASSES = 16
_PASS_TOKENS = 512
"""Of a pass, where texts are given."""

_MOST_SEQUENCES = 256
"""Of llama.cpp in a pass."""

_MOST_BYTES = 16 << 20
"""Of all texts."""

_NOT_FINITE = re.compile(rb"-?(?:nan|inf)")
_FOLDER = "texts"  # of the cache
_REFUSED = {
    "prompt": "--prompt: only texts of equal length fill every pass alike",
    "depth_tokens": "--depth",
    "context_tokens": "--context, which follows from --prompt-tokens",
    "batch_tokens": "--batch, which follows from --prompt-tokens",
    "micro_batch_tokens": "--micro-batch, which follows from --prompt-tokens",
    "speculate": "--speculate",
    "image": "--image",
    "audio": "--audio",
    "n_predict": "-n: no tokens are generated",
    "stop_at_end": "--stop-at-end: no tokens are generated",
}
"""Fields of a plan that say nothing of embeddings, as they are typed."""


def embedding_plan(plan: Plan, model: Model) -> Plan:
    """Return a plan with a text for each pass, as ``whole_plan`` does for a continuation.

    Raises:
        UsageError: the model cannot embed, the text exceeds its context, or the plan says what no
            embedding has.
    """
    for field, words in _REFUSED.items():
        if (
            field in plan.model_fields_set
            and getattr(plan, field) != Plan.model_fields[field].default
        ):
            raise UsageError(f"--embed cannot be combined with {words}.", "Remove one.")
    if plan.engine != "llama.cpp":
        raise UsageError("--embed needs --engine llama.cpp.", "Remove --engine.")
    check_pools(model, plan.pooling, "--pooling")
    tokens = plan.prompt_tokens or EMBEDDED_TOKENS
    if tokens > model.context_length:
        raise UsageError(
            f"--prompt-tokens {tokens} is too large: {model.name} was trained for "
            f"{model.context_length}.",
            f"Use --prompt-tokens {model.context_length} or less.",
        )
    at_a_time = plan.embed or 1
    has_cache = model.context_memory.size_bytes(tokens) > 0
    if at_a_time == 1 and tokens > KV_ROUNDING_TOKENS and has_cache:
        raise UsageError(
            f"--embed 1: llama-embedding halves the KV cache then, and {model.name} needs all of "
            f"it for {tokens} tokens.",
            f"Use --embed 2 or more, or --prompt-tokens {KV_ROUNDING_TOKENS} or less.",
        )
    wanted = plan.texts or _PASSES * at_a_time
    text = prompt_of(model.path, tokens)
    texts = -(-wanted // at_a_time) * at_a_time
    if (len(text.encode()) + 1) * texts > _MOST_BYTES:
        raise UsageError(
            f"{counted(texts, 'text')} of {tokens} tokens exceed {format_bytes(_MOST_BYTES)}.",
            "Use fewer --texts, or a smaller --embed or --prompt-tokens.",
        )
    return plan.model_copy(
        update={
            "prompt": text,
            "prompt_tokens": tokens,
            "texts": texts,
            "context_tokens": tokens * at_a_time,
        }
    )


def embedding_need(plan: Plan, model: Model) -> MemoryNeed:
    """Return what it takes of a board's memory: weights, and buffers for a pass."""
    tokens, at_a_time = plan.prompt_tokens or EMBEDDED_TOKENS, plan.embed or 1
    return memory_of(
        model,
        tokens,
        plan.kv_shares,
        batch_tokens=tokens * at_a_time,
        micro_batch_tokens=tokens * at_a_time,
        sequences=Sequences(count=at_a_time, kind="text", least_tokens=tokens),
        flash_attention=plan.flash_attention,
    )


def one_text(plan: Plan, model: Model) -> Plan:
    """Return the continuation with which a text is predicted; a prompt computes the same."""
    tokens = min(plan.prompt_tokens or EMBEDDED_TOKENS, model.context_length - 1)
    return plan.model_copy(
        update={
            "embed": None,
            "prompt_tokens": tokens,
            "n_predict": 1,
            "context_tokens": min(
                model.context_length, -(-(tokens + 1) // KV_ROUNDING_TOKENS) * KV_ROUNDING_TOKENS
            ),
        }
    )


def lines_plan(plan: Plan, model: Model, lines: Sequence[str]) -> Plan:
    """Return a plan that embeds given texts, as many in a pass as fit.

    Raises:
        UsageError: the model cannot embed.
    """
    check_pools(model, plan.pooling, "--pooling")
    tokens = min(model.context_length, _PASS_TOKENS)
    update = {"embed": 1, "prompt_tokens": tokens, "context_tokens": tokens, "texts": len(lines)}
    return plan.model_copy(update=update)


class Embedding(Completion):
    """A plan in which texts are embedded, or scored, several at a time.

    Args:
        plan: as ``embedding_plan`` gives it, or ``lines_plan``.
        lines: the texts; none for the plan's prompt, again and again: what texts say changes
            nothing of the time.
    """

    name: ClassVar[str] = EMBEDDING_PROGRAM
    unit = "passes"
    keeps_forecast = False

    def __init__(
        self, plan: Plan, binary: Binary, model: Model, *, lines: Sequence[str] | None = None
    ) -> None:
        super().__init__(plan, binary, model)
        self._is_timed = lines is None
        written = "\n".join(lines or [plan.prompt] * (plan.texts or 1)).encode()
        self._sha256 = hashlib.sha256(written).hexdigest()
        self._lines = cache_folder() / _FOLDER / f"{self._sha256}.txt"
        if not self._lines.is_file():
            write_whole(self._lines, written)

    @property
    def subject(self) -> RunSpec:
        """The plan of what is timed; of given texts, how many they are."""
        found = super().subject
        if self._is_timed:
            return found
        about: dict[str, JsonValue] = {"texts": self.plan.texts, "texts_sha256": self._sha256}
        return found.model_copy(update={"plan": None, "arguments": about})

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program, model and texts."""
        return fingerprint_of((super().fingerprint, self._sha256))

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program, the model, and the texts."""
        texts = Payload.of_file(self._lines, sha256=self._sha256, executable=False)
        return (*super().payload, texts)

    @property
    def unsendable(self) -> tuple[str, str]:
        return (
            "--embed cannot run through a gateway: its texts are not sent there.",
            "Omit --scheduler.",
        )

    @property
    def continuation(self) -> Plan:
        """What its time and memory are predicted for: one text."""
        return one_text(self.plan, self.model)

    @property
    def estimated_memory(self) -> MemoryNeed:
        """The model's file, and the buffers of a pass."""
        return embedding_need(self.plan, self.model)

    @property
    def batch_tokens(self) -> int:
        """Of a pass."""
        return (self.plan.prompt_tokens or EMBEDDED_TOKENS) * (self.plan.embed or 1)

    @property
    def total(self) -> int | None:
        """The passes over the weights."""
        return (self.plan.texts or 1) // (self.plan.embed or 1)

    @property
    def spreadable(self) -> None:
        """Nothing: it runs on one board."""
        return

    def phase(self, now: ProgressUpdate) -> str:
        """Return what comes before the first pass."""
        return "embedding" if now.steps else "loading the model"

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-embedding there."""
        plan, program = self.plan, self.binary.path
        on_board, model, *_, texts = (
            str(each.items(context.layout)[0].remote) for each in self.payload
        )
        pass_tokens = str(plan.context_tokens)
        words = [on_board, "-m", model, *self._adapter_words(context), "-f", texts]
        words += ["-c", pass_tokens, "-b", pass_tokens]
        words += ["-np", str(self._sequences)]
        pooling = "rank" if self.model.ranks else plan.pooling
        words += [] if pooling == "model" else ["--pooling", pooling]
        # Scores are not to be divided by their length.
        words += ["--embd-normalize", "-1" if self.model.ranks else "2"]
        words += ["--embd-output-format", "array"]
        words += settings_words(plan, program, context.cores, context.most_threads)
        words += self._memory_words(context)
        if self._are_streamed(context):
            words.append("--no-warmup")  # it would read all weights once more
        words += if_offered(program, "-fit", "off")
        return (*context.launcher, *words, *plan.extra)

    @property
    def _sequences(self) -> int:
        """The texts of a pass that the program makes room for.

        With one, it makes room for 256, in a cache that all share. Given texts may need that many,
        but a pass of fewer tokens has no room for them: the program would abort.
        """
        if self._is_timed:
            return max(2, self.plan.embed or 1)
        tokens = self.plan.context_tokens or _PASS_TOKENS
        has_cache = self.model.context_memory.size_bytes(tokens) > 0
        return 1 if has_cache or tokens >= _MOST_SEQUENCES else tokens

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the trace, and check that every text has an embedding of finite numbers."""
        header, steps = read_trace(folder / TRACE_FILE)
        asked = job.plan.texts if job.plan else (job.arguments or {}).get("texts")
        texts = asked if isinstance(asked, int) else 0
        rows = printed_embeddings(content(folder / STDOUT_FILE))
        ranks = "rank" in job.command
        if len(rows) != texts:
            missing = f"{counted(texts, 'text')} were to be embedded, but {len(rows)} were."
        elif not all(math.isfinite(each) for row in rows for each in row[: 1 if ranks else None]):
            missing = "An embedding has numbers that are not finite."
        else:
            missing = ""
        return Output(
            header=header,
            steps=steps,
            memory=peak_memory(steps),
            result={"texts": len(rows), "dimensions": 1 if ranks else len(rows[0]) if rows else 0},
            missing=missing,
        )


def printed_embeddings(stdout: bytes) -> Sequence[Sequence[float]]:
    """Return the embeddings that were printed; none of what is cut short."""
    try:
        found = json.loads(_NOT_FINITE.sub(b"NaN", stdout))
    except ValueError:
        return ()
    return [row for row in found if isinstance(row, list)] if isinstance(found, list) else ()


def text_files() -> CacheKind:
    """Return the texts that were made to be embedded."""
    return CacheKind(
        name=_FOLDER,
        what="texts for bench --embed",
        again="a second",
    )
