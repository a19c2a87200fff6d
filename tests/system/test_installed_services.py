"""Services that stay: installed, rebooted, updated and rolled back, through every power cut."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from armload.boards.board import load_board
from armload.core.progress import Silent
from armload.services.asking import reached
from armload.services.reaching import ReachedService, key_of, reached_service
from tests.person import Person
from tests.system.serving import in_place_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.build, pytest.mark.machine]

COVERED = ["armload/services", "deploy/service", "toolchains/board", "deploy/virtual"]
MODEL = "word-problems:Q8_0"
NAME = "tutor"
ON = ("--board", "mine", "--name", NAME)
SETTINGS = ("--model", MODEL, "--threads", "1", "--slots", "1", "--context", "256")
RETURNS_WITHIN_S = 240
BEGINS_WITHIN_S = 30
SEED = int(os.environ.get("ARMLOAD_TEST_SEED", "20261129"))


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("installed") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    try:
        yield person
    finally:
        person.types("board.down", "--board", "mine", "--yes")


@pytest.fixture(scope="module")
def tutor(ann: Person) -> dict[str, Any]:
    """The service, as installing it has described it."""
    done = ann.types("service.install", *ON, *SETTINGS, "--json")
    return dict(json.loads(done.stdout))


@contextmanager
def service(person: Person) -> Iterator[ReachedService]:
    with in_place_of(person), reached_service(load_board("mine"), NAME, Silent()) as found:
        yield found


def status_of(person: Person) -> dict[str, Any]:
    board = json.loads(person.types("service.status", *ON, "--json").stdout)
    (found,) = board["services"]
    return dict(found)


def curl(person: Person, path: str, *words: str, key: str | None = None) -> tuple[int, str]:
    """Ask a service as a client does; return the status and what it answers."""
    with service(person) as found:
        shown = key_of(found.host, found.layout) if key is None else key
        with reached(found.host, found.record) as url:
            done = subprocess.run(
                ["curl", "-s", "-m", "300", "-w", "\n%{http_code}"]
                + (["-H", f"Authorization: Bearer {shown}"] if shown else [])
                + [*words, f"{url}{path}"],
                capture_output=True,
                text=True,
                check=True,
            )
    text, _, code = done.stdout.rpartition("\n")
    return int(code), text


def answers(person: Person) -> bool:
    body = json.dumps({"model": "any", "prompt": "Ann has 3", "max_tokens": 4})
    code, text = curl(person, "/v1/completions", "-H", "Content-Type: application/json", "-d", body)
    return code == 200 and json.loads(text)["usage"]["completion_tokens"] > 0


def reboots(person: Person) -> None:
    """Reboot the board, and wait until another boot answers."""
    boot = person.on_board("cat /proc/sys/kernel/random/boot_id")
    person.on_board("reboot >/dev/null 2>&1 &")

    def is_new() -> bool:
        try:
            return person.on_board("cat /proc/sys/kernel/random/boot_id") != boot
        except subprocess.CalledProcessError:
            return False

    wait_until(is_new, within_s=RETURNS_WITHIN_S)


def is_ready(person: Person) -> bool:
    return bool(status_of(person)["condition"] == "ready")


def test_it_answers_with_its_key_alone_and_says_where(ann: Person, tutor: dict[str, Any]) -> None:
    listening = tutor["record"]["listening"]
    assert (listening["addresses"], listening["port"]) == (["127.0.0.1"], 8080)
    assert not listening["with_tls"]
    assert tutor["record"]["init"] == "busybox"
    assert Path(tutor["api_key_file"]).stat().st_mode & 0o777 == 0o600
    key = Path(tutor["api_key_file"]).read_text().strip()
    assert curl(ann, "/v1/models", key=key)[0] == 200
    assert curl(ann, "/v1/models", key="wrong")[0] == 401
    assert curl(ann, "/v1/models", key="")[0] == 401
    assert curl(ann, "/health", key="")[0] == 200
    code, shown = curl(ann, "/health", "-i", "-H", "Origin: http://evil.example", key="")
    assert code == 200
    assert "access-control-allow-origin: none" in shown.lower()
    assert answers(ann)
    limits = ann.on_board("cat /proc/$(pidof llama-server)/limits | grep 'Max cpu time'")
    assert limits.split()[3:5] == ["unlimited", "unlimited"]
    secret = ann.on_board("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | strings")
    assert key not in secret


def test_a_second_one_of_that_name_is_refused(ann: Person, tutor: dict[str, Any]) -> None:
    del tutor
    refused = ann.types("service.install", *ON, *SETTINGS, status=2).stderr
    assert "already has a service named tutor" in " ".join(refused.split())


def test_a_killed_server_comes_back_and_the_reason_is_kept(
    ann: Person, tutor: dict[str, Any]
) -> None:
    del tutor
    with service(ann) as found:
        assert found.state.state is not None
        child = found.state.state.child
    ann.on_board(f"kill -9 {child}")
    wait_until(lambda: status_of(ann)["restarts"] == 1, within_s=RETURNS_WITHIN_S)
    wait_until(lambda: is_ready(ann), within_s=RETURNS_WITHIN_S)
    assert status_of(ann)["last_end"] == "signal 9"
    assert answers(ann)


@pytest.mark.exhaustive(covers=COVERED)
def test_it_is_there_after_a_reboot(ann: Person, tutor: dict[str, Any]) -> None:
    reboots(ann)
    wait_until(lambda: is_ready(ann), within_s=RETURNS_WITHIN_S)
    assert status_of(ann)["version"] == tutor["record"]["id"]
    assert answers(ann)


@pytest.mark.exhaustive(covers=COVERED)
def test_keys_are_added_and_revoked_by_name(ann: Person, tutor: dict[str, Any]) -> None:
    first = Path(tutor["api_key_file"]).read_text().strip()
    added = json.loads(ann.types("service.keys", *ON, "--add", "laptop", "--json").stdout)
    assert added["names"] == ["first", "laptop"]
    assert curl(ann, "/v1/models", key=added["added"])[0] == 200
    revoked = json.loads(ann.types("service.keys", *ON, "--revoke", "first", "--json").stdout)
    assert (revoked["names"], revoked["added"]) == (["laptop"], None)
    assert curl(ann, "/v1/models", key=first)[0] == 401
    left = ann.types("service.keys", *ON, "--revoke", "laptop", status=2).stderr
    assert "without a key" in " ".join(left.split())


@pytest.mark.exhaustive(covers=COVERED)
def test_its_files_stay_when_the_board_is_cleaned(ann: Person, tutor: dict[str, Any]) -> None:
    ann.types("service.stop", *ON)
    cleaned = json.loads(
        ann.types("board.clean", "--board", "mine", "--older-than", "0", "--yes", "--json").stdout
    )
    kept = {each["name"]: each["state"] for each in cleaned["kept"]}
    assert {kept[each] for each in tutor["record"]["uses"]} == {"service"}
    ann.types("service.restart", *ON)
    assert answers(ann)


@pytest.mark.exhaustive(covers=COVERED)
def test_an_update_is_tried_compared_and_undone(ann: Person, tutor: dict[str, Any]) -> None:
    words = ("--slots", "2", "--slower", "90%", "--json")
    updated = json.loads(ann.types("service.update", *ON, *words).stdout)
    assert updated["former"] == tutor["record"]["id"]
    assert updated["record"]["models"][0]["plan"]["slots"] == 2
    assert updated["record"]["models"][0]["plan"]["context_tokens"] == 256
    assert updated["tried"] == "beside"
    assert [each["model"] for each in updated["changes"]] == ["word-problems-Q8_0"]
    assert status_of(ann)["version"] == updated["record"]["id"]
    assert answers(ann)
    back = json.loads(ann.types("service.rollback", *ON, "--json").stdout)
    assert (back["version"], back["former"]) == (tutor["record"]["id"], updated["record"]["id"])
    assert answers(ann)


@pytest.mark.exhaustive(covers=COVERED)
def test_a_version_that_does_not_start_leaves_the_old_one(
    ann: Person, tutor: dict[str, Any]
) -> None:
    words = ("--engine-args", "--no-such-option")
    failed = ann.types("service.update", *ON, *words, status=9).stderr
    assert "--no-such-option" in failed
    now = status_of(ann)
    assert (now["version"], now["condition"]) == (tutor["record"]["id"], "ready")
    assert answers(ann)


@pytest.mark.exhaustive(covers=COVERED)
def test_a_load_measures_it_and_says_that_it_was_not_alone(
    ann: Person, tutor: dict[str, Any]
) -> None:
    del tutor
    words = ("--concurrency", "1", "--requests", "2", "--n-predict", "4", "--prompt-tokens", "8")
    done = ann.types("load", "--board", "mine", "--service", NAME, *words, "--json")
    load = json.loads(done.stdout)
    assert (load["installed"], load["board"]) == (NAME, "mine")
    assert load["points"][0]["metrics"]["ok"] == 2


def test_a_person_talks_to_it(ann: Person, tutor: dict[str, Any]) -> None:
    del tutor
    said = json.loads(ann.chats("Once", "--board", "mine", "--n-predict", "4").stdout)
    assert said["outcome"] == "ok"
    assert said["answer"]
    assert answers(ann)  # it has not ended with the conversation


def cut_power_during(person: Person, delay_s: float, *words: str) -> None:
    """Start a command, and switch the board off some time later."""
    process = person.start(*words)
    time.sleep(delay_s)
    machine = person.machine()
    assert machine is not None
    os.kill(machine, signal.SIGKILL)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    person.types("board.up", "--board", "mine")


def check_whole(person: Person, versions: set[str]) -> None:
    """Check that the board serves one complete version."""
    wait_until(lambda: is_ready(person), within_s=RETURNS_WITHIN_S)
    with service(person) as found:
        assert found.record.id in versions | set(found.state.kept)
    assert answers(person)


def begins_at_boot(person: Person) -> bool:
    """Return whether the board's init starts the service; before its unit is there, none does."""
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while time.monotonic() < deadline:
        shown = json.loads(person.types("service.list", "--board", "mine", "--json").stdout)
        if any(each["condition"] in ("loading", "ready", "pausing") for each in shown):
            return True
        time.sleep(1)
    return False


@pytest.mark.exhaustive(covers=COVERED)
@pytest.mark.parametrize("number", range(10))
def test_a_power_cut_in_an_update_leaves_one_version_or_the_other(
    ann: Person, tutor: dict[str, Any], number: int
) -> None:
    chance = random.Random(f"{SEED} update {number}")
    slots = "2" if number % 2 else "3"
    words: tuple[str, ...] = ("service.update", *ON, "--slots", slots, "--slower", "90%")
    if number % 3 == 2:
        words = ("service.rollback", *ON)
    cut_power_during(ann, chance.uniform(3, 70), *words)
    check_whole(ann, {tutor["record"]["id"]})


@pytest.mark.exhaustive(covers=COVERED)
@pytest.mark.parametrize("number", range(10))
def test_a_power_cut_in_installing_leaves_a_whole_service_or_none(
    ann: Person, tutor: dict[str, Any], number: int
) -> None:
    del tutor
    chance = random.Random(f"{SEED} install {number}")
    ann.types("service.remove", *ON)
    cut_power_during(ann, chance.uniform(3, 50), "service.install", *ON, *SETTINGS)
    if begins_at_boot(ann):
        wait_until(lambda: is_ready(ann), within_s=RETURNS_WITHIN_S)
        assert answers(ann)
    shown = json.loads(ann.types("service.list", "--board", "mine", "--json").stdout)
    if not any(each["installed"] and each["installed"]["speed"] for each in shown):
        ann.types("service.install", *ON, *SETTINGS)
    assert answers(ann)


def test_nothing_of_it_is_left_after_its_removal(ann: Person, tutor: dict[str, Any]) -> None:
    del tutor
    ann.types("service.remove", *ON)
    left = ann.on_board(
        "ls /data/local/tmp/armload/services /etc/init.d; cat /proc/[0-9]*/cmdline | strings"
    )
    assert "tutor" not in left
    assert "llama-server" not in left
    assert json.loads(ann.types("service.list", "--board", "mine", "--json").stdout) == []
