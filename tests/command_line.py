"""The program as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.core.places import cache_folder
from tests import forked

_USUAL_CACHE = cache_folder().resolve()

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[1]

BOUND_BY_PERMISSIONS = (
    ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
)
"""Words before a command that must not read or write what only root can."""


_STOPPING = """
import os, signal, sys

class Stopping:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["STOPPED_AT"]:
            sys.meta_path.remove(self)
            {how}

sys.meta_path.insert(0, Stopping())
"""
_INTERRUPTING = _STOPPING.format(how="os.kill(os.getpid(), signal.SIGINT)")
_FAILING = _STOPPING.format(how="raise LookupError('a defect')")


def before_others(modules: Path) -> str:
    """Return the ``PYTHONPATH`` in which a folder's modules come first."""
    return os.pathsep.join(filter(None, [str(modules), os.environ.get("PYTHONPATH")]))


def interrupted_at(module: str, folder: Path) -> dict[str, str]:
    """Return an environment that presses Ctrl-C where a module is imported."""
    return _stopped_at(module, folder, _INTERRUPTING)


def failing_at(module: str, folder: Path) -> dict[str, str]:
    """Return an environment in which a module's import ends in an unexpected exception."""
    return _stopped_at(module, folder, _FAILING)


def _stopped_at(module: str, folder: Path, code: str) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": before_others(folder), "STOPPED_AT": module}


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program that is installed beside Python, or Python itself."""
    return forked.run([str(BIN / words[0]), *words[1:]], cwd=cwd, env=os.environ)


def typed(
    folder: Path,
    *words: str,
    face: str = "armload",
    cache: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.CompletedProcess[str]:
    """Give a command in a folder; whatever it does, it shows no traceback.

    Args:
        folder: to be in.
        words: the command's.
        face: which program.
        cache: another one than usual; where it is new, charts need not be bundled for it.
        stdin: as for ``subprocess``.
    """
    own_cache = {} if cache is None else {"ARMLOAD_CACHE": str(cache)}
    if cache is not None and not cache.exists():
        share_charts(cache)
    done = forked.run(
        [str(BIN / face), *words], cwd=folder, env=os.environ | own_cache, stdin=stdin
    )
    assert "Traceback" not in done.stderr
    check_document(done, *words)
    return done


def check_document(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Make sure that what ``--json`` printed fits the verb's published schema, or an error's."""
    if done.stdout and not {"--json", "-j"}.isdisjoint(words):
        from tests.documents import document_of  # a second, of those who need it

        document_of(words[0], done.stdout, status=done.returncode)


def share_charts(cache: Path) -> None:
    """Begin a cache with the usual one's library of charts, which takes seconds to bundle."""
    usual = _USUAL_CACHE / "vega"
    usual.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True)
    (cache / "vega").symlink_to(usual)


@contextmanager
def beside(code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in another process until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
