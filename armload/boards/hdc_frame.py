"""The lines as which a script on the board frames a command's output and its status."""

from __future__ import annotations

from collections.abc import Iterator

from armload.boards.host import Piece


class Frame:
    """Reads what the framing script says, piece by piece."""

    def __init__(self) -> None:
        self.begun = False
        self.in_files = False
        self.status: int | None = None
        self._before = b""
        self._rest = b""
        self._broken = False
        self._stream = ""

    @property
    def unframed(self) -> bytes:
        """The output instead of a frame."""
        return self._before + self._rest

    def fed(self, data: bytes) -> Iterator[Piece]:
        """Take the next output, and yield the content of its frames."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            line = raw.strip()
            if not self.begun:
                self.begun = line == b"#begin"
                self._before += raw + b"\n"
            elif line.startswith(b"#exit ") and not self._broken:
                self.status = int(line.split()[1])
            elif line == b"#files":
                self.in_files = True
            elif line.startswith(b"#"):
                self._stream = line.decode()
            elif line and not self._broken:
                try:
                    decoded = _decoded(raw.rstrip(b"\r"))
                except ValueError:
                    # Hdc's own words, or those of a shell that is going down.
                    self._broken = True
                else:
                    yield ("stdout" if self._stream == "#out" else "stderr", decoded)


def _decoded(line: bytes) -> bytes:
    import base64

    if line.startswith(b" "):
        return bytes.fromhex(line.decode())
    return base64.b64decode(line, validate=True)
