"""Somebody who uses the program as a person does: in a folder of their own, by its words."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from armload.boards.rates import Rates
from armload.core.places import cache_folder
from armload.models.find import RANDOM
from tests import forked
from tests.command_line import BIN, check_document

BOARDS = Path(__file__).parent / "boards"
"""For tests alone."""

SHARED_CACHE = (
    "builds",
    "ccache",
    "compilers",
    "converters",
    "helpers",
    "images",
    "models",
    "packages",
    "sources",
    "vega",
    "zig",
)

MEASURING = {"bench", "deploy", "load", "serve", "tune"}

MEASURED = Rates(
    memory_bytes_per_s=10_000_000_000,
    memory_threads=os.cpu_count(),
    memory_others_cpu=0.0,
    storage_read_bytes_per_s=1_000_000_000,
    storage_way="direct",
    storage_read_bytes=1_000_000,
    storage_others_cpu=0.0,
    storage_others_read_bytes=0,
)


class Person:
    """Somebody who works in a folder of their own, with one virtual board called ``mine``.

    ``qemu-user`` is this machine, running programs for ARM.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.runs = folder / "runs"
        cache = folder / "cache"
        for each in (self.home / ".ssh", folder / "boards", cache):
            each.mkdir(parents=True)
        for file in BOARDS.iterdir():
            shutil.copy(file, folder / "boards")
        usual = cache_folder()
        for kind in SHARED_CACHE:
            (usual / kind).mkdir(parents=True, exist_ok=True)
            (cache / kind).symlink_to((usual / kind).resolve())
        self.environment = {
            **os.environ,
            "ARMLOAD_CACHE": str(cache),
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            # On this machine, for runs that name no number: two threads of an emulated program
            # spin while one waits for a core.
            "LLAMA_ARG_THREADS": "1",
        }
        self.environment.pop("SSH_AUTH_SOCK", None)
        self.add_board("mine", "extends: single-core\n")
        self._reached: int | None = None
        self._login: list[str] = []

    def add_board(self, name: str, text: str) -> None:
        (self.folder / "boards" / f"{name}.yaml").write_text(text)

    def add_emulated(self, name: str) -> None:
        """Add this machine as a board that runs ARM programs, its memory and storage measured.

        Tests beside one another keep this machine busy: it would be measured before each run.
        """
        folder = self.folder / f"{name}-board"
        folder.mkdir()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (folder / f".rates.{boot}").write_text(MEASURED.model_dump_json(exclude_none=True) + "\n")
        self.add_board(name, f"extends: qemu-user\nworkdir: {folder}\n")

    def start(self, *words: str, face: str = "armload") -> subprocess.Popen[str]:
        """Start a command; where it names no model, with the small one of random weights."""
        named = {"--model", "-m", "--plan", "--url", "--service", "--help"}
        if words[0] in MEASURING and not named & {word.partition("=")[0] for word in words}:
            words += ("--model", RANDOM)
        return forked.popen([str(BIN / face), *words], cwd=self.folder, env=self.environment)

    def types(
        self, *words: str, status: int = 0, face: str = "armload"
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, face=face)
        out, err = process.communicate(timeout=800)
        assert process.returncode == status, f"{words} gave {process.returncode}:\n{out}\n{err}"
        assert "Traceback" not in err
        done = subprocess.CompletedProcess(words, process.returncode, out, err)
        check_document(done, *words)
        return done

    def chats(self, said: str, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Say one thing to a model, and take its answer as JSON."""
        done = subprocess.run(
            [str(BIN / "armload"), "chat", *words, "--json"],
            cwd=self.folder,
            env=self.environment,
            input=said,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def benches(self, *words: str, board: str = "mine") -> dict[str, Any]:
        """Run once, with one thread: two under an emulator on busy cores wait for each other."""
        single = ("--repeats", "1", "--threads", "1", "--json")
        run: dict[str, Any] = json.loads(
            self.types("bench", "--board", board, *single, *words).stdout
        )
        return run

    def on_board(self, command: str) -> str:
        done = subprocess.run(
            self._to_board(command),
            check=True,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout

    def waits_on_board(self, condition: str, beside: subprocess.Popen[str] | None = None) -> None:
        """Wait until a shell's condition holds on the board ``mine``.

        One login does it: each keeps an emulated board from its work for a while.

        Args:
            condition: that holds at last.
            beside: a process that must not end before.
        """
        words = self._to_board(f"until {condition}; do sleep 0.5; done")
        with subprocess.Popen(words, stdin=subprocess.DEVNULL) as waiting:
            while waiting.poll() is None:
                if beside is not None and beside.poll() is not None:
                    waiting.kill()
                    raise AssertionError(beside.communicate())
                time.sleep(0.02)
        assert waiting.returncode == 0

    def _to_board(self, command: str) -> list[str]:
        machine = self.machine()
        if not machine or machine != self._reached:
            shown = json.loads(self.types("board.up", "--board", "mine", "--json").stdout)
            self._login = [
                "ssh",
                "-q",
                *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
                *("-i", shown["key"], "-p", str(shown["port"])),
                f"{shown['user']}@{shown['host']}",
            ]
            self._reached = self.machine()
        return [*self._login, command]

    def machine(self) -> int | None:
        """Return the process of the board ``mine``; none while it is off."""
        for path in self.folder.glob("cache/machines/mine-*/qemu.pid"):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(path.read_text()))
                if process.status() != psutil.STATUS_ZOMBIE:
                    return process.pid
        return None

    def interrupts(self, line: str, *words: str) -> str:
        """Press Ctrl-C when a command says a line that fits; return all that it said."""
        process = self.start(*words)
        assert process.stderr is not None
        said = ""
        while re.search(line, said) is None:
            heard = process.stderr.readline()
            assert heard, f"{words} ended before {line!r}:\n{said}"
            said += heard
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=60)[1]
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert said.count("Interrupted.") == 1
        return said
