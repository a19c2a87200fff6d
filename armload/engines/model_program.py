"""What the programs that are built with llama.cpp, and work on one model, have in common."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress
from armload.deploy.deployment import check_fit
from armload.deploy.payload import Payload
from armload.engines.engine import Engine
from armload.engines.job import BinaryRecord, ModelRecord, Subject
from armload.models.model import Model


class PlanDocument(Protocol):
    """What a program is to do, as a value."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return all of it; in mode ``json`` with nothing but JSON's types."""

    def model_dump_json(self) -> str:
        """Write all of it."""


AnyDocument = TypeVar("AnyDocument", bound=PlanDocument)


class ModelProgram(Engine, Generic[AnyDocument]):
    """A plan, carried out by one program on one model.

    Attributes:
        plan, model: as given.

    Args:
        binary: built for the board's target.
    """

    def __init__(self, plan: AnyDocument, binary: Binary, model: Model) -> None:
        self.plan = plan
        self._binary = binary
        self.model = model

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program and model."""
        return fingerprint_of((self.plan.model_dump_json(), self._binary.sha256, self.model.sha256))

    @property
    def subject(self) -> Subject:
        """The plan, and what is known of program and model."""
        return Subject(
            arguments=self.plan.model_dump(mode="json"),
            binary=binary_record(self._binary),
            model=model_record(self.model),
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program and the model."""
        return program_and_model(self._binary, self.model)

    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Refuse a board whose CPU lacks what the program uses."""
        del progress
        check_fit(board, self._binary, found, emulated=bool(host.launcher))


def binary_record(binary: Binary) -> BinaryRecord:
    """Return what is kept of a program."""
    return BinaryRecord(
        **binary.model_dump(include=set(BinaryRecord.model_fields) - {"features"}),
        features=tuple(use.feature for use in binary.features if not use.guarded),
    )


def model_record(model: Model) -> ModelRecord:
    """Return what is kept of a model."""
    facts = model.model_dump(include=set(ModelRecord.model_fields) - {"name"})
    return ModelRecord(name=model.name, **facts)


def program_and_model(binary: Binary, model: Model) -> tuple[Payload, Payload]:
    """Return what a program with a model needs on a board."""
    return (
        Payload.of_file(binary.path, sha256=binary.sha256, executable=True),
        Payload.of_model(model),
    )
