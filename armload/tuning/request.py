"""A search as a person asks for it, checked as far as that needs no board."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from armload.analysis.load.records import Objectives
from armload.bench.options import Options
from armload.core.errors import UsageError
from armload.core.files import require_file, unreadable
from armload.core.values import Value
from armload.engines.completion import PROGRAM
from armload.engines.plan import REQUEST_TIMEOUT_S
from armload.engines.server import SERVER
from armload.engines.service_plan import ServingPlan
from armload.evaluation.data import load_questions
from armload.evaluation.task import load_task
from armload.models.hub_reference import PREFIX
from armload.serving.dialects.registry import dialect_named
from armload.serving.request_file import DEFAULT_LIMIT
from armload.serving.workload import check_data, read_lengths
from armload.tuning.checks import require_reachable
from armload.tuning.choices import listed
from armload.tuning.space import Choice
from armload.tuning.wanted import Constraints, LeastAccuracy, Objective

DECODE_TOKENS = 64
ENERGY_TOKENS = 192
"""Long enough for the samples that an energy needs."""

PROMPT_TOKENS: dict[Objective, int] = {"prefill": 512, "ttft": 128}
"""Of the usual prompt, as far as the model's context holds it."""

DIALECT = "llama-server"
"""In which a service is asked."""

_ROOM_TOKENS = 8
"""llama-completion refuses a prompt that leaves fewer than four tokens of the context."""


class TunedLoad(Value):
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
    timeout_s: float = REQUEST_TIMEOUT_S

    @property
    def context_tokens(self) -> int:
        """What the longest request needs with its answer, as far as that is known before."""
        answer = read_lengths("n-predict", self.n_predict or str(DEFAULT_LIMIT)).usual_most
        if self.data is not None:
            return answer if self.n_predict else 1
        return answer + read_lengths("prompt-tokens", self.prompt_tokens).usual_most

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


class TrialLoad(Value):
    """A load on a server that is started for it.

    Attributes:
        plan: of the server.
        requests: a rate for the total time; objectives for the rate.
        count: of requests.
        seed: of arrivals and requests.
    """

    plan: ServingPlan
    requests: TunedLoad
    count: int
    seed: int


class TuningRequest(Value):
    """What is searched, and how long.

    Attributes:
        model: as for ``bench``.
        narrowing: a file of options with lists, that replace what would be searched.
        work: of a run, as options with one value each; nothing of a service.
        requests: of a service; none for a run.
        kld_prompts: texts whose distributions are compared; empty for what the defaults write.
        seed: of the search, and of the requests.
        max_trials: after which no trial begins; none for no such limit.
        max_time_s: that the search may take, as far as it can; none for no such limit.
    """

    model: str
    objective: Objective
    narrowing: Path | None = None
    constraints: Constraints = Constraints()
    work: Options = Options()
    requests: TunedLoad | None = None
    kld_prompts: tuple[str, ...] = ()
    seed: int = 1
    max_trials: int | None = None
    max_time_s: float | None = None

    @property
    def program(self) -> str:
        return PROGRAM if self.requests is None else SERVER

    def check(self) -> None:
        """Refuse what cannot be met by any setting, or lacks its data.

        Raises:
            UsageError: so few questions cannot show that accuracy, or there are none; an option in
                the narrowing cannot be searched for the objective; there is no such file of
                requests or of questions; or a divergence has no texts.
            DataError: a file is malformed.
            DiskError: it cannot be read.
        """
        if self.narrowing is not None:
            listed(self.narrowing, self.objective)
        if self.requests is not None:
            self._check_served(self.requests)
        if self.constraints.min_accuracy is not None:
            check_questions(self.constraints.min_accuracy)

    def _check_served(self, requests: TunedLoad) -> None:
        if self.constraints.max_kld is not None and not self.kld_prompts:
            raise UsageError(
                f"--max-kld with --for {self.objective} needs texts to compare distributions on.",
                "Give them, one on each line: --kld-prompts FILE.",
            )
        if requests.data is not None:
            n_predict = requests.n_predict
            answer = read_lengths("n-predict", n_predict) if n_predict else None
            check_data(requests.data, dialect_named(DIALECT), answer=answer, most=requests.requests)

    def texts_sha256(self) -> str:
        """Return a checksum of the texts that it names, whatever their files are called.

        Empty without any.
        """
        texts = [text.encode() for text in self.kld_prompts]
        accuracy = self.constraints.min_accuracy
        if self.requests is not None and self.requests.data is not None:
            texts.append(_content(self.requests.data))
        if accuracy is not None and accuracy.data and not accuracy.data.startswith(PREFIX):
            texts.append(_content(Path(accuracy.data).expanduser()))
        sums = "".join(hashlib.sha256(text).hexdigest() for text in texts)
        return hashlib.sha256(sums.encode()).hexdigest() if texts else ""

    def for_model(self, context_length: int) -> TuningRequest:
        """Return the same with the usual prompt, where none was asked for.

        Args:
            context_length: that the model was trained for.
        """
        usual = PROMPT_TOKENS.get(self.objective)
        if usual is None or {"prompt", "prompt_tokens"} & self.work.model_fields_set:
            return self
        tokens = Options.model_validate(
            {"prompt_tokens": min(usual, context_length - _ROOM_TOKENS)}
        )
        return self.model_copy(update={"work": tokens.over(self.work)})

    def described(self) -> dict[str, Choice]:
        """Return what all trials have in common, by the names of options."""
        if self.requests is not None:
            return self.requests.described()
        listed = {name: getattr(self.work, name) for name in sorted(self.work.model_fields_set)}
        return {name: each for name, values in listed.items() for each in values}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def check_questions(wanted: LeastAccuracy) -> None:
    """Refuse a task that a search cannot ask, or whose questions are not there."""
    require_reachable(wanted)
    task = load_task(wanted.task)
    if task.image is not None:
        raise UsageError(
            f"--min-accuracy: task {task.name} shows images, which a search does not.",
            "Choose a task of texts, or evaluate single configurations with armload eval.",
        )
    chosen = wanted.data or task.data
    if not chosen:
        source = f" Get it from: {task.data_source}" if task.data_source else ""
        raise UsageError(
            f"--min-accuracy: task {task.name} comes without data.",
            f"Give its data file with --task-data FILE.{source}",
        )
    if chosen.startswith(PREFIX):
        return  # it is checked when it is fetched
    if wanted.data:
        remedy = f"Give a file of questions or {PREFIX}ORG/REPO/FILE with --task-data."
        require_file(Path(wanted.data).expanduser(), "data file", remedy)
    load_questions(task, wanted.data, wanted.questions)


def work_of(
    objective: Objective, *, prompt: str, prompt_tokens: int | None, n_predict: int | None
) -> Options:
    """Return what each run does, but for the usual prompt where the model decides its length.

    Args:
        prompt: empty for the usual one.
        prompt_tokens, n_predict: none for the usual ones.
    """
    if prompt and prompt_tokens is not None:
        raise UsageError("--prompt cannot be combined with --prompt-tokens.", "Remove one.")
    if n_predict == 1 and objective not in PROMPT_TOKENS:
        raise UsageError(
            f"--for {objective} cannot be measured with -n 1: the first token ends the prompt, "
            "and no other is decoded.",
            "Use a larger -n, or omit it.",
        )
    usual = ENERGY_TOKENS if objective == "energy" else DECODE_TOKENS
    work: dict[str, Any] = {"n_predict": n_predict or usual}
    if objective in PROMPT_TOKENS:
        work["n_predict"] = 1
    if prompt_tokens is not None:
        work["prompt_tokens"] = prompt_tokens
    elif prompt:
        work["prompt"] = prompt
    return Options.model_validate(work)
