"""References on the command line are resolved to the folders of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.bench.run_names import folders_of
from armload.bench.sweep import SweepEntry, SweepFolder
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.runs import store
from tests.unit.runs import quick_run
from tests.unit.samples import plan_cells, sweep_of


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "boards").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("20260101T000000Z-kitchen-a-0001", "20260102T000000Z-kitchen-b-0002"):
        run = quick_run()
        board = run.board.model_copy(update={"name": "kitchen"})
        store.save(run.model_copy(update={"id": name, "board": board}), tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_each_word_is_a_run_and_several_stand_with_commas(runs: Path) -> None:
    one, other = sorted(runs.iterdir())
    assert folders_of("latest") == [other]
    assert folders_of("0002,0001") == [other, one]
    assert folders_of(" 0001 , 0002 ") == [one, other]
    assert folders_of(str(one)) == [one]
    assert folders_of(str(one / "run.json")) == [one]


def test_a_board_without_a_run_is_left_out_of_several_and_named(runs: Path) -> None:
    for name in ("kitchen", "cellar"):
        file = runs.parent / "boards" / f"{name}.yaml"
        file.write_text("extends: virtual\nlabels: [lab]\n")
    told = Told()
    assert folders_of("@lab:a", progress=told) == [min(runs.iterdir())]
    assert told.said == ["Left out, because they have no run of a: cellar."]
    with pytest.raises(UsageError, match="'nothing' on board"):
        folders_of("@lab:nothing")


def test_a_cell_of_a_sweep_is_named_by_its_number(runs: Path) -> None:
    one, other = sorted(runs.iterdir())
    journal = SweepFolder.begin(sweep_of(*plan_cells(Plan(threads=1), Plan(threads=2))))
    journal.append(SweepEntry(cell=0, round=0, run=one.name))
    journal.append(SweepEntry(cell=1, round=0, run=other.name))
    for name in ("latest-sweep", journal.sweep.id, str(journal.folder)):
        assert folders_of(name) == [one, other]
        assert folders_of(f"{name}/1") == [one]
        assert folders_of(f"{name}/2,{name}/1") == [other, one]
    with pytest.raises(UsageError, match="latest-sweep/3: the sweep has 2 cells") as caught:
        folders_of("latest-sweep/3")
    assert caught.value.remedy == "Name one of them: latest-sweep/1 or latest-sweep/2."


def test_a_folder_whose_name_holds_a_comma_is_one_run(runs: Path) -> None:
    folder = runs / "a,b"
    store.save(quick_run(), folder)
    assert folders_of(str(folder)) == [folder]


def test_so_many_names_that_no_file_could_be_called_so_are_read(runs: Path) -> None:
    one = min(runs.iterdir())
    assert folders_of(",".join([one.name] * 200)) == [one] * 200


@pytest.mark.parametrize("words", ["", "0001,,0002", "0001,"])
def test_a_missing_name_is_named(runs: Path, words: str) -> None:
    with pytest.raises(UsageError, match="of this list is empty"):
        folders_of(words)


def test_a_run_that_is_not_there_is_named(runs: Path) -> None:
    with pytest.raises(UsageError, match="'0003'"):
        folders_of("0001,0003")
