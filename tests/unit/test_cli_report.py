"""The verb ``report``, as a person types it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from armload.runs import store
from tests import command_line
from tests.unit.runs import failed_run, quick_run
from tests.unit.sweeps import Q4, Q8, made_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    for name in ("boards", "cache"):
        (folder / name).mkdir()
    runs = [
        *(made_run(model, threads) for model in (Q4, Q8) for threads in (2, 4)),
        failed_run().model_copy(update={"id": "20261122T000000Z-kitchen-failed"}),
    ]
    for run in runs:
        store.save(run, folder / "runs" / run.id)
    return folder


def typed(folder: Path, *words: str, face: str = "armload") -> subprocess.CompletedProcess[str]:
    return command_line.typed(folder, *words, face=face, cache=folder / "cache")


def test_a_run_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = quick_run(), "20261120T000000Z-kitchen-bad"
    store.save(good, tmp_path / "runs" / good.id)
    (tmp_path / "runs" / bad).mkdir()
    kept = json.loads(good.model_dump_json())
    kept["steps"][3]["accepted_tokens"] = -1
    for content in ("[" * 100_000, json.dumps(kept), '{"a": 1e999}'):
        (tmp_path / "runs" / bad / "run.json").write_text(content)
        listed = typed(tmp_path, "show")
        assert (listed.returncode, "skipped" in listed.stderr) == (0, True)
        assert typed(tmp_path, "show", bad).returncode == 3
        assert typed(tmp_path, "report", bad).returncode == 3
    done = typed(tmp_path, "report", bad, good.id)
    assert (done.returncode, "skipped" in done.stderr) == (0, True)


def test_no_name_steers_the_terminal_or_turns_the_text_around_it(tmp_path: Path) -> None:
    steers = "".join(map(chr, [0x1B, 0x7F, 0x9B, 0x202E, 0x2066, 0x200F, 0x2028]))
    name = f"m{steers}FUGG.gguf"
    for number in (1, 2):
        run = failed_run() if number == 1 else quick_run(prompt=name, text=name)
        run_id = f"20261122T00000{number}Z-kitchen-m"
        update = {
            "id": run_id,
            "model": run.model.model_copy(update={"name": name}),
            "board": run.board.model_copy(update={"name": name, "description": name}),
            "command": (name,),
            "notes": (name,),
        }
        store.save(run.model_copy(update=update), tmp_path / "runs" / run_id)
    for words in (["show"], ["show", "latest"], ["report", "latest"], ["show", name]):
        done = typed(tmp_path, *words)
        assert not set(steers) & set(done.stdout + done.stderr), words
    assert json.loads(typed(tmp_path, "show", "latest", "--json").stdout)["model"]["name"] == name
    both = typed(tmp_path, "report", *(path.name for path in (tmp_path / "runs").iterdir()))
    assert both.returncode == 0, both.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= 2
    for page in pages:
        text = re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)
        assert "FUGG" in text
        assert not set(steers) & set(text), page


def test_a_report_makes_its_own_folder_and_no_other(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    missing = typed(folder, "report", "latest", "--output", "mistyped/friday")
    assert missing.returncode == 2
    assert "There is no folder mistyped." in missing.stderr
    assert "mkdir -p mistyped" in missing.stderr
    (folder / "a-file").touch()
    no_folder = typed(folder, "report", "latest", "--output", "a-file")
    assert no_folder.returncode == 2
    assert "a-file is not a folder." in no_folder.stderr
    assert {path.name for path in folder.iterdir()} == before | {"a-file"}
    nowhere = typed(folder, "report", "latest", "--output", "/proc/x")
    assert nowhere.returncode == 1
    assert "/proc/x: No such file or directory." in nowhere.stderr
    assert "use another one" in nowhere.stderr
    assert "ARMLOAD_CACHE" not in nowhere.stderr


def test_a_report_is_not_mixed_with_what_lies_in_a_folder(folder: Path) -> None:
    kept = folder / "kept"
    kept.mkdir()
    assert typed(folder, "report", "latest", "--output", "kept").returncode == 0
    before = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    again = typed(folder, "report", "kitchen:Q4_0", "--output", "kept")
    assert again.returncode == 2
    assert "kept already exists and is not empty." in again.stderr
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == before
