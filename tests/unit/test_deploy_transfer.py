"""How long a transfer waits for a board that goes away more than once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from armload.boards.local import LocalHost
from armload.core.errors import ConnectError
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.deploy.transfer import push

RETRY_FOR_S = 0.5


class _BreakingTwice(LocalHost):
    """A line that breaks before the first byte, and again when much has been copied for long."""

    def __init__(self) -> None:
        super().__init__("twice")
        self.calls = 0

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ConnectError("broken before a byte")
        super().send_file(local, remote, offset_bytes=offset_bytes, sent=sent)
        if self.calls == 2:
            time.sleep(2 * RETRY_FOR_S)
            raise ConnectError("broken again, much later")


def test_a_second_break_after_long_copying_is_waited_for_like_the_first(tmp_path: Path) -> None:
    local, layout = tmp_path / "file", Layout(workdir=PurePosixPath(tmp_path / "work"))
    remote = layout.model("0" * 64, "file")
    local.write_bytes(bytes(17 << 20))
    assert push(
        _BreakingTwice(),
        layout,
        local,
        remote,
        sha256=hashlib.sha256(local.read_bytes()).hexdigest(),
        executable=False,
        progress=Silent(),
        retry_for_s=RETRY_FOR_S,
    )
    assert Path(remote).stat().st_size == local.stat().st_size
