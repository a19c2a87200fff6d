"""distributed-llama as an engine: its command lines, and what it refuses before anything runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from armload.bench.combination import Combination, combination, programs_of
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.engines.distributed import PROGRAMS, DistributedRun, DistributedWorker
from armload.engines.engine import MemberRoom, RunContext, WorkerPlan
from armload.engines.plan import Plan
from armload.models.gguf import read_model
from armload.models.synth import synthesise
from tests.distributed import SHAPE
from tests.unit.samples import binary, conditions

LAYOUT = Layout(workdir=PurePosixPath("/data/armload"))
FOUND = Probe(
    machine="aarch64",
    cores=2,
    cpu_features=(),
    workdir_writable=True,
    workdir_executable=True,
    clusters=(),
    conditions=conditions(),
)
PROMPT = 'Tom\'s "boat"\nis'


@pytest.fixture
def binaries(tmp_path: Path) -> dict[str, Binary]:
    found = {}
    for name in PROGRAMS:
        (tmp_path / name).write_bytes(b"program")
        found[name] = binary(tmp_path / name).model_copy(update={"program": name})
    return found


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Combination:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    synthesise(SHAPE, path, quantisation="Q4_0", seed=1, progress=Silent())
    plan = Plan(engine="dllama", prompt=PROMPT, n_predict=8, threads=2)
    return combination(read_model(path), plan, Silent())


def _engine(one: Combination, binaries: dict[str, Binary]) -> DistributedRun:
    engine = one.engine(binaries)
    assert isinstance(engine, DistributedRun)
    return engine


def _script(engine: DistributedRun, **context: Any) -> list[list[str]]:
    """Return the words of each part of the script that it starts."""
    start, option, script = engine.command(
        RunContext(layout=LAYOUT, found=FOUND, launcher=("taskset", "3"), **context)
    )
    assert (start, option) == ("sh", "-c")
    return [shlex.split(part) for part in script.split(" && ")]


def test_llama_cpp_tokenizes_the_prompt_and_distributed_llama_continues_it(
    one: Combination, binaries: dict[str, Binary]
) -> None:
    written, tokenizing, running = _script(_engine(one, binaries))
    assert written[:2] == ["printf", "%s\\n"]
    assert json.loads(written[2])["text"] == PROMPT
    assert tokenizing[0] == "ARMLOAD_TRACE="
    assert tokenizing[1:3] == ["taskset", "3"]
    assert tokenizing[4:6] == ["-m", next(each for each in tokenizing if "vocabulary" in each)]
    assert running[:3] == ["exec", "taskset", "3"]
    assert running[3] == _engine(one, binaries).program(RunContext(layout=LAYOUT, found=FOUND))
    words = dict(zip(running[5::2], running[6::2], strict=True))
    assert (words["-n"], words["--threads"], words["--batch"]) == ("8", "2", "32")
    assert words["--model"].endswith("/model.m")
    assert "--workers" not in words
    assert "--end" not in words


def test_a_group_is_told_how_each_node_reaches_those_after_it(
    one: Combination, binaries: dict[str, Binary]
) -> None:
    servers, peers = ("h:1", "h:2", "h:3"), (("p:2", "p:3"), ("q:3",), ())
    *_, running = _script(_engine(one, binaries), servers=servers, peers=peers)
    words = dict(zip(running[5::2], running[6::2], strict=True))
    assert words["--workers"] == "h:1,h:2,h:3"
    assert words["--peers"] == "p:2,p:3;q:3"
    assert words["--key"] == "/data/armload/node-key"


def test_a_key_stands_in_no_command_and_no_fingerprint(
    one: Combination, binaries: dict[str, Binary]
) -> None:
    engine, again = _engine(one, binaries), _engine(one, binaries)
    assert engine._key != again._key
    assert engine.fingerprint == again.fingerprint
    context = RunContext(layout=LAYOUT, found=FOUND, servers=("h:1",), peers=((),))
    worker = engine.worker(WorkerPlan(address="127.0.0.1", port=9))
    assert isinstance(worker, DistributedWorker)
    for words in (engine.command(context), worker.command(context)):
        assert engine._key not in " ".join(words)
    assert worker.command(context)[1:6] == ("worker", "--host", "127.0.0.1", "--port", "9")


def test_what_runs_on_a_group_is_refused_where_a_node_lacks_memory_for_its_role(
    one: Combination, binaries: dict[str, Binary]
) -> None:
    engine = _engine(one, binaries)
    rooms = [MemberRoom(board=name, available_bytes=1 << 30) for name in ("a", "b")]
    found = engine.divided(rooms)
    assert [share.board for share in found.shares] == ["a", "b"]
    assert {share.layers for share in found.shares} == {SHAPE.layers}
    root, worker = (share.memory_bytes for share in found.shares)
    assert root > worker
    small = [rooms[0], rooms[1].model_copy(update={"available_bytes": worker - 1})]
    with pytest.raises(BoardError, match="b: as a node of 2"):
        engine.divided(small)
    small = [rooms[0].model_copy(update={"available_bytes": root - 1}), rooms[1]]
    with pytest.raises(BoardError, match="a: as the first node of 2"):
        engine.divided(small)
    with pytest.raises(UsageError, match="power of two"):
        engine.divided([*rooms, rooms[0]])


@pytest.mark.parametrize(
    "change",
    [
        {"kv_type": "q8_0"},
        {"flash_attention": "on"},
        {"numa": "isolate"},
        {"batch_tokens": 64},
        {"weights": "streamed"},
        {"resident_bytes": 1},
        {"speculate": "ngram"},
        {"split": "layer"},
        {"temperature": 0.5},
        {"extra": ("--no-repack",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_options_of_llama_cpp_are_refused_by_name(one: Combination, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--engine dllama"):
        combination(one.model, one.plan.model_copy(update=change), Silent())


def test_sweeps_over_both_engines_need_the_programs_of_both(one: Combination) -> None:
    other = combination(one.model, Plan(n_predict=8), Silent())
    assert programs_of([one, other]) == ("armload-dllama", "armload-score", "llama-completion")


def test_where_nothing_is_forecast_auto_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    synthesise(SHAPE, path, quantisation="Q4_0", seed=1, progress=Silent())
    plan = Plan(engine="auto", prompt=PROMPT, n_predict=8)
    with pytest.raises(UsageError, match="--engine auto needs the forecast of bench"):
        combination(read_model(path), plan, Silent())
