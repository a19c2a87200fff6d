"""A folder with one of everything, in which commands are given and which nothing leads out of."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.fuzz_words import make_world, twin_of

LONGEST_S = 60
_MOST_SLEEPS = 50

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_Hook = Callable[..., None]


class Confinement:
    """Refuses this process what would change something outside a folder, or reach another one.

    Programs cannot be started, addresses not be reached, and no file elsewhere be changed: each
    attempt fails as it would on a machine that lacks the program, network or permission.

    Attributes:
        has_changed: something in the folder may be another than it was.
    """

    def __init__(self, folder: Path) -> None:
        self.has_changed = True
        self._roots = (f"{folder.resolve()}{os.sep}", os.devnull)
        self._hooks: dict[str, _Hook] = {
            "open": self._opened,
            **dict.fromkeys(
                ("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown"), self._at
            ),
            **dict.fromkeys(("os.truncate", "os.utime", "shutil.rmtree"), self._changed),
            **dict.fromkeys(("os.rename", "os.link"), self._both),
            "os.symlink": lambda _, target, at: self._at(target, at),
            **dict.fromkeys(("subprocess.Popen", "os.exec", "os.posix_spawn"), _no_program),
            **dict.fromkeys(("os.system", "os.fork", "os.forkpty", "pty.spawn"), _no_right),
            **dict.fromkeys(("os.kill", "os.killpg"), _no_right),
            **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), _no_network),
            **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname"), _no_name),
        }
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event in self._hooks:
            self._hooks[event](*args)

    def _changed(self, path: str | bytes | int | None, *_rest: object) -> None:
        self.has_changed = True
        if isinstance(path, int) or path is None:
            return
        name = os.path.realpath(os.fsdecode(path))
        if not f"{name}{os.sep}".startswith(self._roots):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    def _at(self, path: str, *rest: object) -> None:
        self.has_changed = True
        if rest and rest[-1] == -1:  # else it is relative to a folder that was opened
            self._changed(path)

    def _both(self, source: str, target: str, *_rest: object) -> None:
        self._changed(source)
        self._changed(target)

    def _opened(self, path: str, _mode: object, flags: object) -> None:
        if isinstance(flags, int) and flags & _WRITING:
            self._changed(path)


def _no_program(*what: object) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(what[0]))


def _no_network(*_what: object) -> NoReturn:
    raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))


def _no_name(*_what: object) -> NoReturn:
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


def _no_right(*_what: object) -> NoReturn:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


class Ended(NamedTuple):
    """How a command line ended, with what it printed."""

    status: object
    out: str
    err: str


class World:
    """A folder with one of everything, in which command lines are given in this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Somebody may work in a folder whose name is no UTF-8.
        self._pristine, self.folder = root / "pristine", twin_of(root / "world")
        self.folder.mkdir()
        make_world(self.folder)
        self.folder.rename(self._pristine)
        self._streams = [(root / f"stream-{number}").open("w+b") for number in (1, 2)]
        self._sleeps = 0
        names = {"HOME": "home", "XDG_CONFIG_HOME": "home/.config", "TMPDIR": "tmp"}
        names |= {"XDG_STATE_HOME": "home/.local/state", "ARMLOAD_CACHE": "cache"}
        os.environ.update({name: str(self.folder / at) for name, at in names.items()})
        os.environ |= {"PATH": "", "ARMLOAD_TRUST": f"{self.folder}:{self.folder}/*"}
        for name in list(os.environ):
            if name.lower().endswith("_proxy") or name in {"SSH_AUTH_SOCK", "ARMLOAD_SSH_PASSWORD"}:
                del os.environ[name]
        tempfile.tempdir = None
        time.sleep = self._sleep  # type: ignore[assignment]
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        self._confinement = Confinement(root)

    def renew(self) -> None:
        """Undo what command lines have changed."""
        if not self._confinement.has_changed:
            return
        os.chdir(self._root)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        shutil.copytree(self._pristine, self.folder, symlinks=True)
        os.chdir(self.folder)
        self._confinement.has_changed = False

    def give(self, words: Sequence[str]) -> Ended:
        """Give a command line; an exception that leaves the program is its status, as a text."""
        for each in self._streams:
            each.seek(0)
            each.truncate()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._sleeps = 0
        sys.argv = ["armload", *words]
        own = [os.dup(number) for number in (1, 2)]
        for number, each in enumerate(self._streams, start=1):
            os.dup2(each.fileno(), number)
        signal.alarm(LONGEST_S)
        try:
            status = _run()
        finally:
            signal.alarm(0)
            for thread in threading.enumerate()[1:]:
                thread.join(LONGEST_S)  # such as what loads the charts meanwhile
            sys.stdout.flush()
            sys.stderr.flush()
            for number, fd in enumerate(own, start=1):
                os.dup2(fd, number)
                os.close(fd)
        return Ended(status, *map(self._read, self._streams))

    @staticmethod
    def _read(stream: io.BufferedRandom) -> str:
        stream.seek(0)
        return stream.read().decode("utf-8", "backslashreplace")

    def _sleep(self, seconds: float, /) -> None:
        del seconds
        self._sleeps += 1
        if self._sleeps > _MOST_SLEEPS:  # somebody presses Ctrl-C
            raise KeyboardInterrupt


def _run() -> object:
    try:
        from armload.cli.main import main

        main()
    except SystemExit as end:
        return end.code or 0
    except BaseException:  # noqa: BLE001 - whatever it is, it is a defect
        return traceback.format_exc()
    return 0


def wrong_with(words: Sequence[str], ended: Ended) -> str:
    """Say what is wrong with how a command line ended; nothing where it ended as all should."""
    from tests.documents import document_of

    status, out, err = ended
    if not isinstance(status, int) or not (0 <= status <= 15 or status == 130):
        return f"it ended with {status}\n{err}"
    if "Traceback" in err or "Internal error" in err:
        return err
    if status and "error:" not in err:
        return f"status {status} without an error: {err}"
    try:
        document_of(words[0], out, status=status)
    except Exception as error:  # noqa: BLE001 - however it does not fit
        return f"status {status}, and the document: {error!r}\n{out}\n{err}"
    return ""
