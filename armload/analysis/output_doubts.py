"""Whether a run's program ended well, and wrote what it was to write."""

from __future__ import annotations

from typing import ClassVar, Literal

from armload.analysis.finding import RunFinding
from armload.analysis.sanity import Departure, TextFault, doubts_about_text
from armload.analysis.summary import generating, prompting
from armload.deploy.exit_reason import Exit
from armload.engines.job import Job
from armload.engines.output import Output


class Failed(RunFinding):
    """The program failed: its exit status, none when it was never known."""

    name: ClassVar[str] = "failed"
    kind: Literal["failed"] = "failed"
    status: int | None
    meaning: str

    def fact(self) -> str:
        return self.meaning


class NoTrace(RunFinding):
    """The program never began to decode."""

    name: ClassVar[str] = "no trace"
    kind: Literal["no trace"] = "no trace"

    def fact(self) -> str:
        return "No trace: the program never began to decode."


class OutputCount(RunFinding):
    """Another number of output tokens than requested."""

    name: ClassVar[str] = "token count"
    kind: Literal["output count"] = "output count"
    requested_tokens: int
    traced_tokens: int

    def fact(self) -> str:
        return (
            f"{self.requested_tokens} tokens were requested, but the trace has "
            f"{self.traced_tokens}."
        )


class PromptCount(RunFinding):
    """Another number of prompt tokens than requested."""

    name: ClassVar[str] = "token count"
    kind: Literal["prompt count"] = "prompt count"
    requested_tokens: int
    processed_tokens: int

    def fact(self) -> str:
        return (
            f"A prompt of {self.requested_tokens} tokens was requested, but "
            f"{self.processed_tokens} were processed."
        )


class ContextDepth(RunFinding):
    """The context was not filled to the depth requested.

    Attributes:
        restored_tokens: that the program found in the saved context.
    """

    name: ClassVar[str] = "context depth"
    kind: Literal["context depth"] = "context depth"
    requested_tokens: int
    restored_tokens: int

    def fact(self) -> str:
        return (
            f"A context of {self.requested_tokens} tokens was to be restored, but the program "
            f"restored {self.restored_tokens}."
        )

    def advice(self) -> str:
        return "Run it again: the context is filled again if the board no longer has it."


class DegenerateText(RunFinding):
    """The text is no language.

    Attributes:
        has_prompt: armload's own engine ran, whose prompt can be changed.
        ignores_end: the model had to go on where it would have ended its answer.
    """

    name: ClassVar[str] = "degenerate text"
    kind: Literal["degenerate text"] = "degenerate text"
    fault: TextFault
    has_prompt: bool = False
    ignores_end: bool = False

    def fact(self) -> str:
        return self.fault.sentence

    def advice(self) -> str:
        if self.fault.kind not in ("repeated character", "loop"):
            return (
                "Run the model with another program: if its text is the same there, the file is "
                "damaged or its quantisation too coarse."
            )
        if not self.has_prompt:
            return "Give the program a prompt in the format that the model was trained on."
        ends = ", or let the model end its answer (--stop-at-end)" if self.ignores_end else ""
        return f"Use a --prompt in the format that the model was trained on{ends}."


class OutputMissing(RunFinding):
    """The engine lacks something in its output, in the engine's words."""

    name: ClassVar[str] = "output missing"
    kind: Literal["output missing"] = "output missing"
    missing: str

    def fact(self) -> str:
        return self.missing


class TextDiffers(RunFinding):
    """The text departs from the reference's."""

    name: ClassVar[str] = "text differs"
    kind: Literal["text differs"] = "text differs"
    departure: Departure

    def fact(self) -> str:
        return self.departure.sentence


def doubts_about_end(ended: Exit, output: Output) -> list[RunFinding]:
    """Return that the program failed or did nothing, if it did."""
    if ended.status != 0:
        return [Failed(status=ended.status, meaning=ended.meaning)]
    return [NoTrace()] if output.header is None and output.result is None else []


def doubts_about_output(job: Job, output: Output) -> list[RunFinding]:
    """Return what is wrong with the output of a program that ended well."""
    plan = job.plan
    found: list[RunFinding] = []
    if plan is not None and plan.embed is not None:
        asked = (plan.prompt_tokens or 0) * (plan.texts or 0)
        read = sum(step.prompt_tokens for step in prompting(output.steps))
        if output.header is not None and read != asked:
            found.append(PromptCount(requested_tokens=asked, processed_tokens=read))
    elif plan is not None and output.header is not None:
        generated = sum(step.output_tokens for step in generating(output.steps))
        # The last token is sampled, and decoded by llama-mtmd-cli alone; the last accepted drafts
        # are more than asked.
        decoded = plan.n_predict - (0 if plan.perceives else 1)
        most = generated + output.header.last_accepted_tokens
        if not plan.stop_at_end and not generated <= decoded <= most:
            found.append(OutputCount(requested_tokens=plan.n_predict, traced_tokens=most + 1))
        restored = output.restored_tokens or 0
        if restored != plan.depth_tokens:
            found.append(ContextDepth(requested_tokens=plan.depth_tokens, restored_tokens=restored))
        read = sum(step.prompt_tokens for step in prompting(output.steps))
        # A chat template and an image come on top.
        wanted = None if plan.perceives else plan.prompt_tokens
        if wanted is not None and read != wanted:
            found.append(PromptCount(requested_tokens=wanted, processed_tokens=read))
    if output.text is not None:
        of_words = plan is not None and plan.prompt_tokens is not None
        found += [
            DegenerateText(
                fault=fault,
                has_prompt=plan is not None,
                ignores_end=plan is not None and not plan.stop_at_end,
            )
            for fault in doubts_about_text(output.text, of_words=of_words)
        ]
    if output.missing:
        found.append(OutputMissing(missing=output.missing))
    return found
