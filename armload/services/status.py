"""How installed services are, and the boards under them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import requests
from pydantic import Field

from armload.analysis.load.server_metrics import ServerSample, read_metrics
from armload.boards.board import Board
from armload.boards.boot import boot_facts
from armload.boards.conditions import Conditions
from armload.boards.connect import connect, is_off
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.boards.throttling import ThrottleState
from armload.core.bounds import within
from armload.core.errors import ArmloadError, BoardError, UsageError
from armload.core.progress import Progress
from armload.core.values import Count, Finite, Value, parse_json
from armload.deploy.retry import FIRST_ANSWER_S, Retry, with_retries
from armload.services.asking import reached
from armload.services.certificate import Certificate, CertificateState
from armload.services.init_systems import choose
from armload.services.installing import UnitState, unit_state
from armload.services.listening import exposed_addresses
from armload.services.reaching import key_of
from armload.services.setting_up import unit_of
from armload.services.state import (
    Condition,
    ServiceOnBoard,
    held_bytes,
    installed_services,
    missing_of,
)
from armload.services.unit import Presence
from armload.services.version import ServiceLayout, ServiceVersion

_WAIT_S, _WHOLE_S = 5.0, 15.0
_MOST_BYTES, _PART_BYTES = 1 << 20, 1 << 16
_OK = 200


class ModelActivity(Value):
    """What a model of a service has done, as llama-server's metrics say since its start.

    Attributes:
        is_loaded: it is in memory now; none where the server does not say.
        processing, waiting: requests in a slot, and without one.
        prompt_tokens, generated_tokens: of all requests.
        generated_tps: tokens per second in generation, over what came since the metrics were read
            last, by anybody; none where nothing came.
    """

    model: str
    is_loaded: bool | None = None
    processing: Count | None = None
    waiting: Count | None = None
    prompt_tokens: Count | None = None
    generated_tokens: Count | None = None
    generated_tps: Finite | None = None


class ServiceStatus(Value):
    """An installed service.

    Attributes:
        owner: the board's user whose it is, if this login can neither change it nor see its unit
            and its requests; else none.
        version: in force; none where installing it was interrupted.
        rollback: the version that a rollback would put in force.
        interrupted: what was, and is not confirmed; the next command that changes it ends that.
        models: what it serves.
        listens: where.
        up_s: how long it has answered.
        restarts: since its supervisor was started, by the supervisor.
        last_end: why the server ended last.
        fell_back: why an update was given up by the board itself.
        memory_bytes: anonymous memory and swap of the server's processes now; weights that are
            mapped from a file are not in it.
        memory_limit_bytes: of anonymous memory, beyond which the supervisor ends it.
        kernel_limit_bytes: of all memory, as the kernel enforces it; none where it does not.
        unit: what its init has of it: as it was written, edited by hand, or not at all; none where
            the login cannot see that.
        missing: what its version needs and is not on the board.
        exposed: public addresses that the board has by now, and on which it listens.
        certificate: that is in its file on the board; none without TLS.
        certificate_state: whether clients accept it by its time; none without TLS.
        certificate_problem: why the service does not show the one in its file; else none.
        activity: of each model; empty where it does not answer.
    """

    name: str
    owner: str | None = None
    condition: Condition
    version: str | None
    rollback: str | None
    interrupted: Literal["update", "rollback"] | None
    models: str
    listens: str | None
    init: str | None
    up_s: float | None
    restarts: Count | None
    last_end: str | None
    fell_back: str | None
    memory_bytes: Count | None
    memory_limit_bytes: Count | None
    kernel_limit_bytes: Count | None = None
    unit: Presence | None = None
    missing: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    certificate: Certificate | None = None
    certificate_state: CertificateState | None = None
    certificate_problem: str | None = None
    activity: tuple[ModelActivity, ...] = ()


class BoardStatus(Value):
    """A board with its installed services.

    Attributes:
        is_off: it is a virtual one that does not run.
        memory_available_bytes, disk_free_bytes: of the board; none where it does not say.
        celsius: of the hottest sensor that counts.
        throttling: what slows the board down.
    """

    board: str
    is_off: bool = False
    services: tuple[ServiceStatus, ...] = ()
    memory_total_bytes: Count | None = None
    memory_available_bytes: Count | None = None
    disk_free_bytes: Count | None = None
    celsius: Annotated[float | None, Field(allow_inf_nan=False)] = None
    throttling: tuple[ThrottleState, ...] = ()


def board_status(board: Board, progress: Progress, *, name: str) -> BoardStatus:
    """Return how a board and its services are.

    Args:
        name: of the only service that is wanted; empty for all.

    Raises:
        UsageError: there is no such service.
    """
    if is_off(board):
        return BoardStatus(board=board.name, is_off=True)
    with closing(connect(board, progress)) as host:
        retry = Retry(unanswered_s=FIRST_ANSWER_S)
        there = with_retries(lambda: installed_services(host, board.workdir), retry)
        found = [each for each in there if name in ("", each.name)]
        if name and not found:
            names = ", ".join(each.name for each in there) or "none"
            raise UsageError(
                f"{board.name} has no installed service named {name}.", f"Installed: {names}."
            )
        now: Conditions = probe(host, board).conditions
        return BoardStatus(
            board=board.name,
            services=tuple(_status(host, board, each) for each in found),
            memory_total_bytes=now.memory_total_bytes,
            memory_available_bytes=now.memory_available_bytes,
            disk_free_bytes=now.workdir_free_bytes,
            celsius=now.celsius,
            throttling=now.throttling,
        )


def _status(host: Host, board: Board, found: ServiceOnBoard) -> ServiceStatus:
    record, state = found.record, found.state
    layout = ServiceLayout(workdir=board.workdir, name=found.name)
    activity: tuple[ModelActivity, ...] = ()
    if record is not None and found.condition == "ready" and not found.owner:
        try:
            activity = _activity(host, record, key_of(host, layout))
        except ArmloadError:
            activity = ()
    unit = _unit(host, board, layout, record) if record and not found.owner else None
    return ServiceStatus(
        name=found.name,
        owner=found.owner or None,
        condition=found.condition,
        version=found.version,
        rollback=found.rollback,
        interrupted=None if found.interrupted == "note" else found.interrupted,
        models=record.names if record else "",
        listens=record.listening.words if record else None,
        init=record.init if record else None,
        up_s=found.uptime_s,
        restarts=state.restarts if state else None,
        last_end=state.last_end.what if state and state.last_end else None,
        fell_back=state.fell_back.why if state and state.fell_back else None,
        memory_bytes=held_bytes(host, found),
        memory_limit_bytes=record.memory_limit_bytes if record else None,
        kernel_limit_bytes=unit.memory_max_bytes if unit else None,
        unit=unit.presence if unit else None,
        missing=missing_of(host, board.workdir, record) if record else (),
        exposed=exposed_addresses(host, record.listening) if record else (),
        activity=activity,
        **_certificate_fields(found),
    )


def _certificate_fields(found: ServiceOnBoard) -> dict[str, Any]:
    record, state, certificate = found.record, found.state, found.certificate
    if record is None or not record.listening.with_tls or found.owner:
        return {}
    problem = state.certificate_problem if state and found.is_alive else None
    return {
        "certificate": certificate,
        "certificate_state": certificate.state(datetime.now(UTC)) if certificate else "unreadable",
        "certificate_problem": problem or None,
    }


def _unit(
    host: Host, board: Board, layout: ServiceLayout, record: ServiceVersion
) -> UnitState | None:
    try:
        facts = boot_facts(host, board)
        init = choose(facts, record.init, board.name)
        return unit_state(host, facts, init, unit_of(layout, record))
    except ArmloadError:
        return None


def _activity(host: Host, record: ServiceVersion, key: str) -> tuple[ModelActivity, ...]:
    with requests.Session() as session, reached(host, record) as url:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {key}"
        if len(record.models) == 1:
            (model,) = record.models
            # A sleeping model answers, too, and stays asleep.
            return (_of_metrics(model.alias, _metrics(session, f"{url}/metrics"), loaded=None),)
        loaded = _loaded(session, url)
        return tuple(
            _of_metrics(
                each.alias,
                _metrics(session, f"{url}/metrics?model={each.alias}&autoload=false")
                if loaded.get(each.alias)
                else None,
                loaded=loaded.get(each.alias),
            )
            for each in record.models
        )


def _loaded(session: requests.Session, url: str) -> Mapping[str, bool]:
    """Return which of a router's models are in memory."""
    try:
        found = parse_json(_content(session, f"{url}/models"))
        return {
            str(each["id"]): each["status"]["value"] in ("loaded", "loading")
            for each in found["data"]
        }
    except (ValueError, KeyError, TypeError, TimeoutError, requests.RequestException):
        return {}


def _metrics(session: requests.Session, url: str) -> ServerSample | None:
    try:
        return read_metrics(_content(session, url).decode("utf-8", "replace"), 0.0)
    except (TimeoutError, requests.RequestException):
        return None


def _content(session: requests.Session, url: str) -> bytes:
    return within(_WHOLE_S, lambda: _read(session, url))


def _read(session: requests.Session, url: str) -> bytes:
    with session.get(url, timeout=_WAIT_S, stream=True, allow_redirects=False) as answer:
        if answer.status_code != _OK:
            raise BoardError(f"{url} answers {answer.status_code}.")
        content = b""
        for part in answer.iter_content(_PART_BYTES):
            content += part
            if len(content) >= _MOST_BYTES:
                break
        return content


def _of_metrics(model: str, sample: ServerSample | None, *, loaded: bool | None) -> ModelActivity:
    if sample is None:
        return ModelActivity(model=model, is_loaded=loaded)

    def count(name: str) -> int | None:
        value = sample.counters.get(f"llamacpp:{name}")
        return None if value is None else round(value)

    tps = sample.gauge("llamacpp:predicted_tokens_seconds")
    return ModelActivity(
        model=model,
        is_loaded=loaded,
        processing=sample.busy,
        waiting=sample.waiting,
        prompt_tokens=count("prompt_tokens_total"),
        generated_tokens=count("tokens_predicted_total"),
        generated_tps=tps or None,
    )
