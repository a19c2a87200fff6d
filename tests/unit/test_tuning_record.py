"""A tuning's folder: read as it was written, found again, and resumed until it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import DataError, NewerFormatError, UsageError
from armload.core.progress import Silent
from armload.tuning.record import (
    TUNINGS,
    Entry,
    Quality,
    Result,
    Tuned,
    Tuning,
    begin,
    find_tuning,
    new_tuning,
    unfinished,
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


def entry(number: int, ended_s: float) -> Entry:
    return Entry(
        trial=Trial(number=number, setting=DEFAULTS, rung=0),
        outcome=Outcome(status="measured", cost=0.5, samples=(0.4, 0.5, 0.6), evidence=("a",)),
        max_rss_bytes=1 << 20,
        quality=Quality(same_text=True, kl_mean=0.001),
        ended_s=ended_s,
    )


RESULT = Result(
    winner=DEFAULTS, cost=0.5, ended="Everything is measured.", trials=2, took_s=3, sentence="No."
)


def test_a_tuning_is_read_as_it_was_written() -> None:
    made = begin(tuning())
    made.note(entry(0, 1.5))
    made.note(entry(1, 3.0))
    made.end(RESULT)
    found = find_tuning("latest")
    assert found.tuning == made.tuning
    assert found.entries == [entry(0, 1.5), entry(1, 3.0)]
    assert found.spent_s == 3.0
    assert found.result() == RESULT


def test_a_trial_whose_line_a_crash_cut_off_is_left_out() -> None:
    made = begin(tuning())
    made.note(entry(0, 1.5))
    made.note(entry(1, 3.0))
    path = made.folder / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert Tuned(made.folder, made.tuning).entries == [entry(0, 1.5)]


def test_a_tuning_is_found_by_parts_of_its_id() -> None:
    first, second = begin(tuning("kitchen")), begin(tuning("garden"))
    assert find_tuning(first.folder.name).tuning.board == "kitchen"
    assert find_tuning(f"tune-garden-{second.folder.name[-4:]}").tuning.board == "garden"
    assert find_tuning(str(first.folder)).tuning == first.tuning
    assert TUNINGS.are_meant(first.folder.name)
    assert TUNINGS.are_meant("latest-tune")
    assert not TUNINGS.are_meant("latest")
    with pytest.raises(UsageError, match="There is no tuning 'tune-attic'"):
        find_tuning("tune-attic")


def test_the_same_command_goes_on_until_its_tuning_has_ended() -> None:
    made = begin(tuning())
    begin(tuning(seed=2))
    again = unfinished(tuning(), Silent())
    assert again is not None
    assert again.folder == made.folder
    assert unfinished(tuning(texts_sha256="2" * 64), Silent()) is None, "of other texts"
    made.end(RESULT)
    assert unfinished(tuning(), Silent()) is None


@pytest.mark.parametrize("name", ["tuning.json", "journal.jsonl", "result.json"])
def test_a_file_that_was_changed_is_named(name: str) -> None:
    made = begin(tuning())
    made.note(entry(0, 1.5))
    made.end(RESULT)
    (made.folder / name).write_text('{"seed": "x"}\n')
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        find_tuning("latest").result()


def test_a_newer_format_is_refused() -> None:
    made = begin(tuning())
    (made.folder / "tuning.json").write_text('{"format": 2}')
    with pytest.raises(NewerFormatError):
        find_tuning("latest")
