"""A board is added by probing it: a real SSH server on the loopback stands for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from armload.boards.board import SshAddress
from armload.report.input_schema import BOARD
from tests.person import Person
from tests.servers import make_key, openssh
from tests.terminal import at_a_terminal


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshAddress]:
    with openssh(tmp_path / "sshd") as address:
        yield address


def reached(address: SshAddress) -> tuple[str, ...]:
    where = ("--host", address.host, "--port", str(address.port))
    return (*where, "--user", str(address.user), "--key", str(address.key))


def test_a_board_is_added_once_its_host_key_is_confirmed(
    server: SshAddress, tmp_path: Path
) -> None:
    ann = Person(tmp_path / "ann")
    path = ann.folder / "boards" / "kitchen.yaml"
    refused = ann.types("board.add", "kitchen", *reached(server), status=2)
    assert "SHA256:" in refused.stderr
    assert "--yes" in refused.stderr
    assert not path.exists()
    added = json.loads(
        ann.types("board.add", "kitchen", *reached(server), "--yes", "--json").stdout
    )
    assert path.read_text().startswith(BOARD.comment)
    assert (path.parent / BOARD.file_name).read_text() == BOARD.text()
    written = yaml.safe_load(path.read_text())
    assert written["reach"]["port"] == server.port
    assert written["facts"]["memory"] > 0
    assert added["contradictions"] == []
    assert added["board"]["target"] == written["target"]
    again = ann.types("board.add", "kitchen", *reached(server), status=2)
    assert "already a board named 'kitchen'" in again.stderr


def test_a_changed_host_key_is_replaced_only_by_a_person_on_a_terminal(
    server: SshAddress, tmp_path: Path
) -> None:
    ann = Person(tmp_path / "ann")
    known = ann.home / ".ssh" / "known_hosts"
    known.write_text(f"[{server.host}]:{server.port} {make_key(tmp_path / 'other')}\n")
    refused = ann.types("board.add", "kitchen", *reached(server), "--yes", status=2)
    assert "THE SERVER'S KEY HAS CHANGED" in refused.stderr
    assert "Run the command on a terminal" in refused.stderr
    with at_a_terminal(ann, "board.add", "kitchen", *reached(server)) as asked:
        asked.waits_for("Does it print this fingerprint? [y/n]")
        assert "THE SERVER'S KEY HAS CHANGED" in asked.said
        asked.answers(b"y\n")
        assert asked.ends() == 0
    assert (ann.folder / "boards" / "kitchen.yaml").exists()


def test_the_hardware_that_a_person_names_is_written(server: SshAddress, tmp_path: Path) -> None:
    ann = Person(tmp_path / "ann")
    words = ("board.add", "shed", *reached(server), "--yes")
    mistaken = ann.types(*words, "--hardware", "rock5b-8gb", status=2)
    assert "Did you mean 'rock-5b-8gb'" in mistaken.stderr
    said = ann.types(*words, "--hardware", "raspberry-pi-5-8gb")
    written = yaml.safe_load((ann.folder / "boards" / "shed.yaml").read_text())
    assert written["hardware"] == "raspberry-pi-5-8gb"
    assert "facts" not in written
    # This machine is no Raspberry Pi: both are shown, and programs for it would not run here.
    assert "cores: declared 4 Cortex-A76, found" in " ".join(said.stderr.split())
    assert written["target"] != "rpi5"


@pytest.mark.parametrize(
    ("name", "said"), [("mine", "already a board"), ("../x", "cannot be called")]
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(
    tmp_path: Path, name: str, said: str
) -> None:
    ann = Person(tmp_path / "ann")
    refused = ann.types("board.add", name, "--host", "no-such-board.invalid", status=2)
    assert said in refused.stderr
