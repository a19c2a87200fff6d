"""What the demonstration shows: the model's text as it comes, one figure, and what to try next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.repeats import Known, PrecisionReached, Stop, known
from armload.analysis.run import Run
from armload.core.shell import program_name
from armload.engines.llama_cpp import generated_text
from armload.engines.plan import DEFAULT_PRECISION
from armload.report import formatting as words
from armload.report import run_words
from armload.report.layout import Details, Prose, whole
from armload.report.repeats import RepeatedResult, confidence
from armload.report.result import Part

_LINE = 76


class SpokenText:
    """A prompt, and a text that continues it and grows, said line by line.

    Args:
        say: shows one line that stays.
        prompt: that the text continues.

    Attributes:
        has_ended: all of it was said.
    """

    def __init__(self, say: Callable[[str], None], prompt: str) -> None:
        self._say = say
        self._prompt = prompt
        self._said = 0
        self._is_labelled = False
        self.has_ended = False

    def __call__(self, text: str, *, is_whole: bool) -> None:
        """Say the lines of the text that are full; of a whole text, all of them."""
        if is_whole:
            self.end(generated_text(text.encode()))
        else:
            self._say_lines(self._lines(text)[:-1])

    def end(self, text: str) -> None:
        """Say the rest of the text, once."""
        self._say_lines(self._lines(text))
        self.has_ended = True

    def _say_lines(self, lines: Sequence[str]) -> None:
        for line in lines[self._said :]:
            if not self._is_labelled:
                self._is_labelled = True
                self._say(f"Prompt: {' '.join(self._prompt.split())}")
                self._say("The model continues:")
            self._say(line)
        self._said = max(self._said, len(lines))

    def _lines(self, text: str) -> list[str]:
        # A word grows until the next one begins, but never moves to another line once that is said.
        lines: list[str] = [""]
        for word in " ".join(text.split()).split(" "):
            if lines[-1] and len(lines[-1]) + 1 + len(word) > _LINE:
                lines.append("")
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
        return lines


@dataclass(frozen=True, kw_only=True)
class DemoResult(RepeatedResult):
    """A demonstration: its repeats, told to somebody who sees armload for the first time."""

    def view(self) -> Iterable[Part]:
        yield demo_view(self.runs, self.run, self.files["page"], self.stop)


def demo_view(runs: Sequence[Run], middle: Run, page: Path, stop: Stop) -> Group:
    """Lay out the time per token that all runs say together, what limits it, and what to try."""
    program = program_name()
    found, verdict = known(runs), middle.verdict
    why_imprecise = "" if isinstance(stop, PrecisionReached) else stop.fact()
    # What disturbed the runs may be why they ended, and is said once; how precisely the median is
    # known is said of all runs, not of this one.
    is_told = (bool(verdict.reasons) and verdict.reasons[0] in why_imprecise) or (
        bool(why_imprecise) and {each.name for each in verdict.findings} == {"imprecise"}
    )
    interval = ""
    if found is None:
        speed = "No run gave a valid figure."
    else:
        interval = confidence(found) or _of_one_run(found, middle)
        speed = (
            f"{run_words.model_name(middle)} takes {run_words.speed(found.median_s, None)} "
            f"on {middle.board.name}{interval}."
        )
    commands = {
        f"{program} show latest": "every figure of the last run",
        f"{program} fit --board {middle.board.name}": "which models it can run, and how fast",
        f"{program} init": "add a board of your own and run a model on it",
    }
    width = max(map(len, commands))
    after = Details(
        [
            ("page", whole(str(page))),
            *(
                ("" if number else "next", f"{command:{width}}  {what}")
                for number, (command, what) in enumerate(commands.items())
            ),
        ]
    )
    lines: list[RenderableType] = [Text(""), Prose(speed, style="bold")]
    if why_imprecise:
        lines.append(Prose(f"{_lacking(found, interval)}: {why_imprecise}", "dim"))
    if limit := run_words.limit_sentence(middle):
        lines += [Text(""), Prose(limit)]
    if not verdict.valid and not is_told:
        lines.append(Prose(f"This run is {run_words.verdict_line(middle)}"))
    return Group(*lines, Text(""), after)


def _of_one_run(found: Known, run: Run) -> str:
    """Write the interval of the only run that counts: its tokens, and what usually differs."""
    within_s = run.summary.median_within_s
    if found.runs > 1 or within_s is None:
        return ""
    low, high = words.seconds(within_s.low), words.seconds(within_s.high)
    return f", 95% CI {low} to {high} (from one run)"


def _lacking(found: Known | None, interval: str) -> str:
    if found is None:
        return "Reason"
    if found.interval_s is None:
        return "Estimated from one run" if interval else "No confidence interval"
    return f"Not known within {DEFAULT_PRECISION:.0%}"
