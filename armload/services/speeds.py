"""Whether a new version of a service answers slower than the one before."""

from __future__ import annotations

from statistics import median

from armload.analysis.comparison import ComparedFigure
from armload.analysis.ratios import as_long
from armload.analysis.statistics import Ratio, ratio_of_runs, surely_above
from armload.core.errors import SlowerError
from armload.core.values import Value, three_figures
from armload.services.version import AnsweredSpeeds


class SpeedChange(Value):
    """How fast one model answers, in the new version against the old one.

    Attributes:
        model: its alias.
        old_tps, new_tps: tokens per second, medians of equal requests.
        ratio: of the times per token: above 1, the new version is slower.
    """

    model: str
    old_tps: float
    new_tps: float
    ratio: Ratio

    @property
    def sentence(self) -> str:
        return (
            f"{self.model}: {three_figures(self.new_tps)} tokens/s against "
            f"{three_figures(self.old_tps)} of the old version, {as_long(self.ratio)} "
            "per token."
        )


def compared(
    former: AnsweredSpeeds | None, speeds: AnsweredSpeeds, slower: float, board: str
) -> tuple[SpeedChange, ...]:
    """Compare a new version's speed with the old one's record.

    Args:
        former: of the old version; none where it was never measured.
        slower: more time per token, as a share, that is allowed.
        board: its name.

    Raises:
        SlowerError: it is certainly slower by more than what is allowed.
    """
    old_times = {each.model: each.token_s for each in former.models} if former else {}
    pairs = [
        (each, old_times.get(each.model) or _only(former, speeds))
        for each in speeds.models
        if each.token_s
    ]
    found = []
    figures = []
    for new, old in pairs:
        if not old:
            continue
        ratio = ratio_of_runs(old, new.token_s)
        figures.append(
            ComparedFigure(
                key="token_s",
                heading="time per token",
                unit="s/token",
                a=median(old),
                b=median(new.token_s),
                a_runs=len(old),
                b_runs=len(new.token_s),
                ratio=ratio,
                finding=ratio.finding,
            )
        )
        found.append(
            SpeedChange(
                model=new.model,
                old_tps=1 / median(old),
                new_tps=1 / median(new.token_s),
                ratio=ratio,
            )
        )
    slow = surely_above(1 + slower, [each.low_at for each in figures])
    if slow:
        said = " ".join(found[each].sentence for each in slow)
        raise SlowerError(
            f"{board}: the new version is slower than --slower "
            f"{slower:.0%} allows. {said} The old version stays.",
            "Accept it with a larger --slower, or change fewer settings at a time.",
        )
    return tuple(found)


def _only(former: AnsweredSpeeds | None, new: AnsweredSpeeds) -> tuple[float, ...]:
    """Return the times of the only model that there was, in place of which another one comes."""
    if former is None or len(former.models) != 1 or len(new.models) != 1:
        return ()
    return former.models[0].token_s
