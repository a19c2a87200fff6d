"""Files of a kernel that are ours: each shell sees a folder of the test in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from armload.boards.host import Host
from armload.boards.ssh import SshHost
from tests.servers import dropbear

similar = pytest.mark.exhaustive(
    covers=["armload/boards", "armload/deploy", "armload/runs", "deploy"]
)
SHELLS = ("mksh", pytest.param("busybox", marks=similar), pytest.param("dash", marks=similar))

CPUS, ZONES = "/sys/devices/system/cpu", "/sys/class/thermal"

DROP_CACHES = "/proc/sys/vm/drop_caches"


class Kernel:
    """Files that stand for the kernel's.

    Attributes:
        over: where a shell is to see them.
    """

    def __init__(self, folder: Path) -> None:
        self._cpus, self._zones = folder / "cpu", folder / "thermal"
        self.drop_caches = folder / "drop_caches"
        for path in (self._cpus, self._zones):
            path.mkdir(parents=True)
        self.drop_caches.write_text("0\n")
        self.over: Mapping[str, Path] = {
            CPUS: self._cpus,
            ZONES: self._zones,
            DROP_CACHES: self.drop_caches,
        }

    def has_policy(self, place: str, cores: str, governor: str, khz: int, max_khz: int) -> None:
        folder = self._cpus / place
        folder.mkdir(parents=True)
        for name, content in (
            ("affected_cpus", cores),
            ("scaling_governor", governor),
            ("scaling_available_governors", "schedutil performance powersave "),
            ("scaling_cur_freq", str(khz)),
            ("cpuinfo_max_freq", str(max_khz)),
        ):
            (folder / name).write_text(f"{content}\n")

    def shows_again(self, place: str, where: str) -> None:
        path = self._cpus / place
        path.parent.mkdir()
        path.symlink_to(where)

    def governors(self) -> list[str]:
        paths = sorted(self._cpus.rglob("scaling_governor"))
        return [path.read_text().strip() for path in paths]

    def shows(self, zone: int, name: str, text: str) -> None:
        folder = self._zones / f"thermal_zone{zone}"
        folder.mkdir(exist_ok=True)
        (folder / "type").write_text(f"{name}\n")
        (folder / "temp").write_text(text)


@contextlib.contextmanager
def board_host(
    folder: Path,
    shell: str,
    kernel: Kernel,
    *,
    read_only: bool = False,
    without: frozenset[str] = frozenset(),
) -> Iterator[Host]:
    tools = "busybox" if shell == "busybox" else "toybox"
    with dropbear(
        folder,
        shell=shell,
        tools=tools,
        over=kernel.over,
        read_only=read_only,
        without=without,
    ) as address:
        host = SshHost(address, "bench-board")
        try:
            yield host
        finally:
            host.close()
