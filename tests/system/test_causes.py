"""What makes tokens slow is found in runs where it was made to happen."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from armload.analysis.causes import causes
from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.core.progress import Silent
from armload.engines.trace import Step
from armload.models.shape import Shape
from armload.models.synth import synthesise
from tests.person import Person

pytestmark = pytest.mark.build

UPTIME = "cut -d ' ' -f 1 /proc/uptime"

ATTENTION = Shape(
    layers=4,
    width=256,
    feed_forward=256,
    heads=4,
    kv_heads=4,
    vocabulary=2048,
    context_length=1024,
)
"""With so few weights, a token's time is that of the tokens before it."""


def made(shape: Shape, path: Path) -> str:
    synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    return str(path)


def generated(run: Run) -> list[Step]:
    return generating(run.steps)


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    person.add_board("loop", "extends: qemu-user\n")
    yield person
    person.types("board.down", "--board", "mine", "--yes")


@pytest.mark.exhaustive(covers=["armload/analysis/causes.py", "armload/analysis/statistics.py"])
def test_a_growing_context_is_what_makes_late_tokens_slow(ann: Person) -> None:
    model = made(ATTENTION, ann.folder / "attention.gguf")
    # Other programs on this machine may hide it in one run.
    for _ in range(3):
        run = Run.model_validate(ann.benches("--model", model, "-n", "800", "--new", board="loop"))
        found = causes(run.steps)
        assert "paging" not in found.values()
        grown = [number for number, cause in found.items() if cause == "context growth"]
        if grown:
            break
    assert grown
    assert median(grown) > len(run.steps) / 2, "a context never shrinks"


@pytest.mark.exhaustive(covers=["armload/analysis", "armload/engines/trace.py", "toolchains"])
@pytest.mark.machine
def test_tokens_beside_a_busy_neighbour_are_slow_by_contention(ann: Person) -> None:
    process = ann.start("bench", "--board", "mine", "-n", "160", "--repeats", "1", "--json")
    steps = "cat /data/local/tmp/armload/runs/*/trace.jsonl 2>/dev/null | wc -l"
    ann.waits_on_board(f'[ "$({steps})" -ge 60 ]', process)
    busy = "for i in 1 2 3 4 5 6; do sh -c 'while :; do :; done' & done; sleep 4; kill $(jobs -p)"
    began_s, ended_s = (
        float(line) for line in ann.on_board(f"{UPTIME}; {busy}; {UPTIME}").splitlines()
    )
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    run = Run.model_validate(json.loads(out))
    found = causes(run.steps)
    meanwhile = Counter(
        found[step.step]
        for step in generated(run)
        if step.step in found and began_s < step.end_ns / 1e9 < ended_s
    )
    if meanwhile:
        assert meanwhile.most_common(1)[0][0] == "contention", meanwhile
    else:  # all tokens were slow: this machine was busy for as long as the run took
        assert re.search("Contended|Unsteady|Imprecise", run.verdict.model_dump_json()), run.verdict
