"""How a command is wrapped so that only its own output and its true status come back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from armload.core.shell import quote

# The start file of a person's shell may say something first; a command's own output follows this.
_MARK = b"armload-output-begins\n"

_MOST_BEFORE_BYTES = 1 << 18

_END_OF_SCRIPT = "armload-script-ends"

READING = (
    f's=; while IFS= read -r l && [ "$l" != {_END_OF_SCRIPT} ]; do s="$s$l\n"; done; eval "$s"'
)
"""A script that runs the one in its standard input; what follows there is that one's own.

``read`` takes no byte beyond its line. A shell that is given a script as its input may read ahead.
"""


_SPARE_S = 5


def bounded(command: str, limit_s: float) -> str:
    """Return the script that ends by itself once nobody waits for it any more.

    A shell that is waited for so long cannot take more time of a CPU. Nothing tells it when the
    connection has gone; what it starts, the limit holds for, too, unless ``lift_time`` is called.
    """
    return f"ulimit -S -t {math.ceil(limit_s) + _SPARE_S} 2>/dev/null\n{command}"


def marked(command: str) -> str:
    """Return the script that says where the command's output begins, and ends with its status."""
    # A signalled program ends this shell's command, not the shell: it still tells the status.
    return f"echo {_MARK.decode().strip()}\n{command}\nexit $?\n"


def to_be_read(script: str) -> bytes:
    """Return a script as ``READING`` takes it, before the script's own standard input."""
    return f"{script}{_END_OF_SCRIPT}\n".encode("utf-8", "surrogateescape")


def shell_line(script: str) -> str:
    """Return the line that runs a script in a POSIX shell, whatever shell the line is given to."""
    return f"exec sh -c {quote(script)}"


class UnmarkedError(ValueError):
    """The login shell writes more than a greeting, and does not run the command."""


def after_mark(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what the command itself writes; first an empty block when that begins.

    Raises:
        UnmarkedError: it does not begin.
    """
    before: bytes | None = b""
    for block in blocks:
        if before is None:
            yield block
            continue
        if len(before) > _MOST_BEFORE_BYTES:
            raise UnmarkedError(f"the login shell wrote more than {_MOST_BEFORE_BYTES >> 10} KiB")
        before, mark, rest = (before + block).partition(_MARK)
        if mark:
            before = None
            yield b""
            if rest:
                yield rest


def own_output(stdout: bytes) -> bytes | None:
    """Return what the command itself wrote; none if the login shell did not run it."""
    _, mark, output = stdout.partition(_MARK)
    return output if mark else None


def receiving(path: PurePosixPath, offset_bytes: int) -> str:
    """Return the command that writes its standard input to a file, from an offset on.

    It ends a former one that still writes to the file, and cuts the file at the offset.
    """
    return f"{cutting(path, offset_bytes)} && {appending(path, offset_bytes)}"


def cutting(path: PurePosixPath, offset_bytes: int) -> str:
    """Return the first half of ``receiving``, for lines that are too short for both."""
    # Data from a dropped connection may still be on its way into the file, out of an old cat.
    return (
        f't={quote(path)}; [ -r "$t.writer" ] && read -r p <"$t.writer" && '
        'while [ "/proc/$p/fd/1" -ef "$t" ]; do kill "$p"; sleep 0.1 2>/dev/null || sleep 1; '
        f"done; {_cut(path, offset_bytes) if offset_bytes else ':'}"
    )


def appending(path: PurePosixPath, offset_bytes: int) -> str:
    """Return the second half of ``receiving``; the file ends at the offset."""
    redirect = ">>" if offset_bytes else ">"
    return (
        f't={quote(path)}; exec 3<&0; {{ cat <&3 {redirect}"$t" & p=$!; }} && exec 3<&- && '
        'echo "$p" >"$t.writer"; wait "$p"; s=$?; rm -f "$t.writer"; (exit "$s")'
    )


def size_of(path: PurePosixPath) -> str:
    """Return the command that prints a file's length; some tools' ``wc`` reads all of the file."""
    return f"{{ stat -L -c %s {quote(path)} 2>/dev/null || wc -c <{quote(path)}; }}"


def reason(stderr: bytes) -> str:
    """Return why a shell's command failed, in the board's words."""
    words = stderr.decode("utf-8", "replace").strip().removeprefix("sh: ")
    return words or "the board gave no reason"


def parts_of(text: str) -> dict[str, list[str]]:
    """Return the lines that follow each line ``#armload NAME``."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#armload "):
            lines = parts.setdefault(line.removeprefix("#armload "), [])
        else:
            lines.append(line)
    return parts


def _cut(path: PurePosixPath, length: int) -> str:
    # A board can lack truncate and dd; mostly there is nothing to cut.
    target, beside = quote(path), quote(path.with_name(f"{path.name}.cut"))
    # Compared as words: a shell's numbers may have 32 bits. What wc puts around it is left out.
    return (
        f"{{ [ $({size_of(path)}) = {length} ]"
        f" || truncate -s {length} {target} 2>/dev/null"
        f" || dd if=/dev/null of={target} bs=1 seek={length} 2>/dev/null"
        f" || {{ head -c {length} <{target} >{beside} && mv -f {beside} {target}; }}; }}"
    )
