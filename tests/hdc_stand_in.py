"""A program that behaves as ``hdc`` does, with devices that are folders of this machine.

There is no public package of the real one. Its behaviour is taken from the OpenHarmony project's
page hdc.md and from the source (developtools_hdc: host/main.cpp, host/client.cpp,
common/async_cmd.cpp, common/transfer.cpp, common/forward.cpp):

- it ends with status 0, whatever happens, and says ``[Fail]…`` on standard output;
- words that hold a space get double quotes around them, unescaped; all are joined by spaces; the
  device takes one pair of double quotes off the whole;
- a command's two streams are one pipe, whose other end is the command's standard input;
- output is printed in pieces of 512 bytes, each up to its first NUL byte;
- the first call leaves a server behind, which holds on to the caller's output;
- ``fport`` makes that server listen on a local port (common/forward.cpp): on 127.0.0.1, in old
  releases on all addresses. It says OK whether or not anything listens on the device. When either
  side of a connection ends, and be it only for sending, both connections are closed. The rules of a
  device go when the device goes.

What it has to say of its devices stands in ``state.json`` beside it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
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


def rule_file(key: str, ports: tuple[int, int]) -> Path:
    return HERE / f"rule-{ports[0]}-{ports[1]}-{key}"


def port_of(node: str) -> int:
    kind, _, number = node.partition(":")
    if kind != "tcp" or not number.isdecimal() or not 0 < int(number) < 65536:
        fail("Forward parament failed")
    return int(number)


def forward(key: str, address: str, ports: tuple[int, int]) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, ports[0]))
        listener.listen(128)
    except OSError:
        fail(f"TCP Port listen failed at {ports[0]}")
    sys.stdout.flush()
    if pid := os.fork():
        rule_file(key, ports).write_text(str(pid))
        echo(b"Forwardport result:OK\n")
        return
    os.setsid()
    Thread(target=serve_forward, args=(listener, ports[1]), daemon=True).start()
    while is_attached(key):
        time.sleep(0.01)
    listener.shutdown(socket.SHUT_RDWR)
    rule_file(key, ports).unlink(missing_ok=True)
    os._exit(0)


def is_attached(key: str) -> bool:
    try:
        return key in json.loads((HERE / "state.json").read_text())["devices"]
    except ValueError:
        return True  # it is just being written


def serve_forward(listener: socket.socket, port: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # the device has gone
        try:
            service = socket.create_connection(("127.0.0.1", port))
        except OSError:
            client.close()
            continue
        for ends in ((client, service), (service, client)):
            Thread(target=carry, args=ends, daemon=True).start()


def carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def end_forward(key: str, ports: tuple[int, int]) -> None:
    words = f"tcp:{ports[0]} tcp:{ports[1]}"
    rule = rule_file(key, ports)
    try:
        os.kill(int(rule.read_text()), signal.SIGKILL)
        rule.unlink()
        while True:
            socket.create_connection(("127.0.0.1", ports[0])).close()
    except ConnectionRefusedError:
        pass
    except OSError:
        fail(f"Remove forward ruler failed, ruler is not exist {words}")
    echo(f"Remove forward ruler success, ruler:{words}\n".encode())


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
    elif words[:1] == ["fport"] and len(words) in (3, 4):
        device = chosen(key)
        known = next(name for name, one in STATE["devices"].items() if one is device)
        ports = (port_of(words[-2]), port_of(words[-1]))
        if words[1] == "rm":
            end_forward(known, ports)
        else:
            forward(known, device.get("listens_on", "127.0.0.1"), ports)
    else:
        echo(b"Unknown command...\n")


if __name__ == "__main__":
    main(sys.argv[1:])
