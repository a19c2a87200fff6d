"""A plan with its models: one combination of what is listed, as it is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from armload.build.binary import Binary
from armload.conversion.distributed import converted_files
from armload.core.errors import UsageError
from armload.core.pictures import Picture, read_picture
from armload.core.progress import Progress
from armload.core.sounds import Sound, read_sound
from armload.engines.completion import PROGRAM, Completion
from armload.engines.distributed import (
    PROGRAMS,
    ConvertedFiles,
    DistributedRun,
    check_supported,
)
from armload.engines.embedding import EMBEDDING_PROGRAM, Embedding, embedding_plan
from armload.engines.llama_cpp import whole_plan
from armload.engines.model_program import ModelProgram
from armload.engines.perception import PERCEIVING_PROGRAM, Perception, with_room
from armload.engines.plan import MTP, Plan
from armload.engines.speculation import SPECULATING_PROGRAM, Speculation, check_predicts
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.find_projector import AUTO, NONE, find_projector
from armload.models.gguf import read_outline
from armload.models.model import Model, check_generates
from armload.models.projector import Modality, Projector
from armload.models.projector_choice import check_takes
from armload.models.tokens import check_draft


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A plan with its models, checked.

    Attributes:
        model: that is measured.
        draft: that guesses tokens for it; none where the plan has none.
        plan: with its prompt.
        converted: the model for distributed-llama; none where llama.cpp runs it.
        projector, media: by which it sees or hears, and what; none without.
    """

    model: Model
    draft: Model | None
    plan: Plan
    converted: ConvertedFiles | None = None
    projector: Projector | None = None
    media: tuple[Picture | Sound, ...] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        if self.converted is not None:
            return PROGRAMS
        if self.projector is not None:
            return (PERCEIVING_PROGRAM,)
        if self.plan.embed is not None:
            return (EMBEDDING_PROGRAM,)
        return (PROGRAM if self.plan.speculate is None else SPECULATING_PROGRAM,)

    def engine(self, binaries: Mapping[str, Binary]) -> ModelProgram[Plan]:
        """Return what runs it.

        Raises:
            UsageError: a program does not know a model, or lacks an option.
        """
        if self.converted is not None:
            return DistributedRun(self.plan, binaries, self.model, self.converted)
        binary = binaries[self.programs[0]]
        if self.projector is not None:
            return Perception(self.plan, binary, self.model, self.projector, self.media)
        if self.plan.embed is not None:
            return Embedding(self.plan, binary, self.model)
        if self.plan.speculate is None:
            return Completion(self.plan, binary, self.model)
        return Speculation(self.plan, binary, self.model, self.draft)


def combination(
    model: Model, plan: Plan, progress: Progress, *, reference: str = ""
) -> Combination:
    """Return a plan with its models; a draft model is made or downloaded when it is missing.

    For distributed-llama, the model is converted.

    Args:
        reference: what the model was called, where it may have come from a hub.

    Raises:
        UsageError: the plan does not suit the model, the draft model has another vocabulary, or
            the model has no layers that predict further tokens.
        ArmloadError: as for ``model_called``.
    """
    if plan.engine == "auto":
        raise UsageError(
            "--engine auto needs the forecast of bench.",
            "Use --engine llama.cpp or --engine dllama.",
        )
    model = with_adapters(model, plan.adapters, progress)
    if plan.embed is not None:
        return Combination(model=model, draft=None, plan=embedding_plan(plan, model))
    check_generates(model)
    if plan.engine == "dllama":
        check_supported(plan)
        plan = whole_plan(plan, model)
        files = converted_files(model, progress)
        return Combination(model=model, draft=None, plan=plan, converted=files)
    if plan.perceives:
        return _perceiving(model, plan, progress, reference)
    if plan.mmproj is not None and plan.mmproj.casefold() == NONE:
        plan = plan.model_copy(update={"mmproj": None})
    for option, given in (("mmproj", plan.mmproj), ("image-max-tokens", plan.image_max_tokens)):
        if given is not None:
            raise UsageError(
                f"--{option} {given}: it has no effect without an image or a sound.",
                f"Add --image or --audio, or remove --{option}.",
            )
    draft = None
    if plan.speculate == MTP:
        check_predicts(model)
    if plan.draft_model is not None:
        draft = model_called(plan.draft_model, progress)
        check_draft(draft, model)
    return Combination(model=model, draft=draft, plan=whole_plan(plan, model))


def _perceiving(model: Model, plan: Plan, progress: Progress, reference: str) -> Combination:
    if plan.speculate is not None:
        raise UsageError(
            "--speculate: llama-mtmd-cli, which takes images and sounds, cannot guess tokens.",
            "Remove --speculate, or --image and --audio.",
        )
    media: list[Picture | Sound] = []
    wanted: list[Modality] = []
    if plan.image is not None:
        wanted.append("vision")
        media += [read_picture(each) for each in plan.images]
    seconds = 0.0
    if plan.audio is not None:
        sound = read_sound(Path(plan.audio).expanduser())
        wanted.append("audio")
        media.append(sound)
        seconds = sound.seconds
    header = read_outline(model.path)[1]
    projector = find_projector(plan.mmproj or AUTO, reference, model.path, header, progress)
    if projector is None:
        raise UsageError(
            f"--mmproj {plan.mmproj}: a model sees and hears nothing without a projector.",
            "Remove --mmproj, or --image and --audio.",
        )
    check_takes(*(projector, model.path, header, wanted), most_tokens=plan.image_max_tokens)
    plan = with_room(whole_plan(plan, model), model, seconds)
    return Combination(model=model, draft=None, plan=plan, projector=projector, media=tuple(media))


def programs_of(combinations: Iterable[Combination]) -> tuple[str, ...]:
    """Return the programs that they take, each once, sorted."""
    return tuple(sorted({program for each in combinations for program in each.programs}))
