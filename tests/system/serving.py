"""A service as a person has it, and what is left of one."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.person import Person
from tests.servers import openssh


def board_folder(person: Person) -> Path:
    return person.folder / "here-board"


@contextlib.contextmanager
def by_ssh(person: Person) -> Iterator[int]:
    """Add the board ``far``, this machine behind SSH, and give its server's port."""
    with openssh(person.folder / "server") as address:
        assert address.port is not None
        person.add_board(
            "far",
            f"target: host\nworkdir: {board_folder(person)}\nreach:\n  kind: ssh\n"
            f"  host: 127.0.0.1\n  port: {address.port}\n  key: {address.key}\n",
        )
        person.types("board.trust", "--board", "far", "--yes")
        yield address.port


class Serving:
    """A ``serve`` in the foreground, and the service that it has announced."""

    def __init__(self, person: Person, *words: str, board: str) -> None:
        self.process = person.start("serve", "--board", board, *words, "--json")
        assert self.process.stdout is not None
        document = self.process.stdout.read(1)
        while document and not is_whole(document):
            document += self.process.stdout.readline()
        assert document, self.process.communicate()
        self.about: dict[str, Any] = json.loads(document)
        self.key = Path(self.about["api_key_file"]).read_text().strip()

    def ask(self, path: str, *, key: str | None = None, **body: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key if key is None else key}"}
        address = f"{self.about['url']}/{path}"
        return requests.post(address, json=body, headers=headers, timeout=120)

    def complete(self, prompt: str, count: int) -> dict[str, Any]:
        answer = self.ask("v1/completions", prompt=prompt, max_tokens=count)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def leaves_nothing(self, person: Person) -> None:
        assert_nothing_is_left(person, self.about["url"])
        assert not Path(self.about["api_key_file"]).exists()

    def ends(self, status: int) -> str:
        assert self.process.stderr is not None
        said = self.process.communicate(timeout=120)[1]
        assert self.process.returncode == status, said
        assert "Traceback" not in said
        return said


def is_whole(document: str) -> bool:
    try:
        json.loads(document)
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def in_place_of(person: Person) -> Iterator[None]:
    """Work in this process as that person would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(person.folder)
        for name, value in person.environment.items():
            patch.setenv(name, value)
        yield


@contextlib.contextmanager
def serving(person: Person, *words: str, board: str = "here") -> Iterator[Serving]:
    """Serve in the foreground, until Ctrl-C where the block has not ended it."""
    service = Serving(person, *words, board=board)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.send_signal(signal.SIGINT)
            service.process.communicate(timeout=120)


def server_process(person: Person) -> psutil.Process:
    """Return the llama-server that runs for a person's board."""
    (found,) = servers(person)
    return found


def servers(person: Person) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "--api-key-file" in words and str(board_folder(person)) in " ".join(words):
                found.append(process)
    return found


def run_of(person: Person, run: str) -> dict[str, Any]:
    return dict(json.loads((person.runs / run / "run.json").read_text()))


def holds_lease(person: Person) -> bool:
    """Whether the board is in use."""
    return any((board_folder(person) / "lease").glob("*"))


def assert_nothing_is_left(person: Person, url: str) -> None:
    """No server, no lease, no key, and no forward."""
    assert not servers(person)
    assert not holds_lease(person)
    assert not (board_folder(person) / "api-key").exists()
    with pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=5)
