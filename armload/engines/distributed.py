"""distributed-llama: every board computes its part of each layer, all of them at once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from armload.boards.framing import reason
from armload.boards.host import Host
from armload.build.binary import Binary
from armload.build.programs import DLLAMA, SCORER
from armload.core.cpu_sets import cpu_numbers
from armload.core.errors import BoardError, UsageError
from armload.core.files import content
from armload.core.ids import fingerprint_of
from armload.core.shell import join, quote
from armload.core.values import Value, format_bytes
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE, TRACE_FILE, Layout
from armload.deploy.payload import Payload
from armload.engines.completion import settings_of
from armload.engines.engine import (
    Engine,
    Forecastable,
    MemberRoom,
    RunContext,
    Settings,
    WorkerPlan,
)
from armload.engines.job import Job, RunSpec
from armload.engines.llama_cpp import context_tokens
from armload.engines.model_program import ModelProgram, peak_memory
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.rpc_server import GroupWorker
from armload.engines.spread import Share, Spread
from armload.engines.trace import read_trace
from armload.models.distributed_llama import BATCH_TOKENS, DistributedModel
from armload.models.model import Model

PROGRAMS = (DLLAMA, SCORER)
"""What it takes: its own program, and the scorer, by which llama.cpp tokenizes the prompt."""

POLL = "--poll"
"""The one further argument that it takes."""

_LONGEST_WORD_BYTES = 120_000
"""Linux takes no argument of more than 128 KiB."""

_KEY_BYTES = 24


class ConvertedFiles(Value):
    """A model as distributed-llama reads it.

    Attributes:
        facts: what it is, and how nodes can share it.
        weights, pieces, vocabulary: its files: of the nodes, of the text, and for llama.cpp.
        ends: tokens after which a text ends.
    """

    facts: DistributedModel
    weights: Payload
    pieces: Payload
    vocabulary: Payload
    ends: tuple[int, ...]


class DistributedRun(ModelProgram[Plan]):
    """One plan, run by the nodes of distributed-llama; this is the first of them.

    Args:
        plan: with its prompt, as ``whole_plan`` gives it.
        binaries: of ``PROGRAMS``, built for the board's target.
        model: the GGUF file.
        converted: the same in distributed-llama's format.

    Raises:
        UsageError: the plan asks for what it cannot do.
    """

    name = DLLAMA
    unit = "tokens"
    is_meshed = True
    others_gone = f"{DLLAMA}: another node has gone"
    less_memory = "Use a smaller model or --context, or a larger group."
    unfit_for: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("serve", "load"),
            ": distributed-llama's server takes one request at a time, and has a tokenizer of its "
            "own",
        ),
        "eval": ": only its scorer answers a file of questions. How far distributed-llama's logits "
        "are from them: eval --task logits --reference dllama",
        "tune": ", whose options it searches. To choose among boards and threads for "
        "distributed-llama, list them: bench --engine dllama --board ONE,GROUP --threads 2,4",
    }

    def __init__(
        self, plan: Plan, binaries: Mapping[str, Binary], model: Model, converted: ConvertedFiles
    ) -> None:
        check_supported(plan)
        super().__init__(plan, binaries[DLLAMA], model)
        self._scorer = binaries[SCORER]
        self._converted = converted
        # Nobody else may take part in what these boards compute.
        self._key = secrets.token_hex(_KEY_BYTES)

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, programs and model."""
        return fingerprint_of((super().fingerprint, self._scorer.sha256))

    @property
    def subject(self) -> RunSpec:
        return super().subject.model_copy(update={"plan": self.plan, "arguments": None})

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The programs, and the model's files; the GGUF file stays here."""
        made = self._converted
        programs = (
            Payload.of_file(each.path, sha256=each.sha256, executable=True)
            for each in (self.binary, self._scorer)
        )
        return (*programs, made.weights, made.pieces, made.vocabulary)

    @property
    def time_limit_s(self) -> float:
        return self.plan.time_limit_s

    @property
    def total(self) -> int | None:
        """The tokens to generate."""
        return self.plan.n_predict

    @property
    def settings(self) -> Settings:
        return settings_of(self.plan)

    @property
    def forecastable(self) -> Forecastable:
        """The plan, by the times of its own nodes."""
        return Forecastable(
            model=self.model,
            plan=self.plan,
            is_kept=True,
            nodes=self.facts,
            node_program=self.binary,
        )

    @property
    def unsendable(self) -> tuple[str, str]:
        return (
            "--engine dllama cannot run through a gateway: its nodes are connected from here.",
            "Omit --scheduler, or use --engine llama.cpp.",
        )

    @property
    def facts(self) -> DistributedModel:
        """How the nodes share the model."""
        return self._converted.facts

    @property
    def _batch_tokens(self) -> int:
        return self.plan.micro_batch_tokens or BATCH_TOKENS

    def divided(self, members: Sequence[MemberRoom]) -> Spread:
        """Give every node the same part of each layer; the first one has the embedding, too.

        Raises:
            UsageError: so many nodes cannot share the model.
            BoardError: a node has too little memory for its part.
        """
        facts = self.facts
        facts.check_nodes(len(members))
        context = context_tokens(self.plan, self.model)
        needs = facts.memory(len(members), context, self._batch_tokens)
        for number, (member, need) in enumerate(zip(members, needs, strict=True)):
            if need.total_bytes > member.available_bytes:
                role = "the first node" if number == 0 else "a node"
                raise BoardError(
                    f"{member.board}: as {role} of {len(members)}, distributed-llama takes "
                    f"{format_bytes(need.total_bytes)} of memory for {self.model.name} with a "
                    f"context of {context} tokens, but {format_bytes(member.available_bytes)} are "
                    "available.",
                    "Use a larger group, a smaller --context or a smaller model, or --engine "
                    "llama.cpp.",
                )
        shares = (
            Share(
                board=member.board,
                layers=facts.layers,
                weights_bytes=need.weights_bytes,
                memory_bytes=need.total_bytes,
            )
            for member, need in zip(members, needs, strict=True)
        )
        return Spread(split="tensor", shares=tuple(shares))

    def worker(self, plan: WorkerPlan) -> Engine:
        """Return what each other member runs: a node that knows this run's key."""
        return DistributedWorker(plan, self.binary, self._key, self.plan.extra)

    def place_secret(self, host: Host, layout: Layout) -> None:
        """Put the key where the board's other users cannot read it."""
        _place_key(host, layout, self._key)

    def phase(self, now: ProgressUpdate) -> str:
        """Return what comes before the first token, of which the trace says nothing yet."""
        return "generating" if now.steps else "distributing the model"

    def program(self, context: RunContext) -> str:
        """Return the program, which a shell starts."""
        return str(self.payload[0].items(context.layout)[0].remote)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words of a shell: llama.cpp tokenizes the prompt, and the nodes continue it.

        Raises:
            UsageError: the prompt is too long for an argument.
        """
        program, scorer, weights, pieces, vocabulary = (
            str(each.items(context.layout)[0].remote) for each in self.payload
        )
        item = {"id": "prompt", "kind": "tokenize", "text": self.plan.prompt}
        line = json.dumps(item, ensure_ascii=False)
        tokenizing = (scorer, "-m", vocabulary, "--vocab-only", "--items", "items.jsonl")
        nodes = (program, "root", "--model", weights, "--prompt", "prompt.jsonl")
        script = (
            f"printf '%s\\n' {quote(line)} >items.jsonl && "
            f"ARMLOAD_TRACE= {join((*context.launcher, *tokenizing))} >prompt.jsonl && "
            f"exec {join((*context.launcher, *nodes, *self._words(context, pieces)))}"
        )
        if len(script.encode()) > _LONGEST_WORD_BYTES:
            raise UsageError("The prompt is too long for --engine dllama.", "Use a shorter prompt.")
        return ("sh", "-c", script)

    def _words(self, context: RunContext, pieces: str) -> Iterator[str]:
        plan = self.plan
        yield from ("--pieces", pieces, "-n", str(plan.n_predict))
        yield from ("--context", str(context_tokens(plan, self.model)))
        yield from ("--threads", str(threads_of(plan.threads, context)))
        yield from ("--batch", str(self._batch_tokens))
        if plan.stop_at_end and self._converted.ends:
            yield from ("--end", ",".join(map(str, self._converted.ends)))
        if context.servers:
            yield from ("--workers", ",".join(context.servers))
            yield from ("--key", str(context.layout.node_key))
        if any(context.peers):
            yield from ("--peers", ";".join(map(",".join, context.peers[:-1])))
        yield from plan.extra

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the trace and the text."""
        del job
        header, steps = read_trace(folder / TRACE_FILE)
        return Output(
            header=header,
            steps=steps,
            text=content(folder / STDOUT_FILE).decode("utf-8", "replace"),
            memory=peak_memory(steps),
        )


class DistributedWorker(GroupWorker):
    """A node that computes its part of each layer, until it is stopped.

    Args:
        binary: of ``DLLAMA``, built for the board's target.
        key: of the run.
        extra: further arguments.
    """

    name = "armload-dllama-worker"

    def __init__(
        self, plan: WorkerPlan, binary: Binary, key: str, extra: tuple[str, ...] = ()
    ) -> None:
        super().__init__(plan, binary)
        self._key = key
        self._extra = extra

    def place_secret(self, host: Host, layout: Layout) -> None:
        """Put the key where the board's other users cannot read it."""
        _place_key(host, layout, self._key)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start it there."""
        program = str(self.payload[0].items(context.layout)[0].remote)
        words = [program, "worker", "--host", self.plan.address, "--port", str(self.plan.port)]
        words += ["--key", str(context.layout.node_key)]
        words += ["--threads", str(threads_of(self.plan.threads, context)), *self._extra]
        return (*context.launcher, *words)

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read its own trace."""
        del job
        header, steps = read_trace(folder / TRACE_FILE)
        return Output(header=header, steps=steps, memory=peak_memory(steps))


def threads_of(planned: int | None, context: RunContext) -> int:
    """Return how many threads a node computes with: as planned, else one for each of its cores."""
    cores = len(cpu_numbers(context.cores)) if context.cores else context.found.cores
    return planned or cores


def _place_key(host: Host, layout: Layout, key: str) -> None:
    path = quote(layout.node_key)
    # A file that is there keeps its mode, and whoever has opened it keeps reading it.
    script = f"rm -f {path} && umask 077 && cat >{path}"
    done = host.run(script, stdin=f"{key}\n".encode())
    if done.status != 0:
        raise BoardError(f"{host.name}: {layout.node_key}: {reason(done.stderr)}.")


def check_supported(plan: Plan) -> None:
    """Refuse options of llama.cpp that distributed-llama does not have.

    Raises:
        UsageError: names the first.
    """
    asked = {
        "--kv-type": plan.kv_type is not None,
        "--flash-attention": plan.flash_attention is not None,
        f"--device {plan.device}": plan.device is not None,
        "--numa": plan.numa is not None,
        "--batch": plan.batch_tokens is not None,
        f"--weights {plan.weights}": plan.weights != "auto",
        "--resident": plan.resident_bytes is not None,
        "--speculate": plan.speculate is not None,
        "--lora": plan.lora is not None,
        "--split": plan.split is not None,
        "--depth": plan.depth_tokens > 0,
        f"--temperature {plan.temperature:g}": plan.temperature > 0,
    }
    for option, is_given in asked.items():
        if is_given:
            raise UsageError(
                f"--engine dllama: distributed-llama has no {option}.",
                f"Remove {option}, or use --engine llama.cpp.",
            )
    if plan.extra and (len(plan.extra) != 2 or plan.extra[0] != POLL):
        raise UsageError(
            f"--engine dllama: it takes no argument {' '.join(plan.extra)}.",
            f"Its only further argument: --engine-args='{POLL} 0', for boards with fewer free "
            "cores than threads.",
        )
