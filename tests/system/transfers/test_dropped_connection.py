"""Lines that break: nothing is lost, and the next call goes on."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.core.errors import ConnectError
from armload.deploy.follow import ProgressUpdate, follow
from tests.contract.launching import launched
from tests.servers import cut_line
from tests.system.transfers.pushing import SIZE, part_of, pushed


def remote_of(tmp_path: Path) -> Path:
    return tmp_path / "work" / "models" / "0" / "file"


def test_a_push_goes_on_over_new_lines(server: SshAddress, file: Path, tmp_path: Path) -> None:
    assert server.port is not None
    remote = remote_of(tmp_path)
    with cut_line(server.port, after_bytes=[SIZE // 3, SIZE // 3]) as port:
        host = SshHost(server.model_copy(update={"port": port}), "my-board")
        assert pushed(host, file, remote)
        host.close()
    assert remote.read_bytes() == file.read_bytes()


def test_a_push_that_failed_is_continued_by_the_next(
    server: SshAddress, file: Path, tmp_path: Path
) -> None:
    assert server.port is not None
    remote = remote_of(tmp_path)
    with cut_line(server.port, after_bytes=[SIZE // 2, 0, 0, 0, 0]) as port:
        host = SshHost(server.model_copy(update={"port": port}), "my-board")
        with pytest.raises(ConnectError):
            pushed(host, file, remote, retry_for_s=0)
        host.close()
    part = part_of(remote)
    assert 0 < part.stat().st_size < SIZE
    assert not remote.exists()
    with cut_line(server.port, after_bytes=[SIZE - part.stat().st_size + 2_000_000]) as port:
        host = SshHost(server.model_copy(update={"port": port}), "my-board")
        assert pushed(host, file, remote), "only what was missing goes through this connection"
        host.close()
    assert remote.read_bytes() == file.read_bytes()


def test_the_call_after_a_break_makes_a_new_connection(server: SshAddress) -> None:
    assert server.port is not None
    with cut_line(server.port, after_bytes=[20_000]) as port:
        host = SshHost(server.model_copy(update={"port": port}), "my-board")
        assert host.run("echo one").text == "one"
        with pytest.raises(ConnectError, match="dropped"):
            host.run("cat >/dev/null", stdin=bytes(1_000_000))
        assert host.run("echo two").text == "two"
        host.close()


def test_a_run_survives_its_connection_and_is_followed_over_the_next(
    server: SshAddress, tmp_path: Path
) -> None:
    assert server.port is not None
    gate = tmp_path / "gate"
    script = f"echo before; until [ -e '{gate}' ]; do sleep 0.1; done; echo after; exit 5"
    host = SshHost(server, "my-board")
    folder = launched(host, PurePosixPath(tmp_path / "work"), "sh", "-c", script)
    host.close()
    texts = []

    def grown(now: ProgressUpdate) -> None:
        texts.append(now.text)
        if now.text == "before\n":
            host.close()
            gate.touch()

    assert follow(host, folder, grown) == 5
    assert texts[-1] == "before\nafter\n"
    host.close()


def test_a_board_that_stays_away_is_said_with_what_to_do(
    tmp_path: Path, server: SshAddress
) -> None:
    assert server.port is not None
    with cut_line(server.port, after_bytes=[0] * 100) as port:
        host = SshHost(server.model_copy(update={"port": port}), "my-board")
        with pytest.raises(ConnectError, match="my-board") as caught:
            follow(host, PurePosixPath(tmp_path), lambda now: None, retry_for_s=0.5)
    assert "armload pull --board my-board" in caught.value.remedy
