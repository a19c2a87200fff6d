"""A board reached by a tool for devices on a USB cable or a network, such as OpenHarmony's ``hdc``.

The tool's ``shell`` may tell no exit status, merge the streams, change line ends, cut the output at
NUL bytes, or give a command its own output as input. A script on the board frames all that as text.
Bulk data go as files, each compared by its length; who needs to be sure compares checksums.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path, PurePosixPath

from armload.boards.bulk import MOST_OUTPUT_BYTES, TRANSFER_SILENCE_S, reporting_chunks, too_much
from armload.boards.device_forward import DeviceForward
from armload.boards.device_tool import DeviceTool
from armload.boards.failures import SlowCommandError
from armload.boards.forward import Proxy, proxied
from armload.boards.framing import bounded, reason, receiving
from armload.boards.host import Completed, OutputChunk, TransportChoice
from armload.core.errors import ArmloadError, BoardError, ConnectError, LostConnectionError
from armload.core.files import CHUNK_BYTES
from armload.core.shell import quote, render
from armload.core.values import whole_number


class Frame:
    """Reads what the framing script says, chunk by chunk."""

    def __init__(self, board_name: str) -> None:
        self._name = board_name
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

    def fed(self, data: bytes) -> Iterator[OutputChunk]:
        """Take the next output, and yield the content of its frames."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(len(self._rest), len(self._before)) > _LONGEST_LINE_BYTES:
            raise too_much(self._name, _LONGEST_LINE_BYTES)
        for raw in lines:
            line = raw.strip()
            if not self.begun:
                self.begun = line == b"#begin"
                self._before += raw + b"\n"
            elif line.startswith(b"#exit ") and not self._broken:
                self.status = whole_number(line.split()[1].decode("ascii", "replace"))
            elif line == b"#files":
                self.in_files = True
            elif line.startswith(b"#"):
                self._stream = line.decode("utf-8", "replace")
            elif line and not self._broken:
                try:
                    if raw.startswith(b" "):
                        decoded = bytes.fromhex(raw.rstrip(b"\r").decode())
                    else:
                        decoded = base64.b64decode(raw.rstrip(b"\r"), validate=True)
                except ValueError:
                    # The tool's own words, or those of a shell that is going down.
                    self._broken = True
                else:
                    yield ("stdout" if self._stream == "#out" else "stderr", decoded)


_LONGEST_LINE_BYTES = 1 << 20
"""The encoders break their lines after some 80 characters; no greeting is longer, either."""


# No limit is documented, so long commands go as files.
LONGEST_COMMAND_BYTES = 900
SLICE_BYTES = 16 << 20
_FOLDERS = ("/data/local/tmp", "/tmp")  # noqa: S108 - a folder of our own is made in it
_ENCODERS = ("base64", "toybox base64", "busybox base64", "od -An -v -tx1")


class DeviceHost:
    """The Host protocol over such a tool."""

    def __init__(self, tool: DeviceTool, board_name: str) -> None:
        self._name = board_name
        self._tool = tool
        self._folder_name = f".armload-{uuid.uuid4().hex[:12]}"
        self._made: PurePosixPath | None = None
        self._ready: PurePosixPath | None = None
        self._numbers = itertools.count(1)

    @property
    def name(self) -> str:
        return self._name

    @property
    def named(self) -> str:
        return f"--board {self._name}"

    @property
    def launcher(self) -> tuple[str, ...]:
        return ()

    def transports(self) -> tuple[TransportChoice, ...]:
        """Return how commands, data and clients reach the board."""
        self._folder()
        tool = self._tool
        return (
            TransportChoice(
                purpose="commands",
                chosen=f"{tool.name} shell, framed as text",
                reason=tool.why_framed,
            ),
            TransportChoice(
                purpose="long commands",
                chosen=tool.sending,
                reason=f"above {LONGEST_COMMAND_BYTES} bytes, as no limit is documented",
            ),
            TransportChoice(
                purpose="bulk data",
                chosen=f"{tool.sending}, in slices of {SLICE_BYTES >> 20} MiB",
                reason=tool.no_resuming,
            ),
            TransportChoice(
                purpose="port forwarding",
                chosen=tool.forwarding,
                reason=f"it is {tool.name}'s own; it does not pass on half-closed connections",
            ),
        )

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        late = f"{self._name}: no answer within {timeout_s:g} s."
        with self._renewed():
            number, line = self._prepared("run", bounded(command, timeout_s), stdin)
            deadline = time.monotonic() + timeout_s
            frame = Frame(self._name)
            try:
                for block in self._tool.shell(line, lambda now: deadline - now, late):
                    for stream, data in frame.fed(block):
                        output[stream] += data
                        if sum(map(len, output.values())) > MOST_OUTPUT_BYTES:
                            raise too_much(self._name, MOST_OUTPUT_BYTES)
            except ConnectError as error:
                if time.monotonic() >= deadline and self._answers():
                    raise SlowCommandError(self._name, timeout_s) from error
                raise
            status = self._status(frame)
            if frame.in_files:
                folder = self._folder()
                for stream, ending in (("stdout", "out"), ("stderr", "err")):
                    file = folder / f"{number}.{ending}"
                    for block in self._fetched(file, most_bytes=MOST_OUTPUT_BYTES):
                        output[stream] += block
                self._tool.run_lines(f"rm -f {folder}/{number}.*")
        return Completed(
            status=status, stdout=bytes(output["stdout"]), stderr=bytes(output["stderr"])
        )

    def stream(
        self, command: str, *, silence_s: float = 30.0
    ) -> Generator[OutputChunk, None, None]:
        late = f"{self._name}: no data for {silence_s:g} s."
        with self._renewed():
            _, line = self._prepared("stream", command, b"")
            frame = Frame(self._name)
            heard_at = time.monotonic()
            blocks = self._tool.shell(line, lambda now: heard_at + silence_s - now, late)
            for block in blocks:
                for chunk in frame.fed(block):
                    yield chunk
                    heard_at = time.monotonic()
            self._status(frame)

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        with self._renewed():
            beside = self._folder() / f"{next(self._numbers)}.read"
            # The tool may split its arguments at spaces and quotes, so it gets a plain name.
            made = f"ln {quote(path)} {beside} 2>/dev/null || cp {quote(path)} {beside}"
            done = self.run(f": <{quote(path)} && {{ {made}; }}", timeout_s=600.0)
            if done.status != 0:
                raise BoardError(f"{self._name}: {path} cannot be read: {reason(done.stderr)}.")
            try:
                yield from self._fetched(beside)
            finally:
                self._tool.run_lines(f"rm -f {beside}")

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        self._write_slices(path, chunks, offset_bytes, lambda _: None)

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        sent(offset_bytes)
        chunks = reporting_chunks(local, offset_bytes, lambda _: None)
        self._write_slices(remote, chunks, offset_bytes, sent)

    def forwarded(self, port: int, local_port: int = 0) -> contextlib.AbstractContextManager[Proxy]:
        return proxied(lambda: DeviceForward(self._tool, self._name, port), self._name, local_port)

    def reverse_forwarded(self, local_port: int) -> contextlib.AbstractContextManager[int]:
        del local_port
        raise BoardError(
            f"{self._name}: a board that is reached by {self._tool.name} cannot reach ports of "
            "this machine.",
            "Reach it by SSH.",
        )

    def close(self) -> None:
        """Remove what lies on the board for the sake of this connection."""
        if self._made is not None:
            with contextlib.suppress(ArmloadError):
                self._tool.run_lines(f"rm -rf {self._made}")
            self._ready = self._made = None

    def _write_slices(
        self,
        path: PurePosixPath,
        chunks: Iterable[bytes],
        position: int,
        sent: Callable[[int], None],
    ) -> None:
        slices = _slices(chunks)
        # Without content the file is cut at the position all the same.
        for data in itertools.chain([next(slices, b"")], slices):
            done = self.run(receiving(path, position), stdin=data, timeout_s=TRANSFER_SILENCE_S)
            if done.status != 0:
                raise BoardError(f"{self._name}: {path} cannot be written: {reason(done.stderr)}.")
            if data:
                position += len(data)
                sent(position)

    @contextlib.contextmanager
    def _renewed(self) -> Iterator[None]:
        try:
            yield
        except ConnectError:
            self._ready = None
            raise

    def _folder(self) -> PurePosixPath:
        """Return the folder on the board for this connection's files; made by the first call."""
        if self._ready is None:
            words = " ".join(f"'{encoder}'" for encoder in _ENCODERS)
            lines = self._tool.run_lines(
                f"umask 077; for d in {' '.join(_FOLDERS)}; do d=$d/{self._folder_name}; "
                f'[ -d "$d" ] || mkdir "$d" 2>/dev/null && {{ echo "#folder $d"; break; }}; done; '
                f"for e in {words}; do x=$(echo a | $e 2>/dev/null) && "
                f'[ -n "$x" ] && {{ echo "#encoder $e"; break; }}; done; echo "#end"'
            )
            found = dict(line[1:].split(" ", 1) for line in lines if re.match("#[a-z]+ ", line))
            if found.get("folder", "") not in {f"{each}/{self._folder_name}" for each in _FOLDERS}:
                found.pop("folder", None)
            if found.get("encoder") not in _ENCODERS:
                found.pop("encoder", None)
            if "folder" not in found or "encoder" not in found:
                what = "base64 or od" if "folder" in found else f"a folder of {_FOLDERS}"
                raise BoardError(
                    f"{self._name}: {what} is needed on the board, and none is usable.",
                    f"Commands over {self._tool.name} need both. Install them, or reach the board "
                    "over SSH, which needs neither.",
                )
            self._made = folder = PurePosixPath(found["folder"])
            values = {"folder": folder, "encoder": found["encoder"].split()}
            self._sent(render("board/device.sh.j2", values).encode(), folder / "frame")
            self._ready = folder
        return self._ready

    def _prepared(self, mode: str, command: str, stdin: bytes) -> tuple[int, str]:
        folder, number = self._folder(), next(self._numbers)
        if stdin:
            self._sent(stdin, folder / f"{number}.in")
        script = f"{command}\nexit $?\n"
        line = f"sh {folder}/frame {number} {mode}"
        if len(script.encode()) <= LONGEST_COMMAND_BYTES:
            return number, f"{line} {quote(script)} </dev/null"
        self._sent(script.encode(), folder / f"{number}.sh")
        return number, f"{line} </dev/null"

    def _sent(self, data: bytes, remote: PurePosixPath) -> None:
        with tempfile.TemporaryDirectory(prefix="armload-device-") as name:
            local = Path(name, "file")
            local.write_bytes(data)
            self._tool.send(local, remote)

    def _fetched(self, remote: PurePosixPath, *, most_bytes: int | None = None) -> Iterator[bytes]:
        with tempfile.TemporaryDirectory(prefix="armload-device-") as name:
            local = Path(name, "file")
            answer = self._tool.run_lines(f"wc -c <{remote}")
            size = answer[0].strip() if len(answer) == 1 else ""
            if whole_number(size) is None:
                said = " ".join(answer) or "no answer"
                raise BoardError(f"{self._name}: {remote} is no longer on the board: {said}.")
            if int(size) == 0:
                return
            if most_bytes is not None and int(size) > most_bytes:
                raise too_much(self._name, most_bytes)
            self._tool.receive(remote, local, int(size))
            with local.open("rb") as file:
                yield from iter(lambda: file.read(CHUNK_BYTES), b"")

    def _answers(self) -> bool:
        with contextlib.suppress(ConnectError):
            self._tool.run_lines("true")
            return True
        return False

    def _status(self, frame: Frame) -> int:
        if frame.status is not None:
            return frame.status
        if frame.begun:
            raise LostConnectionError(f"{self._name}: the connection dropped during a command.")
        raise self._tool.failure(frame.unframed)


def _slices(chunks: Iterable[bytes]) -> Iterator[bytes]:
    data = bytearray()
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            taken = SLICE_BYTES - len(data)
            data += rest[:taken]
            rest = rest[taken:]
            if len(data) == SLICE_BYTES:
                yield bytes(data)
                data.clear()
    if data:
        yield bytes(data)
