"""Git repositories of llama.cpp: some commits made from the pinned source, one of which is slow."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from armload.build.source import BUILT_PARTS, pinned_source
from armload.core.progress import Silent

_WAITS = (
    "for (auto end = std::chrono::steady_clock::now() + std::chrono::microseconds({});"
    " std::chrono::steady_clock::now() < end;) {{}}"
)
_QUICK_TO_COMPILE = "src/llama-impl.cpp"


class LlamaRepository:
    """A repository on this disk with a line of commits, each of which changes one file.

    Args:
        folder: of the repository; made here.
        count: of the commits.
        slow: number of the commit from which on each decode step waits; none never does.
        delay_us: for so long.
        broken: numbers of commits that do not compile.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        slow: int | None = None,
        delay_us: int = 0,
        broken: frozenset[int] = frozenset(),
    ) -> None:
        self.folder = folder
        source = pinned_source().provide(Silent())
        folder.mkdir()
        for part in BUILT_PARTS:
            if (source / part).is_dir():
                shutil.copytree(source / part, folder / part)
            else:
                (folder / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / part, folder / part)
        self._git("init", "-q", "-b", "main")
        self.commits = [self._commit("begin")]
        quick = folder / _QUICK_TO_COMPILE
        whole = quick.read_text(encoding="utf-8")
        for number in range(1, count):
            (folder / "number").write_text(f"{number}\n")
            quick.write_text(whole + ("#error not yet\n" if number in broken else ""))
            if number == slow:
                self._slow_down(delay_us)
            self.commits.append(self._commit(f"change {number}"))

    def _slow_down(self, delay_us: int) -> None:
        path = self.folder / "src" / "llama-context.cpp"
        text = path.read_text(encoding="utf-8")
        begin = re.compile(
            r"^llm_graph_result \* llama_context::process_ubatch\(.*\{$", re.MULTILINE
        )
        changed, times = begin.subn(rf"\g<0>\n    {_WAITS.format(delay_us)}", text)
        assert times == 1
        path.write_text(f"#include <chrono>\n{changed}", encoding="utf-8")

    def _commit(self, subject: str) -> str:
        self._git("add", "-A", "-f")
        self._git("commit", "-q", "-m", subject)
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
        done = subprocess.run(
            ["git", *who, "-c", "commit.gpgSign=false", "-c", "gc.auto=0", *words],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()
