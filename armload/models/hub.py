"""Models, data sets and checkpoints from the Hugging Face hub: ``hf:ORG/REPO[/FILE]``."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from armload.core.errors import ConnectError, DataError, DiskError, MissingToolError, UsageError
from armload.core.files import free_space, is_refusal, written_whole
from armload.core.progress import Progress
from armload.core.shell import pip_install
from armload.core.values import format_bytes
from armload.core.workspace import cache_folder
from armload.models.header import read_header
from armload.models.model import part_names

if TYPE_CHECKING:
    from tqdm import tqdm


PREFIX = "hf:"
_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>(?:[\w.+-]+/)*[\w.+-]+)", re.ASCII)

HubKind = Literal["model", "dataset"]
"""Of a repository, as the hub calls it."""

_FIRST_BYTES = 1 << 20
_MOST_BYTES = 1 << 28
_PART_BYTES = 1 << 18


def fetch(reference: str, progress: Progress) -> Path:
    """Download a model file unless it is in the hub's own cache, and return its path there.

    Of a model in several files, named by the first, all are downloaded. The hub library checks
    the size and sends the token of ``hf auth login`` for models that need one.

    Raises:
        UsageError: the reference is malformed, or there is no such file or permission.
        MissingToolError: the extra ``hub`` is not installed.
        ConnectError: the hub cannot be reached.
        DiskError: the hub's cache cannot be written, for want of space or permission.
    """
    repo, file = _names(reference)
    first, *_ = [_fetch(repo, part, "model", progress) for part in part_names(file)]
    return first


def fetch_data(reference: str, progress: Progress) -> Path:
    """Download a file of a data set, such as ``hf:ORG/REPO/test.jsonl``.

    The arguments and errors are those of ``fetch``.
    """
    return _fetch(*_names(reference, "dataset"), "dataset", progress)


def downloaded(repo: str, file: str, progress: Progress) -> Path:
    """Download a file of a model's repository, unless it is in the hub's own cache.

    Args:
        repo: ``ORG/REPO``.
        file: its path there.
        progress: shows how much of it has arrived.

    Raises:
        UsageError, ConnectError, DiskError: as for ``fetch``.
    """
    from huggingface_hub import hf_hub_download

    with asking(f"{repo}/{file}"):
        bar = _bar_class(file, progress)
        return Path(hf_hub_download(repo, file, tqdm_class=bar))


def _fetch(repo: str, file: str, kind: HubKind, progress: Progress) -> Path:
    from huggingface_hub import hf_hub_download

    bar = _bar_class(file, progress)
    progress.say(f"Looking up {repo}/{file} on the Hugging Face Hub")
    with asking(f"{repo}/{file}"):
        _need_answer(repo, file, kind)
        return Path(hf_hub_download(repo, file, repo_type=kind, tqdm_class=bar))


def fetch_header(reference: str, progress: Progress) -> Path:
    """Download the header of a model file, or what more of it arrives with that.

    Returns:
        The whole file where it is in the hub's own cache, else a file in ours that ends after
        the header. Beside it lie the other parts of a model in several files.

    Raises:
        DataError: it is no GGUF file.
        UsageError, MissingToolError, ConnectError, DiskError: as for ``fetch``.
    """
    repo, file = _names(reference)
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    parts = part_names(file)
    whole = [try_to_load_from_cache(repo, part) for part in parts]
    if all(isinstance(each, str) for each in whole):
        return Path(str(whole[0]))
    progress.say(f"Looking up {repo}/{file} on the Hugging Face Hub")
    with asking(f"{repo}/{file}"):
        urls = [hf_hub_url(repo, part) for part in parts]
        versions = "".join(f"{url} {get_hf_file_metadata(url).etag}" for url in urls)
        folder = hashlib.sha256(versions.encode()).hexdigest()[:16]
        paths = [cache_folder() / "models" / "headers" / folder / Path(part).name for part in parts]
        for url, path in zip(urls, paths, strict=True):
            if not path.is_file():
                with written_whole(path) as beside:
                    _read_until_whole(url, beside)
    return paths[0]


def _read_until_whole(url: str, path: Path) -> None:
    """Read a file from its beginning until it has all of the header."""
    from huggingface_hub import get_session, get_token

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    wanted = _FIRST_BYTES
    with (
        path.open("wb") as file,
        get_session().stream("GET", url, headers=headers, follow_redirects=True) as got,
    ):
        got.raise_for_status()
        for part in got.iter_bytes(_PART_BYTES):
            file.write(part)
            if file.tell() >= wanted:
                file.flush()
                with suppress(DataError):
                    read_header(path)
                    return
                wanted *= 2
            if wanted > _MOST_BYTES:
                break
    read_header(path)


def _names(reference: str, kind: HubKind = "model") -> tuple[str, str]:
    """Return repository and file."""
    match = _REFERENCE.fullmatch(reference)
    what, ending, example = {
        "model": ("model", ".gguf", "hf:ggml-org/models/tinyllamas/stories260K.gguf"),
        "dataset": ("file of a data set", "", "hf:ORG/REPO/data/test.jsonl"),
    }[kind]
    if match is None or ".." in reference or not reference.endswith(ending):
        raise UsageError(
            f"{reference!r} is not a {what} on the Hugging Face Hub.",
            f"Write hf:ORG/REPO/FILE{ending}, such as {example}.",
        )
    need_library()
    return match["repo"], match["file"]


def need_library() -> None:
    """Check that the hub's library is installed.

    Raises:
        MissingToolError: it is not.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingToolError(
            "Downloading from the hub needs the package huggingface_hub.",
            f"Install it: {pip_install('huggingface_hub', 'tqdm')}",
        )


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise the hub library's errors within the block as ours.

    Args:
        what: is asked for: ``ORG/REPO``, or ``ORG/REPO/FILE``.

    Raises:
        UsageError: there is no such thing, or no permission.
        ConnectError: the hub cannot be reached.
        DiskError: the hub's cache cannot be written.
    """
    from huggingface_hub import constants, errors

    # Each of its retries would be a line of its own.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    # Another HTTP library in each generation of the hub's; its errors have this base.
    http_error = cast("type[Exception]", errors.HfHubHTTPError.__bases__[0])
    org, name, *rest = what.split("/")
    repo, file = f"{org}/{name}", "/".join(rest)
    try:
        yield
    except errors.GatedRepoError as error:
        raise UsageError(
            f"Access to {repo} is restricted.",
            "Accept the conditions on its Hugging Face page, then log in with `hf auth login`, or "
            "set HF_TOKEN.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"The Hugging Face Hub has no repository {repo}, or it is private.",
            "Check the spelling; for a private one, log in with `hf auth login`, or set HF_TOKEN.",
        ) from error
    except errors.RemoteEntryNotFoundError as error:
        raise UsageError(
            f"{repo} has no file {file}.", "Check the list of files on its Hugging Face page."
        ) from error
    except (
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
        OSError,
        http_error,
    ) as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise DiskError(
                f"Cannot write {what} to {constants.HF_HUB_CACHE}: {error.strerror}.",
                "Free disk space or correct the permissions there, or set HF_HUB_CACHE to another "
                "folder.",
            ) from error
        raise ConnectError(
            f"Cannot reach the Hugging Face Hub for {what}: {_first_line(error)}",
            "Check the network (and HF_HUB_OFFLINE, HF_ENDPOINT), or download the file "
            "elsewhere and give its path.",
        ) from error


def _need_answer(repo: str, file: str, kind: HubKind) -> None:
    """Ask once, where the file must be downloaded: the library asks again for 25 s."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(repo, file, repo_type=kind), str):
        return
    with suppress(errors.HfHubHTTPError):  # it answers; the download tells what, or tries again
        get_hf_file_metadata(hf_hub_url(repo, file, repo_type=kind))


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error) or type(error).__name__).splitlines()[0]


def _bar_class(file: str, progress: Progress) -> type[tqdm[Any]]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg] # not subscriptable at run time
        """Passes the download's progress on instead of drawing a bar."""

        def __init__(self, *, total: float | None = None, initial: int = 0, **_: object) -> None:
            super().__init__(total=total, initial=initial, disable=True)
            self._shown = ExitStack()
            opened = progress.step(f"Downloading {file}", total=total, unit="B")
            self._step = self._shown.enter_context(opened)

        def update(self, n: float | None = 1) -> bool | None:
            self.n += n or 0
            self._step.update(self.n, total=self.total)
            return None

        def close(self) -> None:
            self._shown.close()

    return Bar


_CHECKPOINT = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)", re.ASCII)
_WEIGHTS = "*.safetensors"


def repository_of(reference: str) -> str:
    """Return the repository that ``hf:ORG/REPO`` names.

    Raises:
        UsageError: the reference is malformed.
    """
    match = _CHECKPOINT.fullmatch(reference)
    if match is None or ".." in reference:
        raise UsageError(
            f"{reference!r} is not a checkpoint on the Hugging Face Hub.",
            "Write hf:ORG/REPO, such as hf:Qwen/Qwen2.5-0.5B-Instruct.",
        )
    return match["repo"]


def fetch_checkpoint(
    reference: str,
    patterns: Sequence[str],
    check: Callable[[Path], None],
    progress: Progress,
) -> Path:
    """Download a checkpoint's files, the small ones first, and return their folder.

    What the hub's own cache has already is not downloaded again.

    Args:
        reference: ``hf:ORG/REPO``.
        patterns: what the names of the files look like that are wanted.
        check: is called with the folder before the weights are downloaded, and may refuse it.
        progress: shows each file.

    Raises:
        UsageError: the reference is malformed, or there is no such repository or permission.
        MissingToolError: the extra ``hub`` is not installed.
        ConnectError: the hub cannot be reached.
        DiskError: the files do not fit into the hub's cache, or it cannot be written.
    """
    repo = repository_of(reference)
    need_library()
    from huggingface_hub import HfApi

    progress.say(f"Looking up {repo} on the Hugging Face Hub")
    try:
        with asking(repo):
            info = HfApi().model_info(repo, files_metadata=True)
    except ConnectError:
        folder = _downloaded_before(repo)
        if folder is None:
            raise
        progress.say("The hub does not answer: using what was downloaded before")
        check(folder)
        return folder
    wanted = [
        (each.rfilename, each.size or 0)
        for each in info.siblings or ()
        if any(fnmatchcase(each.rfilename, pattern) for pattern in patterns)
        and "/" not in each.rfilename
    ]
    weights = [each for each in wanted if fnmatchcase(each[0], _WEIGHTS)]
    small = [name for name, _ in wanted if not fnmatchcase(name, _WEIGHTS)]
    if not small:
        raise UsageError(
            f"{PREFIX}{repo}: this repository holds no checkpoint.",
            f"For a GGUF file of it, give {PREFIX}{repo}/FILE.gguf to bench or deploy; it needs no "
            "conversion.",
        )
    places = [downloaded(repo, name, progress) for name in small]
    folder = places[0].parent
    check(folder)
    _check_room([each for each in weights if not (folder / each[0]).exists()], repo)
    for name, _ in weights:
        downloaded(repo, name, progress)
    return folder


def _downloaded_before(repo: str) -> Path | None:
    from huggingface_hub import errors, snapshot_download

    with suppress(errors.LocalEntryNotFoundError):
        return Path(snapshot_download(repo, local_files_only=True))
    return None


def _check_room(missing: Sequence[tuple[str, int]], repo: str) -> None:
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE)
    needed = sum(size_bytes for _, size_bytes in missing)
    _, free = free_space(place)
    if needed > free:
        raise DiskError(
            f"{PREFIX}{repo}: the weights take {format_bytes(needed)}, but {place} has "
            f"{format_bytes(free)} free.",
            "Free disk space, or set HF_HUB_CACHE to another folder.",
        )
