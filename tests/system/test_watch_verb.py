"""``watch`` as a person types it: a program on this machine, and on emulated ARM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from armload.boards.ssh import SshHost
from armload.build.target import machine_architecture
from tests.engine_stand_in import compiled_engine
from tests.faults import Relay
from tests.person import Person
from tests.programs import without_loader
from tests.servers import openssh
from tests.waiting import wait_until

HERE = "target: host\nreach: {{kind: local}}\nworkdir: {workdir}\n"
TOKENS = 24

# An MNN model of random weights without attention: all that the wheel needs to answer.
TINY_MODEL = """
import base64, json, sys
from pathlib import Path

import MNN.expr as F
import numpy as np

folder, words, width = Path(sys.argv[1]), 64, 16
chance = np.random.default_rng(1)
inputs = {
    "input_ids": F.placeholder([5, 1, width], F.NCHW, F.float),
    "attention_mask": F.placeholder([1, 1, 5, 5], F.NCHW, F.float),
    "position_ids": F.placeholder([1, 5], F.NCHW, F.int),
    "logits_index": F.placeholder([1], F.NCHW, F.int),
}
for name, each in inputs.items():
    each.name = name
weights = chance.standard_normal((width, words)).astype(np.float32).flatten().tolist()
hidden = F.reshape(inputs["input_ids"], [1, -1, width])
logits = F.matmul(hidden, F.const(weights, [width, words], F.NCHW, F.float))
nothing = F.const([0.0], [], F.NCHW, F.float)
for name in ("attention_mask", "position_ids", "logits_index"):
    logits = logits + F.cast(F.reduce_sum(inputs[name]), F.float) * nothing
logits.name = "logits"
F.save([logits], str(folder / "llm.mnn"))
(folder / "llm.mnn.weight").write_bytes(bytes(16))
table = chance.standard_normal((words, width)).astype(np.float32)
(folder / "embeddings_bf16.bin").write_bytes((table.view(np.uint32) >> 16).astype(np.uint16))
names = [f" {letter * 3}" for letter in "abcdefghijklmnopqrstuvwxyz"]
names += list("abcdefghijklmnopqrstuvwxyz ")
names += [f"w{number}" for number in range(words - len(names))]
lines = ["430 1", "0 1 0", "63", str(words)]
lines += [base64.b64encode(name.encode()).decode() for name in names]
(folder / "tokenizer.txt").write_text("\\n".join(lines) + "\\n")
config = {"llm_model": "llm.mnn", "llm_weight": "llm.mnn.weight", "sampler_type": "greedy"}
(folder / "config.json").write_text(json.dumps(config))
model = {"hidden_size": width, "layer_nums": 1, "attention_mask": "float", "prompt_template": "%s"}
model |= {"key_value_shape": [2, 1, 0, 1, width], "is_single": True, "attention_fused": True}
(folder / "llm_config.json").write_text(json.dumps(model))
"""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    somebody = Person(tmp_path_factory.mktemp("person"))
    somebody.add_board("here", HERE.format(workdir=somebody.folder / "here"))
    compiled_engine(somebody.folder)
    model = somebody.folder / "models" / "qwen"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"llm_weight": "w.bin"}')
    (model / "w.bin").write_bytes(os.urandom(100_000))
    return somebody


def watches(person: Person, *words: str, status: int = 0, board: str = "here") -> dict[str, Any]:
    done = person.types("watch", "--board", board, "--json", *words, status=status)
    run: dict[str, Any] = json.loads(done.stdout)
    return run


@pytest.fixture(scope="module")
def demo(person: Person) -> dict[str, Any]:
    put = ("--put", "engine", "--put", "models/qwen", "--reader", "mnn")
    return watches(person, *put, "--", "engine", "demo", str(TOKENS), "qwen/config.json")


DAMAGES = (
    '{"step":' + "[" * 10_000 + "]" * 10_000 + "}",
    '{"step":0,"phase":"write","bytes":-1,"start_ns":1,"end_ns":2,"rss_bytes":3}',
    '{"look_ns":1,"rss_bytes":' + "9" * 5000 + "}",
    '{"look_ns":NaN,"rss_bytes":1e999}',
)


def test_a_run_that_makes_no_sense_stops_no_other(tmp_path: Path) -> None:
    somebody = Person(tmp_path / "person")
    somebody.add_board("here", HERE.format(workdir=somebody.folder / "here"))
    bad, good = (watches(somebody, "--", "echo", text)["id"] for text in ("bad", "good"))
    trace = somebody.folder / "here" / "runs" / bad / "trace.jsonl"
    whole = trace.read_text()
    for damage in DAMAGES:
        shutil.rmtree(somebody.runs)
        (trace.parent.parent / good / "collected").unlink()
        trace.write_text(f"{whole}{damage}\n")
        pulled = somebody.types("pull", "--board", "here", "--json", status=3)
        assert json.loads(pulled.stdout)["runs"] == [good], damage[:99]
        assert f"{bad}/trace.jsonl" in pulled.stderr
        assert "Traceback" not in pulled.stderr
    kept = somebody.runs / good / "run.json"
    spoilt = somebody.runs / bad / "run.json"
    for damage in DAMAGES:
        spoilt.write_text(kept.read_text().replace('"steps": [', f'"steps": [{damage},', 1))
        assert "Traceback" not in somebody.types("show", bad, status=3).stderr
        assert good[-4:] in somebody.types("show").stdout
    assert "skipped" in somebody.types("report", good, bad).stderr


def test_a_foreign_engine_s_run_is_a_run_like_any_other(
    person: Person, demo: dict[str, Any]
) -> None:
    assert demo["exit"]["kind"] == "done"
    assert [step["tokens"] for step in demo["steps"]] == [1] * (TOKENS - 1)
    assert demo["text"].startswith("The large house")
    assert (demo["plan"], demo["model"]["name"]) == (None, "qwen")
    assert demo["model"]["size_bytes"] == 100_000 + len('{"llm_weight": "w.bin"}')
    assert demo["memory"]["max_rss_bytes"] > 39 << 20
    (model,) = (word for word in demo["command"] if word.endswith("qwen/config.json"))
    assert Path(model).is_file()
    assert f"config path is {model}" in (person.runs / demo["id"] / "stdout").read_text()
    assert "qwen" in person.types("show").stdout
    assert "as reported by the program" in person.types("show", "--run", demo["id"]).stdout
    person.types("report", demo["id"])
    assert "nothing to fetch" in person.types("pull", "--board", "here").stdout


def test_files_that_it_writes_are_results_and_none_of_ours(person: Person) -> None:
    script = "mkdir out; echo 0 >exit; echo {} >reference.json; echo 7 >out/answer; exit 3"
    words = ("watch", "--board", "here", "--json", "--", "sh", "-c", script)
    run = json.loads(person.types(*words, status=9).stdout)
    assert run["exit"]["status"] == 3
    assert run["reference"] is None
    folder = person.runs / run["id"]
    assert (folder / "files" / "out" / "answer").read_text() == "7\n"
    assert 'href="./files/out/answer"' in (folder / "report.html").read_text()
    (folder / "run.json").unlink()
    pulled = json.loads(person.types("pull", "--board", "here", "--json").stdout)
    assert run["id"] in json.dumps(pulled)


@pytest.mark.exhaustive(covers=["armload/engines", "armload/runs"])
def test_it_compares_with_another_and_says_what_differs(
    person: Person, demo: dict[str, Any]
) -> None:
    put = ("--put", "engine", "--put", "models/qwen", "--reader", "mnn", "--new")
    more = watches(person, *put, "--", "engine", "demo", str(TOKENS), "qwen/config.json")
    (found,) = json.loads(person.types("compare", demo["id"], more["id"], "--json").stdout)
    assert found["finding"] != "not comparable", found["differences"]
    longer = watches(person, *put, "--", "engine", "demo", "40", "qwen/config.json")
    (found,) = json.loads(person.types("compare", demo["id"], longer["id"], "--json").stdout)
    obstacles = [each["phrase"] for each in found["differences"] if each["role"] == "obstacle"]
    assert obstacles == [f"output tokens (n_predict): A {TOKENS}, B 40"]
    person.types("report", demo["id"], more["id"], longer["id"])


def test_what_lies_there_is_not_sent_again(person: Person, demo: dict[str, Any]) -> None:
    files = [path for path in (person.folder / "here").rglob("w.bin") if path.is_file()]
    before = [path.stat() for path in files]
    put = ("--put", "engine", "--put", "models/qwen")
    watches(person, *put, "--", "engine", "much", "10")
    assert [path.stat() for path in files] == before


def test_a_program_that_fails_is_kept_and_told(person: Person) -> None:
    done = person.types(
        "watch", "--board", "here", "--put", "engine", "--", "engine", "die", status=9
    )
    assert "illegal instruction" in done.stderr
    run = json.loads(person.types("show", "--run", "latest", "--json").stdout)
    assert (run["exit"]["status"], run["text"]) == (132, "The large house")


def test_what_cannot_run_there_is_refused_before_anything_is_copied(person: Person) -> None:
    other = "aarch64" if machine_architecture() == "x86_64" else "x86_64"
    folder = person.folder / other
    folder.mkdir()
    foreign = compiled_engine(folder, other)
    foreign.rename(folder / "foreign")
    without_loader(person.folder / "lost")
    script = person.folder / "script"
    script.write_text("#!/no/such/interpreter -x\n")
    script.chmod(0o755)
    plain = person.folder / "plain"
    plain.write_text("echo hello\n")
    for program, status, said in (
        (f"{other}/foreign", 7, f"is built for {other}"),
        ("lost", 7, "is dynamically linked: it needs the loader"),
        ("script", 7, "is a script for /no/such/interpreter"),
        ("plain", 2, "is not executable"),
    ):
        put = ("--put", program, "--", Path(program).name)
        done = person.types("watch", "--board", "here", *put, status=status)
        assert said in done.stderr
        assert not list((person.folder / "here").rglob(Path(program).name))
    words = ("watch", "--board", "here", "--", "no-such-program")
    assert "no program no-such-program" in person.types(*words, status=7).stderr


def test_a_run_that_a_killed_command_left_is_taken_over(person: Person) -> None:
    go_on = person.folder / "go-on"
    line = f"echo begun; until [ -e '{go_on}' ]; do sleep 0.1; done; echo done"
    words = ("watch", "--board", "here", "--json", "--", "sh", "-c", line)
    known = {path.name for path in (person.folder / "here" / "runs").iterdir()}
    process = person.start(*words)
    wait_until(lambda: bool(begun(person.folder / "here" / "runs", known)), process)
    process.kill()
    process.communicate()
    go_on.touch()
    done = person.types(*words)
    assert "resuming" in done.stderr
    run = json.loads(done.stdout)
    assert run["text"] == "begun\ndone\n"
    assert run["id"] == begun(person.folder / "here" / "runs", known)


def test_ctrl_c_ends_the_program_and_keeps_what_it_wrote(person: Person) -> None:
    runs = person.folder / "here" / "runs"
    known = {path.name for path in runs.iterdir()}
    process = person.start("watch", "--board", "here", "--put", "engine", "--", "engine", "ask")
    wait_until(lambda: bool(begun(runs, known)), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    run = json.loads(person.types("show", "--run", begun(runs, known), "--json").stdout)
    assert run["exit"]["kind"] == "stopped"
    assert run["text"].startswith("The")


@pytest.mark.exhaustive(covers=["armload/boards", "armload/runs"])
def test_lines_that_break_between_and_in_its_questions_are_made_anew(person: Person) -> None:
    with openssh(person.folder / "server") as server:
        assert server.port is not None
        with closing(Relay(server.port)) as relay:
            person.add_board(
                "far",
                f"target: host\nworkdir: {person.folder / 'far'}\nreach:\n  kind: ssh\n"
                f"  host: 127.0.0.1\n  port: {relay.port}\n  key: {server.key}\n",
            )
            person.types("board.trust", "--board", "far", "--yes")
            begun_bytes = relay.passed_bytes
            through = server.model_copy(update={"port": relay.port})
            with closing(SshHost(through, "far")) as host:
                host.run(":")
            first_bytes = relay.passed_bytes - begun_bytes
            # Only the first question may not fail: a board that is off is to be told at once.
            relay.cuts_lines_after(
                first_bytes + more for more in (50, *(400, 1600, 100, 6400, 3200, 800) * 3)
            )
            connected = relay.connections
            put = ("--put", "engine", "--put", "models/qwen", "--reader", "mnn")
            words = (*put, "--", "engine", "demo", str(TOKENS), "qwen/config.json")
            run = watches(person, *words, board="far")
            assert relay.connections - connected > 6, "lines broke"
    assert run["exit"]["kind"] == "done"
    assert len(run["steps"]) == TOKENS - 1


def begun(runs: Path, known: set[str]) -> str:
    """Return the new run whose program has written something; nothing while there is none."""
    for folder in runs.iterdir():
        stdout = folder / "stdout"
        if folder.name not in known and stdout.is_file() and stdout.stat().st_size:
            return folder.name
    return ""


@pytest.fixture(scope="module")
def arm(person: Person) -> str:
    """A board of emulated ARM programs, with the stand-in compiled for it."""
    person.add_board("arm", "extends: qemu-user\n")
    folder = person.folder / "arm"
    folder.mkdir()
    compiled_engine(folder, "aarch64")
    return "arm"


def test_a_program_for_arm_is_watched_under_its_emulator(person: Person, arm: str) -> None:
    put = ("--put", "arm/engine", "--reader", "mnn")
    run = watches(person, *put, "--", "engine", "demo", str(TOKENS), board=arm)
    assert len(run["steps"]) == TOKENS - 1
    assert any("qemu-aarch64" in word for word in run["command"])
    assert run["memory"]["max_rss_bytes"] > 39 << 20
    own = watches(person, "--", "uname", "-s", board=arm)
    assert own["text"] == "Linux\n"


@pytest.mark.build
@pytest.mark.exhaustive(covers=["armload/analysis", "armload/engines/watched"])
def test_it_compares_with_a_bench_on_the_same_board(person: Person, arm: str) -> None:
    put = ("--put", "arm/engine", "--reader", "mnn", "--new")
    foreign = watches(person, *put, "--", "engine", "demo", "16", board=arm)
    ours = person.benches("--model", "random", "-n", "16", board=arm)
    (found,) = json.loads(person.types("compare", foreign["id"], ours["id"], "--json").stdout)
    assert found["figures"][0]["finding"] == "slower", found["differences"]
    assert found["finding"] in {"slower", "inconclusive"}
    assert any("Cannot verify" in each["sentence"] for each in found["findings"])
    person.types("report", foreign["id"], ours["id"])


@pytest.mark.exhaustive(covers=["armload/boards/virtual", "armload/engines/watched"])
@pytest.mark.machine
def test_a_foreign_program_runs_on_the_virtual_board(person: Person, arm: str) -> None:
    try:
        put = ("--put", "arm/engine", "--put", "models/qwen", "--reader", "mnn")
        words = ("engine", "demo", str(TOKENS), "qwen/config.json")
        run = watches(person, *put, "--", *words, board="mine")
        assert len(run["steps"]) == TOKENS - 1
        assert run["memory"]["max_rss_bytes"] > 39 << 20
        assert run["steps"][0]["read_bytes"] is not None
    finally:
        person.types("board.down", "--board", "mine", "--yes")


@pytest.mark.usefixtures("mnn")
@pytest.mark.exhaustive(covers=["armload/engines", "armload/runs"])
def test_mnn_s_wheel_answers_and_each_token_is_one_write(person: Person) -> None:
    model = person.folder / "tiny"
    model.mkdir()
    subprocess.run([sys.executable, "-c", TINY_MODEL, str(model)], check=True, capture_output=True)
    words = ("--mnn-python", "tiny", "--python", sys.executable, "--prompt", "abc def")
    run = watches(person, *words, "-n", "40")
    assert run["summary"]["decode_tokens"] == 40
    assert len(run["steps"]) == 39
    assert run["text"].count(" ") == 20  # of the made vocabulary, two words in turn
    assert (run["engine"]["prompt_tokens"], run["model"]["name"]) == (7, "tiny")
    tokenizer = model / "tokenizer.txt"
    lines = tokenizer.read_text().splitlines()
    second = b64encode(run["text"][len(" eee")].encode()).decode()
    lines[2] = str(lines.index(second) - 4)  # ends the text
    tokenizer.write_text("\n".join(lines) + "\n")
    (doubt,) = watches(person, *words, "-n", "40")["verdict"]["reasons"]
    assert "The model ended its answer after 2 tokens: use a --prompt" in doubt
    tokenizer.unlink()
    done = person.types("watch", "--board", "here", *words, status=9)
    assert "MNN could not load this model" in done.stderr


def test_a_board_without_the_wheel_is_told_so(person: Person) -> None:
    words = ("watch", "--board", "here", "--mnn-python", "models/qwen", "--python", "/bin/false")
    assert "cannot import MNN.llm" in person.types(*words, status=7).stderr
    assert "no config.json" in person.types("watch", "--mnn-python", ".", status=2).stderr
    assert "Give a program" in person.types("watch", status=2).stderr


MINE = """\
description: the stand-in
programs: [engine]
units: {asked: questions}
lines: ["user {asked}: robot:"]
"""


def test_a_reader_of_one_s_own_reads_a_program_that_asks(person: Person) -> None:
    (person.folder / "readers").mkdir()
    (person.folder / "readers" / "mine.yaml").write_text(MINE)
    words = ("--put", "engine", "--stdin", "Hello.", "--", "engine", "asks")
    run = json.loads(person.types("watch", "--board", "here", "--json", *words, status=9).stdout)
    assert run["exit"]["status"] == 5, "it asked on, and found the end"
    assert run["reported"] == [{"name": "asked", "value": 1.0, "unit": "questions"}]
    assert (run["watched"]["reader"]["name"], run["watched"]["is_guessed"]) == ("mine", True)
    assert "asked 1 questions" in person.types("show", run["id"]).stdout
    other = ("--put", "engine", "--reader", "readers/mine.yaml", "--", "engine", "much", "10")
    done = person.types("watch", "--board", "here", *other)
    assert "No line of the output matches 'user {asked}: robot:'" in " ".join(done.stdout.split())
    assert "standard output begins with '0123456789'" in " ".join(done.stdout.split())
    (person.folder / "readers" / "mine.yaml").write_text(MINE.replace("{asked}", "{askt}"))
    done = person.types("watch", "--board", "here", *other, status=3)
    assert "mine.yaml, line 4: lines: {askt}: no such figure" in done.stderr
