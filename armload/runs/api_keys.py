"""API keys of services, each in a file that nobody else on this machine may read."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path, PurePosixPath

import platformdirs

from armload.boards.host import Host
from armload.core.files import written_in
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries


def new_key() -> str:
    """Return a key that nobody guesses."""
    return secrets.token_urlsafe(32)


def key_on_board(host: Host, workdir: PurePosixPath) -> str:
    """Read the key of the service that runs on a board."""
    path = Layout(workdir=workdir).api_key
    return with_retries(lambda: b"".join(host.read(path))).decode("ascii", "replace").strip()


def key_file(run_id: str) -> Path:
    """Return where this machine keeps the key of a service."""
    return Path(platformdirs.user_state_dir("armload")) / "services" / f"{run_id}.key"


def keep_key(run_id: str, key: str) -> Path:
    """Write a service's key for programs of this user, and return where."""
    return write_key(key_file(run_id), key)


def write_key(path: Path, key: str) -> Path:
    """Write a key into a file that nobody else may read, and return the file."""
    with written_in(path.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{key}\n")
    return path


def kept_keys() -> frozenset[str]:
    """Return the ids of the services whose keys this machine keeps."""
    try:
        files = list(key_file("any").parent.glob("*.key"))
    except OSError:  # such as in a home folder of somebody else's
        return frozenset()
    return frozenset(path.name.removesuffix(".key") for path in files)


def forget_key(run_id: str) -> None:
    """Delete a service's key from this machine, where there is one."""
    with contextlib.suppress(OSError):  # such as in a home folder of somebody else's
        key_file(run_id).unlink(missing_ok=True)
