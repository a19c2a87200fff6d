"""Boards are named by name, label or pattern; what makes no sense is told with what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.boards.adding import check_new
from armload.boards.board import is_group, load_board
from armload.boards.naming import board_called, boards_called
from armload.cli.verbs.watch import WatchOptions
from armload.core.errors import DataError, UsageError

LABELS = {
    "rk-one": "[rk3568, kitchen]",
    "rk-two": "[rk3568]",
    "pi": "[kitchen]",
    "bare": "[]",
}


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "boards").mkdir()
    for name, labels in LABELS.items():
        text = f"extends: this-machine\nlabels: {labels}\n"
        (tmp_path / "boards" / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "boards"),
    [
        ("pi", "pi"),
        ("rk-two,pi", "rk-two pi"),
        (" pi , bare ,", "pi bare"),
        ("@rk3568", "rk-one rk-two"),
        ("@kitchen", "pi rk-one"),
        ("@rk3568,@kitchen", "rk-one rk-two pi"),
        ("rk*", "rk-one rk-two"),
        ("rk-???", "rk-one rk-two"),
        ("[bp]*", "bare pi"),
        ("rk*,rk-two", "rk-one rk-two"),
        ("PI", "pi"),
        ("Rk-Two,PI,pi", "rk-two pi"),
        ("@RK3568", "rk-one rk-two"),
        ("RK-*", "rk-one rk-two"),
        ("DAYU200,Virtual", "dayu200 virtual"),
    ],
)
def test_words_mean_boards_each_once_in_their_order(words: str, boards: str) -> None:
    assert boards_called(words.split(",")) == tuple(boards.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("@rk3586", "@rk3586: no board has this label.\nDid you mean 'rk3568'?"),
        ("@", "@: no board has this label."),
        ("rx*", "rx*: no board matches.\nBoards: bare, "),
        ("pi,bare,pi", "--board: pi is listed twice."),
        ("@kitchen,@kitchen", "--board: @kitchen is listed twice."),
        (" , ", "--board: no board is named."),
        ("pie", "There is no board named 'pie'.\nDid you mean 'pi'?"),
    ],
)
def test_what_means_no_board_or_one_twice_is_refused(words: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        boards_called(words.split(","))
    assert said in str(error.value)


def test_without_labels_it_is_said_where_they_are_written(lab: Path) -> None:
    for path in (lab / "boards").iterdir():
        path.write_text("extends: this-machine\n")
    with pytest.raises(UsageError, match=r"No board has labels yet\. Add it under 'labels'"):
        boards_called(["@rk"])


def test_a_verb_of_one_board_takes_what_means_one() -> None:
    assert board_called("p*") == "pi"
    with pytest.raises(UsageError, match=r"@rk3568 matches 2 boards: rk-one, rk-two\. This"):
        board_called("@rk3568")
    assert WatchOptions.typed({"board": "b*e"}).board == "bare"
    assert WatchOptions.typed({"board": "nowhere"}).board == "nowhere"


@pytest.mark.parametrize("label", ["two words", "@rk", "", "a,b", "x*"])
def test_a_label_is_one_word_of_letters(label: str, lab: Path) -> None:
    (lab / "boards" / "bad.yaml").write_text(f"extends: this-machine\nlabels: ['{label}']\n")
    with pytest.raises(DataError, match=r"bad.yaml, line 2: labels"):
        boards_called(["bad"])


def test_a_name_in_another_case_is_the_boards_own_wherever_one_is_named(lab: Path) -> None:
    assert WatchOptions.typed({"board": "Rk-One"}).board == "rk-one"
    board = load_board("RK-ONE")
    assert (board.name, is_group("RK-ONE")) == ("rk-one", False)
    (lab / "boards" / "capital.yaml").write_text("extends: this-machine\ntarget: RK3568\n")
    assert load_board("capital").target == "rk3568"


def test_of_names_that_differ_in_case_alone_the_one_as_written_counts(lab: Path) -> None:
    (lab / "boards" / "Pi.yaml").write_text("extends: this-machine\n")
    if not (lab / "boards" / "PI.yaml").exists():  # the file system tells them apart
        assert boards_called(["Pi", "pi"]) == ("Pi", "pi")
        with pytest.raises(UsageError, match="'PI' may be Pi or pi"):
            boards_called(["PI"])


def test_a_new_board_has_a_name_of_its_own_in_any_case(lab: Path) -> None:
    with pytest.raises(UsageError, match="already a board named 'pi'"):
        check_new("PI")
