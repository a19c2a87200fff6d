"""Services on boards: where one is reached, and which there are."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import BaseModel
from rich.console import RenderableType
from rich.text import Text

from armload.core.columns import Column
from armload.core.values import (
    Value,
    ValueList,
    counted,
    format_bytes,
    format_duration,
    format_seconds,
    three_figures,
)
from armload.engines.service_plan import ServingPlan
from armload.report import formatting as words
from armload.report.board_state import throttling_words
from armload.report.layout import Details, Prose, Table, whole
from armload.report.on_boards import BoardsResult
from armload.report.result import BoardOutcome, Part
from armload.services.certificate import Certificate, CertificateState, service_url
from armload.services.listing import ListedService
from armload.services.managing import (
    ChangedService,
    RenewedCertificate,
    ServiceKeys,
    StoppedService,
)
from armload.services.reaching import installed_key_file
from armload.services.setting_up import InstalledService
from armload.services.status import BoardStatus, ServiceStatus
from armload.services.switching import RolledBack
from armload.services.updating import UpdatedService
from armload.services.version import AnsweredSpeed, InstalledModel, Listening
from armload.serving.service import Service


class ServedModel(Value):
    """A service, as this machine's programs reach it.

    Attributes:
        run: the id of the service's run.
        board, model: their names.
        plan: how it is served.
        url: its base, which OpenAI's clients take with ``/v1``; none where the command that
            printed it forwards no port any more.
        front_url: where it answers in another server's protocol, without a key; none for none.
        api_key_file: holds the key that each request has to show.
        is_detached: it goes on when this command ends.
        was_running: it was found, not started.
    """

    run: str
    board: str
    model: str
    plan: ServingPlan
    url: str | None
    front_url: str | None = None
    api_key_file: str
    is_detached: bool
    was_running: bool

    @classmethod
    def of(
        cls, service: Service, *, is_forwarded: bool, front_url: str | None = None
    ) -> ServedModel:
        """Describe a service that is reached."""
        return cls(
            run=service.run,
            board=service.board,
            model=service.model,
            plan=service.plan,
            url=service.url if is_forwarded else None,
            front_url=front_url,
            api_key_file=str(service.key_file),
            is_detached=service.is_detached,
            was_running=service.was_running,
        )


def served_view(served: ServedModel, model: str) -> RenderableType:
    """Lay out where a service is reached, and how it ends.

    Args:
        model: as it was named on the command line.
    """
    reach = f"armload serve --board {served.board} --model {shlex.quote(model)} --port PORT"
    # By its run: the board may have an installed service, too.
    stop = f"armload service.stop --board {served.board} --name {served.run}"
    rows: list[tuple[str, str | Text]] = [
        ("URL", whole(f"{served.url}/v1" if served.url else f"run: {reach}")),
        ("API key", whole(f"in {served.api_key_file}")),
        ("model", served.model),
        ("slots", _slots(served.plan)),
        ("run", whole(served.run)),
        ("stop", whole(stop) if served.is_detached else "Ctrl-C"),
    ]
    if served.front_url:
        rows.insert(1, ("front", whole(f"{served.front_url} (llm-serving, without a key)")))
    return Details(rows)


class InstalledDocument(InstalledService):
    """A service that was installed, and where this machine keeps a key of it.

    Attributes:
        url: for OpenAI's clients on other machines, or on the board where it listens there only.
        api_key_file: on this machine.
    """

    url: str
    api_key_file: str


@dataclass(frozen=True, kw_only=True)
class InstalledOnBoards(BoardsResult[InstalledService]):
    """A service, installed on boards.

    Attributes:
        scheduler: of the gateways that the boards are reached by; empty for none.
    """

    scheduler: str = ""

    of_several = ValueList[BoardOutcome[InstalledDocument]]

    def document_of(self, done: InstalledService) -> BaseModel:
        record = done.record
        return InstalledDocument(
            **dict(done),
            url=f"{service_url(record.listening, done.certificate)}/v1",
            api_key_file=str(installed_key_file(done.board, record.service)),
        )

    def view(self) -> Iterable[Part]:
        for done in self.done.values():
            yield installed_view(done, self.scheduler)
            yield from (Prose(note) for note in done.notes)


def installed_view(done: InstalledService, scheduler: str = "") -> RenderableType:
    """Lay out an installed service: where it is reached, with what key, and how it is watched."""
    record, board = done.record, _named(done.board, scheduler)
    key = installed_key_file(done.board, record.service)
    rows: list[tuple[str, str | Text]] = [
        (
            "service",
            f"{record.service} on {done.board}, started by {record.init} whenever it boots",
        ),
        ("URL", whole(f"{service_url(record.listening, done.certificate)}/v1")),
        ("reached", _reached_words(record.listening)),
        *([("certificate", _certificate_words(done.certificate))] if done.certificate else []),
        ("API key", whole(f"in {key}")),
        *(("model", _model_words(each)) for each in record.models),
        *(("speed", _speed_words(each)) for each in done.speeds.models if each.token_s),
        ("by hand", whole(f"on the board: {done.keys_path.removesuffix('keys')}run")),
        ("talk", whole(f"armload chat {board} --service {record.service}")),
        ("watch", whole(f"armload service.status {board}")),
    ]
    if not record.listening.is_open and done.forward:
        rows.insert(4, ("from here", whole(done.forward)))
    return Details(rows)


def _named(board: str, scheduler: str) -> str:
    """Return how a person names a board, for commands to type."""
    return f"--board {board}" + (f" --scheduler {scheduler}" if scheduler else "")


def _reached_words(listening: Listening) -> str:
    if not listening.is_open:
        return "on the board only"
    who = "by the internet" if listening.may_be_public else "by other machines"
    return f"{who}, {'encrypted, ' if listening.with_tls else ''}with a key"


def _certificate_words(certificate: Certificate) -> str:
    return f"for {', '.join(certificate.names)}; valid until {certificate.ends_utc[:10]}"


def _model_words(model: InstalledModel) -> str:
    forecast = model.forecast
    how = "streamed from storage" if forecast.is_streamed else "in memory"
    return (
        f"{model.alias}: {_slots(model.plan)}, {format_bytes(forecast.weights_bytes)} {how} and "
        f"{format_bytes(forecast.own_bytes)} for caches and buffers"
    )


def _speed_words(speed: AnsweredSpeed) -> str:
    return f"{speed.model}: {three_figures(1 / median(speed.token_s))} tokens/s"


@dataclass(frozen=True, kw_only=True)
class UpdatedOnBoards(BoardsResult[UpdatedService | RenewedCertificate]):
    """A service that was changed on boards; ``scheduler`` as for ``InstalledOnBoards``."""

    scheduler: str = ""

    of_several = ValueList[BoardOutcome[UpdatedService | RenewedCertificate]]

    def document_of(self, done: UpdatedService | RenewedCertificate) -> BaseModel:
        return done

    def view(self) -> Iterable[Part]:
        for done in self.done.values():
            if isinstance(done, RenewedCertificate):
                yield (
                    f"{done.board}: {done.name} has its new certificate, "
                    f"{_certificate_words(done.certificate)}. No connection was closed for it."
                )
                yield from (Prose(note) for note in done.notes)
                continue
            record = done.record
            silent = f"the switch paused it for {format_seconds(done.silent_s)}"
            yield (
                f"{done.board}: {record.service} now serves {record.names} (version {record.id}). "
                f"It was tested {_TRIED[done.tried]}; "
                f"{silent if done.silent_s else 'the switch did not pause it'}."
            )
            yield from (Prose(each.sentence) for each in done.changes)
            yield from (Prose(note) for note in done.notes)
            yield whole(
                f"Undo: armload service.rollback {_named(done.board, self.scheduler)} --name "
                f"{record.service}"
            )


_TRIED = {"beside": "alongside the old version first", "after a pause": "in place of the old one"}


def rolled_back_line(done: RolledBack) -> str:
    """Say what is served again."""
    return (
        f"{done.board}: {done.name} serves {done.models} again (version {done.version}); the "
        f"switch paused it for {format_seconds(done.silent_s)}."
    )


def stopped_lines(stopped: StoppedService, scheduler: str = "") -> tuple[str | Text, ...]:
    """Say what is served no longer, and where its files are."""
    said = f"{stopped.board} no longer serves {stopped.models}."
    if stopped.folder is not None:
        return said, whole(f"kept in {stopped.folder}")
    return (
        f"{said} {stopped.name} starts again when the board boots.",
        whole(
            f"Start it now: armload service.restart {_named(stopped.board, scheduler)} --name "
            f"{stopped.name}"
        ),
    )


def changed_line(done: ChangedService) -> str:
    """Say what was done to a service."""
    if done.done == "removed":
        return f"{done.board}: the service {done.name} is removed."
    return f"{done.board}: the service {done.name} was restarted, and answers."


class ServiceLog(Value):
    """The end of an installed service's log."""

    board: str
    name: str
    lines: tuple[str, ...]


def keys_view(done: ServiceKeys) -> RenderableType:
    """Lay out the names of a service's keys, and a new one, which is shown this once."""
    rows: list[tuple[str, str | Text]] = [("keys", ", ".join(done.names))]
    if done.revoked:
        rows.append(("revoked", ", ".join(done.revoked)))
    if done.added is not None:
        rows.append(("new key", whole(done.added)))
    return Details(rows)


def services_view(services: Sequence[ListedService], boards: Sequence[str]) -> RenderableType:
    """Lay out the services of boards, one a line.

    Args:
        boards: that were asked.
    """
    if not services:
        return (
            f"No services on {', '.join(boards)}. For other boards: "
            "armload service.list --board a,b"
        )
    return Table.of(_SERVICE, services)


@dataclass(frozen=True, kw_only=True)
class StatusOfBoards(BoardsResult[BoardStatus]):
    """How boards and their installed services are; ``scheduler`` as for ``InstalledOnBoards``."""

    scheduler: str = ""

    of_several = ValueList[BoardOutcome[BoardStatus]]

    def document_of(self, done: BoardStatus) -> BaseModel:
        return done

    def view(self) -> Iterable[Part]:
        done = self.done.values()
        rows = [(board, each) for board in done for each in board.services]
        if rows:
            yield Table.of(_STATUS, rows)
        for board in done:
            if board.is_off:
                yield f"{board.board} is off."
            elif not board.services:
                yield f"{board.board} has no installed services."
            for each in board.services:
                yield from (Prose(line) for line in _remarks(board.board, each, self.scheduler))
        if here := [board for board in done if not board.is_off]:
            yield ""
            yield Table.of(_BOARD_STATE, here)


def _remarks(board: str, service: ServiceStatus, scheduler: str) -> Iterator[str]:
    name, chosen = f"{board}, {service.name}", _named(board, scheduler)
    if service.owner:
        yield (
            f"{name}: it belongs to the user {service.owner}; only that login and root can see its "
            "requests and its unit, and change it."
        )
        return
    if service.version is None:
        yield (
            f"{name}: its installation was interrupted. Remove it: armload service.remove "
            f"{chosen} --name {service.name}"
        )
    if service.interrupted:
        done = "Complete it" if service.interrupted == "rollback" else "Go back"
        yield (
            f"{name}: the last {service.interrupted} was interrupted before it was confirmed. "
            f"{done}: armload service.rollback {chosen} --name {service.name}"
        )
    if service.missing:
        yield (
            f"{name}: {', '.join(service.missing)} is missing on the board; it was deleted by "
            f"hand. Copy it again: armload service.update {chosen} --name {service.name}"
        )
    if service.exposed:
        yield (
            f"{name}: it listens on every address of the board, and the internet can now reach "
            f"{', '.join(service.exposed)}"
            f"{'' if service.certificate_state else ', where keys travel unencrypted'}. Remove it: "
            f"armload service.remove {chosen} --name {service.name}. Then install it again with "
            "--listen and a private address."
        )
    yield from (f"{name}: {each}" for each in _certificate_remarks(chosen, service))
    if service.unit == "edited":
        yield f"{name}: its unit ({service.init}) was edited by hand and is kept."
    if service.unit == "absent":
        yield (
            f"{name}: its unit ({service.init}) is missing, so it will not start at boot. "
            f"Write it again: armload service.update {chosen} --name {service.name}"
        )
    if service.fell_back is not None:
        yield f"{name}: the board went back to this version by itself: {service.fell_back}."
    if service.last_end is not None:
        yield f"{name}: the server's last exit: {service.last_end}."


_CERTIFICATE_VERBS: Mapping[CertificateState, str] = {
    "valid": "is valid until",
    "expires soon": "expires on",
    "expired": "expired on",
}


def _certificate_remarks(chosen: str, service: ServiceStatus) -> Iterator[str]:
    state, certificate = service.certificate_state, service.certificate
    if state is None:
        return
    renew = (
        f"Renew it: armload service.update {chosen} --name {service.name} "
        "--tls-certificate FILE --tls-key FILE"
    )
    if certificate is not None:
        verb = _CERTIFICATE_VERBS[state]
        names, end = ", ".join(certificate.names), certificate.ends_utc[:10]
        sentence = f"its certificate for {names} {verb} {end}."
        yield sentence if state == "valid" else f"{sentence} {renew}"
    else:
        yield f"its file tls.pem has no certificate that can be read. {renew}"
    if service.certificate_problem:
        yield f"it does not use what is in its file tls.pem: {service.certificate_problem}. {renew}"


def _slots(plan: ServingPlan) -> str:
    return f"{counted(plan.slots, 'slot')} of {counted(plan.context_tokens, 'token')}"


_ENDS = {"command": "with its command", "detached": "by service.stop", "installed": "never"}

_SERVICE: tuple[Column[ListedService], ...] = (
    Column(heading="board", of=lambda each: each.board),
    Column(heading="service", of=lambda each: whole(each.name)),
    Column(heading="models", of=lambda each: each.models),
    Column(heading="state", of=lambda each: each.condition),
    Column(heading="listens on", of=lambda each: each.listens or None),
    Column(
        heading="since (UTC)",
        of=lambda each: words.minute(each.started_utc) if each.started_utc else None,
    ),
    Column(heading="ends", of=lambda each: _ENDS[each.kind]),
)

_STATUS: tuple[Column[tuple[BoardStatus, ServiceStatus]], ...] = (
    Column(heading="board", of=lambda row: row[0].board),
    Column(heading="service", of=lambda row: row[1].name),
    Column(heading="models", of=lambda row: row[1].models),
    Column(heading="version", of=lambda row: whole(row[1].version or words.UNKNOWN)),
    Column(heading="state", of=lambda row: row[1].condition),
    Column(heading="up", of=lambda row: _time(row[1].up_s)),
    Column(heading="restarts", of=lambda row: row[1].restarts),
    Column(
        heading="active",
        of=lambda row: _total([each.processing for each in row[1].activity]),
    ),
    Column(
        heading="waiting",
        of=lambda row: _total([each.waiting for each in row[1].activity]),
    ),
    Column(
        heading="tokens",
        of=lambda row: _total([each.generated_tokens for each in row[1].activity]),
    ),
    Column(heading="tokens/s", of=lambda row: _rate(row[1])),
    Column(heading="own memory", of=lambda row: words.size(row[1].memory_bytes)),
)

_BOARD_STATE: tuple[Column[BoardStatus], ...] = (
    Column(heading="board", of=lambda each: each.board),
    Column(heading="memory available", of=lambda each: words.size(each.memory_available_bytes)),
    Column(heading="disk free", of=lambda each: words.size(each.disk_free_bytes)),
    Column(
        heading="temperature",
        of=lambda each: words.UNKNOWN if each.celsius is None else f"{each.celsius:.0f} °C",
    ),
    Column(heading="throttling", of=lambda each: throttling_words(each.throttling) or None),
)


def _time(seconds: float | None) -> str:
    return words.UNKNOWN if seconds is None else format_duration(seconds)


def _total(counts: Sequence[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def _rate(service: ServiceStatus) -> str:
    return words.rate(sum(each.generated_tps or 0.0 for each in service.activity) or None)
