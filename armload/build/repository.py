"""A git repository elsewhere: its address, and which commit its branches and tags are."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from armload.build.git import GitAnswer, git
from armload.core.errors import ArmloadError, BuildError, UsageError
from armload.core.files import write_whole
from armload.core.package_index import without_login
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value

SCHEMES = ("https", "ssh", "http", "git", "file")
_SCP_LIKE = r"([\w.+~-]+@)?\w[\w.-]*:(?!:|//)\S+"
_NETWORK = (
    r"[Cc]ould not resolve|[Cc]onnection (refused|timed out|reset|closed)|unable to access|"
    r"unable to connect|[Uu]nreachable|No route to host|timed out|hung up|early EOF|too slow|"
    r"disconnect"
)
_LINE_ENDED = "Could not read from remote repository"
_UNKNOWN = (
    r"repository '.*' not found|[Rr]epository not found|does not appear to be a git repository|"
    r"not a git repository|repository not exported"
)
_LOGIN = r"could not read (Username|Password)|Authentication failed|Permission denied|error: 40[13]"


class Address(Value):
    """Where a repository is.

    Attributes:
        url: as git takes it; a password may be in it.
        shown: the same for people, without a user.
    """

    url: str = Field(repr=False)
    shown: str

    @property
    def folder(self) -> Path:
        known = re.sub(r"(\.git)?/*$", "", self.shown)
        name = re.sub(r"[^\w.-]", "", re.split(r"[/:]", known)[-1]).lstrip(".-")[:40]
        digest = hashlib.sha256(known.encode()).hexdigest()[:12]
        return cache_folder() / "sources" / "git" / f"{name or 'repository'}-{digest}"


class UnreachableError(BuildError):
    """A repository's machine does not answer."""


class GitFailedError(BuildError):
    """git failed for a reason of its own."""


def shown(text: str) -> str:
    """Return an address without anything that could be a user or a password."""
    scheme = re.match(r"[A-Za-z][\w+.-]*://", text)
    return (scheme[0] if scheme else "") + text[scheme.end() if scheme else 0 :].rpartition("@")[2]


def address_of(text: str) -> Address | None:
    """Return the address of a repository that a person typed; none when it is not one."""
    if "://" not in text:
        is_one = re.fullmatch(_SCP_LIKE, text, re.ASCII) is not None
        return Address(url=text, shown=shown(text)) if is_one else None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise _malformed() from error
    if parts.scheme not in SCHEMES:
        raise UsageError(
            f"{shown(text)}: a git address must begin with one of "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}.",
            "For a folder, give its path without a scheme.",
        )
    is_odd = re.search(r"[\x00-\x20\x7f]", text) or host.startswith("-")
    if is_odd or not parts.path.strip("/") or (not host and parts.scheme != "file"):
        raise _malformed()
    return Address(url=text, shown=shown(text))


def _malformed() -> UsageError:
    return UsageError(  # whose words do not quote it: half a password may be in it
        "The address of the repository is malformed.",
        "Write it as in https://github.com/ggml-org/llama.cpp; in a user or password, write %2F "
        "for /, %40 for @ and %20 for a space.",
    )


def commit_of(address: Address, ref: str, progress: Progress) -> str:
    """Return the commit, 40 hexadecimal digits, that a branch, tag or commit is at this moment.

    Args:
        ref: a branch, a tag, a whole name such as ``refs/pull/1/head``, or a commit; empty for
            the default branch. A commit with all its digits is not looked up.
    """
    if re.fullmatch(r"[0-9a-fA-F]{40}", ref):
        return ref.lower()
    ref = ref or "HEAD"
    memory = address.folder / "refs" / hashlib.sha256(ref.encode()).hexdigest()[:16]
    try:
        refs = _refs(address, ref, progress)
    except UnreachableError as error:
        raise _with_memory(error, ref, memory) from error
    commit = _found(refs, ref) or _abbreviated(refs, ref)
    if commit is None:
        raise _unknown_ref(address, refs, ref)
    write_whole(memory, f"{commit}\n".encode())
    return commit


def _refs(address: Address, ref: str, progress: Progress) -> Mapping[str, str]:
    """Ask the repository for its refs, by their whole names, with what each one is."""
    is_whole = ref == "HEAD" or ref.startswith("refs/")
    kinds = [] if is_whole else ["--heads", "--tags"]
    patterns = [ref, f"{ref}^{{}}"] if is_whole else []
    with progress.step(f"Asking {address.shown} for its branches and tags"):
        words = ["ls-remote", *kinds, "--", address.url, *patterns]
        answer = git(words, folder=Path("/"))
    if answer.status != 0:
        raise failure(address, answer)
    refs = {}
    for line in answer.output.splitlines():
        commit, _, name = line.partition("\t")
        refs[name] = commit
    return refs


def _found(refs: Mapping[str, str], ref: str) -> str | None:
    found = {}
    for name in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}"):
        commit = refs.get(f"{name}^{{}}") or refs.get(name)
        if commit:
            found[name] = commit
    if len(set(found.values())) > 1:
        raise UsageError(
            f"{ref!r} is both a branch and a tag, of different commits.",
            f"Write --ref {' or --ref '.join(found)}.",
        )
    return next(iter(found.values()), None)


def _abbreviated(refs: Mapping[str, str], ref: str) -> str | None:
    """Return the commit of a branch or tag that begins with the digits that were typed."""
    if re.fullmatch(r"[0-9a-fA-F]{7,39}", ref) is None:
        return None
    found = {commit for commit in refs.values() if commit.startswith(ref.lower())}
    return found.pop() if len(found) == 1 else None


def _unknown_ref(address: Address, refs: Mapping[str, str], ref: str) -> UsageError:
    if re.fullmatch(r"[0-9a-fA-F]{7,39}", ref):
        return UsageError(
            f"{address.shown}: {ref} does not identify the commit of exactly one branch or tag.",
            "Give all 40 digits of the commit.",
        )
    names = [re.sub(r"^refs/(heads|tags)/", "", name) for name in refs if not name.endswith("^{}")]
    near = difflib.get_close_matches(ref, names, n=5)
    branches = [name.removeprefix("refs/heads/") for name in refs if name.startswith("refs/heads/")]
    hint = (
        f"Similar names: {', '.join(near)}. "
        if near
        else f"Its branches are: {', '.join(branches[:5])}{' …' if len(branches) > 5 else ''}. "
    )
    return UsageError(
        f"{address.shown}: this repository has no branch or tag {ref!r}.",
        f"{hint}Give all 40 digits of a commit.",
    )


def _with_memory(error: UnreachableError, ref: str, memory: Path) -> BuildError:
    try:
        commit = memory.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return error
    name = "Its default branch" if ref == "HEAD" else repr(ref)
    return UnreachableError(
        f"{error.message} {name} was the commit {commit} when it was last looked up.",
        f"To build that commit, use --ref {commit}; this needs no network if it was built or "
        "fetched before.",
    )


def failure(address: Address, answer: GitAnswer) -> ArmloadError:
    """Return the error for a question that a repository did not answer."""
    lines = without_login(answer.stderr.replace(address.url, address.shown)).splitlines()
    where = f"{address.shown}: "
    if answer.status is None:
        return _unreachable(where, "it does not answer")
    if line := _first(_LOGIN, lines):
        return BuildError(
            f"{where}there is no such repository, or it needs a login: {line}.",
            "Check the address. armload never asks for a password: set up a credential helper or "
            "an SSH key, so that 'git ls-remote' of this address does not ask for one.",
        )
    if _first("Host key verification failed", lines):
        return BuildError(
            f"{where}its host key is not known on this machine.",
            "Connect to it once with ssh and check its key, then repeat the command.",
        )
    if line := _first(_UNKNOWN, lines):
        return UsageError(f"{where}there is no such repository: {line}.", "Check the address.")
    if line := _first(_NETWORK, lines):
        return _unreachable(where, line)
    line = _first("^(fatal|error):", lines) or f"git exited with status {answer.status}"
    if _LINE_ENDED in line:
        return _unreachable(where, line)
    return GitFailedError(f"{where}git failed: {line}.")


def _first(pattern: str, lines: Sequence[str]) -> str:
    found = (line.strip().rstrip(".") for line in lines if re.search(pattern, line))
    return next(found, "")


def _unreachable(where: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"{where}this repository cannot be reached: {why}.",
        "Check the network and the address, then repeat the command.",
    )
