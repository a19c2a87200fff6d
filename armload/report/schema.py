"""The published JSON schemas: of what ``--json`` prints, and of a person's files of options."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from armload.analysis.comparison import Comparison
from armload.analysis.run import FORMAT, Run
from armload.bench.fitting import BoardsFit, Fit
from armload.bench.options import Options
from armload.boards.board import SshAddress
from armload.boards.hardware import Hardware
from armload.boards.trust import PinnedKey
from armload.build.binary import Binary
from armload.build.cached import CachedBuild
from armload.conversion.checkpoints.converting import Converted
from armload.core.trust import TrustedFile
from armload.core.values import ValueList
from armload.deploy.claims import Claim
from armload.deploy.clean import Cleaned
from armload.evaluation.harness.evaluating import HarnessResult
from armload.evaluation.quantising import QuantisedModels
from armload.evaluation.similarity import Similarity
from armload.evaluation.tradeoff import Tradeoff
from armload.models.model_summary import ModelSummary
from armload.models.projector import Projector
from armload.report.binaries import Inspected
from armload.report.bisected import Bisected
from armload.report.boards import AddedBoard, ListedBoard, ProbedBoard, StoppedBoard
from armload.report.cache import CleanedCache
from armload.report.chat import ChatAnswer
from armload.report.completion import CompletionScript
from armload.report.defaults import SetDefault
from armload.report.evaluation.document import EvaluationDocument, LogitsDocument
from armload.report.exchange.document import FORMAT as RESULTS_FORMAT
from armload.report.exchange.document import Results
from armload.report.failure import FailedDocument
from armload.report.load.loaded import LoadDocument
from armload.report.on_boards import DeployedOnBoards, FetchedFromBoards, FetchedRuns
from armload.report.pages import Report
from armload.report.repeats import RepeatedRun
from armload.report.services import (
    InstalledDocument,
    InstalledOnBoards,
    ServedModel,
    ServiceLog,
    StatusOfBoards,
    UpdatedOnBoards,
)
from armload.report.side_by_side import SweptBoards
from armload.report.sweep import SweptCells
from armload.report.tuning.result import TunedOnBoards
from armload.runs.placing import Deployed
from armload.services.listing import ListedService
from armload.services.managing import (
    ChangedService,
    RenewedCertificate,
    ServiceKeys,
    StoppedService,
)
from armload.services.status import BoardStatus
from armload.services.switching import RolledBack
from armload.services.updating import UpdatedService
from armload.tuning.choices import SearchSpace
from armload.tuning.record import TuningDocument


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A published schema.

    Attributes:
        name: of its file, without the format.
        format: goes up when former documents no longer fit.
        value: what is described.
        title: what a document of it is.
        verbs: that print one with ``--json``.
        mode: whether armload writes or reads such documents.
    """

    name: str
    value: type[BaseModel]
    title: str
    verbs: tuple[str, ...] = ()
    format: int = 1
    mode: Literal["validation", "serialization"] = "serialization"

    @property
    def file_name(self) -> str:
        """Below ``docs/schema``."""
        return f"{self.name}-{self.format}.json"

    def text(self) -> str:
        """Return the schema as a JSON document."""
        schema = self.value.model_json_schema(mode=self.mode)
        content = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.title,
            **{key: value for key, value in schema.items() if key != "title"},
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


PLAN = Schema(name="plan", value=Options, title="armload plan file", mode="validation")
SPACE = Schema(
    name="space", value=SearchSpace, title="armload search space (tune)", mode="validation"
)
INPUTS = (PLAN, SPACE)


def _printed(
    name: str, value: type[BaseModel], title: str, *verbs: str, version: int = 1
) -> Schema:
    return Schema(name=name, value=value, title=title, verbs=verbs, format=version)


RUN = _printed(
    "run", Run, f"armload run.json, format {FORMAT}", "bench", "show", "watch", version=FORMAT
)
REPEATED = _printed(
    "repeated-run",
    RepeatedRun,
    "a run of bench, demo or init, with its repeats",
    "bench",
    "demo",
    "init",
    version=FORMAT,
)
ERROR = _printed("error", FailedDocument, "an error, where a verb has no results")
DOCUMENTS = (
    RUN,
    REPEATED,
    _printed("sweep", SweptCells, "a sweep's cells", "bench", "show", version=2),
    _printed("swept-boards", SweptBoards, "a sweep on several boards", "bench"),
    _printed("run-ids", ValueList[str], "ids of runs", "show", "import"),
    _printed("results", Results, "published results", "export", version=RESULTS_FORMAT),
    _printed("fetched-runs", FetchedRuns, "fetched runs", "pull"),
    _printed(
        "fetched-boards", FetchedFromBoards.of_several, "runs fetched from several boards", "pull"
    ),
    _printed(
        "comparisons",
        ValueList[Comparison],
        "compared runs, loads or searches for settings",
        "compare",
    ),
    _printed("fit", Fit, "predictions for models on a board", "fit"),
    _printed(
        "boards-fit",
        BoardsFit,
        "predictions for models on several boards, or on hardware from the catalogue",
        "fit",
    ),
    _printed("evaluation", EvaluationDocument, "graded answers", "eval", "show"),
    _printed("harness", HarnessResult, "tasks of lm-evaluation-harness", "eval"),
    _printed("similarity", Similarity, "pairs of sentences", "eval"),
    _printed("logits", LogitsDocument, "logits and a reference", "eval"),
    _printed("tradeoffs", ValueList[Tradeoff], "accuracy at equal latency", "tradeoff"),
    _printed("load", LoadDocument, "a load on a service", "load", "show"),
    _printed("tuning", TuningDocument, "a search for settings", "tune", "show"),
    _printed(
        "tuned-boards", TunedOnBoards.of_several, "searches for settings on several boards", "tune"
    ),
    _printed("bisection", Bisected, "the commit that a bisection found", "bisect"),
    _printed("service", ServedModel, "a served model", "serve"),
    _printed("services", ValueList[ListedService], "what boards serve", "service.list"),
    _printed("installed-service", InstalledDocument, "an installed service", "service.install"),
    _printed(
        "installed-boards",
        InstalledOnBoards.of_several,
        "a service installed on several boards",
        "service.install",
    ),
    _printed("service-status", BoardStatus, "how a board and its services are", "service.status"),
    _printed(
        "service-status-boards",
        StatusOfBoards.of_several,
        "how several boards and their services are",
        "service.status",
    ),
    _printed("service-log", ServiceLog, "a service's log", "service.logs"),
    _printed("stopped-service", StoppedService, "a stopped service", "service.stop"),
    _printed(
        "changed-service",
        ChangedService,
        "a service that was restarted or removed",
        "service.restart",
        "service.remove",
    ),
    _printed("updated-service", UpdatedService, "an updated service", "service.update"),
    _printed(
        "renewed-certificate",
        RenewedCertificate,
        "a service's renewed certificate",
        "service.update",
    ),
    _printed(
        "updated-boards",
        UpdatedOnBoards.of_several,
        "a service updated on several boards",
        "service.update",
    ),
    _printed(
        "rolled-back", RolledBack, "a service's former version, in force again", "service.rollback"
    ),
    _printed("service-keys", ServiceKeys, "the keys of a service", "service.keys"),
    _printed("chat", ChatAnswer, "an answer of a chat", "chat"),
    _printed("report", Report, "a written report", "report"),
    _printed("binaries", ValueList[Binary], "built programs", "build"),
    _printed("builds", ValueList[CachedBuild], "existing builds", "build"),
    _printed("inspection", Inspected, "an inspected program", "inspect"),
    _printed("deployed", Deployed, "files on a board", "deploy"),
    _printed("deployed-boards", DeployedOnBoards.of_several, "files on several boards", "deploy"),
    _printed("defaults", ValueList[SetDefault], "own defaults", "config"),
    _printed("cleaned-cache", CleanedCache, "the cache", "clean"),
    _printed("model", ModelSummary, "a model", "model.inspect", "model.synth"),
    _printed("projector", Projector, "a projector", "model.inspect"),
    _printed("quantised", QuantisedModels, "quantised models", "model.quantize"),
    _printed("converted", Converted, "a converted checkpoint", "model.convert"),
    _printed("boards", ValueList[ListedBoard], "boards", "board.list"),
    _printed("hardware", ValueList[Hardware], "the catalogue of hardware", "board.hardware"),
    _printed("added-board", AddedBoard, "an added board", "board.add"),
    _printed("probe", ProbedBoard, "a probed board", "board.probe"),
    _printed("trusted-files", ValueList[TrustedFile], "files that are trusted", "trust"),
    _printed("pinned-key", PinnedKey, "a pinned host key", "board.trust"),
    _printed("address", SshAddress, "an SSH address", "board.up"),
    _printed("stopped", StoppedBoard, "a stopped board", "board.down"),
    _printed("leases", ValueList[Claim], "ended leases", "board.release"),
    _printed(
        "completion-script", CompletionScript, "a shell's script for completion", "completion"
    ),
    _printed("cleaned-board", Cleaned, "a cleaned board", "board.clean"),
    ERROR,
)


if __name__ == "__main__":
    for each in (*INPUTS, *DOCUMENTS):
        (Path(sys.argv[1]) / each.file_name).write_text(each.text(), encoding="utf-8")
