"""Installed services as this machine reaches them: their boards, their init, and their keys."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from armload.boards.board import Board
from armload.boards.boot import boot_facts
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.core.errors import UsageError
from armload.core.files import require_file, require_private
from armload.core.progress import Progress
from armload.deploy.lease import leased
from armload.deploy.retry import FIRST_ANSWER_S, Retry, with_retries
from armload.runs.api_keys import key_file, write_key
from armload.services.folder import ApiKey, new_api_key, read_keys
from armload.services.init_systems import choose
from armload.services.setting_up import BoardInit, unit_of
from armload.services.state import (
    ServiceOnBoard,
    check_own,
    installed_service,
    running_record,
)
from armload.services.unit import UnitFacts
from armload.services.version import ServiceLayout, ServiceVersion


@dataclass(frozen=True, kw_only=True)
class ReachedService:
    """An installed service on a board that answers.

    Attributes:
        state: as the board told it when it was reached.
        record: of the version in force.
        chosen: what starts it there.
        unit: what that was told.
    """

    host: Host
    board: Board
    state: ServiceOnBoard
    record: ServiceVersion
    layout: ServiceLayout
    chosen: BoardInit
    unit: UnitFacts

    def look(self) -> ServiceOnBoard:
        """Return how it is now."""
        return with_retries(
            lambda: installed_service(self.host, self.board.workdir, self.layout.name)
        )


def reached_on(host: Host, board: Board, name: str, *, changes: bool = False) -> ReachedService:
    """Return an installed service of a board that is connected already.

    Args:
        name: empty for the board's only one.
        changes: refuse another user's, which this login cannot change.
    """
    retry = Retry(unanswered_s=FIRST_ANSWER_S)
    state = with_retries(lambda: installed_service(host, board.workdir, name), retry)
    if changes:
        check_own(host, state)
    record = running_record(host, state)
    layout = ServiceLayout(workdir=board.workdir, name=state.name)
    facts = boot_facts(host, board)
    chosen = BoardInit(facts, choose(facts, record.init, board.name))
    return ReachedService(
        host=host,
        board=board,
        state=state,
        record=record,
        layout=layout,
        chosen=chosen,
        unit=unit_of(layout, record),
    )


@contextmanager
def reached_service(
    board: Board, name: str, progress: Progress, *, changes: bool = False
) -> Iterator[ReachedService]:
    """Reach an installed service within the block.

    Args:
        name, changes: as for ``reached_on``.

    Raises:
        UsageError: the board has no such service.
        BoardError: what started it cannot be used by this login.
    """
    with closing(connect(board, progress)) as host:
        yield reached_on(host, board, name, changes=changes)


@contextmanager
def leased_service(
    board: Board, name: str, progress: Progress, *, wait_s: float
) -> Iterator[ReachedService]:
    """Reach an installed service, and have its board for oneself within the block.

    The service is as the board tells it once nobody else can change it.
    """
    with (
        reached_service(board, name, progress, changes=True) as service,
        leased(
            *(service.host, board.workdir, progress),
            wait_s=wait_s,
            beside=lambda: connect(board, progress),
            doing="changing a service",
        ),
    ):
        yield reached_on(service.host, board, service.layout.name)


def installed_key_file(board: str, name: str) -> Path:
    """Return where this machine keeps a key of an installed service."""
    return key_file("any").parent / "installed" / f"{board}-{name}.key"


def keep_installed_key(board: str, name: str, key: ApiKey) -> Path:
    """Keep a key of an installed service for programs of this user, and return where."""
    return write_key(installed_key_file(board, name), key.key)


def forget_installed_key(board: str, name: str) -> None:
    """Delete a service's key from this machine, where there is one."""
    with contextlib.suppress(OSError):
        installed_key_file(board, name).unlink(missing_ok=True)


def key_of(host: Host, layout: ServiceLayout) -> str:
    """Return the first of a service's keys, as the board has them.

    Raises:
        BoardError: the board's keys cannot be read.
        UsageError: it has none.
    """
    keys = read_keys(host, layout)
    if not keys:
        raise UsageError(
            f"{host.name}: the service {layout.name} has no key.",
            f"Add one: armload service.keys {host.named} --name {layout.name} --add NAME",
        )
    return keys[0].key


def keys_in_file(path: Path) -> tuple[ApiKey, ...]:
    """Read a person's file of keys: ``KEY`` or ``NAME KEY`` in each line.

    Raises:
        UsageError: there is none, others can read it, or a line is no key.
    """
    require_file(path, "key file", "Correct the path of --key-file.")
    require_private(path, "file of keys", "use new keys.")
    if path.stat().st_size > 1 << 16:
        raise UsageError(f"{path}: too large for a file of keys.", "Correct --key-file.")
    keys: list[ApiKey] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name = words[0] if len(words) > 1 else f"key-{len(keys) + 1}"
        keys.append(new_api_key(name, words[-1]))
    if not keys:
        raise UsageError(f"{path}: it contains no key.", "Write one key in each line.")
    check_names([each.name for each in keys], str(path))
    return tuple(keys)


def check_names(names: list[str], origin: str) -> None:
    """Refuse names of keys that are there twice."""
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"{origin}: two keys are named {twice}.", "Give each its own name.")
