"""Conversations as they are typed: at a terminal, and in a pipe."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session, get_app_or_none
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from armload.cli.chat_session import _COMMANDS, MOST_CHARACTERS, ChatSession
from armload.core.errors import UsageError
from armload.serving.chat import Chat, ChatSettings
from armload.serving.chat_partner import ChatPartner
from armload.serving.interrupts import Interrupts
from armload.serving.tokenizer import ServiceProperties
from tests.command_line import BIN, check_document
from tests.stub_service import stub_service, target
from tests.terminal import Terminal, at_a_terminal
from tests.waiting import wait_until

CTRL_C, CTRL_D = b"\x03", b"\x04"


@dataclasses.dataclass
class Typist:
    folder: Path
    environment: dict[str, str]


@contextmanager
def talking(folder: Path, url: str, *more: str) -> Iterator[Terminal]:
    typist = Typist(folder, dict(os.environ))
    with at_a_terminal(typist, "chat", "--url", url, *more) as terminal:
        prompted(terminal)
        yield terminal


def prompted(terminal: Terminal) -> None:
    """Wait until keys are read: before, the terminal itself takes Ctrl-D."""
    terminal.waits_for("> ")
    wait_until(lambda: not termios.tcgetattr(terminal._controller)[3] & termios.ICANON)


def piped(
    folder: Path, url: str, question: bytes, *more: str, status: int = 0
) -> subprocess.CompletedProcess[bytes]:
    words = [str(BIN / "armload"), "chat", "--url", url, *more]
    done = subprocess.run(
        words, cwd=folder, input=question, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
    return done


def test_at_a_terminal_ctrl_c_ends_the_answer_and_ctrl_d_the_conversation(tmp_path: Path) -> None:
    with stub_service(gap_s=0.1, tokens=600) as service, talking(tmp_path, service.url) as asked:
        asked.answers(b"Why?\r")
        asked.waits_for("once upon")
        asked.answers(CTRL_C)
        prompted(asked)
        assert "Stopped. To answer again: /regenerate" in asked.said
        service.behaviour.tokens, service.behaviour.gap_s = 2, 0.0
        asked.answers(b"And?\r")
        prompted(asked)
        assert "once upon" in asked.said
        assert "2 tokens" in asked.said
        asked.answers(CTRL_C)
        prompted(asked)
        for says in ("Saved: talk.md", "talk.md already exists."):
            asked.answers(b"/save talk.md\r")
            prompted(asked)
            assert says in asked.said
        asked.answers(CTRL_D)
        assert asked.ends() == 0
    saved = (tmp_path / "talk.md").read_text()
    assert saved.startswith("# Conversation with stub\n\n## User\n\nWhy?\n\n## Assistant\n\n once")
    first, second = [body["messages"] for path, body in service.bodies if "chat" in path]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert first == second[:1]


class _PressedAtEnter(Interrupts):
    """Ctrl-C is pressed as soon as a line is entered, while the line editor still runs."""

    def forget(self) -> None:
        super().forget()
        if is_running():
            os.kill(os.getpid(), signal.SIGINT)


def is_running() -> bool:
    app = get_app_or_none()
    return app is not None and app.is_running


def test_ctrl_c_between_enter_and_the_answer_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    interrupts = _PressedAtEnter()
    with stub_service(pieces=("Yes",)) as service, create_pipe_input() as keys:
        partner = ChatPartner(target(service.url, "openai-chat"))
        talk = Chat(partner, ChatSettings(timeout_s=30), interrupts)
        keys.send_text("Why?\r\x04")
        with create_app_session(input=keys, output=DummyOutput()), interrupts.heeded():
            ChatSession(talk, interrupts).run()
        assert not [path for path, _ in service.bodies if path.endswith("completions")]
    assert "Stopped. To answer again: /regenerate" in capsys.readouterr().err


def test_a_service_that_goes_away_leaves_the_conversation_to_be_saved(tmp_path: Path) -> None:
    with stub_service(tokens=2) as service, talking(tmp_path, service.url) as asked:
        asked.answers(b"Why?\r")
        prompted(asked)
        service.behaviour.cut_after = 1
        asked.answers(b"And?\r")
        prompted(asked)
        assert "did not finish its answer" in asked.said
        asked.answers(b"/save talk.json\r")
        prompted(asked)
        asked.answers(b"/exit\r")
        assert asked.ends() == 0
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [message["content"] for message in saved["messages"]] == [
        *("Why?", " once upon", "And?", " once")
    ]


def test_a_piped_question_is_answered_once_without_thoughts(tmp_path: Path) -> None:
    pieces = ("let me", " think", "Blue\x1b[2J", "\tsky")
    with stub_service(thoughts=2, pieces=pieces) as service:
        done = piped(tmp_path, service.url, b"Why is\nthe sky\xff blue?\n", "--system", "Be brief.")
        document = piped(tmp_path, service.url, b"Why?", "--json")
    assert done.stdout.decode() == "Blue\N{REPLACEMENT CHARACTER}[2J\tsky\n"
    assert b"4 tokens" in done.stderr
    asked, _ = [body["messages"] for path, body in service.bodies if "chat" in path]
    assert asked[0] == {"role": "system", "content": "Be brief."}
    assert asked[1]["content"] == "Why is\nthe sky\N{REPLACEMENT CHARACTER} blue?"
    answer = json.loads(document.stdout)
    assert (answer["answer"], answer["thoughts"]) == ("Blue\x1b[2J\tsky", "let me think")
    text = subprocess.CompletedProcess(
        document.args, 0, document.stdout.decode(), document.stderr.decode()
    )
    check_document(text, "chat", "--json")


@pytest.mark.parametrize(
    ("question", "more", "says"),
    [
        (b"", (), "There is no question on standard input."),
        (b" \n\t\n", (), "There is no question on standard input."),
        (b"x" * ((1 << 24) + 1), (), "longer than 16 MiB"),
        (b"Why?", ("--threads", "2"), "--threads cannot be combined with --url"),
        (b"Why?", ("--image", "none.png"), "There is no image"),
        (b"Why?", ("--api-key-file", "none"), "There is no file of an API key"),
    ],
)
def test_what_cannot_be_asked_is_said_at_once(
    question: bytes, more: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    done = piped(tmp_path, "http://127.0.0.1:9", question, *more, status=2)
    assert says in " ".join(done.stderr.decode().split())
    assert done.stdout == b""


def test_a_failed_answer_fails_the_command(tmp_path: Path) -> None:
    with stub_service(cut_after=2) as service:
        done = piped(tmp_path, service.url, b"Why?", status=9)
        assert done.stdout == b" once upon\n"
        assert b"did not finish its answer" in done.stderr
        document = json.loads(piped(tmp_path, service.url, b"Why?", "--json", status=9).stdout)
        assert (document["answer"], document["outcome"]) == (" once upon", "dropped")
        service.behaviour.context = 1
        full = piped(tmp_path, service.url, b"Why?", status=9)
        assert b"no longer fits into the model's context" in full.stderr


def test_json_at_a_terminal_is_refused(tmp_path: Path) -> None:
    typist = Typist(tmp_path, dict(os.environ))
    with at_a_terminal(typist, "chat", "--url", "http://127.0.0.1:9", "--json") as asked:
        assert asked.ends() == 2
        assert "--json needs a question on standard input." in asked.said


@pytest.fixture
def session() -> Iterator[ChatSession]:
    with stub_service(pieces=("Yes",)) as service:
        partner = ChatPartner(target(service.url, "openai-chat"))
        yield ChatSession(Chat(partner, ChatSettings(timeout_s=30)), Interrupts())


def test_commands_do_what_help_says(
    session: ChatSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chat = session.chat
    for nothing in ("", "   ", "\n"):
        session.take(nothing)
    assert not chat.messages
    session.take("/help")
    shown = capsys.readouterr().err
    assert all(name in shown for name in _COMMANDS)
    session.take("/system  Be brief. ")
    assert chat.settings.system == "Be brief."
    session.take(" /etc is a folder?")
    assert chat.messages[0].text == "/etc is a folder?"
    session.take("/regenerate")
    assert len(chat.messages) == 2
    session.take(f"/save {tmp_path}/a b.md")
    assert "Be brief." in (tmp_path / "a b.md").read_text()
    session.take("/clear")
    session.take("/system")
    assert not chat.whole
    chat.partner.models = ("stub", "other")
    session.take("/model other")
    assert chat.partner.target.model == "other"
    session.take("/exit")
    assert session.is_over


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/halp", "There is no command /halp."),
        ("/", "There is no command /."),
        ("/save", "/save needs a file."),
        ("/save x.md", "There is nothing to save yet."),
        ("/regenerate", "There is no question yet."),
        ("/model nothing", "does not offer the model 'nothing'"),
        ("/image", "/image needs a file."),
        ("/image none.png", "There is no image"),
        ("x" * (MOST_CHARACTERS + 1), "are the most."),
    ],
)
def test_what_a_command_cannot_do_is_said(session: ChatSession, line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace(".", r"\.")):
        session.take(line)


def test_images_are_refused_for_a_model_that_takes_none(session: ChatSession) -> None:
    session.chat.partner.properties = ServiceProperties(takes_images=False)
    with pytest.raises(UsageError, match="takes no images"):
        session.take("/image any.png")
