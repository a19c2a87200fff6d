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
from armload.core.values import Value
from armload.core.workspace import data_names
from armload.engines.media import MediaNeed, media_need
from armload.engines.prediction import Prediction
from armload.models.adapter import AdapterChoice
from armload.models.adapter_file import with_adapters
from armload.models.file_types import usual_type
from armload.models.find import header_of, is_runnable
from armload.models.find_projector import NONE, find_projector_header
from armload.models.gguf import read_outline
from armload.models.header import Header
from armload.models.image_tokens import USUAL_SIZE, ImageSize
from armload.models.model import Model, check_generates
from armload.models.outline import OUTLINES, listed_models, load_outline, outlined_projector
from armload.models.published import published_as
from armload.models.quant_mix import predict_quantised
from armload.models.whole_header import WholeHeader, encoded, whole_header
from armload.runs.media import MediaQuestion
from armload.runs.request import Request


class OutlinedModel(NamedTuple):
    """A model by its header.

    Attributes:
        reference: what it is called.
        model: its facts.
        header: the whole of it; none for models that are only listed.
        has_file: armload has its weights, or can get them.
        file_type: that it would be quantised to first; empty for the model as it is.
        outline: the header's keys and tensors; none for models that are only listed.
        media: an image, or a sound, that is to come before the prompt; none of a model of text.
        projector: the header of what encodes it; none for models that are only listed.
    """

    reference: str
    model: Model
    header: WholeHeader | None
    has_file: bool
    file_type: str = ""
    outline: Header | None = None
    media: MediaNeed | None = None
    projector: WholeHeader | None = None

    @property
    def question(self) -> MediaQuestion | None:
        """What the board can be asked of the encoder."""
        if self.media is None or self.projector is None:
            return None
        return MediaQuestion(need=self.media, header=self.projector)

    @property
    def name(self) -> str:
        return f"{self.reference} {self.file_type}".rstrip()

    @property
    def family(self) -> str:
        """The name without a file type; current models are listed in several."""
        return self.reference if self.header else self.reference.partition(":")[0]

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
            embeds = ("--embed", str(found.texts.at_a_time)) if found.texts else ()
            words = ("--board", board, "--model", self.reference, *kind, *embeds)
            command = join(("armload", "bench", *words))
        return fitted(
            *(self.name, board, self.model, found),
            family=self.family,
            command=command,
            has_file=self.has_file,
        )


class Media(Value):
    """Which image is predicted.

    Attributes:
        projector: as for ``find_projector_header``.
        size: of the image; none for a usual one.
    """

    projector: str = ""
    size: ImageSize | None = None


def outlined_models(
    request: Request,
    model_names: Sequence[str],
    file_types: Sequence[str],
    progress: Progress,
    media: Media,
    *,
    adapters: Sequence[AdapterChoice] = (),
) -> list[OutlinedModel]:
    """Return models by their headers; the current ones where none is named.

    Args:
        model_names, file_types: as for ``fit``.
        adapters: that are added to each.
    """
    if model_names:
        models = [
            _with_media(each.with_adapters(adapters, progress), media, progress)
            for name in model_names
            for each in _outlined(request, name, file_types, progress)
        ]
        if media.size is not None and not any(each.media and each.media.sees for each in models):
            raise UsageError(
                f"--image-size {media.size}: no image is given to {' or '.join(model_names)}: "
                "no projector for images was found.",
                "Remove --image-size, or name the model's projector with --mmproj.",
            )
        return models
    if adapters:
        raise UsageError(
            "--lora: an adapter is for one model, and none is named.",
            "Add --model with the model that it was trained for.",
        )
    needs = {} if media.projector.casefold() == NONE else _listed_media(media.size or USUAL_SIZE)
    found = []
    for listed, model, _ in listed_models(tuple(file_types)):
        name, _, file_type = listed.partition(":")
        has_file = bool(published_as(name, usual_type(file_type)))
        found.append(OutlinedModel(listed, model, None, has_file, media=needs.get(name)))
    return found


def _listed_media(size: ImageSize) -> dict[str, MediaNeed]:
    found = {name: outlined_projector(load_outline(name)) for name in data_names(OUTLINES)}
    needs = {name: media_need(*each, size) for name, each in found.items() if each}
    return {name: need for name, need in needs.items() if need is not None}


def _with_media(outlined: OutlinedModel, media: Media, progress: Progress) -> OutlinedModel:
    """Return a model with what an image needs, with the projector that is named or lies beside."""
    if outlined.outline is None:
        return outlined
    found = find_projector_header(
        *(media.projector, outlined.reference, outlined.model.path, outlined.outline, progress)
    )
    if found is None:
        return outlined
    projector, header = found
    need = media_need(projector, header, media.size or USUAL_SIZE)
    if need is None:
        kinds = " and ".join(each.kind for each in projector.encoders)
        raise UsageError(
            f"{projector.path.name}: armload does not know how many tokens an image becomes with "
            f"a projector of the kind {kinds}.",
            "To predict text alone: --mmproj none",
        )
    path = projector.path
    whole = whole_header(path) if path.is_file() else encoded(header)
    return outlined._replace(media=need, projector=whole)


def _outlined(
    request: Request, name: str, file_types: Sequence[str], progress: Progress
) -> Iterator[OutlinedModel]:
    path = header_of(name, progress)
    model, header = read_outline(path)
    check_generates(model, or_embeds=True)
    has_file = is_runnable(name)
    if not file_types:
        yield OutlinedModel(name, model, whole_header(path), has_file, outline=header)
    for each in file_types:
        if later := predict_quantised(model, header, each):
            yield OutlinedModel(
                *(name, later[0], whole_header(path, later[1]), has_file, each, later[1])
            )
        else:
            (made,) = quantised_for(request, [name], [each], progress)
            made_model, made_header = read_outline(Path(made))
            yield OutlinedModel(
                *(name, made_model, whole_header(Path(made)), has_file, each, made_header)
            )
