"""Two people with a laptop each put the same large file on the same board at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from armload.boards.address import SshAddress
from armload.core.files import sha256_of
from tests.faults import Relay
from tests.person import Person
from tests.system.engines import shared

pytestmark = pytest.mark.build

PADDING_BYTES = 40_000_000


@contextmanager
def person(folder: Path, server: SshAddress, workdir: Path) -> Iterator[tuple[Person, Relay]]:
    """Somebody whose line is slow enough that a copy takes some seconds."""
    assert server.port is not None
    somebody = Person(folder)
    with closing(Relay(server.port, bytes_per_s=8e6)) as relay:
        somebody.add_board(
            "mine",
            f"target: host\nworkdir: {workdir}\nreach:\n  kind: ssh\n  host: {server.host}\n"
            f"  port: {relay.port}\n  user: {server.user}\n  key: {server.key}\n",
        )
        somebody.types("board.trust", "--board", "mine", "--yes")
        yield somebody, relay


def large_model(folder: Path) -> Path:
    path = folder / "large.gguf"
    path.write_bytes(shared("stories260K.gguf").read_bytes() + os.urandom(PADDING_BYTES))
    return path


@pytest.mark.parametrize("second_comes", ["at once", "while it is copied"])
def test_both_succeed_and_the_file_is_sent_once_and_right(
    server: SshAddress, tmp_path: Path, second_comes: str
) -> None:
    workdir = tmp_path / "board"
    model = large_model(tmp_path)
    words = ("deploy", "--board", "mine", "--model", str(model), "--json")
    with (
        person(tmp_path / "ann", server, workdir) as (ann, her_line),
        person(tmp_path / "bob", server, workdir) as (bob, his_line),
    ):
        first = ann.start(*words)
        if second_comes == "while it is copied":
            while not list(workdir.glob("models/*/large.gguf.part")):
                assert first.poll() is None, first.communicate()
                time.sleep(0.02)
        second = bob.start(*words)
        said = [process.communicate(timeout=600) for process in (first, second)]
        assert [process.returncode for process in (first, second)] == [0, 0], said
        assert sorted(json.loads(out)["sent"] for out, _ in said) == [False, True]
        assert her_line.passed_bytes + his_line.passed_bytes < 1.5 * PADDING_BYTES + 20_000_000
    (place,) = workdir.glob("models/*")
    assert sorted(path.name for path in place.iterdir()) == ["large.gguf", "large.gguf.sha256"]
    assert sha256_of(place / "large.gguf") == sha256_of(model)
    assert list((workdir / "lease").iterdir()) == []
    ends_at = time.monotonic() + 60
    while subprocess.run(["pgrep", "-f", str(workdir)], check=False).returncode == 0:
        assert time.monotonic() < ends_at, "something of it still runs on the board"
        time.sleep(0.2)
