"""What is said of the builds in the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from armload.build.cached import build_kinds, cached_builds
from armload.core.cache import decide
from tests.unit.builds import finished_build, held_elsewhere, unfinished_build
from tests.unit.test_build_record import INPUTS


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def states() -> dict[str, str]:
    return {build.path.name: build.state for build in cached_builds()}


def test_a_finished_build_is_told_from_its_record(cache: Path) -> None:
    finished_build(cache)
    (build,) = cached_builds()
    assert (build.build_id, build.state, build.reason) == ("0123456789ab", "finished", "")
    (program,) = build.programs
    assert (program.program, program.target) == ("llama-completion", INPUTS.target.name)
    assert program.source == INPUTS.source_label
    assert program.path == cache / "builds" / "0123456789ab" / "llama-completion"
    assert 100_000 < build.size_bytes < 200_000


def test_the_latest_comes_first(cache: Path) -> None:
    for build_id, hour in (("00000000000a", 20), ("00000000000b", 22), ("00000000000c", 19)):
        finished_build(cache, build_id, built_utc=f"2026-11-21T{hour}:00:00+00:00")
    unfinished = unfinished_build(cache, "00000000000d")
    for path in (unfinished, unfinished / "build.log"):
        os.utime(path, (1e9, 1e9))
    assert [build.build_id[-1] for build in cached_builds()] == ["b", "a", "c", "d"]
    assert cached_builds()[-1].when_utc == "2001-09-09T01:46:40+00:00"


def test_an_unfinished_build_is_under_way_while_someone_works_on_it(cache: Path) -> None:
    unfinished = unfinished_build(cache)
    assert states() == {unfinished.name: "unfinished"}
    with held_elsewhere(unfinished.with_name("ba9876543210.lock")):
        assert states() == {unfinished.name: "under way"}
    assert states() == {unfinished.name: "unfinished"}


def test_a_build_to_which_a_program_is_added_still_has_its_others(cache: Path) -> None:
    with held_elsewhere(finished_build(cache).with_name("0123456789ab.lock")):
        (build,) = cached_builds()
        assert build.state == "under way"
        assert [program.program for program in build.programs] == ["llama-completion"]
        assert [decision.fate for decision in decide(build_kinds())] == ["in use"]


def test_what_older_versions_left_is_listed_and_freed(cache: Path) -> None:
    finished = finished_build(cache)
    record = finished / "build.json"
    record.write_text(record.read_text().replace('"format":2', '"format":1'))
    finished.rename(finished.with_name("0123456789ab.partial"))
    finished_build(cache)
    record.write_text(record.read_text().replace('"format":2', '"format":1'))
    assert states() == {"0123456789ab": "unreadable", "0123456789ab.partial": "unreadable"}
    (item,) = build_kinds()[0].items
    assert {path.name for path in item.paths} == {
        "0123456789ab",
        "0123456789ab.partial",
        "0123456789ab.lock",
    }


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 9}'])
def test_a_build_whose_record_cannot_be_read_is_unreadable_and_says_why(
    cache: Path, content: bytes
) -> None:
    (finished_build(cache) / "build.json").write_bytes(content)
    (build,) = cached_builds()
    assert (build.state, build.programs) == ("unreadable", ())
    assert "build.json" in build.reason


def test_a_build_whose_program_is_cut_or_gone_is_unreadable(cache: Path) -> None:
    program = finished_build(cache) / "llama-completion"
    program.write_bytes(b"cut")
    assert "llama-completion" in cached_builds()[0].reason
    program.unlink()
    assert states() == {"0123456789ab": "unreadable"}


def test_foreign_files_are_neither_listed_nor_freed(cache: Path) -> None:
    finished_build(cache)
    builds = cache / "builds"
    (builds / "notes.txt").write_text("mine")
    (builds / "0123456789AB").mkdir()
    (builds / "0123456789ac").write_text("a file where a folder would be")
    (builds / "dangling").symlink_to("nowhere")
    assert states() == {"0123456789ab": "finished"}
    paths = {path.name for item in build_kinds()[0].items for path in item.paths}
    assert paths == {"0123456789ab", "0123456789ab.lock"}


def test_without_a_cache_there_is_nothing(cache: Path) -> None:
    assert cached_builds() == []
    assert not any(kind.items for kind in build_kinds())
    cache.write_text("not even a folder")
    assert cached_builds() == []


def test_sources_and_libraries_stay_while_any_build_is_under_way(cache: Path) -> None:
    unfinished = unfinished_build(cache)
    (cache / "sources" / "llama-1").mkdir(parents=True)
    (cache / "zig" / "o").mkdir(parents=True)
    assert [decision.fate for decision in decide(build_kinds())] == ["goes"] * 3
    with held_elsewhere(unfinished.with_name("ba9876543210.lock")):
        assert [decision.fate for decision in decide(build_kinds())] == ["in use"] * 3


@pytest.mark.parametrize("lock", ["llama.cpp-1.lock", "llama.cpp-mirror/lock"])
def test_repositories_stay_while_someone_fetches_from_one(cache: Path, lock: str) -> None:
    git = cache / "sources" / "git"
    for name in ("llama.cpp-1", "llama.cpp-mirror"):
        (git / name).mkdir(parents=True)
    for name in ("llama.cpp-1.lock", "llama.cpp-mirror/lock"):
        (git / name).touch()
    (cache / "sources" / "archive").mkdir()

    def fates() -> dict[str, str]:
        return {decision.item.label: decision.fate for decision in decide(build_kinds())}

    labels = ("archive", "llama.cpp-1", "llama.cpp-mirror")
    assert fates() == dict.fromkeys(labels, "goes")
    with held_elsewhere(git / lock):
        assert fates() == {**dict.fromkeys(labels, "in use"), "archive": "goes"}
