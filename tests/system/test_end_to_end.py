"""The program as a person uses it, from names to every token's time, on a machine of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from armload.core.progress import Silent
from armload.models.synth import synthesise
from tests.faults import Relay
from tests.outside_data import shared
from tests.person import Person
from tests.recurrent import hybrid_model
from tests.system.people import ALL_RUNS_ENDED, add_by_ssh, held_engine, share, switched_on
from tests.unit.test_models_synth import SMALL

pytestmark = [pytest.mark.machine, pytest.mark.build]
again = pytest.mark.exhaustive(covers=["armload/engines", "armload/runs", "toolchains"])
predicted = pytest.mark.exhaustive(
    covers=[
        "armload/analysis/prediction.py", "armload/analysis/streamed_prediction.py",
        "armload/bench/fitting.py", "armload/engines", "armload/models", "armload/runs",
        "toolchains",
    ]
)  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]

OLD_CPU = "extends: qemu-user\nreach: {kind: local, launcher: [qemu-aarch64, -cpu, cortex-a53]}\n"
THREE_LINES = (
    "pidof llama-completion >/dev/null && cd /data/local/tmp/armload/runs && "
    '[ "$(cat $(ls -t | head -n 1)/trace.jsonl 2>/dev/null | wc -l)" -ge 3 ]'
)
"""An engine runs, and has written its trace's header and two steps."""


@pytest.fixture(scope="module")
def person(people: tuple[Person, Person]) -> Person:
    return people[0]


@pytest.fixture(scope="module")
def story(person: Person) -> dict[str, Any]:
    model = str(shared("stories260K.gguf"))
    return person.benches("--model", model, "-p", "Once upon a time", "-n", "252")


def test_the_text_that_comes_back_is_what_the_models_author_published(
    story: dict[str, Any],
) -> None:
    assert story["text"] + "\n" == shared("stories260K.expected.txt").read_text()
    assert story["exit"]["status"] == 0


@predicted
def test_fit_predicts_the_run_of_a_model_from_operations_that_are_timed_once(
    person: Person, story: dict[str, Any]
) -> None:
    model = str(shared("stories260K.gguf"))
    # As many threads as the runs have: operations are timed for one number of them.
    words = ("fit", "--board", "mine", "--model", model, "--threads", "1", "--json")
    before = sorted(person.runs.iterdir())
    done = person.types(*words, "--prompt-tokens", "5")
    (found,) = json.loads(done.stdout)["models"]
    prediction = found["prediction"]
    assert (prediction["verdict"], prediction["compute"]) == ("fits", "operations")
    token_s = prediction["token_s"]
    assert 0 < token_s["low"] < token_s["value"] < token_s["high"]
    assert prediction["ttft_s"]["value"] >= prediction["load_s"]["value"]
    parts = prediction["memory"]
    assert parts["weights_bytes"] == story["model"]["size_bytes"]
    assert story["memory"]["max_rss_bytes"] < sum(
        parts[name] for name in ("weights_bytes", "kv_bytes", "program_bytes")
    )
    assert "stories260K.gguf" in found["sentence"]
    assert sorted(person.runs.iterdir()) == before
    again = person.types(*words, "--prompt-tokens", "5")
    assert "Copying" not in again.stderr
    assert json.loads(again.stdout)["models"][0]["prediction"]["compute"] == "operations"
    # The stored times are used by bench; before, the board's facts were.
    assert story["prediction"]["verdict"] == "fits"
    ran = person.benches("--model", model, "-n", "8")
    assert ran["prediction"]["compute"] == "operations"
    assert "predicted" in person.types("show", ran["id"]).stdout


@predicted
def test_a_context_that_does_not_fit_is_refused_before_anything_is_copied(
    person: Person, tmp_path: Path
) -> None:
    model = tmp_path / "long.gguf"
    shape = SMALL.model_copy(update={"context_length": 100_000_000})
    synthesise(shape, model, quantisation="Q8_0", seed=1, progress=Silent())
    words = ("--board", "mine", "--model", str(model), "--context", "100000000")
    found = json.loads(person.types("fit", *words, "--json").stdout)
    (refused,) = found["models"]
    assert refused["prediction"]["verdict"] == "cannot run"
    done = person.types("bench", *words, status=7)
    assert "cannot run on mine" in done.stderr
    largest = re.search(r"--context (\d+) or less", done.stderr)
    assert largest is not None
    assert int(largest[1]) == pytest.approx(refused["prediction"]["largest_context"], rel=0.1)
    assert "Copying" not in done.stderr


@predicted
def test_a_hybrid_model_is_predicted_and_run(person: Person, tmp_path: Path) -> None:
    model = str(hybrid_model(shared("stories260K.gguf"), tmp_path / "hybrid.gguf"))
    words = ("fit", "--board", "mine", "--model", model, "--threads", "1", "--json")
    (fitted,) = json.loads(person.types(*words).stdout)["models"]
    assert fitted["prediction"]["compute"] == "operations"
    ran = person.benches("--model", model, "-n", "4")
    assert (ran["exit"]["status"], len(ran["steps"])) == (0, 4)
    assert ran["prediction"]["compute"] == "operations"


def test_the_trace_holds_one_prompt_and_every_decoded_token(story: dict[str, Any]) -> None:
    assert [step["prompt_tokens"] for step in story["steps"]] == [5] + [0] * 251
    assert [step["generated_tokens"] for step in story["steps"]] == [0] + [1] * 251
    assert story["engine"]["prompt_tokens"] == 5
    assert story["engine"]["eval_tokens"] == 251
    assert [step["step"] for step in story["steps"]] == list(range(252))
    for former, later in zip(story["steps"], story["steps"][1:], strict=False):
        assert former["start_ns"] < former["end_ns"] <= later["start_ns"]


def test_the_run_says_what_it_ran_on(story: dict[str, Any]) -> None:
    assert {"asimddp", "asimdhp", "atomics"} <= set(story["board"]["cpu_features"])
    assert story["board"]["cores"] == 1
    assert 1.9e9 < story["before"]["memory_total_bytes"] < 2.2e9
    assert story["before"]["boot_id"] == story["after"]["boot_id"]
    assert story["memory"]["max_rss_bytes"] >= max(s["rss_bytes"] for s in story["steps"])
    assert story["board"]["storage_read_rate"] == story["board"]["memory_rate"] == "measured"
    assert story["board"]["memory_bytes_per_s"] > 100e6
    assert story["before"]["workdir_filesystem"] == "ext4"


def test_what_the_board_cannot_do_is_refused_before_a_run_begins(person: Person) -> None:
    before = json.loads(person.types("show", "--json").stdout)
    words = ("bench", "--board", "mine", "-n", "2")
    for option, value, status, said in (
        ("--cool-to", "55", 7, "exposes no temperature sensor"),
        ("--governor", "fast", 7, "no CPU frequency governors"),
        ("--cpus", "0-1", 2, "mine has no core 1"),
    ):
        assert said in person.types(*words, option, value, status=status).stderr
    assert json.loads(person.types("show", "--json").stdout) == before


@again
def test_the_engines_own_sums_agree_with_the_trace(person: Person) -> None:
    # Other work on this machine can only drive the two apart for a moment: one of some runs agrees.
    assert any(sums_agree(person.benches("-n", "24")) for _ in "12345")


def sums_agree(run: dict[str, Any]) -> bool:
    spent_ms = {
        phase: sum(s["end_ns"] - s["start_ns"] for s in run["steps"] if s[f"{phase}_tokens"]) / 1e6
        for phase in ("prompt", "generated")
    }
    return spent_ms == {
        "prompt": pytest.approx(run["engine"]["prompt_ms"], rel=0.01),
        "generated": pytest.approx(run["engine"]["eval_ms"], rel=0.01),
    }


def test_a_run_is_kept_with_its_page_and_picture(person: Person, story: dict[str, Any]) -> None:
    folder = person.runs / story["id"]
    assert json.loads((folder / "run.json").read_text()) == story
    assert (folder / "report.html").stat().st_size > 100_000
    assert (folder / "tokens.png").read_bytes().startswith(b"\x89PNG")
    assert {"trace.jsonl", "stdout", "stderr", "exit", "job.json"} <= {
        path.name for path in folder.iterdir()
    }


def test_show_and_pull_know_the_run(person: Person, story: dict[str, Any]) -> None:
    assert story["id"] in json.loads(person.types("show", "--json").stdout)
    assert json.loads(person.types("show", "--run", story["id"][-4:], "--json").stdout) == story
    assert json.loads(person.types("pull", "--board", "mine", "--json").stdout)["runs"] == []


def test_a_run_that_is_lost_here_is_brought_home_again(
    person: Person, story: dict[str, Any]
) -> None:
    folder = person.runs / story["id"]
    aside = person.folder / "aside"
    folder.rename(aside)
    try:
        assert (
            story["id"]
            in json.loads(person.types("pull", "--board", "mine", "--json").stdout)["runs"]
        )
        again = json.loads((folder / "run.json").read_text())
        # How busy this machine was is noted here alone.
        own = {"emulation", "verdict"}
        assert {key: again[key] for key in again.keys() - own} == {
            key: story[key] for key in story.keys() - own
        }
    finally:
        shutil.rmtree(folder)
        aside.rename(folder)


@pytest.mark.exhaustive(covers=["armload/deploy", "armload/runs", "deploy"])
def test_a_board_without_room_is_refused_and_the_same_command_goes_on(person: Person) -> None:
    person.on_board(
        "rm -rf /data/local/tmp/armload/models; set -- $(df -k /data | tail -n 1);"
        "fallocate -l $(($4 - 30000))k /data/fill"
    )
    words = ("deploy", "--board", "mine")
    refused = person.types(*words, status=7)
    assert re.search(r"mine: .*(MB|GB)", refused.stderr)
    person.on_board("rm /data/fill")
    assert "Copied to mine" in person.types(*words).stdout
    assert "Already on mine" in person.types(*words).stdout


def test_ctrl_c_in_a_run_ends_it_on_the_board_and_keeps_what_is_there(person: Person) -> None:
    model = str(shared("stories260K.gguf"))  # it is there already
    words = ("bench", "--board", "mine", "--model", model, "-n", "400", "--threads", "1")
    process = person.start(*words)
    person.waits_on_board(THREE_LINES, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert person.on_board("pidof llama-completion || true").strip() == ""
    kept = json.loads((max(person.runs.iterdir()) / "run.json").read_text())
    assert kept["plan"]["n_predict"] == 400
    assert 1 <= len(kept["steps"]) < 400
    assert not kept["verdict"]["valid"]


@pytest.mark.exhaustive(covers=["armload/boards/virtual", "armload/cli", "armload/runs"])
def test_ctrl_c_while_a_board_boots_leaves_it_to_the_next_command(
    people: tuple[Person, Person],
) -> None:
    ann, bob = people
    ann.types("board.down", "--board", "mine", "--yes")
    try:
        ann.interrupts("mine is not up; starting it.", "deploy", "--board", "mine")
        assert "on mine:" in ann.types("deploy", "--board", "mine").stdout
    finally:
        share(ann, bob)  # at its new port


@again
def test_ctrl_c_in_a_copy_keeps_what_arrived(person: Person, tmp_path: Path) -> None:
    model = tmp_path / "wide.gguf"
    model.write_bytes(shared("stories260K.gguf").read_bytes() + os.urandom(20_000_000))
    words = ("--model", str(model))
    shown = switched_on(person)
    with closing(Relay(shown["port"], bytes_per_s=2e6)) as relay:
        add_by_ssh(person, "far", shown, port=relay.port)
        person.interrupts(r"Copying wide.gguf: [1-9]", "deploy", "--board", "far", *words)
    part = "/data/local/tmp/armload/models/*/.armload/wide.gguf.part"
    arrived = int(person.on_board(f"wc -c <$(echo {part})"))
    assert 0 < arrived < model.stat().st_size
    assert "Copied to mine" in person.types("deploy", "--board", "mine", *words).stdout
    person.on_board("rm -r $(dirname /data/local/tmp/armload/models/*/wide.gguf)")


@pytest.mark.exhaustive(covers=["armload/build", "armload/cli"])
def test_ctrl_c_in_a_build_leaves_one_that_goes_on(person: Person, tmp_path: Path) -> None:
    for kind in ("sources", "zig"):
        (tmp_path / kind).symlink_to((person.folder / "cache" / kind).resolve())
    usual = person.environment["ARMLOAD_CACHE"]
    person.environment["ARMLOAD_CACHE"] = str(tmp_path)
    try:
        person.interrupts(r"Compiling llama-completion for rk3568: \([1-9]", "build")
        builds = tmp_path / "builds"
        made = sum(1 for _ in builds.rglob("*.o"))
        assert made > 0
        person.interrupts(r"Compiling llama-completion for rk3568: \([1-9]", "build")
        assert sum(1 for _ in builds.rglob("*.o")) > made
        assert list(builds.glob("*/build.json")) == []
    finally:
        person.environment["ARMLOAD_CACHE"] = usual


@again
def test_a_killed_workstation_loses_nothing(person: Person) -> None:
    before = set(json.loads(person.types("show", "--json").stdout))
    with held_engine(person) as engine:
        process = person.start("bench", "--board", "mine", "-n", "16", "--repeats", "1")
        engine.waited_for(process)
        process.kill()
        process.communicate()
    person.waits_on_board(ALL_RUNS_ENDED)
    (pulled,) = json.loads(person.types("pull", "--board", "mine", "--json").stdout)["runs"]
    assert pulled not in before
    run = json.loads((person.runs / pulled / "run.json").read_text())
    assert (run["exit"]["status"], len(run["steps"])) == (0, 16)


def test_an_emulated_cpu_that_lacks_what_the_engine_needs_is_told_before_anything_is_copied(
    person: Person,
) -> None:
    person.add_board("old-cpu", OLD_CPU)
    refused = person.types("bench", "--board", "old-cpu", "-n", "2", status=7)
    assert re.search(r"old-cpu: its CPU lacks .*asimddp", refused.stderr)


@pytest.mark.exhaustive(covers=["armload/bench", "armload/deploy", "armload/runs"])
def test_several_boards_are_served_at_once_and_one_that_fails_stops_none(person: Person) -> None:
    person.add_board("old-cpu", OLD_CPU)
    done = person.types("deploy", "--board", "mine,old-cpu", "--json", status=7)
    told = {entry["board"]: entry for entry in json.loads(done.stdout)}
    assert told["mine"]["model"].endswith(".gguf")
    assert told["mine"]["error"] is None
    assert told["old-cpu"]["error"]["kind"] == "board"
    assert told["old-cpu"]["error"]["exit_status"] == 7
    assert "lacks" in told["old-cpu"]["error"]["message"]
    assert "1 of 2 boards failed: old-cpu." in done.stderr
    verified = person.types("deploy", "--board", "mine", "--verify")
    assert "Verified on mine" in verified.stdout


def test_an_engine_that_refuses_its_arguments_is_told_in_words(person: Person) -> None:
    model = ("--model", str(shared("stories260K.gguf")))
    refused = ("-n", "2", "--engine-args", "--frobnicate")
    failed = person.types("bench", "--board", "mine", *model, *refused, status=9)
    assert "--frobnicate" in failed.stderr


def test_a_cut_model_never_leaves_this_machine(person: Person, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(shared("stories260K.gguf").read_bytes()[:-1000])
    refused = person.types("bench", "--board", "mine", "--model", str(cut), status=3)
    assert str(cut) in refused.stderr
    assert "and 1000 (1.0 kB) of its 1185376 are missing" in refused.stderr


def test_every_command_of_the_readme_does_what_it_says(person: Person) -> None:
    """All of its boards lead to the virtual board that is up."""
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^    ((?:invoke|armload) .+)$", readme, re.MULTILINE)
    assert [words.split()[1] for words in commands] == [
        "demo",
        "init",
        "bench",
        "demo",
        "board.trust",
        "board.probe",
    ]
    (kitchen,) = re.findall(r"```yaml\n(.+?)```", readme, re.DOTALL)
    person.add_board("kitchen", kitchen)
    shown = switched_on(person)
    (person.home / ".ssh" / "config").write_text(
        f"Host dayu200 kitchen\n  HostName {shown['host']}\n  Port {shown['port']}\n"
        f"  User {shown['user']}\n  IdentityFile {shown['key']}\n"
    )
    bench = commands[2].split()[1:]
    shutil.copy(shared("stories260K.gguf"), person.folder / bench[-1])
    shutil.copy(ROOT / "tasks.py", person.folder / "tasks.py")
    refused = person.types("bench", "--board", "dayu200", *bench[-2:], status=6, face="invoke")
    assert "armload board.trust --board dayu200" in refused.stderr
    with closing(Relay(shown["port"])) as relay, ExitStack() as own:
        for name in ("virtual", "virtual-dayu200"):
            add_by_ssh(person, name, shown, port=relay.port)
            # Boards that extend it are virtual ones again.
            own.callback((person.folder / "boards" / f"{name}.yaml").unlink)
        for command in commands:
            face, *words = command.split()
            if words == ["init"]:  # its questions are answered in tests of their own
                add_by_ssh(person, "added", shown, port=relay.port)
                default = '[tool.armload.all]\nboard = "added"\n'
                (person.folder / "pyproject.toml").write_text(default)
                own.callback((person.folder / "pyproject.toml").unlink)
                continue
            # A single token is not timed, so that the demo makes no repeats.
            quick = {
                "board.trust": ["--yes"],
                "demo": ["--n-predict=1", "--prompt=Hi"],
                "bench": ["--n-predict=16", "--repeats=1", "--threads=1"],
            }
            more = quick.get(words[0], [])
            said = person.types(*words, *more, face=face).stdout
            if words[0] in {"bench", "demo"}:
                figures = ("prefill", "record") if words[0] == "bench" else ("next",)
                assert all(word in said for word in (*figures, "page"))
                (page,) = re.findall(r"^page +(\S+)$", said, re.MULTILINE)
                run = json.loads((person.folder / page).with_name("run.json").read_text())
                why = (run["limit"]["sentence"], *run["verdict"]["reasons"])
                assert any(each in " ".join(said.split()) for each in why)
