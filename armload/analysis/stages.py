"""What came before the first token of a model that saw or heard, and what each part of it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from armload.analysis.finding import Finding
from armload.core.values import Value, counted, format_seconds
from armload.engines.job import RunSpec
from armload.engines.trace import Step, Trace, wall_time_s

StageName = Literal["loading", "preprocessing", "encoder", "media tokens", "prompt", "output"]

_SHOWN_FROM = 0.25
"""Share of the time to the first token from which the encoder is worth a sentence."""

_FEWER = 4
"""What the advised limit divides the number of tokens by."""

_FEWEST_TOKENS = 64
"""Below, models see little."""


class StageFigures(Value):
    """A part of a run, over all its steps.

    Attributes:
        seconds: wall time.
        tokens: that went through the model; of the encoder, none.
        cpu_s: CPU time of all threads; none of loading.
        read_bytes: from storage; none where the kernel does not count them, and of loading.
        rss_bytes: the most resident memory at the end of a step; none of loading.
    """

    name: StageName
    seconds: float
    tokens: int | None = None
    cpu_s: float | None = None
    read_bytes: int | None = None
    rss_bytes: int | None = None


def _name(step: Step) -> StageName:
    if step.stage is not None:
        return step.stage
    if step.media_tokens:
        return "media tokens"
    return "output" if step.generated_tokens else "prompt"


def stages_of(header: Trace | None, steps: Sequence[Step]) -> tuple[StageFigures, ...]:
    """Return the parts of a run in which a model saw or heard, in their order; else nothing.

    Loading is what of the time to the first token is in no step. A run with several prompts, one
    after the other, has no such time.
    """
    if header is None or not any(step.stage for step in steps):
        return ()
    answered = next((at for at, step in enumerate(steps) if step.generated_tokens), len(steps))
    if any(step.stage for step in steps[answered:]):
        return ()
    by_name: dict[StageName, list[Step]] = {
        "preprocessing": [],
        "encoder": [],
        "media tokens": [],
        "prompt": [],
        "output": [],
    }
    for step in steps:
        by_name[_name(step)].append(step)
    before = [step for name, of in by_name.items() if name != "output" for step in of]
    first_s = (max(step.end_ns for step in before) - header.start_ns) / 1e9
    found = [StageFigures(name="loading", seconds=max(0.0, first_s - wall_time_s(before)))]
    for name, of in by_name.items():
        if of:
            reads = [step.read_bytes for step in of]
            found.append(
                StageFigures(
                    name=name,
                    seconds=wall_time_s(of),
                    tokens=sum(step.tokens for step in of) or None,
                    cpu_s=sum(step.cpu_ns for step in of) / 1e9,
                    read_bytes=None if None in reads else sum(each or 0 for each in reads),
                    rss_bytes=max(step.rss_bytes for step in of),
                )
            )
    return tuple(found)


class SlowEncoder(Finding):
    """The encoder took much of the time to the first token.

    Attributes:
        encoder_s: of ``ttft_s``.
        tokens: that it made.
        media: what of.
        fewer_tokens: a limit with which it would take less; none where nothing limits them.
    """

    encoder_s: float
    ttft_s: float
    tokens: int
    media: Literal["image", "sound"]
    fewer_tokens: int | None

    def fact(self) -> str:
        return (
            f"The encoder took {format_seconds(self.encoder_s)} of the "
            f"{format_seconds(self.ttft_s)} to the first token, for "
            f"{counted(self.tokens, f'{self.media} token')}."
        )

    def advice(self) -> str:
        if self.fewer_tokens is None:
            return ""
        # Its time grows at least as the number of patches does, which is that of its tokens.
        most_s = self.encoder_s * self.fewer_tokens / self.tokens
        return (
            f"With --image-max-tokens {self.fewer_tokens} it would take about "
            f"{format_seconds(most_s)}, and see less detail."
        )


def notes_about_stages(
    spec: RunSpec, stages: Sequence[StageFigures], ttft_s: float | None
) -> Iterator[str]:
    """Yield what a reader should know of the time to the first token."""
    seconds = {each.name: each.seconds for each in stages}
    tokens = {each.name: each.tokens or 0 for each in stages}.get("media tokens", 0)
    encoder_s = seconds.get("encoder", 0.0)
    if ttft_s is None or not tokens or encoder_s < _SHOWN_FROM * ttft_s:
        return
    is_limited = spec.projector is not None and spec.projector.limits_tokens
    fewer = tokens // _FEWER
    can_be_fewer = is_limited and bool(spec.images) and fewer >= _FEWEST_TOKENS
    yield SlowEncoder(
        encoder_s=encoder_s,
        ttft_s=ttft_s,
        tokens=tokens,
        media="image" if spec.images else "sound",
        fewer_tokens=fewer if can_be_fewer else None,
    ).sentence
