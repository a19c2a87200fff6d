"""What may go from a board, and what never does."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.core.errors import TransferError
from armload.deploy.clean import DAY_S, Selection, contents, parse_contents, removable

NOW_S = 1_800_000_000
LINES = f"""#entry collected - runs/20261121T-a b
24\truns/20261121T-a b
#entry uncollected - runs/20261121T-c
12\truns/20261121T-c
#entry running - runs/20261121T-d
#entry unstarted - runs/20261121T-e
#entry running {NOW_S - 90 * DAY_S} bin/0a1b
8000\tbin/0a1b
#entry unused {NOW_S - 31 * DAY_S} bin/2c3d
#entry unused {NOW_S - 2 * DAY_S} models/4e5f
3000000\tmodels/4e5f
#entry unused {NOW_S + DAY_S} models/6a7b
""".splitlines()


def names(selection: Selection) -> list[str]:
    entries = parse_contents(LINES, now_s=NOW_S, board_name="b")
    return [entry.name.name for entry in removable(entries, selection)]


def test_sizes_and_ages_are_read() -> None:
    entries = parse_contents(LINES, now_s=NOW_S, board_name="b")
    assert [entry.size_bytes for entry in entries[:5]] == [24_576, 12_288, None, None, 8_192_000]
    assert [entry.used_days for entry in entries] == [None, None, None, None, 90, 31, 2, 0]


def test_runs_at_home_and_what_is_long_unused_go_by_default() -> None:
    assert names(Selection()) == ["20261121T-a b", "20261121T-e", "2c3d"]


def test_more_goes_when_it_is_asked_for_but_nothing_that_runs() -> None:
    assert names(Selection(uncollected=True)) == [
        "20261121T-a b",
        "20261121T-c",
        "20261121T-e",
        "2c3d",
    ]
    assert names(Selection(unused_days=1)) == ["20261121T-a b", "20261121T-e", "2c3d", "4e5f"]
    everything = names(Selection(uncollected=True, unused_days=0))
    assert everything == ["20261121T-a b", "20261121T-c", "20261121T-e", "2c3d", "4e5f", "6a7b"]


@pytest.mark.parametrize(
    "line",
    [
        "#entry collected - runs/../..",
        "#entry collected - /etc",
        "#entry collected - runs/",
        "#entry collected - runs/a/b",
        "#entry asleep - runs/x",
        "#entry unused 1 tmp/x",
        "#entry unused soon bin/x",
        "#entry",
    ],
)
def test_a_list_that_makes_no_sense_removes_nothing(line: str) -> None:
    with pytest.raises(TransferError, match="cannot parse"):
        parse_contents([LINES[0], line], now_s=NOW_S, board_name="b")


def test_a_run_that_never_began_is_not_called_collected(tmp_path: Path) -> None:
    for name, files in {"r-a": ["run.sh"], "r-b": ["run.sh", "collected"], "r-c": ["7.sh"]}.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        for file in files:
            (tmp_path / "runs" / name / file).touch()
    found = contents(LocalHost("b"), PurePosixPath(tmp_path))
    assert [entry.state for entry in found] == ["uncollected", "collected", "unstarted"]
