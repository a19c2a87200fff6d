"""What distributed-llama takes for a token on equal boards, from facts alone.

Counted as in its source (``src/llm.cpp`` and ``syncNodeSlices`` in ``src/nn/nn-network.cpp``).
After attention and after the feed-forward part of each layer, every node sends the whole width to
each other one. At the beginning the root sends position and activations to all; at the end it gets
their parts of the logits, in 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.roofline import TokenWork, forecast
from armload.boards.specs import DeclaredSpecs
from armload.core.values import Value
from armload.engines.prediction import Expected
from armload.engines.spread import LinkRates
from armload.models.distributed_llama import DistributedModel
from armload.models.metadata import FLOAT_BYTES

KERNELS = Expected(value=1.19, low=1.06, high=1.33)
"""Of a token's time on one board over that of llama.cpp's kernels without repacking, which execute
as many instructions per weight: the geometric mean of three published speeds, and their range."""

ROUND_TRIP_S = 0.0002
LINK_BITS_PER_S = 1_000_000_000
"""Assumed of the network: Ethernet through one switch, each board with a port of its own."""

LINK_DOUBT = 1.0
"""Of the time for exchanges: what is assumed of the network may be wrong by a factor of two."""


class Exchange(Value):
    """What the root exchanges for a token, which is the most of all nodes.

    Attributes:
        rounds: in which it waits for messages of others, or they for its own.
        sent_bytes, received_bytes: to and from all others.
    """

    rounds: int
    sent_bytes: float
    received_bytes: float

    def time_s(self, links: Sequence[LinkRates] = ()) -> float:
        """Return the time of it.

        Args:
            links: from the root, as measured; without them, an Ethernet of which both directions
                transfer at once is assumed. Where exchanges were not measured, a message takes half
                of a round trip.
        """
        if not links:
            one_way_bytes = max(self.sent_bytes, self.received_bytes)
            return self.rounds * ROUND_TRIP_S / 2 + 8 * one_way_bytes / LINK_BITS_PER_S
        exchange_s = max(link.exchange_s or link.round_trip_s / 2 for link in links)
        to_bytes_per_s = min(link.to_bytes_per_s for link in links)
        from_bytes_per_s = min(link.from_bytes_per_s for link in links)
        bytes_s = max(self.sent_bytes / to_bytes_per_s, self.received_bytes / from_bytes_per_s)
        return self.rounds * exchange_s + bytes_s


def exchange(model: DistributedModel, nodes: int) -> Exchange:
    """Return what the root exchanges for a token; nothing on one node."""
    others = nodes - 1
    if not others:
        return Exchange(rounds=0, sent_bytes=0, received_bytes=0)
    slices = 2 * model.layers * model.width * model.exchanged_bytes * others
    return Exchange(
        rounds=2 * model.layers + 2,
        sent_bytes=slices + others * FLOAT_BYTES * (model.width + 1),
        received_bytes=slices + FLOAT_BYTES * model.vocabulary * others / nodes,
    )


def node_work(model: DistributedModel, nodes: int, depth: float) -> TokenWork:
    """Return what a token asks of each node.

    Args:
        depth: tokens that the KV cache holds.
    """
    divided, divided_bytes, whole = 0.0, 0.0, 0
    for each in model.computed_tensors():
        used = 1.0 if each.expert is None else model.active_experts / model.experts
        if each.is_everywhere:
            whole += each.elements
        else:
            divided += used * each.elements
            divided_bytes += used * each.size_bytes
    return TokenWork(
        type_name=model.matrices,
        weights=divided / nodes + whole,
        size_bytes=divided_bytes / nodes + FLOAT_BYTES * whole,
        layers=model.layers,
        cache_bytes=2 * FLOAT_BYTES * model.layers * model.kv_width * depth / nodes,
        is_dense=not model.experts,
    )


class NodeTimes(Value):
    """A token's time on equal boards.

    Attributes:
        computing: of each node.
        exchanging: what is exchanged meanwhile, while nothing is computed.
        is_memory_bound: as in ``Times``.
    """

    computing: Expected
    exchanging: Expected
    is_memory_bound: bool | None

    @property
    def token_s(self) -> Expected:
        return self.computing + self.exchanging


def node_times(
    model: DistributedModel, nodes: int, facts: DeclaredSpecs, *, depth: float, threads: int | None
) -> NodeTimes | None:
    """Return a token's time; none where the facts of a board say too little.

    Args:
        facts: of each board.
        threads: of each node.
    """
    # Its kernels take the rows as they lie in the file.
    times = forecast(node_work(model, nodes, depth), facts, threads=threads, repacked=())
    if times is None:
        return None
    return NodeTimes(
        computing=times.token_s * KERNELS,
        exchanging=Expected.within(exchange(model, nodes).time_s(), LINK_DOUBT),
        is_memory_bound=times.is_memory_bound,
    )


def group_token_s(
    model: DistributedModel,
    alone: Sequence[Expected],
    links: Sequence[LinkRates],
    *,
    depth: float,
) -> Expected:
    """Return a token's time on boards of any kind: the slowest one computes, and they exchange.

    Args:
        alone: what llama.cpp would compute on each board for all of a token, without repacking.
        links: as for ``Exchange.time_s``.
    """
    nodes = len(alone)
    part = node_work(model, nodes, depth).size_bytes / node_work(model, 1, depth).size_bytes
    return shared_token_s(model, [each * KERNELS * part for each in alone], links)


def shared_token_s(
    model: DistributedModel, parts: Sequence[Expected], links: Sequence[LinkRates]
) -> Expected:
    """Return a token's time: the slowest node computes its part, and all exchange.

    Args:
        parts: what each node computes.
        links: as for ``Exchange.time_s``.
    """
    slowest = max(parts, key=lambda each: each.value)
    time_s = exchange(model, len(parts)).time_s(links)
    return slowest + Expected.within(time_s, LINK_DOUBT)
