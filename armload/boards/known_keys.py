"""Which server keys are known: the person's own files, and the ones that armload pinned."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from armload.core.files import write_whole


def pinned_keys_file() -> Path:
    """Return the file of keys pinned by armload, in OpenSSH's known_hosts format."""
    return Path(platformdirs.user_config_dir("armload")) / "known_hosts"


def known_keys_name(host: str, port: int) -> str:
    """Return the name under which known_hosts files keep a server's key."""
    return host if port == 22 else f"[{host}]:{port}"


def persons_key_files(configured: str | None) -> list[Path]:
    """Return the existing known_hosts files of the person and the system.

    Args:
        configured: ``UserKnownHostsFile`` of the SSH configuration, when it says so.
    """
    names = configured.split() if configured else ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    paths = [Path(os.path.expanduser(name)) for name in (*names, "/etc/ssh/ssh_known_hosts")]  # noqa: PTH111
    return [path for path in paths if path.is_file()]


def pin_key(host: str, port: int, key_line: str) -> None:
    """Make ``key_line`` (``ssh-ed25519 AAAA…``) the one pinned key of a server."""
    name = known_keys_name(host, port)
    file = pinned_keys_file()
    former = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    kept = [line for line in former if line.split(" ", 1)[0] != name]
    write_whole(file, "".join(f"{line}\n" for line in (*kept, f"{name} {key_line}")).encode())
