"""``clean`` and ``build --list``, as a person types them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from armload.cli.generated import CACHE_KINDS
from tests import command_line
from tests.unit.builds import finished_build, held_elsewhere, unfinished_build

ROOT = Path(__file__).resolve().parents[2]
FACES = [
    "armload",
    pytest.param("invoke", marks=pytest.mark.exhaustive(covers=["armload/cli", "tasks.py"])),
]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    finished_build(cache)
    unfinished_build(cache)
    (cache / "hashes").mkdir()
    (cache / "hashes" / "a").write_text("b")
    (cache / "photos").mkdir()
    return cache


def typed(
    cache: Path, *words: str, face: str = "armload", stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    return command_line.typed(ROOT, *words, face=face, cache=cache, stdin=stdin)


def builds(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "builds").iterdir() if path.is_dir())


BOTH = ["0123456789ab", "ba9876543210"]


@pytest.mark.parametrize("face", FACES)
def test_builds_are_listed_for_people_and_for_programs(cache: Path, face: str) -> None:
    (cache / "builds" / "00000000000f.partial").mkdir()
    shown = typed(cache, "build", "--list", face=face)
    assert shown.returncode == 0
    for word in ("0123456789ab", "finished", "rk3568", "unfinished", "unreadable"):
        assert word in shown.stdout
    listed = json.loads(typed(cache, "build", "--list", "--json", face=face).stdout)
    assert {build["build_id"]: build["state"] for build in listed} == {
        "0123456789ab": "finished",
        "ba9876543210": "unfinished",
        "00000000000f": "unreadable",
    }


def test_an_empty_list_is_a_sentence_or_an_empty_document(tmp_path: Path) -> None:
    done = typed(tmp_path / "none", "build", "--list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing has been built" in done.stderr
    assert json.loads(typed(tmp_path / "none", "build", "--list", "--json").stdout) == []


@pytest.mark.parametrize("face", FACES)
def test_without_a_person_nothing_is_freed_and_it_is_said_how(cache: Path, face: str) -> None:
    done = typed(cache, "clean", "--what", "builds,hashes", face=face)
    assert done.returncode == 2
    assert builds(cache) == BOTH
    assert "Nothing was freed" in done.stderr
    assert "armload clean --what builds,hashes --yes" in done.stderr
    assert "remove  builds: 0123456789ab (rk3568)" in done.stderr
    assert "photos" not in done.stdout + done.stderr
    assert "not armload's" in done.stdout


def test_builds_are_freed_and_nothing_else(cache: Path) -> None:
    done = typed(cache, "clean", "--yes")
    assert done.returncode == 0
    assert "Freed 2" in done.stdout
    assert builds(cache) == []
    assert (cache / "hashes" / "a").exists()
    assert (cache / "photos").exists()
    again = typed(cache, "clean", "--yes")
    assert (again.returncode, "Nothing to remove: builds." in again.stderr) == (0, True)


def test_the_document_says_what_became_of_everything(cache: Path) -> None:
    before = typed(cache, "clean", "--json")
    assert before.returncode == 2
    document = json.loads(before.stdout)
    assert document["freed_bytes"] == 0
    assert {item["fate"] for item in document["items"]} == {"goes"}
    after = json.loads(typed(cache, "clean", "--json", "--yes").stdout)
    assert {item["fate"] for item in after["items"]} == {"freed"}
    assert after["freed_bytes"] == sum(item["size_bytes"] for item in after["items"]) > 200_000


def test_a_build_that_is_under_way_stays_and_is_named(cache: Path) -> None:
    with held_elsewhere(cache / "builds" / "ba9876543210.lock"):
        done = typed(cache, "clean", "--yes")
    assert done.returncode == 0
    assert builds(cache) == ["ba9876543210"]
    assert "another armload process is building it" in done.stderr
    assert "ba9876543210" in done.stderr


def test_a_kind_that_does_not_exist_is_answered_with_all_that_do(
    cache: Path,
) -> None:
    for what in ("biulds", "builds,photos", "../builds"):
        done = typed(cache, "clean", "--what", what, "--yes")
        assert (done.returncode, done.stdout) == (2, "")
        assert all(kind in done.stderr.partition("The kinds are")[2] for kind in CACHE_KINDS)
    assert builds(cache) == BOTH


def asked(cache: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start ``clean`` for a person, and return it when it has asked."""
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [str(command_line.BIN / "armload"), "clean"],
        env={**os.environ, "ARMLOAD_CACHE": str(cache)},
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(terminal)
    assert process.stderr is not None
    said = b""
    while b"[y/n]" not in said:
        heard = os.read(process.stderr.fileno(), 4096)
        assert heard, said
        said += heard
    return process, person


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", []), (b"n\n", BOTH), (b"\n", BOTH)])
def test_a_person_is_asked_first(cache: Path, answer: bytes, left: list[str]) -> None:
    process, person = asked(cache)
    assert builds(cache) == BOTH
    os.write(person, answer)
    out, err = process.communicate(timeout=60)
    os.close(person)
    assert process.returncode == 0, err
    assert builds(cache) == left
    assert (b"Freed" in out) == (left == [])
    assert (b"Nothing was freed" in err) == (left == BOTH)


def test_ctrl_c_at_the_question_frees_nothing(cache: Path) -> None:
    process, person = asked(cache)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    os.close(person)
    assert process.returncode == 130
    assert b"error:" not in err
    assert b"Interrupted.\n" in err
    assert b"Repeat the command" not in err
    assert b"Traceback" not in err
    assert builds(cache) == BOTH
