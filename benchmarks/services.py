"""What services that stay cost: a boot, a switch between models, the sandbox, and shell.

    python benchmarks/services.py shell
    python benchmarks/services.py switch [--rounds 10]
    python benchmarks/services.py update [--rounds 1]
    python benchmarks/services.py calls [--rounds 1]
    python benchmarks/services.py boot [--rounds 3]
    python benchmarks/services.py sandbox [--rounds 4]
    python benchmarks/services.py tls [--rounds 5]

``shell`` counts the lines of shell that run on a board, without comments. ``switch`` installs two
models of which one is in memory, on this machine, and asks each in turn for one token. ``update``
sends requests at half of the rate that a service on this machine can take, and updates it
meanwhile, which takes five minutes. ``calls`` counts with strace the system calls that a service's
server makes for each token: a unit's sandbox checks those, and nothing else. ``boot`` and
``sandbox`` take a virtual board with Debian's systemd, emulated on one core: ``boot`` switches it
off and on, and counts from there until the service has answered with a token; ``sandbox`` starts
the service with its unit and without the unit's sandbox by turns, and compares the time per token
that the server tells. Each of those takes minutes. ``tls`` asks a small server behind a
supervisor in the clear and by TLS, by turns, on this machine, and counts the CPU time of the
process that passes connections on, for each request and for each piece of a stream, and what
connections take of its memory. Each request is a new connection, as the supervisor closes them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path, PurePosixPath

import psutil
import requests

from armload.analysis.ratios import as_long
from armload.analysis.statistics import ratio_of_runs
from armload.boards.board import load_board
from armload.build.helper import SUPERVISE, helper
from armload.build.target import machine_architecture
from armload.core.errors import ArmloadError
from armload.core.places import data_path
from armload.core.progress import Silent
from armload.core.trust import VARIABLE
from armload.services.asking import ask, reached
from armload.services.reaching import key_of, reached_service
from tests.certificates import Authority, Kind, fingerprint
from tests.cron_stand_in import cron
from tests.init_boards import SYSTEMD, InitBoard
from tests.person import Person
from tests.supervised import ServiceFolder
from tests.system.households import Household, household, updated_under_load
from tests.system.serving import in_place_of
from tests.system.test_supervise_pass import passer

SETTINGS = ("--threads", "1", "--slots", "1", "--context", "256")
NAME = "figures"
_LATEST_S = 600.0
_LOADED_S = 300
_COUNTED = 100


def main() -> None:
    """Print the figures of one kind."""
    parser = argparse.ArgumentParser(description="Measure services that stay.")
    parser.add_argument(
        "what", choices=("shell", "switch", "update", "calls", "boot", "sandbox", "tls")
    )
    parser.add_argument("--rounds", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.what == "shell":
        count_shell()
        return
    measures: dict[str, tuple[Callable[[Path, int], None], int]] = {
        "switch": (time_switches, 10),
        "update": (update_under_load, 1),
        "calls": (count_calls, 1),
        "boot": (time_boots, 3),
        "sandbox": (compare_sandbox, 4),
        "tls": (compare_tls, 5),
    }
    measure, usual = measures[chosen.what]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = f"{folder}/*"
        measure(Path(folder), chosen.rounds or usual)


def count_shell() -> None:
    """Print the lines of each script."""
    counts = {}
    for path in sorted(data_path("deploy", "service").glob("*.sh.j2")):
        text = re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)
        lines = [line.strip() for line in text.splitlines()]
        counts[path.name] = sum(1 for line in lines if line and not re.match(r"#|\{%.*%\}$", line))
        print(f"{counts[path.name]:>5}  {path.name}")
    only = {
        "systemd": (),
        "systemd-user": ("linger",),
        "openrc": ("openrc",),
        "sysv": ("init_script", "runlevels"),
        "busybox": ("init_script",),
        "cron": ("crontab",),
    }
    of_some = {name for names in only.values() for name in names}
    of_all = sum(n for name, n in counts.items() if name.split(".")[0] not in of_some)
    for init, names in only.items():
        own = sum(counts[f"{name}.sh.j2"] for name in names)
        print(f"{of_all + own:>5}  on a board with {init}")
    print(f"{sum(counts.values()):>5}  of all together")


def time_switches(folder: Path, rounds: int) -> None:
    """Print how long one token takes from a model in memory, and from the other one."""
    with cron(folder / "cron") as (variables, _):
        person = Person(folder / "ann")
        person.environment |= {**variables, "XDG_STATE_HOME": str(folder / "state")}
        workdir = folder / "board"
        person.add_board("here", f"extends: this-machine\nworkdir: {workdir}\n")
        on = ("--board", "here", "--name", NAME)
        models = ("--model", "smollm2,word-problems:Q8_0", "--most-loaded", "1")
        try:
            done = person.types("service.install", *on, *models, *SETTINGS, "--json")
            installed = json.loads(done.stdout)
            print(installed["notes"][0])
            key = Path(installed["api_key_file"]).read_text().strip()
            aliases = [each["alias"] for each in installed["record"]["models"]]
            url = installed["url"]
            times: dict[str, list[float]] = {}
            for _ in range(rounds):
                for alias in aliases:
                    times.setdefault(f"switch to {alias}", []).append(token_s(url, key, alias))
                    times.setdefault(f"{alias} in memory", []).append(token_s(url, key, alias))
            for what, found in times.items():
                print(f"{what}: {_spread(found)}")
        finally:
            person.types("service.remove", *on)


def token_s(url: str, key: str, model: str) -> float:
    """Return how long one token takes."""
    began_s = time.monotonic()
    requests.post(
        f"{url}/completions",
        json={"model": model, "prompt": "Once", "max_tokens": 1},
        headers={"Authorization": f"Bearer {key}"},
        timeout=_LATEST_S,
    ).raise_for_status()
    return time.monotonic() - began_s


def _spread(found: list[float]) -> str:
    median = statistics.median(found)
    return f"median {median:.3f} s ({min(found):.3f} to {max(found):.3f}, {len(found)} times)"


def update_under_load(folder: Path, rounds: int) -> None:
    """Print what became of requests that were sent throughout an update."""
    for number in range(rounds):
        place = folder / str(number)
        with household(place, place / "board") as home:
            words = ("--model", "smollm2", *SETTINGS, "--init", "cron")
            home.types("install", *words, name=NAME)
            found = updated_under_load(home, NAME, _LOADED_S)
            latency = found.metrics["from_scheduled"]["e2e"]
            times = ", ".join(
                f"{name} {each['value_s']:.2f} s" for name, each in latency["percentiles"].items()
            )
            print(
                f"{found.capacity_per_s:.2f} requests/s one after another; at "
                f"{found.rate_per_s:.2f}: {found.metrics['scheduled']} sent, "
                f"{found.metrics['ok']} answered, failed: {found.metrics['failed']}; latency "
                f"{times}, at most {latency['max_s']:.2f} s; tried {found.updated['tried']}, "
                f"silent for {found.updated['silent_s']} s",
                flush=True,
            )


def count_calls(folder: Path, rounds: int) -> None:
    """Print how many system calls a server makes for each of many tokens, beyond those for one."""
    with household(folder, folder / "board") as home:
        words = ("--model", "smollm2", *SETTINGS, "--init", "cron")
        home.types("install", *words, name=NAME)
        (server,) = home.servers()
        for _ in range(rounds):
            one, many = (_calls(home, server.pid, count, folder) for count in (1, 1 + _COUNTED))
            each = {name: (many[name] - one[name]) / _COUNTED for name in many}
            total = sum(each.values())
            common = sorted(each, key=lambda name: -each[name])[:6]
            shown = ", ".join(f"{name} {each[name]:.2f}" for name in common)
            print(f"{total:.1f} system calls per token: {shown}", flush=True)


def _calls(home: Household, pid: int, tokens: int, folder: Path) -> Counter[str]:
    """Return the system calls of a process and its threads while a text is generated."""
    table = folder / "calls"
    strace = ["strace", "-f", "-c", "-U", "name,calls", "-o", str(table), "-p", str(pid)]
    with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr is not None
        tracing.stderr.readline()  # it is attached
        body = {"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True}
        assert home.asks("completion", body, NAME)["timings"]["predicted_n"] == tokens
        tracing.terminate()
    rows = [line.split() for line in table.read_text().splitlines()]
    counted = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return Counter({name: count for name, count in counted.items() if name != "total"})


class Systemd:
    """A virtual board with systemd and a service on it."""

    def __init__(self, folder: Path) -> None:
        self.machine = InitBoard(SYSTEMD, folder)
        self.person = Person(folder / "ann")
        self.person.environment["XDG_STATE_HOME"] = str(folder / "state")

    def install(self) -> None:
        workdir = PurePosixPath("/var/lib/armload/figures")
        reach = self.machine.board("root", workdir).reach
        assert reach.kind == "ssh"
        self.person.add_board(
            "far",
            f"target: rk3568\nworkdir: {workdir}\nreach:\n  kind: ssh\n  host: 127.0.0.1\n"
            f"  port: {reach.port}\n  user: root\n  key: {reach.key}\n",
        )
        self.person.types("board.trust", "--board", "far", "--yes")
        words = ("--model", "word-problems:Q8_0", *SETTINGS, "--init", "systemd")
        self.person.types("service.install", "--board", "far", "--name", NAME, *words)

    def token_times(self) -> tuple[float, ...]:
        """Return the times per token of some equal requests."""
        with in_place_of(self.person), reached_service(load_board("far"), NAME, Silent()) as found:
            key = key_of(found.host, found.layout)
            (speed,) = ask(found.host, found.layout, found.record, key, Silent()).models
            return speed.token_s

    def runs(self, script: str) -> None:
        with closing(self.machine.host("root")) as host:
            done = host.run(script, timeout_s=120)
            assert done.status == 0, done

    def answers_first(self) -> None:
        """Wait until it has answered with a token."""
        began_s = time.monotonic()
        while True:
            try:
                with (
                    in_place_of(self.person),
                    reached_service(load_board("far"), NAME, Silent()) as found,
                    reached(found.host, found.record) as url,
                ):
                    token_s(f"{url}/v1", key_of(found.host, found.layout), "any")
                    return
            except (ArmloadError, requests.RequestException):
                assert time.monotonic() < began_s + _LATEST_S
                time.sleep(0.5)


@contextmanager
def board_with_systemd(folder: Path) -> Iterator[Systemd]:
    """Switch such a board on, with a service, for the block."""
    with ExitStack() as stack:
        board = Systemd(folder)
        stack.callback(board.machine.cut_the_power)
        board.machine.up()
        board.install()
        yield board


def time_boots(folder: Path, rounds: int) -> None:
    """Print how long it takes from switching the board on to the first answers."""
    with board_with_systemd(folder) as board:
        for _ in range(rounds):
            board.machine.cut_the_power()
            began_s = time.monotonic()
            board.machine.up()
            reached_s = time.monotonic() - began_s
            board.answers_first()
            print(
                f"SSH answers after {reached_s:.1f} s, the service's first token is there after "
                f"{time.monotonic() - began_s:.1f} s",
                flush=True,
            )


def compare_sandbox(folder: Path, rounds: int) -> None:
    """Print the time per token in the unit's sandbox against that without it."""
    unit = f"armload-{NAME}.service"
    path = f"/etc/systemd/system/{unit}"
    keys = "NoNewPriv|Lock|MemoryDeny|Restrict[ANRS]|SystemCall|Capab|Protect|Private"
    with board_with_systemd(folder) as board:
        board.runs(f"cp {path} /root/with && grep -vE '^({keys}|ReadWrite)' {path} >/root/without")
        times: dict[str, list[float]] = {"with": [], "without": []}
        for number in range(rounds):
            for kind in ("with", "without") if number % 2 else ("without", "with"):
                board.runs(
                    f"cp /root/{kind} {path}; systemctl daemon-reload; "
                    # systemd counts these starts, and refuses the sixth of a minute or so.
                    f"systemctl reset-failed {unit}; systemctl restart {unit}"
                )
                board.answers_first()
                found = board.token_times()
                times[kind].append(statistics.median(found))
                print(f"{kind} the sandbox: {times[kind][-1] * 1e3:.2f} ms per token", flush=True)
        print(f"with it: {as_long(ratio_of_runs(times['without'], times['with']))} per token")


_REQUESTS, _STREAMS, _PIECES = 200, 32, 30
_KEYS: tuple[Kind, ...] = ("ecdsa", "rsa")
_WAYS = ("http", "https")


def compare_tls(folder: Path, rounds: int) -> None:
    """Print what TLS costs the process that passes connections on."""
    machine = machine_architecture()
    for architecture in sorted({machine, "aarch64"}):
        plain, with_tls = (
            helper(SUPERVISE, architecture=architecture, with_tls=each).path.stat().st_size
            for each in (False, True)
        )
        print(f"supervisor for {architecture}: {plain:,} bytes, {with_tls:,} with TLS")
    for kind in _KEYS:
        print(f"{kind}, medians of {rounds} rounds by turns (range):")
        _compare_kind(folder / kind, kind, rounds)


@contextmanager
def _passed_on(folder: Path, kind: Kind) -> Iterator[tuple[int, psutil.Process, ssl.SSLContext]]:
    """Yield the port of a small server, the process that passes on to it, and what to trust."""
    folder.mkdir()
    authority = Authority()
    chain, key = authority.issue(folder, "localhost", kind=kind)
    program = helper(SUPERVISE, architecture=machine_architecture(), with_tls=True)
    service = ServiceFolder(folder / "service", [str(program.path)])
    (service.folder / "tls.pem").write_bytes(chain.read_bytes() + key.read_bytes())
    service.behind("a", tls="yes")
    service.use("a")
    service.start()
    try:
        service.waits_for(state="ready", certificate=fingerprint(chain))
        yield service.port, passer(service), authority.context()
    finally:
        service.close()


def _compare_kind(folder: Path, kind: Kind, rounds: int) -> None:
    requests_us: dict[str, list[float]] = {way: [] for way in _WAYS}
    walls_us: dict[str, list[float]] = {way: [] for way in _WAYS}
    pieces_us: dict[str, list[float]] = {way: [] for way in _WAYS}
    with _passed_on(folder, kind) as (port, process, trusted):
        for _ in range(rounds):
            for way in _WAYS:
                context = trusted if way == "https" else None
                began_ns, began_s = _ran_ns(process.pid), time.monotonic()
                for _ in range(_REQUESTS):
                    _read(port, context, "/health")
                walls_us[way].append((time.monotonic() - began_s) * 1e6 / _REQUESTS)
                requests_us[way].append((_ran_ns(process.pid) - began_ns) / 1e3 / _REQUESTS)
                pieces_us[way].append(_streamed_us(port, context, process.pid))
    for what, found in (
        ("CPU per request", requests_us),
        ("time per request, client included", walls_us),
        ("CPU per piece of a stream", pieces_us),
    ):
        shown = (
            f"{way} {statistics.median(each):.1f} us ({min(each):.1f}-{max(each):.1f})"
            for way, each in found.items()
        )
        print(f"  {what}: {', '.join(shown)}")
    for way in _WAYS:
        with _passed_on(folder / way, kind) as (port, process, trusted):
            held = _held_bytes(port, trusted if way == "https" else None, process)
        print(f"  memory per connection, {way}: {held}")


def _ran_ns(process_id: int) -> int:
    """Return the CPU time that a process has had."""
    return int(Path(f"/proc/{process_id}/schedstat").read_text().split()[0])


def _opened(port: int, context: ssl.SSLContext | None) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=_LATEST_S)
    return raw if context is None else context.wrap_socket(raw, server_hostname="localhost")


def _read(port: int, context: ssl.SSLContext | None, path: str) -> int:
    """Return how many bytes an answer has."""
    with _opened(port, context) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return sum(map(len, _parts(line)))


def _parts(line: socket.socket) -> Iterator[bytes]:
    while part := line.recv(1 << 16):
        yield part


def _streamed_us(port: int, context: ssl.SSLContext | None, process_id: int) -> float:
    """Return the CPU time for each piece of many streams, their beginnings not counted."""
    lines = [_opened(port, context) for _ in range(_STREAMS)]
    try:
        for each in lines:
            each.sendall(f"GET /{_PIECES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for each in lines:
            each.recv(1 << 16)
        began_ns = _ran_ns(process_id)
        pieces = sum(part.count(b"\na ") for each in lines for part in _parts(each))
        return (_ran_ns(process_id) - began_ns) / 1e3 / pieces
    finally:
        for each in lines:
            each.close()


def _held_bytes(port: int, context: ssl.SSLContext | None, process: psutil.Process) -> str:
    """Return what open streams hold of a process's memory, in words."""
    before = process.memory_info().rss
    lines = [_opened(port, context) for _ in range(_STREAMS * 3)]
    try:
        for each in lines:
            each.sendall(b"GET /20 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for each in lines:
            each.recv(12)
        return f"{(process.memory_info().rss - before) / len(lines) / 1000:.1f} kB"
    finally:
        for each in lines:
            each.close()


if __name__ == "__main__":
    main()
