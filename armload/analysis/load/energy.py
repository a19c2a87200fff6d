"""What the requests of a point took from the board's supply."""

from __future__ import annotations

from armload.analysis.energy import MeteredTime, metered, per
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.telemetry import ObservedPoint
from armload.core.values import Finite


class PointEnergy(MeteredTime):
    """What the meter showed from the first request's scheduled time to the end of the last.

    A stage's time ends where the next one begins, so that no energy counts twice.

    Attributes:
        joules_per_request, joules_per_token: over the requests that succeeded, and the tokens
            that they generated; the others' energy is part of it.
    """

    joules_per_request: Finite | None = None
    joules_per_token: Finite | None = None


def energy_of(observed: ObservedPoint, metrics: Metrics) -> PointEnergy | None:
    """Return a point's energy, without its warm-up; none where there was no meter.

    Args:
        metrics: of the point.
    """
    if not observed.power or not observed.counted:
        return None
    zero_s, next_s = observed.point.began_client_s, observed.next_stage_s
    samples = [
        (line.here_s - zero_s, line.reading.watts)
        for line in observed.power
        if line.reading is not None and not line.is_idle
    ]
    found = metered(
        *(observed.power, samples),
        min(record.scheduled_s for record in observed.counted),
        max(record.end_s for record in observed.counted) if next_s is None else next_s,
        subtracts_idle=observed.subtracts_idle,
    )
    return PointEnergy(
        **dict(found),
        joules_per_request=per(found.joules, metrics.ok),
        joules_per_token=per(found.joules, metrics.output_tokens),
    )
