"""What is declared of a board's hardware, in its own file or in the catalogue."""

from __future__ import annotations

from pydantic import Field

from armload.core.deciding import Words
from armload.core.values import ByteCount, Value


class CpuCluster(Value):
    """Equal cores of a board."""

    cores: int = Field(ge=1)
    name: Words
    max_mhz: int | None = Field(default=None, gt=0)


class DeclaredSpecs(Value):
    """What is declared about a board; probing finds out the rest.

    Attributes:
        memory: installed memory.
        storage_read_bytes_per_s: sequential read rate of the storage.
        memory_bytes_per_s: read bandwidth of the memory, with all cores.
        memory_core_bytes_per_s: the same with one core.
        memory_copy_bytes_per_s: what one core copies, each byte counted once.
        memory_peak_bytes_per_s: what the memory's type and width promise.
        clusters: its CPU cores.
    """

    memory: ByteCount | None = Field(default=None, gt=0)
    storage_read_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    memory_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    memory_core_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    memory_copy_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    memory_peak_bytes_per_s: ByteCount | None = Field(default=None, gt=0)
    clusters: tuple[CpuCluster, ...] = ()
