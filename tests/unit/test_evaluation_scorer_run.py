"""A run of the scorer as it is followed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.boards.local import LocalHost
from armload.build.programs import SCORER
from armload.deploy.follow import ProgressUpdate, follow
from armload.engines.answers import Answer
from armload.engines.scorer import ScoringPlan
from armload.evaluation.scorer_run import TimedScoring
from tests.unit.evaluations import answer
from tests.unit.samples import binary, model
from tests.unit.test_engines_scorer import PROGRAM


def test_every_answer_counts_in_the_accuracy_so_far_however_long_it_is(tmp_path: Path) -> None:
    noted: list[str] = []

    def note(answers: Sequence[Answer]) -> str:
        noted.extend(each.id for each in answers)
        return f"{len(noted)} noted"

    (tmp_path / SCORER).write_bytes(PROGRAM)
    asking = TimedScoring(
        ScoringPlan(items_sha256="0" * 64, items_count=3, context_tokens=64),
        binary(tmp_path / SCORER),
        model(),
        tmp_path / "items.jsonl",
        evaluation="e",
        note=note,
        max_time_s=None,
        keeps_forecast=True,
    )
    long = [answer(str(number), "long " * 40_000) for number in range(3)]
    run = tmp_path / "run"
    run.mkdir()
    (run / "boot_id").write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
    (run / "stdout").write_text("".join(f"{each.model_dump_json()}\n" for each in long))
    (run / "exit").write_text("0\n")
    said: list[str] = []

    def grown(now: ProgressUpdate) -> None:
        said.append(asking.note(now))

    assert follow(LocalHost("here"), PurePosixPath(run), grown) == 0
    assert noted == ["0", "1", "2"]
    assert said[-1] == "3 noted"
