"""Groups of boards: their files, what is wrong in them, and who takes them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from armload.boards.board import is_group, load_board
from armload.boards.group import address_in, load_group
from armload.boards.naming import boards_called
from armload.core.errors import DataError, UsageError

REACH = "reach: {kind: ssh, host: somewhere}\n"
FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 10.0.4.0/24 2 0 2
        +-- 10.0.4.0/30 2 0 2
           |-- 10.0.4.0
              /24 link UNICAST
           |-- 10.0.4.2
              /32 host LOCAL
        |-- 10.0.4.255
           /32 link BROADCAST
"""


@pytest.fixture(autouse=True)
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "boards"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(f"target: rk3568\nlabels: [lab]\n{REACH}")
    (folder / "other.yaml").write_text(f"target: rk3588\n{REACH}")
    (folder / "both.yaml").write_text("members: [a, b]\n")
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_file_with_members_is_a_group_even_if_another_file_lists_them(boards: Path) -> None:
    (boards / "nearer.yaml").write_text("extends: both\nlisten: 10.0.4.0/24\n")
    assert not is_group("a")
    for name in ("both", "nearer"):
        assert is_group(name)
        assert [board.name for board in load_group(name).boards] == ["a", "b"]
    assert load_group("both").listen is None
    assert load_group("nearer").listen == IPv4Network("10.0.4.0/24")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("members: [a]\n", "a group has two members or more"),
        ("members: []\n", "a group has two members or more"),
        ("members: [a, b, a]\n", "a is listed twice"),
        ("members: [a, both]\n", "both is a group of boards"),
        ("members: [a, wrong]\n", "both is a group of boards"),
        ("members: [a, nobody]\n", "there is no board named 'nobody'"),
        ("members: [a, other]\n", "a and other differ in target: rk3568 / rk3588"),
        ("members: [a, b]\nlisten: 8.8.8.0/24\n", "8.8.8.0/24 is not private"),
        ("members: [a, b]\nlisten: 100.128.0.1\n", "100.128.0.1/32 is not private"),
        ("members: [a, b]\nlisten: 10.0.0.0/7\n", "10.0.0.0/7 is not private"),
        ("members: [a, b]\nlisten: 127.0.0.1\n", "127.0.0.1/32 is not private"),
        ("members: [a, b]\nlisten: 10.0.4.2/24\n", "not a valid IPv4 network"),
        ("members: [a, b]\ntarget: rk3568\n", "target"),
    ],
)
def test_what_is_wrong_in_a_group_is_named_with_its_line(
    boards: Path, text: str, said: str
) -> None:
    name = "wrong"
    said = said.replace("both is", "wrong is") if "wrong]" in text else said
    (boards / f"{name}.yaml").write_text(text)
    with pytest.raises(DataError) as caught:
        load_group(name)
    line = len(text.splitlines())
    assert f"{name}.yaml, line {line}: " in caught.value.message
    assert said in str(caught.value)


@pytest.mark.parametrize("listen", ["100.101.102.103", "100.64.0.0/10", "169.254.1.0/24"])
def test_a_tailnet_and_a_cable_are_private(boards: Path, listen: str) -> None:
    (boards / "near.yaml").write_text(f"members: [a, b]\nlisten: {listen}\n")
    assert load_group("near").listen == IPv4Network(listen)


def test_commands_for_single_boards_refuse_a_group() -> None:
    with pytest.raises(UsageError, match="both is a group of boards") as caught:
        load_board("both")
    assert "boards/both.yaml" in caught.value.remedy


def test_a_group_is_named_only_by_its_name() -> None:
    assert boards_called(["both"]) == ("both",)
    assert boards_called(["@lab"]) == ("a", "b")
    assert "both" not in boards_called(["b*"])


@pytest.mark.parametrize(
    ("network", "found"),
    [
        ("10.0.4.0/24", "10.0.4.2"),
        ("10.0.4.2/32", "10.0.4.2"),
        ("10.0.0.0/8", "10.0.4.2"),
        ("10.0.4.0/31", None),
        ("192.168.0.0/16", None),
    ],
)
def test_a_board_says_which_of_its_addresses_is_in_a_network(
    network: str, found: str | None
) -> None:
    expected = IPv4Address(found) if found else None
    assert address_in(IPv4Network(network), FIB_TRIE) == expected
