"""What can be judged without a board, or from what it says of itself, is judged before all work."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from armload.core.errors import UsageError
from tests.command_line import BIN, BOUND_BY_PERMISSIONS, typed
from tests.contract.leases import SOMEBODY, put_up

MODEL = ("--model", "like:stories260k:F32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a board, this machine, that somebody else uses."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "boards").mkdir()
    (folder / "boards" / "here.yaml").write_text(
        "description: this machine\ntarget: rk3568\nreach: {kind: local}\n"
        f"workdir: {folder}/armload\n"
    )
    put_up(PurePosixPath(folder / "armload"), SOMEBODY)
    (folder / "text").write_text("no program")
    (folder / "broken").write_bytes(b"\x7fELF broken")
    (folder / "broken").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("watch", "--put", "nofile", "--", "nofile"), 2, "nofile: no such file or folder"),
        (("watch", "--put", "text", "--", "text"), 2, "is not executable"),
        (("watch", "--put", "text", "--", "./other"), 2, "not among the files of --put"),
        (("watch", "--put", "broken", "--", "broken"), 3, "broken"),
        (("bench", *MODEL, "--compiler", "cc"), 2, "There is no compiler named 'cc'"),
        (("bench", *MODEL, "--on", "nowhere"), 2, "There is no board named 'nowhere'"),
        (("bench", *MODEL, "--prompt", "a" * 100_001), 2, "100001 bytes long"),
        (("bench", *MODEL, "--split", "layer"), 2, "--split layer: virtual is a single board."),
        (("build", "--on", "virtual", "--source", "nowhere"), 2, "--source nowhere"),
        (("build", "--on", "virtual", "--compiler", "zig"), 2, "not on a build host"),
        (("deploy", *MODEL, "--board", "virtual,nowhere"), 2, "There is no board named 'nowhere'"),
    ],
)
def test_a_mistake_is_told_before_a_board_is_reached(
    words: tuple[str, ...], status: int, said: str, folder: Path
) -> None:
    done = typed(folder, *words, cache=folder / "cache")
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert said in done.stderr
    assert "virtual is not up; starting it" not in done.stderr


def test_slots_in_a_plan_file_are_said_to_have_no_effect_on_bench(folder: Path) -> None:
    (folder / "plan.yaml").write_text("slots: 2\nsplit: layer\n")
    done = typed(folder, "bench", "--plan", "plan.yaml", *MODEL, cache=folder / "cache")
    assert "plan.yaml: slots has no effect: only services have slots." in done.stderr
    assert "--split layer: virtual is a single board." in done.stderr
    assert done.returncode == UsageError.exit_status


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("bench", *MODEL, "-t", "512"), 2, "--threads 512 is too many"),
        (("bench", *MODEL, "--cpus", "1023"), 2, "has no core 1023"),
        (("bench", *MODEL, "--governor", "none"), 7, "governor"),
        (("watch", "--wait", "0", "--", "/nowhere/program"), 7, "no program"),
    ],
)
def test_a_board_that_does_not_suit_is_not_built_for_and_not_waited_for(
    words: tuple[str, ...], status: int, said: str, folder: Path
) -> None:
    verb, *others = words
    done = typed(folder, verb, "--board", "here", *others, cache=folder / "cache")
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert said in done.stderr
    assert not (folder / "cache" / "builds").exists()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("demo", "runs"),
        ("bench --board nobody", "runs"),
        ("eval --board nobody", "runs"),
        ("load --url http://nowhere.invalid --rate 1", "loads"),
        ("import nothing.json", "imports"),
        ("init --yes", "runs"),
        ("pull --board nobody", "runs"),
    ],
)
def test_that_results_cannot_be_written_is_told_before_any_work(
    line: str, kind: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o555)
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, str(BIN / "armload"), *line.split()],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    tmp_path.chmod(0o755)
    assert (done.returncode, done.stdout) == (1, "")
    assert " ".join(done.stderr.split()) == (
        f"error: Cannot write {tmp_path}/{kind} on this machine: Permission denied. Correct the "
        f"permissions of {tmp_path}, or work in another folder, then repeat the command."
    )


def test_a_folder_of_results_may_be_the_only_one_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "imports").mkdir()
    tmp_path.chmod(0o555)
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, str(BIN / "armload"), "import", "nothing.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    tmp_path.chmod(0o755)
    assert "There is no file 'nothing.json'" in done.stderr
