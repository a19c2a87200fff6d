"""Real SSH servers on the loopback, each with a key, a login key and a place of its own."""

from __future__ import annotations

import math
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType

import pytest

from armload.boards.board import SshAddress
from armload.boards.virtual.process import free_port
from armload.core.shell import join, quote


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
def openssh(
    folder: Path,
    *,
    port: int | None = None,
    extra: str = "",
    says: str = "",
    over: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[SshAddress]:
    """Run OpenSSH's server as this user until the block ends.

    Args:
        folder: for its files.
        port: a free one when left out.
        extra: more lines of its configuration.
        says: what the start file of the person's shell prints before each command.
        over: what its commands see in place of other files; that takes root.
    """
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
    if says:
        start = folder / "shell"
        start.write_text(
            f'#!/bin/sh\nprintf %s {quote(says)}\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        start.chmod(0o755)
        extra += f"ForceCommand {start}\n"
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {chosen}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        # Bash reads a start file for SSH commands unless it is an inner shell.
        f"MaxSessions 20\nSetEnv SHLVL=2\n{extra}"
    )
    log = folder / "sshd.log"
    with log.open("wb") as output:
        words = [sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
        if over:
            if os.geteuid() != 0:
                pytest.skip("a server that sees other files takes root")
            words = ["unshare", "-m", "/bin/sh", "-c", f"{_seen(over)}exec {join(words)}"]
        process = subprocess.Popen(words, stdout=output, stderr=output)
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


@contextmanager
def chrooted(folder: Path, *, tools: str) -> Iterator[SshAddress]:
    """Run OpenSSH's server whose commands see a plain folder as their root.

    Args:
        folder: for its files; ``root`` in it becomes the root, with /dev and /proc mounted.
        tools: a program that is many, such as toybox; the only ones there beside a shell.
    """
    program, shell = shutil.which(tools), shutil.which("mksh")
    if program is None or shell is None:
        pytest.skip(f"{tools} or mksh is not installed")
    root = folder / "root"
    for name in ("bin", "dev", "proc", "tmp"):
        (root / name).mkdir(parents=True)
    for path in (program, shell):
        shutil.copy(path, root / "bin")
        linked = subprocess.run(["ldd", path], check=False, capture_output=True, text=True).stdout
        for library in re.findall(r"/\S+", linked):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
    (root / "bin" / "sh").symlink_to("mksh")
    names = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    for name in {*names} - {"sh", "mksh", tools}:
        (root / "bin" / name).symlink_to(tools)
    start = folder / "shell"
    start.write_text(
        f"#!/bin/sh\nPATH=/bin exec {shutil.which('chroot')} {root} /bin/sh -c "
        '"$SSH_ORIGINAL_COMMAND"\n'
    )
    start.chmod(0o755)
    forced = f"ForceCommand {start}\n"
    over = {f"{root}/{name}": Path("/", name) for name in ("dev", "proc")}
    with openssh(folder, extra=forced, over=over) as address:
        yield address


def behind(jump: SshAddress, server: SshAddress, home: Path) -> SshAddress:
    """Return the address of a server that the person's SSH configuration reaches over another."""
    (home / ".ssh" / "config").write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
        f"  IdentityFile {jump.key}\n"
        f"Host behind\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
        f"  IdentityFile {server.key}\n  ProxyJump jump\n"
    )
    return SshAddress(host="behind", host_key=server.host_key)


def hashed(password: str) -> str:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    done = subprocess.run(
        [openssl, "passwd", "-6", "-stdin"],
        input=password,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def _seen(over: Mapping[str, Path], *, read_only: bool = False) -> str:
    """Return what begins a shell's line in a mount namespace, so that the rest sees other files."""
    mounts = (
        f"mount --bind {quote(ours)} {place} && "
        + (f"mount -o remount,bind,ro {place} && " if read_only else "")
        for place, ours in over.items()
    )
    return "".join(("mount --make-rprivate / && ", *mounts))


LONGEST_DROPBEAR_COMMAND_BYTES = 1024

# What an OpenHarmony product may leave out; each has another way.
RARE_TOOLS = frozenset({"sha256sum", "stat", "mkfifo", "setsid", "truncate", "nohup", "timeout"})


@contextmanager
def dropbear(
    folder: Path,
    *,
    shell: str,
    tools: str,
    without: frozenset[str] = frozenset(),
    password: str = "",
    asks_nothing: bool = False,
    extra: str = "",
    over: Mapping[str, Path] = MappingProxyType({}),
    read_only: bool = False,
) -> Iterator[SshAddress]:
    """Run dropbear, without SFTP, with nothing but ``shell`` and ``tools`` in its PATH.

    It lives in a mount namespace of its own, in which it finds its own /usr/bin and password
    file; that takes root.

    Args:
        folder: for its files.
        shell: a program that is a POSIX shell.
        tools: a program that is many, such as toybox.
        without: tools that are left out.
        password: that lets its root in, besides the key; none when it is empty.
        asks_nothing: it lets its root in without any proof.
        extra: more options of its command line.
        over: what its commands see in place of other files and folders.
        read_only: they cannot be written there.
    """
    found = {name: shutil.which(name) for name in (shell, tools, "unshare", "dropbearconvert")}
    server = shutil.which("dropbear", path="/usr/sbin:/usr/bin")
    missing = [name for name, path in found.items() if path is None]
    if server is None or missing:
        pytest.skip(f"not installed: {', '.join(missing) or 'dropbear'} (Debian: dropbear-bin)")
    if os.geteuid() != 0:
        pytest.skip("a server with a /usr/bin of its own takes root")
    binaries = folder / "bin"
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    binaries.mkdir()
    shutil.copy(str(found[tools]), binaries / tools)
    if shell != tools:
        shutil.copy(str(found[shell]), binaries / shell)
    (binaries / "sh").symlink_to(shell)
    listing = [str(found[tools]), "--list"] if tools == "busybox" else [str(found[tools])]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    for name in sorted({*names} - {"sh", shell, tools} - without):
        (binaries / name).symlink_to(tools)
    make_key(folder / "login")
    host_key = make_key(folder / "host")
    convert = str(found["dropbearconvert"])
    subprocess.run(
        [convert, "openssh", "dropbear", str(folder / "host"), str(folder / "host.dropbear")],
        check=True,
        capture_output=True,
    )
    shutil.copy(folder / "login.pub", home / ".ssh" / "authorized_keys")
    # As the old releases do that are on boards: newer ones take 9000 bytes.
    login_shell = folder / "login-shell"
    login_shell.write_text(
        f'#!/bin/sh\n[ "${{#2}}" -le {LONGEST_DROPBEAR_COMMAND_BYTES} ] || '
        '{ echo "String too long" >&2; exit 1; }\nexec /bin/sh "$@"\n'
    )
    login_shell.chmod(0o755)
    (folder / "shells").write_text(f"{login_shell}\n")
    (folder / "passwd").write_text(f"root:x:0:0::{home}:{login_shell}\n")
    secret = hashed(password) if password else "" if asks_nothing else "*"
    (folder / "shadow").write_text(f"root:{secret}:20000::::::\n")
    port = free_port()
    options = f"{'-B' if asks_nothing else '' if password else '-s'} -m {extra}"
    script = (
        f"{_seen(over, read_only=read_only)}mount --bind {folder}/passwd /etc/passwd && "
        f"mount --bind {folder}/shadow /etc/shadow && "
        f"mount --bind {folder}/shells /etc/shells && mount --bind {binaries} /usr/bin && "
        f"exec {server} -F -E {options} -r {folder}/host.dropbear "
        f"-p 127.0.0.1:{port} -P {folder}/pid"
    )
    log = folder / "dropbear.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(found["unshare"]), "-m", "/bin/sh", "-c", script], stdout=output, stderr=output
        )
    try:
        wait_for_banner(port, process, log)
        yield SshAddress(
            host="127.0.0.1",
            port=port,
            user="root",
            key=folder / "login",
            host_key=host_key,
        )
    finally:
        end(process)


@contextmanager
def cut_line(port: int, *, after_bytes: list[float], stays_open: bool = False) -> Iterator[int]:
    """Relay a port; connection after connection is cut once so many bytes went to the server.

    When the list has run out, connections last. Lines that stay open fall silent instead.
    """
    over = Event()
    allowances = iter(after_bytes)
    listener = socket.create_server(("127.0.0.1", 0))
    lines: list[socket.socket] = []

    def close(*ends: socket.socket) -> None:
        for one in ends:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def copy(source: socket.socket, sink: socket.socket, allowance: float) -> None:
        with suppress(OSError):
            while allowance > 0 and (data := source.recv(1 << 16)):
                sink.sendall(data)
                allowance -= len(data)
        if stays_open and allowance <= 0:
            over.wait()
        close(source, sink)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                lines.extend((client, server))
                allowance = next(allowances, math.inf)
                for ends in ((client, server, allowance), (server, client, math.inf)):
                    Thread(target=copy, args=ends, daemon=True).start()

    thread = Thread(target=serve, daemon=True)
    thread.start()
    chosen: int = listener.getsockname()[1]
    try:
        yield chosen
    finally:
        over.set()
        close(listener, *lines)
        for one in (listener, *lines):
            one.close()
        thread.join(timeout=5)
