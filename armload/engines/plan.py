"""What to run on a board, and the options that say so."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from armload.boards.governors import governors_in
from armload.core.cpu_sets import cpu_numbers
from armload.core.options import Alternatives, Exclusive, Option, OptionGroup
from armload.core.values import LEAVES, ByteCount, Leaves
from armload.engines.spread import SplitChoice
from armload.models.adapter import NO_ADAPTER, AdapterChoice, choices_in

SEED_PROMPT = "I believe the meaning of life is"
USUAL_PROMPT = f"{SEED_PROMPT!r}; for word-problems, a problem"
"""The same in a help text."""

SEED_N_PREDICT = 128
CHANGES_NOTHING = object()
"""Marks a field of a plan that tells no run from another: not in comparisons, cells or labels."""

DEFAULT_TIME_LIMIT_S = 6 * 3600
DEFAULT_PRECISION = 0.05
DEFAULT_PRECISION_TIME_S = 60
REQUEST_TIMEOUT_S = 600.0
"""Of one request to a service."""

TUNED_REQUESTS = 40
"""Of each trial of a search for the highest rate."""


LONGEST_RUN_S = 30 * 24 * 3600
"""Shells on small boards count in 32 bits."""

MOST_TOKENS = 2**31 - 1
"""llama.cpp counts them in 32 bits."""

MOST_THREADS = 512
"""``GGML_MAX_N_THREADS`` of llama.cpp."""

MOST_TEMPERATURE = 1000.0

MOST_EMBEDDED = 256
"""As llama.cpp's limit of sequences."""

MOST_TEXTS = 1_000_000

MICRO_BATCH_TOKENS = 512
"""Prompt tokens for which the weights are read once, if a plan says nothing."""

KV_BITS = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "q8_0": 8.5,
    "q4_0": 4.5,
    "q4_1": 5,
    "iq4_nl": 4.5,
    "q5_0": 5.5,
    "q5_1": 6,
}
"""Types of a KV cache that llama.cpp's programs take (common/arg.cpp), with bits per value."""

KV_TYPES = tuple(KV_BITS)

NO_SPECULATION, NGRAM, MTP, DRAFT = "none", "ngram", "mtp", "draft:"
"""How tokens are guessed before the model verifies them; after the last comes a model's name."""

CPU, GPU = "cpu", "gpu"
"""Devices that compute; another one is ``VulkanN``."""

MOST_IMAGES = 16
"""Of a prompt; each may have thousands of tokens."""

_SHORT_PROMPT = 48  # the length of a shortened one: its beginning, and a note
_BEGIN_OF_A_PROMPT = 20


def _reaches_a_program(prompt: str) -> str:
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ValueError("this is not valid UTF-8") from error
    if "\0" in prompt:
        raise ValueError("a prompt cannot contain the character NUL")
    return prompt


def _as_text(cores: object) -> object:
    return str(cores) if isinstance(cores, int) and not isinstance(cores, bool) else cores


def _names_cores(cores: str) -> str:
    cpu_numbers(cores)
    return cores


def _names_governors(text: str) -> str:
    governors_in(text)
    return text


def _names_a_device(device: str) -> str:
    if device not in (CPU, GPU) and re.fullmatch(r"Vulkan(0|[1-9][0-9]?)", device) is None:
        raise ValueError(
            f"use {CPU}, {GPU}, or VulkanN for the device that the board's Vulkan loader lists as "
            "number N, such as Vulkan0"
        )
    return device


def _is_known(kv_type: str) -> str:
    halves = kv_type.split("/")
    unknown = [half for half in halves if half not in KV_TYPES]
    if len(halves) > 2 or unknown:
        wrong = kv_type if len(halves) > 2 else unknown[0]
        raise ValueError(f"{no_kv_type(wrong)}, or KEYS/VALUES for different types")
    return kv_type


def no_kv_type(wrong: str) -> str:
    """Say which types of a KV cache there are."""
    return f"there is no type {wrong!r}; use one of {', '.join(KV_TYPES)}"


def _as_nothing(method: object) -> object:
    return None if method == NO_SPECULATION else method


def _names_adapters(lora: str) -> str:
    choices_in(lora)
    return lora


def _is_known_speculation(speculate: str) -> str:
    if speculate not in (NGRAM, MTP) and not speculate.startswith(DRAFT):
        raise ValueError(f"use {NO_SPECULATION}, {NGRAM}, {MTP} or {DRAFT}MODEL")
    if speculate == DRAFT:
        raise ValueError(f"the draft model is missing: {DRAFT}MODEL")
    return speculate


Device = Annotated[str, AfterValidator(_names_a_device)]


def _names_images(image: str) -> str:
    names = image.split(",")
    if not all(names):
        raise ValueError("an image is missing: use FILE, or several separated by commas")
    if len(names) > MOST_IMAGES:
        raise ValueError(f"these are {len(names)} images; use {MOST_IMAGES} or fewer")
    return image


TokenCount = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Threads = Annotated[int, Field(ge=1, le=MOST_THREADS)]
PromptText = Annotated[str, AfterValidator(_reaches_a_program)]
MediaPath = Annotated[str, Field(min_length=1), AfterValidator(_reaches_a_program)]
Images = Annotated[MediaPath, AfterValidator(_names_images)]
PromptTokens = Annotated[int, Field(ge=2, le=MOST_TOKENS)]


def _as_depth(tokens: int) -> int:
    if tokens == 1:
        raise ValueError("use 0 for an empty context, or 2 or more")
    return tokens


Depth = Annotated[int, Field(ge=0, le=MOST_TOKENS), AfterValidator(_as_depth)]
Cores = Annotated[str, BeforeValidator(_as_text), AfterValidator(_names_cores)]
KvType = Annotated[str, AfterValidator(_is_known)]
FlashAttention = Literal["on", "off", "auto"]
Numa = Literal["distribute", "isolate", "numactl"]
WeightsMode = Literal["auto", "mapped", "streamed"]
Resident = Annotated[ByteCount, Field(ge=0)]
Speculate = Annotated[
    Annotated[str, AfterValidator(_is_known_speculation)] | None, BeforeValidator(_as_nothing)
]
Lora = Annotated[
    Annotated[str, AfterValidator(_names_adapters)] | None, BeforeValidator(_as_nothing)
]
Temperature = Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)]
Seed = Annotated[int, Field(ge=0, le=(1 << 32) - 2)]
"""For the next number, llama.cpp draws another seed in each run."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_RUN_S)]


THREADS = Option("worker threads", "N", "chosen by the engine", "commas")
KV_TYPE = Option(
    "type of the KV cache, such as q8_0, or of keys/values: q8_0/q4_0",
    "TYPE",
    "f16",
    "commas",
    harmless="anywhere",
)
FLASH_ATTENTION = Option("flash attention: on, off or auto", "on|off|auto", "auto", "commas")
BATCH = Option(
    "logical batch size: prompt tokens per call of the engine",
    "TOKENS",
    several="commas",
    name="batch",
)
MICRO_BATCH = Option(
    "physical batch size: tokens per pass through the model",
    "TOKENS",
    several="commas",
    name="micro-batch",
)


SPECULATE = Option(
    "draft tokens and verify several in one pass: none, ngram (from the text so far), mtp (by the "
    "model's own prediction layers) or draft:MODEL (a small model of the same family)",
    "METHOD",
    "none",
    "commas",
    "draft",
    harmless="in a plan",
)


IMAGE = Option(
    "images that the model sees before the prompt, separated by commas",
    "FILE",
    several="repeat",
    takes="file",
    heading="Images and sounds",
    harmless="in a plan",
)
AUDIO = Option(
    "sound that the model hears before the prompt",
    "FILE",
    several="files",
    heading="Images and sounds",
    harmless="in a plan",
)
MMPROJ = Option(
    "projector for images and sounds, a file or hf:ORG/REPO/FILE.gguf; auto: the mmproj file "
    "beside the model, or in its repository; none: text alone",
    "FILE|auto|none",
    "auto",
    takes="file",
    heading="Images and sounds",
    harmless="in a plan",
)
IMAGE_MAX_TOKENS = Option(
    "most tokens of an image, for models in which its size decides",
    "TOKENS",
    "as in the projector",
    "commas",
    heading="Images and sounds",
)


class Computation(OptionGroup):
    """How a model is computed, by whatever program.

    Attributes:
        threads: worker threads; none lets the engine choose (its physical cores).
        cpus: the cores that it may run on, such as ``4-7`` or ``0,2``; none for all, or for all but
            the little ones of a mixed board.
        numa: how threads are placed on a board with several NUMA nodes: on all of them, on the one
            that the program starts on, or as ``numactl`` says. None leaves it to the kernel.
        context_tokens: length of the KV cache.
        kv_type: of the cache, such as ``q8_0``, or keys and values apart, ``q8_0/q4_0``.
        flash_attention: the fused attention kernel.
        weights: ``mapped`` as llama.cpp does it, ``streamed`` ahead of the computation with a part
            that stays in memory, or ``auto``: streamed if they exceed the board's memory.
        resident_bytes: of streamed weights, that stay in memory; none for what fits.
        lora: the adapters that are added to the model, ``FILE[:SCALE],…``; none without.
    """

    heading = "Engine"

    alternatives: ClassVar[Alternatives] = (Exclusive((("resident_bytes",), ("weights=mapped",))),)

    threads: Annotated[Threads | None, THREADS, LEAVES] = None
    cpus: Annotated[
        Cores | None,
        Option(
            "run on these cores only, such as 4-7 or 0,2",
            "CORES",
            "all; on a board with fast and slow cores, the fast ones",
            "repeat",
            heading="Cores",
            harmless="anywhere",
        ),
        Leaves("cores"),
    ] = None
    numa: Annotated[
        Numa | None,
        Option(
            "how to place threads on several NUMA nodes: distribute over all, isolate on one, or "
            "numactl to keep what the program numactl has set",
            "distribute|isolate|numactl",
            "left to the kernel",
            "commas",
            heading="Cores",
        ),
        LEAVES,
    ] = None
    context_tokens: Annotated[
        TokenCount | None,
        Option(
            "size of the KV cache in tokens",
            "TOKENS",
            "enough for prompt and output",
            "commas",
            name="context",
        ),
        LEAVES,
    ] = None
    kv_type: Annotated[KvType | None, KV_TYPE, Leaves("KV types")] = None
    flash_attention: Annotated[FlashAttention | None, FLASH_ATTENTION, LEAVES] = None
    weights: Annotated[
        WeightsMode,
        Option(
            "mapped: the kernel reads what is missing; streamed: read ahead of the computation, "
            "with a part locked in memory; auto: streamed if the weights exceed the memory",
            "mapped|streamed|auto",
            "auto",
            "commas",
        ),
        LEAVES,
    ] = "auto"
    resident_bytes: Annotated[
        Resident | None,
        Option(
            "part of streamed weights to lock in memory, such as 400MB",
            "SIZE",
            "what fits",
            "commas",
            name="resident",
        ),
        LEAVES,
    ] = None

    lora: Annotated[
        Lora,
        Option(
            "LoRA adapters (GGUF) to add to the model, separated by commas, each with a scale if "
            "it is not 1; none for the model alone",
            "FILE[:SCALE]",
            NO_ADAPTER,
            "repeat",
            "file",
            heading="Plan",
            harmless="in a plan",
        ),
    ] = None

    @property
    def adapters(self) -> tuple[AdapterChoice, ...]:
        """The adapters that are added to the model."""
        return () if self.lora is None else choices_in(self.lora)

    @property
    def kv_types(self) -> tuple[str, str] | None:
        """Types of keys and of values; none for the engine's usual one."""
        return None if self.kv_type is None else kv_halves(self.kv_type)


Embedded = Annotated[int, Field(ge=1, le=MOST_EMBEDDED)] | None
Pooling = Literal["model", "mean", "cls", "last", "rank"]
"""How a text's tokens become one embedding, or with ``rank`` a score; ``model``: as in its file."""

EngineChoice = Literal["llama.cpp", "dllama", "auto"]
"""What computes: llama.cpp, or distributed-llama, whose boards share every layer.

``auto`` is the one that the forecast says is faster, and no run has it.
"""


class Plan(Computation):
    """One run of the engine: plain continuation of a prompt.

    Attributes:
        engine: what computes.
        device: ``cpu``, ``gpu`` (the first one), or ``VulkanN``, which may be a software driver:
            each by a program that is built for GPUs. None for the CPU, by a static program.
        prompt: the text to continue.
        prompt_tokens: length of a prompt of common words that is made for the model instead;
            its beginning-of-text token counts, where it has one.
        depth_tokens: that are in the context before the prompt; they are computed once and saved on
            the board, and each run restores them.
        image: files that the model sees before the prompt, ``FILE,…``; none without.
        audio: a file that it hears before the prompt; none without.
        mmproj: the projector by which it does; none for the one that lies beside the model.
        image_max_tokens: of one image, where its size decides; none for the projector's own limit.
        embed: texts that are embedded, or scored, at a time, instead of generating; none to
            generate.
        pooling: how a text's tokens become one embedding.
        texts: to embed; none for what several passes take.
        n_predict: tokens to generate.
        context_tokens: none for prompt and ``n_predict`` with some room.
        batch_tokens: prompt tokens that are given to the engine at a time.
        micro_batch_tokens: tokens that go through the model at a time.
        speculate: ``ngram``: tokens are guessed from the text so far; ``mtp``: by the model's own
            layers for it; ``draft:MODEL``: by that model; none without.
        split: how a group divides the model; none on a board by itself, or for whole layers.
        extra: further arguments for the engine.
        temperature: 0 is greedy.
        seed: of the sampler.
        stop_at_end: stop at the model's end-of-text token; without it exactly ``n_predict``
            tokens are generated, as a measurement needs.
        cold: the board's page cache is dropped first, where permitted.
        cool_to_celsius: the board's hottest sensor shows no more when the run begins; none to not
            wait.
        governor: of the frequency of the CPU, or of several devices, during the run; none for
            what the board has.
        time_limit_s: the board ends the run after that long.
    """

    engine: Annotated[
        EngineChoice,
        Option(
            "llama.cpp, dllama (distributed-llama), with which all boards of a group compute "
            "every layer at once, or auto, the one with the faster forecast",
            "llama.cpp|dllama|auto",
            several="commas",
        ),
        LEAVES,
    ] = "llama.cpp"
    device: Annotated[
        Device | None,
        Option(
            "cpu, gpu, or VulkanN, number N of the board's Vulkan devices; with any of them, all "
            "runs use one program that is built for GPUs",
            "DEVICE",
            "cpu, by a static program",
            "commas",
            heading="Cores",
            harmless="anywhere",
        ),
        Leaves("device"),
    ] = None
    prompt: Annotated[
        PromptText,
        Option(
            "text to continue",
            "PROMPT",
            USUAL_PROMPT,
            "repeat",
            heading="Plan",
            harmless="anywhere",
        ),
    ] = SEED_PROMPT
    prompt_tokens: Annotated[
        PromptTokens | None,
        Option(
            "length of a prompt of common words, instead of a text",
            "TOKENS",
            several="commas",
            heading="Plan",
            harmless="anywhere",
        ),
        LEAVES,
    ] = None
    depth_tokens: Annotated[
        Depth,
        Option(
            "tokens in the context before the prompt: computed once, saved on the board, and "
            "restored in each run",
            "TOKENS",
            several="commas",
            name="depth",
            heading="Plan",
            harmless="anywhere",
        ),
        LEAVES,
    ] = 0
    image: Annotated[Images | None, IMAGE] = None
    audio: Annotated[MediaPath | None, AUDIO] = None
    mmproj: Annotated[MediaPath | None, MMPROJ] = None
    image_max_tokens: Annotated[TokenCount | None, IMAGE_MAX_TOKENS, LEAVES] = None
    embed: Annotated[
        Embedded,
        Option(
            "embed texts of --prompt-tokens tokens (128) instead of generating, so many at a time; "
            "a reranker scores them",
            "N",
            several="commas",
            heading="Embeddings",
            harmless="anywhere",
        ),
        LEAVES,
    ] = None
    pooling: Annotated[
        Pooling,
        Option(
            "how to pool a text's tokens: as the model's file specifies (model), or by mean, cls, "
            "last or rank",
            "POOLING",
            needs="embed",
            heading="Embeddings",
        ),
        LEAVES,
    ] = "model"
    texts: Annotated[
        Annotated[int, Field(ge=1, le=MOST_TEXTS)] | None,
        Option(
            "texts to embed, in whole passes",
            "N",
            "16 passes",
            needs="embed",
            heading="Embeddings",
            harmless="anywhere",
        ),
        LEAVES,
    ] = None
    n_predict: Annotated[
        TokenCount,
        Option("tokens to generate", "N", several="commas", heading="Plan", harmless="anywhere"),
        LEAVES,
    ] = SEED_N_PREDICT
    batch_tokens: Annotated[TokenCount | None, BATCH, LEAVES] = None
    micro_batch_tokens: Annotated[TokenCount | None, MICRO_BATCH, LEAVES] = None
    speculate: Annotated[
        Speculate,
        SPECULATE,
    ] = None
    split: Annotated[
        SplitChoice | None,
        Option(
            "on a group of boards: layer gives each member whole layers, one after the other; "
            "tensor a part of every layer, which all compute at once; auto takes the one that is "
            "forecast to be faster",
            "layer|tensor|auto",
            "layer",
            "commas",
        ),
        LEAVES,
    ] = None
    extra: tuple[str, ...] = ()
    temperature: Annotated[
        Temperature,
        Option(
            "sampling temperature; 0 always takes the most likely token", "T", heading="Sampling"
        ),
        LEAVES,
    ] = 0.0
    seed: Annotated[Seed, Option("seed of the sampler", "N", heading="Sampling"), LEAVES] = 1
    stop_at_end: Annotated[
        bool,
        Option(
            "stop at the model's end-of-text token instead of generating -n tokens",
            heading="Sampling",
            harmless="anywhere",
        ),
        LEAVES,
    ] = False
    cold: Annotated[
        bool,
        Option(
            "drop the board's page cache before each run: the model is read from storage",
            several="repeat",
            heading="Conditions",
            harmless="anywhere",
        ),
        LEAVES,
    ] = False
    cool_to_celsius: Annotated[
        Annotated[float, Field(ge=0, le=200)] | None,
        Option(
            "before each run, wait until the hottest sensor reads this temperature or less",
            "CELSIUS",
            name="cool-to",
            heading="Conditions",
        ),
        LEAVES,
    ] = None
    governor: Annotated[
        Annotated[str, AfterValidator(_names_governors)] | None,
        Option(
            "frequency governor during each run: performance for the CPU, memory=performance for "
            "another device (memory, gpu, npu, interconnect), several joined by +",
            several="commas",
            heading="Conditions",
            harmless="anywhere",
        ),
        Leaves("governor"),
    ] = None
    time_limit_s: Annotated[
        Seconds,
        Option(
            "stop a run on the board after this many seconds",
            "SECONDS",
            name="time-limit",
            heading="Board",
        ),
        LEAVES,
        CHANGES_NOTHING,
    ] = DEFAULT_TIME_LIMIT_S

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU, or a Vulkan driver in place of one, computes."""
        return self.device not in (None, CPU)

    @property
    def images(self) -> tuple[Path, ...]:
        """The files that the model sees."""
        return tuple(Path(each).expanduser() for each in (self.image or "").split(",") if each)

    @property
    def perceives(self) -> bool:
        """Whether the model is given an image or a sound."""
        return self.image is not None or self.audio is not None

    @property
    def draft_model(self) -> str | None:
        """What the model is called that guesses tokens; none where none does."""
        return draft_called(self.speculate)

    @property
    def without_speculation(self) -> Plan:
        """The same without speculation; what changes nothing is as usual."""
        usual = {field: Plan.model_fields[field].default for field in WITHOUT_EFFECT}
        return self.model_copy(update={"speculate": None, **usual})

    @property
    def kv_shares(self) -> tuple[float, float]:
        """Sizes of keys and of values as shares of that of the usual type, ``f16``."""
        return kv_shares(self.kv_type)


WITHOUT_EFFECT = frozenset(
    field for field, info in Plan.model_fields.items() if CHANGES_NOTHING in info.metadata
)


def draft_called(speculate: str | None) -> str | None:
    """Return what the model is called that guesses tokens; none where none does."""
    if speculate is None or not speculate.startswith(DRAFT):
        return None
    return speculate.removeprefix(DRAFT)


def kv_halves(kv_type: str) -> tuple[str, str]:
    """Return the types of keys and of values: ``q8_0`` is that of both."""
    keys, _, values = kv_type.partition("/")
    return keys, values or keys


def kv_shares(kv_type: str | None) -> tuple[float, float]:
    """Return the sizes of keys and of values as shares of that of the usual type, ``f16``."""
    keys, values = kv_halves(kv_type or "f16")
    return KV_BITS[keys] / KV_BITS["f16"], KV_BITS[values] / KV_BITS["f16"]


def short_prompt(prompt: str) -> str:
    """Return a prompt in quotation marks: of a long one, what tells it from others."""
    if len(prompt) <= _SHORT_PROMPT:
        return repr(prompt)
    short_hash = hashlib.sha256(prompt.encode()).hexdigest()[:8]
    return f"{prompt[:_BEGIN_OF_A_PROMPT]!r}… ({len(prompt)} characters, {short_hash})"
