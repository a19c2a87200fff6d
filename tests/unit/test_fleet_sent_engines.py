"""Engines as a command sends them, and as a gateway makes them of what it receives."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never, cast

import pytest
from PIL import Image

from armload.boards.board import load_board
from armload.build.binary import Binary
from armload.build.programs import SEEING_SCORER
from armload.core.errors import RunError, TransferError
from armload.core.files import sha256_of
from armload.core.pictures import Picture, read_picture
from armload.core.progress import Progress, Silent
from armload.deploy.follow import ProgressUpdate
from armload.engines.completion import PROGRAM, Completion
from armload.engines.job import SweepPoint
from armload.engines.media import media_need
from armload.engines.perception import PERCEIVING_PROGRAM, Perception
from armload.engines.plan import Plan
from armload.engines.rpc_server import RPC_SERVER
from armload.engines.scorer import SCORER, Scoring, SeenImages
from armload.evaluation.items import write_items
from armload.evaluation.scorer_run import TimedScoring
from armload.evaluation.scorer_settings import ScorerSettings
from armload.fleet.events import Noted, ProgressEvent, Relay
from armload.fleet.files import SentFile
from armload.fleet.gateway_board import BoardRequirements
from armload.fleet.operations import BoardOperation, GatewayTask, Predict, RunEngine
from armload.fleet.remote_boards import RemoteBoard
from armload.fleet.remote_tasks import RemoteTasks
from armload.models.find import model_called
from armload.models.header import read_header
from armload.models.image_tokens import ImageSize
from armload.models.model import Model
from armload.models.projector import Projector, read_whole_projector
from armload.models.whole_header import whole_header
from armload.runs.media import MediaQuestion
from armload.runs.request import Request
from armload.runs.session import ReachedBoard
from armload.runs.swept import SweptRuns
from tests.projectors import write_projector
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


def program(folder: Path, name: str, more: bytes = b"") -> Binary:
    path = folder / name
    path.write_bytes(CONTENT + more)
    return binary(path, sha256=sha256_of(path))


def engines(folder: Path, model: Model) -> Mapping[str, Completion | Scoring]:
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


class Kept(RemoteTasks):
    """Sends nothing, and keeps what would be sent."""

    def __init__(self) -> None:
        self.told: list[tuple[GatewayTask, Mapping[SentFile, Path]]] = []

    def do(
        self,
        board: str,
        operation: BoardOperation[Any],
        progress: Progress,
        *,
        files: Mapping[SentFile, Path] = {},
        key: str = "",
        noted: Noted | None = None,
    ) -> Never:
        del progress, noted
        made = cast("Any", operation)
        task = GatewayTask(board=board, key=key or "k", topic="t", store="s", operation=made)
        self.told.append((GatewayTask.model_validate_json(task.model_dump_json()), files))
        raise RunError("nothing was sent")


def told(
    use: Callable[[RemoteBoard], object], **binaries: Binary
) -> tuple[GatewayTask, Mapping[SentFile, Path]]:
    """Return what a command sends, as a gateway reads it."""
    tasks = Kept()
    where = ReachedBoard(
        request=Request(board="this-machine"),
        main_board=load_board("this-machine"),
        found=cast("Any", None),
        binaries=binaries,
    )
    requirements = BoardRequirements(target="any", members=("b",), request=where.request)
    board = RemoteBoard(where, tasks, requirements, Silent(), SweptRuns("this-machine"))
    with pytest.raises(RunError, match="nothing was sent"):
        use(board)
    return tasks.told[0]


def told_run(
    engine: Completion | Scoring, **binaries: Binary
) -> tuple[GatewayTask, Mapping[SentFile, Path]]:
    place = SweepPoint(sweep="20261101T000000Z-eval-piqa-ab12", cell=0, round=1)
    binaries = {engine.name: engine.binary, **binaries}
    return told(lambda board: board.run(engine, new=False, place=place), **binaries)


def arrive(files: Mapping[SentFile, Path]) -> None:
    for file, path in files.items():
        file.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, file.path)


def received(task: GatewayTask, relay: Relay | None = None) -> Completion | Scoring:
    assert isinstance(task.operation, RunEngine)
    binaries = {name: sent.received() for name, sent in task.operation.binaries.items()}
    relay = relay or Relay(lambda _topic, _event: None)
    made = task.operation.engine.received(binaries, relay)
    assert isinstance(made, Completion | Scoring)
    return made


@pytest.mark.parametrize("kind", ["completion", "scoring", "evaluation"])
def test_a_gateway_runs_the_engine_that_the_command_has(
    kind: str, tmp_path: Path, model: Model
) -> None:
    engine = engines(tmp_path, model)[kind]
    task, files = told_run(engine)
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
    task, files = told_run(engines(tmp_path, model)["evaluation"])
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
    task, files = told_run(engine, **{RPC_SERVER: server})
    assert isinstance(task.operation, RunEngine)
    sent = task.operation.binaries[RPC_SERVER].file
    assert files[sent] == server.path
    _, alone = told_run(engine)
    assert files.keys() - alone.keys() == {sent}


def test_a_file_that_changed_on_the_gateway_is_refused(tmp_path: Path, model: Model) -> None:
    task, files = told_run(engines(tmp_path, model)["scoring"])
    arrive(files)
    (items,) = (file for file in files if file.name == "items.jsonl")
    items.path.write_text("{}\n")
    with pytest.raises(TransferError, match="is not what was sent"):
        received(task)
    assert not items.path.exists()


def seen_by(folder: Path) -> tuple[Projector, Picture]:
    projector = read_whole_projector(write_projector(folder / "p.gguf", width=256), Silent())
    Image.new("RGB", (40, 30)).save(folder / "a.png")
    return projector, read_picture(folder / "a.png")


def test_an_image_goes_to_a_gateway_with_its_projector(tmp_path: Path, model: Model) -> None:
    projector, picture = seen_by(tmp_path)
    seeing = program(tmp_path, PERCEIVING_PROGRAM, b"--mtmd-batch-max-tokens\0")
    plan = Plan(prompt="a b", n_predict=3)
    engine = Perception(plan, seeing, model, projector, [picture])
    task, files = told_run(engine)
    assert {file.name for file in files} >= {"p.gguf", "a.png"}
    arrive(files)
    made = received(task)
    assert isinstance(made, Perception)
    assert made.fingerprint == engine.fingerprint
    assert made.media[0].path.read_bytes() == picture.path.read_bytes()
    assert made.projector.path != projector.path


def test_questions_on_images_go_to_a_gateway_with_what_they_show(
    tmp_path: Path, model: Model
) -> None:
    path = write_items(ITEMS, tmp_path / "items.jsonl")
    projector, picture = seen_by(tmp_path)
    seen = SeenImages(projector=projector, images={picture.sha256: picture}, most_tokens=64)
    plan = ScorerSettings().plan(ITEMS, path, model, seen)
    engine = Scoring(plan, program(tmp_path, SEEING_SCORER), model, path, seen)
    task, files = told_run(engine, **{SEEING_SCORER: engine.binary})
    arrive(files)
    made = received(task)
    assert isinstance(made, Scoring)
    assert made.seen is not None
    assert made.seen.images.keys() == seen.images.keys()
    assert (made.fingerprint, made.binary.program) == (engine.fingerprint, SEEING_SCORER)


def test_a_forecast_of_an_image_takes_the_headers_of_both_files(
    tmp_path: Path, model: Model
) -> None:
    projector, _ = seen_by(tmp_path)
    need = media_need(projector, read_header(projector.path), ImageSize(64, 64))
    assert need is not None
    header, whole = whole_header(model.path), whole_header(projector.path)
    built = {PROGRAM: program(tmp_path, PROGRAM)}
    question = MediaQuestion(need=need, header=whole)
    plan = Plan(prompt_tokens=8)
    task, files = told(lambda board: board.predict(model, header, plan, question), **built)
    assert isinstance(task.operation, Predict)
    assert task.operation.projector in files
    assert task.operation.projector_bytes == projector.size_bytes
    assert task.operation.media == need


def test_a_forecast_takes_the_header_and_no_weights(tmp_path: Path, model: Model) -> None:
    header = whole_header(model.path)
    built = {PROGRAM: program(tmp_path, PROGRAM)}
    task, files = told(lambda board: board.predict(model, header, Plan(prompt_tokens=8)), **built)
    assert isinstance(task.operation, Predict)
    assert sum(file.size_bytes for file in files) < model.size_bytes
    assert {file.sha256 for file in files} == {
        hashlib.sha256(content).hexdigest() for content in (header.content, CONTENT)
    }
    assert task.operation.header in files
    assert task.operation.file_bytes == header.file_bytes
    assert task.operation.model.model_copy(update={"path": model.path}) == model
