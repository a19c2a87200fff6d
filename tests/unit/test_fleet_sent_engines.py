"""Engines as a command sends them, and as a gateway makes them of what it receives."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from armload.build.binary import Binary
from armload.core.errors import TransferError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.deploy.follow import ProgressUpdate
from armload.engines.completion import PROGRAM, Completion
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.engines.rpc_server import RPC_SERVER
from armload.engines.scorer import SCORER, Scoring
from armload.evaluation.items import write_items
from armload.evaluation.scorer_run import TimedScoring
from armload.evaluation.scorer_settings import ScorerSettings
from armload.fleet.gateway_board import received_engine, received_forecast
from armload.fleet.gateway_tasks import BoardRequirements, GatewayTask, ProgressEvent, RunWork
from armload.fleet.received import received_path
from armload.fleet.relay import Relay
from armload.fleet.sent_engines import (
    SentFile,
    SentForecast,
    sent_engine,
    sent_forecast,
)
from armload.models.find import model_called
from armload.models.model import Model
from armload.models.whole_header import whole_header
from armload.runs.reach import BoardEngine
from armload.runs.request import Request
from tests.unit.samples import binary
from tests.unit.test_engines_scorer import PROGRAM as CONTENT

ITEMS: list[dict[str, object]] = [
    {"id": "1", "kind": "logits", "prompt": "a b", "positions": "all"}
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model() -> Model:
    return model_called("word-problems:Q2_K", Silent())


def program(folder: Path, name: str) -> Binary:
    path = folder / name
    path.write_bytes(CONTENT)
    return binary(path, sha256=sha256_of(path))


def engines(folder: Path, model: Model) -> Mapping[str, BoardEngine]:
    path = write_items(ITEMS, folder / "items.jsonl")
    plan = ScorerSettings().plan(ITEMS, path, model)
    scorer = program(folder, SCORER)
    return {
        "completion": Completion(Plan(prompt="a b", n_predict=3), program(folder, PROGRAM), model),
        "scoring": Scoring(plan, scorer, model, path),
        "evaluation": TimedScoring(
            *(plan, scorer, model, path),
            evaluation="20261101T000000Z-eval-piqa-ab12",
            note=lambda answers: f"{len(answers)} answers",
            max_time_s=60.0,
            keeps_forecast=False,
        ),
    }


def arrive(files: Mapping[SentFile, Path]) -> None:
    for file, path in files.items():
        received_path(file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, received_path(file))


def told(
    engine: BoardEngine, server: Binary | None = None
) -> tuple[GatewayTask, Mapping[SentFile, Path]]:
    """Return a task as a gateway reads it."""
    sent, files = sent_engine(engine, server)
    place = SweepPoint(sweep="20261101T000000Z-eval-piqa-ab12", cell=0, round=1)
    requirements = BoardRequirements(target="rk3568", members=("b",), request=Request(board="b"))
    work = RunWork(
        requirements=requirements, engine=sent, fingerprint=engine.fingerprint, place=place
    )
    task = GatewayTask(board="b", key="k", topic="t", store="s", work=work)
    return GatewayTask.model_validate_json(task.model_dump_json()), files


def received(task: GatewayTask, relay: Relay | None = None) -> BoardEngine:
    assert isinstance(task.work, RunWork)
    return received_engine(task.work.engine, relay or Relay(lambda _topic, _event: None))


@pytest.mark.parametrize("kind", ["completion", "scoring", "evaluation"])
def test_a_gateway_runs_the_engine_that_the_command_has(
    kind: str, tmp_path: Path, model: Model
) -> None:
    engine = engines(tmp_path, model)[kind]
    task, files = told(engine)
    arrive(files)
    made = received(task)
    assert made.fingerprint == engine.fingerprint
    assert made.plan == engine.plan
    assert made.keeps_forecast == engine.keeps_forecast
    assert (made.model.sha256, made.binary.sha256) == (model.sha256, engine.binary.sha256)
    assert made.model.path != model.path
    assert isinstance(made, TimedScoring) == isinstance(engine, TimedScoring)
    if isinstance(made, TimedScoring):
        assert made.max_time_s == 60.0


def test_answers_are_relayed_to_the_command_that_grades_them(tmp_path: Path, model: Model) -> None:
    events: list[ProgressEvent] = []
    relay = Relay(lambda _topic, event: events.append(event))
    task, files = told(engines(tmp_path, model)["evaluation"])
    arrive(files)
    relay.topics[task.key] = task.topic
    relay.begin(task.key)
    made = received(task, relay)
    assert made.note(ProgressUpdate(steps=1, lines=2, text="", new_lines=("one", "two"))) == ""
    assert made.note(ProgressUpdate(steps=2, lines=2, text="")) == ""
    assert [event.lines for event in events] == [("one", "two")]


@pytest.mark.parametrize("kind", ["completion", "scoring"])
def test_for_a_group_the_server_of_the_same_build_is_sent_too(
    kind: str, tmp_path: Path, model: Model
) -> None:
    engine = engines(tmp_path, model)[kind]
    server = program(tmp_path, RPC_SERVER)
    task, files = told(engine, server)
    assert isinstance(task.work, RunWork)
    assert task.work.engine.server is not None
    assert files[task.work.engine.server.file] == server.path
    _, alone = told(engine)
    assert files.keys() - alone.keys() == {task.work.engine.server.file}


def test_a_file_that_changed_on_the_gateway_is_refused(tmp_path: Path, model: Model) -> None:
    task, files = told(engines(tmp_path, model)["scoring"])
    arrive(files)
    (items,) = (file for file in files if file.name == "items.jsonl")
    received_path(items).write_text("{}\n")
    with pytest.raises(TransferError, match="is not what was sent"):
        received(task)
    assert not received_path(items).exists()


def test_a_forecast_takes_the_header_and_no_weights(tmp_path: Path, model: Model) -> None:
    header = whole_header(model.path)
    path = tmp_path / "header.gguf"
    path.write_bytes(header.content)
    plan = Plan(prompt_tokens=8)
    sent, files = sent_forecast(program(tmp_path, PROGRAM), model, header, path, plan, None)
    assert sum(file.size_bytes for file in files) < model.size_bytes
    arrive(files)
    again = SentForecast.model_validate_json(sent.model_dump_json())
    assert again == sent
    known, whole, built = received_forecast(again)
    assert whole == header
    assert built.path.read_bytes() == CONTENT
    assert known.path.read_bytes() == header.content
    assert known.model_copy(update={"path": model.path}) == model
