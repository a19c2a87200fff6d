"""A tuning's folder: read as it was written, found again, and resumed until it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import DataError
from armload.core.progress import Silent
from armload.tuning.record import (
    Quality,
    SearchResult,
    Tuning,
    TuningEntry,
    TuningFolder,
    new_tuning,
)
from armload.tuning.space import Parameter, Setting, Space
from armload.tuning.trial import Outcome, Trial
from armload.tuning.wanted import Constraints, LeastAccuracy

DEFAULTS = Setting(choices={"threads": None, "flash_attention": None})
SPACE = Space(
    parameters=(
        Parameter(name="threads", choices=(1, 2), is_ordered=True),
        Parameter(name="flash_attention", choices=("on", "off")),
    ),
    defaults=DEFAULTS,
)


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tuning(board: str = "kitchen", seed: int = 1, texts_sha256: str = "") -> Tuning:
    return new_tuning(
        board=board,
        model="m.gguf",
        model_sha256="0" * 64,
        model_reference="models/m.gguf",
        engine="llama-completion of a source",
        binary_sha256="1" * 64,
        objective="decode",
        work={"prompt_tokens": 128},
        constraints=Constraints(
            min_accuracy=LeastAccuracy(share=0.5, task="gsm8k", questions=100), max_kld=0.05
        ),
        space=SPACE,
        seed=seed,
        texts_sha256=texts_sha256,
    )


def entry(number: int, ended_s: float) -> TuningEntry:
    return TuningEntry(
        trial=Trial(number=number, setting=DEFAULTS, rung=0),
        outcome=Outcome(status="measured", cost=0.5, samples=(0.4, 0.5, 0.6), evidence=("a",)),
        max_rss_bytes=1 << 20,
        quality=Quality(same_text=True, kl_mean=0.001),
        ended_s=ended_s,
    )


RESULT = SearchResult(
    winner=DEFAULTS, cost=0.5, ended="Everything is measured.", trials=2, took_s=3, sentence="No."
)


def test_a_tuning_is_read_as_it_was_written() -> None:
    made = TuningFolder.begin(tuning())
    made.append(entry(0, 1.5))
    made.append(entry(1, 3.0))
    made.end(RESULT)
    found = TuningFolder.find("latest")
    assert found.tuning == made.tuning
    assert found.entries == [entry(0, 1.5), entry(1, 3.0)]
    assert found.spent_s == 3.0
    assert found.result() == RESULT


def test_the_same_command_goes_on_until_its_tuning_has_ended() -> None:
    made = TuningFolder.begin(tuning())
    TuningFolder.begin(tuning(seed=2))
    again = TuningFolder.resume(tuning(), Silent())
    assert again is not None
    assert again.folder == made.folder
    assert TuningFolder.resume(tuning(texts_sha256="2" * 64), Silent()) is None, "of other texts"
    made.end(RESULT)
    assert TuningFolder.resume(tuning(), Silent()) is None


def test_a_result_that_was_changed_is_named() -> None:
    made = TuningFolder.begin(tuning())
    (made.folder / "result.json").write_text('{"seed": "x"}\n')
    with pytest.raises(DataError, match=r"result\.json: this is not a valid record of a tuning"):
        made.result()


def test_what_is_learnt_of_a_setting_joins_its_last_trial() -> None:
    made = TuningFolder.begin(tuning())
    made.append(entry(0, 1.5), entry(1, 3.0))
    made.learn(DEFAULTS, Quality(accuracy=0.75))
    first, last = TuningFolder.find("latest").entries
    assert first == entry(0, 1.5)
    assert last.quality == entry(1, 3.0).quality.model_copy(update={"accuracy": 0.75})
