"""A machine of which nothing changes: folders, clock, environment and chance are always the same.

Commands run in this process, each in a fresh copy of the recorded folders. What differs from one
machine to the next is frozen here, or replaced in what was said.
"""

from __future__ import annotations

import importlib
import io
import itertools
import os
import pkgutil
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Self
from unittest import mock

import jinja2

import armload
from armload.cli import program, progress, terminal
from armload.cli.completion.answer import answer
from armload.cli.streams import promise_document
from armload.core.cache import disk_usage
from armload.core.options import Declared, OptionGroup, declared_options
from armload.core.progress import Labelled, Progress, ProgressStep
from armload.core.trust import VARIABLE
from armload.fleet import threads
from armload.report import drawing, pages

RECORDED = Path(__file__).parent / "recorded"
INSTALLATION = Path(armload.__file__).parents[1]
SHOWN = "/srv/armload"
"""The folder's name in golden files; as long as its real one, so that lines break alike."""

_QUOTED = re.compile(rf"'({re.escape(str(INSTALLATION))}[^' ]*)'")
UNWATCHED = "headers"
"""A cache whose content stays, because it takes long to make and nothing lists it."""

_NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
_RECORDED_S = datetime(2026, 11, 27, 12, 0, 0, tzinfo=UTC).timestamp()
_LATE = ("_process", "__main__", "fleet.client", "fleet.data_only")
_PICTURE = "<svg></svg>"
_VERSION = re.compile(r"\barmload \d+\.\d+\.\d+\b", re.IGNORECASE)


class Frozen(datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(_NOW.timestamp(), tz)


class _Quiet(progress.Lines):
    """Says what a command says, and nothing of how long its steps take."""

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        del label, total, unit

        class Step:
            def update(self, completed: float, **_: Any) -> None:
                del completed

        yield Step()


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command said and left.

    Attributes:
        written: content of each file that it wrote or changed, by its path; none for one that it
            removed.
    """

    out: str
    err: str
    status: int
    written: dict[str, bytes | None] = field(default_factory=dict)


class Sandbox:
    """The folders in which commands run.

    Args:
        heard: is called with each function that is ``observed``, and the frame that called it.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="", dir=os.path.realpath("/tmp")))
        short = self.folder.with_name(self.folder.name[:7].ljust(7, "0"))
        self.folder = self.folder.rename(short)
        assert len(str(self.folder)) == len(SHOWN), self.folder
        self.lab = self.folder / "lab"
        shutil.copytree(RECORDED, self.folder, dirs_exist_ok=True)
        for place in ("home", "cache", "lab/boards"):
            (self.folder / place).mkdir(exist_ok=True, parents=True)
        for number, path in enumerate(sorted(self.folder.rglob("*"))):
            os.utime(path, (_RECORDED_S, _RECORDED_S + number))
        self._manifest = self._files()
        self._folders = {self.folder} | {path for path in self.folder.rglob("*") if path.is_dir()}
        self._age_folders()

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def run(
        self,
        words: Sequence[str],
        *,
        folder: str = "lab",
        columns: int | None,
        cache: str = "cache",
        complete: bool = False,
    ) -> Said:
        """Run ``armload`` with some words.

        Args:
            folder: in which they are typed, below the sandbox.
            columns: of the terminal; none for a pipe, whose lines are not broken.
            cache: the folder of the cache.
            complete: the words are those that a shell's completion gives.
        """
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder / "home"),
            "ARMLOAD_CACHE": str(self.folder / cache),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "TERM": "dumb",
            VARIABLE: f"{self.folder}:{self.folder}/*",
            **({} if columns is None else {"COLUMNS": str(columns)}),
        }
        typed = ["armload", *words]
        with _environment(environment, self.folder / folder, typed), _streams() as streams:
            try:
                if complete:
                    answer(words)
                else:
                    program.run()
                status: object = 0
            except SystemExit as end:
                status = end.code
            out, err = (stream.getvalue().decode() for stream in streams)
        written = self._restored()
        return Said(
            out=self.normalised(out),
            err=self.normalised(err),
            status=status if isinstance(status, int) else 0,
            written={self.normalised(name): content for name, content in written.items()},
        )

    def normalised(self, text: str) -> str:
        """Replace what differs from one machine to the next."""
        text = _QUOTED.sub(r"\1", text.replace(str(self.folder), SHOWN))
        text = text.replace(str(INSTALLATION), "<installation>")
        return _VERSION.sub("armload VERSION", text)

    def _files(self) -> dict[str, tuple[int, int]]:
        begin = len(str(self.folder)) + 1
        found = {}
        for folder, folders, names in os.walk(self.folder):
            if UNWATCHED in folders:
                folders.remove(UNWATCHED)
            for name in names:
                path = f"{folder}/{name}"
                state = os.lstat(path)
                found[path[begin:]] = (state.st_mtime_ns, state.st_size)
        return found

    def _restored(self) -> dict[str, bytes | None]:
        """Put every file back as it was recorded, and return what those that changed had become."""
        now, changed = self._files(), {}
        if now == self._manifest:
            return {}
        for name in sorted(now.keys() | self._manifest.keys()):
            if now.get(name) == self._manifest.get(name):
                continue
            path = self.folder / name
            changed[f"{SHOWN}/{name}"] = path.read_bytes() if name in now else None
            if name in self._manifest:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(RECORDED / name, path)
                mtime_ns = self._manifest[name][0]
                os.utime(path, ns=(mtime_ns, mtime_ns))
            else:
                path.unlink()
        for folder, _, _ in os.walk(self.folder, topdown=False):
            if Path(folder) not in self._folders and UNWATCHED not in folder:
                Path(folder).rmdir()
        self._age_folders()
        return changed

    def _age_folders(self) -> None:
        for path in self._folders:
            os.utime(path, (_RECORDED_S, _RECORDED_S))


@contextmanager
def _environment(environment: dict[str, str], folder: Path, words: Sequence[str]) -> Iterator[None]:
    before, argv, here = dict(os.environ), sys.argv, Path.cwd()
    stdin = sys.stdin
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    time.tzset()
    sys.argv = list(words)
    sys.stdin = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    numbers = itertools.count(1)
    token_hex = secrets.token_hex
    secrets.token_hex = lambda nbytes=None: f"{next(numbers):0{2 * (nbytes or 32)}x}"
    try:
        yield
    finally:
        secrets.token_hex = token_hex
        os.environ.clear()
        os.environ.update(before)
        os.chdir(here)
        time.tzset()
        sys.argv, sys.stdin = argv, stdin


@contextmanager
def _streams() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    out, err = io.BytesIO(), io.BytesIO()
    before = sys.stdout, sys.stderr
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", write_through=True)
    terminal.errors.cache_clear()
    terminal.results.cache_clear()
    promise_document(wanted=False)
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before
        terminal.errors.cache_clear()
        terminal.results.cache_clear()


def import_all() -> None:
    """Import every module, so that what is replaced in them is replaced in all."""
    for module in pkgutil.walk_packages(armload.__path__, "armload."):
        if not module.name.endswith(_LATE):
            try:
                importlib.import_module(module.name)
            except ImportError:  # what is for tasks that need further packages
                continue


def named(name: str) -> object:
    """Return what a dotted name means."""
    module, _, last = name.rpartition(".")
    return getattr(sys.modules[module], last)


@contextmanager
def replaced(*changes: tuple[object, object]) -> Iterator[None]:
    """Replace functions and classes in every module of armload that knows them."""
    done: list[tuple[Any, str, object]] = []
    if not changes:
        yield
        return
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "armload":
            continue
        for key, value in list(vars(module).items()):
            for old, new in changes:
                if value is old:
                    done.append((module, key, value))
                    setattr(module, key, new)
    try:
        yield
    finally:
        for module, key, value in done:
            setattr(module, key, value)


def _content_bytes(paths: Iterable[Path]) -> int:
    """Return the size of files; what they take on a disk depends on its file system."""
    every = [each for path in paths for each in (path, *path.rglob("*"))]
    return sum(each.stat().st_size for each in every if each.is_file())


_compile = jinja2.Environment.compile
_templates: dict[tuple[object, ...], Any] = {}


def _compiled(environment: jinja2.Environment, *source: Any, **how: Any) -> Any:
    """Compile each template once, and not for every page."""
    key = (*source, *how.items())
    if key not in _templates:
        _templates[key] = _compile(environment, *source, **how)
    return _templates[key]


@cache
def _declared(options: type[OptionGroup]) -> tuple[Declared, ...]:
    return tuple(declared_options(options))


def _one_after_another(crew: Any, boards: Sequence[str], progress: Progress) -> None:
    for board in boards:
        crew.serve(board, Labelled(progress, board))


@contextmanager
def frozen() -> Iterator[None]:
    """Stop the clock, draw no picture, and report no step."""
    with (
        mock.patch.object(threads._Crew, "serve_all", _one_after_another),
        mock.patch.object(jinja2.Environment, "compile", _compiled),
        replaced(
            (datetime, Frozen),
            (drawing.png, lambda _: b"a picture"),
            (drawing.svg, lambda _: _PICTURE),
            (drawing.inline_svg, lambda _: _PICTURE),
            (pages.libraries, lambda: ""),
            (disk_usage, _content_bytes),
            (declared_options, _declared),
            (terminal.progress, lambda: _Quiet(terminal.errors())),
        ),
    ):
        yield
