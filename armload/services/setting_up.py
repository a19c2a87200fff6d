"""Installing a service on a board: from its models to its first answer, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from armload.boards.board import Board, RelayedBoard, SshReach, VirtualReach
from armload.boards.boot import BootFacts, boot_facts
from armload.boards.connect import start
from armload.boards.host import Host
from armload.boards.trust import ssh_address
from armload.core.errors import SKIPS_FINISHED, ArmloadError, InterruptionError, UsageError
from armload.core.progress import Progress, Silent
from armload.core.shell import join, render
from armload.core.values import Value
from armload.engines.engine import Settings
from armload.engines.server import LOOPBACK, SERVER
from armload.runs.request import Request
from armload.runs.session import Session, leased_board, session
from armload.services.asking import ask, wait_until_ready
from armload.services.certificate import Certificate, TlsFiles
from armload.services.folder import (
    ApiKey,
    delete_folder,
    new_api_key,
    switch,
    write_keys,
    write_run,
    write_speed,
    write_version,
)
from armload.services.init_systems import InitSystem, choose
from armload.services.installing import act, install_unit, remove_unit
from armload.services.listening import WantedAddress, choose_listening
from armload.services.making import MadeVersion, WantedService, find_models, make_version
from armload.services.state import ServiceOnBoard, installed_services
from armload.services.tls_file import wait_until_shown, write_tls_file
from armload.services.unit import UnitFacts, check_name
from armload.services.users import UserIds, ensure_user, hand_over, user_for
from armload.services.version import AnsweredSpeeds, ServiceLayout, ServiceVersion

FIRST_KEY = "first"


class InstalledService(Value):
    """A service that was installed or changed, and answers.

    Attributes:
        board: its name.
        record: of the version in force.
        key_names: of its keys.
        keys_path: on the board.
        forward: the command that forwards its port to this machine; empty for a board that is not
            reached by SSH.
        speeds: of its first answers.
        certificate: that other machines are shown; none without TLS.
        notes: what is to be known of it, in sentences.
    """

    board: str
    record: ServiceVersion
    certificate: Certificate | None = None
    key_names: tuple[str, ...]
    keys_path: str
    forward: str
    speeds: AnsweredSpeeds
    notes: tuple[str, ...] = ()


class BoardInit(NamedTuple):
    """What starts services on a board, and what of it this login can use."""

    facts: BootFacts
    init: InitSystem


def install(
    request: Request,
    board: Board,
    wanted: WantedService,
    progress: Progress,
    *,
    listen: WantedAddress | None,
    init: str | None,
    keys: Sequence[ApiKey],
    overwrite: bool,
    key_kept: Callable[[str, ApiKey], object],
    tls: TlsFiles | None = None,
    may_be_public: bool = False,
) -> InstalledService:
    """Install a service, start it, and wait for its first tokens.

    Where that fails, nothing of it is left on the board but copied files.

    Args:
        board: that the request names, as it is reached.
        init: what is to start it; none for the best that is there.
        keys: empty for one that nobody guesses.
        overwrite: a unit of that name that is not armload's, or was edited by hand.
        key_kept: is called with the board's name and the first key once it lies there.
        tls: what other machines are shown; none for no TLS.
        may_be_public: the internet may reach it.

    Raises:
        UsageError: there is a service of that name, or it cannot listen as wanted.
        BoardError: the board cannot start or hold it.
        RunError: it does not answer; says why.
    """
    check_name(wanted.name)
    plan = wanted.models[0].plan
    cpus = [Settings(cpus=plan.cpus, threads=plan.threads)] if plan else []
    keys = keys or (new_api_key(FIRST_KEY),)
    models = find_models(wanted.models, progress)
    with session(request, (SERVER,), progress, settings=cpus, board=board) as where:
        host = where.connection.host
        chosen = init_of(where, init)
        there = installed_services(host, board.workdir)
        refuse_existing(host, wanted.name, there)
        with leased_board(where, progress, "installing a service"):
            layout = ServiceLayout(workdir=board.workdir, name=wanted.name)
            there = installed_services(host, board.workdir)
            refuse_existing(host, wanted.name, there)
            if any(each.name == wanted.name for each in there):
                progress.say(
                    f"{host.name}: an earlier installation of {wanted.name} was interrupted; "
                    "starting over."
                )
                left = UnitFacts(name=wanted.name, folder=layout.folder)
                undo(host, chosen, left, layout, progress)
                there = installed_services(host, board.workdir)
            listening = choose_listening(
                *(host, listen, ports_of(there)),
                with_tls=tls is not None,
                may_be_public=may_be_public,
            )
            bare = UnitFacts(
                name=wanted.name,
                folder=layout.folder,
                user=user_for(chosen.facts, chosen.init, wanted.name).name,
            )
            try:
                user, note = own_user(host, chosen, wanted.name)
                made = make_version(
                    *(where, wanted, models, listening, progress),
                    init=chosen.init.name,
                    user=user.name if user else None,
                    ids=None if user is None or chosen.init.sets_user else user.ids,
                )
                unit = unit_of(layout, made.record)
                write_version(host, layout, made.record.id, made.files)
                write_keys(host, layout, keys)
                if tls is not None:
                    write_tls_file(host, layout, tls)
                write_run(host, layout, run_script(made, layout), made.supervise)
                install_unit(host, *chosen, unit, overwrite=overwrite)
                switch(host, layout, made.record.id)
                if unit.user:
                    hand_over(host, *chosen, unit)
                act(host, *chosen, unit, "start")
                wait_until_ready(host, layout, made.record.id, progress)
                if tls is not None:
                    wait_until_shown(host, layout, tls)
                speeds = ask(host, layout, made.record, keys[0].key, progress)
                key_kept(board.name, keys[0])
                write_speed(host, layout, made.record.id, speeds.model_dump_json())
            except BaseException as error:
                is_gone = undo(host, chosen, bare, layout, progress)
                if is_gone and isinstance(error, KeyboardInterrupt):
                    raise InterruptionError(
                        f"Interrupted. {host.name}: nothing of {wanted.name} is installed.",
                        SKIPS_FINISHED,
                    ) from None
                raise
    return InstalledService(
        board=board.name,
        record=made.record,
        key_names=tuple(each.name for each in keys),
        keys_path=str(layout.keys),
        forward=_forward(board, made.record.listening.port),
        speeds=speeds,
        certificate=tls.certificate if tls else None,
        notes=(
            *made.notes,
            *(tls.notes_for(made.record.listening) if tls else ()),
            *([note] if note else []),
        ),
    )


def _forward(board: Board, port: int) -> str:
    """Return the command that forwards a port of a board's loopback to this machine."""
    if isinstance(board, RelayedBoard):
        return ""
    if isinstance(board.reach, SshReach):
        address = ssh_address(board)
    elif isinstance(board.reach, VirtualReach):
        address = start(board, Silent())
    else:
        return ""
    words = ["ssh", "-N", "-L", f"{port}:{LOOPBACK}:{port}"]
    words += ["-p", str(address.port)] if address.port else []
    words += ["-i", str(address.key)] if address.key else []
    return join([*words, f"{address.user}@{address.host}" if address.user else address.host])


def init_of(where: Session, wanted: str | None) -> BoardInit:
    """Return what starts services on a board.

    Raises:
        BoardError: nothing does; says what would be needed.
    """
    board = where.connection.board
    facts = boot_facts(where.connection.host, board)
    return BoardInit(facts, choose(facts, wanted, board.name))


class OwnUser(NamedTuple):
    """A user of a service's own."""

    name: str
    ids: UserIds


def own_user(host: Host, chosen: BoardInit, name: str) -> tuple[OwnUser | None, str]:
    """Make a service's user where that can be; else return why it has none, as a sentence."""
    found = user_for(chosen.facts, chosen.init, name)
    note = f"{found.reason[:1].upper()}{found.reason[1:]}." if found.reason else ""
    if found.name is None:
        return None, note
    return OwnUser(found.name, ensure_user(host, chosen.facts, found.name)), note


def ports_of(there: Sequence[ServiceOnBoard]) -> dict[int, str]:
    """Return the ports of a board's services, each with the service's name."""
    return {each.record.listening.port: each.name for each in there if each.record}


def refuse_existing(host: Host, name: str, there: Sequence[ServiceOnBoard]) -> None:
    """Refuse a name that a service of the board has, unless installing that was interrupted."""
    found = next((each for each in there if each.name == name), None)
    if found is not None and found.owner:
        raise UsageError(
            f"{host.name} already has a service named {name}, of the user {found.owner}.",
            "Choose another --name.",
        )
    if found is not None and found.is_complete:
        raise UsageError(
            f"{host.name} already has a service named {name}.",
            f"Change it: armload service.update {host.named} --name {name}. "
            "Or choose another --name.",
        )


def unit_of(layout: ServiceLayout, record: ServiceVersion) -> UnitFacts:
    """Return what an init system is told of a service."""
    weights = sum(each.forecast.weights_bytes for each in record.models)
    limit = record.memory_limit_bytes
    return UnitFacts(
        name=layout.name,
        description=f"{record.names}, served by armload",
        folder=layout.folder,
        user=record.user,
        # Mapped weights count where a control group limits memory.
        memory_max_bytes=None if limit is None else limit + weights,
        is_public=record.listening.is_open,
    )


def run_script(made: MadeVersion, layout: ServiceLayout) -> str:
    """Return what the board's init starts, and a person can run."""
    values = {"supervise": made.supervise, "folder": layout.folder, "name": layout.name}
    return render("service/run.sh.j2", values)


def undo(
    host: Host,
    chosen: BoardInit,
    unit: UnitFacts,
    layout: ServiceLayout,
    progress: Progress,
) -> bool:
    """Take away what installing a service has left; what cannot be is said.

    Returns:
        Whether all is gone.
    """
    try:
        remove_unit(host, *chosen, unit)
        delete_folder(host, chosen.facts, layout.folder)
    except ArmloadError as error:
        progress.say(
            f"{error.message} Remove the rest: armload service.remove {host.named} "
            f"--name {layout.name}"
        )
        return False
    return True
