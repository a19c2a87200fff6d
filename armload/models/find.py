"""From what a person calls a model to its file, and what models leave in the cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.core.cache import (
    CacheItem,
    CacheKind,
    disk_usage,
    entries,
    is_left_over,
    left_over,
)
from armload.core.defaults import DEMO
from armload.core.errors import ConnectError, TransferError, UsageError
from armload.core.files import is_there, require_file, require_utf_8, write_whole
from armload.core.near_names import available, did_you_mean
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.core.workspace import data_names, listing_of
from armload.models import hub
from armload.models.file_types import TENSOR_TYPES, type_meant, usual_type
from armload.models.gguf import read_model, read_outline
from armload.models.hub_cache import kept_models
from armload.models.hub_reference import is_reference
from armload.models.hub_sites import SITES
from armload.models.model import Model, check_generates
from armload.models.outline import LISTED_TYPES, OUTLINES, is_outlined, outline_called, outlined
from armload.models.packaged import QUANTISATIONS, SMOLLM2_MODEL, WORD_PROBLEMS, word_problems_model
from armload.models.published import SMOLLM2, published_as, published_types
from armload.models.quant_mix import MIXTURES, check_file_type
from armload.models.shape import SHAPES, Shape, load_shape
from armload.models.synth import (
    GENERATION,
    RANDOM_QUANTISATION,
    RANDOM_SEED,
    RANDOM_SHAPE,
    header_like,
    synthesise,
    synthesise_like,
)
from armload.models.whole_header import encoded

RANDOM = "random"
"""The name of the model of random weights that armload makes itself."""

LIKE = "like:"
"""What the name of a model begins with that is made in the likeness of a published one."""


def model_called(reference: str, progress: Progress, *, or_embeds: bool = False) -> Model:
    """Return a model's facts; make or download it when it is missing.

    Args:
        or_embeds: as for ``check_generates``.
    """
    path = resolve(reference, progress, or_embeds=or_embeds)
    # Before a checksum of gigabytes is taken.
    check_generates(read_outline(path)[0], or_embeds=or_embeds)
    return read_model(path, progress)


def resolve(reference: str, progress: Progress, *, or_embeds: bool = False) -> Path:
    """Return the file of a model.

    It is named by a path, ``hf:ORG/REPO`` or ``ms:ORG/REPO`` (with ``:TYPE`` or ``/FILE.gguf``),
    ``NAME:TYPE`` as ``fit`` lists it, ``like:NAME:TYPE`` (random weights), ``word-problems:TYPE``,
    ``smollm2``, ``random`` or ``demo``, which is ``smollm2``, or ``word-problems:Q8_0`` where that
    cannot be downloaded.

    A model of random weights is made, and a model of the hub or of the package index downloaded,
    when it is not there yet. A file that is itself called ``demo`` is ``./demo``.
    """
    reference = spelled(reference)
    if reference == DEMO:
        return demo_model(progress)
    if reference == RANDOM:
        return random_model(progress)
    if reference == SMOLLM2:
        return SMOLLM2_MODEL.provide(progress)
    if is_reference(reference):
        with _offering_others(reference):
            return hub.fetch(reference, progress, or_embeds=or_embeds)
    if reference.startswith(LIKE):
        return model_like(reference, progress)
    if reference.startswith(WORD_PROBLEMS):
        return word_problems_model(reference)
    path = Path(reference).expanduser()
    if is_listed(reference):
        place = published(reference)
        if place == SMOLLM2:
            return resolve(place, progress)
        with _offering_others(reference):
            return hub.fetch(place, progress)
    if not is_there(path) or not path.is_file():
        require_file(path, "model", _instead_of(path, reference))
    require_utf_8(path)
    return path


def spelled(reference: str) -> str:
    """Return what a model is called, with the case of known names as armload writes them.

    A file of that very name comes first, and names on hubs stay as they are.
    """
    prefixes = (*(site.prefix for site in SITES), LIKE, WORD_PROBLEMS)
    lower = reference.casefold()
    prefix = next((each for each in prefixes if lower.startswith(each)), "")
    name, colon, file_type = reference[len(prefix) :].partition(":")
    alone = {each: each for each in (DEMO, RANDOM, SMOLLM2)}
    if is_there(Path(reference)):
        return reference
    if prefix and prefix not in (LIKE, WORD_PROBLEMS):
        return prefix + reference[len(prefix) :]
    if not colon and not prefix:
        return alone.get(lower, reference)
    known = {each.casefold(): each for each in _known_names()}
    return f"{prefix}{known.get(name.casefold(), name)}{colon}{file_type}"


def is_listed(reference: str) -> bool:
    """Say whether a model is called as ``fit`` lists it, ``NAME:TYPE``, and is no file."""
    name, colon, _ = spelled(reference).partition(":")
    is_known = bool(colon) and name in _known_names()
    return is_known and not is_there(Path(reference))


def is_published(reference: str) -> bool:
    """Say whether armload knows a file of a model that is called as ``fit`` lists it."""
    name, _, file_type = spelled(reference).partition(":")
    return is_listed(reference) and bool(published_as(name, usual_type(file_type)))


def is_runnable(reference: str) -> bool:
    """Say whether a model whose header can be had has weights that can be had, too."""
    reference = spelled(reference)
    if reference.startswith(LIKE):
        name, file_type = _split(reference)
        return not is_outlined(name) and usual_type(file_type) in MIXTURES
    return not is_listed(reference) or is_published(reference)


@contextmanager
def _offering_others(reference: str) -> Iterator[None]:
    """Say which models need no hub, where it cannot be reached."""
    try:
        yield
    except ConnectError as error:
        random = f", or {LIKE}{reference} (random weights of that size)"
        error.remedy += (
            f" Models that need no hub: {SMOLLM2}, {WORD_PROBLEMS}{QUANTISATIONS[0]}"
            f"{random if _can_be_made(reference) else ''}."
        )
        raise


def _can_be_made(reference: str) -> bool:
    """Say whether random weights can be made for ``NAME:TYPE``."""
    name, _, file_type = reference.partition(":")
    return name in data_names(SHAPES) and usual_type(file_type) in MIXTURES


def published(reference: str) -> str:
    """Return what a model that is called as ``fit`` lists it is called where it is published."""
    name, file_type = _split(spelled(reference))
    if there := published_as(name, usual_type(file_type)):
        return there
    types = ", ".join(published_types(name))
    if usual_type(file_type) not in TENSOR_TYPES:
        raise UsageError(
            f"{reference}: there is no file type {file_type!r}.",
            type_meant(file_type, TENSOR_TYPES)
            + (f"Types with a known file: {types}." if types else f"Example: {name}:Q4_0"),
        )
    random = f" Random weights of its size: {LIKE}{reference}." if _can_be_made(reference) else ""
    raise UsageError(
        f"{reference}: armload does not know where to download this model.",
        (f"Types with a known file: {types}. " if types else "")
        + f"Search the hub for {name} GGUF, and give it as hf:ORG/REPO:{file_type}.{random}",
    )


def _known_names() -> list[str]:
    return [*data_names(OUTLINES), *data_names(SHAPES)]


def _instead_of(path: Path, reference: str) -> str:
    """Say where a model was looked for, which ones are called alike, and what can be given."""
    beside = [str(each) for each in _files_beside(path)]
    listed = [f"{name}:{LISTED_TYPES[0]}" for name in _known_names()]
    named = [SMOLLM2, RANDOM, DEMO, *(WORD_PROBLEMS + each for each in QUANTISATIONS)]
    there = {each.rpartition("/")[2]: each for each in kept_models()}
    candidates = {each: each for each in (*beside, *listed, *named)} | there
    near = did_you_mean(reference, candidates.keys() - {reference})
    for short, whole in there.items():
        near = near.replace(repr(short), repr(whole))
    return (
        f"{near}Looked in {path.parent.absolute()}. Give a GGUF file, hf:ORG/REPO[:TYPE] or "
        f"hf:ORG/REPO/FILE.gguf (ms: for ModelScope), a name that armload fit lists, "
        f"{LIKE}NAME:TYPE (random weights), {WORD_PROBLEMS}TYPE, {SMOLLM2}, {RANDOM}, or {DEMO}."
    )


def _files_beside(path: Path) -> list[Path]:
    if not is_there(path.parent):
        return []
    return [each for each in path.parent.glob("*.gguf") if not each.is_dir()]


def demo_model(progress: Progress) -> Path:
    """Return the file of ``demo``, or of a shipped model where that cannot be downloaded."""
    try:
        return SMOLLM2_MODEL.provide(progress)
    except (ConnectError, TransferError) as error:
        shipped = f"{WORD_PROBLEMS}{QUANTISATIONS[0]}"
        progress.say(error.message)
        progress.say(
            f"Using {shipped} instead: a small model that armload ships, trained on word problems."
        )
        return word_problems_model(shipped)


def demo_words() -> str:
    """Say what ``demo`` is, and what has to be downloaded for it."""
    need = f"{format_bytes(SMOLLM2_MODEL.download_bytes)} to download"
    if SMOLLM2_MODEL.path.is_file():
        need = "already downloaded"
    return f"SmolLM2 with 135M parameters, {need}"


def random_model(progress: Progress) -> Path:
    """Return the file of ``random``; make it when it is missing."""
    shape = RANDOM_SHAPE
    sizes = f"{shape.layers}x{shape.width}-{RANDOM_QUANTISATION.lower()}-seed{RANDOM_SEED}"
    path = made_file(f"random-{sizes}.gguf")
    if not path.is_file():
        synthesise(
            *(shape, path), quantisation=RANDOM_QUANTISATION, seed=RANDOM_SEED, progress=progress
        )
    return path


def model_like(reference: str, progress: Progress) -> Path:
    """Return the model that ``like:NAME:TYPE`` names; make it when it is missing."""
    shape, file_type, path = _likeness(reference)
    if not path.is_file():
        synthesise_like(shape, path, file_type=file_type, seed=RANDOM_SEED, progress=progress)
    return path


def header_of(reference: str, progress: Progress) -> Path:
    """Return a file with a model's header; its weights may be missing.

    It is named as for ``resolve``, but nothing large is made or downloaded (``smollm2`` is 93 MB).
    """
    reference = spelled(reference)
    if is_reference(reference):
        return hub.fetch_header(reference, progress)
    if not reference.startswith(LIKE) and not is_listed(reference):
        return resolve(reference, progress)
    name, file_type = _split(reference)
    if is_outlined(name) or usual_type(file_type) not in MIXTURES:
        _, outline = outlined(outline_called(name), file_type)
        content = encoded(outline).content
        digest = hashlib.sha256(content).hexdigest()[:8]
        path = made_file(f"outline-{name}-{usual_type(file_type)}-{digest}.header.gguf")
        if not path.is_file():
            with progress.step(f"Making the header of {name}:{file_type}"):
                write_whole(path, content)
        return path
    shape, file_type, path = _likeness(reference)
    if path.is_file():
        return path
    header = path.with_suffix(".header.gguf")
    if not header.is_file():
        with progress.step(f"Making the header of {reference}"):
            header_like(shape, header, file_type=file_type)
    return header


def _split(reference: str) -> tuple[str, str]:
    name, separator, file_type = reference.removeprefix(LIKE).partition(":")
    known = _known_names()
    if name not in known:
        raise UsageError(
            f"There is no model named {name!r}.",
            available(name, known, listing_of(OUTLINES, SHAPES)),
        )
    if not separator:
        raise UsageError(f"{reference!r} has no file type.", f"Example: {reference}:Q4_0")
    return name, file_type


def _likeness(reference: str) -> tuple[Shape, str, Path]:
    name, file_type = _split(reference)
    if is_outlined(name):
        raise UsageError(
            f"Models like {name} cannot be generated: only their header is known.",
            f"To predict its speed: armload fit --model {name}:{file_type}. To run it, give its "
            "GGUF file.",
        )
    shape = load_shape(name)
    file_type = check_file_type(file_type)
    # A person's own shape may change under its name.
    sizes = shape.model_dump_json(exclude={"name", "description", "is_listed"})
    digest = hashlib.sha256(sizes.encode()).hexdigest()[:8]
    return shape, file_type, made_file(f"random-{name}-{file_type}-{digest}-seed{RANDOM_SEED}.gguf")


_MADE = re.compile(
    rf"(?:outline|random)-(.+)-([A-Z0-9_]+)-[0-9a-f]{{8}}(?:-seed{RANDOM_SEED})?\.gguf"
)


def shown_name(path: Path) -> str:
    """Return what a person calls a model, or the header of one, that lies in the cache."""
    name = path.name.replace(".header.gguf", ".gguf")
    made = _MADE.fullmatch(name)
    return f"{LIKE}{made[1]}:{made[2]}" if made else name


def made_file(name: str) -> Path:
    """Return where the cache keeps a model that armload makes."""
    return cache_folder() / "models" / f"made-{GENERATION}" / name


def model_kinds() -> tuple[CacheKind, ...]:
    """Return models that armload made, and the checksums that it remembers."""
    return (
        CacheKind(
            name="models",
            what="models of random weights, and downloads",
            again="seconds, or a download",
        ),
        CacheKind(
            name="operations",
            what="operations of models, and their times on boards",
            again="timing them on the board again",
        ),
        CacheKind(
            name="footprints",
            what="memory that models take, as reported by llama.cpp",
            again="asking llama.cpp on the board again",
        ),
        CacheKind(
            name="hashes",
            what="checksums of model files",
            again="reading each model once",
            read=_remembered,
        ),
    )


def _remembered() -> Iterator[CacheItem]:
    hashes = tuple(path for path in entries("hashes") if not is_left_over(path))
    if hashes:
        yield CacheItem(label="all", paths=hashes, size_bytes=disk_usage(hashes))
    yield from left_over("hashes")
