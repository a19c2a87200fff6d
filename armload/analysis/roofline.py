"""A token's time from facts alone: instructions of the kernels, and bandwidth of the memory.

A thread needs its share of the kernels' vector instructions and waits for its own reads; all
threads together wait for the memory. What the tables of ``kernels.py`` leave open is fitted to
published speeds by ``benchmarks/published.py``, which prints ``FITTED``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist

from armload.analysis.compute import Compute
from armload.analysis.kernels import (
    KERNELS,
    PLAIN_GENERATION,
    REPACKED,
    UNKNOWN_CORE,
    Core,
    core_of,
    known_core,
    vectors_per_product,
    vectors_per_weight,
)
from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.core.values import Value
from armload.engines.media import MediaNeed
from armload.engines.prediction import Expected, PredictionNoteKind
from armload.models.model import Model

INTERVAL_LEVEL = 0.8
"""Share of published speeds that lie within the interval of a forecast from facts."""

LOAD_S = 1.0
"""Assumed of starting the program and reading the vocabulary."""

LOAD_DOUBT = 2.0


UNKNOWN_MHZ = 2000

CORE_READ_OF_COPY = 1.5
"""What a core reads over what it copies, where its reading is unknown."""

UNKNOWN_CORE_READ = 17_000_000_000
"""Of out-of-order cores where neither is known: the median of those in sbc-bench's results."""

OTHER_LAYERS_DOUBT = 0.2
"""Assumed of recurrent layers and mixtures of experts, of which hardly a row was published."""

BARRIERS_PER_LAYER = 24
BARRIER_S_PER_THREAD = 0.06e-6
"""Every operation ends when all threads have met: each of them adds to one word, whose cache line
must come from the core that added before it."""


class Fitted(Value):
    """Constants that were fitted to published speeds.

    Attributes:
        instructions: cycles that a vector instruction takes over what the core could do.
        prompt_instructions: the same for prompts.
        thread_exponent: n threads do a token's work of this power of n. They do all of a prompt's,
            whose operations are long beside their barriers.
        of_measured: share of the read bandwidth of all cores that decoding reaches.
        of_copy: the same of twice the bytes that one core copies, by the core's generation.
        of_peak: the same of what the memory's type and width promise.
        doubts: standard deviations of the logarithm of a time, by what it follows from; those of
            a normal distribution of which 80% lie where 80% of the errors do.
    """

    instructions: float
    prompt_instructions: float
    thread_exponent: float
    of_measured: float
    of_copy: tuple[float, float]
    of_peak: float
    doubts: dict[str, float]


FITTED = Fitted(
    instructions=0.994,
    prompt_instructions=1.03,
    thread_exponent=0.896,
    of_measured=0.86,
    of_copy=(0.73, 0.974),
    of_peak=0.693,
    doubts={
        "instructions": 0.171,
        "all cores": 0.133,
        "one core": 0.232,
        "peak": 0.287,
        "prompt": 0.297,
        "unknown": 0.4,
    },
)
"""The doubts of what follows from the peak rest on one source, and those of unknown cores are
assumed: no published row tells of them."""


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
        # Embeddings of which a token reads a row may be most of a file, in a type of their own.
        multiplied = model.matrix_bytes
        share = model.bytes_per_token / model.size_bytes
        return cls(
            type_name=max(
                multiplied, key=lambda each: multiplied[each], default=model.quantisation
            ),
            weights=model.active_parameters or share * model.parameters,
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
        is_known = known_core(pace[0].name) and pace[0].max_mhz
        if not is_known:
            doubt = math.hypot(doubt, fitted.doubts["unknown"])
        prompt = _within(prompt_s, fitted.doubts["prompt" if is_known else "unknown"])
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
    notes: list[PredictionNoteKind] = ["estimated from facts"]
    if times.is_memory_bound is None and times.limit == "instructions":
        notes.append("cores only")
    return Compute(
        token_s=times.token_s,
        prompt_token_s=times.prompt_token_s or times.token_s,
        load_s=Expected.within(LOAD_S, LOAD_DOUBT),
        source="roofline",
        is_memory_bound=times.is_memory_bound,
        notes=tuple(notes),
    )


ATTENTION_TYPE, ATTENTION_TIMES = "F16", 0.77
"""A multiplication of the encoder's attention takes so many times that of one with such weights, as
measured on an x86-64 CPU (docs/figures.md)."""


def encoder_s(
    need: MediaNeed, facts: DeclaredSpecs, *, threads: int | None = None, measured: float = 1.0
) -> Expected | None:
    """Forecast all passes of an encoder; none without anything of cores.

    Args:
        measured: what a prompt takes on the board over what its facts tell, where that is known.
    """
    pace = threads_on(facts.clusters, threads)
    if pace is None:
        return None
    core = core_of(pace[0])
    instructions = sum(
        count * vectors_per_product(name, core) for name, count in need.products.items()
    )
    attention = need.attention * vectors_per_product(ATTENTION_TYPE, core)
    instructions += ATTENTION_TIMES * attention
    is_known = known_core(pace[0].name) and pace[0].max_mhz
    doubt = FITTED.doubts["prompt" if is_known else "unknown"]
    rate = pace[1] * _onecore_of(pace[0])
    return _within(measured * FITTED.prompt_instructions * instructions / rate, doubt)


_QUANTILE = NormalDist().inv_cdf((1 + INTERVAL_LEVEL) / 2)


def _within(value: float, doubt: float) -> Expected:
    return Expected.within(value, math.exp(_QUANTILE * doubt) - 1)


def _vectors_per_s(cluster: CpuCluster) -> float:
    return cluster.cores * core_of(cluster).vectors_per_cycle * _hz(cluster)


def _hz(cluster: CpuCluster) -> float:
    return (cluster.max_mhz or UNKNOWN_MHZ) * 1e6


def _instructions(
    work: TokenWork, core: Core, repacked: Collection[str], *, is_prompt: bool = False
) -> float:
    """Return the vector instructions of a token, or of a token of a prompt."""
    larger = work.larger_share()
    per_weight = sum(
        share * vectors_per_weight(name, core, is_repacked=name in repacked, is_prompt=is_prompt)
        for name, share in ((work.type_name, 1 - larger), ("Q6_K", larger))
    )
    return per_weight * work.weights


def _cores_s(
    work: TokenWork,
    facts: DeclaredSpecs,
    pace: tuple[CpuCluster, int],
    repacked: Collection[str],
    fitted: Fitted,
) -> float:
    cluster, threads = pace
    instructions = fitted.instructions * _instructions(work, core_of(cluster), repacked)
    one_s = instructions / _onecore_of(cluster)
    one_s += work.size_bytes / _core_reads(facts, cluster)
    return one_s / math.pow(threads, fitted.thread_exponent)


def _core_reads(facts: DeclaredSpecs, cluster: CpuCluster) -> float:
    """Return what a core of the cluster reads; what is known of the board is of its fastest one."""
    known = facts.memory_core_bytes_per_s
    if known is None and facts.memory_copy_bytes_per_s:
        known = round(CORE_READ_OF_COPY * facts.memory_copy_bytes_per_s)
    limits: list[float] = [known or UNKNOWN_CORE_READ]
    if facts.memory_bytes_per_s:
        # Some programs for measuring fetch ahead what is never used.
        limits.append(facts.memory_bytes_per_s)
    if per_cycle := core_of(cluster).read_bytes_per_cycle:
        limits.append(per_cycle * _hz(cluster))
    return min(limits)


def _prompt_s(
    work: TokenWork, pace: tuple[CpuCluster, int], repacked: Collection[str], fitted: Fitted
) -> float:
    cluster, threads = pace
    instructions = _instructions(work, core_of(cluster), repacked, is_prompt=True)
    return fitted.prompt_instructions * instructions / (threads * _onecore_of(cluster))


def _onecore_of(cluster: CpuCluster) -> float:
    return _vectors_per_s(cluster) / cluster.cores


def _bandwidth(facts: DeclaredSpecs, fitted: Fitted) -> tuple[float, str] | None:
    """Return what decoding reads of the memory with all cores, and what that follows from."""
    if facts.memory_bytes_per_s:
        return fitted.of_measured * facts.memory_bytes_per_s, "all cores"
    peak, copy = facts.memory_peak_bytes_per_s, facts.memory_copy_bytes_per_s
    best = fastest(facts.clusters)
    core = core_of(best) if best else UNKNOWN_CORE
    if copy and not core.on_mesh:
        is_older = core.generation == PLAIN_GENERATION or core.vectors_per_cycle <= 1
        copied = 2 * fitted.of_copy[0 if is_older else 1] * copy
        return min(copied, peak or copied), "one core"
    return (fitted.of_peak * peak, "peak") if peak else None
