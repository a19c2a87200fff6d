"""A lab on this machine: a Dask scheduler, gateways, and the boards behind them."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.command_line import BIN
from tests.person import Person
from tests.sleeping_engine import compiled_sleeper
from tests.waiting import wait_until

START_S = 400.0


class Lab:
    """A scheduler and gateways as processes, and a person whose boards these offer.

    Args:
        gateways: their names, and the boards behind each.
        dask: more environment variables for all processes.
        sleeping: boards sleep instead of computing.
        virtual: boards are virtual machines, each with one core.
        host: where the scheduler listens.
        apart: words before a gateway's worker, by the gateway's name.
    """

    def __init__(
        self,
        folder: Path,
        gateways: Mapping[str, Sequence[str]],
        dask: Mapping[str, str] = {},
        *,
        sleeping: bool = False,
        virtual: bool = False,
        host: str = "127.0.0.1",
        apart: Mapping[str, Sequence[str]] = {},
    ) -> None:
        launcher = ""
        if sleeping:
            launcher = f"reach: {{kind: local, launcher: [{compiled_sleeper(folder)}]}}\n"
        self.ann = Person(folder / "ann")
        self.ann.environment |= dask
        self.gateways = {name: Person(folder / name) for name in gateways}
        self.boards = gateways
        self._log = folder / "scheduler.log"
        self._dask = dask
        self._apart = apart
        self._running: dict[str, subprocess.Popen[Any]] = {}
        for name, boards in gateways.items():
            self.gateways[name].environment |= dask
            for board in boards:
                if virtual:
                    self.gateways[name].add_board(board, "extends: single-core\n")
                else:
                    self.gateways[name].add_emulated(board)
                path = self.gateways[name].folder / "boards" / f"{board}.yaml"
                path.write_text(f"{path.read_text()}labels: [lab]\n{launcher}")
                shutil.copy(path, self.ann.folder / "boards")
        with socket.socket() as free:
            free.bind((host, 0))
            self._listens: tuple[str, int] = free.getsockname()
        self.address = f"{'tls' if dask else 'tcp'}://{host}:{self._listens[1]}"

    def add_group(self, name: str, *members: str) -> None:
        """Add a group to the files of the person, and of the gateways that have all its boards."""
        having = [self.gateways[each] for each in self.boards if {*members} <= {*self.boards[each]}]
        for person in (self.ann, *having):
            person.add_board(name, f"members: [{', '.join(members)}]\n")

    def start_scheduler(self) -> None:
        host, _, port = self.address.rpartition(":")
        words = ["-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
        words += ["--dashboard-address", "127.0.0.1:0"]
        words += ["--host", host, "--port", port]
        with self._log.open("ab") as log:
            self._running["scheduler"] = subprocess.Popen(
                [sys.executable, *words],
                stdout=log,
                stderr=log,
                env=self.ann.environment,
                cwd=self.ann.folder,
                start_new_session=True,
            )
        wait_until(self._is_answering, self._running["scheduler"], within_s=START_S)

    def _is_answering(self) -> bool:
        try:
            socket.create_connection(self._listens).close()
        except OSError:
            return False
        return True

    def start_gateway(self, name: str) -> None:
        person = self.gateways[name]
        log = person.folder / "worker.log"
        before = said(log)
        with log.open("ab") as out:
            self._running[name] = subprocess.Popen(
                [*self._apart.get(name, ()), str(BIN / "armload"), *self.offering(name)],
                stdout=out,
                stderr=out,
                env=person.environment,
                cwd=person.folder,
                start_new_session=True,
            )
        wait_until(
            lambda: "Offering" in said(log)[len(before) :], self._running[name], within_s=START_S
        )

    def offering(self, name: str) -> list[str]:
        boards = ",".join(self.boards[name])
        return ["worker", "--scheduler", self.address, "--boards", boards]

    def start(self) -> None:
        try:
            self.start_scheduler()
            for name in self.boards:
                self.start_gateway(name)
        except BaseException:
            self.stop()
            raise

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running.pop(name).wait()

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            process.wait(30)

    def log(self, name: str) -> str:
        return said(self.gateways[name].folder / "worker.log")


def runs_of(person: Person) -> dict[str, dict[str, Any]]:
    kept = (json.loads(path.read_text()) for path in person.runs.glob("*/run.json"))
    return {run["id"]: run for run in kept}


def check_sweep(lab: Lab, sweep: str, cells: int, repeats: int) -> list[dict[str, Any]]:
    """Check that every run of a sweep is there once, whole, and left on no gateway."""
    path = lab.ann.folder / "sweeps" / sweep / "journal.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    places = sorted((entry["cell"], entry["round"]) for entry in entries)
    assert places == [(cell, number) for cell in range(cells) for number in range(repeats)]
    kept = [
        run
        for run in runs_of(lab.ann).values()
        if (run["place"] or {}).get("sweep") == sweep and run["exit"]["kind"] == "done"
    ]
    assert sorted(run["id"] for run in kept) == sorted(entry["run"] for entry in entries)
    texts: dict[int, set[str]] = {}
    for run in kept:
        texts.setdefault(run["place"]["cell"], set()).add(run["text"])
        folder = lab.ann.runs / run["id"]
        assert {"job.json", "trace.jsonl", "stdout", "exit"} <= {p.name for p in folder.iterdir()}
    assert all(len(same) == 1 for same in texts.values()), texts
    for gateway in lab.gateways.values():
        assert not list(gateway.runs.glob("*/run.json"))
    return kept


def said(log: Path) -> str:
    return log.read_text() if log.is_file() else ""


def certificates(folder: Path) -> dict[str, str]:
    """Make an authority with one certificate; return what tells Dask of them."""
    authority = _signed(folder, "authority", None)
    _signed(folder, "lab", authority)
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    named = {f"{tls}CA_FILE": str(folder / "authority.pem")}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        named[f"{tls}{role}__CERT"] = str(folder / "lab.pem")
        named[f"{tls}{role}__KEY"] = str(folder / "lab.key")
    return named


def _signed(
    folder: Path, name: str, authority: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = authority or (subject, key)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=authority is None,
                crl_sign=authority is None,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(signer, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return subject, key
