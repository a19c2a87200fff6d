"""The program ``armload`` as a process of its own that need not import all its modules again.

One process for each that tests imports them once, and forks for each command: start-up is half of
what most commands cost, and the same each time. Tests of the start itself start it in full.
"""

from __future__ import annotations

import array
import functools
import gc
import importlib
import json
import os
import pkgutil
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

_ARMLOAD = Path(sys.executable).with_name("armload")
_READ_AT_START = re.compile(r"PYTHON|LANG$|LC_|LD_|TZ$|SSL_|MALLOC_")
"""Environment variables that a process looks at while it starts."""
_NEEDED_LATE = ("fabric", "jinja2", "numpy", "psutil", "rich.progress", "vl_convert")
_STATUS = struct.Struct("i")
_ENVIRONMENT = dict(os.environ)
"""Before any test changes it."""


class Forked(subprocess.Popen[str]):
    """A process of ``armload``, like one that ``subprocess`` starts."""

    _ended: socket.socket

    @classmethod
    def can_be(cls, words: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Say whether a command's process would be the same as if it were started in full."""
        return words[0] == str(_ARMLOAD) and _at_start(environment) == _at_start(_ENVIRONMENT)

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        # The folder comes fifth, then the environment, and from the tenth the ends of three pipes.
        cwd, env = more[4], more[5]
        pipes = stdin, _, _, stdout, _, stderr = more[9:15]
        request = json.dumps({"words": list(args), "cwd": os.fspath(cwd), "environment": dict(env)})
        try:
            self._ended = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._ended.connect(str(_server()))
            streams = array.array("i", [stdin, stdout, stderr])
            self._ended.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
            self._ended.sendall(request.encode() + b"\n")
            (self.pid,) = _STATUS.unpack(self._ended.recv(_STATUS.size, socket.MSG_WAITALL))
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if lock.acquire(blocking=False):  # otherwise another thread is waiting
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                lock.release()
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        self._ended.setblocking(not flags & os.WNOHANG)
        try:
            said = self._ended.recv(_STATUS.size)
        except BlockingIOError:
            return 0, 0
        self._ended.close()
        (status,) = _STATUS.unpack(said)
        return self.pid, status


def popen(words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a command with pipes, as ``subprocess.Popen`` does; ``armload`` by a fork."""
    kind = Forked if Forked.can_be(words, options["env"]) else subprocess.Popen
    return kind(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"stdin": subprocess.DEVNULL, **options},
    )


def run(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with popen(words, **options) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if _READ_AT_START.match(name)}


@functools.cache
def _server() -> Path:
    """Start what forks; it ends when this process does, or a moment later."""
    folder = tempfile.mkdtemp(prefix="armload-tests-")
    place = Path(folder) / "commands"
    process = subprocess.Popen(
        [sys.executable, __file__, str(place)], env=_ENVIRONMENT, stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    weakref.finalize(Forked, _end, process, place)
    while not place.exists():
        assert process.poll() is None, "what forks did not start"
        time.sleep(0.02)
    return place


def _end(process: subprocess.Popen[bytes], place: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    place.unlink(missing_ok=True)
    place.parent.rmdir()


def skip_unused_grammars() -> None:
    """Spare a process without ``conftest.py`` the seconds that are spared there."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def _import_all() -> None:
    import armload

    skip_unused_grammars()

    for module in pkgutil.walk_packages(armload.__path__, "armload."):
        # Dask reads its configuration, a command's environment say, when it is imported.
        if not module.name.endswith(("_process", "__main__", "fleet.data_only")):
            with suppress(ImportError):  # what is for tasks that need further packages
                importlib.import_module(module.name)
    for name in _NEEDED_LATE:
        importlib.import_module(name)
    from armload.core.shell import _environment

    templates = _environment()
    for name in templates.list_templates(["j2"]):
        templates.get_template(name)


def _serve(place: Path, on_interrupt: Any) -> dict[str, Any] | None:
    """Fork for each request; return it in the fork, and nothing once nobody asks any more."""
    waiting: dict[int, socket.socket] = {}
    woken, wakes = socket.socketpair()
    woken.settimeout(0)
    wakes.settimeout(0)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    beside = place.with_suffix(".new")
    listener.bind(str(beside))
    listener.listen(64)
    beside.rename(place)
    with selectors.DefaultSelector() as selector:
        for source in (listener, woken, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if sys.stdin in ready:
                return None
            if woken in ready:
                with suppress(BlockingIOError):
                    woken.recv(4096)
            _reap(waiting)
            if listener not in ready:
                continue
            line, _ = listener.accept()
            _, rights, *_ = line.recvmsg(1, socket.CMSG_SPACE(3 * array.array("i").itemsize))
            streams = array.array("i", rights[0][2])
            with line.makefile("rb") as file:
                request: dict[str, Any] = json.loads(file.readline())
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, on_interrupt)
                for each in (line, listener, woken, wakes, *waiting.values()):
                    each.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                return request
            waiting[pid] = line
            line.sendall(_STATUS.pack(pid))
            for stream in streams:
                os.close(stream)


def _reap(waiting: dict[int, socket.socket]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with closing(waiting.pop(pid)) as line, suppress(OSError):
            line.sendall(_STATUS.pack(status))


def _become(request: dict[str, Any]) -> None:
    """Make of this fork what a command's process is when its program begins."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = request["words"]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding=now.encoding, errors=now.errors, closefd=False)  # noqa: SIM115
        for number, mode, now in zip(
            range(3), "rww", (sys.stdin, sys.stdout, sys.stderr), strict=True
        )
    )


if __name__ == "__main__":
    # A terminal's Ctrl-C is for the tests, whose end then ends this process, and for the forks.
    at_start = signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[0] = str(_ARMLOAD.parent)
    _import_all()
    gc.collect()
    gc.freeze()
    asked = _serve(Path(sys.argv[1]), at_start)
    if asked is not None:
        from armload.cli.main import main

        _become(asked)
        main()
