"""The run that another one's text is compared with."""

from __future__ import annotations

from pathlib import Path

from armload.analysis.run import Run
from armload.analysis.sanity import Departure, departure
from armload.core.files import write_whole
from armload.core.values import Value
from armload.engines.job import Job

FILE_NAME = "reference.json"


class Reference(Value):
    """What is kept of a reference in the folder of the run that is compared with it.

    Attributes:
        run: the reference's id.
        text: what it wrote.
        model_sha256: of its model's file, or of that with its adapters.
        prompt, temperature, seed: of its plan; none for a program without one.
    """

    run: str
    text: str
    model_sha256: str
    prompt: str | None = None
    temperature: float | None = None
    seed: int | None = None


def keep_reference(run: Run, folder: Path) -> None:
    """Write what a run's text is to be compared with into that run's folder."""
    reference = Reference(
        run=run.id, text=run.text, model_sha256=run.model.identity, **_sampling(run)
    )
    write_whole(folder / FILE_NAME, reference.model_dump_json(indent=1).encode())


def read_departure(job: Job, text: str, folder: Path) -> Departure | None:
    """Compare a run's text with the reference in its folder; none where there is no reference.

    The text is expected to be the same when model, prompt and sampling are.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    reference = Reference.model_validate_json(path.read_bytes())
    same = job.model.identity == reference.model_sha256 and all(
        value == getattr(reference, name) for name, value in _sampling(job).items()
    )
    return departure(text, reference.text, name=reference.run, same_model=same)


def _sampling(job: Job) -> dict[str, object]:
    names = ("prompt", "temperature", "seed")
    return {name: getattr(job.plan, name, None) for name in names}
