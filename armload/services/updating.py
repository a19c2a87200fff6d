"""Changing the version of a service that is in force, and going back to the one before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from armload.analysis.comparison import ComparedFigure
from armload.analysis.ratios import as_long
from armload.analysis.statistics import Ratio, ratio_of_runs, surely_above
from armload.boards.board import Board
from armload.boards.ports import free_port
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, RunError, SlowerError, UsageError
from armload.core.progress import Progress
from armload.core.shell import quote, render
from armload.core.values import Value, three_figures
from armload.deploy.retry import with_retries
from armload.engines.server import SERVER
from armload.engines.service_plan import ServingPlan
from armload.engines.weights import BoardMemory
from armload.runs.request import Request
from armload.runs.session import leased_board, session
from armload.services.asking import ask, wait_until_ready
from armload.services.folder import (
    delete_version,
    end_trying,
    switch,
    write_run,
    write_speed,
    write_version,
)
from armload.services.init_systems import as_root
from armload.services.installing import act, install_unit, take_up_version
from armload.services.making import MadeVersion, WantedModel, WantedService, make_version
from armload.services.reaching import ReachedService, key_of, leased_service, reached_on
from armload.services.setting_up import run_script, unit_of
from armload.services.state import SupervisorState
from armload.services.users import UserIds, ensure_user, hand_over
from armload.services.version import AnsweredSpeeds, InstalledModel, ServiceVersion
from armload.services.version_files import supervisor_lines

WATCHED_S = 60.0
"""After a switch, in which a crash makes the old version come back."""

_LOOK_EVERY_S = 2.0


class SpeedChange(Value):
    """How fast one model answers, in the new version against the old one.

    Attributes:
        model: its alias.
        old_tps, new_tps: tokens per second, medians of equal requests.
        ratio: of the times per token: above 1, the new version is slower.
    """

    model: str
    old_tps: float
    new_tps: float
    ratio: Ratio

    @property
    def sentence(self) -> str:
        return (
            f"{self.model}: {three_figures(self.new_tps)} tokens/s against "
            f"{three_figures(self.old_tps)} of the old version, {as_long(self.ratio)} "
            "per token."
        )


class UpdatedService(Value):
    """A service whose new version is in force, and answers.

    Attributes:
        former: the id of the version before, to which it can be rolled back.
        tried: whether the new version ran beside the old one first, or in its place.
        speeds: of the new version.
        changes: against the old one; empty where that was never measured.
        silent_s: how long nothing answered during the switch.
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


class RolledBack(Value):
    """A service whose former version is in force again, and answers.

    Attributes:
        version: in force now.
        former: that was in force; a further rollback goes there.
        models: that it serves.
    """

    board: str
    name: str
    version: str
    former: str
    models: str
    silent_s: float


class _Change(NamedTuple):
    """An update under way."""

    service: ReachedService
    made: MadeVersion
    ids: UserIds | None
    key: str
    slower: float
    watched_s: float
    progress: Progress


def update(
    request: Request,
    progress: Progress,
    *,
    name: str,
    models: Sequence[WantedModel] | None,
    changed: ServingPlan,
    most_loaded: int | None,
    sleep_idle_s: int | None,
    slower: float,
    overwrite: bool,
    watched_s: float = WATCHED_S,
) -> UpdatedService:
    """Put a new version of a service in force, if it answers and is not certainly slower.

    Args:
        name: of the service; empty for the board's only one.
        models: in place of those that it has; none for the same.
        changed: what is set here changes of every model's plan.
        slower: more time per token, as a share, for which the old version is kept.
        overwrite: also a unit that was edited by hand.
        watched_s: after the switch, in which a crash makes the old version come back.

    Raises:
        SlowerError: the new version is slower; the old one goes on.
        RunError: the new version does not answer; the old one goes on.
        ArmloadError: it cannot be made; the old one goes on.
    """
    with session(request, (SERVER,), progress) as where:
        host, board = where.connection.host, where.connection.board
        with leased_board(where, progress):
            service = reached_on(host, board, name)
            service = _settled(service, progress)
            old = service.record
            wanted = WantedService(
                name=service.layout.name,
                models=_wanted(old, models, changed),
                most_loaded=most_loaded or (old.most_loaded if models is None else None),
                sleep_idle_s=sleep_idle_s or old.sleep_idle_s,
            )
            own = ensure_user(host, service.chosen.facts, old.user) if old.user else None
            ids = None if service.chosen.init.sets_user else own
            held_bytes = service.state.state.memory_bytes if service.state.state else None
            made = make_version(
                *(where, wanted, old.listening, progress),
                init=old.init,
                user=old.user,
                ids=ids,
                freed_bytes=held_bytes or 0 if service.state.is_alive else 0,
            )
            key = key_of(host, service.layout)
            change = _Change(service, made, own, key, slower, watched_s, progress)
            return _carried_out(change, overwrite=overwrite)


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
                known=each.file.sha256,
                known_draft=None if "speculate" in typed else _draft_of(each),
            )
            for each, plan in zip(old.models, former, strict=True)
        )
    same_number = len(models) == len(former)
    found = []
    for number, each in enumerate(models):
        own = each.plan.model_dump(exclude_unset=True) if each.plan else {}
        plan = {**(former[number] if same_number else {}), **own, **typed}
        is_inherited = same_number and "speculate" not in {*own, *typed}
        found.append(
            WantedModel(
                given=each.given,
                plan=ServingPlan.model_validate(plan) if plan else None,
                known_draft=_draft_of(old.models[number]) if is_inherited else None,
            )
        )
    return tuple(found)


def _draft_of(model: InstalledModel) -> str:
    """Return the checksum of a draft model on a board; empty where it has none."""
    return model.draft.sha256 if model.draft else ""


def _settled(service: ReachedService, progress: Progress) -> ReachedService:
    """Return a service without an update that was interrupted: its old version is in force."""
    state = service.state
    if state.trial is None:
        return service
    host, layout = service.host, service.layout
    if state.trial == state.version:
        switch(host, layout, state.trial, confirmed=True)
    else:
        progress.say(
            f"{host.name}: an earlier update of {layout.name} was interrupted; going back to its "
            "former version first."
        )
        switch(host, layout, state.trial, confirmed=True)
        _restart(service)
        wait_until_ready(host, layout, state.trial, progress)
    return reached_on(host, service.board, layout.name)


def _carried_out(change: _Change, *, overwrite: bool) -> UpdatedService:
    service, made = change.service, change.made
    host, layout, old = service.host, service.layout, service.record
    progress = change.progress
    version_id = made.record.id
    is_beside = _fits_beside(change)
    changes: tuple[SpeedChange, ...] = ()
    is_switched = False
    try:
        write_version(host, layout, version_id, made.files)
        _hand_over(service)
        if is_beside:
            changes = _tried(change)
        else:
            progress.say(
                f"{host.name}: there is no memory for both versions at a time; the service pauses "
                "while the new one is tried."
            )
        script = run_script(made, layout)
        is_other_run = script.encode() != host.run(f"cat {quote(layout.run)}").stdout
        if is_other_run:
            write_run(host, layout, script, made.supervise)
        is_switched = True
        began_s = time.monotonic()
        switch(host, layout, version_id, trial=old.id)
        _hand_over(service)
        _restart(service, by_init=is_other_run)
        wait_until_ready(host, layout, version_id, progress, service.state.state)
        silent_s = time.monotonic() - began_s
        speeds = ask(host, made.record, change.key, progress)
        if not is_beside:
            changes = _compared(change, speeds)
        _watched(change, service.look().state)
        write_speed(host, layout, version_id, speeds.model_dump_json())
        kept = [each for each in service.state.kept if each not in (old.id, version_id)]
        switch(host, layout, version_id, former=old.id, confirmed=True, removed=kept)
    except BaseException:
        _back(change, is_switched=is_switched)
        raise
    unit = unit_of(layout, made.record)
    kept_unit = install_unit(host, *service.chosen, unit, overwrite=overwrite) == "kept"
    note = (
        f"Its unit ({made.record.init}) was edited by hand, and is kept; --overwrite replaces it."
    )
    return UpdatedService(
        board=host.name,
        record=made.record,
        former=old.id,
        tried="beside" if is_beside else "after a pause",
        speeds=speeds,
        changes=changes,
        silent_s=silent_s,
        notes=(*made.notes, *([note] if kept_unit else [])),
    )


def _hand_over(service: ReachedService) -> None:
    if service.unit.user:
        hand_over(service.host, *service.chosen, service.unit)


def _fits_beside(change: _Change) -> bool:
    """Say whether the new version fits into memory while the old one runs."""
    now = with_retries(lambda: probe(change.service.host, change.service.board)).conditions
    record = change.made.record
    needs = sorted((each.forecast.all_bytes for each in record.models), reverse=True)
    is_streamed = any(each.forecast.is_streamed for each in record.models)
    return not is_streamed and sum(needs[: record.most_loaded]) <= BoardMemory.of(now).free_bytes


def _tried(change: _Change) -> tuple[SpeedChange, ...]:
    """Start the new version on another port beside the old one, and compare its answers."""
    service, made = change.service, change.made
    host, layout = service.host, service.layout
    trying, record = layout.trying, made.record
    port = free_port(host)
    files = {
        "start": f"#!/bin/sh\nPORT={port:d} exec sh {quote(layout.version(record.id) / 'start')}\n",
        "supervisor": supervisor_lines(record, change.ids, port=port, failures=1),
    }
    start = render("service/by_hand.sh.j2", {"folder": trying.folder, "word": "start"})
    if change.ids is not None:
        start = as_root(start, service.chosen.facts)
    end_trying(host, service.chosen.facts, layout)
    try:
        write_version(host, trying, record.id, files)
        write_run(host, trying, run_script(made, trying), made.supervise)
        switch(host, trying, record.id)
        if host.run(start).status != 0:
            raise RunError(f"{host.name}: the new version cannot be started.")
        wait_until_ready(host, trying, record.id, change.progress)
        speeds = ask(host, record, change.key, change.progress, port=port)
        return _compared(change, speeds)
    finally:
        end_trying(host, service.chosen.facts, layout)


def _compared(change: _Change, speeds: AnsweredSpeeds) -> tuple[SpeedChange, ...]:
    """Compare the new version's speed with the old one's record.

    Raises:
        SlowerError: it is certainly slower by more than what is allowed.
    """
    former = change.service.state.speed
    old_times = {each.model: each.token_s for each in former.models} if former else {}
    pairs = [
        (each, old_times.get(each.model) or _only(former, speeds))
        for each in speeds.models
        if each.token_s
    ]
    found = []
    figures = []
    for new, old in pairs:
        if not old:
            continue
        ratio = ratio_of_runs(old, new.token_s)
        figures.append(
            ComparedFigure(
                key="token_s",
                heading="time per token",
                unit="s/token",
                a=median(old),
                b=median(new.token_s),
                a_runs=len(old),
                b_runs=len(new.token_s),
                ratio=ratio,
                finding=ratio.finding,
            )
        )
        found.append(
            SpeedChange(
                model=new.model,
                old_tps=1 / median(old),
                new_tps=1 / median(new.token_s),
                ratio=ratio,
            )
        )
    slow = surely_above(1 + change.slower, [each.low_at for each in figures])
    if slow:
        said = " ".join(found[each].sentence for each in slow)
        raise SlowerError(
            f"{change.service.host.name}: the new version is slower than --slower "
            f"{change.slower:.0%} allows. {said} The old version goes on.",
            "Allow it with a larger --slower, or change less at a time.",
        )
    return tuple(found)


def _only(former: AnsweredSpeeds | None, new: AnsweredSpeeds) -> tuple[float, ...]:
    """Return the times of the only model that there was, in place of which another one comes."""
    if former is None or len(former.models) != 1 or len(new.models) != 1:
        return ()
    return former.models[0].token_s


def _watched(change: _Change, before: SupervisorState | None) -> None:
    """Look at the new version for a while.

    Args:
        before: as noted when it answered.

    Raises:
        RunError: it ended.
    """
    service, version_id = change.service, change.made.record.id
    until_s = time.monotonic() + change.watched_s
    label = f"Watching {service.layout.name} on {service.host.name}"
    with change.progress.step(label, total=int(change.watched_s)) as step:
        while (left_s := until_s - time.monotonic()) > 0:
            state = service.look().state
            is_its = state is not None and state.version == version_id
            if state is None or not is_its or state.is_news(before):
                why = state.last_end.what if state and state.last_end else "it was replaced"
                raise RunError(
                    f"{service.host.name}: the new version of {service.layout.name} ended soon "
                    f"after its start: {why}.",
                    f"Its log: armload service.logs --board {service.host.name} --name "
                    f"{service.layout.name}",
                )
            step.update(int(change.watched_s - left_s))
            time.sleep(min(_LOOK_EVERY_S, max(left_s, 0.1)))


def _back(change: _Change, *, is_switched: bool) -> None:
    """Let the old version go on after a failed update; what cannot be done now is said."""
    service = change.service
    host, layout, old = service.host, service.layout, service.record
    say = change.progress.say
    try:
        if is_switched:
            say(f"{host.name}: going back to the old version of {layout.name}.")
            switch(host, layout, old.id, confirmed=True)
            before = service.look().state
            _restart(service)
            wait_until_ready(host, layout, old.id, change.progress, before)
        delete_version(host, layout, change.made.record.id)
    except (ArmloadError, KeyboardInterrupt) as error:
        said = error.message if isinstance(error, ArmloadError) else "Interrupted."
        say(
            f"{said} If the new version fails, the board goes back by itself. To see how it is: "
            f"armload service.status --board {host.name}"
        )


def _restart(service: ReachedService, *, by_init: bool = False) -> None:
    """Have the supervisor start the version that is in force now."""
    if by_init or not take_up_version(service.host, *service.chosen, service.unit):
        act(service.host, *service.chosen, service.unit, "restart")


def roll_back(board: Board, progress: Progress, *, name: str, wait_s: float) -> RolledBack:
    """Put the former version of a service in force again; the one that was becomes the former.

    Raises:
        UsageError: there is none.
        RunError: it does not answer; the service goes on with the version that it had.
    """
    with leased_service(board, name, progress, wait_s=wait_s) as service:
        host, layout = service.host, service.layout
        target, now = service.state.rollback, service.record.id
        if service.state.trial not in (None, now):
            target = service.state.trial
        if target is None:
            raise UsageError(
                f"{board.name}: the service {layout.name} has no former version.",
                "There is one after the first armload service.update.",
            )
        began_s = time.monotonic()
        switch(host, layout, target, former=now, confirmed=True)
        _restart(service)
        try:
            wait_until_ready(host, layout, target, progress, service.state.state)
        except BaseException:
            switch(host, layout, now, former=target, confirmed=True)
            _restart(service)
            progress.say(f"{board.name}: {layout.name} goes on with its version {now}.")
            raise
        silent_s = time.monotonic() - began_s
        record = service.look().record
    return RolledBack(
        board=board.name,
        name=layout.name,
        version=target,
        former=now,
        models=record.names if record else "",
        silent_s=silent_s,
    )
