"""A program that behaves as ``hdc`` does, with devices that are folders of this machine.

There is no public package of the real one. Its behaviour is taken from the OpenHarmony project's
page hdc.md and from the source (developtools_hdc: host/main.cpp, host/client.cpp,
common/async_cmd.cpp, common/transfer.cpp):

- it ends with status 0, whatever happens, and says ``[Fail]…`` on standard output;
- words that hold a space get double quotes around them, unescaped; all are joined by spaces; the
  device takes one pair of double quotes off the whole;
- a command's two streams are one pipe, whose other end is the command's standard input;
- output is printed in pieces of 512 bytes, each up to its first NUL byte;
- the first call leaves a server behind, which holds on to the caller's output.

What it has to say of its devices stands in ``state.json`` beside it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PIECE = 512


def echo(data: bytes) -> None:
    for start in range(0, len(data), PIECE):
        sys.stdout.buffer.write(data[start : start + PIECE].split(b"\0")[0])
        sys.stdout.buffer.flush()


def fail(text: str) -> None:
    echo(f"[Fail]{text}\n".encode())
    sys.exit(0)


def joined(words: list[str]) -> str:
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def trimmed(command: str) -> str:
    command = command.strip(" \t\n\v\f\r")
    if len(command) >= 2 and command[0] == command[-1] == '"':
        return command[1:-1]
    return command


def split(text: str) -> list[str]:
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', text)]


def shell(device: dict[str, Any], command: str) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [device["shell"], "-c", trimmed(command)],
        executable=device["program"],
        stdin=reader,
        stdout=writer,
        stderr=writer,
        env={"PATH": device["path"], "HOME": "/"},
        cwd="/",
        start_new_session=True,
    )
    os.close(writer)
    while data := os.read(reader, 1 << 16):
        echo(data)
    process.wait()


def transfer(device: dict[str, Any], source: str, target: str) -> None:
    began = time.monotonic()
    try:
        if Path(target).is_dir():
            target = f"{target}/{Path(source).name}"
        limit = device.get("cut_after_bytes")
        size = Path(source).stat().st_size
        if limit is not None and size > limit:
            data = Path(source).read_bytes()[:limit]
            Path(target).write_bytes(data)
            device["cut_after_bytes"] = None
            save()
            fail(f"Transfer Stop at:{limit}/{size}(Bytes), Reason: i/o error")
        shutil.copyfile(source, target)
    except OSError as error:
        words = (error.strerror or "").lower()
        fail(f"Error opening file: {words}, path:{target}")
    time_ms = (time.monotonic() - began) * 1000 + 1
    echo(
        f"FileTransfer finish, Size:{size}, File count = 1, time:{time_ms:.0f}ms "
        f"rate:{size / time_ms:.2f}kB/s\n".encode()
    )


STATE: dict[str, Any] = {}


def save() -> None:
    (HERE / "state.json").write_text(json.dumps(STATE))


def leave_a_server() -> None:
    pid_file = HERE / "server.pid"
    if not pid_file.exists():
        server = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        pid_file.write_text(str(server.pid))


def list_targets(*, verbose: bool) -> None:
    if not STATE["devices"]:
        echo(b"[Empty]\n")
    for key, device in STATE["devices"].items():
        known = "Unauthorized" if device.get("unauthorised") else "Connected"
        detail = f"\t\tUSB\t{known}\tlocalhost\thdc" if verbose else ""
        echo(f"{key}{detail}\n".encode())


def chosen(key: str | None) -> dict[str, Any]:
    devices: dict[str, dict[str, Any]] = STATE["devices"]
    if key is not None and key not in devices:
        fail("Not match target founded, check connect-key please")
    if key is None and len(devices) != 1:
        fail("ExecuteCommand need connect-key? please confirm a device by help info")
    device = devices[key] if key is not None else next(iter(devices.values()))
    if device.get("unauthorised"):
        echo(
            b"[Fail][E000002]:The device unauthorized.\r\nThis server's public key is not set.\r\n"
            b"Please check for a confirmation dialog on your device.\r\n"
            b"Otherwise try 'hdc kill' if that seems wrong.\n"
        )
        sys.exit(0)
    return device


def main(words: list[str]) -> None:
    STATE.update(json.loads((HERE / "state.json").read_text()))
    if STATE.get("no_server"):
        sys.stderr.write("Connect server failed\n")
        return
    leave_a_server()
    key = None
    if words[:1] == ["-t"]:
        key, words = words[1], words[2:]
    if words[:2] == ["list", "targets"]:
        list_targets(verbose=words[2:] == ["-v"])
    elif words[:1] == ["shell"] and len(words) > 1:
        shell(chosen(key), joined(words[1:]))
    elif words[:2] in (["file", "send"], ["file", "recv"]):
        source, target = split(joined(words[2:]))
        transfer(chosen(key), source, target)
    else:
        echo(b"Unknown command...\n")


if __name__ == "__main__":
    main(sys.argv[1:])
