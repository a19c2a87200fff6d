"""Services on boards behind a gateway: each verb, through a scheduler and a worker as processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from armload.boards.host import Host
from armload.boards.virtual.process import free_port
from armload.core.progress import Silent
from armload.fleet.gateway_host import BehindGateways
from armload.fleet.gateways import Gateways
from armload.fleet.remote_tasks import RemoteTasks
from armload.fleet.scheduler import scheduler_address
from tests.cron_stand_in import cron
from tests.labs import Lab
from tests.services import Echo, echoed, service
from tests.waiting import wait_until

pytestmark = [pytest.mark.build]

COVERED = ["armload/services", "armload/fleet", "armload/boards", "deploy/service"]
MODEL = "word-problems:Q8_0"
SETTINGS = ("--model", MODEL, "--threads", "1", "--slots", "1", "--context", "256")
SLEEP_S = 3600
NAME = "tutor"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    with cron(folder / "cron") as (variables, _):
        made = Lab(folder / "lab", {"hall": ("one", "two")})
        hall = made.gateways["hall"]
        hall.environment |= variables
        made.ann.environment["XDG_STATE_HOME"] = str(made.ann.folder / "state")
        for board in ("one", "two"):
            text = f"extends: this-machine\nlabels: [lab]\nworkdir: {{}}/{board}-board\n"
            hall.add_board(board, text.format(hall.folder))
            made.ann.add_board(board, text.format(made.ann.folder))
        made.start()
        try:
            yield made
        finally:
            for board in ("one", "two"):
                for each in (hall.folder / f"{board}-board" / "services").glob("*"):
                    hall.types("service.remove", "--board", board, "--name", each.name)
            made.stop()


@pytest.fixture(scope="module")
def installed(lab: Lab) -> dict[str, dict[str, Any]]:
    """The service on both boards, as installing it has described it."""
    done = types(lab, "install", "@lab", *SETTINGS, "--sleep-idle", str(SLEEP_S))
    assert [each["error"] for each in done] == [None, None]
    return {each["board"]: each["result"] for each in done}


def types(lab: Lab, verb: str, board: str, *words: str, status: int = 0) -> Any:
    """Type a verb of the service; return what it did, or of a failure what it said."""
    on = ("--board", board, "--scheduler", lab.address, "--name", NAME)
    done = lab.ann.types(f"service.{verb}", *on, *words, "--json", status=status)
    return " ".join(done.stderr.split()) if status else json.loads(done.stdout)


def status_of(lab: Lab, board: str) -> dict[str, Any]:
    (found,) = types(lab, "status", board)["services"]
    return dict(found)


def chats(lab: Lab, board: str, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    on = ("--board", board, "--scheduler", lab.address, "--n-predict", "4")
    return lab.ann.chats("Ann has 3", *on, *words, status=status)


def test_boards_of_a_label_get_it_one_after_another_and_the_gateway_the_model_once(
    lab: Lab, installed: dict[str, dict[str, Any]]
) -> None:
    assert sorted(installed) == ["one", "two"]
    hall = lab.gateways["hall"].folder
    for board, done in installed.items():
        folder = hall / f"{board}-board" / "services" / NAME
        assert (folder / "version").read_text().strip() == done["record"]["id"]
        kept = Path(done["api_key_file"])
        assert kept.is_relative_to(lab.ann.folder)
        assert kept.read_text() == (folder / "keys").read_text()
        assert not (lab.ann.folder / f"{board}-board").exists()
        assert status_of(lab, board)["condition"] == "ready"
    assert len({done["record"]["listening"]["port"] for done in installed.values()}) == 2
    assert len(list(hall.glob("cache/received/*/*.gguf"))) == 1


@pytest.mark.usefixtures("installed")
def test_services_of_all_boards_are_listed(lab: Lab) -> None:
    words = ("service.list", "--board", "@lab", "--scheduler", lab.address, "--json")
    listed = json.loads(lab.ann.types(*words).stdout)
    found = {(each["board"], each["name"], each["kind"]) for each in listed}
    assert found == {(board, NAME, "installed") for board in ("one", "two")}


@pytest.mark.usefixtures("installed")
def test_a_person_talks_to_it(lab: Lab) -> None:
    said = json.loads(chats(lab, "two").stdout)
    assert (said["outcome"], bool(said["answer"])) == ("ok", True)


@pytest.mark.usefixtures("installed")
def test_its_log_is_shown(lab: Lab) -> None:
    shown = types(lab, "logs", "one", "--lines", "5")
    own = lab.gateways["hall"].folder / "one-board" / "services" / NAME / "log"
    assert 0 < len(shown["lines"]) <= 5
    assert shown["lines"][0] in own.read_text(errors="replace")


def test_keys_are_added_and_revoked(lab: Lab, installed: dict[str, dict[str, Any]]) -> None:
    added = types(lab, "keys", "one", "--add", "laptop")
    assert added["names"] == ["first", "laptop"]
    own = lab.gateways["hall"].folder / "one-board" / "services" / NAME / "keys"
    assert added["added"] in own.read_text().split()
    revoked = types(lab, "keys", "one", "--revoke", "laptop")
    assert revoked["names"] == ["first"]
    assert own.read_text() == Path(installed["one"]["api_key_file"]).read_text()


@pytest.mark.exhaustive(covers=COVERED)
def test_an_update_is_tried_and_undone(lab: Lab, installed: dict[str, dict[str, Any]]) -> None:
    assert installed["one"]["record"]["sleep_idle_s"] == SLEEP_S
    words = ("--slots", "2", "--sleep-idle", "never", "--slower", "90%")
    updated = types(lab, "update", "one", *words)
    assert updated["record"]["sleep_idle_s"] is None
    assert updated["former"] == installed["one"]["record"]["id"]
    assert updated["record"]["models"][0]["plan"]["slots"] == 2
    back = types(lab, "rollback", "one")
    assert (back["version"], back["former"]) == (updated["former"], updated["record"]["id"])
    assert status_of(lab, "two")["version"] == installed["two"]["record"]["id"]


@pytest.fixture
def host(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.chdir(lab.ann.folder)
    with closing(Gateways(scheduler_address(lab.address), Silent())) as gateways:
        yield BehindGateways("one", RemoteTasks(gateways), Silent()).connect(Silent())


def test_a_gateway_that_was_restarted_carries_the_next_command_and_the_next_client(
    lab: Lab, host: Host
) -> None:
    with service(Echo) as port, host.forwarded(port) as forward:
        assert echoed(forward.port, b"before") == b"before"
        assert host.run("echo before").text == "before"
        lab.kill("hall")
        lab.start_gateway("hall")

        def is_back() -> bool:
            return echoed(forward.port, b"after") == b"after"

        wait_until(is_back, within_s=60)
    wait_until(lambda: host.run("echo after").text == "after", within_s=60)


def test_what_the_gateway_does_not_offer_is_refused(lab: Lab) -> None:
    lab.ann.add_board("attic", "extends: this-machine\n")
    said = types(lab, "status", "attic", status=6)
    assert "No worker of" in said
    assert "Offered: one, two." in said


def test_a_board_of_another_target_is_refused_before_anything_is_built(lab: Lab) -> None:
    path = lab.ann.folder / "boards" / "two.yaml"
    text = path.read_text()
    path.write_text(text.replace("this-machine", "qemu-user"))
    try:
        said = types(lab, "install", "two", *SETTINGS, status=2)
    finally:
        path.write_text(text)
    assert "Use the same board files on both." in said
    assert "Building" not in said


@pytest.mark.usefixtures("installed")
def test_stopped_it_is_no_partner_and_none_is_started_and_restarted_it_answers(lab: Lab) -> None:
    stopped = types(lab, "stop", "two")
    assert (stopped["name"], stopped["kind"]) == (NAME, "installed")
    done = chats(lab, "two", status=2)
    assert "Through gateways, chat starts none." in " ".join(done.stderr.split())
    started = chats(lab, "two", "--threads", "1", status=2)
    assert "starts none" in " ".join(started.stderr.split())
    assert types(lab, "restart", "two")["done"] == "restarted"
    assert status_of(lab, "two")["condition"] == "ready"


@pytest.mark.usefixtures("installed")
def test_nothing_of_it_is_left_after_its_removal(lab: Lab) -> None:
    assert types(lab, "remove", "two")["done"] == "removed"
    assert not list((lab.gateways["hall"].folder / "two-board" / "services").glob("*"))
    assert types(lab, "status", "one")["services"][0]["condition"] == "ready"


def test_a_port_on_which_nothing_listens_turns_clients_away(host: Host) -> None:
    with host.forwarded(free_port()) as forward:
        assert echoed(forward.port, b"anybody?") == b""
        forward.check()
