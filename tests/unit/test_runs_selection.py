"""Runs are chosen by board, model and date from their ids alone."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from armload.cli.run_filter import RunFilter
from armload.core.errors import UsageError
from armload.runs import store
from tests import command_line
from tests.unit.sweeps import Q4, Q8, made_run

IDS = (
    "20261101T080000Z-virtual-llama-q4_0-0001",
    "20261102T080000Z-virtual-dayu200-llama-q4_0-0002",
    "20261103T080000Z-kitchen-llama-q8_0-0003",
    "20261104T080000Z-gone-virtual-my_model-0004",
)


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "boards").mkdir()
    for name in ("kitchen", "cellar"):
        text = "extends: this-machine\nlabels: [lab]\n"
        (tmp_path / "boards" / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"board": "virtual"}, "1"),
        ({"board": "virtual-dayu200"}, "2"),
        ({"board": "virtual*"}, "12"),
        ({"board": "@lab"}, "3"),
        ({"board": "@lab,virtual"}, "13"),
        ({"model": "LLAMA"}, "123"),
        ({"model": "llama-q8_0.gguf"}, "3"),
        ({"model": "My model.gguf"}, "4"),
        ({"model": "dayu200"}, ""),
        ({"model": "llama", "board": "virtual"}, "1"),
        ({"model": "dayu200", "board": "virtual-dayu200"}, ""),
        ({"since": "2026-11-02"}, "234"),
        ({"until": "2026-11-02"}, "12"),
        ({"since": "2026-11-02T08:00", "until": "2026-11-03T08:00"}, "2"),
        ({"since": "2026-11-02T10:00+02:00", "until": "2026-11-02T11:00+02:00"}, "2"),
    ],
)
def test_a_filter_leaves_what_fits_all_of_it(options: dict[str, str], numbers: str) -> None:
    selection = RunFilter.typed(options).selection()
    assert selection is not None
    left = [each for each in IDS if selection.holds(each)]
    assert left == [each for each in IDS if each[-1] in numbers]


def test_without_a_filter_there_is_no_selection() -> None:
    assert RunFilter.typed({}).selection() is None


def test_a_date_may_be_said_by_how_long_ago_it_is() -> None:
    now = datetime.now(UTC)
    for text, ago in (("7d", timedelta(days=7)), ("12h", timedelta(hours=12))):
        since = RunFilter.typed({"since": text}).since
        assert since is not None
        assert abs(now - ago - since) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "7", "7w", "9999-12-31T25:00", "-1d"])
def test_what_is_no_date_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="--until: must be a date in UTC, such as 2026-11-20"):
        RunFilter.typed({"until": text})


@pytest.fixture
def kept(workspace: Path) -> Path:
    for board in ("kitchen", "cellar"):
        for model in (Q4, Q8):
            for number in range(4):
                each = made_run(model, 2, repeat=number, board=board)
                labels = {"labels": ("lab",)}
                each = each.model_copy(update={"board": each.board.model_copy(update=labels)})
                store.save(each, workspace / "runs" / each.id)
    return workspace


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = command_line.typed(folder, *words, cache=folder / "cache")
    assert done.returncode == 0, done.stderr
    return done


def test_show_lists_the_runs_that_fit(kept: Path) -> None:
    every = json.loads(typed(kept, "show", "--json").stdout)
    listed = json.loads(typed(kept, "show", "--board", "cellar", "-m", "q8", "--json").stdout)
    assert len(every) == 16
    assert len(listed) == 4
    assert all("-cellar-" in each and "Q8_0" in each for each in listed)
    shown = typed(kept, "show", "--board", "@lab", "--last", "3")
    assert "13 older: use --last 16" in shown.stderr
    assert "No run matches the filter." in typed(kept, "show", "--since", "2027-01-01").stderr


def test_runs_of_a_board_whose_file_was_deleted_are_still_filtered_by_its_name(kept: Path) -> None:
    (kept / "boards" / "cellar.yaml").unlink()
    for board, count in (("cellar", 8), ("kitchen,cellar", 16)):
        listed = json.loads(typed(kept, "show", "--board", board, "--json").stdout)
        assert len(listed) == count
    for nobody in ("cellar-Llama", "cell", "attic"):
        done = command_line.typed(kept, "show", "--board", nobody, cache=kept / "cache")
        assert f"There is no board named {nobody!r}." in done.stderr


def test_of_two_deleted_boards_whose_names_begin_alike_each_has_its_own_runs(
    workspace: Path,
) -> None:
    for board in ("rk", "rk-2"):
        run = made_run(Q4, 2, board=board)
        store.save(run, workspace / "runs" / run.id)
    for board in ("rk", "rk-2"):
        (listed,) = json.loads(typed(workspace, "show", "--board", board, "--json").stdout)
        assert f"-{board}-Llama-" in listed


def test_report_takes_all_that_fits_or_that_of_the_named_runs(kept: Path) -> None:
    for words in (("--board", "@lab", "--model", "Q4_0"), ("cellar:Q4_0", "--model", "Q4_0")):
        written = json.loads(typed(kept, "report", *words, "--json").stdout)
        page = Path(written["page"]).read_text()
        assert "Q4_0" in page
        assert "Q8_0" not in page


def test_a_label_stands_for_the_latest_run_on_each_of_its_boards(kept: Path) -> None:
    done = typed(kept, "compare", "kitchen:Q4_0", "@lab:Q8_0", "--board", "@lab", "--json")
    sides = [each["b"]["board"] for each in json.loads(done.stdout)]
    assert sorted(sides) == ["cellar", "kitchen"]


def test_a_comparison_of_boards_that_are_called_equal_is_one(kept: Path) -> None:
    def repeats(board: str) -> str:
        ids = json.loads(typed(kept, "show", "--board", board, "-m", "q4", "--json").stdout)
        return ",".join(ids)

    done = typed(kept, "compare", repeats("kitchen"), repeats("cellar"), "--json")
    (found,) = json.loads(done.stdout)
    assert found["finding"] != "not comparable"
    assert any("kitchen" in each["phrase"] for each in found["differences"])


def test_a_filter_that_leaves_nothing_of_a_side_is_told(kept: Path) -> None:
    words = ("compare", "kitchen:Q4_0", "cellar:Q4_0", "--board", "cellar")
    done = command_line.typed(kept, *words, cache=kept / "cache")
    assert done.returncode == 2
    assert "kitchen:Q4_0: none of its runs match the filter." in done.stderr
    both = command_line.typed(kept, "show", "latest", "--model", "q4", cache=kept / "cache")
    assert both.returncode == 2
    assert "--model cannot be combined with RUN." in both.stderr
