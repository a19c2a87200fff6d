"""How a model is spread over the members of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from armload.core.values import Value

Split = Literal["layer", "tensor"]
"""Whole layers one after the other, or a part of every layer."""

SplitChoice = Literal["layer", "tensor", "auto"]
"""As asked for: ``auto`` is the one that the forecast says is faster."""


class Share(Value):
    """The part of a model that a member computes.

    Attributes:
        board: its name.
        layers: how many; with ``tensor``, all of them, each in part.
        weights_bytes: that it computes with; token embeddings are only looked up.
        memory_bytes: with the KV cache, and the program's buffers.
    """

    board: str
    layers: int
    weights_bytes: int
    memory_bytes: int


class LinkRates(Value):
    """What the connection from the first member to another one gives, on the way that RPC takes.

    Attributes:
        board: the other member.
        round_trip_s: of a small message and its answer, the median of many.
        exchange_s: until each has the other's small message, while as many threads as a run has
            compute on both and none sleeps; none where it was not measured.
        to_bytes_per_s, from_bytes_per_s: to it and from it.
    """

    board: str
    round_trip_s: Annotated[float, Field(gt=0)]
    exchange_s: Annotated[float, Field(gt=0)] | None = None
    to_bytes_per_s: Annotated[float, Field(gt=0)]
    from_bytes_per_s: Annotated[float, Field(gt=0)]


class ChosenSplit(Value):
    """Why ``auto`` took the split that it took.

    Attributes:
        layer_s, tensor_s: forecast time per output token; none where it is unknown, or where the
            model cannot be divided so.
        reason: in words.
    """

    layer_s: float | None
    tensor_s: float | None
    reason: str


class Spread(Value):
    """How a model is spread.

    Attributes:
        shares: the first is that of the member that runs the program.
        is_direct: the first member reaches the others over their own network; else this machine
            forwards between them.
        links: what the connections from the first member to the others give; those that could not
            be measured are missing.
        chosen: why it is split so; none where that was asked for.
    """

    split: Split
    shares: tuple[Share, ...]
    is_direct: bool = False
    links: tuple[LinkRates, ...] = ()
    chosen: ChosenSplit | None = None

    def link_to(self, board: str) -> LinkRates | None:
        """Return what the connection to a member gives; none where it is unknown."""
        return next((link for link in self.links if link.board == board), None)

    def words(self, servers: Sequence[str], separator: str = ",") -> tuple[str, ...]:
        """Return llama.cpp's options for it.

        Args:
            servers: ``HOST:PORT`` of the RPC servers, as the first member reaches them: of the
                others, and with ``tensor`` its own before them.
            separator: between the parts; a comma, but for ``llama-bench``, where it lists runs.
        """
        if self.split == "layer":
            parts = [share.layers for share in self.shares[1:]]
            parts[-1] += 1  # the output counts as a layer, and follows the last one
            count = sum(parts)
        else:
            whole = sum(share.weights_bytes for share in self.shares)
            parts = [max(1, round(1000 * each.weights_bytes / whole)) for each in self.shares]
            count = self.shares[0].layers + 1
        split = separator.join(map(str, parts))
        return ("--rpc", ",".join(servers), "-sm", self.split, "-ngl", str(count), "-ts", split)
