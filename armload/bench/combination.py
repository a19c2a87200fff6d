"""A plan with its models: one combination of what is listed, as it is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from armload.build.binary import Binary
from armload.conversion.distributed import converted_files
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, Completion
from armload.engines.distributed import (
    PROGRAMS,
    ConvertedFiles,
    DistributedRun,
    check_supported,
)
from armload.engines.llama_cpp import whole_plan
from armload.engines.plan import MTP, Plan
from armload.engines.speculation import SPECULATING_PROGRAM, Speculation, check_predicts
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.model import Model
from armload.models.tokens import check_draft


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A plan with its models, checked.

    Attributes:
        model: that is measured.
        draft: that guesses tokens for it; none where the plan has none.
        plan: with its prompt.
        converted: the model for distributed-llama; none where llama.cpp runs it.
    """

    model: Model
    draft: Model | None
    plan: Plan
    converted: ConvertedFiles | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        if self.converted is not None:
            return PROGRAMS
        return (PROGRAM if self.plan.speculate is None else SPECULATING_PROGRAM,)

    def engine(self, binaries: Mapping[str, Binary]) -> Completion | DistributedRun:
        """Return what runs it.

        Raises:
            UsageError: a program does not know a model, or lacks an option.
        """
        if self.converted is not None:
            return DistributedRun(self.plan, binaries, self.model, self.converted)
        binary = binaries[self.programs[0]]
        if self.plan.speculate is None:
            return Completion(self.plan, binary, self.model)
        return Speculation(self.plan, binary, self.model, self.draft)


def combination(model: Model, plan: Plan, progress: Progress) -> Combination:
    """Return a plan with its models; a draft model is made or downloaded when it is missing.

    For distributed-llama, the model is converted.

    Raises:
        UsageError: the plan does not suit the model, the draft model has another vocabulary, or
            the model has no layers that predict further tokens.
        ArmloadError: as for ``model_called``.
    """
    model = with_adapters(model, plan.adapters, progress)
    if plan.engine == "dllama":
        check_supported(plan)
        plan = whole_plan(plan, model)
        files = converted_files(model, progress)
        return Combination(model=model, draft=None, plan=plan, converted=files)
    draft = None
    if plan.speculate == MTP:
        check_predicts(model)
    if plan.draft_model is not None:
        draft = model_called(plan.draft_model, progress)
        check_draft(draft, model)
    return Combination(model=model, draft=draft, plan=whole_plan(plan, model))


def programs_of(combinations: Iterable[Combination]) -> tuple[str, ...]:
    """Return the programs that they take, each once, sorted."""
    return tuple(sorted({program for each in combinations for program in each.programs}))
