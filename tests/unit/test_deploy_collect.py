"""What a board sends stays in the folder that it is for."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

import pytest

from armload.core.errors import TransferError
from armload.deploy.collect import parse_runs, unpacked

RUNS = PurePosixPath("/data/armload/runs")
OUTSIDE = ["../escaped", "/etc/escaped", "a/b", "..", ".", "a/", "", "a\0b"]


def sent(name: str, content: bytes = b"content") -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return (
        f"{len(content)} {name}\n#bytes\n".encode()
        + content
        + f"#sums\n{digest}  {name}\n".encode()
    )


def test_files_are_taken_over_with_their_checksums() -> None:
    files, sums = unpacked(sent("trace.jsonl"), "b")
    assert files == {"trace.jsonl": b"content"}
    assert sums == {"trace.jsonl": hashlib.sha256(b"content").hexdigest()}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_outside_of_the_runs_folder_is_refused(name: str) -> None:
    with pytest.raises(TransferError) as caught:
        unpacked(sent(name), "my-board")
    assert "armload pull --board my-board" in caught.value.remedy


@pytest.mark.parametrize(
    "output", [b"", b"rubbish\n", b"-5 name\n#bytes\n", b"9 name\n#bytes\nshort", b"\xff\n#bytes\n"]
)
def test_what_makes_no_sense_is_a_failed_transfer(output: bytes) -> None:
    with pytest.raises(TransferError, match="cannot be taken over"):
        unpacked(output, "b")


def test_runs_are_listed() -> None:
    lines = ["ended 143 one", "running - two words", "interrupted - three", "ended  four"]
    found = parse_runs(lines, RUNS, "b")
    assert [(run.id, run.state, run.status) for run in found] == [
        ("one", "ended", 143),
        ("two words", "running", None),
        ("three", "interrupted", None),
        ("four", "ended", None),
    ]
    assert found[1].folder == RUNS / "two words"


@pytest.mark.parametrize(
    "line", [*(f"ended 0 {name}" for name in OUTSIDE), "ended", "asleep - one", "ended one two"]
)
def test_a_list_that_makes_no_sense_is_a_failed_transfer(line: str) -> None:
    with pytest.raises(TransferError, match="makes no sense"):
        parse_runs([line], RUNS, "b")
