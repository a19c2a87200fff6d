"""A commit of a git repository as the engine's source, fetched once into the cache."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from armload.build.git import GitAnswer, git
from armload.build.repository import Address, GitFailedError, failure
from armload.core.errors import UsageError
from armload.core.locks import locked
from armload.core.progress import Progress, ProgressStep
from armload.core.values import Value
from armload.core.workspace import compiling_folder

_PROGRESS = re.compile(r"(?:remote: )?([A-Z][a-z ]+): +\d+% \((\d+)/(\d+)\)(.*)")


class Commit(Value):
    """One commit of a repository.

    Attributes:
        address: of the repository.
        commit: 40 hexadecimal digits.
    """

    address: Address
    commit: str

    @property
    def label(self) -> str:
        return f"{self.address.shown} at {self.commit[:12]}"

    @property
    def identity(self) -> str:
        """Says which content it is, wherever it came from."""
        return f"git:{self.commit}"

    def provide(self, progress: Progress) -> Path:
        """Fetch and check out the commit, unless that is done, and return its folder."""
        place = compiling_folder("sources") / "git" / f"llama.cpp-{self.commit}"
        if place.is_dir():
            return place
        waiting = f"Another armload process is fetching from {self.address.shown}; waiting for it."
        with (
            locked(Path(f"{place}.lock"), progress, waiting=waiting) as one,
            locked(self.address.folder / "lock", progress, waiting=waiting) as other,
        ):
            if not place.is_dir():
                _Fetch(self, place, progress, (one, other)).run()
        return place


class _Fetch:
    """The way of one commit into the mirror of its repository and from there to its folder."""

    def __init__(
        self, source: Commit, place: Path, progress: Progress, locks: tuple[int, ...]
    ) -> None:
        self._address = source.address
        self._commit = source.commit
        self._place = place
        self._partial = place.with_name(f".{place.name}.partial")
        self._mirror = source.address.folder / "mirror.git"
        self._progress = progress
        self._locks = locks

    def run(self) -> None:
        try:
            self._obtain()
        except GitFailedError:
            # Power may have failed while git wrote to the mirror: once more, without it.
            shutil.rmtree(self._mirror, ignore_errors=True)
            self._obtain()

    def _obtain(self) -> None:
        self._prepare()
        if not self._is_there(f"{self._commit}^{{commit}}"):
            self._fetch()
        self._examine()
        self._check_out()

    def _prepare(self) -> None:
        # Nobody else is at work here: these are of a git that was killed.
        for pattern in ("**/*.lock", "objects/**/tmp_*", "index-*"):
            for left in self._mirror.glob(pattern):
                left.unlink()
        made = self._git(["init", "--bare", "--quiet", "--template=", str(self._mirror)])
        if made.status != 0:
            raise failure(self._address, made)

    def _fetch(self) -> None:
        url = self._address.url
        wanted = f"+{self._commit}:refs/armload/{self._commit}"
        with self._progress.step(f"Fetching {self._commit[:12]}", unit="objects") as step:
            words = ["fetch", "--progress", "--no-tags"]
            answer = self._git([*words, "--depth=1", "--", url, wanted], watch=following(step))
            if re.search("unadvertised object|support shallow", answer.stderr):
                # An old or plain server gives whole branches only.
                whole = ["--unshallow"] if (self._mirror / "shallow").exists() else []
                everything = "+refs/*:refs/armload/all/*"
                answer = self._git([*words, *whole, "--", url, everything], watch=following(step))
        if answer.status == 0:
            return
        if re.search("not our ref|find remote ref", answer.stderr):
            raise no_such_commit(self._address, self._commit)
        raise failure(self._address, answer)

    def _examine(self) -> None:
        whole = self._git(["rev-parse", "--verify", "--quiet", f"{self._commit}^{{commit}}"])
        if whole.status != 0:
            raise no_such_commit(self._address, self._commit)
        if whole.output.strip() != self._commit:
            raise UsageError(
                f"{self._address.shown}: {self._commit} is a tag, not a commit.",
                f"Use its commit: --ref {whole.output.strip()}",
            )
        if not self._is_there(f"{self._commit}:include/llama.h"):
            raise UsageError(
                f"{self._address.shown}: its commit {self._commit[:12]} does not contain "
                "llama.cpp: there is no include/llama.h.",
                "Use a llama.cpp repository and a commit of May 2025 or later.",
            )

    def _check_out(self) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir()
        index = self._mirror / f"index-{self._commit}"
        try:
            with self._progress.step(f"Unpacking {self._commit[:12]}", unit="files") as step:
                answer = git(
                    ["checkout", "--force", "--progress", self._commit, "--", "."],
                    folder=self._partial,
                    environment={
                        "GIT_DIR": str(self._mirror),
                        "GIT_WORK_TREE": str(self._partial),
                        "GIT_INDEX_FILE": str(index),
                    },
                    keep_open=self._locks,
                    watch=following(step),
                )
            if answer.status != 0:
                raise failure(self._address, answer)
            self._partial.rename(self._place)
        finally:
            index.unlink(missing_ok=True)
            shutil.rmtree(self._partial, ignore_errors=True)

    def _is_there(self, thing: str) -> bool:
        return self._git(["cat-file", "-e", thing]).status == 0

    def _git(
        self, words: Sequence[str], *, watch: Callable[[str], None] | None = None
    ) -> GitAnswer:
        return git(
            words,
            folder=self._address.folder,
            environment={"GIT_DIR": str(self._mirror)},
            keep_open=self._locks,
            watch=watch,
        )


def no_such_commit(address: Address, commit: str) -> UsageError:
    return UsageError(
        f"{address.shown}: this repository has no commit {commit}.",
        "Check the digits. The commit may also have been removed when its branch was rewritten.",
    )


def following(step: ProgressStep) -> Callable[[str], None]:
    """Return what shows git's own progress as a step's."""

    def watch(line: str) -> None:
        match = _PROGRESS.match(line)
        if match:
            what, done, total, rest = match.groups()
            step.update(int(done), total=int(total), note=what + rest.removesuffix(", done."))

    return watch
