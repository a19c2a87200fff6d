"""A board's file is written from what it shows, and what contradicts its facts is told."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
import yaml

from armload.boards.adding import (
    added_before,
    check_new,
    hardware_of,
    new_name,
    unprobed,
    write_board,
    write_virtual,
)
from armload.boards.board import Board, SshReach, load_board
from armload.boards.contradictions import Contradiction, contradictions
from armload.boards.probe import Probe, parse_probe
from armload.boards.rates import Rates
from armload.core.errors import UsageError
from armload.deploy.compatibility import targets_that_suit
from armload.deploy.rates import Missing
from armload.report.boards import probe_table
from tests.command_line import typed
from tests.unit.test_boards_probe import A55, core, output

A76 = "0xd0b"
GIB = 1 << 30
REACH = SshReach(host="192.168.1.50", user="pi")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def probed(model: str, *parts: str, memory_kib: int = 8_254_000, khz: int = 2_400_000) -> Probe:
    """A board that calls itself so, with these cores."""
    cpuinfo = "".join(core(number, part=part) for number, part in enumerate(parts))
    numbers = " ".join(str(number) for number in range(len(parts)))
    shown = output(
        cpuinfo, policies=f"{numbers};ondemand;1500000;{khz};{khz}\n", device=f"{model}\0\n"
    )
    return parse_probe(shown.replace(b"1999652", str(memory_kib).encode()), "b")


def added(found: Probe, named: str = "") -> Board:
    board = unprobed("kitchen", REACH)
    hardware = hardware_of(found, named)
    target = hardware.hardware.target if hardware else targets_that_suit(board, found)[0]
    return write_board(check_new("kitchen"), board, found, hardware, target)


def test_a_board_that_the_catalogue_knows_is_written_in_three_lines(workspace: Path) -> None:
    found = probed("Raspberry Pi 5 Model B Rev 1.0", *[A76] * 4)
    assert found.device == "Raspberry Pi 5 Model B Rev 1.0"
    board = added(found)
    assert yaml.safe_load((workspace / "boards" / "kitchen.yaml").read_text()) == {
        "description": "Raspberry Pi 5",
        "hardware": "raspberry-pi-5-8gb",
        "reach": {"kind": "ssh", "host": "192.168.1.50", "user": "pi"},
    }
    assert board == load_board("kitchen")
    assert board.target == "rpi5"
    assert contradictions(board, found) == ()


def test_an_unknown_board_is_written_with_what_it_shows(workspace: Path) -> None:
    found = probed("Fancy Board", *[A76] * 4)
    board = added(found)
    written = yaml.safe_load((workspace / "boards" / "kitchen.yaml").read_text())
    assert written["facts"] == {
        "memory": 8_254_000 * 1024,
        "clusters": [{"cores": 4, "name": "Cortex-A76", "max_mhz": 2400}],
    }
    assert board.description == "Fancy Board"
    assert board.target in {"rk3588", "rpi5"}
    assert board.workdir == PurePosixPath("/var/tmp/armload")
    assert contradictions(board, found) == ()


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a b", "a/b"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        check_new(name)


def test_a_board_that_there_is_already_is_not_written_over() -> None:
    with pytest.raises(UsageError, match="already a board"):
        check_new("dayu200")


def test_every_fact_that_the_board_contradicts_is_shown_beside_it() -> None:
    found = probed(
        "Raspberry Pi 4 Model B Rev 1.4", *["0xd08"] * 4, memory_kib=3_900_000, khz=1_800_000
    ).model_copy(
        update={
            "rates": Rates(memory_bytes_per_s=4_000_000_000, storage_read_bytes_per_s=44_000_000)
        }
    )
    board = added(found, named="raspberry-pi-5-8gb")
    shown = contradictions(board, found)
    assert {each.fact: (each.declared, each.found) for each in shown} == {
        "hardware": (
            "raspberry-pi-5-8gb",
            "raspberry-pi-4-4gb (Raspberry Pi 4 Model B Rev 1.4)",
        ),
        "cores": ("4 Cortex-A76", "4 Cortex-A72"),
        "clock": ("2400 MHz", "1800 MHz"),
        "memory": ("8.6 GB", "4.0 GB"),
        "memory bandwidth": ("11.6 GB/s", "4.0 GB/s"),
        "storage bandwidth": ("416.0 MB/s", "44.0 MB/s"),
    }
    table = probe_table(board, found, Missing(memory="", storage=""), in_use="")
    (row,) = [words for what, words in table.rows if what == "contradictions"]
    assert "cores: declared 4 Cortex-A76, found 4 Cortex-A72" in row


def test_what_agrees_within_what_varies_is_no_contradiction() -> None:
    found = probed("Raspberry Pi 5 Model B Rev 1.1", *[A76] * 4).model_copy(
        update={"rates": Rates(memory_bytes_per_s=13_000_000_000)}
    )
    assert contradictions(added(found), found) == ()


def test_a_board_without_facts_is_contradicted_by_nothing() -> None:
    board = Board(name="b", target="rk3568", reach=REACH)
    assert contradictions(board, probed("Fancy Board", A76)) == ()


def test_a_fact_that_is_declared_beside_the_hardware_is_compared() -> None:
    Path("boards").mkdir()
    Path("boards/mine.yaml").write_text(
        "hardware: raspberry-pi-5-8gb\nreach: {kind: ssh, host: a}\nfacts: {memory: 16 GiB}\n"
    )
    found = probed("Raspberry Pi 5 Model B Rev 1.1", *[A76] * 4)
    shown = contradictions(load_board("mine"), found)
    assert shown == (Contradiction(fact="memory", declared="17.2 GB", found="8.5 GB"),)


def test_a_board_that_says_no_name_has_none() -> None:
    assert parse_probe(output(core(0, features=A55)), "b").device == ""


def test_a_board_is_recognised_by_its_address(workspace: Path) -> None:
    assert added_before(REACH) is None
    (workspace / "boards").mkdir()
    (workspace / "boards" / "broken.yaml").write_text("reach: [")
    (workspace / "boards" / "a,b.yaml").write_text("extends: virtual\n")
    (workspace / "boards" / "oven.yaml").write_text(
        "target: rk3568\nreach: {kind: ssh, host: 192.168.1.50, user: pi}\n"
    )
    found = added_before(REACH)
    assert found is not None
    assert found.name == "oven"
    assert added_before(REACH.model_copy(update={"port": 2222})) is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("kitchen", "kitchen"),
        ("kitchen.lan", "kitchen"),
        ("192.168.1.50", "my-board"),
        ("fe80::1%eth0", "my-board"),
        ("_odd", "my-board"),
        ("dayu200.local", "dayu200-2"),
    ],
)
def test_a_new_board_is_called_as_its_host(host: str, name: str) -> None:
    assert new_name(host) == name


def test_one_s_own_virtual_board_is_the_shipped_one_until_it_is_edited(
    workspace: Path,
) -> None:
    shipped = load_board("virtual")
    path = write_virtual("# a comment\n", "virtual")
    assert path.read_text().startswith("# a comment\n")
    described = {"description": "virtual board of this workspace"}
    assert load_board("virtual") == shipped.model_copy(update=described)
    path.write_text("extends: virtual\nlabels: [mine]\n")
    assert write_virtual("", "virtual") == path
    kitchen = write_virtual("", "kitchen")
    assert load_board("kitchen").reach.kind == "virtual"
    assert write_virtual("", "kitchen") == kitchen
    with pytest.raises(UsageError, match="already a board named 'dayu200'"):
        write_virtual("", "dayu200")
    assert load_board("virtual").labels == ("mine",)
    assert write_virtual("", "virtual").parent == workspace / "boards"


def test_the_list_marks_the_default_board_and_those_that_come_with_armload(
    workspace: Path,
) -> None:
    write_virtual("", "kitchen")
    (workspace / "pyproject.toml").write_text("[tool.armload.all]\nboard = 'kitchen'\n")
    said = " ".join(typed(workspace, "board.list").stdout.split())
    assert "kitchen (default)" in said
    assert said.count("(default)") == 1
    (note,) = re.findall(r"From armload: (.*)", said)
    assert "kitchen" not in note
    assert "virtual" in note
    assert "(dayu200 and yitian710: examples of files for real boards)" in note
    (workspace / "pyproject.toml").unlink()
    assert "virtual (default)" in " ".join(typed(workspace, "board.list").stdout.split())


def test_what_is_called_like_a_board_s_file_and_is_none_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "boards"
    (folder / "d.yaml").mkdir(parents=True)
    (folder / "l.yaml").symlink_to("gone.yaml")
    (folder / "garbage.yaml").write_text("nonsense\n")
    said = " ".join(typed(tmp_path, "board.list").stderr.split())
    assert f"Skipped the board d: {folder}/d.yaml is a folder, not a file." in said
    assert f"board l: {folder}/l.yaml is a link to gone.yaml, which does not exist." in said
    assert f"Skipped the board garbage: {folder}/garbage.yaml, line 1: expected" in said
    done = typed(tmp_path, "board.probe", "--board", "d")
    assert done.returncode == 2
    assert f"named 'd': {folder}/d.yaml is a folder, not a file." in " ".join(done.stderr.split())
