"""What a reference to a hub means: a repository, and which of its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from armload.core.errors import UsageError
from armload.core.values import Value, format_bytes
from armload.models.hub_sites import SITES, HubFile, HubKind, HubSite
from armload.models.model import cut_piece, is_split, part_names

PREFIX = "hf:"
"""What references to data sets begin with."""

DEFAULT_TYPES = ("Q4_K_M", "Q8_0")
"""What is taken of a repository without a type, as by ``llama-cli -hf`` (common/download.cpp)."""

_NO_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""What the names of GGUF files contain that belong to a model, as llama.cpp knows them."""

_REFERENCE = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:pr|convert)/[\w.-]+|[\w.%+-]+))?"
    r"(?::(?P<type>[\w.-]+)|/(?P<file>[^\0]+))?",
    re.ASCII,
)

WEIGHTS = "*.safetensors"
"""What the weights of checkpoints are named like."""


class HubModel(Value):
    """A GGUF model of a repository.

    Attributes:
        files: of it; several where it is split, in their order.
    """

    files: tuple[HubFile, ...]

    @property
    def path(self) -> str:
        return self.files[0].path

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes or 0 for each in self.files)


class NoSuchModelError(UsageError):
    """A repository has no model of that name or type.

    Args:
        models: that it has.
    """

    def __init__(self, message: str, remedy: str, models: Sequence[HubModel]) -> None:
        super().__init__(message, remedy)
        self.models = tuple(models)


class HubRepository(Value):
    """A repository at a revision, as a person named it.

    Attributes:
        prefix: of its hub.
        name: ``ORG/REPO``.
        revision: a branch, tag or commit.
        kind: of repository.
        file, type: which model or file of it; one of them, or neither.
    """

    prefix: str
    name: str
    revision: str
    kind: HubKind
    file: str
    type: str

    @property
    def site(self) -> HubSite:
        return next(site for site in SITES if site.prefix == self.prefix)

    @property
    def label(self) -> str:
        is_usual = self.revision == self.site.default_revision
        return f"{self.prefix}{self.name}{'' if is_usual else '@' + self.revision}"

    @property
    def folder(self) -> Path:
        """Where downloads are kept; the layout is that of the Hugging Face Hub's own cache."""
        return self.site.cache / f"{self.kind}s--{self.name.replace('/', '--')}"

    def place(self, commit: str, path: str) -> Path:
        return self.folder / "snapshots" / commit / path


def is_reference(text: str) -> bool:
    """Say whether a name begins as those of hubs do."""
    return text.startswith(tuple(site.prefix for site in SITES))


_EXAMPLES = {
    "model": "{0}ORG/REPO, {0}ORG/REPO:TYPE or {0}ORG/REPO/FILE.gguf, such as "
    "{0}Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
    "dataset": "{0}ORG/REPO/FILE, such as {0}ORG/REPO/data/test.jsonl",
    "checkpoint": "{0}ORG/REPO, such as {0}Qwen/Qwen2.5-0.5B-Instruct",
}


def repository_named(
    reference: str, what: Literal["model", "dataset", "checkpoint"]
) -> HubRepository:
    """Return the repository that a reference names, and what of it."""
    site = next(site for site in SITES if reference.startswith(site.prefix))
    match = _REFERENCE.fullmatch(reference.removeprefix(site.prefix))
    file, kind = (match["file"] or "" if match else ""), (match["type"] or "" if match else "")
    is_gguf = reference.casefold().endswith(".gguf")
    fits = {
        "model": (bool(file) and is_gguf) or not (file or is_gguf),
        "dataset": bool(file),
        "checkpoint": not (file or kind),
    }[what]
    if what == "model" and (piece := cut_piece(file)):
        raise UsageError(
            f"{reference}: this is only one piece of a GGUF file.",
            f"Download all pieces into one folder, and give what they join to: {piece}",
        )
    is_odd = ".." in unquote(reference) or not unquote(reference).isprintable()
    if match is None or is_odd or not fits:
        name = {"dataset": "a file of a data set", "checkpoint": "a checkpoint"}.get(
            what, "a model"
        )
        raise UsageError(
            f"{reference!r} is not {name} on {site.name}.",
            f"Write {_EXAMPLES[what].format(site.prefix)}; a revision follows the repository: "
            "ORG/REPO@REVISION.",
        )
    return HubRepository(
        prefix=site.prefix,
        name=match["repo"],
        revision=unquote(match["revision"] or site.default_revision),
        kind="dataset" if what == "dataset" else "model",
        file=file,
        type=kind,
    )


def models_in(files: Sequence[HubFile]) -> tuple[HubModel, ...]:
    """Return the GGUF models among files, those in several files as one."""
    by_path = {each.path: each for each in files}
    models = []
    for each in files:
        folder, _, name = each.path.rpartition("/")
        if not name.endswith(".gguf") or any(word in name for word in _NO_MODELS):
            continue
        paths = [f"{folder}/{part}" if folder else part for part in part_names(name)]
        is_first = len(paths) > 1 or not is_split(name)
        if is_first and all(path in by_path for path in paths):
            models.append(HubModel(files=tuple(by_path[path] for path in paths)))
    return tuple(models)


def choose_data_file(named: HubRepository, files: Sequence[HubFile]) -> HubFile:
    for each in files:
        if each.path == named.file:
            return each
    raise UsageError(
        f"{named.name} on {named.site.name} has no file {named.file}.",
        "Check the list of files on its page.",
    )


def choose_model(named: HubRepository, files: Sequence[HubFile]) -> HubModel:
    """Return the model that is named, by its file or its type, or else one of a usual type."""
    models = models_in(files)
    if named.file:
        others = [HubModel(files=(each,)) for each in files if not is_split(each.path)]
        by_path = {model.path: model for model in (*others, *models)}
        alike = [each for each in by_path if each.casefold() == named.file.casefold()]
        if named.file in by_path or len(alike) == 1:
            return by_path.get(named.file) or by_path[alike[0]]
        raise _missing(named, f"no file {named.file}", models, files)
    for each in (named.type,) if named.type else DEFAULT_TYPES:
        pattern = re.compile(rf"(?<![a-z0-9]){re.escape(each)}[.-]", re.IGNORECASE)
        for model in models:
            if pattern.search(model.path):
                return model
    if named.type or not models:
        of_type = f" of type {named.type}" if named.type else ""
        raise _missing(named, f"no GGUF model{of_type}", models, files)
    return models[0]


def model_line(model: HubModel) -> str:
    count = len(model.files)
    files = f", {count} files" if count > 1 else ""
    return f"{model.path} ({format_bytes(model.size_bytes)}{files})"


def _missing(
    named: HubRepository, what: str, models: Sequence[HubModel], files: Sequence[HubFile]
) -> NoSuchModelError:
    if models:
        lines = "\n".join(f"  {model_line(each)}" for each in models)
        remedy = f"It has:\n{lines}\nGive one as {named.label}/FILE, or by its type."
    elif any(cut_piece(each.path) for each in files):
        remedy = "It has GGUF files cut into pieces: download them, and join them with cat."
    elif any(fnmatchcase(each.path, WEIGHTS) for each in files):
        remedy = f"It holds a checkpoint: armload model.convert {named.label} --type Q8_0"
    else:
        remedy = "Look for a repository with GGUF files; their names often end in -GGUF."
    return NoSuchModelError(f"{named.label} has {what}.", remedy, models)
