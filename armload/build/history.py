"""The commits between two of a repository, in the order in which git bisects them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from armload.build.commit import following, no_such_commit
from armload.build.git import GitAnswer, git
from armload.build.repository import Address, failure
from armload.core.errors import UsageError
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.values import Value

_NAMES = "+refs/*:refs/armload/all/*"


class CommitTitle(Value):
    """What a person knows a commit by."""

    subject: str
    date: str


class CommitHistory:
    """What lies between a good and a bad commit; of the commits' files it needs none."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._mirror = address.folder / "history.git"

    def suspects(self, bad: str, good: Sequence[str]) -> Sequence[str]:
        """Return the commits that could be the first bad one, the best to try first."""
        listed = self._answer(["rev-list", "--bisect-all", bad, "--not", *good])
        return [line.split()[0] for line in listed.splitlines()]

    def parent(self, commit: str) -> str:
        return self._answer(["rev-parse", f"{commit}^1"]).strip()

    def title(self, commit: str) -> CommitTitle:
        """Return what a commit is called, and the day on which it was made."""
        date, _, subject = self._answer(
            ["show", "--no-patch", "--format=%cs %s", commit]
        ).partition(" ")
        return CommitTitle(subject=subject.strip(), date=date)

    def fetch(self, good: str, bad: str, progress: Progress) -> None:
        """Fetch the history of both commits, and check that one leads to the other."""
        waiting = f"Another armload is fetching from {self._address.shown}; waiting for it."
        with locked(self._address.folder / "lock", progress, waiting=waiting) as held:
            made = self._git(["init", "--bare", "--quiet", "--template=", str(self._mirror)])
            if made.status != 0:
                raise failure(self._address, made)
            for commit in (bad, good):
                if not self._is_there(commit):
                    self._fetch(commit, progress, held)
        self._check_order(good, bad)

    def _fetch(self, commit: str, progress: Progress, lock: int) -> None:
        remote = self._address.url
        words = ["fetch", "--progress", "--no-tags", "--update-shallow"]
        if not remote.startswith("file:"):
            # Commits without files, as far as a server can; folders usually refuse that.
            words += ["--filter=tree:0"]
        with progress.step(f"Fetching the history of {commit[:12]}", unit="objects") as step:
            for wanted in (f"+{commit}:refs/armload/{commit}", _NAMES):
                answer = git(
                    ["-c", f"remote.armload.url={remote}", *words, "armload", wanted],
                    folder=self._address.folder,
                    environment=self._environment,
                    keep_open=(lock,),
                    watch=following(step),
                )
                if "unadvertised object" not in answer.stderr:
                    break
        if answer.status == 0 and self._is_there(commit):
            return
        if self._is_shallow:
            raise self._shallow()
        if answer.status == 0 or re.search("not our ref|find remote ref", answer.stderr):
            raise no_such_commit(self._address, commit)
        raise failure(self._address, answer)

    def _check_order(self, good: str, bad: str) -> None:
        if good == bad:
            raise UsageError(
                f"--good and --bad are the same commit, {good[:12]}.",
                "Name a commit that is fast, and a later one that is slow.",
            )
        if self._is_ancestor(good, bad):
            return
        if self._is_ancestor(bad, good):
            raise UsageError(
                f"The good commit {good[:12]} comes after the bad one {bad[:12]}.",
                "Swap --good and --bad. armload cannot search for the commit that made it faster.",
            )
        if self._is_shallow:
            raise self._shallow()
        base = self._git(["merge-base", good, bad]).output.strip()
        raise UsageError(
            f"The good commit {good[:12]} is on another branch than the bad one {bad[:12]}.",
            f"Use the last commit that both have, if it is good: --good {base}"
            if base
            else "The two have no history in common.",
        )

    @property
    def _is_shallow(self) -> bool:
        return (self._mirror / "shallow").exists()

    def _shallow(self) -> UsageError:
        shutil.rmtree(self._mirror)  # or it stays so when the repository no longer is
        return UsageError(
            f"{self._address.shown}: this repository is shallow: the history between the two "
            "commits is missing.",
            "Complete it there with 'git fetch --unshallow', or use the repository that it was "
            "cloned from as --source.",
        )

    def _is_ancestor(self, one: str, other: str) -> bool:
        return self._git(["merge-base", "--is-ancestor", one, other]).status == 0

    def _is_there(self, commit: str) -> bool:
        return self._git(["cat-file", "-e", f"{commit}^{{commit}}"]).status == 0

    def _answer(self, words: Sequence[str]) -> str:
        answer = self._git(words)
        if answer.status != 0:
            raise failure(self._address, answer)
        return answer.output

    @property
    def _environment(self) -> dict[str, str]:
        return {"GIT_DIR": str(self._mirror), "GIT_NO_LAZY_FETCH": "1"}

    def _git(self, words: Sequence[str]) -> GitAnswer:
        return git(words, folder=Path(self._address.folder), environment=self._environment)
