"""What a gateway makes of the files of a run that a command has sent."""

from __future__ import annotations

from pathlib import Path

from armload.bench.combination import Combination
from armload.build.binary import Binary
from armload.core.errors import TransferError
from armload.core.progress import Silent
from armload.deploy.follow import ProgressUpdate
from armload.engines.scorer import Scoring
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet.received import received_path
from armload.fleet.relay import Relay
from armload.fleet.sent_engines import (
    SentBinary,
    SentCompletion,
    SentDeployment,
    SentEngine,
    SentFile,
    SentForecast,
    SentLoad,
    SentModel,
    SentScoring,
)
from armload.models.gguf import read_model
from armload.models.model import Model, cached_sha256
from armload.models.whole_header import WholeHeader
from armload.runs.reach import BoardEngine
from armload.tuning.serving_load import TrialLoad


def received_engine(sent: SentEngine, relay: Relay) -> BoardEngine:
    """Return an engine whose files are here.

    Args:
        relay: tells the command of answers as they come.

    Raises:
        TransferError: a file is not what was sent.
        UsageError: the program does not suit model or plan.
    """
    binary, model = _binary(sent.binary), _model(sent.model)
    if isinstance(sent, SentCompletion):
        draft = _model(sent.draft) if sent.draft else None
        one = Combination(model=model, draft=draft, plan=sent.plan)
        return one.engine({one.program: binary})
    items = _whole(sent.items)
    if sent.evaluation:
        return _ReadElsewhere(sent, binary, model, items, relay)
    return Scoring(sent.plan, binary, model, items)


def received_forecast(sent: SentForecast) -> tuple[Model, WholeHeader, Binary]:
    """Return a model without its weights, its header, and the program that would run it.

    Raises:
        TransferError: a file is not what was sent.
    """
    path = _whole(sent.header)
    header = WholeHeader(content=path.read_bytes(), file_bytes=sent.file_bytes)
    return sent.model.model_copy(update={"path": path}), header, _binary(sent.binary)


def received_load(sent: SentLoad) -> tuple[Model, TrialLoad, Binary]:
    """Return a load with its model and server.

    Raises:
        TransferError: a file is not what was sent.
    """
    data = _whole(sent.data) if sent.data else None
    requests = sent.load.requests.model_copy(update={"data": data})
    one = sent.load.model_copy(update={"requests": requests})
    return _model(sent.model), one, _binary(sent.binary)


def received_deployment(sent: SentDeployment) -> tuple[Model, Binary]:
    """Return a model and a program.

    Raises:
        TransferError: a file is not what was sent.
    """
    return _model(sent.model), _binary(sent.binary)


class _ReadElsewhere(TimedScoring):
    """A run for an evaluation whose answers the command grades as they come."""

    def __init__(
        self, sent: SentScoring, binary: Binary, model: Model, items: Path, relay: Relay
    ) -> None:
        super().__init__(
            *(sent.plan, binary, model, items),
            evaluation=sent.evaluation,
            note=lambda _: "",
            max_time_s=sent.max_time_s,
            keeps_forecast=sent.keeps_forecast,
        )
        self._relay = relay

    def note(self, now: ProgressUpdate) -> str:
        """Tell the command of the answers; it knows what to say of them."""
        self._relay.lines(now.new_lines)
        return ""


def _binary(sent: SentBinary) -> Binary:
    return sent.binary.model_copy(update={"path": _whole(sent.file)})


def _model(sent: SentModel) -> Model:
    first, *_ = [_whole(file) for file in sent.files]
    return read_model(first)


def _whole(file: SentFile) -> Path:
    path = received_path(file)
    if not path.is_file() or cached_sha256(path, Silent()) != file.sha256:
        path.unlink(missing_ok=True)
        raise TransferError(
            f"{path} on the gateway is not what was sent.", "Repeat the command to send it again."
        )
    return path
