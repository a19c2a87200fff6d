"""What a group of boards takes for a token: its members, and what crosses the links between them.

Messages and their sizes are counted as in ggml's RPC client (``ggml-rpc.cpp``), its scheduler
(``ggml_backend_sched_compute_splits``) and its splitting of tensors (``ggml-backend-meta.cpp``, the
sum over all members by ``allreduce_fallback``) of October 2026:

- Setting a tensor and computing a graph have no answer, so they do not wait for each other. Only
  getting a tensor waits: for all that was sent before it, for the computing, and for the answer.
- With ``layer``, each server gets the inputs of its part, and gives its last activations, or the
  logits, in one round trip. A graph that is the same as the one before is named, not sent.
- With ``tensor``, partial sums are added twice per layer: a member's is got from it, set on another
  one, and added there by a graph of one node. No graph is the same as the one before, so each is
  sent, with all tensors that it was computed from, back to the inputs: the later, the more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from armload.analysis.board_resources import Rate
from armload.analysis.compute import Compute
from armload.analysis.shares import LayerSizes
from armload.core.values import Value, format_seconds
from armload.engines.llama_cpp import KV_ROUNDING_TOKENS
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.engines.prediction import Expected, GroupForecast, PartTime
from armload.engines.spread import LinkRates, Split, Spread

TENSOR_BYTES = 296
"""Of the description of a tensor (``rpc_tensor``), which precedes each tensor's content."""

INPUTS = 7
"""Tensors that each part of a graph gets: positions, places in the KV cache, the mask and so on."""

TENSORS_PER_LAYER, TENSORS_BEFORE = 35, 15
"""In the graph of one member, with weights and views, and before the first layer. They give what
two models of architecture ``llama`` sent for a token: 0.68 MB with 5 layers, 19.7 MB with 30."""

CACHED_FROM_BYTES = 10 << 20
"""Servers keep larger tensors on their storage (``HASH_THRESHOLD``)."""

PART_S = Expected(value=0.0002, low=0.00005, high=0.001)
"""What a server adds to the computing of a graph: it starts its threads for each. Likewise."""

DESCRIBED_S = Expected(value=2e-6, low=5e-7, high=1e-5)
"""Of each tensor's description: written on one side, and read on the other. It depends on the CPU,
and is not measured on it."""

LINK_DOUBT = 0.25

_ACTIVATION_BYTES = 4
_MASK_BYTES = 2


class Crossing(Value):
    """What crosses a link in one pass.

    Attributes:
        round_trips: that nothing else is done in.
        to_bytes, from_bytes: to the server and from it.
        graphs: that it computes.
        described: tensors that are described to it.
    """

    round_trips: int
    to_bytes: float
    from_bytes: float
    graphs: int
    described: float

    def time_s(self, link: LinkRates | None) -> Expected:
        """Return what that takes, beside computing; none is a server on the first member itself."""
        own = PART_S * float(self.graphs) + DESCRIBED_S * self.described
        if link is None:
            return own
        bytes_s = self.to_bytes / link.to_bytes_per_s + self.from_bytes / link.from_bytes_per_s
        return own + Expected.within(self.round_trips * link.round_trip_s + bytes_s, LINK_DOUBT)


class Exchanges(Value):
    """What a sum over all members takes of one of them: tensors got, set, and added there."""

    gets: int = 0
    sets: int = 0
    adds: int = 0


def exchanges(members: int) -> list[Exchanges]:
    """Return what a sum takes of each member, by pairs at powers of two, as the source does it."""
    gets, sets, adds = ([0] * members for _ in range(3))

    def push(source: int, sink: int) -> None:
        gets[source] += 1
        sets[sink] += 1

    paired = 1 << (members.bit_length() - 1)
    for extra in range(paired, members):
        push(extra, extra - paired)
        adds[extra - paired] += 1
    distance = paired // 2
    while distance:
        for member in range(paired):
            push(member, member ^ distance)
            adds[member ^ distance] += 1
        distance //= 2
    for extra in range(paired, members):
        push(extra - paired, extra)
    return [
        Exchanges(gets=got, sets=put, adds=added)
        for got, put, added in zip(gets, sets, adds, strict=True)
    ]


def crossings(
    split: Split, sizes: LayerSizes, parts: Sequence[float], *, tokens: int, depth: float
) -> list[Crossing]:
    """Return what crosses the link to each server in one pass over the model.

    Args:
        parts: of the model, that the members compute, the first one's before the others'. With
            ``layer`` no server runs on the first.
        tokens: that go through the model.
        depth: tokens that the KV cache holds.
    """
    activation = tokens * sizes.width * _ACTIVATION_BYTES
    mask = tokens * _MASK_BYTES * KV_ROUNDING_TOKENS * math.ceil((depth + 1) / KV_ROUNDING_TOKENS)
    # Beside these, activations are set, and the result is asked for.
    inputs = mask + INPUTS * 8 * tokens + (INPUTS + 2) * TENSOR_BYTES
    logits = sizes.vocabulary * _ACTIVATION_BYTES
    if split == "layer":
        servers = len(parts) - 1
        return [
            Crossing(
                round_trips=1,
                to_bytes=activation + inputs,
                from_bytes=logits if number == servers else activation,
                graphs=1,
                described=INPUTS + 2,
            )
            for number in range(1, servers + 1)
        ]
    layers = len(sizes.layer_bytes)
    sums = 2 * layers
    # A graph of all layers, and those of the sums, which have half of them on average.
    whole = TENSORS_BEFORE + TENSORS_PER_LAYER * layers
    half = TENSORS_BEFORE + TENSORS_PER_LAYER * layers / 2
    found = []
    for part, each in zip(parts, exchanges(len(parts)), strict=True):
        graphs = sums * (1 + each.adds) * half + whole
        all_described = INPUTS + 2 + sums * (each.gets + each.sets) + graphs
        found.append(
            Crossing(
                round_trips=sums * each.gets + 1,
                to_bytes=activation * (1 + sums * each.sets)
                + mask
                + INPUTS * 8 * tokens
                + TENSOR_BYTES * all_described,
                from_bytes=sums * each.gets * activation + part * logits,
                graphs=sums * (1 + each.adds) + 1,
                described=all_described,
            )
        )
    return found


class GroupTimes(Value):
    """What a group is expected to take.

    Attributes:
        token_s: per output token.
        prompt_s: of the prompt.
        forecast: what takes it.
    """

    token_s: Expected
    prompt_s: Expected
    forecast: GroupForecast


def group_times(
    spread: Spread,
    sizes: LayerSizes,
    computes: Sequence[Compute],
    *,
    prompt_tokens: int,
    depth: float,
    micro_batch_tokens: int | None = None,
) -> GroupTimes:
    """Return what a group is expected to take for a token and for a prompt.

    Args:
        computes: what each member would take to compute all of the model.
        depth: tokens that the KV cache holds, where a token's time is asked.
        micro_batch_tokens: of a prompt, that go through the model at a time.
    """
    whole = sum(share.weights_bytes for share in spread.shares)
    parts = [share.weights_bytes / whole for share in spread.shares]
    servers = spread.shares[1:] if spread.split == "layer" else spread.shares
    links = [spread.link_to(share.board) for share in servers]
    both = list(zip(computes, parts, strict=True))
    computed = [compute.token_s * part for compute, part in both]
    crossed = [
        crossing.time_s(link)
        for crossing, link in zip(
            crossings(spread.split, sizes, parts, tokens=1, depth=depth), links, strict=True
        )
    ]
    most = micro_batch_tokens or MICRO_BATCH_TOKENS
    prompts = [compute.prompt_s(prompt_tokens) * part for compute, part in both]
    passed = [Expected.nothing() for _ in links]
    for begin in range(0, prompt_tokens, most):
        tokens = min(most, prompt_tokens - begin)
        each = crossings(spread.split, sizes, parts, tokens=tokens, depth=begin + tokens)
        passed = [
            before + crossing.time_s(link)
            for before, crossing, link in zip(passed, each, links, strict=True)
        ]
    return GroupTimes(
        token_s=_together(spread.split, computed) + _sum(crossed),
        prompt_s=_together(spread.split, prompts) + _sum(passed),
        forecast=GroupForecast(
            split=spread.split,
            parts=(
                *_parts("member", [share.board for share in spread.shares], computed),
                *_parts("link", [share.board for share in servers], crossed),
            ),
        ),
    )


def _parts(kind: str, boards: Sequence[str], times: Sequence[Expected]) -> list[PartTime]:
    return [
        PartTime.model_validate({"kind": kind, "board": board, "token_s": time.value})
        for board, time in zip(boards, times, strict=True)
    ]


def _sum(times: Sequence[Expected]) -> Expected:
    return sum(times, Expected.nothing())


def _together(split: Split, times: Sequence[Expected]) -> Expected:
    if split == "layer":
        return _sum(times)
    longest = Expected.nothing()
    for time in times:
        longest = longest.longer(time)
    return longest


def load_time(
    spread: Spread,
    sizes: LayerSizes,
    first: Compute,
    storages: Sequence[Rate | None],
    weights_bytes: int,
    *,
    is_kept: bool,
) -> Expected:
    """Return what loading takes: the first member reads the file, and sends each server its part.

    A server that keeps a tensor reads it itself; the first member reads its own copy all the same,
    for the checksum by which the server finds it.

    Args:
        storages: of the members, as far as they are known.
        weights_bytes: of the model's file, which may be in the first member's memory already.
        is_kept: the servers have kept their tensors.
    """
    own = first.load_s
    if storages[0] is not None:
        own += storages[0].cold_time_s(weights_bytes)
    servers = list(zip(spread.shares, storages, strict=True))
    divided = len(spread.shares) if spread.split == "tensor" else 1
    large = [size for size in sizes.divided_tensors if size / divided > CACHED_FROM_BYTES]
    kept_share = sum(large) / max(1, sum(sizes.divided_tensors)) if is_kept else 0.0
    for share, storage in servers[0 if spread.split == "tensor" else 1 :]:
        link = spread.link_to(share.board)
        if link is not None:
            sent_bytes = share.weights_bytes * (1 - kept_share)
            own += Expected.within(sent_bytes / link.to_bytes_per_s, LINK_DOUBT)
        if storage is not None:
            own += storage.time_s(share.weights_bytes * kept_share)
    return own


def chosen_between(
    best: Split, times_s: Mapping[Split, float], lacking: Mapping[Split, str]
) -> str:
    """Say which split was taken.

    Args:
        times_s: forecast per output token, where it is known.
        lacking: why a split cannot be had.
    """
    other: Split = "tensor" if best == "layer" else "layer"
    if other in lacking:
        return f"--split auto takes {best}; {other} is not possible: {lacking[other]}"
    if len(times_s) < 2:
        return f"--split auto takes {best}: the members' speed is unknown."
    return (
        f"--split auto takes {best}: about {format_seconds(times_s[best])} per token, compared "
        f"with {format_seconds(times_s[other])} with {other}."
    )
