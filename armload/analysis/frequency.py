"""How fast the cores were that a run could use, from the frequencies in its trace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from armload.boards.conditions import Conditions
from armload.engines.cpu_set import cpu_numbers
from armload.engines.trace import Step, Trace

LOWER_FREQUENCY = 0.95
"""Share of the highest frequency below which a core counts as throttled."""


@dataclass(frozen=True, kw_only=True)
class Cores:
    """The cores of a run.

    Attributes:
        reporting: numbers of those whose frequencies a step holds, in its order.
        allowed: numbers of those that the program could use; none for all.
    """

    reporting: tuple[int, ...]
    allowed: frozenset[int] | None

    def khz(self, step: Step) -> int:
        """Return the frequency of the fastest core that the program could use; 0 for unknown."""
        return max(step.cpu_khz, default=0) if self.allowed is None else self.of(self.allowed, step)

    def of(self, cores: Collection[int], step: Step) -> int:
        """Return the frequency of the fastest of some cores; 0 where none of them reports one."""
        known = zip(self.reporting, step.cpu_khz, strict=False)
        return max((khz for number, khz in known if number in cores), default=0)


ANY = Cores(reporting=(), allowed=None)
"""Where nothing is known of them."""


def cores_of(header: Trace | None, before: Conditions, cpus: str | None) -> Cores:
    """Return the cores of a run.

    An older trace does not say whose frequencies it holds. They are those of the first cores that
    report one: of as many as the program could use, because musl counts the cores so.

    Args:
        cpus: the cores that the program was to be kept to; none for all.
    """
    reporting = tuple(
        sorted(
            core
            for cluster in before.clusters
            if cluster.khz is not None or cluster.max_khz is not None
            for core in cluster.cores
        )
    )
    allowed = cpus
    if header is not None and header.khz_cores is not None:
        reporting = cpu_numbers(header.khz_cores) if header.khz_cores else ()
        allowed = header.allowed_cores or cpus
    return Cores(
        reporting=reporting,
        allowed=None if allowed is None else frozenset(cpu_numbers(allowed)),
    )
