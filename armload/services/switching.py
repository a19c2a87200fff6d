"""Which version of a service is in force: changed, taken back, and settled after an interruption.

Three files tell it. Each is replaced in one step, in such an order that a power cut leaves one of
these lines (A, B: versions; X: any other than those, or none):

    version  former  trial   what that means          in force at boot;       what the next verb
                                                      after 8 failures        does first
    A        X       -       A is confirmed           A; none, it gives up    nothing
    A        X       A       an update begins, or     A; none, it gives up    removes trial
                             A came back after one
    B        X       A       an update to B           B; A, removing trial    goes back to A
    B        A       A       B is confirmed           B; A, removing trial    removes trial
    A        A       B       a rollback from B to A   A; B, removing trial    completes it

So trial names the version that was confirmed last, and becomes former when another one is.
"""

from __future__ import annotations

import time
from dataclasses import replace

from armload.boards.board import Board
from armload.core.errors import (
    SKIPS_FINISHED,
    ArmloadError,
    InterruptionError,
    RunError,
    UsageError,
)
from armload.core.progress import Progress
from armload.core.values import Value
from armload.services.asking import wait_until_ready
from armload.services.folder import switch
from armload.services.installing import act, install_unit, take_up_version, unit_state
from armload.services.reaching import ReachedService, leased_service
from armload.services.setting_up import unit_of
from armload.services.state import SupervisorState, running_record
from armload.services.users import hand_over

WATCHED_S = 60.0
"""After a switch, in which a crash makes the old version come back."""

_LOOK_EVERY_S = 2.0


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


def roll_back(
    board: Board, progress: Progress, *, name: str, wait_s: float, watched_s: float = WATCHED_S
) -> RolledBack:
    """Put the former version of a service in force again; the one that was becomes the former.

    An interrupted update is taken back, and an interrupted rollback completed.

    Args:
        watched_s: after the switch, in which a crash makes the other version come back.

    Raises:
        UsageError: there is none.
        RunError: it does not answer; the service goes on with the version that it had.
    """
    with leased_service(board, name, progress, wait_s=wait_s) as service:
        return rolled_back(service, progress, watched_s)


def rolled_back(service: ReachedService, progress: Progress, watched_s: float) -> RolledBack:
    """Do what :func:`roll_back` does with a service that is reached, on a board that is leased."""
    state, now = service.state, service.record.id
    if state.interrupted == "note" and state.trial != now:
        service = settled(service, progress)
        state = service.state
    others = [each for each in state.kept if each != now]
    if state.trial == now and others:
        # Nothing is in force of what was interrupted, or not any more.
        version, former = now, state.rollback or max(others)
        silent_s = go_back(service, version, progress, former=former)
    elif state.trial is not None and state.interrupted == "update":
        version, former = state.trial, now
        silent_s = _undo_update(service, version, progress, former=former)
    elif state.trial is not None:
        version, former = now, state.trial
        silent_s = _try_former(service, version, former, progress, watched_s)
    elif state.rollback is not None:
        version, former = state.rollback, now
        silent_s = _try_former(service, version, former, progress, watched_s)
    else:
        raise UsageError(
            f"{service.host.name}: the service {service.layout.name} has no previous version.",
            "There is one after the first armload service.update.",
        )
    record = service.look().record
    return RolledBack(
        board=service.host.name,
        name=service.layout.name,
        version=version,
        former=former,
        models=record.names if record else "",
        silent_s=silent_s,
    )


def _try_former(
    service: ReachedService, version_id: str, other_id: str, progress: Progress, watched_s: float
) -> float:
    """Start a former version, and confirm it, or take it back.

    Args:
        other_id: that was confirmed before.

    Returns:
        How long nothing answered.
    """
    host, layout, began_s = service.host, service.layout, time.monotonic()
    try:
        if service.state.trial is None:
            put_on_trial(service, version_id, confirmed=other_id)
        else:
            restart_supervised(service)
        ready = wait_until_ready(host, layout, version_id, progress, service.state.state)
        silent_s = time.monotonic() - began_s
        watch(service, version_id, ready.state, watched_s, progress)
    except BaseException as error:
        is_back = take_back(service, other_id, progress)
        if is_back and isinstance(error, KeyboardInterrupt):
            raise interrupted_with(service, other_id) from None
        raise
    switch(host, layout, version_id, former=other_id, confirmed=True)
    _keep_unit(service)
    return silent_s


def _undo_update(
    service: ReachedService, version_id: str, progress: Progress, *, former: str = ""
) -> float:
    """Go back from an interrupted update; return how long nothing answered.

    Raises:
        RunError: the old version does not answer; the new one goes on, and is confirmed, as there
            is nothing else.
    """
    now = service.record.id
    try:
        return go_back(service, version_id, progress, former=former)
    except RunError:
        switch(service.host, service.layout, now, confirmed=True)
        restart_supervised(service)
        progress.say(
            f"{service.host.name}: {service.layout.name} keeps its version {now}, because "
            f"{version_id} does not answer."
        )
        raise


def settled(service: ReachedService, progress: Progress) -> ReachedService:
    """Return a service whose version in force is confirmed, after whatever was interrupted.

    Whether it answers is left to the caller: an update may be what mends it.
    """
    state, host, layout = service.state, service.host, service.layout
    what = state.interrupted
    if what is None or state.trial is None:
        return service
    now = service.record.id
    if what == "note":
        is_another = state.state is not None and state.state.version != now
        if state.is_alive and is_another:
            restart_supervised(service)
        switch(host, layout, now, confirmed=True)
        return refreshed(service)
    done = "going back to the previous version" if what == "update" else "completing it"
    progress.say(f"{host.name}: an earlier {what} of {layout.name} was interrupted; {done} first.")
    try:
        if what == "update":
            _undo_update(service, state.trial, progress)
        else:
            _try_former(service, now, state.trial, progress, 0.0)
    except RunError as error:
        progress.say(error.message)
    return refreshed(service)


def refreshed(service: ReachedService) -> ReachedService:
    """Return a service as its board tells it now."""
    state = service.look()
    record = running_record(service.host, state)
    return replace(service, state=state, record=record, unit=unit_of(service.layout, record))


def put_on_trial(
    service: ReachedService, version_id: str, *, confirmed: str, by_init: bool = False
) -> None:
    """Start a version, from which the board itself goes back to the confirmed one.

    Args:
        by_init: also the supervisor is started anew.
    """
    switch(service.host, service.layout, version_id, trial=confirmed)
    if service.unit.user:
        hand_over(service.host, *service.chosen, service.unit)
    restart_supervised(service, by_init=_is_cramped(service) or by_init)


def go_back(
    service: ReachedService, version_id: str, progress: Progress, *, former: str = ""
) -> float:
    """Put the version that was confirmed last in force again; return how long nothing answered.

    Args:
        former: what a rollback puts in force then; empty leaves that as it is.

    Raises:
        RunError: it does not answer.
    """
    host, layout = service.host, service.layout
    before, began_s = service.look().state, time.monotonic()
    # What is noted as on trial goes when there is nothing left to go back from.
    switch(host, layout, version_id)
    restart_supervised(service)
    wait_until_ready(host, layout, version_id, progress, before)
    silent_s = time.monotonic() - began_s
    switch(host, layout, version_id, former=former, confirmed=True)
    _keep_unit(service)
    return silent_s


def _is_cramped(service: ReachedService) -> bool:
    """Let the unit have the memory that the version in force may take, if that is more.

    Returns:
        Whether what runs has to be started anew for that.
    """
    limit_bytes = service.unit.memory_max_bytes
    if limit_bytes is None or not service.chosen.init.memory_limit(service.unit):
        return False
    record = service.look().record
    if record is None:
        return False
    unit = unit_of(service.layout, record)
    if unit.memory_max_bytes is not None and unit.memory_max_bytes <= limit_bytes:
        return False
    larger = service.unit.model_copy(update={"memory_max_bytes": unit.memory_max_bytes})
    if install_unit(service.host, *service.chosen, larger, overwrite=False) == "kept":
        return False
    now = unit_state(service.host, *service.chosen, larger).memory_max_bytes
    return now is not None and now <= limit_bytes


def _keep_unit(service: ReachedService) -> None:
    """Have the unit say what the version says that is confirmed now."""
    if not service.chosen.init.memory_limit(service.unit):
        return
    if record := service.look().record:
        unit = unit_of(service.layout, record)
        install_unit(service.host, *service.chosen, unit, overwrite=False)


def take_back(service: ReachedService, version_id: str, progress: Progress) -> bool:
    """Go back after a failure; what cannot be done now is said.

    Returns:
        Whether the version answers.
    """
    host, layout = service.host, service.layout
    progress.say(f"{host.name}: {layout.name} goes back to its version {version_id}.")
    try:
        go_back(service, version_id, progress)
    except (ArmloadError, KeyboardInterrupt) as error:
        said = error.message if isinstance(error, ArmloadError) else "Interrupted."
        progress.say(
            f"{said} If the current version fails, the board goes back by itself. Check it: "
            f"armload service.status {host.named}"
        )
        return False
    return True


def interrupted_with(service: ReachedService, version_id: str) -> InterruptionError:
    """Return the error of an interruption after which this version is in force, and answers."""
    return InterruptionError(
        f"Interrupted. {service.host.name}: {service.layout.name} keeps its version {version_id}.",
        SKIPS_FINISHED,
    )


def watch(
    service: ReachedService,
    version_id: str,
    before: SupervisorState | None,
    watched_s: float,
    progress: Progress,
) -> None:
    """Look at a version that answers for a while.

    Args:
        before: as noted when it answered.

    Raises:
        RunError: it ended.
    """
    until_s = time.monotonic() + watched_s
    label = f"Watching {service.layout.name} on {service.host.name}"
    with progress.step(label, total=int(watched_s)) as step:
        while True:
            left_s = until_s - time.monotonic()
            now = service.look()
            state = now.state
            is_its = state is not None and state.version == version_id and now.is_alive
            if state is None or not is_its or state.is_news(before):
                why = state.last_end.what if state and state.last_end else "it was replaced"
                raise RunError(
                    f"{service.host.name}: the version {version_id} of {service.layout.name} ended "
                    f"soon after its start: {why}.",
                    f"Its log: armload service.logs {service.host.named} --name "
                    f"{service.layout.name}",
                )
            if left_s <= 0:
                return
            step.update(int(watched_s - left_s))
            time.sleep(min(_LOOK_EVERY_S, left_s))


def restart_supervised(service: ReachedService, *, by_init: bool = False) -> None:
    """Have the supervisor start the version that is in force now.

    Args:
        by_init: also the supervisor is started anew.
    """
    if by_init or not take_up_version(service.host, *service.chosen, service.unit):
        act(service.host, *service.chosen, service.unit, "restart")
