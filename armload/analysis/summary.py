"""Figures computed from a run's steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from armload.analysis.speculation import SpeculationResult
from armload.analysis.stages import StageFigures, stages_of
from armload.analysis.statistics import FEWEST_TOKENS, Interval, interval_of_few
from armload.core.values import Value
from armload.engines.output import Reported
from armload.engines.trace import Step, Trace, wall_time_s


class TokenTimes(Value):
    """Quantiles of the time per output token, in seconds.

    Attributes:
        p50_low, p50_high: the median's 95% confidence interval, from this run's tokens and what
            usually differs between runs; none for few tokens.
    """

    p50: float
    p90: float
    p99: float
    max: float
    p50_low: float | None = None
    p50_high: float | None = None


class ExpertReads(Value):
    """How streamed experts were used by the steps that generated.

    Attributes:
        hit_rate: share of the bytes used that were in memory already.
        bytes_per_token: of experts, that a token uses.
        missed_bytes_per_token: of these, read from storage.
        wait_s_per_token: that computing waited for storage.
    """

    hit_rate: float
    bytes_per_token: float
    missed_bytes_per_token: float
    wait_s_per_token: float


class TextFigures(Value):
    """What a run took that embedded texts.

    Attributes:
        texts: that were embedded, or scored.
        texts_per_s: of all passes over the weights, without loading.
        text_p50_s: median time of a text: of a pass, divided between its texts.
        pass_p50_s, pass_p90_s, pass_max_s: quantiles of the time of a pass.
    """

    texts: int
    texts_per_s: float
    text_p50_s: float
    pass_p50_s: float
    pass_p90_s: float
    pass_max_s: float


class Summary(Value):
    """Figures that are computed from the steps.

    Attributes:
        ttft_s: from the process's start to the end of the first prompt's last step, with model
            loading.
        prefill_tps: prompt tokens per second of prompt steps.
        decode_tps: generated tokens per second of generating steps; none without such steps.
            For a watched program these two, and the sums below, are as the program reports them.
        token_s: time per output token; none without generating steps.
        wall_s: from the process's start to its last step's end.
        prefill_s, decode_s: sums of the prompt's and of the generating steps, without loading; a
            draft model's steps between them count as generating; none without such steps.
        prefill_tokens, decode_tokens: tokens that went through the model in them; the first
            output token comes out of prefill, so decode is one fewer than was written.
        speculation: what guessed tokens gave; none where none were to be guessed.
        experts: how streamed experts were used; none of other weights.
        stages: of a run in which the model saw or heard, what each part of it took; else empty.
        texts: of a run that embedded texts, which has no first token and none after it; else none.
    """

    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    token_s: TokenTimes | None
    wall_s: float | None
    prefill_s: float | None = None
    prefill_tokens: int | None = None
    decode_s: float | None = None
    decode_tokens: int | None = None
    speculation: SpeculationResult | None = None
    experts: ExpertReads | None = None
    stages: tuple[StageFigures, ...] = ()
    texts: TextFigures | None = None

    @property
    def median_s(self) -> float | None:
        """The median time per output token; of embedded texts, per text."""
        if self.texts is not None:
            return self.texts.text_p50_s
        return self.token_s.p50 if self.token_s else None

    @property
    def unit(self) -> str:
        """What that is the time of."""
        return "token" if self.texts is None else "text"

    @property
    def median_within_s(self) -> Interval | None:
        """Where that lies with 95% confidence."""
        times = self.token_s
        if times is None or times.p50_low is None or times.p50_high is None:
            return None
        return Interval(low=times.p50_low, high=times.p50_high)


def quantile(samples: Sequence[float], percent: int) -> float:
    """Return a percentile by linear interpolation between the closest ranks.

    Raises:
        ValueError: no samples.
    """
    if len(samples) == 1:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass over the weights that generated.

    Attributes:
        step: of the main model.
        tokens: that came out of it: one for each sequence, and the accepted drafts.
        draft_s: time of a draft model's steps since the pass before.
    """

    step: Step
    tokens: int
    draft_s: float

    @property
    def duration_s(self) -> float:
        """Wall time, with the draft model's."""
        return self.step.duration_s + self.draft_s


def generating(steps: Sequence[Step]) -> list[Step]:
    """Return the main model's steps that decoded generated tokens, and no other one's prompt."""
    return [step for step in steps if _generates(step)]


def _generates(step: Step) -> bool:
    # A model that cannot take tokens back reads those that it accepted once more, as a prompt.
    is_its_own = step.prompt_tokens == 0 or step.sequences == 1
    return step.model == 0 and step.generated_tokens > 0 and is_its_own


def prompting(steps: Sequence[Step]) -> list[Step]:
    """Return the main model's steps that processed a prompt, perhaps with drafts after it."""
    return [
        step
        for step in steps
        if step.model == 0 and step.generated_tokens == 0 and step.prompt_tokens > 0
    ]


def passes(header: Trace | None, steps: Sequence[Step]) -> list[Pass]:
    """Return the passes that generated, in order.

    Args:
        header: tells how many drafts of the main model's last step were accepted.
    """
    main = [step for step in steps if step.model == 0]
    last_accepted_tokens = header.last_accepted_tokens if header else 0
    accepted = iter([*(step.accepted_tokens for step in main[1:]), last_accepted_tokens])
    found, draft_s = [], 0.0
    for step in steps:
        if step.model != 0:
            draft_s += step.duration_s
            continue
        tokens = step.generated_tokens + next(accepted)
        if _generates(step):
            found.append(Pass(step=step, tokens=tokens, draft_s=draft_s))
        draft_s = 0.0
    return found


def summarise(
    header: Trace | None,
    steps: Sequence[Step],
    reported: Reported | None = None,
    *,
    speculates: bool = False,
    texts_at_a_time: int | None = None,
) -> Summary:
    """Compute rates and quantiles.

    A pass that gives several tokens counts as that many output tokens of equal time. The steps of
    a server that processed one request's prompt and generated for another are excluded.
    What a program reports of itself is taken as it is; only the quantiles are computed then.

    Args:
        speculates: tokens were to be guessed.
        texts_at_a_time: that were embedded in a pass; none where text was generated.
    """
    if reported is not None:
        return Summary(**dict(reported), token_s=_token_times(token_times(header, steps)))
    prompt = prompting(steps)
    decode = passes(header, steps)
    prompt_tokens = sum(step.prompt_tokens for step in prompt)
    decode_tokens = sum(each.tokens for each in decode)
    prompt_s = wall_time_s(prompt)
    decode_s = fsum(each.duration_s for each in decode)
    is_generated = texts_at_a_time is None
    began = header if is_generated else None
    first_ns = decode[0].step.start_ns if decode else inf
    first = [step for step in prompt if step.end_ns <= first_ns] or prompt[:1]
    return Summary(
        ttft_s=(first[-1].end_ns - began.start_ns) / 1e9 if began and first else None,
        prefill_tps=prompt_tokens / prompt_s if prompt_s > 0 else None,
        decode_tps=decode_tokens / decode_s if decode_s > 0 else None,
        token_s=_token_times(token_times(header, steps)),
        wall_s=(steps[-1].end_ns - header.start_ns) / 1e9 if header and steps else None,
        prefill_s=prompt_s if prompt else None,
        prefill_tokens=prompt_tokens if prompt else None,
        decode_s=decode_s if decode else None,
        decode_tokens=decode_tokens if decode else None,
        speculation=_speculation(header, steps, decode) if speculates and decode else None,
        experts=_experts(decode),
        stages=stages_of(header, steps),
        texts=_texts(prompt, texts_at_a_time) if texts_at_a_time and prompt_s > 0 else None,
    )


def _texts(passes_: Sequence[Step], at_a_time: int) -> TextFigures:
    times = [step.duration_s for step in passes_]
    p50 = quantile(times, 50)
    return TextFigures(
        texts=at_a_time * len(times),
        texts_per_s=at_a_time * len(times) / fsum(times),
        text_p50_s=p50 / at_a_time,
        pass_p50_s=p50,
        pass_p90_s=quantile(times, 90),
        pass_max_s=max(times),
    )


def _experts(decode: Sequence[Pass]) -> ExpertReads | None:
    counted = [each for each in decode if each.step.expert_bytes]
    if not counted:
        return None
    tokens = sum(each.tokens for each in counted)
    used = sum(each.step.expert_bytes or 0 for each in counted)
    missed = sum(each.step.missed_bytes or 0 for each in counted)
    return ExpertReads(
        hit_rate=max(0.0, 1 - missed / used),
        bytes_per_token=used / tokens,
        missed_bytes_per_token=missed / tokens,
        wait_s_per_token=sum(each.step.storage_wait_ns or 0 for each in counted) / 1e9 / tokens,
    )


def _speculation(
    header: Trace | None, steps: Sequence[Step], decode: Sequence[Pass]
) -> SpeculationResult:
    main = [step for step in steps if step.model == 0]
    tokens = sum(each.tokens for each in decode)
    speculated = sum(step.speculated_tokens for step in main)
    accepted = sum(step.accepted_tokens for step in main)
    accepted += header.last_accepted_tokens if header else 0
    return SpeculationResult(
        passes=len(decode),
        tokens=tokens,
        tokens_per_pass=tokens / len(decode),
        speculated_tokens=speculated,
        accepted_tokens=accepted,
        acceptance_rate=accepted / speculated if speculated else None,
        s_per_token=fsum(each.duration_s for each in decode) / tokens,
        draft_s=fsum(each.draft_s for each in decode),
    )


def token_times(header: Trace | None, steps: Sequence[Step]) -> list[float]:
    """Return the seconds of every output token but the first, in order."""
    return [
        each.duration_s / each.tokens for each in passes(header, steps) for _ in range(each.tokens)
    ]


def _token_times(samples: Sequence[float]) -> TokenTimes | None:
    if not samples:
        return None
    p50 = quantile(samples, 50)
    is_known = len(samples) >= FEWEST_TOKENS and min(samples) > 0
    median = interval_of_few([p50], [samples]) if is_known else None
    return TokenTimes(
        p50=p50,
        p90=quantile(samples, 90),
        p99=quantile(samples, 99),
        max=max(samples),
        p50_low=median.low if median else None,
        p50_high=median.high if median else None,
    )
