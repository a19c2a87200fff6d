"""Endings are told from what a run left."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.deploy.collect import peak_memory_bytes
from armload.deploy.ending import explain


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "interrupted"),
        ({"exit": ""}, "interrupted"),
        ({"exit": "0\n"}, "done"),
        ({"exit": "137\n", "oom": ""}, "ran out of memory"),
        ({"exit": "137\n"}, "killed from outside"),
        ({"exit": "124\n", "limit": ""}, "time limit"),
        ({"exit": "124\n"}, "exit 124"),
        ({"exit": "143\n", "stopped": ""}, "on request"),
        ({"exit": "143\n"}, "SIGTERM"),
        ({"exit": "1\n", "stderr": "a\n\nfailed to load\nb\n"}, "a / failed to load / b"),
        ({"exit": "1\n"}, "no reason"),
        ({"exit": "250\n"}, "signal 122"),
    ],
)
def test_an_ending_is_put_in_words(tmp_path: Path, files: dict[str, str], words: str) -> None:
    assert words in explain(folder(tmp_path, **files)).meaning


def test_an_illegal_instruction_names_what_the_cpu_lacks(tmp_path: Path) -> None:
    ending = explain(folder(tmp_path, exit="132\n"), lacking=["i8mm", "sve"])
    assert "(i8mm, sve)" in ending.meaning
    assert "target" in ending.remedy


def test_peak_memory_is_read_and_missing_when_nothing_was_seen(tmp_path: Path) -> None:
    assert peak_memory_bytes(tmp_path) is None
    assert peak_memory_bytes(folder(tmp_path, memory="2000 1000\n")) == (1024_000, 2048_000)
    assert peak_memory_bytes(folder(tmp_path, memory="2000 ")) is None
