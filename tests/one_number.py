"""An engine of a test's own: a shell script that prints one number."""

from __future__ import annotations

import hashlib
from pathlib import Path

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.core.files import content
from armload.core.progress import Progress
from armload.deploy.follow import ProgressUpdate
from armload.deploy.payload import Payload, read_payload
from armload.engines.engine import Engine, RunContext
from armload.engines.job import BinaryRecord, Job, ModelRecord, RunSpec
from armload.engines.output import Output


class OneNumber(Engine):
    """Runs a script that prints one number, and may then wait to be stopped."""

    name = "one-number"

    def __init__(self, script: Path, progress: Progress, *, waits: bool = False) -> None:
        self._script = read_payload(script, progress)
        self._waits = waits

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._script.sha256} {self._waits}".encode()).hexdigest()[:16]

    @property
    def subject(self) -> RunSpec:
        return RunSpec(
            arguments={"waits": self._waits},
            binary=BinaryRecord(program=self._script.name, sha256=self._script.sha256),
            model=ModelRecord(name="", sha256="", size_bytes=None),
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        return (self._script,)

    @property
    def time_limit_s(self) -> float:
        return 60.0

    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Run anywhere."""

    def command(self, context: RunContext) -> tuple[str, ...]:
        (script,) = self._script.items(context.layout)
        return ("sh", str(script.remote))  # the board's own shell needs no launcher

    def program(self, context: RunContext) -> str:
        return "sh"

    def is_done(self, now: ProgressUpdate) -> bool:
        return self._waits and now.text.endswith("\n")

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        text = content(folder / "stdout").decode()
        missing = "" if text.strip().isdigit() else "No number is in the output."
        return Output(result={"number": int(text)} if not missing else None, missing=missing)


def one_number(folder: Path, words: str) -> Path:
    """Write a script, and return its path."""
    script = folder / "number.sh"
    script.write_text(f"#!/bin/sh\n{words}\n")
    script.chmod(0o755)
    return script
