"""A board keeps a bounded number of filled contexts, and ``board.clean`` knows them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.deploy.clean import Selection, contents, removable
from armload.deploy.layout import Layout
from armload.deploy.space import FreeSpace
from armload.runs.depth import MOST_CONTEXTS, make_room

HOST = LocalHost("b")
CONTEXT_BYTES = 40 * 1024
AMPLE = FreeSpace(free_bytes=1 << 40, advice="")


def fill(workdir: Path, count: int) -> Layout:
    layout = Layout(workdir=PurePosixPath(workdir))
    for number in range(count):
        place = Path(layout.saved_context("ab" * 32, f"{number:04x}"))
        (place.parent / ".armload").mkdir(parents=True)
        place.write_bytes(b"x" * CONTEXT_BYTES)
        (place.parent / ".armload" / "used").write_text(f"{1000 + number}\n")
    return layout


def names(layout: Layout) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in Path(layout.contexts).iterdir())


def test_the_context_that_was_unused_for_longest_goes_for_a_new_one(tmp_path: Path) -> None:
    layout = fill(tmp_path, MOST_CONTEXTS)
    used = Path(layout.contexts) / f"{'ab' * 6}-0000" / ".armload" / "used"
    used.write_text("9999\n")
    make_room(HOST, layout, AMPLE, 1, Silent())
    left = names(layout)
    assert len(left) == MOST_CONTEXTS - 1
    assert "0000" in left
    assert "0001" not in left
    make_room(HOST, layout, AMPLE, 1, Silent())
    assert names(layout) == left


def test_no_more_go_than_a_new_one_needs_room(tmp_path: Path) -> None:
    layout = fill(tmp_path, 4)
    missing = AMPLE.model_copy(update={"free_bytes": 0}).missing_bytes(1)
    short = FreeSpace(free_bytes=missing - CONTEXT_BYTES, advice="Use less.")
    make_room(HOST, layout, short, 1, Silent()).need(HOST, "it", layout.workdir, 1)
    assert names(layout) == ["0001", "0002", "0003"]
    hopeless = FreeSpace(free_bytes=0, advice="Use less.")
    with pytest.raises(BoardError):
        make_room(HOST, layout, hopeless, 1 << 30, Silent()).need(HOST, "it", layout.workdir, 1)
    assert len(names(layout)) == 3


def test_a_folder_that_is_no_context_stays(tmp_path: Path) -> None:
    layout = fill(tmp_path, MOST_CONTEXTS)
    (Path(layout.contexts) / "my notes").mkdir()
    make_room(HOST, layout, AMPLE, 1, Silent())
    assert (Path(layout.contexts) / "my notes").is_dir()


def test_a_board_without_contexts_has_none_to_remove(tmp_path: Path) -> None:
    layout = Layout(workdir=PurePosixPath(tmp_path / "new"))
    assert make_room(HOST, layout, AMPLE, 1, Silent()) == AMPLE


def test_contexts_are_listed_and_go_when_unused(tmp_path: Path) -> None:
    layout = fill(tmp_path, 2)
    found = contents(HOST, layout.workdir)
    assert [(each.kind, each.state) for each in found] == [("context", "unused")] * 2
    assert all((each.size_bytes or 0) >= CONTEXT_BYTES for each in found)
    assert len(removable(found, Selection())) == 2
