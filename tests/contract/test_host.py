"""What every host must do, whatever its server and shell are."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armload.boards.failures import SlowCommandError
from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import join, quote
from armload.deploy.retry import Retry, with_retries
from armload.fleet.gateway_host import GatewayHost

WORDS = st.text(
    st.characters(exclude_characters="\0", codec="utf-8"), max_size=40
) | st.sampled_from(["-n", "$(id)", "`id`", "a b", "'", '"', "\n", "é", "\\", "*", "~", ""])


def test_a_command_names_a_board_with_what_it_is_reached_through(host: Host) -> None:
    board, name, *through = host.named.split()
    assert (board, name) == ("--board", host.name)
    assert through[:1] == (["--scheduler"] if isinstance(host, GatewayHost) else [])


def test_output_streams_and_status_are_told_apart(host: Host) -> None:
    done = host.run("echo out; echo err >&2; exit 3")
    assert (done.status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_a_signalled_program_gives_128_and_its_signal(host: Host) -> None:
    assert host.run("sh -c 'kill -ILL $$'").status == 132
    assert host.run("sh -c 'kill -KILL $$'").status == 137


def test_standard_input_arrives_unchanged(host: Host) -> None:
    data = bytes(range(256)) * 4096
    assert host.run("cat", stdin=data).stdout == data


def test_a_command_without_input_reads_nothing(host: Host) -> None:
    assert host.run("cat; echo done").stdout == b"done\n"


def test_large_output_on_both_streams_does_not_block(host: Host) -> None:
    size = 8_000_000
    done = host.run(f"head -c {size} /dev/zero & head -c {size} /dev/zero >&2; wait")
    assert (len(done.stdout), len(done.stderr)) == (size, size)


def test_a_command_longer_than_small_servers_take_is_run(host: Host) -> None:
    text = "x" * 50_000
    done = host.run(f"cat\necho {text}\nexit 4")
    assert (done.status, done.text) == (4, text)


def test_a_long_command_has_its_own_input(host: Host) -> None:
    data = bytes(range(256)) * 4096
    text = "it's \\ a long line  \n" * 500
    done = host.run(f"printf %s {quote(text)}; cat; exit 4", stdin=data)
    assert done.status == 4
    assert done.stdout == text.encode() + data


@pytest.mark.parametrize("size", [1_000_000, 20_000_000])
def test_a_file_with_a_long_name_is_resumed(host: Host, tmp_path: Path, size: int) -> None:
    name = f"it's {'a model with a long name ' * 8}.gguf.part"
    local, remote = tmp_path / "local", PurePosixPath(tmp_path / name)
    data = bytes(range(250)) * (size // 250)
    local.write_bytes(data)
    Path(remote).write_bytes(data[:500_000] + b"what a dropped connection left")
    host.send_file(local, remote, offset_bytes=500_000, sent=lambda _: None)
    assert Path(remote).read_bytes() == data
    host.write(remote, [b"the end"], offset_bytes=500_000)
    assert Path(remote).read_bytes() == data[:500_000] + b"the end"


def test_a_command_that_is_merely_slow_is_not_repeated_beside_the_first(
    host: Host, tmp_path: Path
) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    waits = f"until [ -e {quote(gate)} ]; do sleep 0.1 2>/dev/null || sleep 1; done"
    command = f"echo begun >>{quote(begun)}; {waits}"
    try:
        with pytest.raises(SlowCommandError, match="took longer than 2 s"):
            with_retries(lambda: host.run(command, timeout_s=2), Retry(10))
        assert begun.read_text() == "begun\n"
        assert host.run("echo on").text == "on"
    finally:
        gate.touch()


def test_a_command_that_takes_too_long_is_given_up(host: Host) -> None:
    with pytest.raises(ConnectError, match=r"longer than 0\.3 s"):
        host.run("sleep 600", timeout_s=0.3)
    assert host.run("echo again").text == "again"


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(WORDS, min_size=1, max_size=4))
def test_every_word_reaches_a_program_unchanged(host: Host, words: list[str]) -> None:
    script = (
        'for word in "$@"; do echo "${#word}"; done; for word in "$@"; do cat <<E\n$word\nE\ndone'
    )
    done = host.run(join(["sh", "-c", script, "name", *words]))
    expected = "".join(f"{word}\n" for word in words).encode()
    assert done.stdout.endswith(expected)
    assert done.status == 0


def test_a_file_is_written_and_read_back(host: Host, tmp_path: Path) -> None:
    path = PurePosixPath(tmp_path / "a name with 'quotes' and $(id)\nand a line")
    data = bytes(range(256)) * 10_000
    host.write(path, [data[:1_000_000], data[1_000_000:]])
    assert b"".join(host.read(path)) == data


def test_writing_from_an_offset_cuts_the_file_there(host: Host, tmp_path: Path) -> None:
    path = PurePosixPath(tmp_path / "file")
    host.write(path, [b"0123456789"])
    host.write(path, [b"ab"], offset_bytes=4)
    assert b"".join(host.read(path)) == b"0123ab"
    host.write(path, [b"new"])
    assert b"".join(host.read(path)) == b"new"


def test_a_length_that_32_bits_do_not_hold_is_told_from_a_short_one(
    host: Host, tmp_path: Path
) -> None:
    path = PurePosixPath(tmp_path / "file")
    with Path(path).open("wb") as file:
        file.write(b"0123")
        file.truncate((1 << 32) + 4)  # the numbers of some shells begin again there
    host.write(path, [b"ab"], offset_bytes=4)
    assert Path(path).stat().st_size == 6
    assert b"".join(host.read(path)) == b"0123ab"


def test_a_local_file_is_sent_from_an_offset_on(host: Host, tmp_path: Path) -> None:
    local, remote = tmp_path / "local", PurePosixPath(tmp_path / "it's remote")
    data = bytes(range(256)) * 20_000
    local.write_bytes(data)
    told: list[int] = []
    host.send_file(local, remote, offset_bytes=0, sent=told.append)
    assert Path(remote).read_bytes() == data
    assert (told[0], told[-1]) == (0, len(data))
    Path(remote).write_bytes(data[:1_000_000] + b"what a dropped connection left")
    told.clear()
    host.send_file(local, remote, offset_bytes=1_000_000, sent=told.append)
    assert Path(remote).read_bytes() == data
    assert (told[0], told[-1]) == (1_000_000, len(data))
    assert told == sorted(told)


def test_a_stream_yields_output_before_the_command_ends(host: Host, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    pieces = host.stream(f"echo first; until [ -e {quote(gate)} ]; do sleep 1; done; echo last")
    assert next(pieces) == ("stdout", b"first\n")
    gate.touch()
    assert list(pieces) == [("stdout", b"last\n")]


def test_a_silent_stream_is_given_up(host: Host) -> None:
    with pytest.raises(ConnectError, match="no data for"):
        list(host.stream("sleep 600", silence_s=0.3))


def test_a_missing_file_and_a_full_disk_are_the_boards_fault(host: Host, tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="cannot be read"):
        list(host.read(PurePosixPath(tmp_path / "missing")))
    with pytest.raises(BoardError, match="No space left on device"):
        host.write(PurePosixPath("/dev/full"), [bytes(1 << 20)] * 50)
    with pytest.raises(BoardError, match="cannot be written"):
        host.write(PurePosixPath(tmp_path / "missing" / "file"), [b"data"])
    (tmp_path / "local").write_bytes(bytes(3_000_000))
    with pytest.raises(BoardError, match="No space left on device"):
        host.send_file(
            tmp_path / "local", PurePosixPath("/dev/full"), offset_bytes=0, sent=lambda _: None
        )
    assert host.run("echo again").text == "again"


def test_large_content_survives(host: Host, tmp_path: Path) -> None:
    path = PurePosixPath(tmp_path / "large")
    block = hashlib.sha256(b"seed").digest() * 32768
    host.write(path, (block for _ in range(20)))
    digest = hashlib.sha256()
    for chunk in host.read(path):
        digest.update(chunk)
    assert digest.digest() == hashlib.sha256(block * 20).digest()


def test_what_an_old_connection_still_writes_does_not_spoil_a_new_transfer(
    host: Host, tmp_path: Path
) -> None:
    path = PurePosixPath(tmp_path / "part")
    target, mark = quote(path), quote(f"{path}.writer")
    host.write(path, [b"first half, "])
    host.run(f"sleep 60 >>{target} </dev/null 2>/dev/null & echo $! >{mark}")
    old = host.run(f"cat {mark}").text
    # The shell names the process before that has opened the file.
    host.run(f"until [ /proc/{old}/fd/1 -ef {target} ]; do sleep 0.1 || sleep 1; done")
    host.write(path, [b"second half"], offset_bytes=12)
    assert host.run(f"[ /proc/{old}/fd/1 -ef {target} ]").status != 0
    assert not (tmp_path / "part.writer").exists()
    assert Path(path).read_bytes() == b"first half, second half"
