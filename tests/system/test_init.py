"""A workspace is set up question by question, at a terminal; an SSH server stands for the board."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from armload.boards.board import SshAddress
from armload.report.input_schema import BOARD
from tests.person import Person
from tests.servers import dropbear, openssh
from tests.terminal import at_a_terminal
from tests.waiting import wait_until

HOST, NAME = "a virtual board on this machine):", "Name of the board"
KEY, MODEL = "Does it print this fingerprint? [y/n]", "Model to run"
EARLIER = "Continue with your earlier answers, as armload init"
CTRL_C, CTRL_D = b"\x03", b"\x04"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshAddress]:
    with openssh(tmp_path / "sshd") as address:
        yield address


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    return Person(tmp_path / "ann")


def reached(address: SshAddress) -> tuple[str, ...]:
    return ("--port", str(address.port), "--key", str(address.key))


def records(person: Person) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(person.runs.glob("*/run.json"))]


def files(person: Person) -> set[str]:
    return {path.name for path in (person.folder / "boards").iterdir()}


@pytest.mark.parametrize(
    "key",
    [pytest.param(CTRL_C, id="Ctrl-C"), pytest.param(CTRL_D, id="end of input")],
)
@pytest.mark.exhaustive(covers=["armload/boards", "armload/cli"])
def test_interrupted_at_each_question_nothing_is_half_written_and_it_says_how_to_continue(
    ann: Person, server: SshAddress, key: bytes
) -> None:
    command = ("init", *reached(server))
    before = files(ann)
    ann.environment["HF_HUB_OFFLINE"] = "1"
    with at_a_terminal(ann, *command) as asked:
        asked.waits_for(HOST)
        asked.answers(key)
        assert asked.ends() == 130
        assert f"To continue: armload init {' '.join(reached(server))} " in asked.said
    host = f"{server.user}@127.0.0.1"
    with at_a_terminal(ann, *command) as asked:
        asked.waits_for(HOST)
        asked.answers(f"{host}\n".encode())
        asked.waits_for(NAME)
        asked.answers(key)
        assert asked.ends() == 130
        assert f"armload init --host {host} {' '.join(reached(server))} " in asked.said
    with at_a_terminal(ann, *command, "--host", host) as asked:
        asked.waits_for(f"{NAME} (Enter: my-board)")
        asked.answers(b"kitchen\n")
        asked.waits_for(KEY)
        asked.answers(key)
        assert asked.ends() == (130 if key == CTRL_C else 2)
        named = f"armload init --host {host} {' '.join(reached(server))} --name kitchen"
        assert named in asked.said
        assert files(ann) == before
    with at_a_terminal(ann, *command, "--host", host, "--name", "kitchen") as asked:
        asked.waits_for(KEY)
        asked.answers(b"y\n")
        asked.waits_for(MODEL)
        assert "kitchen is now the default board of this workspace" in asked.said
        asked.answers(key)
        assert asked.ends() == 130
        assert named in asked.said
    assert files(ann) == before | {"kitchen.yaml", BOARD.file_name}
    whole = (ann.folder / "boards" / "kitchen.yaml").read_text()
    assert whole.startswith(BOARD.comment)
    assert yaml.safe_load(whole)["reach"]["user"] == server.user
    with at_a_terminal(ann, *command, "--host", host) as asked:
        asked.waits_for(f"{MODEL} (Enter: qwen2.5-0.5b:")
        assert "Using boards/kitchen.yaml" in asked.said
        assert "Models that fit on kitchen (times are rough estimates)" in asked.said
        assert "default board" not in asked.said
        asked.answers(b"\n")
        asked.waits_for(f"{MODEL} (Enter: SmolLM2 with 135M parameters")
        assert "HF_HUB_OFFLINE is set" in asked.said
        asked.answers(key)
        assert asked.ends() == 130
    assert (ann.folder / "boards" / "kitchen.yaml").read_text() == whole


def test_a_repeated_init_continues_with_the_answers_of_an_interrupted_or_failed_one(
    ann: Person, server: SshAddress
) -> None:
    ann.environment["HF_HUB_OFFLINE"] = "1"
    host = f"{server.user}@127.0.0.1"
    with at_a_terminal(ann, "init", *reached(server)) as asked:
        asked.waits_for(HOST)
        asked.answers(f"{host}\n".encode())
        asked.waits_for(NAME)
        asked.answers(b"kitchen\n")
        asked.waits_for(KEY)
        asked.answers(b"n\n")
        assert asked.ends() == 2
    with at_a_terminal(ann, "init") as asked:
        words = f"--host {host} {' '.join(reached(server))} --name kitchen"
        asked.waits_for(f"{EARLIER} {words}? [y/n]")
        asked.answers(b"\n")
        asked.waits_for(KEY)
        assert NAME not in asked.said
        asked.answers(b"y\n")
        asked.waits_for(MODEL)
        asked.answers(CTRL_C)
        assert asked.ends() == 130
    (kept,) = (ann.home / ".local" / "state" / "armload" / "init").iterdir()
    for rubbish in ("", "[" * 5000, '{"port": 99999999}', '{"host": 3}', '{"no": 1}'):
        kept.write_text(rubbish)
        with at_a_terminal(ann, "init") as asked:
            asked.waits_for(HOST)
            assert EARLIER not in asked.said
            asked.answers(CTRL_C)
            assert asked.ends() == 130
    with at_a_terminal(ann, "init", "--model", "random", "--name", "shed") as asked:
        asked.waits_for(HOST)  # a model alone does not answer where
        asked.answers(CTRL_D)
        assert asked.ends() == 130


def test_a_host_that_does_not_exist_is_not_proposed_again(ann: Person) -> None:
    with at_a_terminal(ann, "init") as asked:
        asked.waits_for(HOST)
        asked.answers(b"pi@nowhere.invalid\n")
        asked.waits_for(NAME)
        asked.answers(b"\n")
        assert asked.ends() == 6
        assert "cannot be resolved" in asked.said
        assert "To continue" not in asked.said
    with at_a_terminal(ann, "init") as asked:
        asked.waits_for(HOST)
        assert EARLIER not in asked.said
        asked.answers(CTRL_C)
        assert asked.ends() == 130


def test_an_answer_that_makes_no_sense_is_asked_for_again(ann: Person, server: SshAddress) -> None:
    with at_a_terminal(ann, "init", *reached(server), "--yes", "--host", "127.0.0.1@") as asked:
        assert asked.ends() == 2
        assert "names no host" in asked.said
    with at_a_terminal(ann, "init", *reached(server)) as asked:
        asked.waits_for(HOST)
        asked.answers(f"{server.user}@\n".encode())
        asked.waits_for(HOST)
        assert "names no host" in asked.said
        asked.answers(f"{server.user}@127.0.0.1\n".encode())
        asked.waits_for(NAME)
        asked.answers(b"mine\n")
        asked.waits_for(NAME)
        assert "already a board named 'mine'" in asked.said
        asked.answers(b"\n")
        asked.waits_for(KEY)
        asked.answers(b"\n")  # a key that nobody has compared is not pinned
        assert asked.ends() == 2
        assert "Nothing was pinned" in asked.said
        assert "--name my-board" in asked.said
    with at_a_terminal(ann, "init") as asked:
        asked.waits_for("--name my-board? [y/n]")
        asked.answers(b"n\n")
        asked.waits_for(HOST)
        asked.answers(b"\n")
        asked.waits_for(f"{MODEL} (Enter: SmolLM2 with 135M parameters")
        asked.answers(b"no-such.gguf\n")
        asked.waits_for(f"{MODEL} (Enter: SmolLM2 with 135M parameters")
        assert "no-such.gguf" in asked.said
        asked.answers(b"llama-3.1-8b:Q4_0\n")
        asked.waits_for(f"{MODEL} (Enter: SmolLM2 with 135M parameters")
        assert "does not know where to download" in asked.said
        asked.answers(CTRL_C)
        assert asked.ends() == 130
    assert yaml.safe_load((ann.folder / "boards" / "virtual.yaml").read_text()) == {
        "extends": "virtual",
        "description": "virtual board of this workspace",
    }
    assert not (ann.folder / "pyproject.toml").exists(), "it is the default anyway"


@pytest.mark.exhaustive(covers=["armload/boards", "armload/cli"])
def test_a_password_is_asked_for_once_and_no_answer_is_lost(ann: Person, tmp_path: Path) -> None:
    with dropbear(tmp_path / "s", shell="mksh", tools="toybox", password="correct horse") as server:
        known = ann.home / ".ssh" / "known_hosts"
        known.write_text(f"[127.0.0.1]:{server.port} {server.host_key}\n")
        command = ("init", "--port", str(server.port))
        before = files(ann)
        for key, status in ((CTRL_C, 130), (CTRL_D, 6)):
            with at_a_terminal(ann, *command, "--host", "root@127.0.0.1") as asked:
                asked.waits_for(NAME)
                asked.answers(b"kitchen\n")
                asked.waits_for("Password: ")
                asked.answers(key)
                assert asked.ends() == status
                assert f"--port {server.port} --name kitchen" in asked.said
            assert files(ann) == before
        with at_a_terminal(ann, *command) as asked:
            asked.waits_for(HOST)
            asked.answers(b"root@127.0.0.1\n")
            asked.waits_for(NAME)
            asked.answers(b"kitchen\n")
            asked.waits_for("Password: ")
            asked.answers(b"correct horse\n")
            asked.waits_for(MODEL)
            assert HOST not in asked.said
            asked.answers(CTRL_C)
            assert asked.ends() == 130
        assert files(ann) == before | {"kitchen.yaml", BOARD.file_name}


def test_without_a_terminal_it_says_which_options_to_give(ann: Person) -> None:
    before = files(ann)
    refused = ann.types("init", "--host", "kitchen", status=2)
    assert "--name, --model: not given, and there is no terminal to ask on" in refused.stderr
    assert "--yes" in refused.stderr
    alone = ann.types("init", "--port", "22", "--yes", status=2)
    assert "--port cannot be combined with a virtual board" in alone.stderr
    assert files(ann) == before


def test_a_board_that_does_not_answer_leaves_nothing(ann: Person) -> None:
    before = files(ann)
    options = ("--host", "127.0.0.1", "--port", "1", "--name", "kitchen", "--model", "random")
    refused = ann.types("init", *options, status=6)
    assert "To continue: armload init --host 127.0.0.1 --port 1 --name kitchen" in refused.stderr
    assert files(ann) == before


@pytest.mark.build
def test_without_a_host_the_virtual_board_runs_the_model_until_it_is_interrupted(
    ann: Person,
) -> None:
    ann.add_emulated("virtual")
    words = ("init", "--model", "like:stories260k:F32", "--yes")
    process = ann.start(*words)
    wait_until(lambda: bool(records(ann)), process, within_s=300)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "To continue: armload init --yes --model like:stories260k:F32" in said
    first = records(ann)[0]
    assert (first["board"]["name"], first["exit"]["status"]) == ("virtual", 0)


@pytest.mark.build
@pytest.mark.exhaustive(covers=["armload/bench", "armload/cli/verbs/init.py", "armload/runs"])
def test_without_a_host_the_virtual_board_repeats_the_run(ann: Person) -> None:
    ann.add_emulated("virtual")
    done = ann.types("init", "--model", "like:stories260k:F32", "--yes")
    again = "armload bench --model like:stories260k:F32 -n 32"
    assert again in done.stderr
    runs = records(ann)
    assert {run["plan"]["n_predict"] for run in runs} == {32}
    assert {(run["board"]["name"], run["exit"]["status"]) for run in runs} == {("virtual", 0)}
    assert any(run["id"] in done.stdout for run in runs)
