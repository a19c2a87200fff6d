"""The runs that an evaluation's answers came from, as far as their times depend on them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from armload.core.errors import ArmloadError
from armload.core.values import Value
from armload.runs import store
from armload.runs.assemble import read_job

ABOUT_ANSWERS = ("exit", "output")
"""Findings on how a run ended: what was answered until then is as good as any answer."""


class Source(Value):
    """A run that answered questions.

    Attributes:
        run: its id.
        part: of the evaluation.
        board: its name.
        doubts: why its times are not reliable; none while it has no verdict.
    """

    run: str
    part: int
    board: str
    doubts: tuple[str, ...] | None = None


def source_of(folder: Path, part: int) -> Source:
    """Describe the run in a folder, whether it has ended or not."""
    doubts = None
    with contextlib.suppress(ArmloadError):
        findings = store.load(folder).verdict.findings or ()
        doubts = tuple(each.sentence for each in findings if each.name not in ABOUT_ANSWERS)
    return Source(run=folder.name, part=part, board=read_job(folder).board.name, doubts=doubts)
