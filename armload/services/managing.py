"""What is done to services that are there: stopped, restarted, removed; their keys and logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from armload.boards.board import Board
from armload.boards.boot import boot_facts
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.core.values import Value, visible
from armload.deploy.lease import leased
from armload.deploy.retry import FIRST_ANSWER_S, Retry, with_retries
from armload.services.asking import log_tail, wait_until_ready
from armload.services.certificate import Certificate, TlsFiles, service_url
from armload.services.folder import (
    delete_folder,
    end_by_hand,
    end_trying,
    new_api_key,
    read_keys,
    write_keys,
)
from armload.services.init_systems import choose
from armload.services.installing import act, remove_unit
from armload.services.listing import services_of
from armload.services.reaching import (
    ReachedService,
    check_names,
    forget_installed_key,
    leased_service,
    reached_service,
)
from armload.services.state import ServiceOnBoard, check_own, installed_service, missing_of
from armload.services.switching import settled
from armload.services.tls_file import (
    confirm_tls_file,
    put_back_tls_file,
    wait_until_shown,
    write_tls_file,
)
from armload.services.unit import UnitFacts
from armload.services.users import opened_to, user_for
from armload.services.version import ServiceLayout
from armload.serving.listing import stop_service

_FOLLOW_EVERY_S = 1.0
_MOST_LOG_BYTES = 1 << 20


class StoppedService(Value):
    """A service that was stopped.

    Attributes:
        name: of an installed one; else the id of its run.
        kind: how it was started.
        models: what it served.
        folder: on this machine, where its run was kept; none of an installed one.
    """

    board: str
    name: str
    kind: Literal["command", "detached", "installed"]
    models: str
    folder: Path | None = None


class ChangedService(Value):
    """An installed service that was restarted or removed."""

    board: str
    name: str
    done: Literal["restarted", "removed"]
    version: str | None


class RenewedCertificate(Value):
    """A service that shows another certificate.

    Attributes:
        url: by which other machines reach it.
        notes: what is to be known of it, in sentences.
    """

    board: str
    name: str
    url: str
    certificate: Certificate
    notes: tuple[str, ...]


class ServiceKeys(Value):
    """The keys of a service.

    Attributes:
        names: of all, in their order.
        added: the new key itself, shown this once; none where none was added.
        revoked: names that no longer stand for a key.
    """

    board: str
    name: str
    names: tuple[str, ...]
    added: str | None = None
    revoked: tuple[str, ...] = ()


def stop_any(
    board: Board, progress: Progress, *, name: str, force: bool, wait_s: float
) -> StoppedService:
    """End a service of a board, however it was started.

    Args:
        name: of an installed one, or the beginning of a run's id; empty for the only one.
        force: also one that another machine started.
        wait_s: for the board, while somebody else uses it; a run has it by itself.

    Raises:
        UsageError: there is none, or there are several.
    """
    there = [each for each in services_of(board, progress) if each.is_running]
    found = [
        each
        for each in there
        if each.name == name or (each.kind != "installed" and each.name.startswith(name))
    ] or ([] if name else there)
    if not found:
        called = f" named {name}" if name else ""
        names = ", ".join(each.name for each in there)
        raise UsageError(
            f"{board.name} has no running service{called}.",
            f"Running: {names}." if names else "Choose another board with --board.",
        )
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise UsageError(f"{board.name} has several services: {names}.", "Choose one with --name.")
    (one,) = found
    if one.kind != "installed":
        ended, folder = stop_service(board, progress, run=one.name, force=force)
        return StoppedService(
            board=board.name,
            name=ended.id,
            kind=one.kind,
            models=ended.model.name,
            folder=folder,
        )
    # A run that serves keeps the board for itself, so that nobody changes its services meanwhile.
    is_kept = any(each.kind != "installed" for each in there)
    with (
        reached_service(board, one.name, progress, changes=True)
        if is_kept
        else leased_service(board, one.name, progress, wait_s=wait_s)
    ) as service:
        act(service.host, *service.chosen, service.unit, "stop")
    return StoppedService(board=board.name, name=one.name, kind="installed", models=one.models)


def restart(board: Board, progress: Progress, *, name: str, wait_s: float) -> ChangedService:
    """Stop and start an installed service, and wait until it answers.

    Raises:
        BoardError: what it needs was deleted; one that runs still has it, and is left alone.
    """
    with leased_service(board, name, progress, wait_s=wait_s) as found:
        service = settled(found, progress)
        if missing := missing_of(service.host, board.workdir, service.record):
            raise BoardError(
                f"{board.name}: {', '.join(missing)} is missing; {service.layout.name} could not "
                "start again.",
                f"Copy it again: armload service.update {service.host.named} --name "
                f"{service.layout.name}",
            )
        act(service.host, *service.chosen, service.unit, "restart")
        now = _restarted(service, progress)
    return ChangedService(board=board.name, name=now.name, done="restarted", version=now.version)


def _restarted(service: ReachedService, progress: Progress) -> ServiceOnBoard:
    before = service.state.state
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        # What it noted before says nothing of the new start.
        now = service.look().state
        if now is not None and (before is None or now.pid != before.pid):
            break
        time.sleep(_FOLLOW_EVERY_S)
    return wait_until_ready(service.host, service.layout, service.record.id, progress, before)


def remove(board: Board, progress: Progress, *, name: str, wait_s: float) -> ChangedService:
    """Take an installed service away, with its unit, its user, its keys and its versions.

    Programs and models stay for others; ``board.clean`` removes them when nothing uses them.
    """
    retry = Retry(unanswered_s=FIRST_ANSWER_S)
    with closing(connect(board, progress)) as host:
        found = with_retries(lambda: installed_service(host, board.workdir, name), retry)
        check_own(host, found)
        layout = ServiceLayout(workdir=board.workdir, name=found.name)
        with leased(
            *(host, board.workdir, progress),
            wait_s=wait_s,
            beside=lambda: connect(board, progress),
            doing="changing a service",
        ):
            found = installed_service(host, board.workdir, found.name)
            facts = boot_facts(host, board)
            wanted = found.record.init if found.record else None
            init = choose(facts, wanted, board.name)
            known = found.record
            user = known.user if known else user_for(facts, init, found.name).name
            unit = UnitFacts(name=found.name, folder=layout.folder, user=user)
            end_trying(host, facts, layout)
            kept = remove_unit(host, facts, init, unit)
            end_by_hand(host, facts, layout.folder)
            delete_folder(host, facts, layout.folder)
    if kept:
        progress.say(
            f"{board.name}: {', '.join(map(str, kept))} does not belong to {layout.folder}, or was "
            "edited beyond recognition; it stays."
        )
    forget_installed_key(board.name, found.name)
    return ChangedService(board=board.name, name=found.name, done="removed", version=found.version)


def change_keys(
    board: Board,
    progress: Progress,
    *,
    name: str,
    add: Sequence[str],
    revoke: Sequence[str],
    wait_s: float,
) -> ServiceKeys:
    """Add and revoke keys of an installed service, which is restarted then; or list their names.

    Raises:
        UsageError: no key has that name, one has it already, or none would be left.
    """
    changes = bool(add or revoke)
    with (
        leased_service(board, name, progress, wait_s=wait_s)
        if changes
        else reached_service(board, name, progress)
    ) as service:
        host, layout = service.host, service.layout
        keys = list(read_keys(host, layout))
        names = [each.name for each in keys]
        for each in revoke:
            if each not in names:
                raise UsageError(
                    f"{board.name}: the service {layout.name} has no key named {each}.",
                    f"It has: {', '.join(names)}.",
                )
        new = [new_api_key(each) for each in add]
        kept = [each for each in keys if each.name not in revoke] + new
        check_names([each.name for each in kept], f"{board.name}, {layout.name}")
        if not kept:
            raise UsageError(
                f"{board.name}: that would leave the service {layout.name} without a key.",
                "Add another with --add in the same command, or stop it: armload service.stop "
                f"{host.named} --name {layout.name}",
            )
        if changes:
            facts = service.chosen.facts
            write_keys(host, layout, kept, lambda path: opened_to(facts, service.unit, path))
            # The server reads its keys when it starts.
            if service.state.is_alive:
                confirmed = settled(service, progress)
                act(host, *service.chosen, service.unit, "restart")
                _restarted(confirmed, progress)
        return ServiceKeys(
            board=board.name,
            name=layout.name,
            names=tuple(each.name for each in kept),
            added=new[0].key if new else None,
            revoked=tuple(revoke),
        )


def renew_certificate(
    board: Board, progress: Progress, *, name: str, tls: TlsFiles, wait_s: float
) -> RenewedCertificate | None:
    """Replace the certificate of an installed service while it runs; requests go on.

    Returns:
        What it shows now; none where the service has no TLS so far, and nothing was done.

    Raises:
        RunError: it does not take it; the former one stays.
    """
    with leased_service(board, name, progress, wait_s=wait_s) as service:
        host, layout, listening = service.host, service.layout, service.record.listening
        if not listening.with_tls:
            return None
        facts = service.chosen.facts
        write_tls_file(host, layout, tls, lambda path: opened_to(facts, service.unit, path))
        try:
            if service.state.is_alive:
                with progress.step(f"Renewing the certificate of {layout.name} on {host.name}"):
                    wait_until_shown(host, layout, tls)
        except BaseException:
            put_back_tls_file(host, layout)
            raise
        confirm_tls_file(host, layout)
        return RenewedCertificate(
            board=board.name,
            name=layout.name,
            url=service_url(listening, tls.certificate),
            certificate=tls.certificate,
            notes=tls.notes_for(listening),
        )


def recent_log(board: Board, progress: Progress, *, name: str, most_bytes: int) -> tuple[str, str]:
    """Return the end of an installed service's log, and the service's name."""
    with reached_service(board, name, progress) as service:
        return log_tail(service.host, service.layout, most_bytes), service.layout.name


def followed_log(board: Board, progress: Progress, *, name: str) -> Iterator[str]:
    """Yield what an installed service logs from now on, until the caller stops.

    A connection that drops is renewed; what came meanwhile is yielded then, as far as it is kept.
    """
    with closing(connect(board, progress)) as host:
        retry = Retry(unanswered_s=FIRST_ANSWER_S)
        found = with_retries(lambda: installed_service(host, board.workdir, name), retry)
        log = ServiceLayout(workdir=board.workdir, name=found.name).log
        at, inode = _size_of(host, str(log))
        while True:
            time.sleep(_FOLLOW_EVERY_S)
            try:
                size, now = _size_of(host, str(log))
                if now != inode:
                    at, inode = 0, now
                if size <= at:
                    continue
                first = max(at, size - _MOST_LOG_BYTES)
                done = host.run(f"tail -c +{first + 1:d} {quote(log)} | head -c {size - first:d}")
                at = size
            except ConnectError as error:
                progress.say(f"{error.message} Waiting for the board.")
                with_retries(lambda: host.run("true"))
                continue
            yield visible(done.stdout.decode("utf-8", "replace"))


def _size_of(host: Host, path: str) -> tuple[int, str]:
    """Return a file's size and what tells it from the one before it."""
    words = host.run(f"ls -lin {quote(path)}").text.split()
    if len(words) < 6 or not words[5].isdecimal():
        raise BoardError(f"{host.name}: {path} cannot be read.", "Is the service installed?")
    return int(words[5]), words[0]
