"""Making a new version of a service, trying it, and putting it in force if it is good enough."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.ports import free_port
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, RunError, UsageError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.core.values import Value
from armload.deploy.retry import with_retries
from armload.engines.server import SERVER
from armload.engines.service_plan import ServingPlan
from armload.engines.weights import BoardMemory
from armload.runs.request import Request
from armload.runs.session import leased_board, session
from armload.services.asking import ask, wait_until_ready
from armload.services.certificate import TlsFiles
from armload.services.folder import (
    delete_version,
    end_trying,
    switch,
    write_run,
    write_speed,
    write_version,
)
from armload.services.init_systems import as_root, told
from armload.services.installing import install_unit
from armload.services.making import (
    MadeVersion,
    WantedModel,
    WantedService,
    checksums,
    find_models,
    make_version,
)
from armload.services.reaching import ReachedService, key_of, reached_on
from armload.services.setting_up import run_script, unit_of
from armload.services.speeds import SpeedChange, compared
from armload.services.state import check_own, held_bytes, installed_service
from armload.services.switching import (
    WATCHED_S,
    interrupted_with,
    put_on_trial,
    settled,
    take_back,
    watch,
)
from armload.services.tls_file import (
    confirm_tls_file,
    put_back_tls_file,
    remove_tls_file,
    wait_until_shown,
    write_tls_file,
)
from armload.services.users import UserIds, ensure_user, hand_over, opened_to
from armload.services.version import AnsweredSpeeds, InstalledModel, Listening, ServiceVersion
from armload.services.version_files import supervisor_lines

_FINISHES_WITHIN_S = 300.0
"""Requests that the new version has got beside the old one."""


class UpdatedService(Value):
    """A service whose new version is in force, and answers.

    Attributes:
        former: the id of the version before, to which it can be rolled back.
        tried: whether the new version ran beside the old one first, or in its place.
        speeds: of the new version.
        changes: against the old one; empty where that was never measured.
        silent_s: how long nothing answered during the switch; requests may have waited for it.
        notes: what is to be known of it, in sentences.
    """

    board: str
    record: ServiceVersion
    former: str
    tried: Literal["beside", "after a pause"]
    speeds: AnsweredSpeeds
    changes: tuple[SpeedChange, ...]
    silent_s: float
    notes: tuple[str, ...] = ()


class _Change(NamedTuple):
    """An update under way."""

    service: ReachedService
    made: MadeVersion
    ids: UserIds | None
    key: str
    slower: float
    watched_s: float
    progress: Progress
    tls: TlsFiles | None = None

    def opened(self, path: PurePosixPath) -> str:
        return opened_to(self.service.chosen.facts, self.service.unit, path)


def update(
    request: Request,
    board: Board,
    progress: Progress,
    *,
    name: str,
    models: Sequence[WantedModel] | None,
    changed: ServingPlan,
    most_loaded: int | None,
    sleep_idle_s: float | None,
    slower: float,
    overwrite: bool,
    tls: TlsFiles | None = None,
    without_tls: bool = False,
    watched_s: float = WATCHED_S,
) -> UpdatedService:
    """Put a new version of a service in force, if it answers and is not certainly slower.

    Args:
        board: that the request names, as it is reached.
        name: of the service; empty for the board's only one.
        models: in place of those that it has; none for the same.
        changed: what is set here changes of every model's plan.
        sleep_idle_s: as of a wanted service; none for the same as before.
        slower: more time per token, as a share, for which the old version is kept.
        overwrite: also a unit that was edited by hand.
        tls: what other machines are shown; none for what they are shown now.
        without_tls: they reach it without, from now on.
        watched_s: after the switch, in which a crash makes the old version come back.

    Raises:
        SlowerError: the new version is slower; the old one goes on.
        RunError: the new version does not answer; the old one goes on.
        ArmloadError: it cannot be made; the old one goes on.
    """
    found = None if models is None else find_models(models, progress)
    with session(request, (SERVER,), progress, board=board) as where:
        host = where.connection.host
        check_own(host, installed_service(host, board.workdir, name))
        with leased_board(where, progress, "changing a service"):
            service = reached_on(host, board, name)
            service = settled(service, progress)
            old = service.record
            listening = _listening(host, old.listening, tls, without_tls=without_tls)
            wanted = WantedService(
                name=service.layout.name,
                models=_wanted(old, models, changed),
                most_loaded=most_loaded or (old.most_loaded if models is None else None),
                sleep_idle_s=sleep_idle_s or old.sleep_idle_s,
            )
            own = ensure_user(host, service.chosen.facts, old.user) if old.user else None
            ids = None if service.chosen.init.sets_user else own
            try:
                if found is None:
                    found = find_models(wanted.models, progress)
                made = make_version(
                    *(where, wanted, found, listening, progress),
                    init=old.init,
                    user=old.user,
                    ids=ids,
                    freed_bytes=held_bytes(host, service.state) or 0,
                    knows_tls=old.listening.with_tls,  # a rollback keeps the supervisor
                )
            except KeyboardInterrupt:
                raise interrupted_with(service, old.id) from None
            key = key_of(host, service.layout)
            change = _Change(service, made, own, key, slower, watched_s, progress, tls)
            return _carried_out(change, overwrite=overwrite)


def _listening(host: Host, old: Listening, tls: TlsFiles | None, *, without_tls: bool) -> Listening:
    if tls is not None and not old.is_open:
        raise UsageError(
            f"--tls-certificate: the service listens on the loopback of {host.name} alone, where "
            "there is nothing to encrypt.",
            "Install it with --listen.",
        )
    if without_tls and old.may_be_public:
        raise UsageError(
            f"--no-tls: the internet may reach the service on {host.name}, and a key sent in the "
            "clear protects nothing there.",
            "Install it with --listen and a private address instead.",
        )
    with_tls = not without_tls and (tls is not None or old.with_tls)
    return old.model_copy(update={"with_tls": with_tls})


def _wanted(
    old: ServiceVersion, models: Sequence[WantedModel] | None, changed: ServingPlan
) -> tuple[WantedModel, ...]:
    """Return the models of the new version: what is not named stays as it is."""
    typed = changed.model_dump(exclude_unset=True)
    former = [each.plan.model_dump(exclude_defaults=True) for each in old.models]
    if models is None:
        return tuple(
            WantedModel(
                given=each.given,
                plan=ServingPlan.model_validate({**plan, **typed}),
                known=_known(each, typed),
            )
            for each, plan in zip(old.models, former, strict=True)
        )
    same_number = len(models) == len(former)
    found = []
    for number, each in enumerate(models):
        own = each.plan.model_dump(exclude_unset=True) if each.plan else {}
        plan = {**(former[number] if same_number else {}), **own, **typed}
        named = {"model", *own, *typed}
        found.append(
            WantedModel(
                given=each.given,
                plan=ServingPlan.model_validate(plan) if plan else None,
                known=_known(old.models[number], named) if same_number else {},
            )
        )
    return tuple(found)


def _known(model: InstalledModel, named: Iterable[str]) -> dict[str, str]:
    """Return the checksums of a model's files that nobody but the board has named."""
    found = checksums(model.file, model.draft, model.projector)
    return {option: found[option] for option in found if option.removeprefix("--") not in named}


def _carried_out(change: _Change, *, overwrite: bool) -> UpdatedService:
    service, made = change.service, change.made
    host, layout, old = service.host, service.layout, service.record
    progress = change.progress
    version_id = made.record.id
    is_beside = _fits_beside(change)
    changes: tuple[SpeedChange, ...] = ()
    is_switched, trying = False, ExitStack()
    try:
        write_version(host, layout, version_id, made.files)
        if change.tls is not None:
            write_tls_file(host, layout, change.tls, change.opened)
        if service.unit.user:
            hand_over(host, *service.chosen, service.unit)
        if is_beside:
            changes = trying.enter_context(_tried(change))
        else:
            progress.say(
                f"{host.name}: there is not enough memory for both versions; the service pauses "
                "while the new one is tested."
            )
        script = run_script(made, layout)
        is_other_run = script.encode() != host.run(f"cat {quote(layout.run)}").stdout
        if is_other_run:
            write_run(host, layout, script, made.supervise)
        stays = is_beside and made.holds_port and not is_other_run and _fits_beside(change)
        if not stays:
            trying.close()
        is_switched = True
        began_s = time.monotonic()
        put_on_trial(service, version_id, confirmed=old.id, by_init=is_other_run)
        wait_until_ready(host, layout, version_id, progress, service.state.state)
        silent_s = 0.0 if stays else time.monotonic() - began_s
        if stays:
            _finish_beside(change)
            trying.close()
        if change.tls is not None:
            wait_until_shown(host, layout, change.tls)
        speeds = ask(host, layout, made.record, change.key, progress)
        if not is_beside:
            changes = _compared(change, speeds)
        watch(service, version_id, service.look().state, change.watched_s, progress)
        write_speed(host, layout, version_id, speeds.model_dump_json())
        kept = [each for each in service.state.kept if each not in (old.id, version_id)]
        switch(host, layout, version_id, former=old.id, confirmed=True, removed=kept)
        if change.tls is not None:
            confirm_tls_file(host, layout)
        elif not made.record.listening.with_tls and not old.listening.with_tls:
            remove_tls_file(host, layout)
    except BaseException as error:
        with trying:
            is_kept = _undo(change, is_switched=is_switched)
        if is_kept and isinstance(error, KeyboardInterrupt):
            raise interrupted_with(service, old.id) from None
        raise
    unit = unit_of(layout, made.record)
    kept_unit = install_unit(host, *service.chosen, unit, overwrite=overwrite) == "kept"
    note = f"Its unit ({made.record.init}) was edited by hand and is kept; --overwrite replaces it."
    return UpdatedService(
        board=host.name,
        record=made.record,
        former=old.id,
        tried="beside" if is_beside else "after a pause",
        speeds=speeds,
        changes=changes,
        silent_s=silent_s,
        notes=(
            *made.notes,
            *(change.tls.notes_for(made.record.listening) if change.tls else ()),
            *([note] if kept_unit else []),
        ),
    )


def _fits_beside(change: _Change) -> bool:
    """Say whether the new version fits into memory while the old one runs."""
    now = with_retries(lambda: probe(change.service.host, change.service.board)).conditions
    record = change.made.record
    needs = sorted((each.forecast.all_bytes for each in record.models), reverse=True)
    is_streamed = any(each.forecast.is_streamed for each in record.models)
    return not is_streamed and sum(needs[: record.most_loaded]) <= BoardMemory.of(now).free_bytes


@contextmanager
def _tried(change: _Change) -> Iterator[tuple[SpeedChange, ...]]:
    """Run the new version beside the old one within the block, and compare its answers.

    It is on another port; while a supervisor changes versions, that passes requests on to it.
    """
    service, made = change.service, change.made
    host, layout = service.host, service.layout
    trying, record = layout.trying, made.record
    port = free_port(host)
    files = {
        "start": f"#!/bin/sh\nPORT={port:d} exec sh {quote(layout.version(record.id) / 'start')}\n",
        "supervisor": supervisor_lines(
            record, change.ids, holds_port=made.holds_port, port=port, failures=1
        ),
    }
    start = told(trying.run, "start")
    if change.ids is not None:
        start = as_root(start, service.chosen.facts)
    end_trying(host, service.chosen.facts, layout)
    try:
        write_version(host, trying, record.id, files)
        write_run(host, trying, run_script(made, trying), made.supervise)
        switch(host, trying, record.id)
        if service.unit.user:
            hand_over(host, *service.chosen, service.unit)
        if host.run(start).status != 0:
            raise RunError(f"{host.name}: the new version cannot be started.")
        wait_until_ready(host, trying, record.id, change.progress)
        speeds = ask(host, trying, record, change.key, change.progress, port=port)
        yield _compared(change, speeds)
    finally:
        end_trying(host, service.chosen.facts, layout)


def _finish_beside(change: _Change) -> None:
    """Wait until the version beside has answered what it was asked while there was no other."""
    until_s = time.monotonic() + _FINISHES_WITHIN_S
    while time.monotonic() < until_s:
        state = change.service.look().state
        if state is None or not state.beside:
            return
        time.sleep(1)


def _compared(change: _Change, speeds: AnsweredSpeeds) -> tuple[SpeedChange, ...]:
    service = change.service
    return compared(service.state.speed, speeds, change.slower, service.host.name)


def _undo(change: _Change, *, is_switched: bool) -> bool:
    """Let the old version go on after a failed update; what cannot be done now is said.

    Returns:
        Whether it goes on.
    """
    service = change.service
    if change.tls is not None:
        put_back_tls_file(service.host, service.layout)
    if is_switched and not take_back(service, service.record.id, change.progress):
        return False
    try:
        _finish_beside(change)
        delete_version(service.host, service.layout, change.made.record.id)
    except (ArmloadError, KeyboardInterrupt) as error:
        said = error.message if isinstance(error, ArmloadError) else "Interrupted."
        change.progress.say(f"{said} The next update deletes what this one left behind.")
    return True
