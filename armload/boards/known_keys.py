"""Which server keys are known: the person's own files, and the ones that armload pinned."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

from armload.core.errors import ConnectError, PermanentConnectError
from armload.core.files import unreadable, write_whole
from armload.core.locks import locked
from armload.core.progress import Silent


def pinned_keys_file() -> Path:
    """Return the file of keys pinned by armload, in OpenSSH's known_hosts format."""
    return Path(platformdirs.user_config_dir("armload")) / "known_hosts"


def known_keys_name(host: str, port: int) -> str:
    """Return the name under which known_hosts files keep a server's key."""
    return host if port == 22 else f"[{host}]:{port}"


def user_key_files(configured: str | None) -> list[Path]:
    """Return the existing known_hosts files of the person and the system.

    Args:
        configured: ``UserKnownHostsFile`` of the SSH configuration, when it says so.
    """
    names = configured.split() if configured else ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    paths = [Path(os.path.expanduser(name)) for name in (*names, "/etc/ssh/ssh_known_hosts")]  # noqa: PTH111
    return [path for path in paths if path.is_file()]


def pinned_line(host: str, port: int) -> str | None:
    """Return the pinned key of a server, as ``ssh-ed25519 AAAA…``; none where there is none."""
    name = known_keys_name(host, port)
    file = pinned_keys_file()
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        first, _, key = line.partition(" ")
        if first == name:
            return key.strip()
    return None


def pin_key(host: str, port: int, key_line: str) -> None:
    """Make ``key_line`` (``ssh-ed25519 AAAA…``) the one pinned key of a server."""
    name = known_keys_name(host, port)
    file = pinned_keys_file()
    # Two boards may be trusted at once, each by a command of its own.
    with locked(file.with_name(".known_hosts.lock"), Silent(), waiting=""):
        former = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        kept = [line for line in former if line.split(" ", 1)[0] != name]
        lines = (*kept, f"{name} {key_line}")
        write_whole(file, "".join(f"{line}\n" for line in lines).encode())


def load_keys(load: Callable[[str], None], path: Path, board_name: str) -> None:
    """Read a file of known keys with paramiko's reader."""
    import paramiko

    try:
        with tempfile.NamedTemporaryFile(prefix="armload-known-") as plain:
            plain.write(_plain_lines(path.read_bytes()))
            plain.flush()
            load(plain.name)
    except OSError as error:
        raise unreadable(path, error) from error
    except paramiko.hostkeys.InvalidHostKey as error:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        number = next(n for n, line in enumerate(lines, 1) if line.strip() == error.line)
        raise _spoilt(path, number, board_name) from error
    except UnicodeDecodeError as error:
        raise _spoilt(path, _first_undecodable(path), board_name) from error


def _plain_lines(content: bytes) -> bytes:
    """Return a file's lines, those blank that only OpenSSH understands and keys that it revokes."""
    lines = content.split(b"\n")
    revoked = {line.split()[3] for line in lines if re.match(rb"\s*@revoked(\s+\S+){3}", line)}
    return b"\n".join(
        b"" if line.lstrip().startswith(b"@") or not revoked.isdisjoint(line.split()) else line
        for line in lines
    )


def _first_undecodable(path: Path) -> int:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return number
    return 1


def _spoilt(path: Path, line: int, board_name: str) -> ConnectError:
    return PermanentConnectError(
        f"{board_name}: {path}, line {line}: not a host key.", "Correct or remove that line."
    )
