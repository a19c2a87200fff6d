"""What is kept on this machine about a board that runs there, and the keys of its login."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import stat
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from armload.boards.board import Board, SshAddress
from armload.boards.virtual.process import Started
from armload.core.errors import ConnectError
from armload.core.files import write_whole
from armload.core.places import cache_folder
from armload.core.values import Value
from armload.core.workspace import workspace

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
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        private_text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        blob = _ssh_string(_TYPE) + _ssh_string(_public_bytes(key))
        public = f"{_TYPE.decode()} {base64.b64encode(blob).decode()}"
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
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    return _ssh_string(_TYPE) + _ssh_string(raw + _public_bytes(key))  # type: ignore[arg-type] # ours are all Ed25519


def _public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _ssh_string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


DISK = "disk.img"
_FILE = "machine.json"
_LONGEST_SOCKET_PATH = 100  # the systems' limits are 104 and 108 bytes


class MachineState(Value):
    """A board that was switched on.

    Attributes:
        process: that holds the port.
        port: of its SSH server, on the loopback interface.
        answered: the SSH server has greeted since.
        is_stopping: somebody has asked for its end.
    """

    process: Started
    port: int
    answered: bool
    is_stopping: bool = False


class Keys(Value):
    """The board's own key and the one that logs in there."""

    host: KeyPair
    client: KeyPair


def machine_folder(board: Board) -> Path:
    """Return where a machine's disk, keys and state are: one for each board and workspace."""
    where = hashlib.sha256(os.fsencode(workspace().resolve())).hexdigest()[:8]
    what = hashlib.sha256(board.reach.model_dump_json().encode()).hexdigest()[:8]
    return cache_folder() / "machines" / f"{board.name}-{where}-{what}"


def sibling_folders(board: Board) -> list[Path]:
    """Return the folders of all machines for this board, whatever its file was at the time."""
    own = machine_folder(board)
    prefix = own.name.rpartition("-")[0]
    return sorted(path for path in own.parent.glob("*") if path.name.rpartition("-")[0] == prefix)


def running_machines(board: Board) -> list[tuple[Path, MachineState]]:
    found = ((folder, machine_state(folder)) for folder in sibling_folders(board))
    return [(folder, powered) for folder, powered in found if powered is not None]


def machine_keys(folder: Path) -> Keys:
    """Return a machine's keys; make them the first time."""
    return Keys(host=key_pair(folder / "host_key"), client=key_pair(folder / "client_key"))


def machine_state(folder: Path) -> MachineState | None:
    """Return the machine's state, if the very process that was started still has the port."""
    found = _kept(folder)
    if found is None:
        return None
    alive = found.process.is_alive() and found.process.listens_on(found.port)
    return found if alive else None


def was_stopped(folder: Path) -> bool:
    """Say whether somebody switched a machine off that was on; else its process just ended."""
    found = _kept(folder)
    return found is None or found.is_stopping


def _kept(folder: Path) -> MachineState | None:
    try:
        return MachineState.model_validate_json((folder / _FILE).read_bytes())
    except (OSError, ValueError):
        return None


def has_disk_open(folder: Path) -> bool:
    """Say whether a machine is on, even one of another container, whose processes nobody sees here.

    QEMU locks the image for as long as it runs (docs/system/qemu-block-drivers, "Disk image file
    locking").
    """
    if not hasattr(fcntl, "F_OFD_GETLK"):  # containers share a kernel on Linux alone
        return False
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with (folder / DISK).open("rb") as disk:
            found = fcntl.fcntl(disk, fcntl.F_OFD_GETLK, asked)
    except OSError:  # there is no disk yet, or no such lock on its file system
        return False
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def keep(folder: Path, state: MachineState) -> MachineState:
    write_whole(folder / _FILE, state.model_dump_json(indent=1).encode())
    return state


def mark_off(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)


def address_of(folder: Path, state: MachineState) -> SshAddress:
    """Return how to log in: with the machine's key pinned, so no other can answer for it."""
    keys = machine_keys(folder)
    return SshAddress(
        host="127.0.0.1",
        port=state.port,
        user="root",
        key=keys.client.private,
        host_key=keys.host.public,
    )


def last_lines(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-5:]) or "it printed nothing."


def socket_path(folder: Path, name: str) -> Path:
    """Return a path that is short enough for a socket, in a folder that only we can enter."""
    beside = folder.resolve() / f"{name}.sock"
    if len(os.fsencode(beside)) <= _LONGEST_SOCKET_PATH:
        return beside
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    private = runtime / f"armload-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    status = private.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ConnectError(
            f"{private} belongs to someone else.", "Set XDG_RUNTIME_DIR to a folder of your own."
        )
    short = hashlib.sha256(os.fsencode(beside)).hexdigest()[:16]
    return private / f"{short}.{name}"
