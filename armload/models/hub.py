"""Models, data sets and checkpoints from hubs: ``hf:ORG/REPO…`` and ``ms:ORG/REPO…``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeVar

from armload.core.download import arriving, download, opened
from armload.core.errors import ConnectError, DataError, DiskError, UsageError
from armload.core.files import is_refusal, refusal_remedy, require_room, write_whole, written_whole
from armload.core.locks import locked
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.models.gguf import read_outline
from armload.models.header import read_header
from armload.models.hub_reference import (
    PREFIX,
    WEIGHTS,
    HubModel,
    HubRepository,
    choose_data_file,
    choose_model,
    model_line,
    repository_named,
)
from armload.models.hub_sites import HubFile, RepositoryListing, listed, refusal
from armload.models.model import check_generates
from armload.models.projector_choice import by_likelihood

_FIRST_BYTES = 1 << 20
_MOST_BYTES = 1 << 28

_Choice = TypeVar("_Choice")


def fetch(reference: str, progress: Progress, *, or_embeds: bool = False) -> Path:
    """Download a model unless it was downloaded before, and return its first file.

    Its header arrives first, and what llama.cpp cannot run is refused without the rest.

    Args:
        or_embeds: as for ``check_generates``.

    Raises:
        ConnectError: the hub cannot be reached.
        TransferError: length or checksum of what arrived is wrong.
    """
    named = repository_named(reference, "model")
    listing, model = _found(named, choose_model, progress)
    progress.say(f"{named.label}: {model_line(model)}")
    if not all(_is_kept(named, listing.commit, file) for file in model.files):
        header = _header(named, listing, model, progress)
        with _naming(header, f"{named.label}/{model.path}"):
            check_generates(read_outline(header)[0], or_embeds=or_embeds)
    first, *_ = _provide(named, listing, model.files, progress)
    return first


def fetch_header(reference: str, progress: Progress) -> Path:
    """Download the header of a model, or what more of it arrives with that.

    Returns:
        The first file where the whole model was downloaded before, else a file that ends after
        the header. Beside it lie the other parts of a model in several files.
    """
    named = repository_named(reference, "model")
    listing, model = _found(named, choose_model, progress)
    return _header(named, listing, model, progress)


def fetch_projector(
    reference: str, progress: Progress, *, header_only: bool = False
) -> Path | None:
    """Download the projector that is named, or that lies in the repository of a model.

    None is returned where there is none. The errors are those of ``fetch``.

    Args:
        header_only: return the header alone, as ``fetch_header`` does.
    """
    named = repository_named(reference, "model")

    def choose(named: HubRepository, files: Sequence[HubFile]) -> HubFile | None:
        model = choose_model(named, files).path
        chosen = (
            [model] if "mmproj" in model else by_likelihood([each.path for each in files], model)
        )
        return next((each for each in files if each.path == (*chosen, "")[0]), None)

    listing, file = _found(named, choose, progress)
    if file is None:
        return None
    if header_only:
        return _header(named, listing, HubModel(files=(file,)), progress)
    return _provide(named, listing, [file], progress)[0]


def fetch_data(reference: str, progress: Progress) -> Path:
    """Download a file of a data set, such as ``hf:ORG/REPO/test.jsonl``.

    The arguments and errors are those of ``fetch``.
    """
    named = repository_named(reference, "dataset")
    listing, file = _found(named, choose_data_file, progress)
    (path,) = _provide(named, listing, [file], progress)
    return path


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Tell whether a path looks like one of the patterns, whose ``*`` stands for no slash."""
    return any(path.count("/") == each.count("/") and fnmatchcase(path, each) for each in patterns)


def fetch_checkpoint(
    reference: str, patterns: Sequence[str], check: Callable[[Path], None], progress: Progress
) -> Path:
    """Download a checkpoint's files, the small ones first, and return their folder.

    Args:
        reference: ``hf:ORG/REPO`` or ``ms:ORG/REPO``.
        patterns: what the names of the files look like that are wanted.
        check: is called with the folder before the weights are downloaded, and may refuse it.
        progress: shows each file.
    """
    named = repository_named(reference, "checkpoint")

    def choose(named: HubRepository, files: Sequence[HubFile]) -> list[HubFile]:
        wanted = [each for each in files if matches(each.path, patterns)]
        wanted.sort(key=lambda each: "/" in each.path)  # the first one's folder is the checkpoint's
        if all(fnmatchcase(each.path, WEIGHTS) for each in wanted):
            raise UsageError(
                f"{named.label}: this repository holds no checkpoint.",
                f"For a GGUF model of it, give {named.label}:TYPE to bench or deploy; it needs no "
                "conversion.",
            )
        return wanted

    listing, wanted = _found(named, choose, progress)
    weights = [each for each in wanted if fnmatchcase(each.path, WEIGHTS)]
    small = [each for each in wanted if each not in weights]
    first, *_ = _provide(named, listing, small, progress)
    check(first.parent)
    _provide(named, listing, weights, progress)
    return first.parent


def _found(
    named: HubRepository,
    choose: Callable[[HubRepository, Sequence[HubFile]], _Choice],
    progress: Progress,
) -> tuple[RepositoryListing, _Choice]:
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


def _kept_listing(named: HubRepository) -> RepositoryListing:
    commit = named.revision
    with suppress(OSError, UnicodeDecodeError):
        commit = (named.folder / "refs" / named.revision).read_text(encoding="utf-8").strip()
    folder = named.folder / "snapshots" / commit
    files = tuple(
        HubFile(path=str(each.relative_to(folder)), size_bytes=each.stat().st_size, digest="")
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    )
    return RepositoryListing(commit=commit, files=files)


def _is_kept(named: HubRepository, commit: str, file: HubFile) -> bool:
    place = named.place(commit, file.path)
    return place.is_file() and file.size_bytes in (None, place.stat().st_size)


def _provide(
    named: HubRepository, listing: RepositoryListing, files: Sequence[HubFile], progress: Progress
) -> list[Path]:
    """Return the files' places; download those that are missing."""
    missing = [each for each in files if not _is_kept(named, listing.commit, each)]
    with _written(named):
        if missing:
            needed = sum(each.size_bytes or 0 for each in missing)
            need = f"{named.prefix}{named.name}: {format_bytes(needed)} must be downloaded"
            require_room(
                *(named.site.cache, needed, need), f"Free disk space, or {named.site.cache_remedy}."
            )
        for each in missing:
            _download(named, listing.commit, each, progress)
        if missing and named.revision != listing.commit:
            write_whole(named.folder / "refs" / named.revision, listing.commit.encode())
    return [named.place(listing.commit, each.path) for each in files]


def _download(named: HubRepository, commit: str, file: HubFile, progress: Progress) -> None:
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


def _revision(named: HubRepository, commit: str) -> str:
    """Return what to ask for, so that all files are of one commit where the hub names it."""
    return commit if named.prefix == PREFIX else named.revision


def _header(
    named: HubRepository, listing: RepositoryListing, model: HubModel, progress: Progress
) -> Path:
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
    named: HubRepository, commit: str, file: HubFile, path: Path, progress: Progress
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
            for chunk in arriving(answer):
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


@contextmanager
def _written(named: HubRepository) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_refusal(error):
            raise
        where = Path(error.filename or named.site.cache)
        raise DiskError(
            f"Cannot write {named.name} to {where}: {error.strerror}.",
            refusal_remedy(error, where, named.site.cache_remedy),
        ) from error


@contextmanager
def _naming(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(error.message.replace(str(path), name), error.remedy) from error
