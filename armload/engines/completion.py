"""llama.cpp's ``llama-completion``: a text is continued, and every token timed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.files import content
from armload.core.progress import Progress
from armload.deploy.deployment import check_fit
from armload.deploy.payload import Payload
from armload.engines.engine import Engine, MemoryNeed, Settings, Site
from armload.engines.job import BinaryRecord, Job, ModelRecord, Subject
from armload.engines.llama_cpp import (
    check_architecture,
    check_options,
    command,
    context_tokens,
    engine_times,
    generated_text,
)
from armload.engines.output import Memory, Output
from armload.engines.plan import Plan
from armload.engines.trace import read_trace
from armload.engines.weights import are_streamed, environment
from armload.models.model import Model

PROGRAM = "llama-completion"
"""The program; releases from before it had a name of its own call it ``llama-cli``."""

WORKING_BYTES = 64 << 20
"""Of the engine itself beside weights and cache, with some room."""


class Completion(Engine):
    """One plan, run by one program with one model.

    Attributes:
        plan, model: as given.

    Args:
        plan: with its prompt, as ``whole_plan`` gives it.
        binary: built for the board's target.
        model: whose architecture it knows.

    Raises:
        UsageError: it does not, or the program lacks an option that the plan asks for.
    """

    name = "llama-completion"
    unit = "tokens"

    def __init__(self, plan: Plan, binary: Binary, model: Model) -> None:
        check_architecture(binary.path, model)
        check_options(binary.path, plan)
        self.plan = plan
        self._binary = binary
        self.model = model

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program and model."""
        parts = (self.plan.model_dump_json(), self._binary.sha256, self.model.sha256)
        return checksum(parts)

    @property
    def subject(self) -> Subject:
        """The plan, and what is known of program and model."""
        return Subject(
            plan=self.plan, binary=binary_record(self._binary), model=model_record(self.model)
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program and the model."""
        return program_and_model(self._binary, self.model)

    @property
    def time_limit_s(self) -> float:
        """As planned."""
        return self.plan.time_limit_s

    @property
    def total(self) -> int | None:
        """The tokens to generate."""
        return self.plan.n_predict

    @property
    def settings(self) -> Settings:
        """As planned."""
        return settings_of(self.plan)

    @property
    def memory(self) -> MemoryNeed:
        """The model's file, and the KV cache with the engine's buffers."""
        return memory_need(self.plan, self.model)

    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Refuse a board whose CPU lacks what the program uses."""
        del progress
        check_fit(board, self._binary, found, emulated=bool(host.launcher))

    def command(self, site: Site) -> tuple[str, ...]:
        """Return the words that start llama-completion there."""
        program, model = (each.items(site.layout)[0].remote for each in self.payload)
        words = command(
            self.plan,
            self.model,
            self._binary.path,
            on_board=program,
            model_on_board=model,
            memory_available_bytes=site.found.conditions.memory_available_bytes,
            streamed=self._are_streamed(site),
        )
        return (*site.launcher, *words)

    def environment(self, site: Site) -> Mapping[str, str]:
        """Say how the weights are held, where that is not as llama.cpp does it."""
        return environment(self.plan, streamed=self._are_streamed(site))

    def _are_streamed(self, site: Site) -> bool:
        plan, model, now = self.plan, self.model, site.found.conditions
        return are_streamed(plan, self._binary.path, model, self.memory, now)

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the trace, the text, and the sums that ``--perf`` prints."""
        del job
        header, steps = read_trace(folder / "trace.jsonl")
        peak = max((step.rss_bytes for step in steps), default=0)
        return Output(
            header=header,
            steps=steps,
            text=generated_text(content(folder / "stdout")),
            times=engine_times(content(folder / "stderr").decode("utf-8", "replace")),
            memory=Memory(max_rss_bytes=peak, max_vms_bytes=peak) if peak else None,
        )


def checksum(parts: Sequence[str]) -> str:
    """Return a checksum over what decides a run."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def binary_record(binary: Binary) -> BinaryRecord:
    """Return what is kept of a program."""
    return BinaryRecord(
        **binary.model_dump(include=set(BinaryRecord.model_fields) - {"features"}),
        features=tuple(use.feature for use in binary.features if not use.guarded),
    )


def model_record(model: Model) -> ModelRecord:
    """Return what is kept of a model."""
    facts = model.model_dump(include=set(ModelRecord.model_fields) - {"name"})
    return ModelRecord(name=model.name, **facts)


def settings_of(plan: Plan) -> Settings:
    """Return in which state a plan wants its board."""
    return Settings(cpus=plan.cpus, threads=plan.threads, cold=plan.cold, measure_rates=True)


def memory_need(plan: Plan, model: Model) -> MemoryNeed:
    """Return what a plan takes of a board's memory."""
    context = context_tokens(plan, model)
    return MemoryNeed(
        name=model.name,
        weights_bytes=model.size_bytes,
        kv_bytes=round(context * model.kv_bytes_per_token * plan.kv_share),
        program_bytes=WORKING_BYTES,
        context_tokens=context,
        bytes_per_token=model.bytes_per_token,
    )


def program_and_model(binary: Binary, model: Model) -> tuple[Payload, Payload]:
    """Return what llama-completion needs on a board."""
    return (
        Payload.of_file(binary.path, sha256=binary.sha256, executable=True),
        Payload.of_file(model.path, sha256=model.sha256, executable=False),
    )
