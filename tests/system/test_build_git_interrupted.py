"""A fetch that is spoilt, shared or ended leaves nothing that counts as done."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from armload.core.places import cache_folder
from tests.command_line import beside
from tests.repositories import (
    FILES,
    PROVIDE,
    Repository,
    kept,
    provided,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_a_damaged_mirror_is_made_anew(repository: Repository) -> None:
    provided(repository.url, "b1")
    (mirror,) = (cache_folder() / "sources" / "git").glob("*/mirror.git")
    shutil.rmtree(cache_folder() / "sources" / "git" / f"llama.cpp-{repository.commits[0]}")
    for pack in mirror.glob("objects/pack/*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:100])
    for loose in mirror.glob("objects/??/*"):
        loose.unlink()
    (mirror / "shallow.lock").write_text("")
    (mirror / "config.lock").write_text("")
    assert (provided(repository.url, "b1") / "file").read_text() == "one"


def test_what_a_killed_git_leaves_in_the_mirror_is_removed_and_the_rest_stays(
    repository: Repository,
) -> None:
    provided(repository.url, "b1")
    (mirror,) = (cache_folder() / "sources" / "git").glob("*/mirror.git")
    left = [mirror / name for name in ("shallow.lock", "index-0", "objects/pack/tmp_pack_x")]
    for path in left:
        path.write_text("")
    (mirror / "mark").write_text("")
    assert (provided(repository.url, "b2") / "file").read_text() == "two"
    assert [path for path in left if path.exists()] == []
    assert (mirror / "mark").exists()


def test_two_at_once_fetch_it_once(repository: Repository) -> None:
    words = (repository.url, "main")
    with beside(PROVIDE, *words) as one, beside(PROVIDE, *words) as other:
        ends = [process.communicate()[0].splitlines()[-1] for process in (one, other)]
    assert ends[0] == ends[1]
    assert len(list(Path(ends[0]).rglob("*"))) > FILES
    assert kept() == {Path(ends[0]).name}


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_one_that_is_ended_at_any_moment_leaves_nothing_that_counts_as_done(
    kind: signal.Signals, repository: Repository
) -> None:
    chance = random.Random(3)
    commit = repository.commits[1]
    place = cache_folder() / "sources" / "git" / f"llama.cpp-{commit}"
    for _ in range(8):
        with beside(PROVIDE, repository.url, commit) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0, 0.2))
            below = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(kind)
            if chance.random() < 0.5:  # as when the power fails
                for child in below:
                    if child.is_running():
                        child.send_signal(signal.SIGKILL)
            process.communicate()
        if place.is_dir():
            assert len(list((place / "many").iterdir())) == FILES
            assert (place / "file").read_text() == "two"
            shutil.rmtree(place)
    assert (provided(repository.url, commit) / "file").read_text() == "two"
    assert not list(place.parent.glob(".*"))


def test_one_that_is_killed_while_it_unpacks_leaves_nothing_that_counts_as_done(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.folder / ".gitattributes").write_text("many/3* filter=slow\n")
    commit = repository.commit("slow")
    settings = tmp_path / "gitconfig"
    settings.write_text('[filter "slow"]\nsmudge = "sleep 0.1; cat"\n')
    place = cache_folder() / "sources" / "git" / f"llama.cpp-{commit}"
    with monkeypatch.context() as slow:
        slow.setenv("GIT_CONFIG_GLOBAL", str(settings))
        with beside(PROVIDE, repository.url, commit) as process:
            wait_until(lambda: bool(list(place.parent.glob("*/many/1*"))), process, within_s=300)
            below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in below:
                with contextlib.suppress(psutil.NoSuchProcess):  # it may end by itself
                    child.kill()
            process.communicate()
    assert not place.exists()
    assert len(list((provided(repository.url, commit) / "many").iterdir())) == FILES
    assert not list(place.parent.glob(".*"))


def test_ctrl_c_ends_git_too(repository: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        with beside(PROVIDE, url, "main") as process:
            line, _ = silent.accept()
            with line:
                below = psutil.Process(process.pid).children(recursive=True)
                assert below
                process.send_signal(signal.SIGINT)
                assert "KeyboardInterrupt" in process.communicate()[1]
    assert psutil.wait_procs(below, timeout=60)[1] == []
