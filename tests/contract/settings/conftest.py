"""Boards whose kernel's files are the test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from armload.boards.host import Host
from tests.contract.settings.kernel import SHELLS, Kernel, board_host


@pytest.fixture(scope="session", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path / "kernel")
    made.has_policy("cpufreq/policy0", "0 1", "schedutil", 408_000, 1_800_000)
    made.has_policy("cpufreq/policy2", "2", "powersave", 600_000, 2_400_000)
    return made


@pytest.fixture
def host(tmp_path: Path, shell: str, kernel: Kernel) -> Iterator[Host]:
    with board_host(tmp_path / "server", shell, kernel) as connected:
        yield connected
