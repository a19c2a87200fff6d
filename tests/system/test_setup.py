"""``./setup``, in a project that needs nothing from a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "setup"
DISTRIBUTIONS = Path("/usr/bin/python3")
_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "alone"
version = "1"
"""
_BACKEND = '''
"""Makes a wheel that holds nothing but its name."""
import zipfile

def build_editable(folder, settings=None, metadata=None):
    with zipfile.ZipFile(f"{folder}/alone-1-py3-none-any.whl", "w") as wheel:
        info = "alone-1.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: alone\\nVersion: 1\\n"
                       "Provides-Extra: hub\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return "alone-1-py3-none-any.whl"
'''


def _program(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def _another_python(path: Path) -> None:
    """Put a Python there that says of itself that it lies elsewhere."""
    path.parent.mkdir(parents=True)
    _program(
        path,
        f'[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.base_prefix = \'/opt\'; $2"\n'
        f'exec {sys.executable} "$@"',
    )


@pytest.mark.skipif(
    shutil.which("dpkg-query") is None or not DISTRIBUTIONS.exists(), reason="only Debian promises"
)
@pytest.mark.exhaustive(covers=["setup"])
def test_setup_takes_the_distributions_python_and_no_venv_of_another(tmp_path: Path) -> None:
    shutil.copy(SETUP, tmp_path)
    (tmp_path / "pyproject.toml").write_text(_PROJECT)
    (tmp_path / "backend.py").write_text(_BACKEND)
    _another_python(tmp_path / "bin" / "python3")
    _another_python(tmp_path / ".venv" / "bin" / "python")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([tmp_path / "setup"], env=os.environ | {"PATH": path}, check=True)
    made = tmp_path / ".venv" / "bin" / "python"
    assert made.resolve() == DISTRIBUTIONS.resolve()

    kept = tmp_path / ".venv" / "kept"
    kept.touch()
    subprocess.run([tmp_path / "setup"], env=os.environ | {"PATH": path}, check=True)
    assert kept.exists()


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="only Debian has packages")
@pytest.mark.parametrize("has_sudo", [False, True], ids=["without sudo", "not a sudoer"])
@pytest.mark.parametrize("words", [(), ("--dev",)], ids=["run", "dev"])
def test_setup_tells_who_is_not_root_what_to_install_and_how_to_go_on(
    tmp_path: Path, words: tuple[str, ...], *, has_sudo: bool
) -> None:
    """Whose dpkg knows of no packages, and whose ``id`` says ordinary user."""
    shutil.copy(SETUP, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "grep", "apt-get"):
        (tools / name).symlink_to(shutil.which(name) or name)
    _program(tools / "dpkg-query", "exit 1")
    _program(tools / "id", "echo 1000")
    if has_sudo:
        _program(tools / "sudo", "echo a password is required >&2; exit 1")
    done = subprocess.run(
        [tmp_path / "setup", *words],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert re.search(
        r"apt-get .*install .* e2fsprogs" + (" git" if words else "$"), done.stderr, re.MULTILINE
    )
    assert done.stderr.endswith(f"and then run {' '.join(('./setup', *words))} again.\n")
    assert not (tmp_path / ".venv").exists()
