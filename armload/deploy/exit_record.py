"""What the files in a run's folder record about its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from armload.core.values import Count, Value, whole_number
from armload.deploy.layout import STDERR_FILE

Cut = Literal["restart", "lost"]
"""What ended a run without an exit status: the board's restart, or the end of the run's script."""

CUT_FILE = "cut"
"""Holds that word, in the folder of a run that was fetched after it was interrupted."""

_LAST_LINES = 3
_LAST_BYTES = 1 << 16
_LOGGED = re.compile(r"\d+\.\d+\.\d+\.\d+ (?P<level>[DIWE])( +|$)")
"""What a message of llama.cpp's log begins with: its time and level (common/log.cpp)."""
_ASSERTED = re.compile(r"\S+\.(c|cc|cpp|h|hpp|m|cu):\d+: ")
"""What ggml's last line begins with before it aborts; what follows it is a backtrace (ggml.c)."""
_BACKTRACE = re.compile(
    r"#\d+ |0x[0-9a-f]+ in |\[(New LWP|Inferior|Thread debugging)|Using host libthread_db|"
    r".*\[0x[0-9a-f]+\]$"
)
_LOGGED_AT = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\] *")
"""What a line of the kernel's log begins with: its level and time."""


class ExitRecord(Value):
    """What a run's script recorded when its program had ended.

    Attributes:
        status: exit status.
        df: the lines of ``df`` for the run's folder; none if it gave no figures.
        there, executable: whether the program's file is there, and may be executed.
        killed_line: what the kernel's log says of the program's end; empty when nothing.
        io_error_line: the last I/O error in the kernel's log, if the program could not read a
            file; empty when there is none.
        oom: the kernel counted a process that was killed for want of memory meanwhile.
        limit, stopped, finished: the board ended it at its time limit; a person did; armload did,
            because its work was done.
        unattended: it was a service, and its heartbeat had stopped.
        unleased: somebody else had the board before the run began, or while it ran.
        lacking_device: a device that llama.cpp was to use and did not find; empty where it was
            none.
        stderr_end: the last lines of standard error.
    """

    status: Count
    df: list[str]
    there: bool
    executable: bool
    killed_line: str
    io_error_line: str = ""
    oom: bool
    limit: bool
    stopped: bool
    finished: bool
    unattended: bool = False
    unleased: bool
    lacking_device: str = ""
    stderr_end: str


class Peaks(Value):
    """Memory as the board saw it once a second.

    Attributes:
        resident_bytes, virtual_bytes: the program's peaks.
        least_available_bytes: the least that was left for others; none in former runs.
    """

    resident_bytes: Count
    virtual_bytes: Count
    least_available_bytes: Count | None


def read_exit_record(folder: Path) -> ExitRecord | None:
    """Read how a run ended; none when it left no exit status."""
    try:
        first, *lines = (folder / "exit").read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return None
    status = whole_number(first)
    if status is None:
        return None
    printed = [line for line in lines if line.strip() and line[0] not in "#[<"]
    return ExitRecord(
        status=status,
        df=printed if any("%" in line for line in printed[1:]) else [],
        there="#program there" in lines,
        executable="#program executable" in lines,
        killed_line=next((line for line in lines if "Killed process" in line), ""),
        io_error_line=next((_LOGGED_AT.sub("", line) for line in lines if "I/O error" in line), ""),
        oom=(folder / "oom").exists(),
        limit=(folder / "limit").exists(),
        stopped=(folder / "stopped").exists(),
        finished=(folder / "finished").exists(),
        unattended=(folder / "unattended").exists(),
        unleased=(folder / "unleased").exists(),
        lacking_device=_lacking_device(folder / STDERR_FILE) if status else "",
        stderr_end=_last_words(folder / STDERR_FILE),
    )


def read_peaks(folder: Path) -> Peaks | None:
    """Read the peaks of memory; none when nothing was seen. Growth in the last second may lack."""
    try:
        # A shorter line may stand over a longer one.
        line, _, _ = (folder / "memory").read_text(encoding="ascii").partition("\n")
        virtual_kib, resident_kib, *least_kib = [int(word) for word in line.split()]
        return Peaks(
            resident_bytes=resident_kib * 1024,
            virtual_bytes=virtual_kib * 1024,
            least_available_bytes=least_kib[0] * 1024 if least_kib else None,
        )
    except (OSError, ValueError):
        return None


def read_cut(folder: Path) -> Cut | None:
    """Read what ended a run without an exit status; none where nothing did, or nobody knows."""
    path = folder / CUT_FILE
    word = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    return next((cut for cut in get_args(Cut) if cut == word), None)


_LACKING_DEVICE = re.compile(
    r'^error while handling argument "--device": .*?(Vulkan\d+)$', re.MULTILINE
)


def _lacking_device(path: Path) -> str:
    found = _LACKING_DEVICE.search(_end(path))
    return found[1] if found else ""


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _LAST_BYTES, 0))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _last_words(path: Path) -> str:
    text = _end(path)
    lines = _without_information(text)
    errors = [line for line in lines if (logged := _LOGGED.match(line)) and logged["level"] == "E"]
    asserted = next((line for line in lines if _ASSERTED.match(line)), None)
    if asserted is not None:
        told = [*errors[-1:], asserted]
    else:
        # The first error is the cause of those after it.
        last = [line for line in lines if not _BACKTRACE.match(line)][-_LAST_LINES:]
        told = [*errors[:1], *last]
    return " / ".join(dict.fromkeys(_LOGGED.sub("", line) for line in told))


def _without_information(text: str) -> list[str]:
    """Return the lines that may tell why a program ended; messages go on in indented lines."""
    lines, informs = [], False
    for line in filter(str.strip, text.splitlines()):
        logged = _LOGGED.match(line)
        informs = logged["level"] in "DI" if logged else informs and line[0].isspace()
        if not informs:
            lines.append(line.strip())
    return lines
