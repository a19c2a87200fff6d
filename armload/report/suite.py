"""The scores of a suite as a table: one row for each model on a board by one method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.analysis.run import Run
from armload.bench.suite import Suite, SuiteScore, score_of
from armload.core.columns import Column
from armload.core.values import counted, three_figures
from armload.engines.plan import WITHOUT_EFFECT
from armload.report.layout import Table
from armload.report.settings import stem

SCORE_SENTENCE = (
    "The score is the geometric mean, over all tests, of output tokens per second of prefill and "
    "decode together, without loading the model. Beside it are the means of its parts. A suite "
    "with a missing or invalid test has no score and comes last."
)


@dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """What a suite gave with one model on one board by one method."""

    runs: tuple[Run, ...]
    score: SuiteScore

    @property
    def threads(self) -> int | None:
        """How many decoded; none if no trace says so."""
        return next((run.trace.threads for run in self.runs if run.trace), None)


def suite_rows(runs: Sequence[Run], suite: Suite) -> list[SuiteRow]:
    """Return what runs gave together in a suite, the best score first, incomplete suites last.

    Runs belong together that differ in nothing but the prompt and the length of the output.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.plan is None or suite.counted_test_of(run.plan) is None:
            continue
        tested = {"prompt", "prompt_tokens", "n_predict"}
        key = "\0".join(
            (
                *(run.board.name, run.model.sha256, run.binary.sha256, run.binary.build_id),
                run.plan.model_dump_json(exclude={*tested, *WITHOUT_EFFECT}),
            )
        )
        groups.setdefault(key, []).append(run)
    rows = [SuiteRow(runs=tuple(each), score=score_of(suite, each)) for each in groups.values()]
    return sorted(rows, key=lambda row: (-(row.score.tokens_per_s or 0.0), row.runs[0].id))


def suite_table(rows: Sequence[SuiteRow]) -> Table | None:
    """Lay out the scores; none without a row."""
    return Table.of(_COLUMNS, rows) if rows else None


def suite_headline(suite: Suite, rows: Sequence[SuiteRow]) -> str:
    """Say the best score in one sentence."""
    best = rows[0]
    name, board = stem(best.runs[0].model.name), best.runs[0].board.name
    if best.score.tokens_per_s is None:
        count = counted(len(best.score.missing), "test")
        return f"Suite {suite.name}: no score, {count} missing or not valid"
    score = f"Suite {suite.name}: {three_figures(best.score.tokens_per_s)} tokens/s"
    if len(rows) == 1:
        return f"{score}, {name} on {board}"
    return f"{score} at best, {name} on {board} with {counted(best.threads or 0, 'thread')}"


_COLUMNS: tuple[Column[SuiteRow], ...] = (
    Column(heading="board", of=lambda row: row.runs[0].board.name),
    Column(heading="model", of=lambda row: stem(row.runs[0].model.name)),
    Column(heading="threads", of=lambda row: row.threads, is_number=True),
    Column(
        heading="score",
        unit="tokens/s",
        of=lambda row: row.score.tokens_per_s,
        write=three_figures,
    ),
    Column(heading="prefill", unit="s", of=lambda row: row.score.prefill_s, write=three_figures),
    Column(
        heading="decode",
        unit="tokens/s",
        of=lambda row: row.score.decode_tps,
        write=three_figures,
    ),
    Column(
        heading="missing or not valid",
        of=lambda row: ", ".join(row.score.missing) or "none",
        is_prose=True,
    ),
)
