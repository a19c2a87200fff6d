"""Programs that cannot start, because what loads them is not there."""

from __future__ import annotations

from pathlib import Path

_LOADERS = (b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-linux-aarch64.so.1")


def without_loader(path: Path) -> Path:
    """Write a program of this machine's that asks for a loader which is nowhere."""
    dynamic = Path("/bin/true").read_bytes()
    loader = next(name for name in _LOADERS if name in dynamic)
    path.write_bytes(dynamic.replace(loader, loader[:-1] + b"X"))
    path.chmod(0o755)
    return path
