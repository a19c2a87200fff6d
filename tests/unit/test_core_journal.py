"""A journal: begun, appended to, resumed, found, and read whatever became of its files."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from armload.core.errors import DataError, DiskError, NewerFormatError, UsageError
from armload.core.journal import LOCK_FILE, CommandHeader, CommandJournal, JournalKind
from armload.core.locks import is_locked
from armload.core.progress import Silent
from armload.core.values import Value


class Errand(CommandHeader):
    """What is to be bought."""

    format: Literal[1] = 1
    wanted: int


class Bought(Value):
    """One thing."""

    thing: str


class ErrandFolder(CommandJournal[Errand, Bought]):
    """An errand, which ends when all is bought."""

    kind = JournalKind(
        noun="errand",
        words=("errand", "outing"),
        header=Errand,
        entry=Bought,
        entries_file="bought-{}.jsonl",
        root=lambda: Path("errands"),
        make="armload errand",
        repair="Go again.",
    )

    @property
    def is_finished(self) -> bool:
        """Whether all is bought."""
        return len(self.entries) == self.header.wanted


class Listening(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep it."""
        self.said.append(text)


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def errand(number: int = 1, word: str = "errand", fingerprint: str = "bread") -> Errand:
    return Errand(
        id=f"2026010{number}T000000Z-{word}-town-aaa{number}",
        fingerprint=fingerprint,
        started_utc="2026-01-01T00:00:00+00:00",
        armload="0",
        wanted=2,
    )


def begun(number: int = 1, *things: str, word: str = "errand") -> ErrandFolder:
    made = ErrandFolder.begin(errand(number, word))
    made.append(*(Bought(thing=thing) for thing in things))
    return made


def things(journal: ErrandFolder, number: int = 0) -> list[str]:
    return [each.thing for each in journal.entries_of(number)]


def test_it_is_read_as_it_was_written() -> None:
    made = begun(1, "bread", "salt")
    made.append(Bought(thing="pear"), number=3)
    made.rewrite_header(errand().model_copy(update={"wanted": 5}))
    for journal in (made, ErrandFolder.read(made.folder)):
        assert journal.header.wanted == 5
        assert things(journal) == ["bread", "salt"]
        assert things(journal, 3) == ["pear"]
        assert things(journal, 4) == []


def test_entries_can_be_replaced() -> None:
    made = begun(1, "bread", "salt")
    made.rewrite([Bought(thing="rye"), *made.entries[1:]])
    assert things(made) == things(ErrandFolder.read(made.folder)) == ["rye", "salt"]


@pytest.mark.parametrize("end", [b'{"thing": "sa', b"\0\0\0", b'{"thing": "s\0\0\0\0\n'])
def test_a_line_that_was_never_completed_is_left_out_and_does_not_spoil_the_next(
    end: bytes,
) -> None:
    path = begun(1, "bread").entries_file()
    path.write_bytes(path.read_bytes() + end)
    again = ErrandFolder.find("latest")
    assert things(again) == ["bread"]
    again.append(Bought(thing="pear"))
    assert things(ErrandFolder.find("latest")) == ["bread", "pear"]


def test_entries_after_a_line_of_zeros_outlast_the_next_append() -> None:
    path = begun(1, "bread").entries_file()
    path.write_bytes(path.read_bytes() + b'{"thing": "s\0\0\0\0\n')
    ErrandFolder.find("latest").append(Bought(thing="pear"))
    path.write_bytes(path.read_bytes() + b'{"thing": "sa')
    ErrandFolder.find("latest").append(Bought(thing="salt"))
    assert things(ErrandFolder.find("latest")) == ["bread", "pear", "salt"]


def test_a_file_of_which_nothing_was_completed_has_no_entries() -> None:
    made = begun()
    made.entries_file().write_bytes(b'{"thing": "sa')
    made.append(Bought(thing="pear"))
    assert things(ErrandFolder.read(made.folder)) == ["pear"]


def _buys(folder: Path, to_come: multiprocessing.synchronize.Event) -> None:
    journal = ErrandFolder.read(folder)
    with journal.locked(Silent()):
        to_come.wait()
        journal.append(Bought(thing="bread"))


def test_of_two_commands_at_once_the_second_waits_and_sees_what_the_first_has_done() -> None:
    fork = multiprocessing.get_context("fork")
    second, to_come = begun(), fork.Event()
    assert things(second) == []
    other = fork.Process(target=_buys, args=(second.folder, to_come))
    other.start()
    while not is_locked(second.folder / LOCK_FILE):
        other.join(0.01)

    class Releasing(Listening):
        """Lets the first command go on as soon as the second one says that it waits."""

        def say(self, text: str) -> None:
            super().say(text)
            to_come.set()

    progress = Releasing()
    with second.locked(progress):
        assert things(second) == ["bread"]
    other.join()
    (said,) = progress.said
    assert said.startswith(f"{second.header.id} is running in another terminal. Waiting for it.")


def test_an_unfinished_one_is_resumed_by_the_same_command_alone() -> None:
    assert ErrandFolder.resume(errand(9), Silent()) is None
    made = begun(1, "bread")
    found = ErrandFolder.resume(errand(9), Silent())
    assert found is not None
    assert found.folder == made.folder
    assert ErrandFolder.resume(errand(9, fingerprint="cheese"), Silent()) is None
    assert ErrandFolder.resume(errand(9), Silent(), since="20260102") is None
    made.append(Bought(thing="salt"))
    assert ErrandFolder.resume(errand(9), Silent()) is None


def test_the_latest_decides_even_if_an_earlier_one_is_unfinished() -> None:
    begun(1, "bread")
    begun(2, "bread", "salt")
    assert ErrandFolder.resume(errand(9), Silent()) is None


damages = pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("errand.json", lambda text: text.replace('"format": 1', '"format": 2'), "format 2 is new"),
        ("errand.json", lambda text: text[:40], r"json: this is not a valid record of an errand"),
        ("errand.json", lambda _: "[" * 100_000, "nested too deep"),
        ("errand.json", lambda text: text.replace('"wanted": 2', '"wanted": "x"'), "wanted: must"),
        (
            "bought-0.jsonl",
            lambda text: text + "{}\n",
            r"bought-0\.jsonl, line 2: this is not a valid record of an errand: thing: this key is",
        ),
    ],
)


@damages
def test_damage_is_named_with_its_place_and_left_alone(
    name: str, spoil: Callable[[str], str], said: str
) -> None:
    path = begun(1, "bread").folder / name
    path.write_text(changed := spoil(path.read_text()))
    with pytest.raises(DataError, match=said) as caught:
        things(ErrandFolder.find("latest"))
    is_newer = isinstance(caught.value, NewerFormatError)
    assert is_newer or caught.value.remedy == "The file was modified. Go again."
    progress = Listening()
    assert ErrandFolder.resume(errand(9), progress) is None
    assert progress.said == [f"skipped: {caught.value.message}"]
    assert path.read_text() == changed


def test_a_damaged_one_does_not_hide_the_one_before() -> None:
    before, damaged = begun(1, "bread"), begun(2)
    (damaged.folder / "errand.json").write_text("{")
    found = ErrandFolder.resume(errand(9), Silent())
    assert found is not None
    assert found.folder == before.folder


def test_what_cannot_be_read_is_an_error_of_this_machine() -> None:
    made = begun()
    (made.folder / "errand.json").unlink()
    with pytest.raises(DiskError, match=r"Cannot read .*errand\.json"):
        ErrandFolder.read(made.folder)
    made.entries_file().unlink()
    made.entries_file().mkdir()
    with pytest.raises(DiskError, match=r"Cannot read .*bought-0\.jsonl"):
        things(ErrandFolder(made.folder, made.header))


def test_a_foreign_folder_is_none_of_them() -> None:
    Path("errands/20260103T000000Z-errand-town-zzzz").mkdir(parents=True)
    assert ErrandFolder.kind.folders() == []
    with pytest.raises(UsageError, match="There is no errand in errands yet") as caught:
        ErrandFolder.find("latest")
    assert caught.value.remedy == "Make one with: armload errand"


def test_it_is_found_by_its_folder_its_id_or_a_part_of_that() -> None:
    first, second = begun(1), begun(2)
    outing = begun(3, word="outing")
    for reference, found in {
        "latest": outing,
        "latest-errand": second,
        "20260101": first,
        "aaa2": second,
        "outing-town-aaa3": outing,
        first.header.id: first,
        str(second.folder): second,
    }.items():
        assert ErrandFolder.find(reference).folder == found.folder, reference
    with pytest.raises(UsageError, match=f"ambiguous: {outing.header.id} or {second.header.id}"):
        ErrandFolder.find("2026")
    with pytest.raises(UsageError, match="There is no errand 'bbb'") as caught:
        ErrandFolder.find("bbb")
    assert caught.value.remedy == f"The latest is {outing.header.id}."


def test_only_what_names_the_kind_is_taken_for_it_where_others_may_be_meant() -> None:
    made = begun(1)
    begun(2, word="outing")
    is_meant = ErrandFolder.kind.is_meant
    meant = ("latest-errand", made.header.id, "errand-town-aaa1", "outing-town-aaa2", "aaa1")
    assert all(map(is_meant, (*meant, str(made.folder))))
    assert not any(map(is_meant, ("latest", "aa1", "20260101", "errand-town-bbb", "x" * 5000)))


def test_every_document_is_one_line_or_indented_json() -> None:
    made = begun(1, "br\nead")
    assert json.loads((made.folder / "errand.json").read_text())["wanted"] == 2
    assert len(made.entries_file().read_text().splitlines()) == 1
    assert things(ErrandFolder.read(made.folder)) == ["br\nead"]
