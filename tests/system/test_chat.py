"""Conversations with real services: started for one, found on the board, and ended during one."""

from __future__ import annotations

import json
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import BIN
from tests.outside_data import shared
from tests.person import Person
from tests.system.serving import server_process, servers, serving
from tests.terminal import Terminal, at_a_terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.build

MODEL = "word-problems:Q8_0"
FAST = ("--threads", "1", "--context", "256")
QUESTION = "Ann has 3 apples and buys 4 more. How many apples does Ann have?"


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("chat") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    return person


def asks(
    person: Person, question: str, *words: str, board: str = "here", status: int = 0
) -> dict[str, Any]:
    done = person.chats(question, "--board", board, *words, status=status)
    return dict(json.loads(done.stdout))


def prompted(terminal: Terminal) -> None:
    terminal.waits_for("> ")
    wait_until(lambda: not termios.tcgetattr(terminal._controller)[3] & termios.ICANON)


def test_a_service_is_started_for_one_question_and_ended_after_it(ann: Person) -> None:
    answer = asks(ann, QUESTION, "--model", MODEL, *FAST)
    assert answer["outcome"] == "ok"
    assert answer["answer"]
    assert answer["board"] == "here"
    assert answer["context_tokens"] == 256
    assert answer["decode_tps"] > 0
    assert answer["prompt_tokens"] + answer["generated_tokens"] <= 256
    assert not servers(ann)

    full = asks(ann, "apples " * 400, "--model", MODEL, *FAST, status=9)
    assert full["is_full"]
    assert not servers(ann)


def test_the_service_on_the_board_is_talked_to_whatever_its_model_is_here(ann: Person) -> None:
    with serving(ann, "--model", MODEL, "--threads", "1", "--slots", "1") as service:
        first = asks(ann, QUESTION)
        assert first["model"] == service.about["model"]
        again = asks(ann, QUESTION)
        assert again["cached_tokens"] > 0, "the slot kept what it had computed"
        assert again["answer"] == first["answer"], "greedy"
        assert again["prompt_tokens"] == first["prompt_tokens"]
        named = asks(ann, QUESTION, "--model", "word-problems-Q8_0")
        assert named["answer"] == first["answer"]
        assert len(servers(ann)) == 1, "nobody started another or ended it"


def test_ctrl_c_ends_the_answer_and_the_death_of_the_server_is_told(ann: Person) -> None:
    command = ("chat", "--board", "here", "--model", MODEL, "--threads", "1")
    with at_a_terminal(ann, *command) as asked:
        prompted(asked)
        asked.answers(QUESTION.encode() + b"\r")
        prompted(asked)
        assert "tokens/s" in asked.said
        assert "context" in asked.said
        process = server_process(ann)
        process.suspend()  # or it could end its answer before
        asked.answers(b"Again?\r")
        wait_until(lambda: bool(termios.tcgetattr(asked._controller)[3] & termios.ICANON))
        asked.answers(b"\x03")
        prompted(asked)
        assert "Stopped. To answer again: /regenerate" in asked.said
        process.resume()
        asked.answers(b"/regenerate\r")
        prompted(asked)
        assert "tokens/s" in asked.said
        process.kill()
        asked.answers(b"Still there?\r")
        prompted(asked)
        assert "here no longer serves word-problems-Q8_0.gguf: killed from outside" in asked.said
        asked.answers(b"/save talk.json\r")
        prompted(asked)
        asked.answers(b"\x04")
        assert asked.ends() == 0
    messages = json.loads((ann.folder / "talk.json").read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert not servers(ann)


def test_a_model_without_a_chat_template_continues_the_text(ann: Person) -> None:
    plain = str(shared("stories260K.gguf"))
    answer = asks(ann, "Once upon a time", "--model", plain, *FAST, "--n-predict", "20")
    expected = shared("stories260K.expected.txt").read_text().strip()
    assert expected.removeprefix("Once upon a time").startswith(answer["answer"])


def test_a_shell_runs_what_deploy_put_there_by_the_line_that_it_prints(ann: Person) -> None:
    said = ann.types("deploy", "--board", "here", "--model", MODEL).stdout
    (line,) = [each.strip() for each in said.splitlines() if "armload shell" in each]
    assert " models/word-problems-Q8_0.gguf " in line
    done = subprocess.run(
        line.replace("armload", str(BIN / "armload"), 1),
        shell=True,
        cwd=ann.folder,
        env=ann.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Hello" in done.stdout
    folder = Path(ann.folder / "here-board")
    assert (folder / "bin" / "llama-completion").resolve().parent.parent == folder / "bin"


@pytest.mark.machine
@pytest.mark.exhaustive(covers=["armload/cli/verbs/chat.py", "armload/services/talking.py"])
def test_on_a_virtual_board(ann: Person) -> None:
    try:
        answer = asks(ann, QUESTION, "--model", MODEL, *FAST, board="mine")
        assert (answer["board"], answer["outcome"]) == ("mine", "ok")
        assert answer["answer"]
        machine = ann.types("shell", "--board", "mine", "--", "uname -m; exit 3", status=3)
        assert machine.stdout == "aarch64\n"
    finally:
        ann.types("board.down", "--board", "mine", "--yes")
