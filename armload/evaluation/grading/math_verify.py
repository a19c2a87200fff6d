"""Grader ``math_verify``: the package math-verify, in a process of its own.

Computer algebra may take forever, and math-verify's own time limit works by a signal, which only a
main thread gets. So a process of its own answers, and is ended if it takes too long.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import select
import subprocess
import sys
import threading
from typing import IO, cast

from armload.core.errors import MissingToolError
from armload.core.shell import pip_install
from armload.evaluation.grading.grade import GraderFinding
from armload.evaluation.question import Question

TIME_LIMIT_S = 10.0
"""For one answer."""

_START_LIMIT_S = 120.0
_EXTRA = "math-verify[antlr4_13_2]"


def grade(text: str, question: Question) -> GraderFinding:
    """Compare an answer."""
    return _WORKER.grade(text, question.expected)


class Worker:
    """The process that grades, started when it is first needed; for one thread at a time.

    Args:
        time_limit_s: for one answer.
    """

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def grade(self, text: str, expected: str) -> GraderFinding:
        """Compare an answer; a failure says that the process took too long or died."""
        with self._lock:
            process = self._process or self._started()
            self._process = process
            line = self._asked(process, json.dumps([text, expected]), self._time_limit_s)
            if line:
                return GraderFinding.model_validate_json(line)
            status = process.poll()
            self._end()
        failure = (
            f"math-verify did not finish within {self._time_limit_s:g} s and was ended"
            if status is None
            else f"math-verify's process ended with status {status}"
        )
        return GraderFinding(correct=False, extracted=None, failure=failure)

    def close(self) -> None:
        """End the process; a later answer starts another."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[str]:
        if importlib.util.find_spec("math_verify") is None:
            raise MissingToolError(
                "The grader math_verify needs the package math-verify.",
                f"Install it: {pip_install(_EXTRA)}",
            )
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "armload.evaluation.grading.math_verify_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for the command, which then ends this process
        )
        self._process = process
        if self._asked(process, json.dumps(["", "1"]), _START_LIMIT_S):
            return process
        self._end()
        raise MissingToolError(
            "The package math-verify is installed but does not start.",
            f"Install it again: {pip_install('--force-reinstall', _EXTRA)}",
        )

    def _asked(self, process: subprocess.Popen[str], question: str, limit_s: float) -> str:
        """Return the answering line; empty if there is none in time."""
        stdin, stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        try:
            stdin.write(question + "\n")
            stdin.flush()
        except BrokenPipeError:
            process.wait()
            return ""
        ready, _, _ = select.select([stdout], [], [], limit_s)
        line = stdout.readline() if ready else ""
        if ready and not line:
            process.wait()
        return line

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None


_WORKER = Worker()
atexit.register(_WORKER.close)
