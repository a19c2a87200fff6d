"""Whether a converted file is the checkpoint's model: its tokens, and its logits for a prompt."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from armload.build.builder import build
from armload.build.programs import SCORER
from armload.build.target import HOST, load_target
from armload.conversion.checkpoints.checkpoint import Checkpoint
from armload.conversion.checkpoints.encoders import EmbeddingFindings, compare_embeddings
from armload.conversion.checkpoints.environment import Environment, FailedProgramError
from armload.conversion.checkpoints.program import OFFLINE
from armload.conversion.checkpoints.projectors import ComparedImage, ComparedRows, ComparedSound
from armload.conversion.checkpoints.quantised import uncompared
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import BuildError, DataError, MissingToolError, UsageError
from armload.core.places import data_path
from armload.core.progress import Progress
from armload.core.values import Count, Finite, Value, counted, format_bytes
from armload.models.gguf import outline_of
from armload.models.header import Header

TOLERANCES = {"F32": 0.01, "F16": 0.02, "BF16": 0.05, "Q8_0": 0.25}
"""How far logits may be from those of the checkpoint in 32-bit floats: root mean square of the
differences at a position, as a share of the logits' standard deviation there, in the median of the
positions. At some, rounding alone makes a mixture of experts choose another expert."""

_KEPT_TYPE, _ROUNDED_AS = "MXFP4", "BF16"
"""What experts may stay in whatever the type. llama.cpp rounds what it multiplies them with to
8 bits, which is as much as BF16 keeps of a weight."""

_CONTEXT = ".context_length"
_WINDOW = ".attention.sliding_window"
_PYTHON_BYTES = 1_500_000_000
_FLOAT_BYTES = 4
_MOST_OF_MEMORY = 0.95
_IDS_SHOWN = 8
_UNSUPPORTED = (
    "Compare config.json with that of the model's publisher: transformers may have left a setting "
    "out. If they agree, the pinned llama.cpp does not support this variant of {}: use a GGUF file "
    "that the publisher offers."
)
_ABSENT = (
    "The checkpoint lacks this tensor: download its weights again, or save the model again from "
    "where it was trained. If the publisher's checkpoint lacks it, too, the pinned llama.cpp does "
    "not support this variant of {}."
)
_TOO_LARGE = "Weights are too large for {}: use --type BF16, or F32."

_TEXTS_FLAG, _LOGITS_FLAG = b"armload.checked.tokens", b"armload.checked.logits"
_FLAG = b"%s\x07\x00\x00\x00"
"""A key of GGUF metadata, and the number of the type bool. Its value is the next byte."""


class ComparedLogits(Value):
    """How far the logits of a prompt are from those of the checkpoint.

    Attributes:
        tokens: of the prompt.
        positions: that were compared.
        difference: the largest of two logits.
        relative: as in ``TOLERANCES``.
        same_top: the share of positions whose most likely token is the same.
    """

    tokens: Count
    positions: Count
    difference: Finite
    relative: Finite
    same_top: Finite


class ConversionCheck(Value):
    """What was found to agree between a checkpoint and what was made of it.

    Attributes:
        texts: whose tokens are the same; 0 if none were compared.
        logits: how far they differ; none if they were not compared.
        embeddings: how far those of texts differ; none of a model that writes text, or if they
            were not compared.
        image: how far the embeddings of an image differ; none if none were compared.
        sound: as ``image``, of a model that hears.
        unchecked: what was not compared, and why.
        reference: what read the checkpoint, with its version; empty if nothing did.
    """

    texts: Count = 0
    logits: ComparedLogits | None = None
    embeddings: ComparedRows | None = None
    image: ComparedImage | None = None
    sound: ComparedSound | None = None
    unchecked: tuple[str, ...] = ()
    reference: str = ""

    @property
    def lines(self) -> list[str]:
        agree = [f"the tokens of {counted(self.texts, 'text')} are equal"] if self.texts else []
        if self.logits:
            agree.append(
                f"the logits differ by {self.logits.difference:.2g} at most "
                f"({self.logits.relative:.1e} of their spread)"
            )
        if self.embeddings:
            agree.append(
                f"the embeddings of texts differ by {self.embeddings.difference:.2g} at most "
                f"({self.embeddings.relative:.1e} of their spread)"
            )
        if media := self.image or self.sound:
            agree.append(
                f"{'an image' if self.image else 'a sound'}'s {media.tokens} embeddings differ by "
                f"{media.difference:.2g} at most ({media.relative:.1e} of their spread), the "
                f"logits after them by {media.after.difference:.2g}"
            )
        against = f"Checked against {self.reference}: "
        checked = [f"{against}{'; '.join(agree)}."] if agree else []
        return checked + [f"Not checked: {each}." for each in self.unchecked]


class DifferentText(Value):
    """A text that has other tokens in the file than in the checkpoint."""

    text: str
    checkpoint: tuple[int, ...]
    file: tuple[int, ...]


class TextFindings(Value):
    """What the script in the converters' environment found.

    Attributes:
        transformers: the version that read the checkpoint.
        texts: that were compared.
        different: those of them with other tokens.
        spaced: those of them that differ in nothing but spaces.
        marked: texts with other tokens because llama.cpp decomposes Hangul, and strips combining
            marks, otherwise than BERT's tokenizers.
        taken: words that llama.cpp takes for special tokens, and the checkpoint for text.
        template: why a message is another prompt for llama.cpp; empty if it is not.
        unread: what transformers cannot read of the checkpoint, and why.
        unchecked: as in ``ConversionCheck``.
        engine: why llama.cpp could not load the file; empty if it could.
        logits: as in ``ConversionCheck``.
        not_finite: how many logits are not finite numbers, of the checkpoint and of the file.
        missing: weights that transformers looked for in vain.
        unexpected: weights that transformers ignores.
        mismatched: weights of another shape than the configuration says, with both shapes.
        window: tokens of a sliding window; 0 without one.
        window_reached: whether the prompt is longer.
    """

    transformers: str = ""
    texts: Count = 0
    different: tuple[DifferentText, ...] = ()
    spaced: Count = 0
    marked: Count = 0
    taken: tuple[str, ...] = ()
    template: str = ""
    unread: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    engine: str = ""
    logits: ComparedLogits | None = None
    not_finite: tuple[Count, Count] = (0, 0)
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    window: Count = 0
    window_reached: bool = True


def check_gguf(
    checkpoint: Checkpoint,
    file: Path,
    header: Header,
    type_name: str,
    held: Environment,
    progress: Progress,
    *,
    unchecked: bool,
    adapter: tuple[Path, Path] | None = None,
) -> ConversionCheck:
    """Compare a converted file with its checkpoint, as far as this machine can.

    The file's metadata says afterwards what was compared.

    Args:
        header: the file's.
        type_name: of its weights.
        unchecked: accept what no transformers at hand can read.
        adapter: that is added to both, as PEFT saved it and as converted; none without.
    """
    try:
        (scorer,) = build(load_target(HOST), programs=[SCORER], progress=progress)
    except (BuildError, MissingToolError, UsageError) as error:
        return ConversionCheck(
            unchecked=(f"tokens and logits, because {SCORER} is unavailable: {error.message}",)
        )
    packed, hindrance = uncompared(checkpoint.folder), _hindrance(checkpoint, type_name)
    model = outline_of(file, header)
    has_logits = not (model.embeds or model.ranks)
    embedded = EmbeddingFindings()
    if not has_logits:
        hindrance = f"logits: this model {model.purpose}; see armload eval --task similarity"
    if model.embeds and type_name in TOLERANCES:
        most = TOLERANCES[type_name]
        embedded = compare_embeddings(checkpoint, file, held, progress, most=most)
        hindrance = f"embeddings of texts: {embedded.unchecked}" if embedded.unchecked else ""
    with_logits = has_logits and not packed and not hindrance
    with progress.step(f"Comparing {checkpoint.name} with its file"):
        words, context = [str(file.absolute()), str(scorer.path)], _context(header)
        more = [] if with_logits else ["--tokens"]
        more += [] if has_logits else ["--vocabulary"]
        more += [] if adapter is None else ["--adapter", *map(str, adapter)]
        found = _compared(checkpoint, held, words, context, is_new=True, more=more)
        if found.unread and not checkpoint.is_new:
            older = _compared(checkpoint, held, words, context, is_new=False, more=more)
            found = found if older.unread else older
    if packed:
        found = found.model_copy(update={"unread": (*found.unread, f"logits: {packed}")})
    judge(checkpoint, found, header, type_name)
    if found.unread and not unchecked:
        raise DataError(
            f"{checkpoint.folder}: the converted file cannot be checked: "
            f"{'; '.join(found.unread)}.",
            "Converters drop settings without a word, so the file may be another model. Repeat the "
            "command with --unchecked to get it nevertheless.",
        )
    if _drops_window(found, header):
        progress.say(
            f"llama.cpp has no sliding window for {checkpoint.architecture}, so the file's context "
            f"is as long as the window: {found.window} tokens."
        )
    if found.texts:
        _flag(file, header, _TEXTS_FLAG)
    if found.logits:
        _flag(file, header, _LOGITS_FLAG)
    return ConversionCheck(
        texts=found.texts,
        logits=found.logits,
        embeddings=embedded.rows,
        unchecked=(*found.unread, *([hindrance] if hindrance else []), *_doubts(found, header)),
        reference=f"transformers {found.transformers}",
    )


def _doubts(found: TextFindings, header: Header) -> Iterator[str]:
    """Yield what was not compared, or differs and is accepted."""
    yield from found.unchecked
    if found.spaced:
        yield (
            f"spaces in {counted(found.spaced, 'text')}: before a text and beside special tokens, "
            "llama.cpp has a rule of its own"
        )
    if found.marked:
        yield (
            f"{counted(found.marked, 'text')} in Korean, or with combining marks as in Hindi: "
            "llama.cpp normalises such texts otherwise than this tokenizer, so their tokens differ"
        )
    if found.taken:
        yield (
            f"{' and '.join(found.taken)} in a text: llama.cpp makes one special token of it, the "
            "checkpoint several of text"
        )
    if found.template:
        yield f"the chat template: {found.template}"
    if not found.window_reached and not _drops_window(found, header):
        yield f"logits beyond the sliding window of {found.window} tokens: it is long"


def _compared(
    checkpoint: Checkpoint,
    held: Environment,
    words: Sequence[str],
    context: int,
    *,
    is_new: bool,
    more: Sequence[str],
) -> TextFindings:
    """Run the comparison with today's transformers, or with the one of the converters."""
    script = data_path("toolchains", "converters", "check_gguf.py")
    with (
        staged(checkpoint, for_converters=not is_new) as stage,
        tempfile.TemporaryDirectory(prefix="armload-") as name,
    ):
        result = Path(name) / "result.json"
        line = ["-s", str(script), str(stage), *words, str(result)]
        line += [str(context), *more]
        variables = {**OFFLINE, **({"PYTHONPATH": str(held.comparing)} if is_new else {})}
        stopped = ""
        try:
            held.run(line, folder=stage.parent, variables=variables, watch=lambda _: None)
        except FailedProgramError as error:
            stopped = f"the comparison ended with status {error.status}"
        if not result.exists():
            return TextFindings(unread=(f"tokens and logits: {stopped or 'it found nothing'}",))
        found = TextFindings.model_validate_json(result.read_bytes())
    if not stopped:
        return found
    return found.model_copy(update={"unread": (*found.unread, f"logits: {stopped}")})


def _context(header: Header) -> int:
    """Return the tokens of a file's context."""
    found = (value for key, value in header.metadata.items() if key.endswith(_CONTEXT))
    return next((value for value in found if isinstance(value, int)), 0)


def _drops_window(found: TextFindings, header: Header) -> bool:
    windows = (value for key, value in header.metadata.items() if key.endswith(_WINDOW))
    return found.window > 0 and not any(windows)


def _flag(file: Path, header: Header, key: bytes) -> None:
    """Set one of the converter's flags in a file's metadata, which says false until then."""
    entry = _FLAG % key
    with file.open("rb+") as content:
        at = content.read(header.metadata_bytes).find(entry)
        if at >= 0:
            content.seek(at + len(entry))
            content.write(b"\x01")


def _hindrance(checkpoint: Checkpoint, type_name: str) -> str:
    """Return why the logits cannot be compared; nothing if they can."""
    import psutil

    if type_name not in TOLERANCES:
        return f"logits: {type_name} loses too much precision of most models for a comparison"
    needed = _PYTHON_BYTES + _FLOAT_BYTES * checkpoint.parameters
    available = psutil.virtual_memory().available
    if needed <= available * _MOST_OF_MEMORY:
        return ""
    return (
        f"logits: they take {format_bytes(needed)} of memory, and {format_bytes(available)} are "
        "available"
    )


def judge(checkpoint: Checkpoint, found: TextFindings, header: Header, type_name: str) -> None:
    """Refuse a file that is not the checkpoint's model."""
    where, remedy = checkpoint.folder, _UNSUPPORTED.format(checkpoint.architecture)
    if found.engine:
        if "missing tensor" in found.engine:
            remedy = _ABSENT.format(checkpoint.architecture)
        elif "invalid data" in found.engine:
            remedy = _TOO_LARGE.format(type_name)
        raise DataError(
            f"{where}: llama.cpp cannot load the converted file: {found.engine}.", remedy
        )
    if found.different:
        first = found.different[0]
        at = next(
            (
                n
                for n, (own, other) in enumerate(zip(first.checkpoint, first.file, strict=False))
                if own != other
            ),
            min(len(first.checkpoint), len(first.file)),
        )
        raise DataError(
            f"{where}: {len(found.different)} of {found.texts} texts are tokenized differently "
            f"after the conversion: {first.text!r} is {_ids(first.checkpoint, at)} in the "
            f"checkpoint and {_ids(first.file, at)} in the file.",
            "Compare tokenizer.json, tokenizer.model and tokenizer_config.json with those of the "
            "model's publisher: they may be of two models.",
        )
    if found.mismatched:
        raise DataError(
            f"{where}: weights have another shape than config.json says: "
            f"{'; '.join(found.mismatched)}.",
            "config.json does not belong to these weights: use both of one version of the model.",
        )
    own, file = found.not_finite
    if own or file:
        whose = "The checkpoint itself" if own else "llama.cpp"
        raise DataError(
            f"{where}: {counted(own or file, 'logit')} of a prompt "
            f"{'is' if (own or file) == 1 else 'are'} no finite number"
            f"{'' if own else f' after the conversion to {type_name}'}.",
            f"{whose} computes NaN or infinity: "
            + (
                "the weights are damaged, or the training diverged. Use another checkpoint."
                if own
                else "use --type BF16, or F32."
            ),
        )
    most = _tolerance(type_name, header) if found.logits else 0.0
    differ = bool(found.logits and not found.logits.relative <= most)
    is_dropped = _drops_window(found, header)
    if is_dropped and _context(header) > found.window and (differ or not found.window_reached):
        raise DataError(
            f"{where}: the conversion drops 'sliding_window': {found.window} from config.json, so "
            "the model continues longer texts differently.",
            f"Use the model for shorter texts only: in config.json, set 'sliding_window' to null "
            f"and 'max_position_embeddings' to {found.window}.",
        )
    if found.logits and differ:
        said = ""
        if found.missing:
            said += f" transformers found no weights for {', '.join(found.missing)}."
        if found.unexpected:
            said += f" transformers ignores {', '.join(found.unexpected)}."
        raise DataError(
            f"{where}: the model computes different logits after the conversion to {type_name}: "
            f"they differ by up to {found.logits.difference:.2g}, in the median of the positions "
            f"by {found.logits.relative:.1%} of their spread (at most {most:.0%} "
            f"is allowed), and {found.logits.same_top:.0%} of the most likely tokens are the same."
            + said,
            remedy,
        )


def _tolerance(type_name: str, header: Header) -> float:
    types = [type_name]
    if any(tensor.type_name == _KEPT_TYPE for tensor in header.tensors):
        types.append(_ROUNDED_AS)
    return max(TOLERANCES[each] for each in types)


def _ids(tokens: tuple[int, ...], at: int) -> str:
    begin = max(0, at - _IDS_SHOWN // 2)
    shown = ", ".join(map(str, tokens[begin : begin + _IDS_SHOWN]))
    return f"[{'… ' if begin else ''}{shown}{' …' if begin + _IDS_SHOWN < len(tokens) else ''}]"
