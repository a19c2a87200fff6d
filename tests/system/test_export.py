"""A run of this machine is published without what says whose it is, and read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.core.values import as_json
from armload.report.exchange.excerpt import excerpt_of
from armload.runs import store
from tests.person import Person
from tests.unit.test_report_excerpt import leaked

pytestmark = pytest.mark.build

HERE = "target: host\nreach: {{kind: local}}\nworkdir: {workdir}\n"


def test_a_real_run_with_secrets_everywhere_is_published_without_them(
    stories: Path, tmp_path: Path
) -> None:
    person = Person(tmp_path / "person")
    person.add_board("here", HERE.format(workdir=tmp_path / "board"))
    words = ("bench", "--board", "here", "--model", str(stories), "-n", "16", "--repeats", "1")
    person.types(*words, "--json")
    (folder,) = person.runs.iterdir()
    run = store.load(folder)
    assert leaked(run) == []
    document = person.types("export", folder.name, "--json").stdout
    assert str(tmp_path) not in document
    assert json.loads(document)["runs"] == [json.loads(as_json(excerpt_of(run)))]
    (person.folder / "mine.json").write_text(document)
    (imported,) = json.loads(person.types("import", "mine.json", "--json").stdout)
    compared = person.types("compare", folder.name, imported, "--json").stdout
    assert json.loads(compared)[0]["figures"][0]["ratio"]["ratio"] == pytest.approx(1.0)
    read = store.load(person.folder / "imports" / imported)
    assert (read.steps, read.summary) == (run.steps, run.summary)
    assert (read.model.sha256, read.binary.sha256) == (run.model.sha256, run.binary.sha256)
