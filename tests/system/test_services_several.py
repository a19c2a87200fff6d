"""Services of this machine: several models, and what goes wrong with a disk, a file or a unit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from armload.boards.board import load_board
from armload.boards.connect import connect
from armload.core.progress import Silent
from armload.deploy.lease import leased
from armload.models.find import model_called
from tests.faults import small_disk
from tests.outside_data import shared
from tests.recurrent import predicting_model
from tests.system.households import Household, household
from tests.system.serving import in_place_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(1800),
    # A minute is watched after each update.
    pytest.mark.exhaustive(covers=["armload/services", "deploy/service", "toolchains/board"]),
]

SMALL, SMALLER = "word-problems:Q8_0", "word-problems:Q2_K"
ONE_SLOT = "threads: 1\nslots: 1\ncontext: 256\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    folder = tmp_path_factory.mktemp("household")
    with household(folder, folder / "board") as made:
        yield made


@pytest.fixture(scope="module")
def pair(home: Household) -> dict[str, Any]:
    """Two models, of which one is in memory: one guesses with a draft, one streams its weights."""
    folder = home.person.folder
    (folder / "a.yaml").write_text(f"model: {SMALL}\n{ONE_SLOT}speculate: draft:{SMALLER}\n")
    (folder / "b.yaml").write_text(
        f"model: {SMALLER}\n{ONE_SLOT}speculate: ngram\nweights: streamed\n"
    )
    words = ("--plan", "a.yaml,b.yaml", "--most-loaded", "1", "--sleep-idle", "3")
    return dict(home.types("install", *words, "--init", "cron"))


def names(pair: dict[str, Any]) -> list[str]:
    return [each["alias"] for each in pair["record"]["models"]]


def test_what_fits_together_and_what_a_switch_takes_is_said_before_the_copy(
    home: Household, pair: dict[str, Any]
) -> None:
    first, second = names(pair)
    (note,) = (each for each in pair["notes"] if first in each)
    assert f"{first} and {second} fit into memory together" in note
    assert re.search(rf"A switch takes about [\d.]+ m?s to {first}, [\d.]+ m?s to {second}", note)
    before, _, after = home.said.partition("A switch takes")
    assert after
    assert "Starting pair" not in before  # which is said only where it takes a while


def test_each_of_several_models_keeps_its_settings_and_its_trace(
    home: Household, pair: dict[str, Any]
) -> None:
    for model in (*names(pair), names(pair)[0]):
        assert home.writes(model) == 12
        loaded = {each["model"]: each["is_loaded"] for each in home.status()["activity"]}
        assert loaded == {each: each == model for each in names(pair)}
        folder = home.workdir / "services" / "pair"
        version = pair["record"]["id"]
        lines = (folder / f"trace-{version}-{model}.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        weights = [each["weights"] for each in steps if "weights" in each]
        is_first = model == names(pair)[0]
        # Of weights that are mapped, as everywhere, it says nothing.
        assert set(weights) == (set() if is_first else {"streamed"}), lines[:3]
        # The draft's own steps are told apart, and only the first model has one.
        assert any(each.get("model", 0) == 1 for each in steps if "step" in each) == is_first


def test_tokens_are_guessed_from_a_text_that_repeats_itself(
    home: Household, pair: dict[str, Any]
) -> None:
    """llama.cpp drops guesses of fewer than three tokens, as after a text that repeats two."""
    model = names(pair)[1]
    sentence = "Leo starts with 14 marbles. Leo loses 5 marbles. "
    body = {"model": model, "prompt": (sentence * 4).strip(), "max_tokens": 32, "temperature": 0}
    timings = home.asks("v1/completions", body)["timings"]
    assert timings["draft_n"] > 0
    assert sum(each["speculated_tokens"] for each in home.steps(model)) == timings["draft_n"]


def test_a_model_guesses_with_its_own_layers(home: Household) -> None:
    path = predicting_model(shared("stories260K.gguf"), home.person.folder / "predicting.gguf")
    words = ("--model", str(path), "--threads", "1", "--slots", "1", "--context", "256")
    home.types("install", *words, "--speculate", "mtp", "--init", "cron", name="mtp")
    assert home.writes(name="mtp") == 12
    steps = home.steps(name="mtp")
    assert sum(each["speculated_tokens"] for each in steps) > 0
    assert {each.get("model", 0) for each in steps} == {0, 1}
    home.types("remove", name="mtp")


def test_an_idle_model_frees_its_memory_and_comes_back_when_it_is_asked(
    home: Household, pair: dict[str, Any]
) -> None:
    model = names(pair)[0]
    home.writes(model)
    loaded = f"props?model={model}&autoload=false"
    awake = home.asks(loaded)
    assert awake["is_sleeping"] is False
    wait_until(lambda: home.asks(loaded)["is_sleeping"], within_s=60)
    home.status()  # which asks for its metrics
    assert home.asks(loaded)["is_sleeping"] is True
    assert home.writes(model) == 12


def test_another_person_of_the_board_sees_it_and_has_the_board_in_turn(
    home: Household, pair: dict[str, Any], tmp_path: Path
) -> None:
    bob = Household(tmp_path / "bob", home.workdir, {}, home.table)
    bob.person.environment["PATH"] = home.person.environment["PATH"]
    assert bob.status()["version"] == pair["record"]["id"]
    added = bob.types("keys", "--add", "bob")
    assert added["names"] == ["first", "bob"]
    assert home.types("keys")["names"] == ["first", "bob"]
    assert "already has a service named pair" in bob.types("install", "--init", "cron", status=2)
    with in_place_of(home.person):
        board = load_board("here")
        with (
            closing(connect(board, Silent())) as host,
            leased(
                *(host, board.workdir, Silent()),
                wait_s=0,
                beside=lambda: connect(board, Silent()),
            ),
        ):
            for verb in ("stop", "restart", "update", "rollback", "remove"):
                assert "is in use by" in bob.types(verb, "--wait", "0", status=10)
    assert bob.types("stop")["kind"] == "installed"
    assert home.status()["condition"] == "stopped"
    home.types("restart")
    assert home.writes(names(pair)[0]) == 12


def test_a_unit_that_was_edited_by_hand_is_shown_and_kept(
    home: Household, pair: dict[str, Any]
) -> None:
    assert home.status()["unit"] == "installed"
    edited = home.table.read_text().replace("@reboot", "@reboot  nice")
    home.table.write_text(edited)
    assert home.status()["unit"] == "edited"
    shown = home.person.types("service.status", "--board", "here").stdout
    assert "was edited by hand and is kept" in " ".join(shown.split())
    update = ("--slots", "1", "--slower", "90%")
    kept = home.types("update", *update)
    assert any("--overwrite" in each for each in kept["notes"])
    assert home.table.read_text() == edited
    del pair


def test_a_model_that_was_deleted_is_named_and_copied_again_and_a_unit_may_be_overwritten(
    home: Household, pair: dict[str, Any]
) -> None:
    first = next(each for each in pair["record"]["uses"] if each.startswith("models/"))
    place = home.workdir / first
    subprocess.run(["rm", "-r", str(place)], check=True)
    assert home.status()["missing"] == [str(place)]
    remark = " ".join(home.person.types("service.status", "--board", "here").stdout.split())
    assert f"{place} is missing on the board; it was deleted by hand" in remark
    refused = home.types("restart", status=7)
    assert f"{place} is missing" in refused
    assert "service.update" in refused
    assert home.status()["condition"] == "ready"
    edited = home.table.read_text()
    assert home.status()["unit"] == "edited"
    replaced = home.types("update", "--slower", "90%", "--overwrite")
    assert not any("edited" in each for each in replaced["notes"])
    assert home.table.read_text() != edited
    assert (home.status()["unit"], home.status()["missing"]) == ("installed", [])
    assert all(home.writes(each) == 12 for each in names(pair))


def test_boards_of_a_label_are_updated_one_after_another_up_to_the_first_that_fails(
    home: Household, pair: dict[str, Any]
) -> None:
    board = f"extends: this-machine\nworkdir: {home.workdir}\nlabels: [kitchens]\n"
    home.person.add_board("cellar", board)
    away = "reach: {kind: ssh, host: 127.0.0.1, port: 9}\ntarget: host\nlabels: [kitchens]\n"
    home.person.add_board("den", away)
    home.person.add_board("loft", board)
    words = ("--board", "@kitchens", "--name", "pair")
    before = home.status()["version"]
    done = home.person.types("service.update", *words, "--slower", "90%", "--json", status=6)
    first, second, third = json.loads(done.stdout)
    assert (first["board"], first["error"]) == ("cellar", None)
    assert first["result"]["former"] == before
    assert second["board"] == "den"
    assert third["error"]["message"] == "loft was not begun, because den failed."
    assert home.status()["version"] == first["result"]["record"]["id"]
    shown = home.person.types("service.status", *words, "--json", status=6)
    assert [each["error"] is None for each in json.loads(shown.stdout)] == [True, False, True]
    del pair


def test_cached_prompts_are_not_processed_again_after_a_restart(home: Household) -> None:
    words = ("--model", SMALL, "--threads", "1", "--slots", "1", "--context", "256")
    home.types("install", *words, "--prompt-cache", "64MiB", "--init", "cron", name="kept")
    prompt = "Leo starts with 14 marbles. Leo loses 5 marbles. " * 8
    body = {"prompt": prompt, "n_predict": 4, "temperature": 0}
    first = home.asks("completion", body, name="kept")
    assert first["timings"]["prompt_n"] > 60
    home.types("restart", name="kept")
    again = home.asks("completion", body, name="kept")
    assert again["timings"]["prompt_n"] < 5
    assert again["timings"]["cache_n"] > 60
    assert again["content"] == first["content"]
    # Nothing of it stays on the storage but for the next restart.
    assert not list((home.workdir / "services" / "kept" / "private").glob("slot-*"))
    home.types("update", "--context", "512", "--slower", "90%", name="kept")
    assert home.asks("completion", body, name="kept")["timings"]["prompt_n"] > 60
    home.types("remove", name="kept")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_takes_back_what_it_has_begun(
    tmp_path: Path, number: signal.Signals
) -> None:
    with household(tmp_path, tmp_path / "board") as home:
        words = ("--model", SMALL, "--threads", "1", "--slots", "1", "--context", "256")
        begun = home.person.start(
            *("service.install", "--board", "here", "--name", "tutor", "--init", "cron", *words)
        )
        wait_until((home.workdir / "services" / "tutor" / "state").exists, within_s=600)
        begun.send_signal(number)
        said = begun.communicate(timeout=60)[1]
        assert begun.returncode == 128 + number, said
        assert said.count("Interrupted.") == said.count("here: nothing of tutor is installed.") == 1
        assert not list((home.workdir / "services").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system takes root")
def test_a_full_disk_in_an_update_leaves_the_service_as_it_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 48) as disk, household(tmp_path, disk / "board") as home:
        words = ("--model", SMALL, "--threads", "1", "--slots", "1", "--context", "256")
        old = home.types("install", *words, "--init", "cron", name="tutor")["record"]["id"]
        folder = home.workdir / "services" / "tutor" / "versions"
        before = sorted(each.name for each in folder.iterdir())
        larger = model_called("random", Silent())
        fill(disk, larger.path.stat().st_size // 2)
        said = home.types("update", "--model", str(larger.path), status=7, name="tutor")
        assert re.search(r"not enough space .* need \d+\.\d MB more", said), said
        fill(disk, 0)
        said = home.types("update", "--slots", "2", status=7, name="tutor")
        assert "full" in said or "space" in said, said
        assert sorted(each.name for each in folder.iterdir()) == before
        now = home.status("tutor")
        assert (now["version"], now["condition"], now["interrupted"]) == (old, "ready", None)
        assert home.writes(name="tutor") == 12
        (disk / "fill").unlink()
        home.types("update", "--slots", "2", "--slower", "90%", name="tutor")
        assert home.writes(name="tutor") == 12


def fill(disk: Path, left_bytes: int) -> None:
    """Take all of a file system's room but so much."""
    (disk / "fill").unlink(missing_ok=True)
    now = os.statvfs(disk)
    with (disk / "fill").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, now.f_bavail * now.f_frsize - left_bytes))
