"""The conditions of a run on a whole board: its neighbours, its rates, its caches and its cores."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.person import Person
from tests.system.people import ENGINE_RUNS

pytestmark = [pytest.mark.machine, pytest.mark.build]

NEIGHBOUR = "a busy) one"


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    somebody = Person(tmp_path_factory.mktemp("person"))
    somebody.add_board("mine", "extends: virtual-dayu200\n")
    try:
        yield somebody
    finally:
        somebody.types("board.down", "--board", "mine", "--yes")


@pytest.mark.exhaustive(
    covers=["armload/boards/conditions.py", "armload/runs/prepare.py", "deploy", "toolchains/board"]
)
def test_what_storage_and_memory_give_is_measured_in_the_first_run_of_a_boot(
    person: Person,
) -> None:
    run = person.benches("-n", "2")
    assert run["board"]["storage_read_rate"] == run["board"]["memory_rate"] == "measured"
    assert run["board"]["memory_bytes_per_s"] > 100e6
    assert run["before"]["workdir_filesystem"] == "ext4"
    assert run["before"]["clusters"] == [
        {"cores": [0, 1], "governor": None, "khz": None, "max_khz": None, "limit_khz": None}
    ]
    # Other work on this machine slows reading for a moment: one of some measurements is right.
    storage_bytes_per_s = run["board"]["storage_read_bytes_per_s"]
    assert any(165e6 / 2 < rate < 165e6 * 2 for rate in measured(person, storage_bytes_per_s))


def measured(person: Person, first_bytes_per_s: int) -> Iterator[int]:
    yield first_bytes_per_s
    for _ in "12":
        person.on_board("rm /data/local/tmp/armload/.rates.*")
        probed = person.types("board.probe", "--board", "mine", "--json").stdout
        rates = json.loads(probed)["rates"]
        assert rates["storage_other_way_bytes_per_s"] is not None
        assert rates["storage_others_read_bytes"] is not None
        yield rates["storage_read_bytes_per_s"]


@pytest.mark.exhaustive(
    covers=["armload/boards/conditions.py", "armload/runs/prepare.py", "deploy"]
)
def test_a_cold_run_reads_again_what_a_warm_one_finds(person: Person) -> None:
    size = person.benches("-n", "2")["model"]["size_bytes"]
    former = read_by_the_board(person)
    warm = person.benches("-n", "2")
    between = read_by_the_board(person)
    cold = person.benches("-n", "2", "--cold")
    assert (warm["cache"], cold["cache"]) == (None, "dropped")
    assert between - former < size / 2
    assert read_by_the_board(person) - between > size


def read_by_the_board(person: Person) -> int:
    sectors = person.on_board("cat /sys/block/vda/stat").split()[2]
    return 512 * int(sectors)


@pytest.mark.exhaustive(covers=["armload/analysis/background.py", "armload/boards/conditions.py"])
def test_a_busy_neighbour_is_named(person: Person) -> None:
    program = f"'/data/local/tmp/{NEIGHBOUR}'"
    person.on_board(
        f"cp /usr/bin/mksh {program}; for i in 1 2 3 4; do "
        f"{program} -c 'while :; do :; done' </dev/null >/dev/null 2>&1 & done"
    )
    # A single thread would have a core to itself.
    words = ("bench", "--board", "mine", "-n", "16", "--threads", "2", "--repeats", "1", "--json")
    try:
        run = json.loads(person.types(*words).stdout)
    finally:
        person.on_board(f"killall {program}; rm {program}; true")
    busiest = run["background_processes"][0]
    assert (busiest["name"], busiest["processes"]) == (NEIGHBOUR, 4)
    assert busiest["share"] > 0.3
    assert not run["verdict"]["valid"]
    assert any(f"mostly by {NEIGHBOUR} (" in reason for reason in run["verdict"]["reasons"])
    shown = person.types("show", "--run", run["id"]).stdout
    assert f"{NEIGHBOUR} {busiest['share']:.0%} of a core" in " ".join(shown.split())


@pytest.mark.exhaustive(covers=["armload/runs", "deploy"])
def test_a_run_is_kept_to_its_cores_and_to_no_more_threads(person: Person) -> None:
    process = person.start(
        *("bench", "--board", "mine", "-n", "24", "--cpus", "1", "--repeats", "1", "--json")
    )
    person.waits_on_board(ENGINE_RUNS, process)
    said = person.on_board("grep Cpus_allowed_list /proc/$(pidof llama-completion)/status")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert said.split() == ["Cpus_allowed_list:", "1"]
    run = json.loads(out)
    assert run["trace"]["threads"] == 1
    assert run["command"][:2] == ["taskset", "2"]
    refused = person.types("bench", "--board", "mine", "-n", "2", "--cpus", "0-2", status=2)
    assert "mine has no core 2" in refused.stderr
