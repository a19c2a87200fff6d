"""Ed25519 keys: a board's own and the one that logs in there."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from armload.core.values import Value

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_TYPE = b"ssh-ed25519"


class KeyPair(Value):
    """One key in the forms that servers and clients read.

    Attributes:
        private: the private half, a file in OpenSSH's format.
        public: ``ssh-ed25519 AAAA…``, one line.
    """

    private: Path
    public: str


def key_pair(path: Path) -> KeyPair:
    """Return the key that is kept at ``path``; make it when there is none."""
    public_path = path.with_suffix(".pub")
    if not public_path.exists():
        private_text, public = _generated()
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(private_text)
        public_path.write_text(public + "\n", encoding="ascii")
    return KeyPair(private=path, public=public_path.read_text(encoding="ascii").strip())


def dropbear_form(path: Path) -> bytes:
    """Return a private key of ours in Dropbear's own format.

    That is the key's type and 64 bytes, the seed and the public half, each as an SSH
    string (``buf_put_ed25519_priv_key`` in Dropbear's source).
    """
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    raw = key.private_bytes(
        serialization.Encoding.Raw,
        serialization.PrivateFormat.Raw,
        serialization.NoEncryption(),
    )
    return _ssh_string(_TYPE) + _ssh_string(raw + _public_bytes(key))  # type: ignore[arg-type] # ours are all Ed25519


def _generated() -> tuple[bytes, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    blob = _ssh_string(_TYPE) + _ssh_string(_public_bytes(key))
    return private, f"{_TYPE.decode()} {base64.b64encode(blob).decode()}"


def _public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _ssh_string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
