"""Runs git so that it never asks anybody, never waits for ever, and never shows a login."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from armload.core.children import end, known
from armload.core.errors import MissingToolError
from armload.core.package_index import without_login

PATIENCE_S = 120.0
"""git says every second how far it is; one that is silent for so long waits for a dead server."""
_POLL_S = 0.5
_NEVER_ASKING = {
    "LC_ALL": "C",  # its words are read
    "LANGUAGE": "",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
_OF_ITS_WAY_TO_A_SERVER = ("GIT_CONFIG", "GIT_HTTP_", "GIT_PROXY_", "GIT_SSH", "GIT_SSL_")
"""How the names of git's variables begin that are a person's to set. The others name other
repositories and files, as git does itself where it calls us in a hook, or change what git writes.
"""
_SETTINGS = (
    # Each file's bytes are the commit's.
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.eol=lf",
    "core.sparseCheckout=false",
    "submodule.recurse=false",
    # What is read is written as it is expected.
    "color.ui=false",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
    # The mirror is ours.
    "core.fsmonitor=false",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "init.defaultObjectFormat=sha1",
    "core.hooksPath=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.recurseSubmodules=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
)


class GitAnswer(NamedTuple):
    """What git answered.

    Attributes:
        status: its exit status; none when it was ended because it printed nothing for too long.
        output: of the program.
        stderr: its standard error, without its progress and without any login.
    """

    status: int | None
    output: str
    stderr: str


def git(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
    watch: Callable[[str], None] | None = None,
) -> GitAnswer:
    """Run git in a folder; ``watch`` is shown each line of its standard error.

    When this is interrupted, git and its children are ended first. ``keep_open`` are file
    descriptors that they inherit, such as a lock's.
    """
    own = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_OF_ITS_WAY_TO_A_SERVER)
    }
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    stderr: list[str] = []
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [_program(), *settings, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**own, **_NEVER_ASKING, **(environment or {})},
            pass_fds=tuple(keep_open),
            start_new_session=True,  # without a terminal neither git nor ssh can ask there
        ) as process,
        known(process),
    ):
        try:
            for line in _lines(process):
                if watch:
                    watch(line)
                if not re.search(r"\d%|^remote: (Enumerating|Counting|Compressing|Total)", line):
                    stderr.append(without_login(line))
            ended = process.poll() is not None
        finally:
            end(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return GitAnswer(process.returncode if ended else None, text, "\n".join(stderr))


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield what a process says on its standard error until it ends or falls silent."""
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    rest = b""
    last_heard = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while time.monotonic() - last_heard < PATIENCE_S:
            if selector.select(_POLL_S):
                heard = os.read(process.stderr.fileno(), 1 << 16)
                if not heard:
                    break
                last_heard = time.monotonic()
                *whole, rest = re.split(rb"[\r\n]+", rest + heard)
                yield from (line.decode(errors="replace") for line in whole)
            elif process.poll() is not None:
                break  # a child of its own, such as a shared SSH connection, still runs
        else:
            return
    if rest:
        yield rest.decode(errors="replace")
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE_S)


def _program() -> str:
    program = shutil.which("git")
    if program is None:
        raise MissingToolError(
            "git is not installed; a repository as the source needs it.",
            "Install it (Debian and Ubuntu: apt install git; macOS: xcode-select --install), or "
            "omit --source: the pinned source needs no git.",
        )
    return program
