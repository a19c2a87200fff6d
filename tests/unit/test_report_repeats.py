"""What is said of repeats together, below the run in the middle."""

from __future__ import annotations

import io

from rich.console import Console

from armload.analysis.emulation import EmulatorDelayed
from armload.analysis.repeats import DisturbedInARow
from armload.analysis.verdict import Verdict
from armload.report.repeats import together
from tests.unit.runs import quick_run


def test_the_reason_that_the_verdict_gives_is_not_repeated() -> None:
    spoilt = Verdict.of([EmulatorDelayed(cpu_share=0.05, cores=2, load=40.12, board_cores=2)])
    (reason,) = spoilt.reasons
    runs = [quick_run().model_copy(update={"verdict": spoilt})] * 3
    for told, expected in ((reason, "See the verdict."), ("Too hot.", "Too hot.")):
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(together(runs, DisturbedInARow(runs=3, reason=told)))
        text = " ".join(console.export_text().split())
        assert f"stopped 3 runs in a row were disturbed. {expected}" in text
        assert reason not in text
