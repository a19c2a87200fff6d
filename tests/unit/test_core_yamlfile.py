"""YAML that a person edits is answered with file, line and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.boards.board import Board, SshReach, load_board
from armload.core.errors import DataError, UsageError
from armload.core.workspace import data_names


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "boards"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    return folder


GOOD = "target: rk3568\nreach: {kind: ssh, host: bench-7}\nworkdir: /data/local/tmp/armload\n"


def test_a_board_is_one_file(boards: Path) -> None:
    (boards / "mine.yaml").write_text(GOOD + "facts:\n  memory: 2 GiB\n")
    board = load_board("mine")
    assert board.name == "mine"
    assert isinstance(board.reach, SshReach)
    assert board.reach.host == "bench-7"
    assert board.facts.memory == 2 << 30


def test_a_board_that_extends_another_says_only_what_differs(boards: Path) -> None:
    (boards / "mine.yaml").write_text(GOOD + "facts:\n  memory: 2 GiB\n")
    (boards / "second.yaml").write_text("extends: mine\nreach:\n  host: bench-8\n")
    board = load_board("second")
    assert isinstance(board.reach, SshReach)
    assert (board.name, board.reach.host, board.facts.memory) == ("second", "bench-8", 2 << 30)


def test_a_file_that_extends_its_own_name_extends_the_shipped_one(boards: Path) -> None:
    (boards / "dayu200.yaml").write_text("extends: dayu200\nreach:\n  host: my-dayu\n")
    board = load_board("dayu200")
    assert isinstance(board.reach, SshReach)
    assert (board.reach.host, board.target) == ("my-dayu", "rk3568")


def test_an_unknown_name_is_answered_with_near_ones(boards: Path) -> None:
    (boards / "kitchen.yaml").write_text(GOOD)
    with pytest.raises(UsageError, match=r"'kitchn'[\s\S]*kitchen"):
        load_board("kitchn")


@pytest.mark.parametrize("name", ["../boards/kitchen", "a/b", ".."])
def test_a_name_cannot_leave_its_folder(boards: Path, name: str) -> None:
    (boards / "kitchen.yaml").write_text(GOOD)
    with pytest.raises(UsageError):
        load_board(name)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (GOOD + "worksdir: /x\n", 4, "worksdir.*Did you mean 'workdir'"),
        (GOOD + "facts:\n  memory: lots\n", 5, "facts.memory.*'lots' is not a size"),
        (GOOD + "facts:\n  memry: 2 GiB\n", 5, "facts.memry.*Did you mean 'memory'"),
        (GOOD.replace("host", "hots"), 2, "'reach.hots'.*'host'.*kind, host, port, user, key"),
        (GOOD + "facts: {clusters: [{core: 4, name: x}]}\n", 4, "core'.*cores, name, max_mhz"),
        (GOOD + "facts: {clusters: 4}\n", 4, "facts.clusters: must be a list.*but is 4"),
        (GOOD + "facts: [1]\n", 4, "facts: must be a mapping.*but is a list"),
        (GOOD + "description: 3\n", 4, "description: must be text, but is 3"),
        (GOOD.replace("bench-7", ""), 2, "reach.host: must be text, but is empty"),
        (GOOD.replace("kind: ssh, ", ""), 2, "reach: the key 'kind' is missing.*ssh, local, hdc"),
        (GOOD + "build_host: {compiler: zig}\n", 4, "must be 'native' or 'gnu', but is 'zig'"),
        (GOOD + "build_host: {nice: 1.5}\n", 4, "build_host.nice: must be a whole number"),
        (
            "target: rk3568\nworkdir: /x\nreach:\n  kind: carrier-pigeon\n",
            4,
            "reach.kind: .*pigeon",
        ),
        (
            GOOD.replace("bench-7", "b, port: 99999"),
            2,
            "reach.port: must be 65535 or less, but is 99999",
        ),
        ("target: [rk3568\n", 2, "invalid YAML"),
        ("target: rk3568\n  workdir: /x\n", 2, "invalid YAML"),
        ("just words\n", 1, "expected 'key: value' lines.*target, reach, workdir"),
        ("# a remark\n", 1, "this file is empty.*target, reach, workdir"),
        (GOOD + "target: rk3588\n", 4, "duplicate key 'target', first used in line 1"),
        (GOOD + "facts: {memory: 1 GB, memory: 2 GB}\n", 4, "duplicate key 'memory'"),
        (GOOD + "facts:\n  clusters: [{cores: 4, cores: 2}]\n", 5, "duplicate key 'cores'"),
        (
            GOOD.replace("bench-7", "b, port: yes"),
            2,
            "port: must be a whole number, but is true",
        ),
        (
            GOOD.replace("bench-7", "b, port: no"),
            2,
            "reach.port: .*is false.*YAML reads an unquoted yes",
        ),
        (GOOD.replace("bench-7", "off"), 2, "host: must be text, but is false.*quote"),
        (GOOD + "build_host: {nice: on}\n", 4, "build_host.nice: must be a whole number"),
        (GOOD + "facts: {memory: yes}\n", 4, "facts.memory: must be a whole number"),
        (
            GOOD + "facts:\n  clusters:\n  - {cores: 1, name: a}\n  - {cores: yes, name: b}\n",
            *(7, "facts.clusters, entry 2, cores: must be a whole number, but is true"),
        ),
        (GOOD.replace("rk3568", "rk3586"), 1, "target: there is no target named 'rk3586'.*rk3588"),
        (GOOD + "description: !important x\n", 4, "'!important'.*[Dd]elete the tag"),
        (GOOD + "description: *x\n", 4, "invalid YAML.*quote text"),
        ("target: rk3568\nreach:\n\tkind: local\n", 3, "invalid YAML.*Indent with spaces"),
        ("target: rk3568\nreach\n  kind: local\n", 2, "invalid YAML.*Put a colon after the key"),
        (GOOD + "description: a\0b\n", 4, "the character 0x0000 is not allowed"),
        ("extends: nobody\n", 1, "nobody"),
        ("extends: broken\n", 1, "no other boards/broken.yaml"),
    ],
)
def test_a_mistake_is_answered_with_file_line_and_words(
    boards: Path, text: str, line: int, words: str
) -> None:
    path = boards / "broken.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"(?s){path}, line {line}: .*{words}"):
        load_board("broken")


@pytest.mark.parametrize(
    ("base", "text", "wrong", "line", "words"),
    [
        (GOOD + "worksdir: /x\n", "", "base", 4, "'worksdir'"),
        (GOOD + "facts:\n  memry: 2 GiB\n", "facts: {memory: 1 GiB}\n", "base", 5, "facts.memry'"),
        (GOOD, "facts:\n  memry: 2 GiB\n", "broken", 3, "'facts.memry'"),
        (GOOD + "facts:\n  memory: lots\n", "description: x\n", "base", 5, "facts.memory: "),
        (GOOD + "facts:\n  memory: lots\n", "facts: {memory: more}\n", "broken", 2, "'more'"),
        (
            GOOD.replace("ssh", "pigeon"),
            "reach: {port: 22}\n",
            "base",
            2,
            "reach.kind: must be one of",
        ),
        (GOOD, "reach:\n  port: 22\n  prot: 22\n", "broken", 4, "'reach.prot'"),
        (GOOD.replace("host", "hots"), "reach:\n  port: 22\n", "base", 2, "'reach.hots'"),
        (
            GOOD + "facts: {clusters: [{cores: 4, name: x}]}\n",
            "facts:\n  clusters:\n  - cores: 2\n",
            *("broken", 4, "facts.clusters, entry 1, name: this key is missing"),
        ),
        ("target: rk3568\n", "workdir: /x\n", "broken", 1, "reach: this key is missing"),
        ("target: [\n", "workdir: /x\n", "base", 2, "invalid YAML"),
    ],
)
def test_a_mistake_is_told_of_the_file_that_holds_it(
    boards: Path, base: str, text: str, wrong: str, line: int, words: str
) -> None:
    (boards / "base.yaml").write_text(base)
    (boards / "between.yaml").write_text("extends: base\ndescription: as the base, but for this\n")
    (boards / "broken.yaml").write_text(f"extends: between\n{text}")
    path = boards / f"{wrong}.yaml"
    with pytest.raises(DataError, match=rf"(?s)^{path}, line {line}: .*{words}") as caught:
        load_board("broken")
    extends = f"{boards / 'broken.yaml'} extends this file."
    assert (extends in caught.value.remedy) == (wrong == "base" and "YAML" not in words)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"target: \xff\xfe\n", "this is not UTF-8 text"),
        (b"description: 2026-13-45\n", "month must be in 1..12[\\s\\S]*Quote text"),
        (b"[" * 5000, "nested too deeply"),
    ],
    ids=["encoding", "date", "depth"],
)
def test_what_yaml_cannot_read_is_no_fault(boards: Path, content: bytes, said: str) -> None:
    (boards / "broken.yaml").write_bytes(content)
    with pytest.raises(DataError, match=said):
        load_board("broken")


def test_only_files_are_boards(boards: Path) -> None:
    (boards / "mine.yaml").write_text(GOOD)
    (boards / "folder.yaml").mkdir()
    (boards / "gone.yaml").symlink_to("nowhere")
    assert {"mine"} == {"mine", "folder", "gone"} & set(data_names("boards"))


def test_what_is_missing_is_named(boards: Path) -> None:
    (boards / "broken.yaml").write_text("target: rk3568\n")
    with pytest.raises(DataError, match=r"reach: this key is missing"):
        load_board("broken")


def test_every_shipped_board_loads() -> None:
    names = ["dayu200", "this-machine", "virtual", "virtual-dayu200", "yitian710"]
    assert [load_board(name).name for name in names] == names
    assert all(isinstance(load_board(name), Board) for name in names)
