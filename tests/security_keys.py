"""An SSH agent that holds a security key, as FIDO tokens are, made of software.

The formats are those of OpenSSH's PROTOCOL.u2f and of the IETF's draft on the agent's protocol. The
server that checks the signature is a real one.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KIND = b"sk-ssh-ed25519@openssh.com"
APPLICATION = b"ssh:"
TOUCHED = 1

LIST, LISTED = 11, 12
SIGN, SIGNED = 13, 14
FAILURE = 5


def text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


class SecurityKeyAgent:
    """The agent.

    Attributes:
        path: the agent's socket.
        public_line: for ``authorized_keys``.
        touched: how often it signed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.touched = 0
        self._key = Ed25519PrivateKey.generate()
        self._blob = text(KIND) + text(self._key.public_key().public_bytes_raw())
        self._blob += text(APPLICATION)
        self.public_line = f"{KIND.decode()} {base64.b64encode(self._blob).decode()}"

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, client.makefile("rwb") as stream:
            while len(head := stream.read(5)) == 5:
                length, kind = struct.unpack(">IB", head)
                reply = self._reply(kind, stream.read(length - 1))
                stream.write(text(reply))
                stream.flush()

    def _reply(self, kind: int, body: bytes) -> bytes:
        if kind == LIST:
            return bytes([LISTED]) + struct.pack(">I", 1) + text(self._blob) + text(b"a token")
        if kind != SIGN:
            return bytes([FAILURE])
        _, rest = cut(body)
        data, _ = cut(rest)
        self.touched += 1
        state = struct.pack(">BI", TOUCHED, self.touched)
        signed = hashlib.sha256(APPLICATION).digest() + state + hashlib.sha256(data).digest()
        signature = text(KIND) + text(self._key.sign(signed)) + state
        return bytes([SIGNED]) + text(signature)


def cut(data: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack(">I", data[:4])
    return data[4 : 4 + length], data[4 + length :]


@contextmanager
def security_key_agent(folder: Path) -> Iterator[SecurityKeyAgent]:
    folder.mkdir(parents=True, exist_ok=True)
    agent = SecurityKeyAgent(folder / "agent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(agent.path))
        listener.listen()
        Thread(target=agent.serve, args=(listener,), daemon=True).start()
        yield agent
