"""What holds for every script that runs on a board."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from armload.boards import framing
from armload.core.places import data_path
from armload.core.shell import call, render
from armload.deploy.exit_record import read_peaks
from tests.sysfs import write_tree
from tests.waiting import wait_until

LIBRARY = data_path("deploy", "functions.sh").read_text()
FUNCTIONS = re.findall(r"(?m)^(\w+)\(\)", LIBRARY)
SCRIPTS = sorted(data_path("deploy").rglob("*.sh*"))
SHELLS = (["dash"], ["mksh"], ["busybox", "sh"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_ends_where_a_file_cannot_be_opened(script: Path) -> None:
    """POSIX: a shell ends when it cannot redirect for a special built-in command, such as ":"."""
    assert not re.search(r"(?m)(?:^|[;&|{(\s]):\s+\d*[<>]", script.read_text())


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_reads_every_function_with_those_that_it_needs(shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    for name in FUNCTIONS:
        lines = call(name).splitlines()
        assert lines[-1] == name
        defined = "\n".join(lines[:-1])
        needed = set(re.findall(r"\b\w+\b", defined)) & set(FUNCTIONS)
        script = f"{defined}\nfor each in {' '.join(needed)}; do command -v $each; done"
        found = subprocess.run([*shell, "-c", script], capture_output=True, text=True, check=False)
        assert set(found.stdout.split()) >= needed, (name, found)


def test_what_a_command_carries_is_the_library_s_text_without_comments() -> None:
    carried = call("tell_state", "boot")
    assert "#" not in re.sub(r"\$\{[^}]*\}|\$#|\"#armload|'#", "", carried)
    assert all(line in LIBRARY.splitlines() for line in carried.splitlines()[:-1])
    with pytest.raises(LookupError, match="no function tell_nothing"):
        call("tell_nothing")


def test_every_function_is_used_and_defined_once() -> None:
    package = Path(__file__).parents[2] / "armload"
    calls = "".join(path.read_text() for path in package.rglob("*.py"))
    for name in FUNCTIONS:
        elsewhere = re.sub(rf"(?m)^{name}\(\)", "", "".join(path.read_text() for path in SCRIPTS))
        assert re.search(rf"\b{name}\b", elsewhere) or f'call("{name}"' in calls, name
    own = [name for path in SCRIPTS for name in re.findall(r"(?m)^\s*(\w+)\(\)", path.read_text())]
    assert not [name for name in FUNCTIONS if own.count(name) != 1]


def test_words_of_a_user_are_quoted_in_a_call() -> None:
    called = subprocess.run(
        ["sh", "-c", call("tell_there", "/$(id)", "/tmp", "it's 1; echo no")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.stdout == "/tmp\n"


@pytest.mark.parametrize("shell", [["sh"], *SHELLS], ids=" ".join)
def test_the_totals_of_a_program_that_is_stopped_are_those_at_its_end(
    shell: list[str], tmp_path: Path
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    code = (
        "import signal, sys, pathlib\n"
        "held = bytearray(b'x' * (50 << 20))\n"
        "def end(*_):\n    pathlib.Path('exit').touch()\n    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print(sum(range(5_000_000)), flush=True)\n"
        "signal.pause()\n"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        stat = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
        known = {"pid": program.pid, "birth": stat[19], "memory": "1000 500 400"}
        for name, value in known.items():
            (tmp_path / name).write_text(f"{value}\n")
        (tmp_path / "samples").write_text("1.00 2\n")
        shutil.copy("/proc/sys/kernel/random/boot_id", tmp_path / "boot_id")
        script = render("run/stop.sh.j2", {"folder": PurePosixPath(tmp_path), "mark": "stopped"})
        subprocess.run([*shell, "-c", script], check=True, timeout=60)
    peaks = read_peaks(tmp_path)
    assert peaks is not None
    assert peaks.resident_bytes > 50 << 20
    assert peaks.virtual_bytes >= peaks.resident_bytes
    assert peaks.least_available_bytes == 400 * 1024
    first, last = (tmp_path / "samples").read_text().splitlines()
    assert first == "1.00 2"
    assert int(last.split()[1]) > 2


LONG = "a" * 30_000


def told(shell: list[str], script: str, folder: Path) -> str:
    """Run a script whose board's programs and files are below a folder."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    path = f"PATH={folder}/bin:$PATH\n"
    shown = script.replace("/sys/", f"{folder}/sys/")
    done = subprocess.run([*shell, "-c", path + shown], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("line", [LONG, f"{LONG}={LONG}", f"throttled=0x0 {LONG}"])
def test_a_line_that_no_kernel_writes_is_not_taken_apart(
    shell: list[str], line: str, tmp_path: Path
) -> None:
    zone = "sys/class/thermal/thermal_zone0"
    write_tree(tmp_path, {f"{zone}/temp": line, f"{zone}/type": line, "long": line})
    write_tree(tmp_path, {"bin/vcgencmd": f"#!/bin/sh\ncat {tmp_path}/long"})
    (tmp_path / "bin" / "vcgencmd").chmod(0o755)
    assert told(shell, call("tell_temperatures"), tmp_path) == "0 - thermal_zone0\n"
    functions = call("note_throttles").rpartition("note_throttles\n")[0]
    script = functions + call("find_throttles") + "note_throttles\n"
    (source, note) = told(shell, script, tmp_path).splitlines()
    assert source == "source firmware vcgencmd get_throttled"
    assert note.startswith("at ")
    assert len(note) < 300


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_tool_that_prints_without_end_is_cut_short(shell: list[str], tmp_path: Path) -> None:
    write_tree(tmp_path, {"bin/vcgencmd": "#!/bin/sh\nexec yes"})
    (tmp_path / "bin" / "vcgencmd").chmod(0o755)
    functions = call("note_throttles").rpartition("note_throttles\n")[0]
    script = functions + call("find_throttles") + "note_throttles\n"
    assert len(told(shell, script, tmp_path)) < 500


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_script_that_nobody_waits_for_ends_by_itself(
    shell: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    monkeypatch.setattr(framing, "_SPARE_S", 0)
    words = [*shell, "-c", framing.bounded("while :; do :; done", 0.5)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGXCPU
    lifted = framing.bounded(f"ulimit -t; {call('lift_time')}\nulimit -t", 0.5)
    shown = subprocess.run([*shell, "-c", lifted], capture_output=True, text=True, check=False)
    assert shown.stdout.split() == ["1", "unlimited"]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_following_a_run_ends_with_its_reader(shell: list[str], tmp_path: Path) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    with subprocess.Popen(["sleep", "600"]) as run:
        files = {"boot_id": boot.strip(), "pid": run.pid, "wrapper": run.pid, "stdout": "x"}
        write_tree(tmp_path, files)
        os.mkfifo(tmp_path / "ended")
        held = os.open(tmp_path / "ended", os.O_RDWR)
        script = render("run/follow.sh.j2", {"folder": tmp_path})
        with subprocess.Popen(
            [*shell, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as following:
            assert following.stdout is not None
            assert following.stdout.read(1) == b"#"
            following.stdout.close()
            wait_until(lambda: following.poll() is not None)
        assert run.poll() is None
        os.close(held)
        run.kill()
