"""Names of CPU cores, by the implementer and the part number that ``/proc/cpuinfo`` shows.

Both are fields of MIDR_EL1. The numbers are those of Linux's ``arch/arm64/include/asm/cputype.h``
and of util-linux's ``sys-utils/lscpu-arm.c``.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    0x41: {  # Arm
        0xD02: "Cortex-A34",
        0xD03: "Cortex-A53",
        0xD04: "Cortex-A35",
        0xD05: "Cortex-A55",
        0xD06: "Cortex-A65",
        0xD07: "Cortex-A57",
        0xD08: "Cortex-A72",
        0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77",
        0xD0E: "Cortex-A76AE",
        0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE",
        0xD43: "Cortex-A65AE",
        0xD44: "Cortex-X1",
        0xD46: "Cortex-A510",
        0xD47: "Cortex-A710",
        0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2",
        0xD4A: "Neoverse-E1",
        0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C",
        0xD4D: "Cortex-A715",
        0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520",
        0xD81: "Cortex-A720",
        0xD82: "Cortex-X4",
        0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925",
        0xD87: "Cortex-A725",
        0xD88: "Cortex-A520AE",
        0xD89: "Cortex-A720AE",
        0xD8E: "Neoverse-N3",
        0xD8F: "Cortex-A320",
    },
    0x42: {0x100: "Brahma-B53", 0x516: "ThunderX2"},  # Broadcom
    0x43: {  # Cavium, Marvell
        0x0A0: "ThunderX",
        0x0A1: "ThunderX-88XX",
        0x0A2: "ThunderX-81XX",
        0x0A3: "ThunderX-83XX",
        0x0AF: "ThunderX2",
        0x0B1: "OcteonTX2-98XX",
        0x0B2: "OcteonTX2-96XX",
        0x0B3: "OcteonTX2-95XX",
        0x0B4: "OcteonTX2-95XXN",
        0x0B5: "OcteonTX2-95XXMM",
        0x0B6: "OcteonTX2-95XXO",
        0x0B8: "ThunderX3",
    },
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},  # Fujitsu
    0x48: {  # HiSilicon
        0xD01: "TaiShan-v110",
        0xD02: "TaiShan-v120",
        0xD06: "HIP12",
        0xD40: "Cortex-A76",
        0xD41: "Cortex-A77",
    },
    0x4E: {0x000: "Denver", 0x003: "Denver-2", 0x004: "Carmel", 0x010: "Olympus"},  # NVIDIA
    0x50: {0x000: "X-Gene"},  # Applied Micro
    0x51: {  # Qualcomm
        0x001: "Oryon",
        0x200: "Kryo",
        0x201: "Kryo",
        0x205: "Kryo",
        0x211: "Kryo",
        0x800: "Kryo-2XX-Gold",
        0x801: "Kryo-2XX-Silver",
        0x802: "Kryo-3XX-Gold",
        0x803: "Kryo-3XX-Silver",
        0x804: "Kryo-4XX-Gold",
        0x805: "Kryo-4XX-Silver",
        0xC00: "Falkor",
        0xC01: "Saphira",
    },
    0x53: {0x001: "Exynos-M1", 0x002: "Exynos-M3", 0x003: "Exynos-M4", 0x004: "Exynos-M5"},
    0x61: {  # Apple
        0x020: "Icestorm-A14",
        0x021: "Firestorm-A14",
        0x022: "Icestorm-M1",
        0x023: "Firestorm-M1",
        0x024: "Icestorm-M1-Pro",
        0x025: "Firestorm-M1-Pro",
        0x028: "Icestorm-M1-Max",
        0x029: "Firestorm-M1-Max",
        0x030: "Blizzard-A15",
        0x031: "Avalanche-A15",
        0x032: "Blizzard-M2",
        0x033: "Avalanche-M2",
        0x034: "Blizzard-M2-Pro",
        0x035: "Avalanche-M2-Pro",
        0x038: "Blizzard-M2-Max",
        0x039: "Avalanche-M2-Max",
    },
    0x6D: {0xD49: "Azure-Cobalt-100"},  # Microsoft
    0x70: {  # Phytium
        0x303: "FTC310",
        0x660: "FTC660",
        0x661: "FTC661",
        0x662: "FTC662",
        0x663: "FTC663",
        0x664: "FTC664",
        0x862: "FTC862",
    },
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},
}


_LITTLE = (
    *("Cortex-A34", "Cortex-A35", "Cortex-A53", "Cortex-A55", "Cortex-A320"),
    *("Cortex-A510", "Cortex-A520", "Icestorm", "Blizzard", "FTC310"),
)
"""What the names of cores begin with that others are added to where speed is wanted."""

_UNNAMED = "implementer "


def is_little(name: str) -> bool:
    """Tell whether a core is one that saves energy, beside others that are fast."""
    return name.startswith(_LITTLE) or name.endswith("-Silver")


def is_unnamed(name: str) -> bool:
    """Tell whether a core's name is the kernel's numbers, which say nothing of its speed."""
    return name.startswith(_UNNAMED)


def core_of_cpu(cpu: str) -> str:
    """Return the name of the cores of QEMU's ``cortex-a55``; empty where nobody has named them."""
    every = (name for names in _NAMES.values() for name in names.values())
    return next((name for name in every if name.lower() == cpu.lower()), "")


def core_name(core: Mapping[str, str]) -> str:
    """Return the name of a core, by what ``/proc/cpuinfo`` says of it.

    It is the kernel's numbers where nobody has given them a name.
    """
    if "model name" in core and "CPU part" not in core:
        return core["model name"]
    implementer = int(core.get("CPU implementer", "0"), 0)
    part = int(core.get("CPU part", "0"), 0)
    named = _NAMES.get(implementer, {}).get(part)
    return named or f"{_UNNAMED}{implementer:#04x} part {part:#05x}"
