"""The two hubs that models come from: where they keep files, and what their refusals mean."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import quote

from armload.core.download import Refusal, Remote, opened, whole_body
from armload.core.errors import ArmloadError, ConnectError, DataError, UsageError
from armload.core.progress import Progress
from armload.core.values import Value, parse_json
from armload.models.hub_cache import (
    expanded,
    hugging_face_cache,
    hugging_face_home,
    model_scope_cache,
)
from armload.models.hub_refusals import (
    RefusedTokenError,
    Token,
    from_elsewhere,
    said,
    set_aside,
    usable,
)

if TYPE_CHECKING:
    from requests import Response

HubKind = Literal["model", "dataset"]
"""Of a repository, as the hub calls it."""

_MOST_LIST_BYTES = 16 << 20
"""Of a list of files: some 60,000 names, with sizes and checksums."""
_TOKEN = re.compile(r"[!-:<-~]+")
_DIGEST = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class HubFile(Value):
    """A file of a repository.

    Attributes:
        path: in the repository.
        size_bytes: of it; none where the hub does not say.
        digest: as in ``Remote``.
    """

    path: str
    size_bytes: int | None
    digest: str


class RepositoryListing(Value):
    """What a repository holds at a revision.

    Attributes:
        commit: names the content: 40 hexadecimal digits or more.
        files: in the hub's order.
    """

    commit: str
    files: tuple[HubFile, ...]


class HubSite(Protocol):
    prefix: str
    """What references begin with."""
    name: str
    """The hub's, for people."""
    default_revision: str

    @property
    def cache(self) -> Path:
        """The folder that downloads are kept in."""

    @property
    def cache_remedy(self) -> str:
        """How to keep them elsewhere."""

    @property
    def is_offline(self) -> bool:
        """Whether the hub must not be asked."""

    def listing(self, repo: str, kind: HubKind, revision: str) -> Remote:
        """Return where the list of a repository's files is."""

    def read_listing(self, answer: Mapping[str, object]) -> RepositoryListing:
        """Read that list.

        Raises:
            LookupError, TypeError, ValueError, AttributeError: it is no list.
        """

    def file(self, repo: str, kind: HubKind, revision: str, file: HubFile) -> Remote:
        """Return where a file is."""

    def refused(self, answer: Response, repo: str, revision: str, path: str) -> ArmloadError:
        """Return the error for what the hub answered instead of a list or a file."""


class HuggingFace:
    """https://huggingface.co or a mirror. API: https://huggingface.co/docs/hub/api."""

    prefix = "hf:"
    name = "the Hugging Face Hub"
    default_revision = "main"

    @property
    def cache(self) -> Path:
        return hugging_face_cache()

    cache_remedy = "set HF_HUB_CACHE to another folder"

    @property
    def is_offline(self) -> bool:
        return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}

    def listing(self, repo: str, kind: HubKind, revision: str) -> Remote:
        """Return where facts and files of a repository are listed, with sizes and checksums."""
        path = f"api/{kind}s/{repo}/revision/{quote(revision, safe='')}?blobs=true"
        return self._remote(path, repo)

    def read_listing(self, answer: Mapping[str, object]) -> RepositoryListing:
        """Large files have a SHA-256 under ``lfs``, small ones git's ``blobId``."""
        if not (commit := _digest(answer["sha"])):
            raise ValueError("sha")
        return RepositoryListing(
            commit=commit,
            files=tuple(
                HubFile(
                    path=str(each["rfilename"]),
                    size_bytes=_size(each.get("size")),
                    digest=_large_file_digest(each) or _digest(each.get("blobId")),
                )
                for each in _entries(answer["siblings"])
            ),
        )

    def file(self, repo: str, kind: HubKind, revision: str, file: HubFile) -> Remote:
        """Return where a file is; the answer redirects to a content delivery network."""
        folder = "datasets/" if kind == "dataset" else ""
        path = f"{folder}{repo}/resolve/{quote(revision, safe='')}/{quote(file.path)}"
        return self._remote(path, f"{repo}/{file.path}", file)

    def refused(self, answer: Response, repo: str, revision: str, path: str) -> ArmloadError:
        """Read ``X-Error-Code``; without a login, 401 also answers for what does not exist."""
        code, message = said(answer, "X-Error-Code"), said(answer, "X-Error-Message")
        token = self._token()
        renew = "set HF_TOKEN, or run `hf auth login` (of the package huggingface-hub)"
        login = f"replace the token: {renew}" if token.text else renew
        page = f"{self._endpoint()}/{repo}"
        if code == "GatedRepo":
            return UsageError(
                f"Access to {repo} on {self.name} is restricted.",
                f"Accept its conditions at {page}, then {login}.",
            )
        if answer.status_code == HTTPStatus.UNAUTHORIZED and token.text:
            return RefusedTokenError(token, self.name, renew)
        if not (code or message) and (error := from_elsewhere(answer, self.name, repo)):
            return error
        if answer.status_code == HTTPStatus.FORBIDDEN or code == "DisabledRepo":
            return UsageError(
                f"{self.name[0].upper()}{self.name[1:]} refuses access to {repo}: "
                f"{(message or code).rstrip('.')}.",
                f"See {page}. If the token lacks a permission, {login}.",
            )
        if code == "RevisionNotFound":
            return UsageError(
                f"{repo} on {self.name} has no revision {revision!r}.",
                f"Give a branch, tag or commit of {page}/commits/main.",
            )
        if code == "EntryNotFound":
            return UsageError(
                f"{repo} on {self.name} has no file {path}.", f"See the files at {page}/tree/main."
            )
        if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
            return UsageError(
                f"There is no repository {repo} on {self.name}, or it is private.",
                f"Check the spelling. For a private one, {login}.",
            )
        return _unexpected(answer, self.name, repo)

    def _remote(self, path: str, label: str, file: HubFile | None = None) -> Remote:
        token = self._token()
        return Remote(
            url=f"{self._endpoint()}/{path}",
            label=label,
            size_bytes=file.size_bytes if file else None,
            digest=file.digest if file else "",
            login=_login("Authorization", "Bearer ", token.text),
        )

    @staticmethod
    def _endpoint() -> str:
        return _address(os.environ.get("HF_ENDPOINT") or "huggingface.co")

    @staticmethod
    def _token() -> Token:
        for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            if token := os.environ.get(variable, "").strip():
                return usable(Token(token, variable))
        chosen = os.environ.get("HF_TOKEN_PATH")
        path = expanded(chosen) if chosen else hugging_face_home() / "token"
        with suppress(OSError, UnicodeDecodeError):
            return usable(Token(path.read_text(encoding="utf-8").strip(), str(path)))
        return Token()


class ModelScope:
    """https://www.modelscope.cn; its API as its own library uses it (``modelscope/hub``)."""

    prefix = "ms:"
    name = "ModelScope"
    default_revision = "master"
    cache_remedy = "set ARMLOAD_CACHE to another folder"
    is_offline = False

    @property
    def cache(self) -> Path:
        return model_scope_cache()

    def listing(self, repo: str, kind: HubKind, revision: str) -> Remote:
        """Return where a model's files are listed, with sizes and checksums."""
        del kind
        query = f"Revision={quote(revision, safe='')}&Recursive=true"
        return self._remote(f"{repo}/repo/files?{query}", repo)

    def read_listing(self, answer: Mapping[str, object]) -> RepositoryListing:
        """The hub names no commit of the whole: the files' checksums do instead."""
        if answer.get("Success") is False:
            raise UsageError(
                f"{self.name} refuses to list the files: {answer.get('Message') or 'no reason'}.",
                "Check the spelling. For a private repository, set MODELSCOPE_API_TOKEN.",
            )
        data = answer["Data"]
        if not isinstance(data, dict):
            raise TypeError("Data")
        files = tuple(
            HubFile(
                path=str(each["Path"]),
                size_bytes=_size(each.get("Size")),
                digest=_digest(each.get("Sha256")),
            )
            for each in _entries(data["Files"])
            if each.get("Type") != "tree"
        )
        lines = "".join(f"{each.path} {each.size_bytes} {each.digest}\n" for each in files)
        return RepositoryListing(commit=hashlib.sha256(lines.encode()).hexdigest(), files=files)

    def file(self, repo: str, kind: HubKind, revision: str, file: HubFile) -> Remote:
        """Return where a file is; the answer may redirect to a content delivery network."""
        del kind
        query = f"Revision={quote(revision, safe='')}&FilePath={quote(file.path, safe='')}"
        return self._remote(f"{repo}/repo?{query}", f"{repo}/{file.path}", file)

    def refused(self, answer: Response, repo: str, revision: str, path: str) -> ArmloadError:
        """Read the status: the hub has no codes for what is missing."""
        page = f"{self._endpoint()}/models/{repo}"
        is_own = "json" in answer.headers.get("Content-Type", "json")
        if not is_own and (error := from_elsewhere(answer, self.name, repo)):
            return error
        token = self._token()
        if answer.status_code == HTTPStatus.UNAUTHORIZED and token.text:
            return RefusedTokenError(token, self.name, token.origin)
        if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return UsageError(
                f"Access to {repo} on {self.name} is restricted.",
                f"Request access at {page}, then set MODELSCOPE_API_TOKEN.",
            )
        if answer.status_code == HTTPStatus.NOT_FOUND:
            what = f"no file {path} in {repo}" if path else f"no repository {repo}"
            return UsageError(
                f"There is {what} on {self.name} at revision {revision!r}, or it is private.",
                "Check the spelling. For a private one, set MODELSCOPE_API_TOKEN.",
            )
        return _unexpected(answer, self.name, repo)

    def _remote(self, path: str, label: str, file: HubFile | None = None) -> Remote:
        return Remote(
            url=f"{self._endpoint()}/api/v1/models/{path}",
            label=label,
            size_bytes=file.size_bytes if file else None,
            digest=file.digest if file else "",
            login=_login("Cookie", "m_session_id=", self._token().text),
        )

    @staticmethod
    def _token() -> Token:
        variable = "MODELSCOPE_API_TOKEN"
        return usable(Token(os.environ.get(variable, "").strip(), variable))

    @staticmethod
    def _endpoint() -> str:
        chosen = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN")
        return _address(chosen or "www.modelscope.cn")


SITES: tuple[HubSite, ...] = (HuggingFace(), ModelScope())


def listed(
    site: HubSite, repo: str, kind: HubKind, revision: str, progress: Progress
) -> RepositoryListing:
    """Ask a hub what a repository holds; without the token where the hub does not accept it.

    Raises:
        ConnectError: the hub cannot be reached, or answers with something else.
    """
    progress.say(f"Looking up {repo} on {site.name}")
    try:
        return _listed(site, repo, kind, revision, progress)
    except RefusedTokenError as error:
        progress.say(f"{error.message} Asking without it.")
        set_aside(error.token)
        try:
            return _listed(site, repo, kind, revision, progress)
        except UsageError as without:
            raise UsageError(without.message, f"{error.message} {error.remedy}") from without


def _listed(
    site: HubSite, repo: str, kind: HubKind, revision: str, progress: Progress
) -> RepositoryListing:
    where = site.listing(repo, kind, revision)
    with opened(where, progress, refusal(site, repo, revision)) as answer:
        content = whole_body(where, answer, _MOST_LIST_BYTES)
        try:
            listing = site.read_listing(parse_json(content))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConnectError(
                f"{where.host} did not answer with a list of the files of {repo}.",
                "Check the address of the hub or mirror, and try again later.",
            ) from error
    for each in listing.files:
        path = PurePosixPath(each.path)
        odd = (
            not each.path
            or not each.path.isprintable()
            or "\\" in each.path
            or each.path != path.as_posix()
        )
        if odd or path.is_absolute() or ".." in path.parts:
            raise DataError(
                f"{site.prefix}{repo}: the hub lists a file called {each.path!r}, which is not a "
                "valid path in a repository.",
                "Nothing was downloaded. Do not use this repository or mirror.",
            )
    return listing


def refusal(site: HubSite, repo: str, revision: str, path: str = "") -> Refusal:
    """Return what makes the hub's errors of its answers."""
    return lambda answer: site.refused(answer, repo, revision, path)


def _entries(value: object) -> Iterator[Mapping[str, object]]:
    if not isinstance(value, Sequence):
        raise TypeError("files")
    for each in value:
        if not isinstance(each, Mapping):
            raise TypeError("file")
        yield each


def _size(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None


def _digest(value: object) -> str:
    text = str(value or "").lower()
    return text if _DIGEST.fullmatch(text) else ""


def _large_file_digest(entry: Mapping[str, object]) -> str:
    facts = entry.get("lfs")
    return _digest(facts.get("sha256")) if isinstance(facts, Mapping) else ""


def _address(text: str) -> str:
    return (text if "://" in text else f"https://{text}").rstrip("/")


def _login(header: str, words: str, token: str) -> Mapping[str, str]:
    if not token:
        return {}
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            "The token for the hub contains spaces or characters that a token cannot contain.",
            "Set it again, without quotation marks or line breaks.",
        )
    return {header: words + token}


def _unexpected(answer: Response, name: str, repo: str) -> ConnectError:
    reason = f" {answer.reason}" if answer.reason else ""
    return ConnectError(
        f"{name[0].upper()}{name[1:]} answers HTTP {answer.status_code}{reason} for {repo}.",
        "Try again later, or download the file elsewhere and give its path.",
    )
