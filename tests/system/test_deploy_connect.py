"""What a person is told when a board cannot be reached, and how keys are found."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from armload.boards.board import Board, SshAddress
from armload.boards.connect import connect
from armload.boards.failures import LoginRefusedError
from armload.boards.known_keys import pin_key, pinned_keys_file
from armload.boards.ssh import SshHost
from armload.boards.trust import fetch_host_key, pin, pinned_key
from armload.boards.virtual.process import free_port
from armload.core.errors import ConnectError, DataError, PermanentConnectError
from armload.core.progress import Silent
from armload.deploy.retry import Retry, with_retries
from tests.command_line import BIN, typed
from tests.servers import behind, make_key, openssh

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshAddress]:
    with openssh(tmp_path / "server") as address:
        yield address


def failure(address: SshAddress) -> ConnectError:
    host = SshHost(address, "my-board")
    with pytest.raises(ConnectError) as caught:
        host.run("true")
    assert caught.value.message.startswith("my-board")
    return caught.value


def fingerprint(public_key: Path) -> str:
    listing = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(public_key)], check=True, capture_output=True, text=True
    )
    return listing.stdout.split()[1]


def board_at(address: SshAddress) -> Board:
    reach = {"kind": "ssh", "host": address.host, "port": address.port, "key": address.key}
    return Board.model_validate(
        {"name": "my-board", "target": "rk3568", "reach": reach, "workdir": "/tmp/x"}
    )


def test_a_name_that_nobody_has_is_said() -> None:
    error = failure(SshAddress(host="no-such-board.invalid"))
    assert "the host name 'no-such-board.invalid' cannot be resolved" in error.message
    assert "'Host no-such-board.invalid' '  HostName ADDRESS'" in error.remedy
    assert "--host" in error.remedy


def test_a_port_where_nobody_listens_is_said() -> None:
    error = failure(SshAddress(host="127.0.0.1", port=free_port()))
    assert "connection refused" in error.message
    assert "--host, --port" in error.remedy


@contextmanager
def answering(words: bytes) -> Iterator[SshAddress]:
    """Run what answers so, once it was told something, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = subprocess.Popen(
            [sys.executable, "-c", _ANSWER, words.hex()], stdin=listener.fileno()
        )
        try:
            yield SshAddress(host="127.0.0.1", port=port)
        finally:
            client.kill()
            client.wait()


_ANSWER = """
import socket, sys
listener = socket.socket(fileno=0)
while True:
    line, _ = listener.accept()
    line.recv(1000)
    line.sendall(bytes.fromhex(sys.argv[1]))
    line.close()
"""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 300, "HTTP/1.1 400 Bad Request"),
        (b"<!DOCTYPE HTML>\n<html lang=en>\n</html>\n", "<!DOCTYPE HTML>"),
        (b"\x15\x03\x01\x00\x02\x02F", r"\x15\x03\x01\x00\x02\x02F"),
        (b"220 ready\r\n", "220 ready"),
    ],
    ids=["long", "a web server", "TLS", "a mail server"],
)
def test_what_is_no_ssh_server_is_said(words: bytes, shown: str) -> None:
    with answering(words) as address:
        message = failure(address).message
    assert message.endswith(f"not an SSH server; it answered '{shown}'.")


def test_pythons_web_server_is_told_from_an_ssh_server_with_too_many_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("armload.boards.ssh_connection._LOGIN_ATTEMPTS", 1)

    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        message = failure(SshAddress(host="127.0.0.1", port=web.server_port)).message
        web.shutdown()
    assert "not an SSH server; it answered " in message
    for words in (b"Exceeded MaxStartups\r\n", b"Not allowed at this time\r\n"):
        with answering(words) as address:
            error = failure(address)
        assert error.message.endswith(f"closed it immediately, saying '{words.decode().strip()}'.")
        assert "too many connections" in error.remedy


def test_a_host_that_takes_connections_and_stays_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("ssh_route", "failures"):
        monkeypatch.setattr(f"armload.boards.{module}.CONNECT_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        error = failure(SshAddress(host="127.0.0.1", port=port))
    assert "no SSH server answered within 0.5 s" in error.message


@pytest.mark.parametrize("spoilt", [b"other ssh-ed25519 AAAAC", b"\xff\xfe ssh-ed25519 AAAA"])
def test_a_spoilt_line_among_the_known_keys_is_told(
    server: SshAddress, home: Path, spoilt: bytes
) -> None:
    good = f"[127.0.0.1]:{server.port} {server.host_key}\n".encode()
    own = home / ".ssh" / "known_hosts"
    unpinned = server.model_copy(update={"host_key": None})
    own.write_bytes(b"# mine\n" + good + spoilt + b"\n")
    error = failure(unpinned)
    assert f"{own}, line 3" in error.message
    assert error.remedy == "Correct or remove that line."
    own.write_bytes(good)
    pinned = pinned_keys_file()
    pinned.parent.mkdir(parents=True)
    pinned.write_bytes(spoilt + b"\n")
    assert f"{pinned}, line 1" in failure(unpinned).message
    pinned.unlink()
    assert SshHost(unpinned, "my-board").run("echo in").text == "in"


def test_an_unknown_key_is_refused_with_the_line_that_pins_it(
    server: SshAddress, tmp_path: Path
) -> None:
    error = failure(server.model_copy(update={"host_key": None}))
    assert fingerprint(tmp_path / "server" / "host.pub") in error.message
    assert "armload board.trust --board my-board" in error.remedy


def test_what_only_a_person_can_put_right_is_not_waited_for(
    server: SshAddress, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    for wrong in ({"host_key": None}, {"host_key": other}, {"key": tmp_path / "missing"}):
        host = SshHost(server.model_copy(update=wrong), "my-board")
        asked = 0

        def ask(host: SshHost = host) -> None:
            nonlocal asked
            asked += 1
            host.run("true")

        with pytest.raises((PermanentConnectError, DataError)):
            with_retries(ask, Retry(1.0))
        assert asked == 1


def test_a_key_that_was_pinned_is_trusted(server: SshAddress, tmp_path: Path) -> None:
    board = board_at(server)
    shown = fetch_host_key(board)
    assert shown.fingerprint == fingerprint(tmp_path / "server" / "host.pub")
    assert shown.kind == "ssh-ed25519"
    file = pin(shown)
    assert file.is_relative_to(tmp_path / "home")
    host = connect(board, Silent())
    assert host.run("echo in").text == "in"
    host.close()


def test_a_changed_key_is_refused_loudly(server: SshAddress, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    error = failure(server.model_copy(update={"host_key": other}))
    assert "KEY HAS CHANGED" in error.message
    assert fingerprint(tmp_path / "other.pub") in error.message
    assert fingerprint(tmp_path / "server" / "host.pub") in error.message


def test_a_changed_key_is_refused_until_it_is_trusted_anew(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    other = make_key(tmp_path / "other")
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}\n")
    unpinned = server.model_copy(update={"host_key": None})
    assert "KEY HAS CHANGED" in failure(unpinned).message
    shown = fetch_host_key(board_at(server))
    assert pinned_key(shown) is None
    pin(shown)
    assert pinned_key(shown) == shown
    assert SshHost(unpinned, "my-board").run("echo in").text == "in"


def test_a_pinned_key_is_replaced_with_a_word_of_warning(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "mine.yaml").write_text(
        f"target: rk3568\nreach: {{kind: ssh, host: 127.0.0.1, port: {server.port}}}\n"
        "workdir: /tmp/x\n"
    )
    other = make_key(tmp_path / "other")
    pin_key("127.0.0.1", server.port or 22, other)
    said = [
        subprocess.run(
            [str(BIN / "armload"), "board.trust", "--board", "mine", "--yes", "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    former = fingerprint(tmp_path / "other.pub")
    assert "replaces the pinned key of 127.0.0.1" in said[0].stderr
    assert said[0].stderr.count(former) == 2
    assert [json.loads(each.stdout)["replaced_fingerprint"] for each in said] == [former, None]
    assert "This key is already pinned." in said[1].stderr
    (tmp_path / "boards" / "mine.yaml").rename(tmp_path / "boards" / "yours.yaml")
    again = ("board.trust", "--board", "yours")
    assert "already pinned" in typed(tmp_path, *again).stderr
    pin_key("127.0.0.1", server.port or 22, other)
    unasked = typed(tmp_path, *again)
    assert (unasked.returncode, "no terminal" in unasked.stderr) == (2, True)


def test_a_refused_login_names_the_keys_that_were_tried(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    make_key(tmp_path / "stranger")
    make_key(home / ".ssh" / "id_ed25519")
    error = failure(server.model_copy(update={"key": tmp_path / "stranger"}))
    assert isinstance(error, LoginRefusedError)
    assert str(tmp_path / "stranger") in error.message
    assert str(home / ".ssh" / "id_ed25519") in error.message
    assert not error.password_would_do


def test_a_board_that_wants_a_password_says_where_to_put_it(tmp_path: Path) -> None:
    with openssh(tmp_path / "server", extra="Match all\nPasswordAuthentication yes\n") as address:
        make_key(tmp_path / "stranger")
        error = failure(address.model_copy(update={"key": tmp_path / "stranger"}))
    assert isinstance(error, LoginRefusedError)
    assert error.password_would_do
    assert "ARMLOAD_SSH_PASSWORD" in error.remedy


def test_a_wrong_password_is_named_among_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_SSH_PASSWORD", "wrong")
    with openssh(tmp_path / "server", extra="Match all\nPasswordAuthentication yes\n") as address:
        make_key(tmp_path / "stranger")
        error = failure(address.model_copy(update={"key": tmp_path / "stranger"}))
    assert "the password in ARMLOAD_SSH_PASSWORD" in error.message


def test_a_key_file_that_is_missing_is_said(server: SshAddress, tmp_path: Path) -> None:
    host = SshHost(server.model_copy(update={"key": tmp_path / "missing"}), "my-board")
    with pytest.raises(DataError, match="no key file"):
        host.run("true")


def test_a_locked_key_is_said(server: SshAddress, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    make_key(locked)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(locked)], check=True
    )
    assert "passphrase" in failure(server.model_copy(update={"key": locked})).message


def test_the_ssh_configuration_is_honoured(server: SshAddress, home: Path) -> None:
    (home / ".ssh" / "config").write_text(
        f"Host alias\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
        f"  IdentityFile {server.key}\n  IdentityFile {home}/missing\n"
    )
    host = SshHost(SshAddress(host="alias", host_key=server.host_key), "my-board")
    assert host.run("echo in").text == "in"
    host.close()


def test_a_board_behind_another_host_is_reached(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    with openssh(tmp_path / "jump") as jump:
        address = behind(jump, server, home)
        error = failure(address)
        assert "not known yet" in error.message, "the host between is checked, too"
        assert error.remedy.endswith(": ssh jump")
        known = home / ".ssh" / "known_hosts"
        known.write_text(f"[127.0.0.1]:{jump.port} {make_key(tmp_path / 'other')}\n")
        error = failure(address)
        assert "KEY HAS CHANGED" in error.message
        assert error.remedy.endswith(f": ssh-keygen -R '[127.0.0.1]:{jump.port}' && ssh jump")
        known.write_text(f"[127.0.0.1]:{jump.port} {jump.host_key}\n")
        host = SshHost(address, "my-board")
        assert host.run("echo in").text == "in"
        host.close()
