"""Mistakes get a sentence and a status, the same in every verb."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from armload.core.near_names import did_you_mean
from tests.command_line import BOUND_BY_PERMISSIONS, run, typed


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["bench", "--model", "README.md"], 3, 'begins with "# ar" instead of "GGUF"'),
        (["bench", "--model", "/dev/null"], 2, "/dev/null is not a regular file"),
        (["bench", "--board", "dayu200", "--context", "100000"], 2, "was trained for"),
        (["build", "--source", "file:///nowhere/x", "--ref", "x"], 2, "no such repository"),
        (["inspect", "docs"], 2, "docs is a folder, not a program"),
        (["bench", "--plan", "docs"], 2, "docs is a folder, not a plan file"),
        (["bench", "--model", "m" * 300], 2, "There is no model 'm"),
    ],
)
def test_a_mistake_gets_a_sentence_and_a_status_and_no_traceback(
    words: list[str], status: int, said: str
) -> None:
    done = run("armload", *words)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


EACH_LINE = """
import sys
from armload.cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["armload", *line.split()]
    try:
        main()
        print("status 0", file=sys.stderr)
    except SystemExit as end:
        print("status", end.code or 0, file=sys.stderr)
"""


def _said(statuses: dict[str, str], folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """Give each line, which is to end with its status; return what was said to it."""
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, sys.executable, "-c", EACH_LINE, *statuses],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = re.split(r"^status ", done.stderr, flags=re.MULTILINE)
    found = [rest.partition("\n")[0] for rest in said[1:]]
    assert dict(zip(statuses, found, strict=True)) == statuses, done.stderr
    return dict(zip(statuses, said, strict=False))


@pytest.mark.exhaustive(covers=["armload/cli"])
def test_a_file_that_may_not_be_read_has_one_status_in_every_verb(tmp_path: Path) -> None:
    board = f"target: rk3568\nreach: {{kind: local}}\nworkdir: {tmp_path / 'work'}\n"
    run_id = "20261122T000000Z-kitchen-model-abcd"
    for name in ("boards/kitchen.yaml", "boards/locked.yaml", "file", f"runs/{run_id}/run.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(board)
        path.chmod(0o644 if name.endswith("kitchen.yaml") else 0)
    (tmp_path / "folder").mkdir()
    for name in ("folder/file", "folder/include/llama.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(board)
    (tmp_path / "folder").chmod(0)
    lines = [
        "board.probe --board locked",
        f"show --run {run_id}",
        f"report {run_id}",
        "build --source folder",
        *(
            f"{verb} {file}"
            for file in ("file", "folder/file")
            for verb in (
                "bench --board kitchen --plan",
                "bench --board kitchen --model",
                "deploy --board kitchen --model",
                "model.inspect",
                "inspect",
            )
        ),
        "watch --board kitchen --put file -- date",
        "watch --board kitchen --put folder/file -- date",
        f"compare {run_id} {run_id}",
        "compare file file",
        "compare folder/file file",
    ]
    for line, words in _said(dict.fromkeys(lines, "1"), tmp_path, dict(os.environ)).items():
        assert "Permission denied" in words, line
        assert "permissions" in words, line


def test_a_home_of_somebody_elses_is_in_the_way_only_where_it_is_needed(tmp_path: Path) -> None:
    board = "target: rk3568\nreach: {kind: ssh, host: 127.0.0.1, port: 1}\nworkdir: /tmp/work\n"
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "far.yaml").write_text(board)
    (tmp_path / "home").mkdir(0)
    statuses = {
        "board.list": "0",
        "show": "0",
        "board.trust --board far": "1",
        "build --list": "1",
        "clean": "1",
        "model.inspect demo": "1",
        "board.up --board virtual": "1",
    }
    kept = {
        name: os.environ[name] for name in os.environ if not name.startswith(("XDG_", "ARMLOAD_C"))
    }
    said = _said(statuses, tmp_path, kept | {"HOME": str(tmp_path / "home")})
    for line, words in said.items():
        remedy = f"Correct the permissions of {tmp_path / 'home'}"
        is_denied = "Permission denied" in words and remedy in " ".join(words.split())
        assert is_denied == (statuses[line] == "1"), line
        assert ".yaml" not in words.replace("boards/far.yaml", ""), line


@pytest.mark.parametrize("name", ["../x", "boards/x", "."])
def test_a_board_that_no_file_can_be_called_by_gets_no_such_file_proposed(name: str) -> None:
    done = run("armload", "board.probe", "--board", name)
    assert done.returncode == 2
    assert f"There is no board named {name!r}" in done.stderr
    assert ".yaml" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "127.0.0.1", "--port", "1"], "Check --host, --port and ~/.ssh/config."),
        (
            ["--host", "127.0.0.1", "--key", "nofile"],
            "no key file nofile.\nCorrect --key.",
        ),
        (["--host", "kitchen.invalid"], "give the host's IP address as --host."),
    ],
)
@pytest.mark.parametrize("verb", ["board.add kitchen", "init --yes --name kitchen"])
def test_an_error_on_the_way_to_a_new_board_names_its_options_and_no_file(
    verb: str, options: list[str], said: str, tmp_path: Path
) -> None:
    done = typed(tmp_path, *verb.split(), *options)
    assert done.returncode in {3, 6}
    assert said in done.stderr
    assert ".yaml" not in done.stderr


@pytest.mark.parametrize(
    ("words", "near", "listing"),
    [
        (["fit", "--hardware", "rock5b"], "Did you mean 'rock-5b'?", "armload board.hardware"),
        (["fit", "--hardware", "nothing-like-it"], "", "armload board.hardware"),
        (["bench", "--model", "like:qwen3-0.6:Q4_0"], "Did you mean 'qwen3-0.6b'?", "/shapes"),
    ],
)
def test_many_names_are_not_listed_but_the_command_that_lists_them_is_named(
    words: list[str], near: str, listing: str
) -> None:
    done = run("armload", *words)
    assert done.returncode == 2
    assert near in done.stderr
    assert re.search(rf"To list all \d+: .*{re.escape(listing)}$", done.stderr, re.MULTILINE)
    assert max(line.count(",") for line in done.stderr.splitlines()) < 12


def test_near_names_are_offered() -> None:
    assert "virtual" in run("armload", "board.probe", "--board", "vitual").stderr


@pytest.mark.parametrize(
    ("typed_word", "meant"),
    [
        *(("foo", ""), ("--foo", ""), ("--fro", "'--for'"), ("--run", "'--runs'")),
        *(("footp", "'footprints'"), ("shwo", "'show'"), ("benhc", "'bench'")),
        ("--n", "'--n-predict'"),
    ],
)
def test_a_short_word_needs_a_closer_match(typed_word: str, meant: str) -> None:
    hint = did_you_mean(
        typed_word, ["footprints", "--for", "--runs", "--n-predict", "show", "bench"]
    )
    assert hint == (f"Did you mean {meant}? " if meant else "")


@pytest.mark.parametrize("more", [[], ["install"], ["nonsense"]])
def test_a_group_of_verbs_is_called_one_whatever_follows(more: list[str]) -> None:
    said = run("armload", "service", *more).stderr
    assert said.startswith("error: 'service' is a group of verbs.")
    assert ("Did you mean 'service.install'?" in said) == (more == ["install"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("down", "Did you mean 'board.down'?"),
        ("model quantise", "'model' is a group of verbs.\nChoose one: model.inspect,"),
        (
            "load --scheduler tls://lab",
            "load connects to boards itself, because latencies would include the scheduler's: type",
        ),
        ("board.probe --scheduler tls://lab", "board.probe connects to boards itself: type it"),
        ("board.down kitchen", "kitchen is a board: use --board kitchen."),
        ("bench tiny.gguf", "tiny.gguf is a model: use --model tiny.gguf."),
        ("bench llama-3.2-1b", "llama-3.2-1b is a model: use --model llama-3.2-1b:Q"),
        ("bench hf:org/name", "hf:org/name is a model: use --model hf:org/name."),
        ("fit raspberry-pi-5-8gb", "use --hardware raspberry-pi-5-8gb."),
        ("bench plan.yaml", "plan.yaml is a file: use --plan plan.yaml."),
        ("load questions.jsonl", "questions.jsonl is a file: use --data questions.jsonl."),
        ("board.down --board kitchen virtual", "--board takes only one value."),
        ("bench --board=kitchen virtual", "To give --board several values, separate them with"),
        ("board.down --board=kitchen virtual", "--board takes only one value."),
        ("bench --threads=4 kitchen", "kitchen is a board: use --board kitchen."),
        ("bench -t4 kitchen", "kitchen is a board: use --board kitchen."),
        (f"bench {'m' * 300}.yaml", "Unexpected argument"),
        (f"load {'m' * 300}.jsonl", "Unexpected argument"),
    ],
)
def test_a_word_in_the_wrong_place_is_answered_with_the_line_that_was_meant(
    line: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "kitchen.yaml").write_text("target: rk3568\nreach: {kind: local}\n")
    (tmp_path / "plan.yaml").write_text("threads: 1\n")
    (tmp_path / "questions.jsonl").touch()
    done = typed(tmp_path, *line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["help"], "Usage: armload VERB [--options]"),
        (["help", "bench"], "Usage: armload bench [--options]"),
        (["help", "board.down"], "Usage: armload board.down [--options]"),
        (["help", "board", "down"], "Usage: armload board.down [--options]"),
        (["--help", "show"], "Usage: armload show [RUN] [--options]"),
    ],
)
def test_help_is_a_word_too(words: list[str], usage: str) -> None:
    done = run("armload", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(usage)


@pytest.mark.parametrize("words", [["help", "bnch"], ["--help", "bnch"]])
def test_help_for_a_verb_that_is_none_offers_the_near_one(words: list[str]) -> None:
    done = run("armload", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'bench'?" in done.stderr


def test_a_file_that_is_nested_too_deep_is_a_malformed_one_in_every_verb(tmp_path: Path) -> None:
    deep = "[" * 100_000
    run_id = "20261122T000000Z-kitchen-model-abcd"
    files = {
        f"runs/{run_id}/run.json": deep,
        "deep.json": deep,
        "checkpoint/config.json": deep,
        "prompts.jsonl": deep,
        "task.yaml": "description: d\nkind: generate\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    lines = [
        f"show {run_id}",
        "compare deep.json deep.json",
        "model.convert checkpoint",
        "load --url http://127.0.0.1:1 --model m --rate 1 --data deep.json",
        "load --url http://127.0.0.1:1 --model m --rate 1 --data prompts.jsonl",
        "eval --board this-machine --task gsm8k --data prompts.jsonl --model demo",
    ]
    said = _said(dict.fromkeys(lines, "3"), tmp_path, dict(os.environ))
    assert all("nested too deep" in each for each in said.values()), said
