"""Runs that nothing can lose: killed laptops, killed servers, a cut in the power, two at once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from armload.boards.address import SshAddress
from armload.boards.ssh import SshHost
from armload.deploy.collect import collect
from armload.deploy.follow import Seen, follow
from armload.deploy.launch import launch
from tests.person import Person
from tests.servers import free_port, openssh
from tests.system.engines import shared

OFTEN = int(os.environ.get("ARMLOAD_TEST_FAULTS", "1"))
"""How many times the faults that take a whole machine are tried; 20 before a release."""

TOKENS = 120
PROGRAM = f"""
echo '{{"format":1}}' >"$ARMLOAD_TRACE"
n=0
while [ $n -lt {TOKENS} ]; do
  echo '{{"step":'$n'}}' >>"$ARMLOAD_TRACE"
  echo word $n
  n=$((n + 1))
  sleep 0.05
done
"""


class Server:
    """An SSH server that is killed with all its sessions, and comes back on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.address: SshAddress | None = None
        self._running = openssh(folder, port=self._port)
        self._start()

    def _start(self) -> None:
        self._running = openssh(self._folder, port=self._port)
        self.address = self._running.__enter__()

    def kill(self) -> None:
        """Kill it and everything that serves a connection, without a word to anybody."""
        config = str(self._folder / "sshd_config")
        listing = subprocess.run(
            ["pgrep", "-f", config], capture_output=True, text=True, check=False
        ).stdout.split()
        sessions = [pid for parent in listing for pid in descendants_called(parent, "sshd")]
        for pid in {*listing, *sessions}:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._running.__exit__(None, None, None)

    def restart(self) -> None:
        self.kill()
        self._start()

    def end(self) -> None:
        self._running.__exit__(None, None, None)


def descendants_called(pid: str, name: str) -> list[str]:
    """Return the sessions' own processes, not what runs in them."""
    found = subprocess.run(
        ["pgrep", "-P", pid, name], capture_output=True, text=True, check=False
    ).stdout.split()
    return [*found, *(deeper for each in found for deeper in descendants_called(each, name))]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "server")
    yield running
    running.end()


def test_a_server_killed_ten_times_in_a_run_loses_and_doubles_nothing(
    server: Server, tmp_path: Path
) -> None:
    """From before the launch to after the fetch; the moments are random and are shown."""
    assert server.address is not None
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    ended = threading.Event()
    kills: list[float] = []

    def disturb() -> None:
        while len(kills) < 10:
            if ended.wait(chance.uniform(0.05, 1.2)):
                return
            kills.append(time.monotonic())
            server.restart()

    workdir = PurePosixPath(tmp_path / "work")
    folder = workdir / "runs" / "run"
    seen = tmp_path / "seen"
    disturber = threading.Thread(target=disturb)
    with closing(SshHost(server.address, "my-board")) as host:
        disturber.start()
        try:
            launch(
                host,
                run_folder=folder,
                argv=["sh", "-c", PROGRAM],
                trace=True,
                time_limit_s=120,
                job=b"{}",
            )
            steps = []
            status = follow(host, folder, lambda n, text: steps.append(n), keep=seen)
            collect(host, folder, tmp_path / "local")
        finally:
            ended.set()
            disturber.join()
    assert status == 0, seed
    assert len(kills) >= 3, seed
    lines = (tmp_path / "local" / "trace.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines[1:]] == list(range(TOKENS)), seed
    assert seen.read_text().splitlines() == lines, seed
    words = (tmp_path / "local" / "stdout").read_text().splitlines()
    assert words == [f"word {n}" for n in range(TOKENS)], seed
    assert [path.name for path in Path(workdir / "runs").iterdir()] == ["run"]


def test_what_was_seen_before_a_restart_is_kept_once(tmp_path: Path) -> None:
    seen = Seen(tmp_path / "seen")
    for number, line in enumerate([b"a", b"b", b"c"]):
        seen.line(number, line)
    for number, line in enumerate([b"a", b"b"]):
        seen.line(number, line)
    seen.line(3, b"d")
    with (tmp_path / "seen").open("ab") as file:
        file.write(b"half a l")
    again = Seen(tmp_path / "seen")
    for number, line in enumerate([b"a", b"b", b"c", b"d", b"e"]):
        again.line(number, line)
    assert (tmp_path / "seen").read_bytes() == b"a\nb\nc\nd\ne\n"


def test_large_output_is_fetched_piece_by_piece_and_goes_on_after_a_break(
    server: Server, tmp_path: Path
) -> None:
    assert server.address is not None
    folder = PurePosixPath(tmp_path / "work" / "runs" / "run")
    size = 64_000_000
    with closing(SshHost(server.address, "my-board")) as host:
        launch(
            host,
            run_folder=folder,
            argv=["sh", "-c", f"head -c {size} /dev/urandom >big"],
            trace=False,
            time_limit_s=120,
            job=b"{}",
        )
        follow(host, folder, lambda steps, text: None)
        local = tmp_path / "local"
        part = local / ".big.part"
        arrived = []

        def break_once() -> None:
            while not part.exists() or part.stat().st_size < size // 4:
                time.sleep(0.002)
            server.restart()
            arrived.append(part.stat().st_size)

        breaker = threading.Thread(target=break_once)
        breaker.start()
        collect(host, folder, local)
        breaker.join()
    assert 0 < arrived[0] < size, "the line broke in between"
    assert (local / "big").read_bytes() == Path(folder / "big").read_bytes()


def test_files_are_compared_without_any_tool_for_checksums(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "cat", "wc", "mkdir", "mv", "rm", "sleep", "tail", "head", "sync"):
        (tools / name).symlink_to(Path("/bin") / name)
    folder = PurePosixPath(tmp_path / "work" / "runs" / "run")
    force = f'ForceCommand PATH={tools} exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    with (
        openssh(tmp_path / "server", extra=force) as address,
        closing(SshHost(address, "my-board")) as host,
    ):
        assert host.run("sha256sum </dev/null").status == 127
        launch(
            host,
            run_folder=folder,
            argv=["sh", "-c", "head -c 3000000 /dev/zero; echo done"],
            trace=False,
            time_limit_s=60,
            job=b"{}",
        )
        assert follow(host, folder, lambda steps, text: None) == 0
        collect(host, folder, tmp_path / "local")
        collect(host, folder, tmp_path / "local")
    assert (tmp_path / "local" / "stdout").read_bytes() == bytes(3_000_000) + b"done\n"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Person, Person]]:
    """Two people with a laptop each; the second reaches the board of the first by SSH."""
    ann = Person(tmp_path_factory.mktemp("ann"))
    bob = Person(tmp_path_factory.mktemp("bob"))
    try:
        share(ann, bob)
        yield ann, bob
    finally:
        ann.types("board.down", "--board", "mine")


def share(ann: Person, bob: Person) -> None:
    shown = json.loads(ann.types("board.up", "--board", "mine", "--json").stdout)
    bob.add_board(
        "mine",
        "target: rk3568\nworkdir: /data/local/tmp/armload\nreach:\n  kind: ssh\n"
        f"  host: {shown['host']}\n  port: {shown['port']}\n  user: {shown['user']}\n"
        f"  key: {shown['key']}\n",
    )
    bob.types("board.trust", "--board", "mine", "--yes")


def checked(run: dict[str, Any], tokens: int) -> None:
    assert run["exit"]["kind"] == "done"
    assert [step["step"] for step in run["tokens"]] == list(range(tokens))


def waits_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def said_by(process: subprocess.Popen[str], pattern: str) -> None:
    assert process.stderr is not None
    said = ""
    while re.search(pattern, said) is None:
        heard = process.stderr.readline()
        assert heard, f"it ended before {pattern!r}:\n{said}"
        said += heard


def board_is_clean(ann: Person) -> None:
    probed = json.loads(ann.types("board.probe", "--board", "mine", "--json").stdout)
    assert probed["in_use_by"] == []
    assert ann.on_board("pidof llama-completion || true").strip() == ""


def benches(tokens: int, *more: str, model: str = "") -> tuple[str, ...]:
    """Return the words of a run; its model is tiny, so that busy machines are quick enough."""
    chosen = model or str(shared("stories260K.gguf"))
    return ("bench", "--board", "mine", "--model", chosen, "-n", str(tokens), "--json", *more)


ENGINE_RUNS = "pidof llama-completion >/dev/null && echo yes || true"
STAGES = ("present", "copying", "launching", "running", "ended")


@pytest.mark.machine
@pytest.mark.build
@pytest.mark.parametrize("stage", STAGES)
def test_a_laptop_killed_in_any_stage_goes_on_with_the_same_command(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    # Each stage is another request; only a large model is seen while it is copied.
    tokens = {"copying": 3, "running": 250, "ended": 150}.get(stage, STAGES.index(stage) + 20)
    words = benches(tokens, model="demo" if stage == "copying" else "")
    before = set(json.loads(ann.types("show", "--json").stdout))
    runs_before = set(ann.on_board("ls /data/local/tmp/armload/runs 2>/dev/null || true").split())
    if stage == "copying":
        ann.on_board("rm -rf /data/local/tmp/armload/models")
    process = ann.start(*words)

    def new_on_board() -> bool:
        runs = ann.on_board("ls /data/local/tmp/armload/runs 2>/dev/null || true").split()
        return bool(set(runs) - runs_before)

    def copying() -> bool:
        return ".part" in ann.on_board("ls /data/local/tmp/armload/models/* 2>/dev/null || true")

    if stage == "present":
        time.sleep(0.6)
    elif stage == "copying":
        waits_until(copying, process)
    elif stage == "launching":
        waits_until(new_on_board, process)
    else:
        waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
    process.kill()
    process.communicate()
    if stage == "ended":
        while ann.on_board(ENGINE_RUNS):
            time.sleep(0.1)
    again = ann.types(*words)
    run = json.loads(again.stdout)
    checked(run, tokens)
    if stage in ("running", "ended"):
        assert "taking over" in again.stderr
    assert set(json.loads(ann.types("show", "--json").stdout)) - before == {run["id"]}
    runs = set(ann.on_board("ls /data/local/tmp/armload/runs").split())
    assert runs - runs_before == {run["id"]}
    board_is_clean(ann)
    assert json.loads(ann.types("pull", "--board", "mine", "--json").stdout) == []


@pytest.mark.machine
@pytest.mark.build
def test_new_starts_another_run_beside_the_one_that_was_left(people: tuple[Person, Person]) -> None:
    ann, _ = people
    words = benches(180)
    process = ann.start(*words)
    waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
    process.kill()
    process.communicate()
    fresh = ann.types(*words, "--new")
    checked(json.loads(fresh.stdout), 180)
    assert "taking over" not in fresh.stderr
    (left,) = json.loads(ann.types("pull", "--board", "mine", "--json").stdout)
    assert left != json.loads(fresh.stdout)["id"]


@pytest.mark.machine
@pytest.mark.build
def test_of_two_laptops_one_runs_and_the_other_waits_and_then_runs(
    people: tuple[Person, Person],
) -> None:
    ann, _ = people
    both = [person.start(*benches(60)) for person in people]
    done = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], done
    runs = [json.loads(out) for out, _ in done]
    for run in runs:
        checked(run, 60)
    first, second = sorted(runs, key=lambda run: int(run["trace"]["start_ns"]))
    assert first["tokens"][-1]["end_ns"] < second["trace"]["start_ns"]
    assert any("is in use by" in err for _, err in done), done
    board_is_clean(ann)


@pytest.mark.machine
@pytest.mark.build
def test_a_board_in_use_is_shown_and_released_only_by_force(people: tuple[Person, Person]) -> None:
    ann, bob = people
    process = ann.start(*benches(260))
    waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
    refused = bob.types(*benches(8, "--wait", "1"), status=10)
    assert "is in use by" in refused.stderr
    assert "--wait" in refused.stderr
    (user,) = json.loads(bob.types("board.probe", "--board", "mine", "--json").stdout)["in_use_by"]
    assert user["run"].endswith(tuple("0123456789abcdef"))
    assert "in use by" in bob.types("board.probe", "--board", "mine").stdout
    bob.types("board.release", "--board", "mine", status=10)
    everything = ("board.clean", "--board", "mine", "--all", "--older-than", "0")
    assert bob.types(*everything, "--yes", "--json", "--wait", "0", status=10).stdout == ""
    assert "Released" in bob.types("board.release", "--board", "mine", "--force").stdout
    out, _ = process.communicate(timeout=300)
    run = json.loads(out)
    checked(run, 260)
    assert not run["verdict"]["valid"], "somebody else could have used the board meanwhile"


@pytest.mark.machine
@pytest.mark.build
def test_a_board_is_cleaned_of_what_is_home_and_of_nothing_that_runs(
    people: tuple[Person, Person],
) -> None:
    ann, _ = people
    left = ann.start(*benches(170))
    waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", left)
    left.kill()
    left.communicate()
    waiting = ann.start("board.clean", "--board", "mine", "--yes", "--json", "--wait", "300")
    said_by(waiting, "is in use by")
    out, _ = waiting.communicate(timeout=300)
    cleaned = json.loads(out)
    assert {entry["state"] for entry in cleaned["removed"]} == {"collected"}
    assert cleaned["freed_bytes"] > 0
    (kept,) = [entry for entry in cleaned["kept"] if entry["kind"] == "run"]
    assert kept["state"] == "uncollected"
    assert {entry["kind"] for entry in cleaned["kept"]} == {"run", "program", "model"}
    refused = ann.types("board.clean", "--board", "mine", "--all", status=2)
    assert "Nothing was removed" in refused.stderr
    checked(json.loads(ann.types(*benches(170)).stdout), 170)
    everything = ("board.clean", "--board", "mine", "--all", "--older-than", "0", "--yes", "--json")
    assert json.loads(ann.types(*everything).stdout)["kept"] == []
    assert ann.on_board("ls /data/local/tmp/armload/models").strip() == ""


def power_cut(ann: Person) -> None:
    (state,) = (ann.folder / "cache" / "machines").glob("mine-*/qemu.pid")
    os.kill(int(state.read_text()), signal.SIGKILL)


@pytest.mark.machine
@pytest.mark.build
@pytest.mark.parametrize("laptop", ["awake", "killed", *["awake", "killed"] * (OFTEN - 1)])
def test_a_cut_in_the_power_is_recorded_and_nothing_needs_a_hand(
    people: tuple[Person, Person], laptop: str
) -> None:
    ann, _ = people
    words = benches(200)
    known = set(json.loads(ann.types("show", "--json").stdout))
    process = ann.start(*words, "--new")
    steps = "cat /data/local/tmp/armload/runs/*-mine-*/trace.jsonl 2>/dev/null | wc -l"
    had = int(ann.on_board(steps))
    wanted = had + random.randint(3, 50)
    waits_until(lambda: int(ann.on_board(steps)) > wanted, process)
    if laptop == "killed":
        process.kill()
        process.communicate()
    power_cut(ann)
    if laptop == "awake":
        out, err = process.communicate(timeout=300)
        assert process.returncode == 9, err
        cut = json.loads(out)
        assert len(cut["tokens"]) >= 3
    else:
        checked(json.loads(ann.types(*words).stdout), 200)
        new = set(json.loads(ann.types("show", "--json").stdout)) - known
        found = [json.loads((ann.runs / each / "run.json").read_text()) for each in new]
        cuts = [run for run in found if run["exit"]["kind"] != "done"]
        if not cuts:  # what was not synced yet, the power took
            return
        (cut,) = cuts
    assert (cut["exit"]["kind"], cut["exit"]["status"]) == ("restart", None)
    assert "restarted" in cut["exit"]["meaning"]
    assert not cut["verdict"]["valid"]
    assert [step["step"] for step in cut["tokens"]] == list(range(len(cut["tokens"])))
    board_is_clean(ann)
    pulled = json.loads(ann.types("pull", "--board", "mine", "--json").stdout)
    assert cut["id"] not in pulled, "it is home already"


@pytest.mark.machine
@pytest.mark.build
@pytest.mark.parametrize("stage", ["connecting", "running"])
def test_a_second_ctrl_c_leaves_at_once_even_when_the_board_is_silent(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    (pid_file,) = (ann.folder / "cache" / "machines").glob("mine-*/qemu.pid")
    qemu = int(pid_file.read_text())
    process = ann.start(*benches(190))
    try:
        if stage == "connecting":
            os.kill(qemu, signal.SIGSTOP)
            time.sleep(1.5)
        else:
            waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
            os.kill(qemu, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        if stage == "running":
            said_by(process, "Stopping the run")
            time.sleep(0.5)
            assert process.poll() is None, "it waits for a board that says nothing"
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "Traceback" not in err
    finally:
        os.kill(qemu, signal.SIGCONT)
    checked(json.loads(ann.types(*benches(190)).stdout), 190)
    board_is_clean(ann)
