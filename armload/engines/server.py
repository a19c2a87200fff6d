"""llama.cpp's ``llama-server``: a model that answers requests until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from armload.boards.framing import reason
from armload.boards.host import Host
from armload.build.binary import Binary
from armload.build.helper import MONITOR
from armload.core.errors import BoardError, UsageError
from armload.core.ids import fingerprint_of
from armload.core.shell import quote
from armload.core.values import Value
from armload.deploy.launch import ServiceOptions
from armload.deploy.layout import FORMER_TRACE_FILE, TRACE_FILE, Layout
from armload.deploy.payload import Payload
from armload.engines.engine import MemoryNeed, RunContext, Simulation
from armload.engines.job import Job, RunSpec
from armload.engines.llama_cpp import (
    KV_ROUNDING_TOKENS,
    check_architecture,
    if_offered,
    mentions,
    offers,
    settings_words,
)
from armload.engines.model_program import ModelEngine, memory_of, model_record
from armload.engines.output import Output
from armload.engines.perception import (
    TEMPLATES,
    check_traces_media,
    media_words,
    projector_payload,
    projector_record,
)
from armload.engines.plan import LONGEST_RUN_S, MTP, kv_shares
from armload.engines.prediction import Sequences
from armload.engines.service_plan import ServingPlan
from armload.engines.speculation import (
    check_offered,
    check_predicts,
    drafting_bytes,
    drafting_words,
    with_drafting,
)
from armload.engines.trace import Step, Weights, read_lines
from armload.models.model import Model, check_pools
from armload.models.projector import Projector
from armload.models.tokens import check_draft

SERVER = "llama-server"
LOOPBACK = "127.0.0.1"

TRACE_BYTES = 32 << 20
"""Of each of the trace's two files: some 80,000 steps."""

_MIB = 1 << 20

_MOST_CHECKPOINTS = 32
"""Of a slot: llama-server's default, whatever the size of one."""


def plan_for(model: Model, plan: ServingPlan | None = None) -> ServingPlan:
    """Return a plan with the context that each slot will have: llama.cpp rounds it up."""
    plan = plan or ServingPlan()
    if plan.embeddings is not None:
        check_pools(model, plan.embeddings, "--embeddings")
        if model.ranks:
            plan = plan.model_copy(update={"embeddings": "rank"})
    wanted = plan.context_tokens
    if "context_tokens" not in plan.model_fields_set:
        wanted = min(wanted, model.context_length)
    elif wanted > model.context_length:
        raise UsageError(
            f"--context {wanted} is too large: {model.name} was trained for "
            f"{model.context_length}.",
            f"Use --context {model.context_length} or less; each slot has that much.",
        )
    rounded = -(-wanted // KV_ROUNDING_TOKENS) * KV_ROUNDING_TOKENS
    sizes = {"context_tokens": rounded}
    if plan.embeddings is not None and "micro_batch_tokens" not in plan.model_fields_set:
        # The server embeds a text in one pass, or not at all.
        sizes["micro_batch_tokens"] = rounded
        sizes["batch_tokens"] = max(rounded, plan.batch_tokens)
    return plan.model_copy(update=sizes)


def serving_need(plan: ServingPlan, model: Model) -> MemoryNeed:
    """Return what a service takes of a board's memory."""
    return memory_of(
        model,
        plan.context_tokens,
        kv_shares(plan.kv_type),
        batch_tokens=plan.micro_batch_tokens,
        micro_batch_tokens=plan.micro_batch_tokens,
        sequences=Sequences(count=plan.slots, kind="slot"),
        flash_attention=plan.flash_attention,
        more_bytes=plan.prompt_cache_bytes,
    )


def checkpoints_of(plan: ServingPlan, model: Model) -> tuple[int, int]:
    """Return how many checkpoints each slot keeps, and the bytes of all.

    They take up to half of the prompt cache: without one, a hybrid or windowed model can go on from
    the end of a cached prompt alone. None are kept where their size is unknown; other models need
    none.
    """
    memory = model.context_memory
    each_bytes = memory.without_rollback.size_bytes(
        plan.context_tokens,
        micro_batch_tokens=plan.micro_batch_tokens,
        kv_shares=kv_shares(plan.kv_type),
    )
    if not each_bytes or not memory.is_exact:
        return 0, 0
    fitting = plan.prompt_cache_bytes // 2 // (plan.slots * each_bytes)
    count = min(fitting, _MOST_CHECKPOINTS)
    return count, count * plan.slots * each_bytes


def _are_restored(plan: ServingPlan, model: Model) -> bool:
    """Say whether llama.cpp goes on from a slot that it has read from a file.

    Measured: of windowed, recurrent and hybrid models it processes the whole prompt again.
    """
    memory = model.context_memory
    is_plain = memory.is_exact and not memory.without_rollback.size_bytes(
        plan.context_tokens,
        micro_batch_tokens=plan.micro_batch_tokens,
        kv_shares=kv_shares(plan.kv_type),
    )
    return is_plain and plan.speculate is None and plan.embeddings is None


_KEY_FILE = "--api-key-file"
_SLOT_FOLDER = "--slot-save-path"

_OURS = frozenset(
    (
        *("-m", "--model", "-a", "--alias", "--host", "--port", "--reuse-port", "--api-key"),
        *(_KEY_FILE, "--api-prefix", "--ssl-key-file", "--ssl-cert-file", "--models-dir"),
        *("--models-preset", "--models-max", "--cors-origins", "--cors-credentials"),
    )
)
"""Options that decide who reaches a service and what it serves."""

_CLOSED = "none"
"""Allowed origin that no browser sends."""

_TIMEOUT_S = 600
_SOCKETS = "UNIX socket"
_SEVERAL_HOSTS = "IP addresses to listen on"


class ServerAddress(Value):
    """Where a server listens, and for how long it keeps its model.

    Attributes:
        addresses: of the board.
        behind: where it listens instead, while its supervisor holds the port at the addresses: the
            path of a socket; empty for nothing.
        port: 0 for any free one, which its log says.
        key_file: on the board, holds the keys of which a request shows one.
        sleep_idle_s: without a request for so long, it frees the model's memory; none for never.
    """

    addresses: tuple[str, ...] = (LOOPBACK,)
    behind: str = ""
    port: int = 0
    key_file: PurePosixPath
    sleep_idle_s: int | None = None

    def words(self, program: Path, slots: int) -> list[str]:
        """Return the options for it, with limits and without CORS.

        Args:
            slots: requests that are answered at a time.

        Raises:
            UsageError: the program is too old for one of them.
        """
        is_behind = self.is_behind(program)
        if len(self.addresses) > 1 and not is_behind and not mentions(program, _SEVERAL_HOSTS):
            raise UsageError(
                "This release of llama.cpp listens on one address only.",
                "Omit --source, or --listen 0.0.0.0 with a firewall.",
            )
        host = self.behind if is_behind else ",".join(self.addresses)
        words = ["--host", host, "--port", str(self.port)]
        words += [_KEY_FILE, str(self.key_file)]
        words += if_offered(program, "--cors-origins", _CLOSED)
        words += if_offered(program, "--timeout", str(_TIMEOUT_S))
        # A request that waits for a slot keeps a thread; others answer /health and /metrics.
        words += if_offered(program, "--threads-http", str(2 * slots + 4))
        if self.sleep_idle_s is not None:
            if not offers(program, "--sleep-idle-seconds"):
                raise UsageError(
                    "--sleep-idle: this release of llama.cpp cannot free an idle model.",
                    "Omit --source, or --sleep-idle.",
                )
            words += ["--sleep-idle-seconds", str(self.sleep_idle_s)]
        return words

    def is_behind(self, program: Path) -> bool:
        """Say whether a program listens on the socket."""
        return bool(self.behind) and mentions(program, _SOCKETS)


def program_words(program: Path) -> list[str]:
    """Return the options for the program itself: what it logs, and what it leaves alone."""
    words = ["--log-timestamps", "--log-prefix", *if_offered(program, "--log-colors", "off")]
    return [*words, *if_offered(program, "--no-ui"), *if_offered(program, "--offline")]


def _check_extra(plan: ServingPlan) -> None:
    for word in plan.extra:
        name = word.partition("=")[0]
        if name in _OURS:
            raise UsageError(
                f"--engine-args: {name} is armload's to decide.", "Remove it from the arguments."
            )


class _Counted:
    """Sums over the steps of a trace."""

    def __init__(self) -> None:
        self.result = {"steps": 0, "prompt_tokens": 0, "generated_tokens": 0}
        self.weights: tuple[Weights, ...] = ()

    def take(self, line: Mapping[str, object]) -> None:
        if "weights" in line:
            # Each file of the trace says it anew.
            self.weights = (Weights.model_validate(line),)
        elif "step" in line and line.get("model", 0) == 0:
            step = Step.model_validate(line)
            self.result["steps"] += 1
            self.result["prompt_tokens"] += step.prompt_tokens
            self.result["generated_tokens"] += step.output_tokens


class Serving(ModelEngine[ServingPlan]):
    """A model, served on the board's loopback by one program.

    Attributes:
        plan, model: as given.

    Args:
        binary: of ``SERVER``, built for the board's target.
        api_key: what a request has to show; it reaches the board in a file. Empty for what is
            started with an ``address``, whose keys lie there.
        draft: the model that guesses tokens; none where the plan names none.
        projector: by which it takes images and sounds; none for text alone.
        address: where it listens; none for a free port of the loopback.

    Raises:
        UsageError: the program does not know the model's architecture, or lacks an option that
            the plan asks for.
    """

    name = SERVER
    unit = "steps"
    helpers = (MONITOR,)
    is_service = True
    less_memory = "Use fewer --slots, a smaller --context or --prompt-cache, or --weights streamed."

    def __init__(
        self,
        plan: ServingPlan,
        binary: Binary,
        model: Model,
        *,
        api_key: str = "",
        draft: Model | None = None,
        projector: Projector | None = None,
        address: ServerAddress | None = None,
    ) -> None:
        super().__init__(plan, binary, model)
        self._api_key = api_key
        self._address = address
        self.draft = draft
        self.projector = projector
        _check_extra(plan)
        if projector is not None:
            check_traces_media(binary)
        if plan.speculate is not None:
            check_offered(binary, plan.speculate)
        if plan.speculate == MTP:
            check_predicts(model)
        if draft is not None:
            check_architecture(binary, draft)
            check_draft(draft, model)

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program and models."""
        others = [each.sha256 for each in (self.draft, self.projector) if each is not None]
        return fingerprint_of((super().fingerprint, *others)) if others else super().fingerprint

    @property
    def subject(self) -> RunSpec:
        """The plan, and what is known of the program and of the models."""
        draft = model_record(self.draft) if self.draft else None
        projector = projector_record(self.projector) if self.projector else None
        return super().subject.model_copy(update={"draft": draft, "projector": projector})

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program and the models, each once."""
        payload = list(super().payload)
        if self.draft is not None:
            payload.append(Payload.of_model(self.draft))
        if self.projector is not None:
            payload.append(projector_payload(self.projector))
        return tuple(dict.fromkeys(payload))

    @property
    def time_limit_s(self) -> float:
        """As long as a shell can count."""
        return LONGEST_RUN_S

    @property
    def estimated_memory(self) -> MemoryNeed:
        """The model's file, the KV cache of all slots, the prompt cache, and the buffers."""
        need = serving_need(self.plan, self.model)
        need = with_drafting(need, self.draft, self._drafting_bytes)
        return need.model_copy(update={"program_bytes": need.program_bytes + self._projector_bytes})

    @property
    def batch_tokens(self) -> int:
        """Of a micro-batch, as planned."""
        return self.plan.micro_batch_tokens

    @property
    def more_bytes(self) -> int:
        """Of the prompt cache, of what drafts, and of the projector."""
        return self.plan.prompt_cache_bytes + self._drafting_bytes + self._projector_bytes

    @property
    def _projector_bytes(self) -> int:
        return self.projector.size_bytes if self.projector else 0

    @property
    def projector_file(self) -> Path | None:
        return self.projector.path if self.projector else None

    @property
    def _drafting_bytes(self) -> int:
        plan = self.plan
        if plan.speculate is None:
            return 0
        tokens = plan.slots * plan.context_tokens
        return drafting_bytes(plan.speculate, self.model, self.draft, tokens)

    def simulation(self, context: RunContext) -> Simulation | None:
        """Return how the program is asked, before its key and a second model are on the board."""
        asked = super().simulation(context)
        if asked is None:
            return None
        slots = (_SLOT_FOLDER,) if self.kept_slots else ()
        projector = ("--mmproj",) if self.projector else ()
        asked = asked.without(_KEY_FILE, *slots, *projector)
        if self.plan.speculate is None:
            return asked
        words = list(asked.command)
        drafting = list(drafting_words(self.plan.speculate, context.layout, self.draft))
        at = words.index(drafting[0])
        del words[at : at + len(drafting)]  # the second model is not there yet
        return asked.model_copy(update={"command": tuple(words)})

    def service_options(self, layout: Layout) -> ServiceOptions:
        """Keep its log short, delete its key, and end it when its heartbeat stops."""
        return ServiceOptions(secret=layout.api_key)

    def place_secret(self, host: Host, layout: Layout) -> None:
        """Put the key where the board's other users cannot read it."""
        path = quote(layout.api_key)
        # A file that is there keeps its mode, and whoever has opened it keeps reading it.
        script = f"rm -f {path} && umask 077 && cat >{path}"
        done = host.run(script, stdin=f"{self._api_key}\n".encode())
        if done.status != 0:
            raise BoardError(f"{host.name}: {layout.api_key}: {reason(done.stderr)}.")

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-server there."""
        address = self._address or ServerAddress(key_file=context.layout.api_key)
        words = [str(self.payload[0].items(context.layout)[0].remote)]
        words += address.words(self.binary.path, self.plan.slots)
        if self.kept_slots:
            words += [_SLOT_FOLDER, str(PurePosixPath(address.behind).parent)]
        words += [*program_words(self.binary.path), *self.model_words(context)]
        return (*context.launcher, *words, *self.plan.extra)

    @property
    def kept_slots(self) -> int:
        """How many slots keep what they hold over a restart, where prompts are cached."""
        address, program = self._address, self.binary.path
        is_kept = (
            address is not None
            and address.is_behind(program)
            and address.sleep_idle_s is None  # it would have to wake up
            and self.plan.prompt_cache_bytes > 0
            and self.projector is None
            and _are_restored(self.plan, self.model)
            and offers(program, _SLOT_FOLDER)
        )
        return self.plan.slots if is_kept else 0

    def model_words(self, context: RunContext) -> list[str]:
        """Return the options for the model, without those of the program around it."""
        plan, program = self.plan, self.binary.path
        model = str(self.payload[1].items(context.layout)[0].remote)
        words = ["-m", model, *self._adapter_words(context), "--alias", self.alias]
        words += ["-np", str(plan.slots), "-c", str(plan.slots * plan.context_tokens)]
        words += if_offered(program, "--no-kv-unified")  # or one slot could take all of it
        kept_to = plan.cpus or context.cores
        most_threads = context.most_threads or (None if kept_to else context.found.cores)
        words += ["-b", str(plan.batch_tokens)]
        words += settings_words(plan, program, context.cores, most_threads)
        words += ["--temp", f"{plan.temperature:g}", "--metrics", "--no-context-shift"]
        words += self._prompt_cache_words(program)
        if plan.speculate is not None:
            words += drafting_words(plan.speculate, context.layout, self.draft)
        if self.projector is not None:
            projector = projector_payload(self.projector)
            words += [*TEMPLATES, *media_words(projector, plan.image_max_tokens, context)]
        if plan.embeddings is not None:
            pooled = [] if plan.embeddings == "model" else ["--pooling", plan.embeddings]
            words += ["--reranking"] if plan.embeddings == "rank" else ["--embeddings", *pooled]
        words += [*self._memory_words(context), *self._spread_words(context)]
        if self._are_streamed(context):
            words.append("--no-warmup")  # it would read all weights once more
        return [*words, *if_offered(program, "-fit", "off")]

    @property
    def alias(self) -> str:
        """What requests call the model."""
        return self.model.name.removesuffix(".gguf")

    def environment(self, context: RunContext) -> Mapping[str, str]:
        """Limit the trace, and say how the weights are held if not as llama.cpp does it."""
        return {"ARMLOAD_TRACE_BYTES": str(TRACE_BYTES), **super().environment(context)}

    def _prompt_cache_words(self, program: Path) -> list[str]:
        count, taken_bytes = checkpoints_of(self.plan, self.model)
        cache_bytes = self.plan.prompt_cache_bytes - taken_bytes
        words = if_offered(program, "--cache-ram", str(-(-cache_bytes // _MIB)))
        words += if_offered(program, "--ctx-checkpoints", str(count)) or if_offered(
            program, "--swa-checkpoints", str(count)
        )
        if cache_bytes:
            reuse = self.plan.cache_reuse_tokens
            reused = [] if reuse is None else if_offered(program, "--cache-reuse", str(reuse))
            return [*words, "--cache-prompt", *reused]
        # Idle slots are saved to the cache that there is not.
        none = ("--no-cache-prompt", "--no-cache-idle-slots")
        return [*words, *(word for option in none for word in if_offered(program, option))]

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Count what the trace still holds; its steps stay in the run's folder.

        A service of weeks has millions of them, and the trace keeps the newest.
        """
        del job
        counted = _Counted()
        read_lines(folder / FORMER_TRACE_FILE, counted.take)
        header = read_lines(folder / TRACE_FILE, counted.take)
        if header is not None:
            header = header.model_copy(update={"weights": counted.weights})
        return Output(header=header, result=dict(counted.result))
