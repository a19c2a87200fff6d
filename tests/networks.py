"""A network of its own for some processes, whose cable a test pulls."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Network:
    """Two addresses with a cable between them: this machine's, and that of a namespace.

    Attributes:
        here, there: this machine's address, and that of the other end.
        inside: words before a program that is to run at the other end.
    """

    def __init__(self) -> None:
        self._name = f"armload{os.getpid()}"
        self.here, self.there = (f"10.213.{os.getpid() % 256}.{last}" for last in (1, 2))
        self.inside = ("ip", "netns", "exec", self._name)
        _ip("netns", "add", self._name)
        ends = (f"al{os.getpid()}a", f"al{os.getpid()}b")
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        self._cable = ends[1]
        _ip("link", "set", ends[1], "netns", self._name)
        _ip("addr", "add", f"{self.here}/24", "dev", ends[0])
        _ip("link", "set", ends[0], "up")
        _ip("-n", self._name, "addr", "add", f"{self.there}/24", "dev", ends[1])
        for device in (ends[1], "lo"):
            _ip("-n", self._name, "link", "set", device, "up")

    def cut(self, for_s: float) -> None:
        """Pull the cable at the other end, and plug it in again after that time."""
        _ip("-n", self._name, "link", "set", self._cable, "down")
        time.sleep(for_s)
        _ip("-n", self._name, "link", "set", self._cable, "up")

    def remove(self) -> None:
        """Remove both ends."""
        _ip("netns", "del", self._name)


@contextmanager
def network_of_its_own() -> Iterator[Network]:
    """Have a network within the block, without a way to any other."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network of its own takes root and ip")
    network = Network()
    try:
        yield network
    finally:
        network.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
