"""Whether programs for GPUs run on a board: its Vulkan loader, drivers and C library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from armload.boards.failures import SlowCommandError
from armload.boards.host import Host
from armload.build.vulkan import GLIBC, VULKAN_LOADER
from armload.core.values import Value

_MOST_DRIVERS = 64
_MOST_DEVICES = 16
_MOST_CHARACTERS = 256
_ANSWERS_WITHIN_S = 30.0

DeviceKind = Literal["GPU", "software", "other"]


class VulkanDevice(Value):
    """A device as the board's Vulkan loader lists it.

    Attributes:
        name: the driver's name of it.
        kind: ``software`` is a driver that computes on the CPU.
    """

    name: str
    kind: DeviceKind


class Vulkan(Value):
    """What a board has for Vulkan.

    Attributes:
        loader: the loader's path; empty where there is none.
        drivers: the files that name drivers to the loader (ICDs), also those for other GPUs.
        library: the C library: ``glibc``, ``musl``, or empty where it is neither.
        glibc: its version, such as ``2.36``; empty where that is not known. It is looked for on
            boards with a loader alone.
        devices: that the loader lists, which was asked by ``vulkaninfo``; none where it was not
            asked, is not installed, or failed.
    """

    loader: str = ""
    drivers: tuple[str, ...] = ()
    library: Literal["glibc", "musl", ""] = ""
    glibc: str = ""
    devices: tuple[VulkanDevice, ...] | None = None

    def obstacle(self, glibc: str = GLIBC) -> tuple[str, str] | None:
        """Say why programs that compute on GPUs do not run, and what to do; none where they may.

        Args:
            glibc: the version that they need.
        """
        if self.library == "musl":
            return (
                "its C library is musl, and programs for GPUs need glibc",
                "Use a system with glibc, such as Debian or Ubuntu.",
            )
        if not self.loader:
            return (
                f"it has no Vulkan loader ({VULKAN_LOADER})",
                "Install it and a driver for its GPU (Debian: libvulkan1 and mesa-vulkan-drivers).",
            )
        if self.library != "glibc":
            return (
                "its C library is not glibc, which programs for GPUs need",
                "Use a system with glibc, such as Debian or Ubuntu.",
            )
        if self.glibc and _numbers(self.glibc) < _numbers(glibc):
            return (
                f"its glibc is {self.glibc}, and programs for GPUs need {glibc} or newer",
                "Update the board's system.",
            )
        if not self.drivers:
            return (
                "it has a Vulkan loader, but no driver (no file in /usr/share/vulkan/icd.d)",
                "Install a driver for its GPU (Debian: mesa-vulkan-drivers).",
            )
        return None


def read_vulkan(lines: Iterable[str]) -> Vulkan:
    """Read lines ``KEY VALUE`` of the probing script."""
    found: dict[str, list[str]] = {}
    for line in lines:
        key, _, value = line.strip().partition(" ")
        found.setdefault(key, []).append(value[:_MOST_CHARACTERS])
    version = re.search(r"([0-9]{1,3}\.[0-9]{1,3})\.?$", found.get("version", [""])[0])
    library: Literal["glibc", "musl", ""] = "glibc" if "glibc" in found else ""
    return Vulkan(
        loader=found.get("loader", [""])[0],
        drivers=tuple(found.get("driver", ())[:_MOST_DRIVERS]),
        library=library or ("musl" if "musl" in found else ""),
        glibc=version[1] if version else "",
    )


_KINDS: dict[str, DeviceKind] = {
    "PHYSICAL_DEVICE_TYPE_CPU": "software",
    "PHYSICAL_DEVICE_TYPE_DISCRETE_GPU": "GPU",
    "PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU": "GPU",
    "PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU": "GPU",
}


def with_devices(host: Host, found: Vulkan) -> Vulkan:
    """Return the same with the devices that the board's own ``vulkaninfo`` lists, if it can."""
    if not found.loader:
        return found
    try:
        done = host.run("vulkaninfo --summary 2>/dev/null", timeout_s=_ANSWERS_WITHIN_S)
    except SlowCommandError:
        return found
    if done.status != 0:
        return found
    return found.model_copy(update={"devices": read_devices(done.text)})


def read_devices(summary: str) -> tuple[VulkanDevice, ...]:
    """Read what ``vulkaninfo --summary`` printed."""
    lines = re.findall(r"^\s*(deviceName|deviceType)\s*=\s*(.+?)\s*$", summary, re.MULTILINE)
    kinds: Sequence[str] = [value for key, value in lines if key == "deviceType"]
    names: Sequence[str] = [value for key, value in lines if key == "deviceName"]
    return tuple(
        VulkanDevice(name=name[:_MOST_CHARACTERS], kind=_KINDS.get(kind, "other"))
        for name, kind in zip(names, kinds, strict=False)
    )[:_MOST_DEVICES]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
