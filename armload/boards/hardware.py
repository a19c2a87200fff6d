"""The catalogue of hardware: what boards and servers have, one YAML file each, with sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pydantic import Field, model_validator

from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.core.deciding import Words
from armload.core.errors import UsageError
from armload.core.near_names import available, nearest_first
from armload.core.values import ByteCount, Value
from armload.core.workspace import data_names, listing_of, spelled_name
from armload.core.yamlfile import load_named

KIND = "hardware"

_SIZE = re.compile(r"(?P<stem>.+)-(?P<count>\d+)(?P<unit>gb|mb)", re.IGNORECASE)
_REVISION = re.compile(r"(\s+(rev|v\d|board|developer kit|engineering).*)?", re.IGNORECASE)
"""After a device's name; anything else makes it another device: an Orange Pi 5 is no 5 Plus."""

_UNITS = {"gb": 1 << 30, "mb": 1 << 20}


class StorageKind(Value):
    """Storage that such a board is used with.

    Attributes:
        kind: such as ``microSD``.
        read_bytes_per_s: typical rate of reading in order.
    """

    kind: Words
    read_bytes_per_s: ByteCount = Field(gt=0)


class MemoryKind(Value):
    """The memory's type.

    Attributes:
        kind: such as ``LPDDR4X``.
        transfers_per_s: of each line, in millions.
        bits: lines together.
    """

    kind: Words
    transfers_per_s: int = Field(gt=0)
    bits: int = Field(gt=0)

    @property
    def peak_bytes_per_s(self) -> int:
        """What all lines transfer together."""
        return self.transfers_per_s * 1_000_000 * self.bits // 8


class Hardware(Value):
    """What ``hardware/<name>.yaml`` says; what is unknown is left out.

    Attributes:
        name: the file's name.
        description: one line for people.
        soc: the chip.
        target: name of the target whose binaries it runs.
        device_models: how it calls itself (the device tree's ``model``, or the machine's product
            name), each up to what differs between revisions.
        clusters: its CPU cores, with the clocks that were measured or declared.
        memory_sizes: with which it is sold.
        memory_kind: type of its memory.
        memory_bytes_per_s: measured read bandwidth, with all cores.
        memory_core_bytes_per_s: the same with one of the fastest cores.
        memory_copy_bytes_per_s: what one of the fastest cores copies, each byte counted once.
        storage: what it is used with, the most usual first.
        sources: of each of these figures, by its key.
    """

    name: Words
    description: Words
    soc: Words
    target: Words
    device_models: tuple[Words, ...] = ()
    clusters: tuple[CpuCluster, ...] = Field(min_length=1)
    memory_sizes: tuple[ByteCount, ...] = ()
    memory_kind: MemoryKind | None = None
    memory_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    memory_core_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    memory_copy_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    storage: tuple[StorageKind, ...] = ()
    sources: dict[str, Words]

    @model_validator(mode="after")
    def _every_figure_has_a_source(self) -> Hardware:
        figures = {name for name in _FIGURES if getattr(self, name)}
        if missing := sorted(figures - set(self.sources)):
            raise ValueError(f"sources lacks {', '.join(missing)}")
        if unused := sorted(set(self.sources) - figures):
            raise ValueError(f"sources names {', '.join(unused)}, which the file does not give")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """By which it is called: one for each size of memory."""
        if len(self.memory_sizes) < 2:
            return (self.name,)
        return tuple(f"{self.name}-{size_name(size)}" for size in self.memory_sizes)

    def specs(self, memory: int | None) -> DeclaredSpecs:
        """Return what a board of this hardware has, with so much memory."""
        return DeclaredSpecs(
            memory=memory,
            storage_read_bytes_per_s=self.storage[0].read_bytes_per_s if self.storage else None,
            memory_bytes_per_s=self.memory_bytes_per_s,
            memory_core_bytes_per_s=self.memory_core_bytes_per_s,
            memory_copy_bytes_per_s=self.memory_copy_bytes_per_s,
            memory_peak_bytes_per_s=self.memory_kind and self.memory_kind.peak_bytes_per_s,
            clusters=self.clusters,
        )

    def name_with(self, memory_bytes: int) -> str:
        """Return the name of the size that a board has, of which the kernel shows a little less."""
        for size, name in zip(sorted(self.memory_sizes), self.names, strict=False):
            if memory_bytes <= size:
                return name
        return self.names[-1]


_FIGURES = (
    "clusters",
    "memory_sizes",
    "memory_kind",
    "memory_bytes_per_s",
    "memory_core_bytes_per_s",
    "memory_copy_bytes_per_s",
    "storage",
)


class ChosenHardware(Value):
    """An entry of the catalogue, with one size of memory.

    Attributes:
        name: by which it was called.
        hardware: the entry.
        memory: its size; none where the entry gives none.
    """

    name: str
    hardware: Hardware
    memory: int | None

    @property
    def specs(self) -> DeclaredSpecs:
        return self.hardware.specs(self.memory)


def load_hardware(name: str) -> ChosenHardware:
    """Return what ``raspberry-pi-5-8gb`` names; any size of what is listed without sizes.

    Raises:
        UsageError: there is none, or not with that size; the nearest names are offered.
    """
    known = data_names(KIND)
    name = spelled_name(KIND, name)
    match = _SIZE.fullmatch(name)
    stem = spelled_name(KIND, match["stem"]) if match else ""
    if name not in known and match and stem in known:
        hardware = load_named(KIND, stem, Hardware)
        unit = match["unit"].lower()
        size = int(match["count"]) * _UNITS[unit]
        name = f"{stem}-{match['count']}{unit}"
        if size in hardware.memory_sizes or (size and not hardware.memory_sizes):
            return ChosenHardware(name=name, hardware=hardware, memory=size)
        raise UsageError(
            f"{hardware.description} is not listed with {match['count']} {match['unit'].upper()}.",
            f"Available: {', '.join(hardware.names)}.",
        )
    if name not in known:
        entries = [each for each in catalogue() if each.target == name]
        if of_target := [each for entry in entries for each in entry.names]:
            raise UsageError(
                f"There is no hardware named {name!r}: it is a target.",
                f"Hardware with that target: {nearest_first(name, of_target)}. To list all: "
                f"{listing_of(KIND)}",
            )
        alike = [f"{each}-{match['count']}{match['unit']}" for each in known] if match else known
        raise UsageError(
            f"There is no hardware named {name!r}.",
            available(name.lower(), alike, listing_of(KIND)),
        )
    hardware = load_named(KIND, name, Hardware)
    if len(hardware.memory_sizes) > 1:
        raise UsageError(
            f"{hardware.description} comes with several sizes of memory.",
            f"Name one of them: {', '.join(hardware.names)}.",
        )
    return ChosenHardware(
        name=name, hardware=hardware, memory=next(iter(hardware.memory_sizes), None)
    )


def catalogue() -> tuple[Hardware, ...]:
    return tuple(load_named(KIND, name, Hardware) for name in data_names(KIND))


def all_hardware() -> Iterator[ChosenHardware]:
    """Yield all of the catalogue, each size of memory by itself."""
    for hardware in catalogue():
        sizes: tuple[int | None, ...] = hardware.memory_sizes or (None,)
        for name, size in zip(hardware.names, sizes, strict=True):
            yield ChosenHardware(name=name, hardware=hardware, memory=size)


def recognised(device_model: str, memory_bytes: int) -> ChosenHardware | None:
    """Return the entry of a board that calls itself so and shows so much memory."""
    hardware = called(device_model, catalogue())
    return load_hardware(hardware.name_with(memory_bytes)) if hardware else None


def called(device_model: str, entries: Iterable[Hardware]) -> Hardware | None:
    """Return the one of some entries whose boards call themselves so."""
    fitting = [
        (len(prefix), hardware)
        for hardware in entries
        for prefix in hardware.device_models
        if device_model.startswith(prefix) and _REVISION.fullmatch(device_model[len(prefix) :])
    ]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def sold_size(size: int) -> str:
    """Write a size of memory as it is sold: ``8 GB``."""
    return f"{size >> 30} GB" if size % (1 << 30) == 0 else f"{size >> 20} MB"


def size_name(size: int) -> str:
    """Write a size of memory as it ends a name: ``8gb``."""
    return sold_size(size).replace(" ", "").lower()
