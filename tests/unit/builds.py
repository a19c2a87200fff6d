"""Builds as they lie in the cache, each with what a test does not care about."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.build.record import BuildRecord, Program
from tests.unit.test_build_record import INPUTS

_HOLD = """
import sys
from pathlib import Path
from armload.core.locks import locked
from armload.core.progress import Silent
with locked(Path(sys.argv[1]), Silent(), waiting=""):
    print("held", flush=True)
    sys.stdin.read()
"""


def finished_build(
    cache: Path,
    build_id: str = "0123456789ab",
    *,
    size_bytes: int = 100_000,
    built_utc: str = "2026-11-21T20:00:00+00:00",
) -> Path:
    folder = cache / "builds" / build_id
    folder.mkdir(parents=True)
    content = b"\7" * size_bytes
    (folder / "llama-completion").write_bytes(content)
    record = BuildRecord(
        build_id=build_id,
        inputs=INPUTS,
        engine_commit="1.2.3",
        offered=("llama-completion",),
        programs=(
            Program(
                name="llama-completion",
                sha256=hashlib.sha256(content).hexdigest(),
                size_bytes=size_bytes,
                version=None,
                features=(),
                tools={},
                built_utc=built_utc,
                built_on="this machine",
                seconds=1.0,
            ),
        ),
    )
    (folder / "build.json").write_text(record.model_dump_json())
    folder.with_name(f"{build_id}.lock").touch()
    return folder


def unfinished_build(
    cache: Path, build_id: str = "ba9876543210", size_bytes: int = 100_000
) -> Path:
    folder = cache / "builds" / build_id
    (folder / "tree").mkdir(parents=True)
    (folder / "build.log").write_text("configuring\n")
    (folder / "tree" / "object.o").write_bytes(b"\7" * size_bytes)
    folder.with_name(f"{build_id}.lock").touch()
    return folder


@contextmanager
def held_elsewhere(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a lock."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()
