"""Checkpoints from the Hugging Face hub, named ``hf:ORG/REPO``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from armload.core.disk import free_space
from armload.core.errors import ConnectError, DiskError, UsageError
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.models.hub import PREFIX, asking, downloaded, need_library

_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)", re.ASCII)
_WEIGHTS = "*.safetensors"


def repository_of(reference: str) -> str:
    """Return the repository that ``hf:ORG/REPO`` names.

    Raises:
        UsageError: the reference is malformed.
    """
    match = _REFERENCE.fullmatch(reference)
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
