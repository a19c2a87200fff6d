"""Models, data sets and checkpoints from hubs: ``hf:ORG/REPO…`` and ``ms:ORG/REPO…``."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import unquote

from armload.core.download import download, opened
from armload.core.errors import ConnectError, DataError, DiskError, UsageError
from armload.core.files import free_space, is_refusal, write_whole, written_whole
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes
from armload.core.workspace import cache_folder
from armload.models.gguf import read_outline
from armload.models.header import read_header
from armload.models.hub_sites import SITES, HubFile, HubKind, HubSite, Listing, listed, refusal
from armload.models.model import check_generates, cut_piece, is_split, part_names

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
_FIRST_BYTES = 1 << 20
_MOST_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 18
_WEIGHTS = "*.safetensors"


class HubModel(Value):
    """A GGUF model of a repository.

    Attributes:
        files: of it; several where it is split, in their order.
    """

    files: tuple[HubFile, ...]

    @property
    def path(self) -> str:
        """The first file's, which names the model."""
        return self.files[0].path

    @property
    def size_bytes(self) -> int:
        """Of all files, as far as the hub says."""
        return sum(each.size_bytes or 0 for each in self.files)


class NoSuchModelError(UsageError):
    """A repository has no model of that name or type.

    Args:
        models: that it has.
    """

    def __init__(self, message: str, remedy: str, models: Sequence[HubModel]) -> None:
        super().__init__(message, remedy)
        self.models = tuple(models)


class _Repository(Value):
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
        """It, as a person would name it."""
        is_usual = self.revision == self.site.default_revision
        return f"{self.prefix}{self.name}{'' if is_usual else '@' + self.revision}"

    @property
    def folder(self) -> Path:
        """Where downloads are kept; the layout is that of the Hugging Face Hub's own cache."""
        return self.site.cache / f"{self.kind}s--{self.name.replace('/', '--')}"

    def place(self, commit: str, path: str) -> Path:
        """Return where a file of it is kept."""
        return self.folder / "snapshots" / commit / path


_Choice = TypeVar("_Choice")


def is_reference(text: str) -> bool:
    """Say whether a name begins as those of hubs do."""
    return text.startswith(tuple(site.prefix for site in SITES))


def fetch(reference: str, progress: Progress) -> Path:
    """Download a model unless it was downloaded before, and return its first file.

    Its header arrives first, and what llama.cpp cannot run is refused without the rest.

    Raises:
        UsageError: the reference is malformed, or there is no such model or permission.
        ConnectError: the hub cannot be reached.
        TransferError: length or checksum of what arrived is wrong.
        DataError: it is no GGUF file that llama.cpp could run, or the hub's list is bad.
        DiskError: the cache cannot be written, for want of space or permission.
    """
    named = _named(reference, "model")
    listing, model = _found(named, _model, progress)
    progress.say(f"{named.label}: {_line(model)}")
    if not all(_is_kept(named, listing.commit, file) for file in model.files):
        header = _header(named, listing, model, progress)
        with _naming(header, f"{named.label}/{model.path}"):
            check_generates(read_outline(header)[0])
    first, *_ = _provide(named, listing, model.files, progress)
    return first


def fetch_header(reference: str, progress: Progress) -> Path:
    """Download the header of a model, or what more of it arrives with that.

    Returns:
        The first file where the whole model was downloaded before, else a file that ends after
        the header. Beside it lie the other parts of a model in several files.

    Raises:
        UsageError, ConnectError, DataError, DiskError: as for ``fetch``.
    """
    named = _named(reference, "model")
    listing, model = _found(named, _model, progress)
    return _header(named, listing, model, progress)


def fetch_data(reference: str, progress: Progress) -> Path:
    """Download a file of a data set, such as ``hf:ORG/REPO/test.jsonl``.

    The arguments and errors are those of ``fetch``.
    """
    named = _named(reference, "dataset")
    listing, file = _found(named, _data_file, progress)
    (path,) = _provide(named, listing, [file], progress)
    return path


def fetch_checkpoint(
    reference: str,
    patterns: Sequence[str],
    check: Callable[[Path], None],
    progress: Progress,
) -> Path:
    """Download a checkpoint's files, the small ones first, and return their folder.

    Args:
        reference: ``hf:ORG/REPO`` or ``ms:ORG/REPO``.
        patterns: what the names of the files look like that are wanted.
        check: is called with the folder before the weights are downloaded, and may refuse it.
        progress: shows each file.

    Raises:
        UsageError, ConnectError, TransferError, DataError, DiskError: as for ``fetch``.
    """
    named = _named(reference, "checkpoint")

    def choose(named: _Repository, files: Sequence[HubFile]) -> list[HubFile]:
        wanted = [
            each
            for each in files
            if "/" not in each.path and any(fnmatchcase(each.path, one) for one in patterns)
        ]
        if all(fnmatchcase(each.path, _WEIGHTS) for each in wanted):
            raise UsageError(
                f"{named.label}: this repository holds no checkpoint.",
                f"For a GGUF model of it, give {named.label}:TYPE to bench or deploy; it needs no "
                "conversion.",
            )
        return wanted

    listing, wanted = _found(named, choose, progress)
    weights = [each for each in wanted if fnmatchcase(each.path, _WEIGHTS)]
    small = [each for each in wanted if each not in weights]
    first, *_ = _provide(named, listing, small, progress)
    check(first.parent)
    _provide(named, listing, weights, progress)
    return first.parent


_EXAMPLES = {
    "model": "{0}ORG/REPO, {0}ORG/REPO:TYPE or {0}ORG/REPO/FILE.gguf, such as "
    "{0}Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
    "dataset": "{0}ORG/REPO/FILE, such as {0}ORG/REPO/data/test.jsonl",
    "checkpoint": "{0}ORG/REPO, such as {0}Qwen/Qwen2.5-0.5B-Instruct",
}


def _named(reference: str, what: str) -> _Repository:
    site = next(site for site in SITES if reference.startswith(site.prefix))
    match = _REFERENCE.fullmatch(reference.removeprefix(site.prefix))
    file, kind = (match["file"] or "" if match else ""), (match["type"] or "" if match else "")
    fits = {
        "model": file.endswith(".gguf") or not (file or reference.endswith(".gguf")),
        "dataset": bool(file),
        "checkpoint": not (file or kind),
    }[what]
    if what == "model" and (piece := cut_piece(file)):
        raise UsageError(
            f"{reference}: this is a piece of a GGUF file that was cut.",
            f"Download all pieces into one folder, join them there, and give the result: {piece}",
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
    return _Repository(
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


def _found(
    named: _Repository,
    choose: Callable[[_Repository, Sequence[HubFile]], _Choice],
    progress: Progress,
) -> tuple[Listing, _Choice]:
    """Choose among what the hub has; where it does not answer, of what was downloaded before."""
    try:
        if named.site.is_offline:
            raise ConnectError(
                f"Cannot reach {named.site.name} for {named.name}: HF_HUB_OFFLINE is set.",
                "Unset it, or download the file elsewhere and give its path.",
            )
        listing = listed(named.site, named.name, named.kind, named.revision, progress)
    except ConnectError as error:
        kept = _kept_listing(named)
        try:
            chosen = choose(named, kept.files)
        except UsageError:
            raise error from None
        progress.say(f"{error.message} Using what was downloaded before.")
        return kept, chosen
    return listing, choose(named, listing.files)


def _data_file(named: _Repository, files: Sequence[HubFile]) -> HubFile:
    for each in files:
        if each.path == named.file:
            return each
    raise UsageError(
        f"{named.name} on {named.site.name} has no file {named.file}.",
        "Check the list of files on its page.",
    )


def _model(named: _Repository, files: Sequence[HubFile]) -> HubModel:
    models = models_in(files)
    if named.file:
        others = [HubModel(files=(each,)) for each in files if not is_split(each.path)]
        for model in (*models, *others):
            if model.path == named.file:
                return model
        raise _missing(named, f"no file {named.file}", models, files)
    for each in (named.type,) if named.type else DEFAULT_TYPES:
        pattern = re.compile(rf"{re.escape(each)}[.-]", re.IGNORECASE)
        for model in models:
            if pattern.search(model.path):
                return model
    if named.type or not models:
        of_type = f" of type {named.type}" if named.type else ""
        raise _missing(named, f"no GGUF model{of_type}", models, files)
    return models[0]


def _line(model: HubModel) -> str:
    count = len(model.files)
    files = f", {count} files" if count > 1 else ""
    return f"{model.path} ({format_bytes(model.size_bytes)}{files})"


def _missing(
    named: _Repository, what: str, models: Sequence[HubModel], files: Sequence[HubFile]
) -> NoSuchModelError:
    if models:
        lines = "\n".join(f"  {_line(each)}" for each in models)
        remedy = f"It has:\n{lines}\nGive one as {named.label}/FILE, or by its type."
    elif any(cut_piece(each.path) for each in files):
        remedy = "It has GGUF files cut into pieces: download them, and join them with cat."
    elif any(fnmatchcase(each.path, _WEIGHTS) for each in files):
        remedy = f"It holds a checkpoint: armload model.convert {named.label} --type Q8_0"
    else:
        remedy = "Look for a repository with GGUF files; their names often end in -GGUF."
    return NoSuchModelError(f"{named.label} has {what}.", remedy, models)


def _kept_listing(named: _Repository) -> Listing:
    commit = named.revision
    with suppress(OSError, UnicodeDecodeError):
        commit = (named.folder / "refs" / named.revision).read_text(encoding="utf-8").strip()
    folder = named.folder / "snapshots" / commit
    files = tuple(
        HubFile(path=str(each.relative_to(folder)), size_bytes=each.stat().st_size, digest="")
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    )
    return Listing(commit=commit, files=files)


def _is_kept(named: _Repository, commit: str, file: HubFile) -> bool:
    place = named.place(commit, file.path)
    return place.is_file() and file.size_bytes in (None, place.stat().st_size)


def _provide(
    named: _Repository, listing: Listing, files: Sequence[HubFile], progress: Progress
) -> list[Path]:
    """Return the files' places; download those that are missing."""
    missing = [each for each in files if not _is_kept(named, listing.commit, each)]
    with _written(named):
        if missing:
            _check_room(named, missing)
        for each in missing:
            _download(named, listing.commit, each, progress)
        if missing and named.revision != listing.commit:
            write_whole(named.folder / "refs" / named.revision, listing.commit.encode())
    return [named.place(listing.commit, each.path) for each in files]


def _download(named: _Repository, commit: str, file: HubFile, progress: Progress) -> None:
    content = file.digest or hashlib.sha256(f"{commit} {file.path}".encode()).hexdigest()
    blob, place = named.folder / "blobs" / content, named.place(commit, file.path)
    remote = named.site.file(named.name, named.kind, _revision(named, commit), file)
    lock = named.site.cache / ".locks" / named.folder.name / f"{content}.lock"
    words = f"Another command is downloading {remote.label}."
    with locked(lock, progress, waiting=words):
        if not (blob.is_file() and file.size_bytes in (None, blob.stat().st_size)):
            refused = refusal(named.site, named.name, named.revision, file.path)
            download(remote, blob, progress, refused)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            place.symlink_to(os.path.relpath(blob, place.parent))
        except OSError:  # a file system without links, such as exFAT
            blob.replace(place)


def _revision(named: _Repository, commit: str) -> str:
    """Return what to ask for, so that all files are of one commit where the hub names it."""
    return commit if named.prefix == PREFIX else named.revision


def _header(named: _Repository, listing: Listing, model: HubModel, progress: Progress) -> Path:
    if all(_is_kept(named, listing.commit, each) for each in model.files):
        return named.place(listing.commit, model.path)
    contents = "".join(f"{listing.commit} {each.path} {each.digest}\n" for each in model.files)
    key = hashlib.sha256(contents.encode()).hexdigest()[:16]
    folder = cache_folder() / "models" / "headers" / key
    paths = [folder / PurePosixPath(each.path).name for each in model.files]
    for each, path in zip(model.files, paths, strict=True):
        if not path.is_file():
            with _written(named), written_whole(path) as beside:
                _read_header(named, listing.commit, each, beside, progress)
    return paths[0]


def _read_header(
    named: _Repository, commit: str, file: HubFile, path: Path, progress: Progress
) -> None:
    """Read a file from its beginning until it has all of the header."""
    from requests import RequestException

    remote = named.site.file(named.name, named.kind, _revision(named, commit), file)
    refused = refusal(named.site, named.name, named.revision, file.path)
    wanted = _FIRST_BYTES
    try:
        with (
            path.open("wb") as out,
            progress.step(f"Header of {remote.label}", unit="B") as step,
            opened(remote, progress, refused) as answer,
        ):
            for chunk in answer.iter_content(_CHUNK_BYTES):
                out.write(chunk)
                step.update(out.tell())
                if out.tell() >= wanted:
                    out.flush()
                    with suppress(DataError):
                        read_header(path)
                        return
                    wanted *= 2
                if wanted > _MOST_BYTES:
                    break
        with _naming(path, remote.label):
            read_header(path)
    except RequestException as error:
        raise ConnectError(
            f"{remote.label}: the connection to {remote.host} dropped.", "Repeat the command."
        ) from error


def _check_room(named: _Repository, missing: Sequence[HubFile]) -> None:
    needed = sum(each.size_bytes or 0 for each in missing)
    _, free = free_space(named.site.cache)
    if needed > free:
        raise DiskError(
            f"{named.prefix}{named.name}: {format_bytes(needed)} must be downloaded, but "
            f"{named.site.cache} has {format_bytes(free)} free.",
            f"Free disk space, or {named.site.cache_remedy}.",
        )


@contextmanager
def _written(named: _Repository) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_refusal(error):
            raise
        raise DiskError(
            f"Cannot write {named.name} to {error.filename or named.site.cache}: {error.strerror}.",
            f"Free disk space or correct the permissions there, or {named.site.cache_remedy}.",
        ) from error


@contextmanager
def _naming(path: Path, name: str) -> Iterator[None]:
    """Say in errors which file of the hub it is that lies at a path of the cache."""
    try:
        yield
    except DataError as error:
        raise DataError(error.message.replace(str(path), name), error.remedy) from error
