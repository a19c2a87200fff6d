"""What llama.cpp's programs that work on a model's file, without answering, have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from armload.build.binary import Binary
from armload.core.values import Value
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.engines.defaults import DEFAULT_TIME_LIMIT_S
from armload.engines.engine import Site
from armload.engines.model_program import ModelProgram, PlanDocument, program_and_model
from armload.models.model import Model

AnyPlan = TypeVar("AnyPlan", bound=PlanDocument)


class InPlace(Value):
    """Where the large files are on a board that is this machine: nothing is copied.

    Attributes:
        base: the model.
        result: what is made of it.
    """

    base: PurePosixPath
    result: PurePosixPath


class ModelTool(ModelProgram[AnyPlan]):
    """A plan, carried out by one program on one model's file.

    The program writes what it does to standard error, which is joined to standard output, so that
    it is seen while it runs.

    Attributes:
        plan, model, in_place: as given.

    Args:
        binary: built for the board's target.
        in_place: on this machine; none copies the model to the board, and the result from there.
    """

    def __init__(
        self, plan: AnyPlan, binary: Binary, model: Model, in_place: InPlace | None
    ) -> None:
        super().__init__(plan, binary, model)
        self.in_place = in_place

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program; the model, unless it is there."""
        program, model = program_and_model(self._binary, self.model)
        return (program,) if self.in_place is not None else (program, model)

    @property
    @abstractmethod
    def result(self) -> str | None:
        """The file in a run's folder that it makes; none where it makes it in its place."""

    @property
    def time_limit_s(self) -> float:
        """As long as any run may take."""
        return DEFAULT_TIME_LIMIT_S

    def program(self, site: Site) -> str:
        """Return the program, which a shell starts."""
        return str(self.payload[0].items(site.layout)[0].remote)

    def _base(self, site: Site) -> PurePosixPath:
        """Return where the model lies."""
        if self.in_place is not None:
            return self.in_place.base
        return self.payload[1].items(site.layout)[0].remote

    def _started(self, site: Site, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that start the program with these arguments."""
        return ("sh", "-c", 'exec "$@" 2>&1', "sh", *site.launcher, self.program(site), *words)


def payload_from_program_folder(layout: Layout, payload: Payload) -> str:
    """Return where a file of a payload lies on a board, as seen from a program's folder.

    A program that notes the name in its result would else note where a work folder is.
    """
    remote = payload.items(layout)[0].remote
    return str(PurePosixPath("..", "..", "..", remote.relative_to(layout.workdir)))
