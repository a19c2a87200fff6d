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
RUN = Schema(
    name="run",
    format=FORMAT,
    value=Run,
    title=f"armload run.json, format {FORMAT}",
    verbs=("bench", "show", "watch"),
)
REPEATED = Schema(
    name="repeated-run",
    format=FORMAT,
    value=RepeatedRun,
    title="a run of bench, demo or init, with its repeats",
    verbs=("bench", "demo", "init"),
)
ERROR = Schema(name="error", value=FailedDocument, title="an error, where a verb has no results")
DOCUMENTS = (
    RUN,
    REPEATED,
    Schema(
        name="sweep",
        format=2,
        value=SweptCells,
        title="a sweep's cells",
        verbs=("bench", "show"),
    ),
    Schema(
        name="swept-boards",
        value=SweptBoards,
        title="a sweep on several boards",
        verbs=("bench",),
    ),
    Schema(name="run-ids", value=ValueList[str], title="ids of runs", verbs=("show", "import")),
    Schema(
        name="results",
        format=RESULTS_FORMAT,
        value=Results,
        title="published results",
        verbs=("export",),
    ),
    Schema(name="fetched-runs", value=FetchedRuns, title="fetched runs", verbs=("pull",)),
    Schema(
        name="fetched-boards",
        value=FetchedFromBoards.of_several,
        title="runs fetched from several boards",
        verbs=("pull",),
    ),
    Schema(
        name="comparisons",
        value=ValueList[Comparison],
        title="compared runs, loads or searches for settings",
        verbs=("compare",),
    ),
    Schema(name="fit", value=Fit, title="predictions for models on a board", verbs=("fit",)),
    Schema(
        name="boards-fit",
        value=BoardsFit,
        title="predictions for models on several boards, or on hardware from the catalogue",
        verbs=("fit",),
    ),
    Schema(
        name="evaluation", value=EvaluationDocument, title="graded answers", verbs=("eval", "show")
    ),
    Schema(
        name="harness", value=HarnessResult, title="tasks of lm-evaluation-harness", verbs=("eval",)
    ),
    Schema(name="similarity", value=Similarity, title="pairs of sentences", verbs=("eval",)),
    Schema(name="logits", value=LogitsDocument, title="logits and a reference", verbs=("eval",)),
    Schema(
        name="tradeoffs",
        value=ValueList[Tradeoff],
        title="accuracy at equal latency",
        verbs=("tradeoff",),
    ),
    Schema(name="load", value=LoadDocument, title="a load on a service", verbs=("load", "show")),
    Schema(
        name="tuning", value=TuningDocument, title="a search for settings", verbs=("tune", "show")
    ),
    Schema(
        name="tuned-boards",
        value=TunedOnBoards.of_several,
        title="searches for settings on several boards",
        verbs=("tune",),
    ),
    Schema(
        name="bisection",
        value=Bisected,
        title="the commit that a bisection found",
        verbs=("bisect",),
    ),
    Schema(name="service", value=ServedModel, title="a served model", verbs=("serve",)),
    Schema(
        name="services",
        value=ValueList[ListedService],
        title="what boards serve",
        verbs=("service.list",),
    ),
    Schema(
        name="installed-service",
        value=InstalledDocument,
        title="an installed service",
        verbs=("service.install",),
    ),
    Schema(
        name="installed-boards",
        value=InstalledOnBoards.of_several,
        title="a service installed on several boards",
        verbs=("service.install",),
    ),
    Schema(
        name="service-status",
        value=BoardStatus,
        title="how a board and its services are",
        verbs=("service.status",),
    ),
    Schema(
        name="service-status-boards",
        value=StatusOfBoards.of_several,
        title="how several boards and their services are",
        verbs=("service.status",),
    ),
    Schema(name="service-log", value=ServiceLog, title="a service's log", verbs=("service.logs",)),
    Schema(
        name="stopped-service",
        value=StoppedService,
        title="a stopped service",
        verbs=("service.stop",),
    ),
    Schema(
        name="changed-service",
        value=ChangedService,
        title="a service that was restarted or removed",
        verbs=("service.restart", "service.remove"),
    ),
    Schema(
        name="updated-service",
        value=UpdatedService,
        title="an updated service",
        verbs=("service.update",),
    ),
    Schema(
        name="renewed-certificate",
        value=RenewedCertificate,
        title="a service's renewed certificate",
        verbs=("service.update",),
    ),
    Schema(
        name="updated-boards",
        value=UpdatedOnBoards.of_several,
        title="a service updated on several boards",
        verbs=("service.update",),
    ),
    Schema(
        name="rolled-back",
        value=RolledBack,
        title="a service's former version, in force again",
        verbs=("service.rollback",),
    ),
    Schema(
        name="service-keys",
        value=ServiceKeys,
        title="the keys of a service",
        verbs=("service.keys",),
    ),
    Schema(name="chat", value=ChatAnswer, title="an answer of a chat", verbs=("chat",)),
    Schema(name="report", value=Report, title="a written report", verbs=("report",)),
    Schema(name="binaries", value=ValueList[Binary], title="built programs", verbs=("build",)),
    Schema(name="builds", value=ValueList[CachedBuild], title="existing builds", verbs=("build",)),
    Schema(name="inspection", value=Inspected, title="an inspected program", verbs=("inspect",)),
    Schema(name="deployed", value=Deployed, title="files on a board", verbs=("deploy",)),
    Schema(
        name="deployed-boards",
        value=DeployedOnBoards.of_several,
        title="files on several boards",
        verbs=("deploy",),
    ),
    Schema(name="defaults", value=ValueList[SetDefault], title="own defaults", verbs=("config",)),
    Schema(name="cleaned-cache", value=CleanedCache, title="the cache", verbs=("clean",)),
    Schema(
        name="model", value=ModelSummary, title="a model", verbs=("model.inspect", "model.synth")
    ),
    Schema(name="projector", value=Projector, title="a projector", verbs=("model.inspect",)),
    Schema(
        name="quantised", value=QuantisedModels, title="quantised models", verbs=("model.quantize",)
    ),
    Schema(
        name="converted", value=Converted, title="a converted checkpoint", verbs=("model.convert",)
    ),
    Schema(name="boards", value=ValueList[ListedBoard], title="boards", verbs=("board.list",)),
    Schema(
        name="hardware",
        value=ValueList[Hardware],
        title="the catalogue of hardware",
        verbs=("board.hardware",),
    ),
    Schema(name="added-board", value=AddedBoard, title="an added board", verbs=("board.add",)),
    Schema(name="probe", value=ProbedBoard, title="a probed board", verbs=("board.probe",)),
    Schema(
        name="trusted-files",
        value=ValueList[TrustedFile],
        title="files that are trusted",
        verbs=("trust",),
    ),
    Schema(name="pinned-key", value=PinnedKey, title="a pinned host key", verbs=("board.trust",)),
    Schema(name="address", value=SshAddress, title="an SSH address", verbs=("board.up",)),
    Schema(name="stopped", value=StoppedBoard, title="a stopped board", verbs=("board.down",)),
    Schema(name="leases", value=ValueList[Claim], title="ended leases", verbs=("board.release",)),
    Schema(
        name="completion-script",
        value=CompletionScript,
        title="a shell's script for completion",
        verbs=("completion",),
    ),
    Schema(name="cleaned-board", value=Cleaned, title="a cleaned board", verbs=("board.clean",)),
    ERROR,
)


if __name__ == "__main__":
    for each in (*INPUTS, *DOCUMENTS):
        (Path(sys.argv[1]) / each.file_name).write_text(each.text(), encoding="utf-8")
