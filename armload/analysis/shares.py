"""Dividing a model between the members of a group, by what each has of memory and speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.analysis.board_resources import Rate
from armload.core.errors import BoardError, UsageError
from armload.core.values import Value, format_bytes
from armload.engines.engine import MemoryNeed
from armload.engines.spread import Share, Split, Spread
from armload.models.model import read_headers

SIMILAR_RATES = 1.2
"""Members whose memory differs less in speed count as equally fast."""


class LayerSizes(Value):
    """What the parts of a model take.

    Attributes:
        input_bytes: the token embeddings, which the first member keeps.
        layer_bytes: each layer.
        output_bytes: what follows the last layer.
        largest_bytes: the largest tensor; a server holds it once more while it receives it.
        divided_tensors: sizes of the tensors that members share: of the layers and the output.
        width: numbers that pass from one layer to the next, for each token.
        vocabulary: numbers that the output gives for a token.
    """

    input_bytes: int
    layer_bytes: tuple[int, ...]
    output_bytes: int
    largest_bytes: int
    divided_tensors: tuple[int, ...] = ()
    width: int = 0
    vocabulary: int = 0


class MemberResources(Value):
    """What is known of a member.

    Attributes:
        free_bytes: memory that its program may take.
        memory_bytes_per_s: reading, with all cores at once; none where it is unknown.
        storage: reading in order; likewise.
    """

    board: str
    free_bytes: int
    memory_bytes_per_s: int | None = None
    storage: Rate | None = None


def layer_sizes(model: Path) -> LayerSizes:
    """Return what the parts of a model take, from its header."""
    header, _ = read_headers(model, need_weights=False)
    layers: dict[int, int] = {}
    divided: list[int] = []
    input_bytes = output_bytes = largest_bytes = 0
    for tensor in header.tensors:
        size_bytes = tensor.size_bytes
        largest_bytes = max(largest_bytes, size_bytes)
        kind, _, rest = tensor.name.partition(".")
        if kind == "blk":
            number = int(rest.partition(".")[0])
            layers[number] = layers.get(number, 0) + size_bytes
            divided.append(size_bytes)
        elif kind in ("token_embd", "token_types", "position_embd"):
            input_bytes += size_bytes
        else:
            output_bytes += size_bytes
            divided.append(size_bytes)
    if not any(tensor.name == "output.weight" for tensor in header.tensors):
        output_bytes += input_bytes  # they are the same tensor, of which both ends get a copy
        divided.append(input_bytes)
    architecture = header.metadata.get("general.architecture")
    width = header.metadata.get(f"{architecture}.embedding_length")
    embeddings = next((each for each in header.tensors if each.name == "token_embd.weight"), None)
    return LayerSizes(
        input_bytes=input_bytes,
        layer_bytes=tuple(layers[number] for number in sorted(layers)),
        output_bytes=output_bytes,
        largest_bytes=largest_bytes,
        divided_tensors=tuple(divided),
        width=width if isinstance(width, int) else 0,
        vocabulary=embeddings.shape[-1] if embeddings else 0,
    )


def spread(
    members: Sequence[MemberResources], sizes: LayerSizes, need: MemoryNeed, split: Split
) -> Spread:
    """Divide a model between members.

    With ``layer``, members compute one after the other, so the faster ones get as much as fits;
    among equally fast ones, and where speeds are unknown, it is divided by memory. With
    ``tensor`` all wait for the slowest, so it is divided by speed, or else by memory.

    Args:
        members: the first runs the program.
        need: of the model with its context, on one board.
    """
    count = len(sizes.layer_bytes)
    if count < len(members):
        raise UsageError(
            f"{need.name} has {count} layers, fewer than the group has members.",
            "Use a smaller group.",
        )
    return _by_layer(members, sizes, need) if split == "layer" else _by_part(members, sizes, need)


def _by_layer(members: Sequence[MemberResources], sizes: LayerSizes, need: MemoryNeed) -> Spread:
    count = len(sizes.layer_bytes)
    kv_bytes = -(-need.kv_bytes // count)
    servers = [need.program_bytes + sizes.largest_bytes] * (len(members) - 1)
    servers[-1] += sizes.output_bytes
    beside = [need.program_bytes + sizes.input_bytes, *servers]
    a_layer = max(sizes.layer_bytes) + kv_bytes
    room = [
        max(0, (each.free_bytes - own_bytes) // a_layer)
        for each, own_bytes in zip(members, beside, strict=True)
    ]
    for each, its, own_bytes in zip(members, room, beside, strict=True):
        if not its:
            raise _short(need, each, own_bytes + a_layer, "one layer")
    if sum(room) < count:
        wanted_bytes = sum(beside) + count * a_layer
        free = ", ".join(f"{each.board} {format_bytes(each.free_bytes)}" for each in members)
        raise BoardError(
            f"{need.name} takes {format_bytes(wanted_bytes)} of memory on this group with its "
            f"context and buffers, which exceeds what is free: {free}.",
            "Use a smaller model or context, or add a member.",
        )
    layers = _divided(count, room, _speeds(members))
    shares, done, last = [], 0, len(members) - 1
    for place, (each, its, own_bytes) in enumerate(zip(members, layers, beside, strict=True)):
        weights_bytes = sum(sizes.layer_bytes[done : done + its])
        done += its
        shares.append(
            Share(
                board=each.board,
                layers=its,
                weights_bytes=weights_bytes + (sizes.output_bytes if place == last else 0),
                memory_bytes=weights_bytes + its * kv_bytes + own_bytes,
            )
        )
    return Spread(split="layer", shares=tuple(shares))


def _by_part(members: Sequence[MemberResources], sizes: LayerSizes, need: MemoryNeed) -> Spread:
    weighed = _speeds(members) or [each.free_bytes for each in members]
    divided_bytes = sum(sizes.layer_bytes) + sizes.output_bytes
    shares = []
    for place, (each, weight) in enumerate(zip(members, weighed, strict=True)):
        part = weight / sum(weighed)
        weights_bytes = round(part * divided_bytes)
        # The first member runs the program beside its own server.
        own_bytes = need.program_bytes + sizes.largest_bytes
        own_bytes += 0 if place else need.program_bytes + sizes.input_bytes
        memory_bytes = weights_bytes + round(part * need.kv_bytes) + own_bytes
        if memory_bytes > each.free_bytes:
            raise _short(need, each, memory_bytes, f"its {part:.0%}")
        shares.append(
            Share(
                board=each.board,
                layers=len(sizes.layer_bytes),
                weights_bytes=weights_bytes,
                memory_bytes=memory_bytes,
            )
        )
    return Spread(split="tensor", shares=tuple(shares))


def _speeds(members: Sequence[MemberResources]) -> list[int]:
    """Return how fast each member is; nothing where that is unknown, or they are alike."""
    rates = [each.memory_bytes_per_s for each in members if each.memory_bytes_per_s]
    known = len(rates) == len(members) and max(rates) > SIMILAR_RATES * min(rates)
    return rates if known else []


def _divided(count: int, room: Sequence[int], speeds: Sequence[int]) -> list[int]:
    """Give each member one layer at least, and none more than it has room for."""
    layers = [1] * len(room)
    left = count - len(room)
    if speeds:
        for place in sorted(range(len(room)), key=lambda place: -speeds[place]):
            more = min(left, room[place] - 1)
            layers[place] += more
            left -= more
        return layers
    for _ in range(left):
        emptiest = min(
            (place for place in range(len(room)) if layers[place] < room[place]),
            key=lambda place: (layers[place] + 1) / room[place],
        )
        layers[emptiest] += 1
    return layers


def _short(need: MemoryNeed, member: MemberResources, wanted_bytes: int, what: str) -> BoardError:
    return BoardError(
        f"{member.board}: {what} of {need.name} takes {format_bytes(wanted_bytes)} of memory with "
        f"the program's buffers, and {format_bytes(member.free_bytes)} are free.",
        "Use a smaller model or context, free memory there, or use another group.",
    )
