"""Governors that a run sets, of the CPU and of other devices, as one text.

``performance`` is the CPU's; ``cpu=performance+memory=performance`` names each device's.
"""

from __future__ import annotations

from collections.abc import Mapping

from armload.boards.device_clocks import GOVERNED, ClockKind


def governors_in(text: str) -> dict[ClockKind, str]:
    """Return the governors that a text names, by what they drive.

    Raises:
        ValueError: it has another form; says which.
    """
    found: dict[ClockKind, str] = {}
    for part in text.split("+"):
        device, equals, name = part.partition("=")
        if not equals:
            device, name = "cpu", device
        kind = next((each for each in GOVERNED if each == device), None)
        if kind is None:
            raise ValueError(f"there is no device {device!r}; use one of {', '.join(GOVERNED)}")
        if not name:
            raise ValueError("name a governor, such as performance or memory=performance")
        if kind in found:
            raise ValueError(f"the governor of {kind} is given twice")
        found[kind] = name
    return found


def governors_text(governors: Mapping[ClockKind, str]) -> str | None:
    """Return the text that names some governors; none for none."""
    if not governors or set(governors) == {"cpu"}:
        return governors.get("cpu")
    return "+".join(f"{kind}={governors[kind]}" for kind in GOVERNED if kind in governors)


def cpu_governor(text: str | None) -> str | None:
    """Return the CPU's governor of a text; none where it names none."""
    return None if text is None else governors_in(text).get("cpu")
