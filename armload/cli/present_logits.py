"""Compute logits on a board, and lay their agreement with a reference before a person."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from armload.cli import terminal
from armload.cli.document import show_document
from armload.core.errors import DifferentError, UsageError
from armload.core.values import counted
from armload.evaluation.logits.agreement import Agreement, agreement
from armload.evaluation.logits.binding import BINDING, logits_by_binding
from armload.evaluation.logits.computing import compute_logits
from armload.evaluation.logits.prompts import read_prompts
from armload.evaluation.logits.rows import TOO_LONG, logits_called, logits_of_run
from armload.evaluation.preparing import Asked
from armload.evaluation.way import Way
from armload.models.find import model_called
from armload.report.evaluation.logits import LogitsDocument, agreement_view, sentence
from armload.report.layout import whole
from armload.runs.request import Request


def logits_and_present(
    request: Request,
    asked: Asked,
    way: Way,
    *,
    reference: str,
    must_be_close: bool,
    as_json: bool,
) -> None:
    """Compute the logits of one model's prompts, and compare them where there is a reference.

    Raises:
        DifferentError: they must be close, and are not.
        ArmloadError: they could not be computed, or not be compared.
    """
    if not asked.data:
        raise UsageError(
            "--task logits needs prompts.", "Give a file with a prompt on each line: --data FILE."
        )
    if must_be_close and not reference:
        raise UsageError("--fail-unless-close needs a reference.", "Add --reference RUN.")
    if len(asked.models) != 1 or len(asked.boards) != 1:
        raise UsageError("--task logits takes one model and one board.", "Name one of each.")
    prompts = read_prompts(Path(asked.data), asked.limit)
    progress = terminal.progress()
    model = model_called(asked.models[0], progress)
    with ExitStack() as stack:
        known = None
        if reference == BINDING:
            known = stack.enter_context(logits_by_binding(model, prompts, way, progress))
        elif reference:
            known = logits_called(reference)
        folder = compute_logits(request, model, prompts, way, progress)
        logits = logits_of_run(folder)
        found = agreement(logits, known) if known else None
    document = LogitsDocument(
        run=folder.name, prompts=len(logits.rows), failed=logits.failed, agreement=found
    )
    if as_json:
        show_document(document)
    else:
        if found:
            terminal.show(agreement_view(found))
        for number, error in logits.failed.items():
            terminal.show(f"Prompt {number} has no logits: {error}. {TOO_LONG}")
        terminal.show(whole(f"run  {folder}"))
    if must_be_close and found:
        _require_close(found, len(prompts), folder.name)


def _require_close(found: Agreement, prompts: int, run_id: str) -> None:
    # A prompt that failed on both sides is missing on neither.
    if found.close < prompts or found.missing:
        raise DifferentError(
            f"--fail-unless-close: {counted(prompts, 'prompt')} must be close. {sentence(found)}",
            f"Look at the run: armload show {run_id}",
        )
