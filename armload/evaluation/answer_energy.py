"""What answers took from their board's supply, and which of two models answers with less."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Protocol

from armload.analysis.run import Run
from armload.boards.power import EnergyBasis
from armload.core.values import Finite, Value
from armload.evaluation.record import AnswerSource


class AnswerPower(Value):
    """What the answers of one part of an evaluation took.

    Attributes:
        basis: what others must share to be compared with it.
        joules_per_s: per second of an answer's time; answers that were generated at the same time
            share the energy. None where it is not known.
        problem: why not.
    """

    basis: EnergyBasis
    joules_per_s: Finite | None = None
    problem: str = ""


def power_of(sources: Sequence[AnswerSource], answering_s: float) -> AnswerPower | None:
    """Return what a part's answers took; none where no run of it had a power meter.

    Args:
        answering_s: sum of the times of all its answers.
    """
    found = [source.energy for source in sources]
    known = [energy for energy in found if energy is not None]
    if not known:
        return None
    bases = {energy.basis for energy in known}
    problems = [energy.problem for energy in known if energy.problem]
    if len(known) < len(found):
        problems.append("the energy of some of its runs is unknown")
    if len(bases) > 1:
        problems.append("its runs were not all measured in the same way")
    if problems or answering_s <= 0:
        return AnswerPower(basis=known[0].basis, problem=(problems or ["nothing was answered"])[0])
    joules = sum(energy.joules or 0.0 for energy in known)
    return AnswerPower(basis=known[0].basis, joules_per_s=joules / answering_s)


class TimedAnswer(Protocol):
    """An answer with its lengths and its time."""

    @property
    def prompt_tokens(self) -> int:
        """Before it."""

    @property
    def tokens(self) -> int:
        """Of it."""

    @property
    def seconds(self) -> float:
        """From the start of its prompt."""


class SystemEnergy(Value):
    """What one model's answers take.

    Attributes:
        name: of the model.
        basis: what the other must share to be compared with it.
        joules: means over the questions, for each budget; empty where they are not known.
        problem: why not.
    """

    name: str
    basis: EnergyBasis
    joules: tuple[Finite, ...] = ()
    problem: str = ""


class EnergyTradeoff(Value):
    """The energy of two models' answers.

    Attributes:
        a, b: of each; none without a power meter.
        warning: why they cannot be compared; empty where they can.
    """

    a: SystemEnergy | None
    b: SystemEnergy | None
    warning: str = ""


def answered_energy(
    name: str, columns: Sequence[Sequence[TimedAnswer]], power: AnswerPower | None
) -> SystemEnergy | None:
    """Return what answers took in the evaluation itself.

    Args:
        columns: the answers of each budget.
    """
    if power is None:
        return None
    rate = power.joules_per_s
    means = (
        () if rate is None else tuple(rate * fmean(a.seconds for a in column) for column in columns)
    )
    return SystemEnergy(name=name, basis=power.basis, joules=means, problem=power.problem)


def expected_energy(
    name: str, columns: Sequence[Sequence[TimedAnswer]], run: Run
) -> SystemEnergy | None:
    """Return what answers of these lengths would take, by a run of the same model."""
    energy = run.energy
    if energy is None:
        return None
    prompt_j, token_j = energy.joules_per_prompt_token, energy.joules_per_token
    if prompt_j is None or token_j is None:
        problem = energy.problem or "its prefill or decode is too short for the power meter"
        return SystemEnergy(name=name, basis=energy.basis, problem=f"{run.id}: {problem}")
    means = tuple(
        # The prompt's last step gives the first token.
        fmean(prompt_j * a.prompt_tokens + token_j * max(0, a.tokens - 1) for a in column)
        for column in columns
    )
    return SystemEnergy(name=name, basis=energy.basis, joules=means)


def energies_compared(a: SystemEnergy | None, b: SystemEnergy | None) -> EnergyTradeoff | None:
    """Put the energies of two models beside one another; none where neither is known."""
    if a is None and b is None:
        return None
    warning = ""
    if a is not None and b is not None and a.basis != b.basis:
        warning = (
            f"{a.name} was measured {a.basis}, {b.name} {b.basis}. "
            f"{a.basis.not_comparable(b.basis)}"
        )
    return EnergyTradeoff(a=a, b=b, warning=warning)
