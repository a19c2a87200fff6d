"""Files of a kernel that are ours: each shell sees a folder of the test in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from armload.boards.host import Host
from armload.boards.ssh import SshHost
from tests.servers import dropbear
from tests.sysfs import write_tree

similar = pytest.mark.exhaustive(
    covers=["armload/boards", "armload/deploy", "armload/runs", "deploy"]
)
SHELLS = ("mksh", pytest.param("busybox", marks=similar), pytest.param("dash", marks=similar))

CPUS, CLASSES = "/sys/devices/system/cpu", "/sys/class"

DROP_CACHES = "/proc/sys/vm/drop_caches"


class Kernel:
    """Files that stand for the kernel's.

    Attributes:
        over: where a shell is to see them.
        devices: folders of devices with clocks of their own.
    """

    def __init__(self, folder: Path) -> None:
        self._cpus, classes = folder / "cpu", folder / "class"
        self._zones, self.devices = classes / "thermal", classes / "devfreq"
        self.drop_caches = folder / "drop_caches"
        for path in (self._cpus, self._zones, self.devices):
            path.mkdir(parents=True)
        self.drop_caches.write_text("0\n")
        self.over: Mapping[str, Path] = {
            CPUS: self._cpus,
            CLASSES: classes,
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

    def has_device(self, name: str, governor: str, hz: int, steps_hz: Sequence[int]) -> Path:
        """Add a device as devfreq shows one; return its folder."""
        return write_tree(
            self.devices / name,
            {
                "name": name,
                "governor": governor,
                "available_governors": "dmc_ondemand simple_ondemand performance",
                "cur_freq": hz,
                "min_freq": steps_hz[0],
                "max_freq": steps_hz[-1],
                "available_frequencies": " ".join(map(str, steps_hz)),
            },
        )

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
