"""Tests marked ``exhaustive``: left out by default, and run when the files that they cover change.

``pytest --exhaustive=all`` runs them; ``--exhaustive=due`` runs those whose files, or whose own
file, changed within the last commits.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path, PurePath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from armload.core.trust import VARIABLE
from tests import outside_data

ROOT = Path(__file__).resolve().parents[1]
COMMITS = 50
BEGAN_S = pytest.StashKey[float]()
SHARING = (
    ("test_end_to_end.py", "test_runs_share.py", "test_runs_survive.py"),  # a virtual board
    (
        "test_sanitized_engines.py",
        "test_sanitized_services.py",
        "test_sanitized_streaming.py",
    ),  # two builds
    ("test_release.py", "test_release_prebuilt.py"),  # a wheel
    (
        "test_services_clients.py",
        "test_services_several.py",
        "test_services_two_logins.py",
    ),  # this machine's first free port
)
"""Files whose tests run in one process, and so with one of what they share."""

# Tests start hundreds of programs. Without byte code each would compile all its modules. Before any
# other module of the tests looks at the environment: commands in another one are not forked.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".pytest_cache" / "bytecode"))
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

# A shell's background processes ignore Ctrl-C, and so would all commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest imports readline, which sets it, and commands in pipes would wrap their lines to it.
# Workers of pytest-xdist inherit it; in pytest's own process Python's mapping does not know it.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# A package that only a tool of the release needs, and which jsonschema imports where it is there:
# it compiles grammars of IRIs for three seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive",
        choices=("all", "due"),
        help="run only the tests marked exhaustive: all of them, or those whose covered files "
        f"changed within the last {COMMITS} commits",
    )
    parser.addoption(
        "--exhaustive-time",
        type=float,
        metavar="SECONDS",
        help="skip the exhaustive tests that have not begun after so many seconds",
    )
    parser.addoption(
        "--accept", action="store_true", help="write what tests/golden compares with anew"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BEGAN_S] = time.monotonic()


class _InOneProcess(LoadFileScheduling):  # type: ignore[misc]
    """Gives files that share what takes long to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((str(group) for group in SHARING if Path(file).name in group), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return _InOneProcess(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # None of the thousands of tests is garbage, and to look for it takes a third of the time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _trusted_workspaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Trust the workspaces that tests make; those of another's folder take this away again."""
    os.environ[VARIABLE] = f"{tmp_path_factory.getbasetemp()}/*"


def pytest_runtest_setup(item: pytest.Item) -> None:
    limit_s = item.config.getoption("exhaustive_time")
    if limit_s is not None and time.monotonic() - item.config.stash[BEGAN_S] > limit_s:
        pytest.skip(f"the {limit_s:.0f} s of --exhaustive-time have passed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choice = config.getoption("exhaustive")
    changed = changed_files(ROOT) if choice == "due" else None
    chosen = [item for item in items if is_chosen(item, choice, changed)]
    left = set(items).difference(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = chosen


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    nothing = session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    if nothing and session.config.getoption("exhaustive") == "due":
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = (report.longrepr for report in terminalreporter.getreports("skipped"))
    if said := outside_data.told(each[2] for each in skipped if isinstance(each, tuple)):
        terminalreporter.write_line(said, yellow=True)


def is_chosen(item: pytest.Item, choice: str | None, changed: frozenset[PurePath] | None) -> bool:
    marks = list(item.iter_markers("exhaustive"))
    covers = covered(item, marks)
    if not marks or not choice:
        return bool(marks) == bool(choice)
    return changed is None or any(
        path in {file, *file.parents} for file in changed for path in covers
    )


def covered(item: pytest.Item, marks: Sequence[pytest.Mark]) -> set[PurePath]:
    """Return the files and folders whose changes make a test due.

    Raises:
        pytest.UsageError: one of them does not exist, so that its changes would go unnoticed.
    """
    named = {PurePath(path) for mark in marks for path in mark.kwargs["covers"]}
    for path in named:
        if not (ROOT / path).exists():
            raise pytest.UsageError(f"{item.nodeid} covers {path}, which does not exist.")
    return named | {item.path.relative_to(ROOT)}


def changed_files(folder: Path) -> frozenset[PurePath] | None:
    """Return what changed within the last commits or since; None if the history is too short."""
    words = ["git", "-C", str(folder), "diff", "--name-only", "--relative", f"HEAD~{COMMITS}", "--"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return frozenset(map(PurePath, done.stdout.splitlines())) if done.returncode == 0 else None
