"""``inspect``, on programs that zig made elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import command_line
from tests.command_line import ROOT
from tests.programs import DOT, PLAIN, compiled, zig_cc

pytestmark = pytest.mark.build


def typed(folder: Path, *words: str, face: str = "armload") -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "tasks.py", folder)
    return command_line.typed(folder, "inspect", *words, face=face)


@pytest.mark.parametrize(
    "face",
    [
        "armload",
        pytest.param("invoke", marks=pytest.mark.exhaustive(covers=["armload/cli", "tasks.py"])),
    ],
)
def test_a_program_that_fits_is_shown_with_all_that_it_uses(tmp_path: Path, face: str) -> None:
    compiled(tmp_path, DOT, "-mcpu=cortex_a55")
    program = ["--file", "program"] if face == "invoke" else ["program"]
    done = typed(tmp_path, *program, "--target", "rk3568", face=face)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("statically", "asimddp", "sdot", "asimdhp", "rk3568", "runs"):
        assert word in done.stdout
    assert "rpi4" not in done.stdout


def test_every_target_is_told_apart_and_a_persons_own_is_one(tmp_path: Path) -> None:
    compiled(tmp_path, DOT, "-mcpu=cortex_a55")
    (tmp_path / "toolchains").mkdir()
    (tmp_path / "toolchains" / "mine.yaml").write_text("cpu: generic\nfeatures: [asimdhp]\n")
    (tmp_path / "toolchains" / "broken.yaml").write_text("cpu: [\n")
    done = typed(tmp_path, "--json", "program")
    assert done.returncode == 0
    assert "broken.yaml" in done.stderr
    document = json.loads(done.stdout)
    targets = {each["target"]: each for each in document["targets"]}
    assert targets["rk3568"]["verdict"] == "runs"
    assert targets["yitian710"]["verdict"] == "slow"
    assert targets["rpi4"]["verdict"] == "no"
    assert targets["mine"]["verdict"] == "no"
    assert "asimddp" in targets["mine"]["reason"]
    assert "asimdhp" not in targets["mine"]["reason"]
    assert document["size_bytes"] == (tmp_path / "program").stat().st_size
    assert {use["feature"] for use in document["features"]} >= {"asimddp", "asimdhp"}


def test_a_misfit_is_an_error_after_all_is_shown(tmp_path: Path) -> None:
    compiled(tmp_path, DOT, "-mcpu=cortex_a55")
    done = typed(tmp_path, "program", "--target", "rpi4", "--json")
    assert done.returncode == 5
    assert json.loads(done.stdout)["targets"][0]["verdict"] == "no"
    assert "CPU feature" in done.stderr
    assert "'rpi4' does not have it" in done.stderr


def test_a_dynamic_program_is_shown_with_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PLAIN)
    zig_cc(tmp_path, "-target", "aarch64-linux-gnu", "-O2", "-g0", "main.c", "-o", "program")
    document = json.loads(typed(tmp_path, "program", "--json").stdout)
    assert not document["is_static"]
    assert document["interpreter"] == "/lib/ld-linux-aarch64.so.1"
    assert "libc.so.6" in document["needed"]
    assert not document["is_stripped"]
    assert {each["verdict"] for each in document["targets"]} <= {"perhaps", "no"}
    shown = typed(tmp_path, "program").stdout
    assert "dynamically" in shown
    assert "/lib/ld-linux-aarch64.so.1" in shown
    assert "may run" in shown


def test_a_file_that_is_not_there_and_one_that_is_no_program(tmp_path: Path) -> None:
    absent = typed(tmp_path, "absent")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "absent" in absent.stderr
    (tmp_path / "text").write_text("GGUF")
    text = typed(tmp_path, "text")
    assert (text.returncode, text.stdout) == (3, "")
    assert "not an ELF program" in text.stderr
    assert "compiled for Linux" in text.stderr
    assert typed(tmp_path, ".").returncode == 2
    assert typed(tmp_path, "text", "--target", "rk3586").returncode == 2
