"""What a board sends stays in the folder that it is for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from armload.core.errors import TransferError
from armload.core.progress import Silent
from armload.deploy.board_runs import parse_runs
from armload.deploy.collect import Arrived, Receiver
from armload.deploy.holder import RunMark, this_process

RUNS = PurePosixPath("/data/armload/runs")
OUTSIDE = ["../escaped", "/etc/escaped", "a/b", "..", ".", "a/", "", "a\0b"]


def sent(name: str, content: bytes = b"content") -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return (
        f"{len(content)} {name}\n#bytes\n".encode()
        + content
        + f"#sums\n{digest}  {name}\n#end\n".encode()
    )


def received(
    folder: Path, output: bytes, *, piece: int = 1 << 20, parts: Mapping[str, int] | None = None
) -> Arrived:
    with Silent().step("") as step:
        receiver = Receiver(folder, parts or {}, "my-board", step)
        for start in range(0, len(output), piece):
            receiver.take(output[start : start + piece])
        return receiver.done()


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_files_are_taken_over_with_their_checksums(tmp_path: Path, piece: int) -> None:
    arrived = received(tmp_path, sent("trace.jsonl"), piece=piece)
    assert (tmp_path / ".trace.jsonl.part").read_bytes() == b"content"
    assert arrived.sizes == {"trace.jsonl": 7}
    assert arrived.sums == {"trace.jsonl": hashlib.sha256(b"content").hexdigest()}


def test_what_had_arrived_before_a_break_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / ".stdout.part").write_bytes(b"con")
    output = b"7 stdout\n#bytes\ntent#sums\n#end\n"
    assert received(tmp_path, output, parts={"stdout": 3}).sizes == {"stdout": 7}
    assert (tmp_path / ".stdout.part").read_bytes() == b"content"


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_outside_of_the_runs_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TransferError) as caught:
        received(tmp_path / "home", sent(name))
    assert "armload pull --board my-board" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "output", [b"", b"rubbish\n", b"-5 name\n#bytes\n", b"9 name\n#bytes\nshort", b"\xff\n#bytes\n"]
)
def test_what_makes_no_sense_is_a_failed_transfer(tmp_path: Path, output: bytes) -> None:
    with pytest.raises(TransferError, match="the fetched run"):
        received(tmp_path, output)


def test_runs_are_listed() -> None:
    mark = RunMark(fingerprint="ab", holder=this_process())
    lines = [
        "ended 143 - - one",
        f"running - - {mark.word} two words",
        "interrupted restart - - three",
        "ended - collected - four",
        "stopped 143 - - five",
    ]
    found = parse_runs(lines, RUNS, "b")
    assert [(run.id, run.state, run.status, run.cut) for run in found] == [
        ("one", "ended", 143, None),
        ("two words", "running", None, None),
        ("three", "interrupted", None, "restart"),
        ("four", "ended", None, None),
        ("five", "ended", 143, None),
    ]
    assert [run.stopped for run in found] == [False, False, False, False, True]
    assert [run.collected for run in found] == [False, False, False, True, False]
    assert [run.mark for run in found] == [None, mark, None, None, None]
    assert found[1].folder == RUNS / "two words"


@pytest.mark.parametrize(
    "line",
    [
        *(f"ended 0 - - {name}" for name in OUTSIDE),
        "ended",
        "asleep - - - one",
        "ended one - - two",
        "interrupted asleep - - one",
    ],
)
def test_a_list_that_makes_no_sense_is_a_failed_transfer(line: str) -> None:
    with pytest.raises(TransferError, match="cannot parse"):
        parse_runs([line], RUNS, "b")
