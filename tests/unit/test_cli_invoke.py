"""Invoke's own program has every verb, with every option by its name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from invoke.executor import Executor
from invoke.parser import Parser

from armload.cli import invoke_tasks
from armload.cli.invoke_tasks import tasks
from armload.cli.verb import VERBS
from armload.core.options import declared_options
from tests.command_line import ROOT, run, typed


def test_invoke_lists_every_verb_with_its_line() -> None:
    listed = run("invoke", "--list")
    assert (listed.returncode, listed.stderr) == (0, "")
    told = " ".join(listed.stdout.split())
    for name, verb in VERBS.items():
        assert f" {name} {verb.about}" in told


def test_every_option_reaches_its_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(invoke_tasks, "run_verb", lambda *run: given.append((run[0].name, run[1])))
    collection = tasks()
    contexts = collection.to_contexts()
    for name, verb in VERBS.items():
        options = list(declared_options(verb.options))
        line = [name]
        for each in options:
            long = each.name if len(each.name) > 1 else f"argument-{each.name}"
            line += [f"--{long}"] if each.is_switch else [f"--{long}", "word"]
        Executor(collection).execute(*Parser(contexts=contexts).parse_argv(line))
        told, words = given.pop()
        assert (told, set(words)) == (name, {each.field for each in options})
        assert all(word in (True, "word", ["word"]) for word in words.values())


def test_help_shows_each_option() -> None:
    for verb in ("show", "compare", "report"):
        shown = run("invoke", verb, "--help")
        assert shown.returncode == 0
        assert "--json" in shown.stdout


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["show", "--run", "nothing"], 2, "There is no run 'nothing'"),
        (["inspect"], 2, "FILE is missing."),
        (["bench", "--n-predict", "abc"], 2, "--n-predict: must be a whole number"),
        (["service.stop", "--board", "nowhere"], 2, "There is no board named 'nowhere'"),
        (["serve", "--slots", "many"], 2, "--slots: must be a whole number"),
    ],
)
def test_a_verb_ends_as_it_does_in_armload(
    words: list[str], status: int, said: str, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "tasks.py", tmp_path)
    one, other = (typed(tmp_path, *words, "--json", face=face) for face in ("armload", "invoke"))
    assert (other.stdout, other.stderr) == (one.stdout, one.stderr)
    assert one.returncode == other.returncode == status
    assert said in json.loads(one.stdout)["error"]["message"]
