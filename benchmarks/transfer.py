"""How fast a file gets to a board, checked, beside the usual tools that do not check.

    python benchmarks/transfer.py [--mib 1024] [--repeats 3] [--cipher aes128-gcm@openssh.com]
                                  [--folder FOLDER]

All rows of a round are run one after the other, round after round, so that a slow moment meets
all of them. The servers take only the one cipher, so every client uses it. Each client is a
process of its own; times are from connecting to the end, without starting Python. Memory is the
largest sum over the processes of that end, in a first round of its own: looking at it takes time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath

import psutil

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.build.helper import SHA256, helper
from armload.build.target import machine_architecture
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.deploy.transfer import push
from armload.models.model import cached_sha256

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the tests' servers
SAMPLE_EVERY_S = 0.02


class Peak:
    """The most memory that processes had together, as long as the block lasts."""

    def __init__(self, roots: Callable[[], Sequence[psutil.Process]]) -> None:
        self._roots = roots
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            total = 0
            for root in self._roots():
                try:
                    family = [root, *root.children(recursive=True)]
                    total += sum(process.memory_full_info().pss for process in family)
                except psutil.Error:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)


class Row:
    """Times and memory of one way."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.client_bytes = 0
        self.server_bytes = 0
        self.note = ""


def ssh_words(address: SshAddress) -> list[str]:
    """Return the options that take ssh, scp and rsync to a server without a question."""
    settings = (
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        f"IdentityFile={address.key}",
        f"Port={address.port}",
        f"User={address.user}",
    )
    return [word for setting in settings for word in ("-o", setting)]


def run_once(kind: str, address: SshAddress, local: Path, remote: Path, sha256: str) -> None:
    """Be the client of one transfer, and print how long it took."""
    if kind == "push":
        # The server is this machine, so the program that a deployment puts there is there already.
        sums = helper(SHA256, architecture=machine_architecture()).path.resolve()
        with closing(SshHost(address, "bench")) as host:
            began = time.perf_counter()
            sent = push(
                host,
                Layout(workdir=PurePosixPath(remote.parents[2])),
                local,
                PurePosixPath(remote),
                sha256=sha256,
                executable=False,
                progress=Silent(),
                helper=PurePosixPath(sums),
            )
            took_s = time.perf_counter() - began
    else:
        import fabric

        keys = {"key_filename": str(address.key), "look_for_keys": False, "allow_agent": False}
        began = time.perf_counter()
        with fabric.Connection(
            address.host, user=address.user, port=address.port, connect_kwargs=keys
        ) as connection:
            connection.put(str(local), str(remote))
            took_s = time.perf_counter() - began
        sent = True
    print(json.dumps({"seconds": took_s, "sent": sent}))


class Bench:
    """The ways to one server.

    Args:
        address: of the server.
        local: the file that is sent.
        folder: where it goes to.
    """

    def __init__(self, address: SshAddress, local: Path, folder: Path) -> None:
        self.timed = False
        self._address = address
        self._local = local
        self._remote = folder / "models" / "0" / "file.gguf"
        self._sha256 = cached_sha256(local, Silent())
        self._servers = [one for one in psutil.Process().children() if _is_server(one)]

    def clear(self) -> None:
        """Remove what the last transfer left."""
        shutil.rmtree(self._remote.parent, ignore_errors=True)
        self._remote.parent.mkdir(parents=True)

    def touch(self) -> None:
        """Make the board's record of its last check invalid."""
        os.utime(self._remote)

    def ours(self, row: Row, kind: str = "push", *, port: int | None = None) -> bool:
        """Send the file by a process of this file; return whether it had to."""
        address = self._address.model_copy(update={"port": port or self._address.port})
        words = [
            *(sys.executable, __file__, "--client", kind, "--address", address.model_dump_json()),
            *("--local", str(self._local), "--remote", str(self._remote)),
            *("--sha256", self._sha256),
        ]
        told = json.loads(self._run(row, words)[0])
        if self.timed:
            row.seconds.append(told["seconds"])
        return bool(told["sent"])

    def theirs(self, row: Row, program: str) -> None:
        """Send the file by another program."""
        options = ssh_words(self._address)
        local, remote, host = str(self._local), str(self._remote), self._address.host
        words = {
            "scp": ["scp", *options, local, f"{host}:{remote}"],
            "rsync": ["rsync", "-W", "-e", f"ssh {' '.join(options)}", local, f"{host}:{remote}"],
            "cat": ["ssh", *options, host, f"cat >{remote}"],
        }[program]
        _, took_s = self._run(row, words)
        if self.timed:
            row.seconds.append(took_s)

    def cut_at_half(self, row: Row) -> None:
        """Send the file over a line that is cut once, at half of it."""
        from tests.faults import Relay

        size = self._local.stat().st_size
        port = self._address.port or 22
        with closing(Relay(port, cuts_after_bytes=size // 2)) as relay:
            self.ours(row, port=relay.port)
            twice_mib = (relay.passed_bytes - size) / (1 << 20)
        row.note = f"{twice_mib:.1f} MiB sent twice or SSH's own"

    def check(self) -> None:
        """Make sure that what arrived is the file."""
        if sha256_of(self._remote) != self._sha256:
            raise SystemExit(f"{self._remote} is not what was sent")

    def _run(self, row: Row, words: list[str]) -> tuple[str, float]:
        with self._local.open("rb") as source:
            began = time.perf_counter()
            client = subprocess.Popen(words, stdin=source, stdout=subprocess.PIPE, text=True)
            if self.timed:
                output, _ = client.communicate()
            else:
                process = psutil.Process(client.pid)
                with Peak(lambda: [process]) as ours, Peak(lambda: self._servers) as theirs:
                    output, _ = client.communicate()
                row.client_bytes, row.server_bytes = ours.peak_bytes, theirs.peak_bytes
            took_s = time.perf_counter() - began
        if client.returncode != 0:
            raise SystemExit(f"{words[0]} failed with status {client.returncode}")
        return output, took_s


def _is_server(process: psutil.Process) -> bool:
    return any(name in " ".join(process.cmdline()) for name in ("sshd", "dropbear"))


def round_to_openssh(bench: Bench, rows: dict[str, Row]) -> None:
    """Run every way to OpenSSH's server once."""
    for name in ("scp", "rsync -W", "Fabric's put", "push"):
        bench.clear()
        row = rows.setdefault(f"OpenSSH: {name}", Row())
        if name == "push":
            bench.ours(row)
        elif name == "Fabric's put":
            bench.ours(row, "put")
        else:
            bench.theirs(row, name.split()[0])
        bench.check()
    for name, changed in (("the record valid", False), ("the file touched", True)):
        if changed:
            bench.touch()
        if bench.ours(rows.setdefault(f"OpenSSH: push again, {name}", Row())):
            raise SystemExit("a file that was there was sent")
    bench.clear()
    bench.cut_at_half(rows.setdefault("OpenSSH: push, cut at half", Row()))
    bench.check()


def round_to_dropbear(bench: Bench, rows: dict[str, Row]) -> None:
    """Run both ways to a server without SFTP once."""
    for name in ("ssh, cat >file", "push"):
        bench.clear()
        row = rows.setdefault(f"dropbear: {name}", Row())
        if name == "push":
            bench.ours(row)
        else:
            bench.theirs(row, "cat")
        bench.check()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure transfers on the loopback.")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cipher", default="aes128-gcm@openssh.com", help="OpenSSH takes no other")
    parser.add_argument("--folder", type=Path, help="where both ends' files lie")
    parser.add_argument("--client", choices=("push", "put"), help=argparse.SUPPRESS)
    for name in ("address", "local", "remote", "sha256"):
        kind = Path if name in {"local", "remote"} else str
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(chosen: argparse.Namespace, folder: Path) -> dict[str, Row]:
    """Run all rounds."""
    from tests.servers import dropbear, openssh

    local = folder / "file.gguf"
    with local.open("wb") as sink:
        for _ in range(chosen.mib):
            sink.write(os.urandom(1 << 20))
    rows: dict[str, Row] = {}
    settings = f"Ciphers {chosen.cipher}\nSubsystem sftp internal-sftp\n"
    poor = dropbear(folder / "dropbear", shell="mksh", tools="toybox")
    with openssh(folder / "openssh", extra=settings) as address:
        bench = Bench(address, local, folder / "there")
        for _ in range(1 + chosen.repeats):
            round_to_openssh(bench, rows)
            bench.timed = True
    with poor as address:
        bench = Bench(address, local, folder / "there")
        for _ in range(1 + chosen.repeats):
            round_to_dropbear(bench, rows)
            bench.timed = True
    return rows


def main() -> None:
    """Measure and print a table."""
    chosen = arguments()
    if chosen.client:
        address = SshAddress.model_validate_json(chosen.address)
        run_once(chosen.client, address, chosen.local, chosen.remote, chosen.sha256)
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        rows = measure(chosen, Path(name))
    size_mb = chosen.mib * (1 << 20) / 1e6
    print(f"{chosen.mib} MiB, {chosen.cipher}, medians of {chosen.repeats} rounds")
    for name, row in rows.items():
        took_s = statistics.median(row.seconds)
        print(
            f"{name:36} {took_s:6.2f} s {size_mb / took_s:6.0f} MB/s  "
            f"{row.client_bytes / (1 << 20):4.0f} MiB here {row.server_bytes / (1 << 20):4.0f} MiB "
            f"there {row.note}"
        )


if __name__ == "__main__":
    main()
