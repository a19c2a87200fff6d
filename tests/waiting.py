"""Waiting for what another process or thread does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any


def wait_until(
    condition: Callable[[], bool],
    process: subprocess.Popen[Any] | None = None,
    *,
    within_s: float = 60.0,
) -> None:
    """Ask until a condition holds.

    Args:
        process: that brings it about, and must not end before.

    Raises:
        AssertionError: it did not come to hold.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"not so within {within_s:g} s"
        time.sleep(0.02)
