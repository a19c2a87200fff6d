"""Runs are found by what people call them, among thousands, and trouble with one is told."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from armload.analysis.run import FORMAT, Run
from armload.bench.run_names import read_side
from armload.core.errors import DataError, UsageError
from armload.deploy.exit_reason import Exit
from armload.runs import store
from armload.runs.folders import run_folders
from armload.runs.store import is_here
from tests.unit.runs import quick_run

MANY = 2000

_opened: list[str] | None = None


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open" and str(arguments[0]).endswith("run.json"):
        _opened.append(str(arguments[0]))


sys.addaudithook(_note)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Collect every run.json that is opened, by whatever way."""
    global _opened  # noqa: PLW0603 - an audit hook cannot be removed again
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "boards").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def kept(here: Path, number: int, *, board: str = "kitchen", model: str = "llama-q4_0") -> Run:
    run = quick_run(tokens=4)
    run = run.model_copy(
        update={
            "id": f"20260101T{number:06}Z-{board}-{model}-{number:04x}",
            "board": run.board.model_copy(update={"name": board}),
        }
    )
    store.save(run, here / run.id)
    return run


@pytest.fixture
def many(here: Path) -> Path:
    text = (here / kept(here, 0).id / "run.json").read_bytes()
    for number in range(1, MANY):
        folder = here / f"20260101T{number:06}Z-kitchen-llama-q4_0-{number:04x}"
        folder.mkdir()
        (folder / "run.json").write_bytes(text)
    return here


@pytest.mark.parametrize("reference", ["latest", "kitchen:llama", "07cf", "20260101T000007Z"])
def test_one_run_among_thousands_is_read_without_opening_the_others(
    many: Path, opened: list[str], reference: str
) -> None:
    store.load(store.find(reference))
    assert 1 <= len(opened) <= 2


def test_both_sides_of_a_comparison_open_their_own_files_only(
    many: Path, opened: list[str]
) -> None:
    read_side("07cf,07ce")
    assert len(opened) == 2


def test_a_name_that_nothing_fits_opens_nothing(many: Path, opened: list[str]) -> None:
    with pytest.raises(UsageError, match="There is no run named 'kitchn'") as caught:
        store.find("kitchn")
    assert "kitchen-llama" in caught.value.remedy
    assert opened == []


def test_a_name_too_long_for_a_file_is_none_of_a_run(here: Path) -> None:
    kept(here, 1)
    for read in (store.find, read_side):
        with pytest.raises(UsageError, match="There is no run named 'aaa"):
            read("a" * 5000)


def test_a_board_and_a_model_name_the_latest_of_both(here: Path) -> None:
    kept(here, 1, model="qwen-q8_0")
    wanted = kept(here, 2, model="llama-q4_0")
    kept(here, 3, model="qwen-q8_0")
    kept(here, 4, board="cellar", model="llama-q4_0")
    for model in ("llama-q4_0", "llama-q4_0.gguf", "Llama", "q4_0"):
        assert store.find(f"kitchen:{model}").name == wanted.id


def test_an_interrupted_run_is_meant_by_its_id_alone(here: Path) -> None:
    finished, cut = kept(here, 1), kept(here, 2)
    stopped = Exit(kind="stopped", status=130, meaning="stopped on request")
    store.save(cut.model_copy(update={"exit": stopped}), here / cut.id)
    for reference in ("latest", "latest:llama", "kitchen:llama-q4_0", "kitchen:llama"):
        assert store.find(reference).name == finished.id
    assert store.find(cut.id[-4:]).name == cut.id
    # A failure is a result, too.
    crashed = Exit(kind="crash", status=139, meaning="the program crashed (SIGSEGV)")
    store.save(finished.model_copy(update={"exit": crashed}), here / finished.id)
    assert store.find("latest").name == finished.id
    shutil.rmtree(here / finished.id)
    for reference in ("latest", "kitchen:llama"):
        with pytest.raises(UsageError, match=rf"{reference}: no run has finished; .*{cut.id}"):
            store.find(reference)


def test_of_two_runs_of_one_second_the_last_to_be_kept_is_the_latest(here: Path) -> None:
    first = kept(here, 1, board="kitchen")
    last = kept(here, 1, board="cellar")
    for run, kept_s in ((first, 2_000_000_001), (last, 2_000_000_002)):
        os.utime(here / run.id / "run.json", (kept_s, kept_s))
    assert [folder.name for folder in run_folders()] == [first.id, last.id]
    assert store.find("latest").name == last.id


def test_an_exact_model_goes_before_a_newer_one_that_holds_its_name(here: Path) -> None:
    wanted = kept(here, 1, model="llama")
    kept(here, 2, model="llama-instruct")
    assert store.find("kitchen:llama").name == wanted.id


@pytest.mark.parametrize("shipped", ["virtual", "mine"])
def test_a_board_is_not_taken_for_one_whose_name_begins_alike(here: Path, shipped: str) -> None:
    wanted = kept(here, 1, board=shipped, model="llama")
    kept(here, 2, board=f"{shipped}-dayu200", model="llama")
    assert store.find(f"{shipped}:lla").name == wanted.id
    assert store.find(f"{shipped}-dayu200:lla").name != wanted.id


def test_runs_of_another_known_board_are_not_opened(here: Path, opened: list[str]) -> None:
    wanted = kept(here, 1, board="virtual", model="llama")
    for number in range(2, 12):
        kept(here, number, board="virtual-dayu200", model="llama")
    assert store.find("virtual:lla").name == wanted.id
    assert len(opened) == 1


def test_a_board_without_such_a_run_is_told_what_there_is(here: Path) -> None:
    kept(here, 1)
    with pytest.raises(UsageError, match="'qwen' on board 'kitchen'") as caught:
        store.find("kitchen:qwen")
    assert "kitchen-llama" in caught.value.remedy


def test_an_ambiguous_id_says_how_many_runs_it_does_not_list(here: Path) -> None:
    names = [kept(here, number).id for number in range(1, 7)]
    with pytest.raises(UsageError) as caught:
        store.find("20260101T")
    assert caught.value.message == (f"6 runs fit '20260101T': {', '.join(names[2:])} and 2 more.")
    for name in names[2:]:
        shutil.rmtree(here / name)
    with pytest.raises(UsageError) as caught:
        store.find("20260101T")
    assert caught.value.message == f"2 runs fit '20260101T': {names[0]}, {names[1]}."


def test_several_runs_with_commas_are_one_side(here: Path) -> None:
    names = [kept(here, number).id for number in (1, 2, 3)]
    assert [each.name for each in read_side(",".join(names))] == names
    assert [each.name for each in read_side(str(here / names[0]))] == names[:1]
    assert [each.name for each in read_side(str(here / names[0] / "run.json"))] == names[:1]


def test_a_comma_too_many_is_named(here: Path) -> None:
    name = kept(here, 1).id
    with pytest.raises(UsageError, match="of this list is empty"):
        read_side(f"{name},,")


def newer(content: dict[str, object]) -> str:
    return json.dumps(content | {"format": FORMAT + 1})


def half(content: dict[str, object]) -> str:
    return json.dumps(content)[:500]


def without_summary(content: dict[str, object]) -> str:
    return json.dumps({key: value for key, value in content.items() if key != "summary"})


def with_odd_key(content: dict[str, object]) -> str:
    return json.dumps(content | {"speed": 5})


def a_list(content: dict[str, object]) -> str:
    return json.dumps([content])


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (newer, f"format {FORMAT + 1}"),
        (half, "not a JSON document"),
        (without_summary, "summary: this key is missing."),
        (with_odd_key, "speed: there is no such key."),
        (a_list, "not a run"),
        (lambda _: "", "not a JSON document"),
    ],
)
def test_an_unreadable_run_is_named_with_what_to_do_and_left_as_it_is(
    here: Path, edit: Callable[[dict[str, object]], str], said: str
) -> None:
    path = here / kept(here, 1).id / "run.json"
    text = edit(json.loads(path.read_text()))
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_side("latest")
    assert said in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.remedy
    assert path.read_text() == text


def test_a_run_that_an_older_armload_kept_is_still_read(here: Path) -> None:
    run = kept(here, 1)
    path = here / run.id / "run.json"
    content = json.loads(path.read_text())
    del content["reference"]
    for name in ("prefill_s", "prefill_tokens", "decode_s", "decode_tokens"):
        del content["summary"][name]
    for name in ("p50_low", "p50_high"):
        del content["summary"]["token_s"][name]
    path.write_text(json.dumps(content))
    assert store.load(path.parent).summary.decode_s is None
    assert read_side("latest")[0].decode_tps == run.summary.decode_tps


def test_a_run_that_a_newer_armload_kept_is_not_fetched_over_it(here: Path) -> None:
    path = here / kept(here, 1).id / "run.json"
    path.write_text(newer(json.loads(path.read_text())))
    assert is_here(path.parent.name)
    path.write_text("{")
    assert not is_here(path.parent.name)
