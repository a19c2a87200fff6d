"""A plan with its models: one combination of what is listed, as it is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from armload.build.binary import Binary
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, Completion
from armload.engines.llama_cpp import whole_plan
from armload.engines.plan import MTP, Plan
from armload.engines.speculation import SPECULATING_PROGRAM, Speculation, check_predicts
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
    """

    model: Model
    draft: Model | None
    plan: Plan

    @property
    def program(self) -> str:
        return PROGRAM if self.plan.speculate is None else SPECULATING_PROGRAM

    def engine(self, binaries: Mapping[str, Binary]) -> Completion:
        """Return what runs it.

        Raises:
            UsageError: a program does not know a model, or lacks an option.
        """
        binary = binaries[self.program]
        if self.plan.speculate is None:
            return Completion(self.plan, binary, self.model)
        return Speculation(self.plan, binary, self.model, self.draft)


def combination(model: Model, plan: Plan, progress: Progress) -> Combination:
    """Return a plan with its models; a draft model is made or downloaded when it is missing.

    Raises:
        UsageError: the plan does not suit the model, the draft model has another vocabulary, or
            the model has no layers that predict further tokens.
        ArmloadError: as for ``model_called``.
    """
    draft = None
    if plan.speculate == MTP:
        check_predicts(model)
    if plan.draft_model is not None:
        draft = model_called(plan.draft_model, progress)
        check_draft(draft, model)
    return Combination(model=model, draft=draft, plan=whole_plan(plan, model))


def programs_of(combinations: Iterable[Combination]) -> tuple[str, ...]:
    """Return the programs that they take, each once, sorted."""
    return tuple(sorted({each.program for each in combinations}))
