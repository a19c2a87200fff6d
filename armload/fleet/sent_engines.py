"""What a gateway is to run: told as data, with the files that it needs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from armload.analysis.board_resources import MeasuredHits
from armload.build.binary import Binary
from armload.core.files import sha256_of
from armload.core.values import Value
from armload.deploy.board_runs import check_name
from armload.engines.plan import Plan
from armload.engines.scorer import Scoring, ScoringPlan
from armload.engines.speculation import Speculation
from armload.evaluation.scorer_run import TimedScoring
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs.reach import BoardEngine
from armload.tuning.serving_load import TrialLoad

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _as_file_name(name: str) -> str:
    check_name(name)
    return name


FileName = Annotated[str, AfterValidator(_as_file_name)]


class SentFile(Value):
    """A file that a gateway needs.

    Attributes:
        folder: of the files that lie beside it there: a checksum of all of them.
        name: in that folder, the same as on the command's machine.
        sha256: of its content.
    """

    folder: Sha256
    name: FileName
    size_bytes: int
    sha256: Sha256


class SentModel(Value):
    """A model: one file, or all parts of one, of which the first counts."""

    files: tuple[SentFile, ...] = Field(min_length=1)


class SentBinary(Value):
    """A program; the path within ``binary`` is of no meaning."""

    binary: Binary
    file: SentFile


class SentCompletion(Value):
    """A continuation of a prompt, whose plan is complete.

    Attributes:
        server: ggml's RPC server of the same build, for a group of boards.
    """

    kind: Literal["completion"] = "completion"
    binary: SentBinary
    model: SentModel
    draft: SentModel | None = None
    server: SentBinary | None = None
    plan: Plan


class SentScoring(Value):
    """A run of the scorer.

    Attributes:
        server: as for ``SentCompletion``.
        items: what is asked.
        keeps_forecast: as for ``Scoring``.
        evaluation: its id, where the command reads the answers as they come; else empty.
        max_time_s: of a run for an evaluation; none for no limit.
    """

    kind: Literal["scoring"] = "scoring"
    binary: SentBinary
    model: SentModel
    server: SentBinary | None = None
    plan: ScoringPlan
    items: SentFile
    keeps_forecast: bool
    evaluation: str = ""
    max_time_s: float | None = None


class SentForecast(Value):
    """A run that is predicted after timing what the model computes; no weights are sent.

    Attributes:
        model: its path is of no meaning.
        header: of the model, with ``file_bytes`` of the file with its weights.
        hits: of streamed experts, in an earlier run.
    """

    binary: SentBinary
    model: Model
    header: SentFile
    file_bytes: int
    plan: Plan
    hits: MeasuredHits | None = None


class SentLoad(Value):
    """A load on a server that is started for it.

    Attributes:
        load: the path of its data is of no meaning.
        data: its requests; none for synthetic ones.
    """

    binary: SentBinary
    model: SentModel
    load: TrialLoad
    data: SentFile | None = None


class SentDeployment(Value):
    """A program and a model that are only put on the board."""

    binary: SentBinary
    model: SentModel


SentEngine = Annotated[SentCompletion | SentScoring, Field(discriminator="kind")]

Files = dict[SentFile, Path]
"""What is to be sent, and where it lies on the command's machine."""


def sent_engine(engine: BoardEngine, server: Binary | None) -> tuple[SentEngine, Files]:
    """Return how a gateway is told of an engine, and the files that it needs for it.

    Args:
        server: of the same build, for a group of boards.
    """
    files: Files = {}
    binary, model = _binary(engine.binary, files), _model(engine.model, files)
    sent_server = _binary(server, files) if server else None
    if isinstance(engine, Scoring):
        timed = engine if isinstance(engine, TimedScoring) else None
        scoring = SentScoring(
            binary=binary,
            model=model,
            server=sent_server,
            plan=engine.plan,
            items=_file(engine.items, engine.plan.items_sha256, files),
            keeps_forecast=engine.keeps_forecast,
            evaluation=timed.evaluation if timed else "",
            max_time_s=timed.max_time_s if timed else None,
        )
        return scoring, files
    draft = engine.draft if isinstance(engine, Speculation) else None
    completion = SentCompletion(
        binary=binary,
        model=model,
        draft=_model(draft, files) if draft else None,
        server=sent_server,
        plan=engine.plan,
    )
    return completion, files


def sent_forecast(
    binary: Binary,
    model: Model,
    header: WholeHeader,
    header_path: Path,
    plan: Plan,
    hits: MeasuredHits | None,
) -> tuple[SentForecast, Files]:
    """Return how a gateway is told what to predict, and the files that it needs for it.

    Args:
        header_path: a file that holds the header's content.
    """
    files: Files = {}
    forecast = SentForecast(
        binary=_binary(binary, files),
        model=model.model_copy(update={"path": Path(header_path.name), "parts": ()}),
        header=_file(header_path, hashlib.sha256(header.content).hexdigest(), files),
        file_bytes=header.file_bytes,
        plan=plan,
        hits=hits,
    )
    return forecast, files


def sent_load(binary: Binary, model: Model, one: TrialLoad) -> tuple[SentLoad, Files]:
    """Return how a gateway is told of a load, and the files that it needs for it."""
    files: Files = {}
    data = one.requests.data
    load = SentLoad(
        binary=_binary(binary, files),
        model=_model(model, files),
        load=one,
        data=_file(data, sha256_of(data), files) if data else None,
    )
    return load, files


def sent_deployment(binary: Binary, model: Model) -> tuple[SentDeployment, Files]:
    """Return how a gateway is told what to put on a board, and the files themselves."""
    files: Files = {}
    return SentDeployment(binary=_binary(binary, files), model=_model(model, files)), files


def _file(path: Path, sha256: str, files: Files, folder: str = "") -> SentFile:
    size_bytes = path.stat().st_size
    file = SentFile(folder=folder or sha256, name=path.name, size_bytes=size_bytes, sha256=sha256)
    files[file] = path
    return file


def _binary(binary: Binary, files: Files) -> SentBinary:
    return SentBinary(
        binary=binary.model_copy(update={"path": Path(binary.program)}),
        file=_file(binary.path, binary.sha256, files),
    )


def _model(model: Model, files: Files) -> SentModel:
    parts = [(part.path, part.sha256) for part in model.parts] or [(model.path, model.sha256)]
    return SentModel(
        files=tuple(_file(path, sha256, files, folder=model.sha256) for path, sha256 in parts)
    )
