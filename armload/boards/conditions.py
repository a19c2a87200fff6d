"""The state of a board at one moment."""

from __future__ import annotations

from armload.core.values import Value


class Conditions(Value):
    """The board at one moment.

    Attributes:
        boot_id: changes with every boot.
        uptime_s: since that boot.
        kernel: ``uname -r``.
        load_1min: run-queue average.
        memory_total_bytes, memory_available_bytes, swap_used_bytes: from ``/proc/meminfo``.
        workdir_free_bytes: free space for armload's folder.
        governors: CPU frequency governors in use; empty where there is no cpufreq.
        celsius: hottest sensor; none where there is none.
    """

    boot_id: str
    uptime_s: float
    kernel: str
    load_1min: float
    memory_total_bytes: int
    memory_available_bytes: int
    swap_used_bytes: int
    workdir_free_bytes: int
    governors: tuple[str, ...] = ()
    celsius: float | None = None
