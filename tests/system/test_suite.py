"""``bench --suite`` from its first run to the leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.bench.suite import standard_suite
from armload.core.progress import Silent
from armload.models.synth import synthesise
from tests.distributed import SHAPE
from tests.person import Person

pytestmark = pytest.mark.build

HERE = "target: host\nreach: {{kind: local}}\nworkdir: {workdir}\n"
LONG = SHAPE.model_copy(update={"layers": 2, "context_length": 1 << 14})
TASKS = """
description: Three tasks.
tests:
- {name: greeting, prompt: "Hello, river and people!", n_predict: 4}
- {name: of-length, prompt_tokens: 24, n_predict: 4}
- {name: endless, prompt_tokens: 20000, n_predict: 4}
"""


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("suite") / "ann")
    person.add_board("here", HERE.format(workdir=person.folder / "board"))
    synthesise(LONG, person.folder / "model.gguf", quantisation="Q4_0", seed=1, progress=Silent())
    (person.folder / "tasks.yaml").write_text(TASKS)
    return person


def bench(ann: Person, suite: str) -> tuple[dict[str, object], str]:
    words = ("bench", "--board", "here", "--model", "model.gguf", "--threads", "1", "--json")
    done = ann.types(*words, "--suite", suite)
    return dict(json.loads(done.stdout)), done.stderr


def test_tests_are_named_and_one_that_is_too_long_is_left_out_before_the_first_run(
    ann: Person,
) -> None:
    done, said = bench(ann, "tasks.yaml")
    assert "missing endless: model.gguf was trained for a context of 16,384 tokens" in said
    assert "  greeting: " in said
    assert "  of-length: " in said
    runs = [json.loads(path.read_text()) for path in ann.runs.glob("*/run.json")]
    assert {run["place"]["test"] for run in runs} == {"greeting", "of-length"}
    suite = done["suite"]
    assert isinstance(suite, dict)
    assert suite["name"] == "tasks"
    (scored,) = suite["scores"]
    assert scored["score"]["tokens_per_s"] is None
    assert "endless" in scored["score"]["missing"]


@pytest.mark.exhaustive(covers=["armload/bench/suite.py", "armload/data/suites"])
def test_the_standard_suite_is_run_whole_and_ranked(ann: Person, tmp_path: Path) -> None:
    done, _ = bench(ann, "standard")
    cells, suite = done["cells"], done["suite"]
    assert isinstance(cells, list)
    assert isinstance(suite, dict)
    tests = standard_suite().tests
    assert suite["checksum"] == standard_suite().checksum
    assert [cell["ended"] for cell in cells] == [1] * len(tests)
    (scored,) = suite["scores"]
    doubtful = {test.name for test, cell in zip(tests, cells, strict=True) if not cell["valid"]}
    # Whatever else this machine does may disturb a run, which then gives no score.
    assert {*scored["score"]["missing"]} == doubtful
    assert (scored["score"]["tokens_per_s"] is None) == bool(doubtful)

    shown = ann.types("show", "latest-sweep").stdout
    assert all(test.name in shown for test in tests)
    published = ann.types("export", "latest-sweep", "--format", "json").stdout
    (tmp_path / "result.json").write_text(published)
    site = tmp_path / "site"
    ann.types("report", str(tmp_path), "--leaderboard", "-o", str(site))
    page = (site / "index.html").read_text()
    assert f"Suite {standard_suite().title}" in page
    assert all(test.name in page for test in tests)
