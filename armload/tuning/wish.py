"""A search as a person asks for it, checked as far as that needs no board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armload.analysis.accuracy import wilson
from armload.analysis.load.objectives import Objectives
from armload.bench.options import Options
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.engines.defaults import SEED_PROMPT
from armload.tuning.quality import require_reachable
from armload.tuning.space import Choice
from armload.tuning.wanted import Constraints, Objective

DECODE_TOKENS = 64
PREFILL_TOKENS = 512
TTFT_TOKENS = 128


class Requests(Value):
    """The load that a service is tuned for.

    Attributes:
        rate: requests/s, for the total time.
        duration_s, requests: how long each load is; one of them is set.
        data: a file of requests; none for synthetic ones.
        prompt_tokens, n_predict: lengths of synthetic ones, as ``load`` takes them.
        objectives: within which a request counts, for the rate.
        timeout_s: the most that a request may take.
    """

    rate: float | None = None
    duration_s: float | None = None
    requests: int | None = None
    data: Path | None = None
    prompt_tokens: str = "128"
    n_predict: str = ""
    objectives: Objectives | None = None
    timeout_s: float = 600.0

    def described(self) -> dict[str, Choice]:
        """Return what is set, by the names of the options of ``load``."""
        named: dict[str, Choice] = {
            "rate": self.rate,
            "duration": self.duration_s,
            "requests": self.requests,
            "data": str(self.data) if self.data else None,
            "prompt_tokens": None if self.data else self.prompt_tokens,
            "n_predict": self.n_predict or None,
            "slo": str(self.objectives) if self.objectives else None,
        }
        return {name: each for name, each in named.items() if each is not None}


class Wish(Value):
    """What is searched, and how long.

    Attributes:
        model: as for ``bench``.
        narrowing: a file of options with lists, that replace what would be searched.
        work: of a run, as options with one value each; nothing of a service.
        requests: of a service; none for a run.
        kld_prompts: texts whose distributions are compared; empty for what the defaults write.
        seed: of the search, and of the requests.
        max_trials, max_time_s: after which no trial begins; none for no such limit.
    """

    model: str
    objective: Objective
    narrowing: Path | None = None
    constraints: Constraints = Constraints()
    work: Options = Options()
    requests: Requests | None = None
    kld_prompts: tuple[str, ...] = ()
    seed: int = 1
    max_trials: int | None = None
    max_time_s: float | None = None

    def check(self) -> None:
        """Refuse what cannot be met by any setting.

        Raises:
            UsageError: so few questions cannot show that accuracy.
        """
        if self.constraints.min_accuracy is not None:
            require_reachable(
                self.constraints.min_accuracy, lambda right, of: wilson(right, of).low
            )

    def described(self) -> dict[str, Choice]:
        """Return what all trials have in common, by the names of options."""
        if self.requests is not None:
            return self.requests.described()
        named = {name: getattr(self.work, name) for name in self.work.model_fields_set}
        return {name: each[0] if isinstance(each, tuple) else each for name, each in named.items()}


def work_of(
    objective: Objective, *, prompt: str, prompt_tokens: int | None, n_predict: int | None
) -> Options:
    """Return what each run does.

    Args:
        prompt: empty for the usual one.
        prompt_tokens, n_predict: none for the usual ones.

    Raises:
        UsageError: a prompt is given twice, or tokens to generate for an objective that times none.
    """
    if prompt and prompt_tokens is not None:
        raise UsageError("--prompt and --prompt-tokens exclude each other.", "Leave one out.")
    if objective != "decode" and n_predict is not None:
        raise UsageError(
            f"--for {objective} times the prompt alone, and excludes --n-predict.", "Leave it out."
        )
    work: dict[str, Any] = {"n_predict": n_predict or DECODE_TOKENS}
    if objective != "decode":
        work["n_predict"] = 1
        prompt_tokens = prompt_tokens or (PREFILL_TOKENS if objective == "prefill" else TTFT_TOKENS)
    if prompt:
        work["prompt"] = prompt
    elif prompt_tokens is not None:
        work["prompt_tokens"] = prompt_tokens
    else:
        work["prompt"] = SEED_PROMPT
    return Options.model_validate(work)
