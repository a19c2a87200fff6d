"""The same work for several boards at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

WORK = """
import subprocess, sys
from pathlib import Path
from armload.cli.parallel import at_once
from armload.core.children import known

def work(name):
    words = [sys.executable, "-c", "import time; time.sleep(600)", MARK]
    with subprocess.Popen(words, start_new_session=True) as process, known(process):
        Path(FOLDER, name).touch()
        process.wait()

at_once(["one", "two"], work)
"""


def test_an_interruption_leaves_no_program_that_was_started(tmp_path: Path) -> None:
    mark = f"child of {tmp_path}"
    code = f"MARK = {mark!r}\nFOLDER = {str(tmp_path)!r}\n{WORK}"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        while len(list(tmp_path.iterdir())) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(2)
        process.wait(timeout=60)
    children = [each for each in psutil.process_iter(["cmdline"]) if _is_marked(each, mark)]
    _, alive = psutil.wait_procs(children, timeout=30)
    left = [each for each in alive if not _is_dead(each)]
    for each in left:
        each.kill()
    assert left == []


def _is_marked(process: psutil.Process, mark: str) -> bool:
    words: list[str] = process.info["cmdline"] or [""]
    return words[-1] == mark


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
