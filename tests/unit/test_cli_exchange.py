"""``export``, ``import`` and ``report --leaderboard``, as a person types them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from armload.core.values import as_json
from armload.report.exchange.document import results_of
from armload.report.exchange.excerpt import excerpt_of
from armload.runs import store
from tests import command_line
from tests.unit.runs import quick_run
from tests.unit.sweeps import Q4, made_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's folder, with four runs of a board called kitchen."""
    folder = tmp_path_factory.mktemp("person")
    (folder / "boards").mkdir()
    for number in range(4):
        run = made_run(Q4, 4, repeat=number)
        store.save(run, folder / "runs" / run.id)
    return folder


@pytest.fixture(scope="module")
def theirs(folder: Path) -> str:
    """The document of somebody else, with four slower runs."""
    runs = [excerpt_of(made_run(Q4, 2, repeat=n, board="attic"), ["model"]) for n in range(4)]
    (folder / "theirs.json").write_text(as_json(results_of(runs)))
    return ",".join(run.id for run in runs)


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return command_line.typed(folder, *words, cache=folder / "cache")


def test_a_table_is_printed_by_default_and_a_document_as_json(folder: Path) -> None:
    done = typed(folder, "export", "kitchen:Q4_0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("| board | model |")
    assert "kitchen" not in done.stdout
    named = typed(folder, "export", "kitchen:Q4_0", "--include", "board,model").stdout
    assert "kitchen-" in named
    assert "Llama-3.2-1B-Instruct-Q4_0" in named
    document = typed(folder, "export", "kitchen:Q4_0", "--format", "json").stdout
    assert document == typed(folder, "export", "kitchen:Q4_0", "--json").stdout
    assert json.loads(document)["kind"] == "armload results"
    assert typed(folder, "export", "latest", "--format", "csv").stdout.count("\n") == 2
    assert json.loads(typed(folder, "export", "latest", "--format", "llama-bench").stdout)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["export", "latest", "--format", "csv", "--json"], 2, "cannot be combined with --json"),
        (["import", "nowhere.json"], 2, "There is no file 'nowhere.json'"),
        (["import", "boards"], 2, "error: boards is a folder, not a file."),
        (["import", "half.json"], 3, "not a JSON document"),
        (["report", "nowhere", "--leaderboard"], 2, "There is no folder or file"),
    ],
)
def test_mistakes_are_told(words: list[str], status: int, said: str, folder: Path) -> None:
    (folder / "half.json").write_text('{"kind": "armload results", "format": 1, "runs": [')
    done = typed(folder, *words)
    assert done.returncode == status
    assert said in done.stderr
    assert bool(done.stdout) == ("--json" in words)


def test_results_of_others_are_shown_and_compared_with_one_s_own(folder: Path, theirs: str) -> None:
    done = typed(folder, "import", "theirs.json")
    assert done.returncode == 0
    first, *_ = theirs.split(",")
    assert f"armload compare latest {first}" in done.stderr
    assert "Imported 4 runs.\n" in done.stderr
    assert "Imported 0 runs; 4 had been imported" in typed(folder, "import", "theirs.json").stderr
    assert all(each[-4:] in done.stdout for each in theirs.split(","))
    again = typed(folder, "import", "theirs.json", "--json")
    assert json.loads(again.stdout) == theirs.split(",")
    assert len(list((folder / "imports").iterdir())) == 4

    shown = typed(folder, "show", first)
    assert shown.returncode == 0
    assert Q4.name in shown.stdout
    assert "measured by somebody else" in shown.stdout
    assert "measured by somebody else" not in typed(folder, "show", "latest").stdout
    assert len(json.loads(typed(folder, "show", "--json").stdout)) == 8
    latest = json.loads(typed(folder, "show", "latest", "--json").stdout)
    assert latest["board"]["name"] == "kitchen"

    own = ",".join(path.name for path in (folder / "runs").iterdir())
    (compared,) = json.loads(typed(folder, "compare", own, theirs, "--json").stdout)
    assert compared["finding"] == "slower"
    subjects = [each for each in compared["differences"] if each["role"] == "subject"]
    assert [each["name"] for each in subjects] == ["board"]
    assert compared["figures"][0]["ratio"]["low"] > 1.3
    assert "The sides differ in board: A kitchen" in typed(folder, "compare", own, theirs).stdout

    drawn = typed(folder, "report", own, theirs, "--output", "both", "--json")
    assert {row["board"][:7] for row in json.loads(drawn.stdout)["table"]} == {"kitchen", "rk3568-"}


def test_runs_of_one_s_own_are_not_presumed_where_all_are_imported(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    document = results_of([excerpt_of(made_run(Q4, 2))])
    (tmp_path / "theirs.json").write_text(as_json(document))
    said = typed(tmp_path, "import", "theirs.json").stderr
    (run,) = document.runs
    assert f"armload show {run.id}" in said
    assert "latest" not in said
    for reference in ("latest", "kitchen:Q4_0"):
        done = typed(tmp_path, "report", reference)
        assert done.returncode == 2
        told = " ".join(done.stderr.split())
        assert f"{reference}: means runs of your own; there are none" in told
        assert f"The latest imported runs: {run.id}." in told
    told = " ".join(typed(tmp_path, "show", "kitchen-x").stderr.split())
    assert f"The latest imported runs: {run.id}." in told


def test_an_imported_run_is_exported_as_it_came(folder: Path, theirs: str) -> None:
    typed(folder, "import", "theirs.json")
    exported = typed(folder, "export", *theirs.split(","), "--json")
    assert exported.stdout == (folder / "theirs.json").read_text()


def test_nothing_is_imported_if_one_document_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    (tmp_path / "good.json").write_text(as_json(results_of([excerpt_of(quick_run())])))
    (tmp_path / "bad.json").write_text("{}")
    assert typed(tmp_path, "import", "good.json", "bad.json").returncode == 3
    assert not (tmp_path / "imports").exists()


def test_a_folder_of_documents_becomes_a_page(folder: Path, theirs: str) -> None:
    (folder / "board").mkdir()
    for name, words in {"own": ["kitchen:Q4_0"], "theirs": theirs.split(",")}.items():
        typed(folder, "import", "theirs.json")
        document = typed(folder, "export", *words, "--json").stdout
        (folder / "board" / f"{name}.json").write_text(document)
    (folder / "board" / "notes.json").write_text("[]")
    done = typed(folder, "report", "board", "--leaderboard", "--output", "site", "--json")
    assert done.returncode == 0
    assert "skipped: board/notes.json" in done.stderr
    table = json.loads(done.stdout)["table"]
    assert [row["threads"] for row in table] == [4, 2]
    assert (folder / "site" / "index.html").is_file()
    assert {path.name for path in (folder / "site" / "results").iterdir()} == {
        "own.json",
        "theirs.json",
    }
    assert typed(folder, "report", "board", "--leaderboard").returncode == 0
    assert (folder / "reports" / "leaderboard-1" / "index.html").is_file()
