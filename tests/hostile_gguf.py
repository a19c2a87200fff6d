"""Damaged and hostile GGUF files, made from a sound one by a seeded generator."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from armload.models.gguf_values import Array
from armload.models.header import Header

ODD_NUMBERS = (
    *(0, 1, 2, 3, 7, 31, 33, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**62),
    *(2**63 - 1, 2**63, 2**64 - 1),
)


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """A damaged file.

    Attributes:
        kind: of damage.
        content: of the file.
    """

    kind: str
    content: bytes


def hostile_files(content: bytes, header: Header, *, seed: int, count: int) -> Iterator[Hostile]:
    """Yield files of every kind in turn.

    Args:
        content, header: of a sound file, small enough to be copied so often.
    """
    chance = random.Random(seed)
    entries = _entries(content, header)
    for number in range(count):
        kind, damage = KINDS[number % len(KINDS)]
        yield Hostile(kind=kind, content=damage(bytearray(content), header, entries, chance))


def _entries(content: bytes, header: Header) -> dict[str, tuple[int, int]]:
    """Return where each tensor's entry has its number of dimensions, and its type."""
    found = {}
    for tensor in header.tensors:
        name = tensor.name.encode()
        at = content.index(struct.pack("<Q", len(name)) + name, header.metadata_bytes)
        shape_at = at + 8 + len(name)
        found[tensor.name] = (shape_at, shape_at + 4 + 8 * len(tensor.shape))
    return found


Damage = Callable[[bytearray, Header, dict[str, tuple[int, int]], random.Random], bytes]


def _number(chance: random.Random, width: int = 8) -> bytes:
    value = chance.choice(ODD_NUMBERS)
    if chance.random() < 0.3:
        value = chance.getrandbits(8 * width)
    return (value % (1 << 8 * width)).to_bytes(width, "little")


def _put(content: bytearray, at: int, new: bytes) -> bytes:
    content[at : at + len(new)] = new
    return bytes(content)


def _some(entries: dict[str, tuple[int, int]], chance: random.Random) -> tuple[int, int]:
    return entries[chance.choice(sorted(entries))]


def _version(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    return _put(content, chance.choice((0, 4)), _number(chance, 4))


def _counts(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    return _put(content, chance.choice((8, 16)), _number(chance))


def _offset(
    content: bytearray,
    header: Header,
    entries: dict[str, tuple[int, int]],
    chance: random.Random,
) -> bytes:
    at = _some(entries, chance)[1] + 4
    (usual,) = struct.unpack_from("<Q", content, at)
    shift = chance.choice((1, -1, 4, 32, -32, 64, 1 << 20))
    new = struct.pack("<Q", (usual + shift) % (1 << 64))
    return _put(content, at, new if chance.random() < 0.6 else _number(chance))


def _shape(
    content: bytearray,
    header: Header,
    entries: dict[str, tuple[int, int]],
    chance: random.Random,
) -> bytes:
    at, type_at = _some(entries, chance)
    if chance.random() < 0.3:
        return _put(content, at, _number(chance, 4))
    dimension = at + 4 + 8 * chance.randrange((type_at - at - 4) // 8)
    (usual,) = struct.unpack_from("<Q", content, dimension)
    near = struct.pack("<Q", max(0, usual + chance.choice((-1, 1, 32, -32, 256))))
    return _put(content, dimension, near if chance.random() < 0.5 else _number(chance))


def _type(
    content: bytearray,
    header: Header,
    entries: dict[str, tuple[int, int]],
    chance: random.Random,
) -> bytes:
    kind = chance.choice((chance.randrange(60), chance.choice((4, 36, 142, 399, 2**31, 2**32 - 1))))
    return _put(content, _some(entries, chance)[1], struct.pack("<I", kind))


def _name(
    content: bytearray,
    header: Header,
    entries: dict[str, tuple[int, int]],
    chance: random.Random,
) -> bytes:
    name = chance.choice(sorted(entries))
    at = entries[name][0] - len(name)
    if chance.random() < 0.4:
        return _put(content, at - 8, _number(chance))
    other = bytes(chance.choice(b"ab.\0\xff\x1b/ ") for _ in name)
    return _put(content, at, other)


def _key(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    key = chance.choice(sorted(header.metadata))
    at = content.index(struct.pack("<Q", len(key)) + key.encode())
    value_at = at + 8 + len(key)
    choice = chance.random()
    if choice < 0.25:
        return _put(content, at, _number(chance))  # the length of its name
    if choice < 0.5:
        return _put(content, value_at, _number(chance, 4))  # the type of its value
    if isinstance(header.metadata[key], (str, Array)):
        return _put(content, value_at + 4 + chance.choice((0, 4)), _number(chance))
    return _put(content, value_at + 4, _number(chance, 4))


def _flipped(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 2, 8, 64))):
        content[chance.randrange(header.weights_at)] ^= 1 << chance.randrange(8)
    return bytes(content)


def _cut(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    end = chance.choice((chance.randrange(header.weights_at), chance.randrange(len(content))))
    return bytes(content[:end])


def _longer(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    more = chance.choice((b"GGUF", bytes(64), chance.randbytes(4096), bytes(content)))
    return bytes(content) + more


def _inserted(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    at = chance.randrange(header.weights_at)
    if chance.random() < 0.5:
        del content[at : at + chance.choice((1, 4, 8, 32))]
    else:
        content[at:at] = chance.randbytes(chance.choice((1, 4, 8, 32)))
    return bytes(content)


def _alignment(content: bytearray, header: Header, entries: object, chance: random.Random) -> bytes:
    """Add ``general.alignment`` as the first key."""
    key = b"general.alignment"
    value = chance.choice((0, 1, 3, 8, 16, 64, 4096, 2**31, 2**32 - 1, 33))
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, value)
    (count,) = struct.unpack_from("<Q", content, 16)
    content[16:24] = struct.pack("<Q", count + 1)
    content[24:24] = entry
    return bytes(content)


KINDS: tuple[tuple[str, Damage], ...] = (
    ("version", _version),
    ("counts", _counts),
    ("offset", _offset),
    ("shape", _shape),
    ("type", _type),
    ("name", _name),
    ("key", _key),
    ("bits", _flipped),
    ("cut", _cut),
    ("longer", _longer),
    ("inserted", _inserted),
    ("alignment", _alignment),
)
