"""A case: what is typed or called, in which forms, and the files that hold what came of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.golden.pages import chart_text, document_text, page_text
from tests.golden.sandbox import Said, Sandbox, named, replaced

GOLDENS = Path(__file__).parent / "expected"
WIDTHS = (80, 140)
_LONGEST_NAME = 90
_SAME = "(as at 80 columns)\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is typed or called.

    Attributes:
        group: the folder of its files.
        name: of its files, without an ending.
        lines: several commands share a file where each says little.
        widths: of the terminal; none for a pipe.
        has_document: it is also typed with ``--json``.
        has_pages: what stands on pages that it writes is kept, too.
        is_completion: the lines are those at which a shell's completion asks.
        folder: below the sandbox, in which it is typed.
        cache: the folder of the cache.
        stand_ins: what is done instead of functions of the package, by their dotted names.
    """

    group: str
    name: str
    lines: tuple[str, ...] = ()
    widths: tuple[int | None, ...] = WIDTHS
    has_document: bool = False
    is_completion: bool = False
    has_pages: bool = True
    folder: str = "lab"
    cache: str = "cache"
    stand_ins: Mapping[str, object] = field(default_factory=dict)

    def produce(self, sandbox: Sandbox) -> dict[Path, str]:
        """Return the content of each of its files."""
        files: dict[Path, str] = {}
        text = "".join(self._typed(sandbox, line, files) for line in self.lines or ("",))
        files[self._file("txt")] = text
        return files

    def _file(self, ending: str) -> Path:
        return GOLDENS / self.group / f"{self.name}.{ending}"

    def _typed(self, sandbox: Sandbox, line: str, files: dict[Path, str]) -> str:
        parts = [f"$ armload {line}".rstrip() + "\n"]
        first: Said | None = None
        for width in self.widths:
            said = self._say(sandbox, line, width, as_json=False)
            parts += [f"--- {width} columns\n"] if width and len(self.widths) > 1 else []
            parts.append(_SAME if first and first.out == said.out else said.out)
            if first is None or said.err != first.err:
                parts += [f"--- standard error\n{said.err}"] if said.err else []
            if first is None:
                parts += [f"--- status {said.status}\n"] if said.status else []
                parts += self._written(sandbox, said, files)
            first = first or said
        if self.has_document:
            said = self._say(sandbox, line, None, as_json=True)
            files[self._file("json")] = document_text(said.out) if said.out else ""
            parts += [f"--- standard error with --json\n{said.err}"] if said.err else []
            parts += [f"--- status with --json {said.status}\n"] if said.status else []
        return "".join(parts) + "\n"

    def _say(self, sandbox: Sandbox, line: str, width: int | None, *, as_json: bool) -> Said:
        words = ["bash", line] if self.is_completion else shlex.split(line)
        if as_json:
            place = words.index("--") if "--" in words else len(words)
            words.insert(place, "--json")
        with replaced(*((named(name), each) for name, each in self.stand_ins.items())):
            return sandbox.run(
                words,
                folder=self.folder,
                columns=width,
                cache=self.cache,
                complete=self.is_completion,
            )

    def _written(self, sandbox: Sandbox, said: Said, files: dict[Path, str]) -> Iterable[str]:
        """Say what was written, and hold what can be read in files of its own."""
        pages = 0
        for path, content in said.written.items():
            name = Path(path).name
            if name.endswith(".lock") or "/cache/" in path:
                continue
            if content is None:
                yield f"--- removed {path}\n"
                continue
            yield f"--- wrote {path}\n"
            if name.endswith(".html") and self.has_pages:
                text, charts = page_text(sandbox.normalised(content.decode()))
                pages += 1
                number = f"{pages}." if pages > 1 else ""
                files[self._file(f"{number}page.txt")] = text
                if charts:
                    files[self._file(f"{number}charts.txt")] = chart_text(charts)
            elif name.endswith((".yaml", ".md", ".csv")):
                files[self._file(name)] = sandbox.normalised(content.decode())


def slug(line: str) -> str:
    """Return a file's name for a command."""
    return re.sub(r"[^A-Za-z0-9.,=@%_]+", "-", line).strip("-.")[:_LONGEST_NAME] or "nothing"


def typed(
    group: str,
    lines: Sequence[str],
    *,
    widths: tuple[int | None, ...] = WIDTHS,
    has_documents: bool = True,
    has_pages: bool = True,
    folder: str = "lab",
    cache: str = "cache",
) -> list[Case]:
    """Return a case for each command."""
    return [
        Case(
            group=group,
            name=slug(line),
            lines=(line,),
            widths=widths,
            has_document=has_documents,
            has_pages=has_pages,
            folder=folder,
            cache=cache,
        )
        for line in lines
    ]


def gathered(
    group: str,
    tables: Mapping[str, Sequence[str]],
    *,
    folder: str = "lab",
    is_completion: bool = False,
) -> list[Case]:
    """Return a case for each table of commands that say little."""
    return [
        Case(
            group=group,
            name=name,
            lines=tuple(lines),
            widths=(None,),
            folder=folder,
            is_completion=is_completion,
        )
        for name, lines in tables.items()
    ]
