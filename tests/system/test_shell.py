"""A shell on boards of every kind, as a person opens it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.command_line import BIN
from tests.devices import adb_device, hdc_device
from tests.person import Person
from tests.system.serving import board_folder, by_ssh
from tests.terminal import at_a_terminal


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    person = Person(tmp_path / "ann")
    folder = board_folder(person)
    (folder / "bin" / "111111111111").mkdir(parents=True)
    program = folder / "bin" / "111111111111" / "hello"
    program.write_text('#!/bin/sh\necho "hello from ${PWD##*/}: $*"\n')
    program.chmod(0o755)
    (folder / "bin" / "hello").symlink_to("111111111111/hello")
    person.add_board("here", f"target: host\nreach: {{kind: local}}\nworkdir: {folder}\n")
    return person


def shell(
    person: Person, board: str, *words: str, says: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    line = [str(BIN / "armload"), "shell", "--board", board, *words]
    done = subprocess.run(
        line,
        cwd=person.folder,
        env=person.environment,
        input=says,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return done


def does_all(person: Person, board: str) -> None:
    """A program by its plain name, its arguments as they are, its status, and a script."""
    done = shell(person, board, "--", "hello", "a  b", "$HOME")
    assert (done.returncode, done.stdout) == (0, b"hello from here-board: a  b $HOME\n")
    done = shell(person, board, "--", "hello | sed s/hello/hi/; exit 7")
    assert (done.returncode, done.stdout) == (7, b"hi from here-board: \n")
    assert shell(person, board, "--", "no-such-program").returncode == 127
    done = shell(person, board, says=b"hello script\nexit 3\n")
    assert (done.returncode, done.stdout) == (3, b"hello from here-board: script\n")


def is_interactive(person: Person, board: str) -> None:
    with at_a_terminal(person, "shell", "--board", board) as asked:
        asked.answers(b"tty >/dev/null && hello $((40 + 2)); exit 5\r")
        asked.waits_for("hello from here-board: 42")
        assert asked.ends() == 5


def test_on_this_machine(ann: Person) -> None:
    does_all(ann, "here")
    is_interactive(ann, "here")


def test_by_ssh_with_the_host_key_that_was_pinned(ann: Person) -> None:
    with by_ssh(ann):
        does_all(ann, "far")
        is_interactive(ann, "far")
        (known,) = ann.folder.rglob("known_hosts")
        known.write_text("")
        done = shell(ann, "far", "--", "hello")
        assert done.returncode == 6
        assert b"armload board.trust --board far" in done.stderr


def test_by_adb(ann: Person) -> None:
    with adb_device(ann.folder / "device"):
        ann.environment["ANDROID_ADB_SERVER_PORT"] = os.environ["ANDROID_ADB_SERVER_PORT"]
        ann.add_board(
            "phone", f"target: host\nworkdir: {board_folder(ann)}\nreach: {{kind: adb}}\n"
        )
        does_all(ann, "phone")
        done = shell(ann, "phone", says=b"echo began\n" + b"#" * (1 << 20))
        assert (done.returncode, done.stdout) == (2, b""), "a part of it must not run"
        assert b"longer than 1 MiB" in done.stderr


def test_by_hdc(ann: Person) -> None:
    with hdc_device(ann.folder / "device") as device:
        ann.add_board(
            "pad",
            f"target: host\nworkdir: {board_folder(ann)}\nreach:\n  kind: hdc\n"
            f"  program: {device.program}\n",
        )
        does_all(ann, "pad")


def test_a_group_and_a_board_that_is_none_are_refused(ann: Person) -> None:
    done = shell(ann, "nowhere", "--", "true")
    assert done.returncode == 2
    ann.add_board("pair", "members: [here, mine]\n")
    done = shell(ann, "pair", "--", "true")
    assert done.returncode == 2
    assert b"Name one of its members instead" in done.stderr
