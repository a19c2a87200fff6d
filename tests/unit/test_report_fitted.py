"""What fit shows in a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from armload.analysis.wording.predictions import fitted, recommendation
from armload.bench.fitting import Fit
from armload.report.fitted import fit_view
from tests.unit.test_analysis_prediction import computing, gives, need, predicted


def three_models() -> Fit:
    found = {
        "like:llama-3.1-8b:Q2_K": predicted(need(), gives(), computing(1.9), may_stream=True),
        "small.gguf": predicted(need((400_000_000, 390_000_000)), gives(), computing(0.4)),
        "large.gguf": predicted(need(kv_bytes=4_000_000_000), gives(), None),
    }
    models = tuple(
        fitted(name, "dayu200", each.memory.weights_bytes if each.memory else 0, 1, each)
        for name, each in found.items()
    )
    return Fit(board="dayu200", models=models, recommendation=recommendation("dayu200", models))


def test_the_tables_show_every_model_with_verdict_times_and_memory_in_100_columns() -> None:
    console = Console(file=StringIO(), width=100)
    console.print(fit_view(three_models()))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 100
    for words in ("small.gguf", "streams", "fits", "cannot run", "67.1 MB", "Recommended: small"):
        assert words in text
