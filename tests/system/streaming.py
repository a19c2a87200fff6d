"""Models that are wide enough to be streamed, and an engine that is started with one."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.build.binary import Binary
from armload.engines.trace import Step, Trace, read_trace
from armload.models.shape import Shape
from tests.system.engines import command

COVERED = ["armload/analysis/streaming.py", "armload/engines/weights.py", "toolchains"]

WIDE = Shape(
    layers=6,
    width=512,
    feed_forward=2048,
    heads=8,
    kv_heads=8,
    vocabulary=2048,
    context_length=512,
)
LARGE = Shape(
    layers=16,
    width=768,
    feed_forward=3072,
    heads=12,
    kv_heads=12,
    vocabulary=2048,
    context_length=256,
)
"""Of 164 MB in Q8_0, on a board with 192 MiB of memory."""

EXPERTS = {"experts": 4, "experts_used": 2}

NOBODY = 65534
AS_NOBODY = [
    *("prlimit", "--memlock=65536"),
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
]
MEMINFO = "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\n"


def a_folder_of_nobodys(folder: Path) -> Path:
    """Make a folder that can be reached without privileges: pytest closes its own to others."""
    made = folder / "nobodys"
    made.mkdir()
    os.chown(made, NOBODY, NOBODY)
    for parent in made.parents:
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    return made


def streamed(resident_bytes: int = 8 << 20) -> dict[str, str]:
    """Return the variables that ask a program to stream its weights."""
    return {"ARMLOAD_WEIGHTS": "streamed", "ARMLOAD_RESIDENT": str(resident_bytes)}


def starts(
    binary: Binary,
    model: Path,
    trace: Path,
    variables: Mapping[str, str],
    *more: str,
    launcher: Sequence[str] = (),
) -> subprocess.Popen[str]:
    words = command(binary, model, "one two three", ["-c", "256", "--ignore-eos", *more])
    return subprocess.Popen(
        [*launcher, *words],
        env={**os.environ, **variables, "ARMLOAD_TRACE": str(trace)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def text_of(process: subprocess.Popen[str]) -> str:
    out, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    return out


def traced(trace: Path) -> tuple[Trace, tuple[Step, ...]]:
    header, steps = read_trace(trace)
    assert header is not None
    return header, steps
