"""Which device computed which operations, as a program built for GPUs tells when it ends."""

from __future__ import annotations

import re
from typing import Annotated

from armload.core.values import LEAVES, Count, Leaves, Value


class DeviceShare(Value):
    """What a GPU computed.

    Attributes:
        name: llama.cpp's, such as ``Vulkan0``.
        description: the driver's name of it.
        operations: how many, in all passes.
    """

    name: Annotated[str, Leaves("device")]
    description: str
    operations: Annotated[Count, LEAVES]


class CpuOperation(Value):
    """Operations of one kind that the CPU computed.

    Attributes:
        name: ggml's, such as ``GET_ROWS``; ``others`` of those for which the program had no room.
        type: of the data that it reads first, such as ``q4_0``; empty of others.
        operations: how many, in all passes.
        unsupported: the GPU cannot compute it; else llama.cpp leaves it to the CPU.
    """

    name: Annotated[str, Leaves("operation")]
    type: str = ""
    operations: Annotated[Count, LEAVES]
    unsupported: Annotated[bool, LEAVES] = False


class Placement(Value):
    """Where a run's operations were computed.

    Attributes:
        passes: through the model, those that only warmed it up included.
        devices: the GPUs.
        on_cpu: what the CPU computed beside them.
    """

    passes: Annotated[Count, LEAVES]
    devices: Annotated[tuple[DeviceShare, ...], LEAVES]
    on_cpu: Annotated[tuple[CpuOperation, ...], LEAVES]

    @property
    def unsupported(self) -> tuple[CpuOperation, ...]:
        """What fell back to the CPU because the GPU cannot compute it."""
        return tuple(each for each in self.on_cpu if each.unsupported)


_LINE = re.compile(
    r"^armload: placement: ([0-9]{1,18}) (?:"
    r"(?P<passes>passes)"
    r"|on the CPU: (?P<operation>\S{1,64})(?: (?P<type>\S{1,64}))??(?P<lacks> unsupported)?"
    r"|on (?P<device>\S{1,64}): (?P<description>.{0,256})"
    r")$",
    re.MULTILINE,
)


def read_placement(stderr: str) -> Placement | None:
    """Read what a program told; none where it told nothing, as one that was killed."""
    passes: int | None = None
    devices: list[DeviceShare] = []
    on_cpu: list[CpuOperation] = []
    for found in _LINE.finditer(stderr):
        count = int(found[1])
        if found["passes"]:
            passes, devices, on_cpu = count, [], []
        elif found["operation"]:
            on_cpu.append(
                CpuOperation(
                    name=found["operation"],
                    type=found["type"] or "",
                    operations=count,
                    unsupported=bool(found["lacks"]),
                )
            )
        else:
            devices.append(
                DeviceShare(
                    name=found["device"], description=found["description"], operations=count
                )
            )
    if passes is None:
        return None
    return Placement(passes=passes, devices=tuple(devices), on_cpu=tuple(on_cpu))
