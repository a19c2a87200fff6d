"""Where an energy was measured, what it includes, and why two cannot be compared."""

from __future__ import annotations

from armload.analysis.energy import MeteredTime
from armload.boards.power import EnergyBasis, Sees
from armload.core.values import counted


def place(sees: Sees) -> str:
    return "at the wall" if sees == "wall" else "on the board"


def basis(found: EnergyBasis) -> str:
    return f"{place(found.sees)}, idle power {'subtracted' if found.subtracts_idle else 'included'}"


def not_comparable(a: EnergyBasis, b: EnergyBasis) -> str:
    """Say why energies of two bases cannot be compared; nothing where they can."""
    reasons = []
    if a.sees != b.sees:
        reasons.append("only the wall includes the supply's losses")
    if a.subtracts_idle != b.subtracts_idle:
        reasons.append("the idle power is subtracted from only one of them")
    return f"These cannot be compared: {', and '.join(reasons)}." if reasons else ""


def power(found: MeteredTime) -> str:
    """Say what a meter showed, or why its figures are not valid."""
    if found.problem or found.average_w is None or found.peak_w is None:
        return f"not valid: {found.problem} ({found.source})"
    idle = "idle power"
    if found.idle_w is not None:
        idle += f" ({found.idle_w:.2f} W)"
    included = "subtracted from the energy" if found.subtracts_idle else "included"
    rate = f"{counted(found.samples, 'sample')}, one every {found.interval_s or 0.0:.1f} s"
    return (
        f"{found.average_w:.2f} W on average, {found.peak_w:.2f} W peak {place(found.sees)}, "
        f"{idle} {included} ({found.source}; {rate})"
    )
