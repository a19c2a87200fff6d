"""How a model is spread over the members of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from armload.core.values import Value

Split = Literal["layer", "tensor"]
"""Whole layers one after the other, or a part of every layer."""


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


class Spread(Value):
    """How a model is spread.

    Attributes:
        shares: the first is that of the member that runs the program.
        is_direct: the first member reaches the others over their own network; else this machine
            forwards between them.
    """

    split: Split
    shares: tuple[Share, ...]
    is_direct: bool = False

    def words(self, servers: Sequence[str]) -> tuple[str, ...]:
        """Return llama.cpp's options for it.

        Args:
            servers: ``HOST:PORT`` of the RPC servers, as the first member reaches them: of the
                others, and with ``tensor`` its own before them.
        """
        if self.split == "layer":
            parts = [share.layers for share in self.shares[1:]]
            parts[-1] += 1  # the output counts as a layer, and follows the last one
            count = sum(parts)
        else:
            whole = sum(share.weights_bytes for share in self.shares)
            parts = [max(1, round(1000 * each.weights_bytes / whole)) for each in self.shares]
            count = self.shares[0].layers + 1
        split = ",".join(map(str, parts))
        return ("--rpc", ",".join(servers), "-sm", self.split, "-ngl", str(count), "-ts", split)
