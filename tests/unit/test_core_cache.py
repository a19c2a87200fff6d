"""Freeing: whole items, nothing in use, nothing outside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.boards.virtual.cached import board_kinds
from armload.build.cached import build_kinds
from armload.core.cache import (
    CacheItem,
    CacheKind,
    decide,
    disk_usage,
    free,
    free_all,
    items_of,
    unknown,
)
from armload.core.progress import Silent
from armload.models.find import model_kinds
from armload.report.cache import report_kinds
from tests.unit.builds import finished_build, held_elsewhere

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def filled(folder: Path) -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_bytes(b"\7" * 50_000)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_size_is_what_the_disk_gives_up(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 33)
    (tmp_path / "big").write_bytes(b"\7" * 1_000_000)
    folder = filled(tmp_path / "folder")
    (folder / "link").symlink_to(tmp_path / "big")
    (folder / "round").symlink_to(folder)
    assert disk_usage([tmp_path / "sparse"]) < 1_000_000
    assert 50_000 <= disk_usage([folder]) < 200_000
    assert disk_usage([tmp_path / "absent"]) == 0


def test_what_is_freed_goes_and_its_neighbours_stay(cache: Path) -> None:
    filled(cache / "sources" / "one")
    filled(cache / "sources" / "two")
    one, _ = items_of("sources")
    assert free(one) == ""
    assert names(cache / "sources") == ["two"]


def test_a_link_goes_and_what_it_leads_to_stays(cache: Path, tmp_path: Path) -> None:
    elsewhere = filled(tmp_path / "elsewhere")
    (cache / "sources").mkdir(parents=True)
    (cache / "sources" / "link").symlink_to(elsewhere)
    (item,) = items_of("sources")
    assert free(item) == ""
    assert names(cache / "sources") == []
    assert (elsewhere / "inner" / "file").exists()


def test_what_another_process_took_since_it_was_looked_at_stays(cache: Path) -> None:
    folder = finished_build(cache)
    plan = decide(build_kinds())
    assert [decision.fate for decision in plan] == ["goes"]
    with held_elsewhere(folder.with_name("0123456789ab.lock")):
        (done,) = free_all(plan, Silent())
    assert (done.fate, done.reason) == ("in use", "another armload process is building it")
    assert folder.is_dir()


def test_what_became_busy_since_it_was_looked_at_stays(cache: Path) -> None:
    answers = iter(["", "it runs"])
    path = filled(cache / "machines" / "one")
    item = CacheItem(label="one", paths=(path,), size_bytes=1, busy=lambda: next(answers))
    kind = CacheKind(name="machines", what="", again="", read=lambda: [item])
    (done,) = free_all(decide([kind]), Silent())
    assert (done.fate, done.reason) == ("in use", "it runs")
    assert path.is_dir()


def test_the_cache_is_read_when_its_content_is_asked_for(cache: Path) -> None:
    kinds = {kind.name: kind for kind in (*build_kinds(), *model_kinds(), *board_kinds())}
    finished_build(cache)
    for name in ("models", "hashes", "machines"):
        filled(cache / name / "one")
    assert all(len(kinds[name].items) == 1 for name in ("builds", "models", "hashes", "machines"))


def test_a_build_goes_with_its_lock(cache: Path) -> None:
    finished_build(cache)
    (item,) = build_kinds()[0].items
    assert free(item) == ""
    assert names(cache / "builds") == []


def test_the_rest_of_a_clean_that_was_stopped_goes_with_the_next(cache: Path) -> None:
    filled(cache / "sources" / ".freed-abc")
    for kind in ("builds", "zig", "hashes", "machines"):
        filled(cache / kind / ".freed-abc")
    kinds = [*build_kinds(), *model_kinds(), *board_kinds()]
    done = free_all(decide(kinds), Silent())
    assert {decision.fate for decision in done} == {"freed"}
    for kind in ("builds", "sources", "zig", "hashes", "machines"):
        assert names(cache / kind) == []


def test_what_cannot_be_deleted_is_named_and_the_rest_goes(cache: Path) -> None:
    stubborn = CacheItem(label="stubborn", paths=(Path("/proc/self"),), size_bytes=1)
    filled(cache / "sources" / "b")
    kind = CacheKind(
        name="sources", what="", again="", read=lambda: (stubborn, *items_of("sources"))
    )
    done = free_all(decide([kind]), Silent())
    assert [decision.fate for decision in done] == ["failed", "freed"]
    assert "/proc" in done[0].reason


def test_everything_that_armload_keeps_in_the_cache_has_a_kind(cache: Path) -> None:
    kept = set()
    for path in (ROOT / "armload").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        kept |= set(re.findall(r'cache_folder\(\)(?:\.resolve\(\))? / "([\w-]+)"', code))
        kept |= set(re.findall(r'compiling_folder\("([\w-]+)"\)', code))
        kept |= set(re.findall(r'cached_path\("([\w-]+)/', code))
    kinds = [*build_kinds(), *model_kinds(), *report_kinds(), *board_kinds()]
    assert kept == {kind.name for kind in kinds}


def test_what_armload_does_not_know_is_shown_apart(cache: Path) -> None:
    filled(cache / "photos")
    filled(cache / "this-machine" / "runs")
    finished_build(cache)
    kinds = [*build_kinds(), *model_kinds(), *report_kinds(), *board_kinds()]
    assert [item.label for item in unknown(kinds).items] == ["photos"]
