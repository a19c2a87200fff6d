"""Real SSH servers on the loopback, each with a key, a login key and a place of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.boards.address import SshAddress


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_key(path: Path) -> str:
    """Make a key pair and return its public line without the comment."""
    keygen = shutil.which("ssh-keygen")
    if keygen is None:
        pytest.skip("ssh-keygen is not installed (Debian: openssh-client)")
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    kind, base64 = path.with_suffix(".pub").read_text().split()[:2]
    return f"{kind} {base64}"


def wait_for_banner(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        if process.poll() is not None:
            break
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
                if line.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail(f"the server did not start: {log.read_text()}")


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def openssh(folder: Path, *, port: int | None = None, extra: str = "") -> Iterator[SshAddress]:
    """Run OpenSSH's server as this user until the block ends."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin")
    if sshd is None:
        pytest.skip("no OpenSSH server is installed (Debian: openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "host").exists():
        make_key(folder / "host")
        make_key(folder / "login")
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    shutil.copy(folder / "login.pub", folder / "authorized")
    chosen = port or free_port()
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {chosen}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        # Bash reads a start file for SSH commands unless it is an inner shell.
        f"MaxSessions 20\nSetEnv SHLVL=2\n{extra}"
    )
    log = folder / "sshd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stdout=output, stderr=output
        )
    try:
        wait_for_banner(chosen, process, log)
        yield SshAddress(
            host="127.0.0.1",
            port=chosen,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            key=folder / "login",
            host_key=host_key,
        )
    finally:
        end(process)
