"""How far quantised models stray from the model that they were made of."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from pydantic import ValidationError

from armload.boards.board import load_board
from armload.boards.connect import connect
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.clean import delete_folders
from armload.deploy.layout import Layout
from armload.evaluation.logits.agreement import agreement
from armload.evaluation.logits.computing import compute_logits
from armload.evaluation.logits.rows import logits_of_run
from armload.evaluation.scorer_run import folders_of
from armload.evaluation.scorer_settings import ScorerSettings
from armload.evaluation.word_problems import problems
from armload.models.gguf import read_model
from armload.models.model import Model
from armload.runs.request import Request

FILE = "divergence.json"
"""Lies beside a model once it is known."""

LARGEST_BASE_BYTES = 1 << 30
"""Of a base that is compared without being asked to: a larger one takes minutes."""

_COUNT, _SEED = 4, 1


class Divergence(Value):
    """How far a quantised model strays from its base.

    Attributes:
        kl_mean, kl_p99: Kullback-Leibler divergence from the base's distribution, in nats, over
            all positions of a fixed English text.
        top1_share: of the positions whose most likely token is the base's.
        positions: that were compared.
    """

    kl_mean: float
    kl_p99: float
    top1_share: float
    positions: int


def divergences(
    request: Request, base: Model, models: Sequence[Path], progress: Progress
) -> tuple[Divergence, ...]:
    """Return how far each model strays from the base; what is known already is not computed.

    Args:
        request: where; the files of the models are kept beside them.
        models: made of the base.

    Raises:
        ArmloadError: a model does not run there, or has another vocabulary.
    """
    known = {path: _known(path) for path in models}
    missing = [path for path, one in known.items() if one is None]
    if missing:
        label = f"Comparing with {base.name}"
        with progress.step(label, total=1 + len(missing), unit="models") as step:
            folders = [_run(request, base, progress)]
            try:
                for done, path in enumerate(missing, start=1):
                    step.update(done)
                    folders.append(_run(request, read_model(path, progress), progress))
                    agreed = agreement(logits_of_run(folders[-1]), logits_of_run(folders[0]))
                    found = Divergence(
                        kl_mean=agreed.kl_mean,
                        kl_p99=agreed.kl_p99,
                        top1_share=agreed.top1_share,
                        positions=sum(each.positions for each in agreed.prompts),
                    )
                    write_whole(path.with_name(FILE), found.model_dump_json().encode())
                    known[path] = found
            finally:  # the logits are large, and nobody asked for them
                board = load_board(request.board)
                layout = Layout(workdir=board.workdir)
                every = [each for folder in folders for each in folders_of(folder)]
                with closing(connect(board, progress)) as host:
                    delete_folders(host, [layout.run(folder.name) for folder in every])
                for folder in every:
                    with suppress(OSError):
                        shutil.rmtree(folder)
    return tuple(one for one in known.values() if one is not None)


def _known(model: Path) -> Divergence | None:
    try:
        return Divergence.model_validate_json(model.with_name(FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _run(request: Request, model: Model, progress: Progress) -> Path:
    text = [f"{each.question} {each.solution}" for each in problems("test", _COUNT, _SEED)]
    return compute_logits(request, model, text, ScorerSettings(), progress)
