"""YAML that a person edits is answered with file, line and what is allowed."""

from __future__ import annotations

import re
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
        (GOOD + "labels: [a b]\n", 4, "labels, entry 1: must be text of the form .*'a b'"),
        (GOOD + "memory: 2 GiB\n", 4, "'memory'.*memory belongs under facts: move it there"),
        (GOOD + "host: x\n", 4, "'host'.*host belongs under reach: move it there"),
        (
            "target: rk3568\nreach: {kind: virtual}\nmemory: 1 GiB\n",
            *(3, "memory belongs under reach: move it there, and indent it"),
        ),
        ("extends: virtual\nfacts: {cores: 4}\n", 2, "cores belongs under reach: move it there"),
        (
            "target: rk3568\nreach: {kind: local, workdir: /x}\n",
            *(2, "workdir belongs at the top level: move it there, without indentation"),
        ),
        (
            "target: rk3568\nreach: {kind: ssh, host: x, cores: 2}\n",
            *(2, "'reach.cores'.\ncores is a key of kind: virtual. Allowed here: kind, host"),
        ),
        (
            "target: rk3568\nreach: {kind: local, key: x}\n",
            *(2, "key is a key of kind: ssh or hdc"),
        ),
        (GOOD + "1: foo\n", 4, "the key '1' must be text.*quote it: without"),
        (GOOD + "facts: {on: 1}\n", 4, "the key 'on' must be text"),
        (GOOD + "facts:\n  clusters:\n  - cores: 1\n    ~: 2\n", 7, "the key '~' must be text"),
        (GOOD + "description: a\0b\n", 4, "the character 0x0000 is not allowed"),
        ("extends: nobody\n", 1, "there is no boards/nobody.yaml"),
        ("extends: virtul\n", 1, "no boards/virtul.yaml.\nDid you mean 'virtual'"),
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
    assert (extends in caught.value.remedy) == (wrong == "base")


@pytest.mark.parametrize(
    ("text", "line", "column", "words", "remedy"),
    [
        ("target: [rk3568\n", 1, 9, "'[' is never closed", "Add the missing ']'"),
        ("target: [rk3568\nreach: {}\n", 1, 9, "'[' is never closed", "Add the missing"),
        (GOOD + 'labels: ["a" "b"]\n', 4, 14, "a comma or ']' is missing", "with commas"),
        (GOOD + "labels: [a]]\n", 4, 12, "text after the end of the value", "Delete it"),
        ("target: rk3568\n  workdir: /x\n", 2, 10, "indented more than the line", "the same ind"),
        ("reach:\n    kind: ssh\n  host: x\n", 3, 3, "matches no line above", "the same ind"),
        ("target: x\n- a\n", 2, 1, "a list entry ('- …') is not allowed", "Give all entri"),
        ("- a\ntarget: x\n", 2, 1, "a key cannot appear between list entries", "of their own"),
        ("target: x\nreach:\n\tkind: local\n", 3, 1, "a tab cannot indent", "with spaces"),
        ("target: x\nreach\n  kind: local\n", 2, 1, "there is no colon after", "Put a colon"),
        (GOOD + "description: a: b\n", 4, 15, "a value cannot contain ': '", "Quote the value"),
        (GOOD + "description: it's: b\n", 4, 18, "a value cannot contain ': '", "Quote the"),
        (GOOD + "description: 'it\n", 4, 14, "this quote is never closed", "Close it"),
        (GOOD + 'description: "a\\qb"\n', 4, 17, r"\q has no meaning within", "single quotes"),
        (GOOD + 'description: "a" b\n', 4, 18, "text after the end of the value", "Delete it"),
        (GOOD + "description: *x\n", 4, 14, "begins with * or & must be quoted", "Quote text"),
        (GOOD + "description: @x\n", 4, 14, "cannot begin with '@' unless it is", "Quote text"),
        (GOOD + "description: !big x\n", 4, 14, "the tag '!big' has no meaning", "Delete the"),
        (GOOD + "description: {{ x }}\n", 4, 15, "a key cannot be a list", "Quote text"),
        (GOOD + "---\na: b\n", 4, 1, "the file holds several documents", "Delete the line"),
        ("%foo\na: b\n", 2, 1, "this is not valid YAML", "Check the indentation"),
    ],
)
def test_a_mistake_of_syntax_is_shown_in_its_line_without_the_words_of_a_parser(
    boards: Path, text: str, line: int, column: int, words: str, remedy: str
) -> None:
    path = boards / "broken.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load_board("broken")
    first, shown, mark = caught.value.message.split("\n")
    assert first.startswith(f"{path}, line {line}, column {column}: ")
    assert words in first
    assert shown.strip() == text.split("\n")[line - 1].strip()
    assert mark.strip() == "^"
    assert remedy in caught.value.remedy
    for jargon in ("token", "mapping values", "scalar", "block", "node", "stream", "parsing"):
        assert jargon not in str(caught.value)


def test_of_a_long_line_the_part_around_the_mistake_is_shown(boards: Path) -> None:
    (boards / "broken.yaml").write_text(f"description: {'x' * 500}: {'y' * 500}\n")
    with pytest.raises(DataError) as caught:
        load_board("broken")
    _, shown, mark = caught.value.message.split("\n")
    assert len(shown) < 110
    assert shown[len(mark) - 1 :].startswith(": y")


def test_no_full_stop_follows_a_command_that_lists_names(boards: Path) -> None:
    for target in ("", "target: nothing-like-it\n"):
        (boards / "base.yaml").write_text(f"{target}reach: {{kind: local}}\n")
        (boards / "broken.yaml").write_text("extends: base\n")
        for name in ("base", "broken"):
            with pytest.raises(DataError) as caught:
                load_board(name)
            assert re.search(r"To list [a-z 0-9]+: ls \S+/toolchains$", caught.value.remedy)


def test_all_mistakes_are_told_at_once_each_with_its_line(boards: Path) -> None:
    (boards / "base.yaml").write_text(GOOD + "facts:\n  memory: lots\n")
    path = boards / "broken.yaml"
    path.write_text("extends: base\nlabels: [a, a b]\nworksdir: /x\nreach:\n  port: 0\nhost: x\n")
    with pytest.raises(DataError) as caught:
        load_board("broken")
    head, *lines = caught.value.message.split("\n")
    assert head == f"{path}: 5 errors."
    assert [each.partition(": ")[0] for each in lines] == [
        "  line 2",
        "  line 3",
        "  line 5",
        "  line 6",
        f"  {boards / 'base.yaml'}, line 5",
    ]
    assert "there is no key 'worksdir'. Did you mean 'workdir'?" in lines[1]
    assert "reach.port: must be 1 or more, but is 0." in lines[2]
    assert "host belongs under reach" in lines[3]


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("host", "hots"),
        "hardware: nowhere-board\nreach: {kind: local}\n",
        GOOD + "facts: {clusters: [{cores: x, name: y}]}\n",
    ],
)
def test_a_mistake_that_only_follows_from_another_is_not_told(boards: Path, text: str) -> None:
    (boards / "broken.yaml").write_text(text)
    with pytest.raises(DataError) as caught:
        load_board("broken")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"target: \xff\xfe\n", "this is not UTF-8 text"),
        (b"description: 2026-13-45\n", "month must be in 1..12[\\s\\S]*Quote text"),
        (b"[" * 5000, "nested too deeply"),
        (b"{" * 20_000, "nested too deeply"),
        (b"- " * 20_000, "nested too deeply"),
        (b"x: 1\n" * 100_000, "larger than 256 KiB, the limit"),
        (
            b"a: &a ["
            + b"x," * 99
            + b"]\nb: &b ["
            + b"*a," * 99
            + b"]\nc: ["
            + b"*b," * 99
            + b"]\n",
            "with its aliases it holds more than 100,000 values",
        ),
        (b"labels: &a [*a]\n", "with its aliases it holds more than 100,000 values"),
    ],
    ids=["encoding", "date", "depth", "mappings", "sequences", "length", "aliases", "itself"],
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
