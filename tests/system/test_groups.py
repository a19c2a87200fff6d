"""One model over two boards, which here are this machine twice."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.person import Person

STORIES = Path(__file__).parents[3] / "shared" / "data" / "stories260K.gguf"
pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES.name} is not there"),
]

MODEL = ("--model", str(STORIES))


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("ann"))
    for name in ("one", "two"):
        person.add_emulated(name)
    person.add_board("both", "members: [two, one]\n")
    return person


def servers(person: Person) -> list[psutil.Process]:
    """Return the RPC servers that run in a person's folder."""
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if any(
            word.startswith(str(person.folder)) and word.endswith("/ggml-rpc-server")
            for word in each.info["cmdline"] or ()
        )
    ]


def test_a_group_writes_what_one_board_writes_and_leaves_nothing_running(ann: Person) -> None:
    alone = ann.benches(*MODEL, "-n", "24", board="one")
    run = ann.benches(*MODEL, "-n", "24", board="both")
    assert run["text"] == alone["text"]
    assert run["exit"]["meaning"] == "done"
    assert run["board"]["name"] == "both"
    assert [share["board"] for share in run["spread"]["shares"]] == ["two", "one"]
    assert sum(share["layers"] for share in run["spread"]["shares"]) == 5
    assert len(run["steps"]) == len(alone["steps"])
    (other,) = run["members"]
    assert other["board"]["name"] == "one"
    assert other["exit"]["kind"] == "done"
    assert other["memory"]["max_rss_bytes"] > 1_000_000
    assert other["sent_bytes"] > other["received_bytes"] > 24 * 512 * 4
    assert not servers(ann)
    for name in ("one", "two"):
        assert not list((ann.folder / f"{name}-board" / "lease").glob("*.*.*"))
    ann.types("pull", "--board", "one")
    assert len(list(ann.runs.glob("*/run.json"))) == 2
