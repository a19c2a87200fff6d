"""A program goes only where it can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.boards.board import Board
from armload.boards.probe import parse_probe
from armload.build.binary import Binary, FeatureUse
from armload.build.cached import cached_builds
from armload.build.prebuilt import copy_programs_to_release
from armload.build.target import load_target
from armload.core.errors import BoardError
from armload.deploy.compatibility import (
    check_fit,
    check_folder,
    target_mismatch,
    targets_that_suit,
    used_features,
)
from tests.unit.builds import finished_build
from tests.unit.test_boards_probe import core, output

BOARD = Board.model_validate(
    {
        "name": "my-board",
        "target": "rk3568",
        "reach": {"kind": "ssh", "host": "x"},
        "workdir": "/data/armload",
    }
)
EMULATED = Board.model_validate(
    {
        "name": "mine",
        "target": "rk3568",
        "reach": {"kind": "local", "launcher": ["qemu-aarch64", "-cpu", "max"]},
    }
)


def binary(*uses: FeatureUse) -> Binary:
    return Binary.model_validate(
        {
            "program": "llama-completion",
            "path": "/x",
            "sha256": "0" * 64,
            "size_bytes": 1,
            "target": "yitian710",
            "architecture": "aarch64",
            "compiler": "zig",
            "source": "s",
            "engine_commit": "c",
            "build_id": "b",
            "features": uses,
        }
    )


def use(feature: str, *, guarded: int = 0) -> FeatureUse:
    return FeatureUse(feature=feature, count=3, guarded_count=guarded, address=4096, mnemonic="x")


def test_a_missing_feature_is_named() -> None:
    found = parse_probe(output(core(0)), "my-board")
    with pytest.raises(BoardError, match="lacks i8mm, which llama-completion built for yitian710"):
        check_fit(BOARD, binary(use("asimddp"), use("i8mm")), found)


def test_a_feature_behind_a_run_time_check_may_be_missing() -> None:
    found = parse_probe(output(core(0)), "my-board")
    assert used_features([use("sve", guarded=3)]) == ()
    check_fit(BOARD, binary(use("asimddp"), use("sve", guarded=3)), found)


def test_an_emulated_cpu_of_which_nothing_is_known_is_not_judged() -> None:
    found = parse_probe(output(core(0), uname="6.1 x86_64\n"), "my-board")
    unknown = found.model_copy(update={"cpu_features": ()})
    check_fit(EMULATED, binary(use("i8mm")), unknown)
    assert target_mismatch(EMULATED, unknown) == ""
    with pytest.raises(BoardError, match="needs aarch64"):
        check_fit(BOARD, binary(), found)


MOUNTED = "writable\nexecutable\n"


@pytest.mark.parametrize(
    ("workdir", "obstacle", "options", "complaint", "remedy"),
    [
        ("", "", "rw", r"it is not writable\.", "workdir"),
        ("", "/mine\nrefused sh: a: b: Permission denied\n", "rw", "e: Permission d", "workdir"),
        ("", "/mine\nrefused sh: a: Read-only\n", "ro,x", r"/mine \(f2fs\) is mounted r", "dmesg"),
        ("", "/mine\nrefused mkdir: a: No space left on device\n", "rw", "is full", "Free space"),
        (
            "writable\n",
            "/mine\nfull\n",
            "rw",
            r"cannot be executed: /mine \(f2fs\) is full",
            "Free",
        ),
        ("writable\n", "", "rw", r"programs in it cannot be executed\.", "workdir"),
        ("writable\n", "", "rw,noexec", "/mine .* is mounted noexec", "remount,exec /mine"),
        (MOUNTED, "", "rw,noexec", "/mine .* is mounted noexec", "remount,exec /mine"),
    ],
)
def test_a_work_folder_of_no_use_is_refused_with_the_reason(
    workdir: str, obstacle: str, options: str, complaint: str, remedy: str
) -> None:
    mounts = f"{core(0)}/dev/sda /mine f2fs {options} 0 0\n"
    answer = output(mounts, workdir=workdir, place="/mine\n", obstacle=obstacle)
    with pytest.raises(BoardError, match=complaint) as caught:
        check_folder(BOARD, parse_probe(answer, "my-board"))
    assert remedy in caught.value.remedy


def test_of_equal_targets_one_with_prebuilt_programs_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parse_probe(output(core(0)), "my-board")
    monkeypatch.setattr("armload.build.prebuilt.data_path", tmp_path.joinpath)
    assert targets_that_suit(BOARD, found)[0] == "rk3566"
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    finished_build(tmp_path / "cache")
    (build,) = cached_builds()
    copy_programs_to_release(
        tmp_path / "prebuilt", build.programs, release="armload 1.2.3", built_utc=""
    )
    assert build.programs[0].target == "rk3568"
    (tmp_path / "prebuilt" / "builds" / "damaged").mkdir()
    assert targets_that_suit(BOARD, found)[0] == "rk3568"
    others = found.model_copy(update={"cpu_features": ("crc32",)})
    assert targets_that_suit(BOARD, others)[0] == "rpi3"


def test_a_target_that_does_not_suit_its_board_is_told_before_anything_is_built() -> None:
    other = parse_probe(output(core(0), uname="6.1 x86_64\n"), "my-board")
    assert "x86_64, but programs for target rk3568 need aarch64" in target_mismatch(BOARD, other)
    suits = parse_probe(output(core(0)), "my-board")
    known = load_target("rk3568").features
    found = suits.model_copy(update={"machine": "aarch64", "cpu_features": known})
    assert target_mismatch(BOARD, found) == ""
    lacks = found.model_copy(update={"cpu_features": known[:-1]})
    assert f"lacks {known[-1]}, which target rk3568" in target_mismatch(BOARD, lacks)
    unknown = BOARD.model_copy(update={"target": "rk3586"})
    assert "'rk3586'" in target_mismatch(unknown, found)
