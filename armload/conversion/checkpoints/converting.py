"""From a checkpoint to a model that a board can run."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.build.source import pinned_source
from armload.conversion.checkpoints.checking import TOLERANCES, ConversionCheck, check_gguf
from armload.conversion.checkpoints.checkpoint import (
    Checkpoint,
    read_checkpoint_outline,
    read_object,
)
from armload.conversion.checkpoints.encoders import check_modules, has_dense
from armload.conversion.checkpoints.environment import Environment, pinned_packages
from armload.conversion.checkpoints.forms import (
    MNN_BITS,
    Form,
    check_known_to_gguf,
    check_known_to_mnn,
    check_vocabulary,
    gguf_architectures,
    memory_bytes,
    result_bytes,
)
from armload.conversion.checkpoints.installing import environment
from armload.conversion.checkpoints.program import run_converter
from armload.conversion.checkpoints.projectors import (
    MediaFindings,
    compare_media,
    has_projector,
    projector_bytes,
    projector_path,
    projector_type,
)
from armload.conversion.checkpoints.proposal import Proposal
from armload.conversion.checkpoints.quantised import check_quantised
from armload.conversion.checkpoints.soundness import check_templates, check_weights
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import ArmloadError, DataError, LocalMemoryError, UsageError
from armload.core.files import require_room, written_whole
from armload.core.places import data_path
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes
from armload.models.gguf import read_outline
from armload.models.header import read_header
from armload.models.projector import projector_of_header

_MOST_OF_MEMORY = 0.95

_GGUF_SCRIPT = "convert_hf_to_gguf.py"
_GGUF_WRITTEN = re.compile(r"Writing: +(\d+)%")

_MNN_CONFIG = "config.json"
_MNN_INTERMEDIATE = ("llm.mnn.json", "export_args.json")
_MNN_NEEDED = ("llm_model", "llm_weight", "tokenizer_file")
_MNN_QUANTISED = re.compile(r"Quant weights: +(\d+)%")
_MNN_STAGE = re.compile(
    r"(load pretrained model|export \w+ model|convert \w+ model|export tokenizer)"
)


class Converted(Value):
    """A checkpoint that became a model.

    Attributes:
        path: the GGUF file, or the MNN model's folder.
        projector: by which the model sees or hears; none of a text model, and for MNN.
        to: the form.
        type: of its weights.
        size_bytes: of the file, or of all files in the folder.
        name: the checkpoint's.
        architecture: the checkpoint's.
        parameters: the number of weights in the file; for MNN, in the checkpoint.
        converter: what converted it, with its version.
        check: what was found to agree with the checkpoint.
    """

    path: Path
    projector: Path | None = None
    to: Form
    type: str
    size_bytes: int
    name: str
    architecture: str
    parameters: int
    converter: str
    check: ConversionCheck


def check_convertible(folder: Path, form: Form, progress: Progress, *, unchecked: bool) -> None:
    """Refuse a checkpoint whose small files tell that it cannot be converted.

    Args:
        unchecked: accept one that could not be compared with its file.
    """
    outline = read_checkpoint_outline(folder)
    check_templates(folder)
    source = pinned_source().provide(progress)
    check_quantised(folder, outline, form, source, unchecked=unchecked)
    check_modules(folder, outline)
    if form == "gguf":
        check_known_to_gguf(outline, gguf_architectures(source))
        check_vocabulary(folder, outline, pinned_packages().pieces_alone)
    else:
        check_known_to_mnn(outline, pinned_packages().mnn_types)


def convert(
    checkpoint: Checkpoint,
    path: Path,
    *,
    form: Form,
    type_name: str,
    unchecked: bool,
    agree: Callable[[Proposal], bool],
    progress: Progress,
) -> Converted:
    """Convert a checkpoint to a file or a folder, whole or not at all.

    Args:
        checkpoint: whose architecture the converter knows.
        path: where the model goes; nothing is there, or an empty folder.
        form: what it becomes.
        type_name: of its weights; one of the form's.
        unchecked: accept what no transformers at hand can read.
        agree: is asked before the converters are installed.
        progress: shows how far the conversion is.
    """
    sees = form == "gguf" and has_projector(checkpoint.folder, pinned_source().provide(progress))
    projector = projector_path(path) if sees else None
    if projector is not None and projector.exists():
        raise UsageError(f"{projector} already exists.", "Delete it, or give another --output.")
    needed = result_bytes(form, type_name, checkpoint)
    needed += projector_bytes(checkpoint, type_name) if sees else 0
    require_room(
        *(path.parent, needed, f"{path}: the model takes about {format_bytes(needed)}"),
        "Free disk space, give --output on another disk, or choose a smaller --type.",
    )
    _check_memory(checkpoint, form)
    check_weights(checkpoint, progress)
    packages = pinned_packages()
    with environment(packages, agree, progress) as held, staged(checkpoint) as stage:
        if form == "gguf":
            check, parameters = _to_gguf(
                *(checkpoint, stage, path, type_name, held, progress),
                projector=projector,
                unchecked=unchecked,
            )
        else:
            check = _to_mnn(checkpoint, stage, path, type_name, held, progress)
            parameters = checkpoint.parameters
    files = [path] if path.is_file() else path.iterdir()
    return Converted(
        path=path,
        projector=projector,
        to=form,
        type=type_name,
        size_bytes=sum(each.stat().st_size for each in files),
        name=checkpoint.name,
        architecture=checkpoint.architecture,
        parameters=parameters,
        converter=f"{_GGUF_SCRIPT} of {pinned_source().label}"
        if form == "gguf"
        else f"llmexport {packages.version_of('llmexport')}",
        check=check,
    )


def _to_gguf(
    checkpoint: Checkpoint,
    stage: Path,
    path: Path,
    type_name: str,
    held: Environment,
    progress: Progress,
    *,
    projector: Path | None,
    unchecked: bool,
) -> tuple[ConversionCheck, int]:
    """Write a checkpoint's GGUF file, whole and as the checkpoint is, or not at all.

    Returns what was compared, and the number of weights in the file.

    Args:
        checkpoint: what is converted.
        stage: the folder that shows it to the converter.
        path: of the file.
        type_name: of its weights.
        held: the converters' environment.
        progress: shows how many bytes are written.
        projector: its file; none of a text model.
        unchecked: as for ``convert``.
    """
    with written_whole(path) as beside:
        write_gguf(checkpoint, stage, beside, type_name, held, progress)
        try:
            model, header = read_outline(beside)
        except DataError as error:
            raise DataError(
                f"{checkpoint.folder}: the file that the converter made of it contradicts itself. "
                f"{error.message.replace(str(beside), str(path))}",
                "config.json does not belong to these weights: use both of one version of the "
                "model.",
            ) from error
        check = check_gguf(
            checkpoint, beside, header, type_name, held, progress, unchecked=unchecked
        )
        if projector is not None:
            with written_whole(projector) as second:
                seen = _to_projector(
                    *(checkpoint, stage, beside, second, type_name, held, progress),
                    is_comparable=check.logits is not None,
                )
            doubts = (f"what it sees or hears: {seen.unchecked}",) if seen.unchecked else ()
            compared = {"image": seen.image, "sound": seen.sound}
            update = {**compared, "unchecked": (*check.unchecked, *doubts)}
            check = check.model_copy(update=update)
        return check, model.parameters


def _to_projector(
    checkpoint: Checkpoint,
    stage: Path,
    model: Path,
    path: Path,
    type_name: str,
    held: Environment,
    progress: Progress,
    *,
    is_comparable: bool,
) -> MediaFindings:
    """Write a checkpoint's projector, and compare what it makes of an image or a sound.

    Args:
        model: its file of the model, which the projector is for.
        path: to write to.
        type_name: of the model's weights.
        is_comparable: the model's own logits could be compared.
    """
    own = projector_type(type_name)
    write_gguf(checkpoint, stage, path, own, held, progress, is_projector=True)
    try:
        projector_of_header(path, read_header(path))
    except ArmloadError as error:
        raise DataError(
            f"{checkpoint.folder}: the converter made no projector of it: {error.message}",
            "config.json does not belong to these weights: use both of one version of the model.",
        ) from error
    if not is_comparable:
        return MediaFindings(unchecked="the logits of a text could not be compared either")
    return compare_media(checkpoint, model, path, held, progress, most=TOLERANCES[own])


def write_gguf(
    checkpoint: Checkpoint,
    stage: Path,
    path: Path,
    type_name: str,
    held: Environment,
    progress: Progress,
    *,
    is_projector: bool = False,
) -> None:
    """Let llama.cpp's converter write a checkpoint's file; the arguments are ``_to_gguf``'s."""
    total = result_bytes("gguf", type_name, checkpoint)
    what = f"the projector of {checkpoint.name}" if is_projector else checkpoint.name
    label = f"Converting {what} to {type_name}"
    script = pinned_source().provide(progress) / _GGUF_SCRIPT
    wrapper = data_path("toolchains", "converters", "convert_gguf.py")
    words = [str(wrapper), str(script), str(stage), "--outfile", str(path.absolute())]
    words += ["--outtype", type_name.lower(), *(["--mmproj"] if is_projector else [])]
    words += ["--sentence-transformers-dense-modules"] if has_dense(checkpoint.folder) else []
    with progress.step(label, total=total, unit="B") as step:

        def watch(line: str) -> None:
            written = _GGUF_WRITTEN.match(line)
            if written:
                step.update(total * int(written[1]) / 100)

        run_converter(words, checkpoint, held, folder=stage.parent, watch=watch)


def _to_mnn(
    checkpoint: Checkpoint,
    stage: Path,
    path: Path,
    type_name: str,
    held: Environment,
    progress: Progress,
) -> ConversionCheck:
    """Write a checkpoint's MNN folder, whole or not at all.

    The arguments are those of ``_to_gguf``, except that ``path`` is a folder.
    """
    total = result_bytes("mnn", type_name, checkpoint)
    label = f"Converting {checkpoint.name} to MNN, {type_name}"
    with _folder_whole(path) as beside, progress.step(label, total=total, unit="B") as step:

        def watch(line: str) -> None:
            quantised, stage_name = _MNN_QUANTISED.search(line), _MNN_STAGE.search(line)
            if quantised:
                step.update(total * int(quantised[1]) / 100, note="quantising the weights")
            elif stage_name:
                step.update(0, note=stage_name[1])

        # A relative path: llmexport takes whatever has "bge" or "gte" in it for another kind.
        words = [
            str(data_path("toolchains", "converters", "export_mnn.py")),
            stage.name,
            str(beside.absolute()),
        ]
        run_converter(
            [*words, str(MNN_BITS[type_name])], checkpoint, held, folder=stage.parent, watch=watch
        )
        _finish_mnn(checkpoint, beside)
    return ConversionCheck(unchecked=("tokens and logits of an MNN model",))


def _finish_mnn(checkpoint: Checkpoint, folder: Path) -> None:
    """Check that the model is whole; let it answer as armload's other engines do."""
    path = folder / _MNN_CONFIG
    config = read_object(path) if path.is_file() else {}
    missing = [
        str(config.get(key) or key)
        for key in _MNN_NEEDED
        if key not in config or not (folder / str(config[key])).is_file()
    ]
    if missing:
        raise DataError(
            f"{checkpoint.folder}: llmexport ended without writing {', '.join(missing)}.",
            "Check that MNN supports this architecture.",
        )
    config["sampler_type"] = "greedy"
    path.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in _MNN_INTERMEDIATE:
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _folder_whole(path: Path) -> Iterator[Path]:
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        yield beside
        beside.chmod(0o755)
        beside.replace(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _check_memory(checkpoint: Checkpoint, form: Form) -> None:
    import psutil

    needed = memory_bytes(form, checkpoint)
    available = psutil.virtual_memory().available
    if needed > available * _MOST_OF_MEMORY:
        raise LocalMemoryError(
            f"Converting {checkpoint.name} takes about {format_bytes(needed)} of memory, but "
            f"{format_bytes(available)} are available on this machine.",
            "Close other programs, or convert on a machine with more memory.",
        )
