"""A token's time from facts alone: instructions of the kernels, and bandwidth of the memory.

A thread needs its share of the kernels' vector instructions and waits for its own reads; all
threads together wait for the memory. The counts of instructions are those of llama.cpp's kernels
(2026-10, gcc 12, ``-O3 -mcpu=cortex-a76``); what remains is fitted to published speeds by
``benchmarks/published.py``, which prints ``FITTED``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist
from typing import NamedTuple

from armload.analysis.compute import Compute
from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.core.values import Value
from armload.engines.prediction import Expected
from armload.models.model import Model

INTERVAL_LEVEL = 0.8
"""Share of published speeds that lie within the interval of a forecast from facts."""

LOAD_S = 1.0
"""Assumed of starting the program and reading the vocabulary."""

LOAD_DOUBT = 2.0


class Kernel(NamedTuple):
    """Vector instructions per weight of a type, with ``sdot``.

    Attributes:
        bits: per weight.
        plain: of a dot product with the weights as they lie in the file.
        repacked: of a token, with rows interleaved when the model is loaded.
        prompt: of a prompt's token, the same; ``matrix_prompt`` with ``smmla``.
    """

    bits: float
    plain: float
    repacked: float | None = None
    prompt: float | None = None
    matrix_prompt: float | None = None


KERNELS = {
    "F32": Kernel(32, 0.5),
    "F16": Kernel(16, 0.25),
    "BF16": Kernel(16, 0.5),
    "Q4_0": Kernel(4.5, 0.41, 0.18, 0.10, 0.08),
    "Q4_1": Kernel(5, 0.45),
    "Q5_0": Kernel(5.5, 0.54),
    "Q5_1": Kernel(6, 0.62),
    "Q8_0": Kernel(8.5, 0.28, 0.12, 0.11, 0.08),
    "Q2_K": Kernel(2.625, 0.50),
    "Q3_K": Kernel(3.4375, 0.56),
    "Q4_K": Kernel(4.5, 0.28, 0.20, 0.15, 0.12),
    "Q5_K": Kernel(5.5, 0.49, 0.38, 0.20, 0.17),
    "Q6_K": Kernel(6.5625, 0.60, 0.41, 0.20, 0.18),
    "IQ1_S": Kernel(1.5625, 0.65),
    "IQ1_M": Kernel(1.75, 0.80),
    "IQ2_XXS": Kernel(2.0625, 0.54),
    "IQ2_XS": Kernel(2.3125, 0.54),
    "IQ2_S": Kernel(2.5625, 0.82),
    "IQ3_XXS": Kernel(3.0625, 0.74),
    "IQ3_S": Kernel(3.4375, 1.11),
    "IQ4_NL": Kernel(4.5, 0.42, 0.25, 0.14, 0.11),
    "IQ4_XS": Kernel(4.25, 0.30),
    "MXFP4": Kernel(4.25, 0.42, 0.25, 0.14, 0.11),
    "TQ1_0": Kernel(1.6875, 0.40),
    "TQ2_0": Kernel(2.0625, 0.22),
}
UNKNOWN_KERNEL = Kernel(4.5, 0.50)
REPACKED = frozenset(name for name, kernel in KERNELS.items() if kernel.repacked)

WITHOUT_SDOT = 0.25
"""Further instructions per weight where ``smull`` and ``sadalp`` do the work of ``sdot``."""


class Core(NamedTuple):
    """What decides a core's speed here.

    Attributes:
        vectors_per_cycle: instructions on 128 bits that it starts.
        generation: whether cores of its kind have ``sdot``, and ``smmla``.
        on_mesh: a server's, whose memory serves many: what one core copies says nothing of it.
    """

    vectors_per_cycle: float
    generation: int
    on_mesh: bool = False


PLAIN_GENERATION, DOT_GENERATION, MATRIX_GENERATION = range(3)

# Arm's software optimisation guides; of others, what has been published about their pipelines.
CORES = {
    "Cortex-A35": Core(0.5, PLAIN_GENERATION),
    "Cortex-A53": Core(0.5, PLAIN_GENERATION),
    "Cortex-A57": Core(2, PLAIN_GENERATION),
    "Cortex-A72": Core(2, PLAIN_GENERATION),
    "Cortex-A73": Core(2, PLAIN_GENERATION),
    "Cortex-A55": Core(1, DOT_GENERATION),
    "Cortex-A75": Core(2, DOT_GENERATION),
    "Cortex-A76": Core(2, DOT_GENERATION),
    "Cortex-A77": Core(2, DOT_GENERATION),
    "Cortex-A78": Core(2, DOT_GENERATION),
    "Cortex-A78AE": Core(2, DOT_GENERATION),
    "Cortex-A78C": Core(2, DOT_GENERATION),
    "Cortex-X1": Core(4, DOT_GENERATION),
    "Cortex-X1C": Core(4, DOT_GENERATION),
    "Carmel": Core(2, PLAIN_GENERATION),
    "Neoverse-N1": Core(2, DOT_GENERATION, on_mesh=True),
    "TaiShan-v110": Core(2, DOT_GENERATION, on_mesh=True),
    "Firestorm": Core(4, DOT_GENERATION),
    "Icestorm": Core(2, DOT_GENERATION),
    "Cortex-A510": Core(1, MATRIX_GENERATION),
    "Cortex-A520": Core(1, MATRIX_GENERATION),
    "Cortex-A710": Core(2, MATRIX_GENERATION),
    "Cortex-A715": Core(2, MATRIX_GENERATION),
    "Cortex-A720": Core(2, MATRIX_GENERATION),
    "Cortex-A725": Core(2, MATRIX_GENERATION),
    "Cortex-X2": Core(4, MATRIX_GENERATION),
    "Cortex-X3": Core(4, MATRIX_GENERATION),
    "Cortex-X4": Core(4, MATRIX_GENERATION),
    "Cortex-X925": Core(6, MATRIX_GENERATION),
    "Neoverse-N2": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-N3": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-V1": Core(4, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-V2": Core(4, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-V3": Core(4, MATRIX_GENERATION, on_mesh=True),
    "Ampere-1": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Ampere-1a": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Oryon": Core(4, MATRIX_GENERATION),
}
UNKNOWN_CORE = Core(2, DOT_GENERATION)
UNKNOWN_MHZ = 2000

CORE_READ_OF_COPY = 1.5
"""What a core reads over what it copies, where its reading is unknown."""

OTHER_LAYERS_DOUBT = 0.2
"""Assumed of recurrent layers and mixtures of experts, of which hardly a row was published."""

BARRIERS_PER_LAYER = 24
BARRIER_S_PER_THREAD = 0.25e-6
"""Every operation ends when all threads have met: seen on servers with many cores."""


class Fitted(Value):
    """Constants that were fitted to published speeds.

    Attributes:
        instructions: cycles that a vector instruction takes over what the core could do.
        prompt_instructions: the same for prompts.
        thread_exponent: n threads do the work of this power of n.
        of_measured: share of the read bandwidth of all cores that decoding reaches.
        of_copy: the same of twice the bytes that one core copies, by the core's generation.
        of_peak: the same of what the memory's type and width promise.
        doubts: standard deviations of the logarithm of a time, by what it follows from.
    """

    instructions: float
    prompt_instructions: float
    thread_exponent: float
    of_measured: float
    of_copy: tuple[float, float]
    of_peak: float
    doubts: dict[str, float]


FITTED = Fitted(
    instructions=1.0,
    prompt_instructions=0.98,
    thread_exponent=0.91,
    of_measured=0.86,
    of_copy=(0.7, 0.97),
    of_peak=0.7,
    doubts={
        "instructions": 0.145,
        "all cores": 0.083,
        "one core": 0.203,
        "peak": 0.35,
        "prompt": 0.281,
        "unknown": 0.4,
    },
)
"""``of_copy[0]``, ``of_peak``, and the doubts of what follows from the peak or from unknown cores
are assumed: no published row tells of them."""


class TokenWork(Value):
    """What a token asks of a board.

    Attributes:
        type_name: that most weights have.
        weights: that take part.
        size_bytes: that are read.
        layers: of the model.
        cache_bytes: of KV cache and recurrent states that are read.
        is_dense: every layer has attention and one feed-forward part, as in the published rows.
    """

    type_name: str
    weights: float
    size_bytes: float
    layers: int
    cache_bytes: float = 0.0
    is_dense: bool = True

    @classmethod
    def of(cls, model: Model, cache_bytes: float = 0.0) -> TokenWork:
        return cls(
            type_name=model.quantisation,
            weights=model.parameters * model.bytes_per_token / model.size_bytes,
            size_bytes=model.bytes_per_token,
            layers=model.layers,
            cache_bytes=cache_bytes,
            is_dense=not (model.experts or model.context_memory.recurrent_layers),
        )

    def larger_share(self) -> float:
        """Return the share of weights in ``Q6_K`` that explains more bytes than the type has."""
        if self.type_name not in KERNELS:
            return 0.0
        own, larger = KERNELS[self.type_name].bits, KERNELS["Q6_K"].bits
        if own >= larger:
            return 0.0
        return min(1.0, max(0.0, (8 * self.size_bytes / self.weights - own) / (larger - own)))


class Times(Value):
    """A token's time and what it follows from.

    Attributes:
        token_s: per output token, with the interval.
        prompt_token_s: per token of a prompt, likewise; none without cores.
        limit: what it follows from, as in ``Fitted.doubts``.
        is_memory_bound: the memory limits decoding, not the cores; none where only one is known.
    """

    token_s: Expected
    prompt_token_s: Expected | None
    limit: str
    is_memory_bound: bool | None


def fastest(clusters: Sequence[CpuCluster]) -> CpuCluster | None:
    """Return the cluster that alone is fastest: a slower one holds up every operation."""
    return max(clusters, key=_vectors_per_s, default=None)


def threads_on(
    clusters: Sequence[CpuCluster], threads: int | None
) -> tuple[CpuCluster, int] | None:
    """Return the cluster that sets the pace of so many threads, and how many count.

    Where threads outnumber the fastest cluster, all of them wait for the slowest core that is used.
    """
    best = fastest(clusters)
    if best is None:
        return None
    if threads is None or threads <= best.cores:
        return best, threads or best.cores
    slowest, left = best, threads
    for cluster in sorted(clusters, key=_vectors_per_s, reverse=True):
        if left > 0:
            slowest, left = cluster, left - cluster.cores
    return slowest, threads - max(left, 0)


def forecast(
    work: TokenWork,
    facts: DeclaredSpecs,
    *,
    threads: int | None = None,
    repacked: Collection[str] = REPACKED,
    fitted: Fitted = FITTED,
) -> Times | None:
    """Forecast a token's time; none without anything of cores or memory.

    Args:
        facts: of the board; ``memory_bytes_per_s`` may have been measured there.
        repacked: types that the engine repacks when it loads a model.
    """
    pace = threads_on(facts.clusters, threads)
    cores_s = None if pace is None else _cores_s(work, facts, pace, repacked, fitted)
    bandwidth = _bandwidth(facts, fitted)
    if cores_s is None and bandwidth is None:
        return None
    memory_s = None if bandwidth is None else work.size_bytes / bandwidth[0]
    token_s = max(each for each in (cores_s, memory_s) if each)
    is_memory_bound = memory_s > cores_s if cores_s and memory_s else None
    if bandwidth is not None:
        # Attention is computed after the matrices, not beside them.
        token_s += work.cache_bytes / bandwidth[0]
    limit = bandwidth[1] if bandwidth and is_memory_bound is not False else "instructions"
    doubt = fitted.doubts["unknown" if is_memory_bound is None else limit]
    if not work.is_dense:
        doubt = math.hypot(doubt, OTHER_LAYERS_DOUBT)
    prompt = None
    if pace is not None:
        token_s += BARRIERS_PER_LAYER * work.layers * BARRIER_S_PER_THREAD * pace[1]
        prompt_s = _prompt_s(work, pace, repacked, fitted)
        known_core = _known_core(pace[0].name) and pace[0].max_mhz
        if not known_core:
            doubt = math.hypot(doubt, fitted.doubts["unknown"])
        prompt = _within(prompt_s, fitted.doubts["prompt" if known_core else "unknown"])
    return Times(
        token_s=_within(token_s, doubt),
        prompt_token_s=prompt,
        limit=limit,
        is_memory_bound=is_memory_bound,
    )


def from_facts(
    model: Model, facts: DeclaredSpecs, *, threads: int | None = None, cache_bytes: float = 0.0
) -> Compute | None:
    """Forecast computing from a board's facts; none where they say too little.

    Args:
        cache_bytes: as in ``TokenWork``.
    """
    times = forecast(TokenWork.of(model, cache_bytes), facts, threads=threads)
    if times is None:
        return None
    return Compute(
        token_s=times.token_s,
        prompt_token_s=times.prompt_token_s or times.token_s,
        load_s=Expected.within(LOAD_S, LOAD_DOUBT),
        source="roofline",
        is_memory_bound=times.is_memory_bound,
        notes=("estimated from facts",),
    )


_QUANTILE = NormalDist().inv_cdf((1 + INTERVAL_LEVEL) / 2)


def _within(value: float, doubt: float) -> Expected:
    return Expected.within(value, math.exp(_QUANTILE * doubt) - 1)


def _known_core(name: str) -> Core | None:
    # Apple's have names such as Firestorm-M1-Pro.
    return CORES.get(name) or CORES.get(name.partition("-")[0])


def _core(cluster: CpuCluster) -> Core:
    return _known_core(cluster.name) or UNKNOWN_CORE


def _vectors_per_s(cluster: CpuCluster) -> float:
    core = _core(cluster)
    return cluster.cores * core.vectors_per_cycle * (cluster.max_mhz or UNKNOWN_MHZ) * 1e6


def _instructions(
    work: TokenWork, core: Core, repacked: Collection[str], *, is_prompt: bool = False
) -> float:
    """Return the vector instructions of a token, or of a token of a prompt."""
    larger = work.larger_share()
    per_weight = sum(
        share * _per_weight(name, core, is_repacked=name in repacked, is_prompt=is_prompt)
        for name, share in ((work.type_name, 1 - larger), ("Q6_K", larger))
    )
    return per_weight * work.weights


def _per_weight(type_name: str, core: Core, *, is_repacked: bool, is_prompt: bool) -> float:
    kernel = KERNELS.get(type_name, UNKNOWN_KERNEL)
    if core.generation == PLAIN_GENERATION:
        return kernel.plain + WITHOUT_SDOT
    by_generation = kernel.matrix_prompt if core.generation == MATRIX_GENERATION else kernel.prompt
    repacked = by_generation if is_prompt else kernel.repacked
    return repacked if is_repacked and repacked else kernel.plain


def _cores_s(
    work: TokenWork,
    facts: DeclaredSpecs,
    pace: tuple[CpuCluster, int],
    repacked: Collection[str],
    fitted: Fitted,
) -> float:
    cluster, threads = pace
    instructions = fitted.instructions * _instructions(work, _core(cluster), repacked)
    one_s = instructions / _one_core(cluster)
    reads = facts.memory_core_bytes_per_s
    if reads is None and facts.memory_copy_bytes_per_s:
        reads = round(CORE_READ_OF_COPY * facts.memory_copy_bytes_per_s)
    if reads:
        one_s += work.size_bytes / reads
    return one_s / math.pow(threads, fitted.thread_exponent)


def _prompt_s(
    work: TokenWork, pace: tuple[CpuCluster, int], repacked: Collection[str], fitted: Fitted
) -> float:
    cluster, threads = pace
    instructions = _instructions(work, _core(cluster), repacked, is_prompt=True)
    one_s = fitted.prompt_instructions * instructions / _one_core(cluster)
    return one_s / math.pow(threads, fitted.thread_exponent)


def _one_core(cluster: CpuCluster) -> float:
    return _vectors_per_s(cluster) / cluster.cores


def _bandwidth(facts: DeclaredSpecs, fitted: Fitted) -> tuple[float, str] | None:
    """Return what decoding reads of the memory with all cores, and what that follows from."""
    if facts.memory_bytes_per_s:
        return fitted.of_measured * facts.memory_bytes_per_s, "all cores"
    peak, copy = facts.memory_peak_bytes_per_s, facts.memory_copy_bytes_per_s
    best = fastest(facts.clusters)
    core = _core(best) if best else UNKNOWN_CORE
    if copy and not core.on_mesh:
        is_older = core.generation == PLAIN_GENERATION or core.vectors_per_cycle <= 1
        copied = 2 * fitted.of_copy[0 if is_older else 1] * copy
        return min(copied, peak or copied), "one core"
    return (fitted.of_peak * peak, "peak") if peak else None
