"""What a release carries compiled, as it is put into its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.build.cached import cached_builds
from armload.build.prebuilt import copy_programs_to_release
from tests.unit.builds import finished_build


def test_two_machines_carry_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = []
    for name, hour in (("one", 20), ("other", 21)):
        cache, folder = tmp_path / name, tmp_path / f"{name}-release"
        monkeypatch.setenv("ARMLOAD_CACHE", str(cache))
        finished_build(cache, built_utc=f"2026-11-21T{hour}:00:00+00:00")
        (build,) = cached_builds()
        copy_programs_to_release(
            folder,
            build.programs,
            release="armload 1.2.3",
            built_utc="2026-11-22T00:00:00+00:00",
        )
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        carried.append([(path.relative_to(folder), path.read_bytes()) for path in files])
    assert carried[0] == carried[1]
    assert [path.name for path, _ in carried[0]] == ["build.json", "llama-completion"]
