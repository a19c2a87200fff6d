"""The models that a prediction is asked for, by their headers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from armload.analysis.fitted import FittedModel, fitted
from armload.conversion.quantising import quantised_for
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.shell import join
from armload.engines.prediction import Prediction
from armload.models.adapter import AdapterChoice
from armload.models.adapter_file import with_adapters
from armload.models.find import header_of, is_runnable
from armload.models.gguf import read_outline
from armload.models.header import Header
from armload.models.model import Model, check_generates
from armload.models.outline import listed_models
from armload.models.quant_mix import predict_quantised
from armload.models.whole_header import WholeHeader, whole_header
from armload.runs.request import Request


class OutlinedModel(NamedTuple):
    """A model by its header.

    Attributes:
        reference: what it is called.
        model: its facts.
        header: the whole of it; none for models that are only listed.
        file_type: that it would be quantised to first; empty for the model as it is.
        outline: the header's keys and tensors; none for models that are only listed.
    """

    reference: str
    model: Model
    header: WholeHeader | None
    file_type: str = ""
    outline: Header | None = None

    @property
    def name(self) -> str:
        return f"{self.reference} {self.file_type}".rstrip()

    @property
    def family(self) -> str:
        """The name without a file type; current models are listed in several."""
        return self.reference if self.header else self.reference.partition(":")[0]

    @property
    def has_file(self) -> bool:
        """Whether armload has its weights, or can get them."""
        return is_runnable(self.reference)

    def with_adapters(self, adapters: Sequence[AdapterChoice], progress: Progress) -> OutlinedModel:
        """Return the same with adapters, which must fit its header."""
        model = with_adapters(self.model, adapters, progress, header=self.outline)
        return self._replace(model=model)

    def on_board(self, board: str, found: Prediction) -> FittedModel:
        """Return what a prediction for a board says of it."""
        if found.verdict == "cannot run" or not self.has_file:
            command = ""
        else:
            kind = ("--type", self.file_type) if self.file_type else ()
            command = join(("armload", "bench", "--board", board, "--model", self.reference, *kind))
        return fitted(
            *(self.name, board, self.model, found),
            family=self.family,
            command=command,
            has_file=self.has_file,
        )


def outlined_models(
    request: Request,
    model_names: Sequence[str],
    file_types: Sequence[str],
    progress: Progress,
    *,
    adapters: Sequence[AdapterChoice] = (),
) -> list[OutlinedModel]:
    """Return models by their headers; the current ones where none is named.

    Args:
        model_names, file_types: as for ``fit``.
        adapters: that are added to each.
    """
    if model_names:
        return [
            each.with_adapters(adapters, progress)
            for name in model_names
            for each in _outlined(request, name, file_types, progress)
        ]
    if adapters:
        raise UsageError(
            "--lora: an adapter is for one model, and none is named.",
            "Add --model with the model that it was trained for.",
        )
    return [OutlinedModel(name, model, None) for name, model, _ in listed_models(tuple(file_types))]


def _outlined(
    request: Request, name: str, file_types: Sequence[str], progress: Progress
) -> Iterator[OutlinedModel]:
    path = header_of(name, progress)
    model, header = read_outline(path)
    check_generates(model)
    if not file_types:
        yield OutlinedModel(name, model, whole_header(path), outline=header)
    for each in file_types:
        if later := predict_quantised(model, header, each):
            yield OutlinedModel(name, later[0], whole_header(path, later[1]), each, later[1])
        else:
            (made,) = quantised_for(request, [name], [each], progress)
            made_model, made_header = read_outline(Path(made))
            yield OutlinedModel(name, made_model, whole_header(Path(made)), each, made_header)
