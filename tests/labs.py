"""A lab on this machine: a Dask scheduler, gateways, and the boards behind them."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.person import Person
from tests.waiting import wait_until

START_S = 120.0


class Lab:
    """A scheduler and gateways as processes, and a person whose boards these offer.

    Args:
        gateways: their names, and the boards behind each.
        dask: more environment variables for all processes.
    """

    def __init__(
        self, folder: Path, gateways: Mapping[str, Sequence[str]], dask: Mapping[str, str] = {}
    ) -> None:
        self.ann = Person(folder / "ann")
        self.ann.environment |= dask
        self.gateways = {name: Person(folder / name) for name in gateways}
        self.boards = gateways
        self._log = folder / "scheduler.log"
        self._dask = dask
        self._running: dict[str, subprocess.Popen[Any]] = {}
        for name, boards in gateways.items():
            self.gateways[name].environment |= dask
            for board in boards:
                self.gateways[name].add_emulated(board)
                path = self.gateways[name].folder / "boards" / f"{board}.yaml"
                path.write_text(f"{path.read_text()}labels: [lab]\n")
                shutil.copy(path, self.ann.folder / "boards")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"{'tls' if dask else 'tcp'}://127.0.0.1:{port}"

    def start_scheduler(self) -> None:
        host, _, port = self.address.rpartition(":")
        words = ["-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
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
            socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2]))).close()
        except OSError:
            return False
        return True

    def start_gateway(self, name: str) -> None:
        person = self.gateways[name]
        log = person.folder / "worker.log"
        before = said(log)
        with log.open("ab") as out:
            self._running[name] = subprocess.Popen(
                [str(Path(sys.executable).with_name("armload")), *self.offering(name)],
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
        self.start_scheduler()
        for name in self.boards:
            self.start_gateway(name)

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
