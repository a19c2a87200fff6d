"""What a page, a table and a comparison of a load are made from, and the load as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armload.analysis.load.assessed import AssessedPoint, SlowRequests, assess, slow_requests
from armload.analysis.load.capacity import FAILED_BY_THE_CLIENT, Capacity, capacity_of
from armload.analysis.load.findings import AnswersAtOnce
from armload.analysis.load.images import ImageLatency, by_image_size
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.parts import Accounting
from armload.analysis.load.records import ENDED_BY_THE_USER, Load, Objectives
from armload.analysis.load.telemetry import ObservedPoint
from armload.core.values import Value, counted, format_seconds
from armload.engines.job import Job
from armload.serving.loads import LoadFolder, observed_points


@dataclass(frozen=True, kw_only=True)
class LoadedPoint:
    """One point: what was recorded, and what follows from it.

    Attributes:
        accounting: where the time of its requests went.
        slow: its slow requests.
    """

    observed: ObservedPoint
    accounting: Accounting
    slow: SlowRequests
    assessed: AssessedPoint

    @property
    def pace(self) -> float:
        """The rate in requests/s, or the number of clients."""
        return self.assessed.pace

    @property
    def label(self) -> str:
        """The pace with its unit."""
        return self.assessed.label


@dataclass(frozen=True, kw_only=True)
class LoadView:
    """A load with everything that its records say.

    Attributes:
        objectives: none where none were given.
        job: the server's; none for a service that armload does not run.
        points: by pace, the lowest first; stages by time.
        capacity: none without objectives.
    """

    load: Load
    objectives: Objectives | None
    job: Job | None
    points: tuple[LoadedPoint, ...]
    capacity: Capacity | None

    @classmethod
    def of(cls, kept: LoadFolder) -> LoadView:
        """Compute everything that a load's records say; a point without a record is left out.

        Raises:
            DataError: a record was modified.
        """
        job, objectives = kept.job(), kept.load.objectives
        points = [
            _point(each, objectives, job, kept.load.percentiles)
            for each in observed_points(kept, job)
            if each.records
        ]
        points.sort(key=lambda point: point.pace)
        return cls(
            load=kept.load,
            objectives=objectives,
            job=job,
            points=tuple(points),
            capacity=capacity_of([point.assessed for point in points], kept.load.most_per_s),
        )

    @property
    def is_open(self) -> bool:
        """Whether requests came at a rate, and not from a number of clients."""
        return any(point.assessed.rate is not None for point in self.points)

    @property
    def is_staged(self) -> bool:
        """Whether its rate varies, and its points are stages in order of time."""
        return any(point.assessed.stage is not None for point in self.points)

    @property
    def is_of_embeddings(self) -> bool:
        """Whether no answer has a first token, or any token."""
        answered = [each.assessed.metrics for each in self.points if each.assessed.metrics.ok]
        return bool(answered) and all(metrics.is_of_embeddings for metrics in answered)

    @property
    def notes(self) -> list[str]:
        """Which figures it has none of, and why."""
        said = []
        if self.is_of_embeddings:
            said.append(
                "Embeddings and rankings have neither a first token nor a time per token: the time "
                "is to the answer."
            )
        if self.is_staged:
            left = ", and requests of one stage may still be served in the next"
            said.append(
                f"No confidence intervals: the rate varies{left if len(self.points) > 1 else ''}."
            )
        return said

    @property
    def images(self) -> tuple[ImageLatency, ...]:
        """The first token by the size of the image, over all points; empty without images."""
        return by_image_size(record for point in self.points for record in point.observed.records)

    @property
    def unit(self) -> str:
        """What comes at a rate."""
        held = any(point.assessed.metrics.conversations for point in self.points)
        return "conversations" if held else "requests"

    @property
    def compared(self) -> tuple[Load, Sequence[tuple[ObservedPoint, AssessedPoint]]]:
        """What a comparison needs of it."""
        return self.load, [(point.observed, point.assessed) for point in self.points]

    @property
    def telling(self) -> LoadedPoint:
        """The point at which the service is at its limit: the first that is not sustained.

        Of a load that is sustained everywhere, and of one without objectives, the last.
        """
        refuted = self.capacity.refuted if self.capacity else None
        return next((point for point in self.points if point.pace == refuted), self.points[-1])


def _point(
    observed: ObservedPoint,
    objectives: Objectives | None,
    job: Job | None,
    percentiles: Sequence[float],
) -> LoadedPoint:
    accounting = Accounting(observed)
    slow = slow_requests(accounting, objectives)
    return LoadedPoint(
        observed=observed,
        accounting=accounting,
        slow=slow,
        assessed=assess(observed, slow.causes, objectives, job, percentiles),
    )


def doubts_about(point: AssessedPoint, where: str) -> list[str]:
    """Say why figures of a point are not valid, what failed, and what was held back."""
    metrics = point.metrics
    said = [f"{where}, not valid: {each.sentence}" for each in metrics.findings]
    if failed := _failures(metrics.failed):
        said.append(f"{where}: {failed}.")
    if (refused := metrics.refusal) is not None:
        said.append(
            f"{where}: {counted(refused.requests, 'request')} refused with status "
            f"{refused.status}: {refused.message.rstrip('.')}. {refused.remedy}"
        )
    if metrics.held is not None:
        said.append(
            f"{where}: {metrics.held.count:,} of {counted(metrics.requests, 'request')} waited "
            f"for --max-concurrency, up to {format_seconds(metrics.held.max_s)}. Latencies count "
            "from the scheduled time, and include that wait."
        )
    if metrics.at_once and not any(isinstance(each, AnswersAtOnce) for each in metrics.findings):
        said.append(
            f"{where}: {metrics.at_once:,} of {counted(metrics.ok, 'answer')} arrived in one "
            "piece, or most of their tokens with the first one: these have no time per output "
            "token."
        )
    if metrics.tokens_per_chunk is not None:
        said.append(
            f"{where}: a chunk has {metrics.tokens_per_chunk:.1f} tokens on average, as with "
            "speculative decoding: inter-token latencies are those between chunks."
        )
    return said


def about_users(metrics: Metrics) -> list[str]:
    """Say what became of conversations, who gave up, and how much of the prompts was cached."""
    said = []
    if metrics.conversations is not None:
        said.append(metrics.conversations.sentence())
    if metrics.abandoned is not None:
        said.append(metrics.abandoned.sentence(metrics.requests))
    reuse = metrics.prompt_reuse
    if reuse is not None and (reuse.cached_tokens or metrics.conversations):
        said.append(reuse.sentence())
    return said


def _failures(failed: Mapping[str, int]) -> str:
    """Say how many requests the service failed, and how; nothing where it failed none."""
    others = FAILED_BY_THE_CLIENT | ENDED_BY_THE_USER
    of_service = {kind: failed[kind] for kind in sorted(failed) if kind not in others}
    if not of_service:
        return ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in of_service.items())
    return f"{counted(sum(of_service.values()), 'request')} failed ({kinds})"


class LoadDocument(Value):
    """A load, as far as it ran.

    Attributes:
        load: its id.
        url, board, run, installed, model, dialect, arrivals, seed, requests_from: as in
            ``load.json``.
        objectives: that its requests were to stay within; none where none were given.
        capacity: what the service sustains within them.
        points: one for each rate or concurrency, the lowest first, or for each stage in order.
        images: the time to the first token by the size of the image, over all points.
    """

    load: str
    url: str
    board: str
    run: str
    installed: str
    model: str
    dialect: str
    arrivals: str
    seed: int
    requests_from: str
    objectives: Objectives | None
    capacity: Capacity | None
    points: tuple[AssessedPoint, ...]
    images: tuple[ImageLatency, ...] = ()

    @classmethod
    def of(cls, loaded: LoadView) -> LoadDocument:
        """Describe a load."""
        shared = cls.model_fields.keys() & Load.model_fields.keys()
        return cls(
            **{name: getattr(loaded.load, name) for name in shared - {"points"}},
            load=loaded.load.id,
            capacity=loaded.capacity,
            points=tuple(point.assessed for point in loaded.points),
            images=loaded.images,
        )
