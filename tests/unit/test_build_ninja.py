"""Running CMake and ninja."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from armload.build.local_backend import Status, StepWeights, read_status, run_logged
from armload.core.errors import BuildError, DiskError


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (
            "[3/137] Building CXX object common/CMakeFiles/common.dir/chat.cpp.o\n",
            Status(done=3, total=137, output="common/CMakeFiles/common.dir/chat.cpp.o"),
        ),
        (
            "[137/137] Linking CXX executable bin/llama-completion",
            Status(done=137, total=137, output="bin/llama-completion"),
        ),
        (
            "[9/137] Linking CXX static library ggml/libggml.a",
            Status(done=9, total=137, output="ggml/libggml.a"),
        ),
        ("[0/2] Re-running CMake...", Status(done=0, total=2, output="Re-running CMake...")),
        ("ninja: no work to do.", None),
        ("chat.cpp:12:3: warning: [1/2] is odd", None),
        ("", None),
    ],
)
def test_a_status_line_of_ninja_is_told_from_other_output(line: str, status: Status | None) -> None:
    assert read_status(line) == status


def test_a_step_is_called_by_the_file_that_it_compiles() -> None:
    output = "common/CMakeFiles/common.dir/chat.cpp.o"
    assert Status(done=3, total=137, output=output).what == "chat.cpp"


def test_steps_weigh_what_their_sources_do_and_files_that_are_compiled_together_as_all_of_them(
    tmp_path: Path,
) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    for name, size in (("src/a.cpp", 100_000), ("src/b.cpp", 300_000), ("common/c.cpp", 5_000)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x" * size)
    (tree / "together").mkdir(parents=True)
    (tree / "together" / "llama-0.cpp").write_text(
        "".join(f'#include "{source / "src" / name}.cpp"\n' for name in "ab")
    )
    both = "llama.cpp/src/CMakeFiles/llama.dir/__/__/together/llama-0.cpp.o"
    small = "llama.cpp/common/CMakeFiles/common.dir/c.cpp.o"
    weights = StepWeights([both, small, "bin/llama"], source, tree)
    assert weights.after("Re-running CMake...", done=0, total=1)[0] == 0
    done, total = weights.after(both, done=1, total=3)
    assert 0.8 < done / total < 0.95
    assert weights.after(both, done=1, total=3) == (done, total)
    weights.after(small, done=2, total=3)
    assert weights.after("bin/llama", done=3, total=3) == (total, total)


def test_steps_are_counted_where_not_all_of_them_were_foreseen(tmp_path: Path) -> None:
    weights = StepWeights(["Re-running CMake..."], tmp_path, tmp_path)
    assert weights.after("a.dir/b.cpp.o", done=3, total=137) == (3, 137)


def _run(code: str, folder: Path) -> list[str]:
    seen: list[str] = []
    reader, writer = os.pipe()
    os.close(writer)
    try:
        run_logged(
            [sys.executable, "-c", code],
            log=folder / "build.log",
            environment={"GREETING": "hello"},
            nice=0,
            watch=seen.append,
            keep_open=reader,
        )
    finally:
        os.close(reader)
    return seen


def test_output_reaches_the_watcher_and_the_log(tmp_path: Path) -> None:
    seen = _run("import os; print(os.environ['GREETING']); print('there')", tmp_path)
    assert seen == ["hello\n", "there\n"]
    assert (tmp_path / "build.log").read_text() == "hello\nthere\n"


def test_a_failure_shows_the_last_thirty_lines_and_names_the_log(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        _run("for n in range(50): print(f'line {n}.')\nraise SystemExit(3)", tmp_path)
    assert "status 3" in caught.value.message
    assert "line 20." in caught.value.message
    assert "line 19." not in caught.value.message
    assert str(tmp_path / "build.log") in caught.value.remedy


def test_a_full_disk_is_called_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="is full"):
        _run("print('error: No space left on device')\nraise SystemExit(1)", tmp_path)


def test_an_interrupted_program_does_not_live_on(tmp_path: Path) -> None:
    numbers: list[int] = []

    def interrupt(line: str) -> None:
        numbers.append(int(line))
        raise KeyboardInterrupt

    reader, writer = os.pipe()
    os.close(writer)
    code = "import os,time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    try:
        with pytest.raises(KeyboardInterrupt):
            run_logged(
                [sys.executable, "-c", code],
                log=tmp_path / "build.log",
                environment={},
                nice=0,
                watch=interrupt,
                keep_open=reader,
            )
    finally:
        os.close(reader)
    with pytest.raises(ProcessLookupError):
        os.kill(numbers[0], 0)
