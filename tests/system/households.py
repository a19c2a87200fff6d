"""Somebody whose board is this machine, and who has services there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import requests

from tests.cron_stand_in import cron
from tests.person import Person
from tests.waiting import wait_until


class Household:
    """Somebody whose board is this machine, with a cron that a test has made."""

    def __init__(self, folder: Path, workdir: Path, variables: dict[str, str], table: Path) -> None:
        self.person = Person(folder)
        self.person.environment |= variables
        self.person.environment["XDG_STATE_HOME"] = str(folder / "state")
        self.workdir, self.table = workdir, table
        self.person.add_board("here", f"extends: this-machine\nworkdir: {workdir}\n")

    def types(self, verb: str, *words: str, status: int = 0, name: str = "pair") -> Any:
        """Type a verb of the service, and return what it has done; of a failure, what it said."""
        on = ("--board", "here", "--name", name)
        done = self.person.types(f"service.{verb}", *on, *words, "--json", status=status)
        self.said = " ".join(done.stderr.split())
        return json.loads(done.stdout) if status == 0 else self.said

    def status(self, name: str = "pair") -> dict[str, Any]:
        (found,) = self.types("status", name=name)["services"]
        return dict(found)

    def address(self, name: str = "pair") -> tuple[int, str]:
        """Return a service's port, and its first key."""
        folder = self.workdir / "services" / name
        version = (folder / "version").read_text().strip()
        record = json.loads((folder / "versions" / version / "service.json").read_text())
        key = (folder / "keys").read_text().split()[0]
        return int(record["listening"]["port"]), key

    def asks(self, path: str, body: dict[str, Any] | None = None, name: str = "pair") -> Any:
        """Ask a service as a client does; return what it answers."""
        port, key = self.address(name)
        url = f"http://127.0.0.1:{port}/{path}"
        headers = {"Authorization": f"Bearer {key}"}
        method = "GET" if body is None else "POST"
        answer = requests.request(method, url, json=body, headers=headers, timeout=300)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def writes(self, model: str = "", name: str = "pair") -> int:
        """Have it write some tokens, and return their number."""
        body = {"model": model or "any", "prompt": "Ann has 3 and 3 and 3 and", "max_tokens": 12}
        answer = self.asks("v1/completions", body, name=name)
        return int(answer["usage"]["completion_tokens"])

    def steps(self, model: str = "", name: str = "pair") -> list[dict[str, Any]]:
        """Return the steps of the trace of a version in force."""
        folder = self.workdir / "services" / name
        version = (folder / "version").read_text().strip()
        own = f"-{model}" if model else ""
        lines = (folder / f"trace-{version}{own}.jsonl").read_text().splitlines()
        return [step for line in lines if "step" in (step := json.loads(line))]

    def servers(self) -> list[psutil.Process]:
        return [
            each
            for each in psutil.process_iter(["cmdline"])
            if str(self.workdir) in " ".join(each.info["cmdline"] or ())
            and "llama-server" in (each.info["cmdline"] or [""])[0]
        ]


class UpdateUnderLoad(NamedTuple):
    """What became of requests that were sent on schedule throughout an update.

    Attributes:
        capacity_per_s: of requests, as one client after another has them answered.
        rate_per_s: at which they were sent: half of that.
        metrics: of the load.
        updated: as the update describes it.
    """

    capacity_per_s: float
    rate_per_s: float
    metrics: dict[str, Any]
    updated: dict[str, Any]


def updated_under_load(home: Household, name: str, load_s: int) -> UpdateUnderLoad:
    """Update a service of one slot at half of the load that it can take.

    Args:
        load_s: how long requests are sent, from before the update until after it.
    """
    port, key = home.address(name)
    key_file = home.person.folder / "its.key"
    key_file.write_text(f"{key}\n")
    key_file.chmod(0o600)
    load = ("load", "--url", f"http://127.0.0.1:{port}", "--api-key-file", str(key_file), "--json")
    sizes = ("--prompt-tokens", "16", "--n-predict", "16", "--warmup", "0")
    done = home.person.types(*load, *sizes, "--concurrency", "1", "--requests", "60")
    capacity = json.loads(done.stdout)["points"][0]["metrics"]["requests_per_s"]
    rate = ("--rate", f"{capacity / 2:.3f}", "--duration", str(load_s))
    loading = home.person.start(*load, *sizes, *rate)
    wait_until(lambda: home.status(name)["activity"][0]["processing"] == 1, loading)
    updated = home.types("update", "--context", "512", "--slower", "90%", name=name)
    assert loading.poll() is None, "the load ended before the update"
    out, err = loading.communicate(timeout=load_s + 60)
    assert loading.returncode == 0, err
    metrics = json.loads(out)["points"][0]["metrics"]
    return UpdateUnderLoad(capacity, capacity / 2, metrics, updated)


@contextmanager
def household(folder: Path, workdir: Path) -> Iterator[Household]:
    with cron(folder / "cron") as (variables, table):
        made = Household(folder / "ann", workdir, variables, table)
        try:
            yield made
        finally:
            for each in (workdir / "services").glob("*"):
                made.types("remove", name=each.name)
            assert not made.servers()
            assert not table.exists()
