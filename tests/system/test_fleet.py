"""Boards behind gateways: a scheduler, two workers and their boards, as processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from distributed import Client

from armload.core.errors import DiskError
from armload.core.progress import Silent
from armload.fleet.gateway import Gateway
from armload.fleet.gateways import Gateways
from armload.fleet.offers import held
from armload.fleet.scheduler import scheduler_address
from tests.labs import Lab, check_sweep, runs_of
from tests.outside_data import STORIES, needs_stories
from tests.person import Person
from tests.services import rpc_servers
from tests.system.people import said_by
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    needs_stories,
]
COVERED = ["armload/fleet", "armload/bench", "armload/runs"]
GATEWAYS = {"hall": ("one", "two"), "cellar": ("three",)}
MODEL = ("--model", str(STORIES), "-t", "1")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"), GATEWAYS)
    made.add_group("pair", "two", "one")
    made.start()
    yield made
    made.stop()


def shared(lab: Lab, *words: str) -> tuple[str, ...]:
    return ("bench", "--board", "@lab", "--share", "--scheduler", lab.address, *MODEL, *words)


def sweep_of(out: str) -> str:
    sweep: str = json.loads(out)["sweep"]
    return sweep


@pytest.mark.exhaustive(covers=COVERED)
def test_a_sweep_is_divided_between_boards_behind_two_gateways(lab: Lab) -> None:
    done = lab.ann.types(*shared(lab, "-n", "4,6", "--repeats", "3", "--json"))
    kept = check_sweep(lab, sweep_of(done.stdout), cells=2, repeats=3)
    assert {run["board"]["name"] for run in kept} == {"one", "two", "three"}
    sent = received(lab)
    assert sorted(path.name for path in sent) == sorted(["llama-completion", STORIES.name] * 2)
    lab.ann.types(*shared(lab, "-n", "5,7", "--json"))
    assert received(lab) == sent


def received(lab: Lab) -> dict[Path, int]:
    """Return what the gateways have received, and when."""
    folders = (gateway.folder / "cache" / "received" for gateway in lab.gateways.values())
    files = (path for folder in folders for path in folder.glob("*/[!.]*"))
    return {path: path.stat().st_ctime_ns for path in files}


@pytest.mark.exhaustive(covers=COVERED)
def test_each_board_behind_its_gateway_runs_the_whole_sweep(lab: Lab) -> None:
    words = ("bench", "--board", "@lab", "--scheduler", lab.address, *MODEL, "-n", "4,8")
    done = lab.ann.types(*words, "--repeats", "1", "--json")
    told = {each["board"]: each["swept"] for each in json.loads(done.stdout)["boards"]}
    assert sorted(told) == ["one", "three", "two"]
    for swept in told.values():
        check_sweep(lab, swept["sweep"], cells=2, repeats=1)


@pytest.mark.exhaustive(covers=COVERED)
def test_one_run_on_one_board_says_what_the_gateway_says(lab: Lab) -> None:
    words = ("--scheduler", lab.address, "--model", str(STORIES), "-n", "12")
    run = lab.ann.benches(*words, board="three")
    assert run["board"]["name"] == "three"
    repeat = lab.ann.benches(*words, "--reference", run["id"], board="one")
    assert repeat["reference"] == {**repeat["reference"], "reference": run["id"], "kind": "same"}
    assert not list(lab.gateways["hall"].runs.glob("*/run.json"))


@pytest.mark.exhaustive(covers=COVERED)
def test_an_engine_and_a_model_are_put_on_boards_through_their_gateways(lab: Lab) -> None:
    words = ("deploy", "--board", "@lab", "--scheduler", lab.address, "--model", str(STORIES))
    placed = json.loads(lab.ann.types(*words, "--json").stdout)
    assert sorted(each["board"] for each in placed) == ["one", "three", "two"]
    for each in placed:
        assert each["error"] is None
        assert Path(each["model"]).read_bytes() == STORIES.read_bytes()
    again = json.loads(lab.ann.types(*words, "--verify", "--json").stdout)
    assert [each["sent"] for each in again] == [False] * 3


@pytest.mark.exhaustive(covers=COVERED)
def test_runs_that_are_left_on_a_board_are_pulled_through_its_gateway(lab: Lab) -> None:
    hall = lab.gateways["hall"]
    left = hall.start("bench", "--board", "one", *MODEL, "-n", "200", "--repeats", "1")
    board = hall.folder / "one-board"
    before = {path.parent.name for path in board.glob("runs/*/exit")}

    def begun() -> list[str]:
        names = (path.parent.name for path in board.glob("runs/*/trace.jsonl"))
        return [name for name in names if name not in before]

    wait_until(lambda: bool(begun()), left, within_s=300)
    left.kill()
    left.communicate()
    (run,) = begun()
    wait_until((board / "runs" / run / "exit").exists, within_s=120)
    words = ("pull", "--board", "@lab", "--scheduler", lab.address, "--json")
    pulled = {each["board"]: each for each in json.loads(lab.ann.types(*words).stdout)}
    assert pulled["one"]["runs"] == [run]
    assert runs_of(lab.ann)[run]["exit"]["kind"] == "done"
    assert json.loads(lab.ann.types(*words).stdout)[0]["runs"] == []


@contextmanager
def in_use(lab: Lab, gateway: str, board: str) -> Iterator[None]:
    """Have a board used by a command on its gateway."""
    person = lab.gateways[gateway]
    holds = person.start("watch", "--board", board, "--", "sleep", "600")
    lease = person.folder / f"{board}-board" / "lease"
    try:
        wait_until(lambda: lease.is_dir() and any(lease.iterdir()), holds, within_s=120)
        yield
    finally:
        holds.send_signal(signal.SIGINT)
        holds.communicate(timeout=60)


@pytest.mark.exhaustive(covers=COVERED)
def test_a_board_that_fails_is_an_error_of_that_board_alone(lab: Lab) -> None:
    with in_use(lab, "cellar", "three"):
        words = shared(lab, "--wait", "0", "-n", "5,9", "--repeats", "2", "--json")
        done = lab.ann.types(*words, status=10)
        check_sweep(lab, sweep_of(done.stdout), cells=2, repeats=2)
        assert "three is in use by" in done.stderr
        assert "1 of 3 boards failed: three." in done.stderr


@pytest.mark.exhaustive(covers=COVERED)
def test_commands_that_wait_for_a_board_delay_nobody_at_an_idle_one(lab: Lab) -> None:
    def started(board: str, seed: int) -> subprocess.Popen[str]:
        words = ("--scheduler", lab.address, *MODEL, "-n", "6", "--repeats", "1", "--wait", "600")
        return lab.ann.start("bench", "--board", board, *words, "--seed", str(seed), "--json")

    with in_use(lab, "hall", "one"):
        first = started("one", 1)
        said_by(first, "one is in use by")
        second = started("one", 2)
        said_by(second, "Waiting for one, which another command uses")
        out, err = started("two", 3).communicate(timeout=300)
        assert "Waiting for two, which" not in err
        assert json.loads(out)["exit"]["kind"] == "done", err
        assert (first.poll(), second.poll()) == (None, None)
    for waited in (first, second):
        out, err = waited.communicate(timeout=300)
        assert json.loads(out)["exit"]["kind"] == "done", err


@pytest.mark.exhaustive(covers=COVERED)
def test_a_group_that_waits_for_one_member_leaves_the_others_to_everybody(lab: Lab) -> None:
    waited, has_both = threading.Semaphore(0), threading.Event()
    with Client(lab.address, set_as_default=False) as client:

        def hold_both() -> None:
            with held(client, ["one", "two"], lambda _: waited.release()):
                has_both.set()

        group = threading.Thread(target=hold_both)
        with held(client, ["two"], pytest.fail):
            group.start()
            for _ in range(2):  # in the first second, it has yet to notice which one is busy
                waited.acquire()
            with held(client, ["one"], pytest.fail):
                assert not has_both.is_set()
        assert has_both.wait(60)
        group.join()


@pytest.mark.exhaustive(covers=COVERED)
def test_what_fails_on_a_gateway_is_no_lost_scheduler(lab: Lab) -> None:
    with closing(Gateways(scheduler_address(lab.address), Silent())) as gateways:
        where, *_ = gateways.workers()
        with pytest.raises(DiskError, match="On the gateway: FileNotFoundError"):
            gateways.call(where.address, Gateway.archive_chunk, "missing", 0)


def test_a_group_behind_one_gateway_runs_and_comes_back_whole(lab: Lab) -> None:
    words = ("--scheduler", lab.address, "--model", str(STORIES), "-n", "12")
    run = lab.ann.benches(*words, board="pair")
    assert (run["board"]["name"], run["exit"]["kind"]) == ("pair", "done")
    assert [share["board"] for share in run["spread"]["shares"]] == ["two", "one"]
    (other,) = run["members"]
    assert (other["board"]["name"], other["exit"]["kind"]) == ("one", "done")
    assert other["samples"]
    assert other["sent_bytes"] > other["received_bytes"] > 12 * 512 * 4
    folder = lab.ann.runs / run["id"] / "members" / "one"
    assert {"job.json", "link.json", "samples"} <= {path.name for path in folder.iterdir()}
    hall = lab.gateways["hall"]
    assert not list(hall.runs.glob("*/run.json"))
    assert not rpc_servers(hall.folder)


def test_what_cannot_be_reached_is_refused_with_what_to_do(lab: Lab) -> None:
    ann = lab.ann
    refused = ann.types("bench", "--board", "mine", "--scheduler", lab.address, status=6)
    assert f"No worker of {lab.address} offers mine. Offered: one, three, two." in refused.stderr
    assert f"armload worker --scheduler {lab.address} --boards mine" in refused.stderr
    plain = ann.types("bench", "--board", "one", "--scheduler", "tcp://10.0.0.1:8786", status=2)
    assert "connections to another machine must be encrypted" in plain.stderr
    lacks = ann.types("bench", "--board", "one", "--scheduler", "10.0.0.1", status=2)
    assert "lacks distributed.comm.tls.ca-file and distributed.comm.tls.client.cert" in lacks.stderr
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for words in (("bench", "--board", "one"), ("worker", "--boards", "one")):
            gone = ann.types(*words, "--scheduler", address, status=6)
            assert f"The scheduler at tcp://{address} does not answer" in gone.stderr


def test_what_is_no_scheduler_is_refused(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_greet, args=(server,), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for words in (("bench", "--board", "one"), ("worker", "--boards", "one")):
            other = lab.ann.types(*words, "--scheduler", address, status=6)
            assert f"tcp://{address} does not answer as a Dask scheduler" in other.stderr


def _greet(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        client.close()


OTHER_VERSION = """
import armload
armload.__version__ = "0.0.1"
from armload.cli.main import main
main()
"""


def test_a_gateway_with_another_version_is_refused_with_both(lab: Lab, tmp_path: Path) -> None:
    import sys

    from armload import __version__

    person = Person(tmp_path / "old")
    person.add_emulated("attic")
    log = tmp_path / "log"
    words = ["worker", "--scheduler", lab.address, "--boards", "attic"]
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, "-c", OTHER_VERSION, *words],
            env=person.environment,
            cwd=person.folder,
            stdout=out,
            stderr=out,
        )
    try:
        wait_until(lambda: "Offering attic" in log.read_text(), worker, within_s=60)
        (lab.ann.folder / "boards" / "attic.yaml").write_text("extends: qemu-user\n")
        words = ["bench", "--board", "attic", "--scheduler", lab.address]
        refused = lab.ann.types(*words, status=2)
        assert f"offers attic with armload 0.0.1; this is armload {__version__}" in refused.stderr
    finally:
        (lab.ann.folder / "boards" / "attic.yaml").unlink(missing_ok=True)
        worker.terminate()
        worker.wait()
