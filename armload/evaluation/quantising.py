"""Quantise a model, and find out what each type costs and gains."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from armload.analysis.fitted import FittedModel
from armload.bench.fitting import fit
from armload.conversion.calibrating import read_calibration
from armload.conversion.quantising import Quantised, on_this_machine, quantise
from armload.conversion.room import need_disk
from armload.core.errors import ArmloadError, UsageError
from armload.core.files import sha256_of, written_whole
from armload.core.progress import Progress
from armload.core.values import Value
from armload.engines.plan import Plan
from armload.engines.quantise import Fallback
from armload.evaluation.logits.divergence import LARGEST_BASE_BYTES, Divergence, divergences
from armload.models.file_types import UNQUANTISED, check_importance
from armload.models.find import model_called
from armload.models.gguf import read_outline
from armload.models.model import Model
from armload.runs.request import Request

_PROMPT_TOKENS = 128


class QuantisedModel(Value):
    """A quantised model.

    Attributes:
        type: of the file, in llama.cpp's words.
        path, sha256, size_bytes: of the file.
        bytes_per_token: weights that one decode step reads.
        bits_per_weight: of the whole file.
        calibration: name of the text that the importance of weights was computed from; else empty.
        made_on: the board that quantised it.
        was_there: it had been made before.
        fallbacks: tensors of another type than was meant for them.
        divergence: from the base; none where it was not computed.
        expected: of a run on the board that was asked for; none without one.
    """

    type: str
    path: str
    sha256: str
    size_bytes: int
    bytes_per_token: int
    bits_per_weight: float
    calibration: str = ""
    made_on: str
    was_there: bool
    fallbacks: tuple[Fallback, ...] = ()
    divergence: Divergence | None = None
    expected: FittedModel | None = None


class QuantisedModels(Value):
    """What a model became.

    Attributes:
        base, base_sha256, base_size_bytes, base_bytes_per_token: of the model.
        board: for which times are predicted; empty for none.
        models: by type, in the order in which they were given.
    """

    base: str
    base_sha256: str
    base_size_bytes: int
    base_bytes_per_token: int
    board: str = ""
    models: tuple[QuantisedModel, ...]


def quantise_and_compare(
    request: Request,
    base_name: str,
    file_types: Sequence[str],
    progress: Progress,
    *,
    calibration: Path | None,
    allow_requantize: bool,
    output: Path | None,
    board: str,
    kld: bool,
) -> QuantisedModels:
    """Quantise a model, copy the results where they are wanted, and find out what they are like.

    Args:
        output: a folder for copies; none leaves them in the cache alone.
        board: to predict times on; empty for none.
        kld: compute the divergence from the base whatever it takes.

    Raises:
        ArmloadError: as for ``quantise``; or a result cannot be copied, or not be compared.
    """
    # What can be told at once is told before a large model is downloaded or read.
    check_importance(file_types, has_importance=calibration is not None)
    base = model_called(base_name, progress)
    text = read_calibration(calibration, base) if calibration else None
    found = quantise(
        request,
        base,
        file_types,
        progress,
        calibration=text,
        allow_requantize=allow_requantize,
    )
    paths = [each.path for each in found]
    known = _divergences(request, base, paths, progress, is_asked=kld)
    expected: dict[Path, FittedModel] = {}
    if board:
        there = request.model_copy(update={"board": board})
        plan = Plan(prompt_tokens=min(_PROMPT_TOKENS, base.context_length // 2))
        fitted = fit(there, [str(path) for path in paths], plan, progress)
        expected = dict(zip(paths, fitted.models, strict=True))
    described = QuantisedModels(
        base=base.name,
        base_sha256=base.sha256,
        base_size_bytes=base.size_bytes,
        base_bytes_per_token=base.bytes_per_token,
        board=board,
        models=tuple(
            _described(each, output, known.get(each.path), expected.get(each.path))
            for each in found
        ),
    )
    if output is not None:
        for each in found:
            _copy(each, output, progress)
    return described


def _described(
    each: Quantised,
    output: Path | None,
    divergence: Divergence | None,
    expected: FittedModel | None,
) -> QuantisedModel:
    model, _ = read_outline(each.path)
    path = output / each.path.name if output else each.path
    return QuantisedModel(
        type=each.made.type,
        path=str(path),
        sha256=each.made.sha256,
        size_bytes=model.size_bytes,
        bytes_per_token=model.bytes_per_token,
        bits_per_weight=8 * model.size_bytes / model.parameters,
        calibration=each.made.calibration,
        made_on=each.made.board,
        was_there=each.was_there,
        fallbacks=each.made.fallbacks,
        divergence=divergence,
        expected=expected,
    )


def _divergences(
    request: Request, base: Model, paths: Sequence[Path], progress: Progress, *, is_asked: bool
) -> dict[Path, Divergence]:
    is_reference = base.quantisation in UNQUANTISED and base.size_bytes <= LARGEST_BASE_BYTES
    if not is_asked and not is_reference:
        return {}
    here = on_this_machine(request)
    try:
        return dict(zip(paths, divergences(here, base, paths, progress), strict=True))
    except ArmloadError as error:
        if is_asked:
            raise
        progress.say(f"The KL divergence from {base.name} could not be computed: {error.message}")
        return {}


def _copy(each: Quantised, output: Path, progress: Progress) -> None:
    target = output / each.path.name
    if target.exists():
        if target.is_file() and sha256_of(target) == each.made.sha256:
            return
        raise UsageError(
            f"{target} already exists, and its content differs.",
            f"Delete it, or give another --output. The result is kept as {each.path}",
        )
    need_disk([output], target.name, each.made.size_bytes)
    with progress.step(f"Copying {target.name}"), written_whole(target) as beside:
        shutil.copyfile(each.path, beside)
