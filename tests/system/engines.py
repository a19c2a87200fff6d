"""Real engines for tests: built in the ordinary cache, run under qemu-user."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from armload.analysis.summary import generating, prompting
from armload.build.archive import Archive
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import Source
from armload.build.target import load_target
from armload.core.yamlfile import load_named
from armload.engines.trace import Step, Trace

LAST_WITH_DECODE = load_named("toolchains/sources", "llama-cpp-2025-08", Archive)
"""A release whose tools call ``llama_decode`` and whose ``llama-cli`` continues a prompt."""


def engine(source: Source | None) -> Binary:
    (binary,) = build(load_target("rk3568"), source=source)
    return binary


def emulator() -> list[str]:
    program = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if program is None:
        pytest.skip("qemu-user is not installed (Debian: qemu-user)")
    return [program, "-cpu", "max"]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A finished run.

    Attributes:
        text: standard output.
        log: standard error.
        header: the trace's first line.
        steps: its other lines.
    """

    text: str
    log: str
    header: Trace
    steps: list[Step]

    @property
    def prompts(self) -> list[int]:
        """Tokens of each step that processed a prompt."""
        return [step.prompt_tokens for step in prompting(self.steps)]

    @property
    def generated(self) -> list[int]:
        """Tokens of each step that generated."""
        return [step.generated_tokens for step in generating(self.steps)]

    def engine_sums(self) -> dict[str, tuple[float, int]]:
        """Return milliseconds and count of ``prompt`` and ``generate``, as the engine says."""
        found = re.findall(
            r"(prompt eval|eval) time = +([\d.]+) ms / +(\d+) (?:tokens|runs)", self.log
        )
        names = {"prompt eval": "prompt", "eval": "generate"}
        return {names[name]: (float(ms), int(count)) for name, ms, count in found}


def read_trace(path: Path) -> tuple[Trace, list[Step]]:
    first, *others = path.read_text().splitlines()
    return Trace.model_validate(json.loads(first)), [
        Step.model_validate(json.loads(line)) for line in others
    ]


def command(binary: Binary, model: Path, prompt: str, extra: Sequence[str]) -> list[str]:
    words = [*emulator(), str(binary.path), "-m", str(model), "-p", prompt]
    if "--single-turn" not in extra:
        words.append("-no-cnv")
    perf = ["--perf"] if binary.program == "llama-completion" else []
    # One thread: two under an emulator on busy cores mostly wait for each other.
    return [*words, "--temp", "0", "-t", "1", *perf, *extra]


def run(binary: Binary, model: Path, folder: Path, prompt: str, *extra: str) -> Ran:
    trace = folder / "trace.jsonl"
    done = subprocess.run(
        command(binary, model, prompt, extra),
        env=os.environ | {"ARMLOAD_TRACE": str(trace)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    header, steps = read_trace(trace)
    return Ran(text=done.stdout, log=done.stderr, header=header, steps=steps)
