import os
import socket
import tempfile
from pathlib import Path

import pytest

from armload.boards.board import Board, load_board
from armload.boards.connect import check_not_stopped, is_blank
from armload.boards.failures import PoweredOffError
from armload.boards.host import Completed, Host
from armload.boards.local import LocalHost
from armload.boards.probe import probe
from armload.boards.virtual.machine import has_storage
from armload.boards.virtual.process import Started
from armload.boards.virtual.state import (
    MachineState,
    address_of,
    keep,
    machine_folder,
    machine_state,
    mark_off,
    sibling_folders,
    socket_path,
)
from armload.core.progress import Silent
from armload.deploy.clean import Selection, clean
from armload.runs import session
from armload.runs.fetch import pull
from armload.runs.session import Connection


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def own_state(port: int) -> MachineState:
    process = Started.of(os.getpid())
    assert process is not None
    return MachineState(process=process, port=port, answered=True)


def test_kept_state_is_read_back_while_the_process_has_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        state = keep(tmp_path, own_state(server.getsockname()[1]))
        assert machine_state(tmp_path) == state
    assert machine_state(tmp_path) is None


def test_a_machine_that_somebody_stops_is_told_from_one_that_lost_its_power() -> None:
    board = load_board("virtual")
    folder = machine_folder(board)
    folder.mkdir(parents=True)
    state = own_state(1)
    keep(folder, state)
    check_not_stopped(board)
    keep(folder, state.model_copy(update={"is_stopping": True}))
    for _ in range(2):
        with pytest.raises(PoweredOffError, match=r"was stopped with board\.down"):
            check_not_stopped(board)
        mark_off(folder)


class _Reached(Connection):
    """Reaches a virtual board that is restarted after each boot it is told of."""

    def __init__(self, board: Board, boots: list[Host]) -> None:
        self.board, self._boots = board, boots
        self.host = boots.pop(0)

    def again(self) -> None:
        self.host = self._boots.pop(0)


class _Gone(LocalHost):
    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        raise PoweredOffError("It was restarted in the meantime.")


def test_a_board_that_was_restarted_while_programs_were_compiled_is_reached_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = load_board("virtual")
    before = probe(LocalHost("virtual"), load_board("this-machine"))
    now = before.model_copy(update={"machine": "now"})
    monkeypatch.setattr(session, "probe", lambda *_: now)
    lost = _Reached(board, [_Gone("virtual"), LocalHost("virtual")])
    assert session._reached_still(lost, before) == (lost, now)
    kept = _Reached(board, [LocalHost("virtual")])
    assert session._reached_still(kept, before) == (kept, before)


def test_port_that_someone_else_took_is_not_ours(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        state = own_state(server.getsockname()[1])
        gone = state.process.model_copy(update={"start_mark": "0"})
        keep(tmp_path, state.model_copy(update={"process": gone}))
        assert machine_state(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", '{"port": 1}'])
def test_damaged_state_means_off(tmp_path: Path, content: str) -> None:
    (tmp_path / "machine.json").write_text(content)
    assert machine_state(tmp_path) is None


def test_address_pins_the_machines_key_and_names_only_our_login_key(tmp_path: Path) -> None:
    address = address_of(tmp_path, own_state(4022))
    assert address.host_key == (tmp_path / "host_key.pub").read_text().strip()
    assert address.key == tmp_path / "client_key"
    assert (address.host, address.port, address.user) == ("127.0.0.1", 4022, "root")


def changed(board: Board, **reach: object) -> Board:
    return board.model_copy(update={"reach": board.reach.model_copy(update=reach)})


def test_each_board_workspace_and_definition_has_its_own_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board("virtual")
    folders = {
        machine_folder(board),
        machine_folder(load_board("virtual-dayu200")),
        machine_folder(changed(board, memory=1 << 30)),
    }
    (tmp_path / "boards").mkdir()
    monkeypatch.chdir(tmp_path)
    folders.add(machine_folder(board))
    assert len(folders) == 4


def test_machines_of_an_edited_board_are_found_but_not_those_of_others() -> None:
    board = load_board("virtual")
    edited = changed(board, memory=1 << 30)
    for one in (board, edited, load_board("virtual-dayu200")):
        machine_folder(one).mkdir(parents=True)
    assert set(sibling_folders(board)) == {machine_folder(board), machine_folder(edited)}


def test_deep_folders_get_a_socket_path_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        path = socket_path(deep, "qmp")
        assert path != socket_path(deep, "console")
        assert path == socket_path(deep, "qmp")
        assert path.parent.stat().st_mode & 0o077 == 0
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))


def test_nothing_is_started_to_say_that_a_board_never_was(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board("virtual")
    said: list[str] = []
    monkeypatch.setattr(Silent, "say", lambda _, text: said.append(text))
    assert is_blank(board, Silent())
    assert said == ["virtual was never started in this workspace, so it holds no data."]
    assert pull(board, Silent()).runs == ()
    asked: list[object] = []

    def agreed(entries: object) -> bool:
        asked.append(entries)
        return True

    cleaned = clean(board, Selection(), Silent(), agreed=agreed, wait_s=0)
    assert (cleaned.removed, asked) == ((), [])
    assert not cache.exists()
    machine_folder(board).mkdir(parents=True)
    (machine_folder(board) / "disk.img").touch()
    assert has_storage(board)
    assert not is_blank(board, Silent()), "runs may lie there"
    assert not is_blank(load_board("dayu200"), Silent())
