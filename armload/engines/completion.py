"""llama.cpp's ``llama-completion``: a text is continued, and every token timed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from armload.build.target import Target
from armload.core.files import content
from armload.core.ids import fingerprint_of
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import (
    CONTEXT_FILE,
    STDERR_FILE,
    STDOUT_FILE,
    TRACE_FILE,
    Layout,
    from_program_folder,
)
from armload.engines.engine import (
    Forecastable,
    MemoryNeed,
    RunContext,
    Settings,
    Simulation,
    Spreadable,
)
from armload.engines.job import Job, RunSpec
from armload.engines.llama_cpp import (
    NO_REPACK,
    REPACK,
    REPLAYED,
    command,
    context_tokens,
    device_environment,
    engine_times,
    generated_text,
    least_context_tokens,
    most_prompt_tokens,
    repacked,
    restored_tokens,
)
from armload.engines.model_program import (
    ModelEngine,
    binary_record,
    memory_of,
    model_record,
    peak_memory,
)
from armload.engines.output import Output
from armload.engines.placement import read_placement
from armload.engines.plan import MICRO_BATCH_TOKENS, Plan
from armload.engines.prediction import Sequences
from armload.engines.repacking import repacked_bytes, repacks
from armload.engines.trace import Step, read_trace
from armload.models.model import Model
from armload.models.tokens import prompt_of

PROGRAM = "llama-completion"
"""The program; releases from before it had a name of its own call it ``llama-cli``."""

BATCH_TOKENS = 2048
"""That the program takes of a prompt at a time, if it is not told."""

_KEY_DIGITS = 12


class Completion(ModelEngine[Plan]):
    """One plan, run by one program with one model.

    Attributes:
        plan, model: as given.

    Args:
        plan: with its prompt, as ``whole_plan`` gives it.
        binary: built for the board's target.
        model: whose architecture it knows.

    Raises:
        UsageError: it does not, or the program lacks an option that the plan asks for.
    """

    name = "llama-completion"
    less_memory = (
        "Use a smaller model or context, or disable repacking (--engine-args=--no-repack)."
    )
    unit = "tokens"
    keeps_forecast = True

    @property
    def subject(self) -> RunSpec:
        """The plan, and what is known of program and model."""
        return RunSpec(
            plan=self.plan, binary=binary_record(self.binary), model=model_record(self.model)
        )

    @property
    def time_limit_s(self) -> float:
        return self.plan.time_limit_s

    @property
    def total(self) -> int | None:
        """The tokens to generate."""
        return self.plan.n_predict

    @property
    def settings(self) -> Settings:
        return settings_of(self.plan)

    @property
    def continuation(self) -> Plan:
        """What its time and memory are predicted for."""
        return self.plan

    @property
    def forecastable(self) -> Forecastable:
        """The plan, by llama.cpp's operations."""
        return Forecastable(model=self.model, plan=self.continuation, is_kept=self.keeps_forecast)

    @property
    def spreadable(self) -> Spreadable | None:
        """The model, divided as planned."""
        whole = super().spreadable
        split = {"split": self.plan.split, "plan": self.plan}
        return whole and whole.model_copy(update=split)

    @property
    def estimated_memory(self) -> MemoryNeed:
        """The model's file, and the KV cache with the engine's buffers."""
        return memory_need(self.plan, self.model)

    @property
    def batch_tokens(self) -> int:
        """Of the prompt, or of a micro-batch of it."""
        return _batch_tokens(self.plan)

    def environment(self, context: RunContext) -> Mapping[str, str]:
        """Say which device computes, beside how the weights are held."""
        return {**super().environment(context), **device_environment(self.plan)}

    def simulation(self, context: RunContext) -> Simulation | None:
        """Return how it is asked; not of a GPU, whose buffers llama.cpp does not count."""
        return None if self.plan.on_gpu else super().simulation(context)

    def _are_streamed(self, context: RunContext) -> bool:
        return not self.plan.on_gpu and super()._are_streamed(context)

    def phase(self, now: ProgressUpdate) -> str:
        """Return what comes before the first token, of which the trace says nothing yet."""
        return "generating" if now.steps else "loading the model and processing the prompt"

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-completion there."""
        return (*self._words(context), *self._spread_words(context))

    def _words(
        self,
        context: RunContext,
        *,
        drafting: tuple[str, ...] = (),
        media: tuple[str, ...] = (),
        more_bytes: int = 0,
    ) -> tuple[str, ...]:
        program, model = (each.items(context.layout)[0].remote for each in self.payload[:2])
        now = context.found.conditions
        depth = self.plan.depth_tokens
        words = command(
            self.plan,
            self.model,
            self.binary.path,
            on_board=program,
            model_on_board=model,
            memory_bytes=now.memory_and_swap_bytes,
            memory_available_bytes=now.memory_available_bytes - more_bytes,
            streamed=self._are_streamed(context),
            saved_context=self.saved_context(context.layout) if depth else None,
            drafting=drafting,
            media=media,
            adapters=self._adapter_words(context),
            cores=context.cores,
            most_threads=context.most_threads,
        )
        return (*context.launcher, *words)

    def saved_context(self, layout: Layout) -> PurePosixPath:
        """Return where a context that is filled to the plan's depth lies on a board."""
        plan = self.plan
        decides = (plan.depth_tokens, plan.kv_type, plan.flash_attention, *plan.extra)
        device = (plan.device,) if plan.device else ()
        key = fingerprint_of((self.binary.sha256, self.model.identity, *map(str, decides), *device))
        return layout.saved_context(self.model.sha256, key[:_KEY_DIGITS])

    @property
    def filling(self) -> Completion:
        """The run that fills such a context, and leaves it in its run's folder.

        Its prompt is the text that the context is filled with.
        """
        plan, depth = self.plan, self.plan.depth_tokens
        batch = plan.batch_tokens or BATCH_TOKENS
        if depth % batch == 1 or batch == 1:
            # The program saves the context before the last token, and only if that is not alone.
            batch = BATCH_TOKENS if depth % BATCH_TOKENS != 1 else BATCH_TOKENS - 1
        update = {
            "prompt": prompt_of(self.model.path, depth),
            "prompt_tokens": depth,
            "depth_tokens": 0,
            "n_predict": 1,
            "context_tokens": context_tokens(plan, self.model),
            "batch_tokens": batch,
            "cold": False,
            "cool_to_celsius": None,
            "extra": (*plan.extra, "--prompt-cache", from_program_folder(CONTEXT_FILE)),
        }
        return Completion(plan.model_copy(update=update), self.binary, self.model)

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the trace, the text, and the sums that ``--perf`` prints."""
        header, steps = read_trace(folder / TRACE_FILE)
        stderr = content(folder / STDERR_FILE).decode("utf-8", "replace")
        restored = restored_tokens(stderr) if job.plan and job.plan.depth_tokens else None
        return Output(
            header=header,
            steps=_after_restoring(steps) if restored and REPLAYED in stderr else steps,
            text=generated_text(content(folder / STDOUT_FILE)),
            times=engine_times(stderr),
            restored_tokens=restored,
            memory=peak_memory(steps),
            placement=read_placement(stderr),
        )


def _after_restoring(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return steps of which the first computed a token of the restored context, not the prompt."""
    if not steps or steps[0].tokens != 1 or not steps[0].prompt_tokens:
        return steps
    return (steps[0].model_copy(update={"prompt_tokens": 0}), *steps[1:])


def settings_of(plan: Plan) -> Settings:
    """Return in which state a plan wants its board."""
    return Settings(
        cpus=plan.cpus,
        threads=plan.threads,
        cold=plan.cold,
        cool_to_celsius=plan.cool_to_celsius,
        governor=plan.governor,
        measure_rates=True,
        prefers_fast=plan.numa is None,
    )


def memory_need(plan: Plan, model: Model, *, more_bytes: int = 0) -> MemoryNeed:
    """Return what a plan takes of a board's memory, and as much more of the program."""
    return memory_of(
        model,
        context_tokens(plan, model),
        plan.kv_shares,
        batch_tokens=_batch_tokens(plan),
        micro_batch_tokens=plan.micro_batch_tokens,
        sequences=Sequences(least_tokens=least_context_tokens(plan)),
        flash_attention=plan.flash_attention,
        more_bytes=more_bytes,
    )


def memory_need_on(target: Target, available_bytes: int, plan: Plan, model: Model) -> MemoryNeed:
    """Return the same for a program that is built for a target, with the weights that it copies."""
    is_streamed = plan.weights == "streamed" or plan.resident_bytes is not None
    has_room = repacks(model, available_bytes, context_tokens(plan, model))
    usual = REPACK if has_room and not is_streamed else NO_REPACK
    copied = repacked_bytes(model, target.features) if repacked((usual, *plan.extra)) else 0
    return memory_need(plan, model, more_bytes=copied)


def _batch_tokens(plan: Plan) -> int:
    return min(most_prompt_tokens(plan), plan.micro_batch_tokens or MICRO_BATCH_TOKENS)
