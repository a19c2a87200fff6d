"""What tests of several files start from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from armload import __version__
from armload.boards.board import SshAddress
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.programs import MAIN_PROGRAMS, SCORER
from armload.build.target import load_target
from armload.core.places import cache_folder
from release import make
from release.prebuilt import Carried, carry
from tests.outside_data import shared
from tests.person import Person
from tests.repositories import Repository
from tests.servers import openssh
from tests.system.browser import Browser, Tab, opened_browser
from tests.system.engines import LAST_WITH_DECODE
from tests.system.people import two_people


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshAddress]:
    """OpenSSH's server on this machine."""
    with openssh(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without keys, agent, password or settings of the person who tests.

    The cache stays the usual one, which has the programs for boards.
    """
    monkeypatch.setenv("ARMLOAD_CACHE", str(cache_folder()))
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "ARMLOAD_SSH_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A git repository with three commits, and a cache of its own for what is fetched."""
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Repository(tmp_path / "a repository")


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Person, Person]]:
    with two_people(tmp_path_factory.mktemp("people")) as both:
        yield both


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened_browser(tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser.tab() as tab:
        yield tab


@pytest.fixture(scope="session")
def mnn() -> None:
    """MNN's wheel, where it can be loaded: glibc 2.41 refuses the executable stack it asks for."""
    words = [sys.executable, "-c", "import MNN.expr"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"MNN's wheel: {done.stderr.strip().splitlines()[-1]}")


older_scorer = pytest.mark.exhaustive(
    covers=["toolchains", "armload/build", "armload/engines/scorer.py"]
)


@pytest.fixture(scope="module")
def stories() -> Path:
    """A real small model, whose author has published what it writes."""
    return shared("stories260K.gguf")


@pytest.fixture(scope="module", params=["newer", pytest.param("older", marks=older_scorer)])
def scorer_and_completion(request: pytest.FixtureRequest) -> tuple[Binary, Binary]:
    """The scorer, and llama.cpp's program that continues a prompt."""
    source = None if request.param == "newer" else LAST_WITH_DECODE
    name = MAIN_PROGRAMS[request.param == "older"]
    scorer, completion = build(load_target("rk3568"), programs=[SCORER, name], source=source)
    return scorer, completion


@pytest.fixture(scope="module")
def scorer(scorer_and_completion: tuple[Binary, Binary]) -> Path:
    return scorer_and_completion[0].path


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The project in two folders, whose files were written at other times and by other rules."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("one", "another-place"))
    make.export(one)
    make.export(other)
    for path in other.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
    return [one, other]


@pytest.fixture(scope="session")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what a wheel carries compiled, once it is ``carried``."""
    return tmp_path_factory.mktemp("release") / "prebuilt"


@pytest.fixture(scope="session")
def carried(prebuilt: Path) -> Carried:
    return carry(prebuilt, __version__, "1700000000")


@pytest.fixture(scope="session")
def built(projects: list[Path], carried: Carried) -> list[Path]:
    return make.build(projects[0], "1700000000", carried)


@pytest.fixture(scope="session")
def wheel(built: list[Path]) -> Path:
    (path,) = (each for each in built if each.suffix == ".whl")
    return path


@pytest.fixture(scope="session")
def sdist(built: list[Path]) -> Path:
    (path,) = (each for each in built if each.name.endswith(".tar.gz"))
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed armload, whose libraries are those beside this Python."""
    folder = tmp_path_factory.mktemp("installed")
    words = ("--no-deps", "--no-index", "--no-compile", "--target", folder, wheel)
    make._module("pip", "install", *words)
    return folder
