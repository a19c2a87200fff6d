"""``service.*``: models that a board serves whenever it is on, and all that is done to them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from armload.bench.options import MODEL, QUANTISED_ALL
from armload.boards.boot import InitName
from armload.cli.options import (
    BOARDS,
    FileTypes,
    OnBoard,
    OnBoards,
    OnGateways,
    OnNamedBoard,
    OutputOptions,
    models_in,
)
from armload.cli.verb import verb
from armload.core.defaults import DEMO
from armload.core.options import (
    NEVER,
    Alternatives,
    DurationOrNever,
    Exclusive,
    Names,
    Option,
    Share,
)
from armload.engines.service_plan import ServingPlan
from armload.runs.request import EngineSource, Request, Waiting

if TYPE_CHECKING:
    from armload.boards.board import Board
    from armload.core.progress import Progress
    from armload.report.result import Result
    from armload.services.certificate import TlsFiles
    from armload.services.making import WantedModel
    from armload.services.managing import RenewedCertificate
    from armload.services.setting_up import InstalledService
    from armload.services.updating import UpdatedService

DEFAULT_NAME = "llm"

_NAME = Option("the service's name", "NAME", "the board's only service", heading="Service")
_TLS_KEY = Option(
    "PEM file with the certificate's private key, which only you can read",
    "FILE",
    heading="Service",
    needs="tls_certificate",
)


class OnNamedBoards(OnGateways):
    """The boards that a verb changes: they have to be named."""

    heading = "Board"

    board: Annotated[Names, Option(BOARDS, several="commas", harmless="in a plan")]


class ServiceModels(ServingPlan):
    """The models of a service, and how they are served."""

    model: Annotated[
        Names,
        Option(MODEL, "MODEL", DEMO, "files", heading="Plan", harmless="in a plan"),
    ] = ()
    type: Annotated[FileTypes, QUANTISED_ALL] = ()
    plan: Annotated[
        tuple[Path, ...],
        Option(
            "a YAML file whose keys are these options, such as the one that armload tune writes; "
            "several: one for each model; command-line options override the file",
            "FILE",
            several="files",
            heading="Plan",
        ),
    ] = ()
    most_loaded: Annotated[
        Annotated[int, Field(ge=1, le=64)] | None,
        Option(
            "with several models, how many are in memory at a time",
            "N",
            "as many as fit",
            heading="Service",
        ),
    ] = None
    sleep_idle: Annotated[
        DurationOrNever | None,
        Option(
            "free a model's memory after this long without a request, such as 10m, or never",
            "DURATION",
            NEVER,
            heading="Service",
        ),
    ] = None


class InstallOptions(ServiceModels, OnNamedBoards, Waiting, EngineSource, OutputOptions):
    """A service that is to stay."""

    name: Annotated[str, Option("name of the service on the board", "NAME", heading="Service")] = (
        DEFAULT_NAME
    )
    listen: Annotated[
        str,
        Option(
            "where other machines reach it: an address, an interface or a network of the board, "
            "and a port, such as 192.168.1.20:8080, eth0 or 100.64.0.0/10",
            "ADDRESS",
            "the board's loopback, and the first free port from 8080",
            heading="Service",
        ),
    ] = ""
    key_file: Annotated[
        Path | None,
        Option(
            "file of API keys that only you can read: KEY or NAME KEY on each line",
            "FILE",
            "a random key",
            heading="Service",
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None,
        Option(
            "PEM file with the certificate that other machines are shown, and those that issued it",
            "FILE",
            "no encryption",
            heading="Service",
            needs="listen",
        ),
    ] = None
    tls_key: Annotated[Path | None, _TLS_KEY] = None
    public: Annotated[
        bool,
        Option(
            "let --listen take addresses that the internet can reach",
            heading="Service",
            needs="tls_certificate",
        ),
    ] = False
    init: Annotated[
        InitName | None,
        Option(
            "init system that starts it at boot, one that board.probe lists",
            "INIT",
            "the best that the board has",
            heading="Service",
        ),
    ] = None
    overwrite: Annotated[
        bool,
        Option(
            "replace a unit of that name that was edited by hand or comes from elsewhere",
            heading="Service",
        ),
    ] = False


def wanted_models(options: ServiceModels, request: Request) -> tuple[WantedModel, ...]:
    """Return the models that were named, each with its plan."""
    from armload.cli.verbs.serve import ServingFile, read_serving_file
    from armload.core.errors import UsageError
    from armload.services.making import WantedModel
    from armload.serving.planning import serving_plan

    files = [read_serving_file(path) for path in options.plan]
    names = options.model or tuple(each.model for each in files if each.model) or (DEMO,)
    if len(files) > 1 and len(files) != len(names):
        raise UsageError(
            f"--plan names {len(files)} files for {len(names)} models.",
            "Name one file for all models, or one for each, in the order of --model.",
        )
    if len(options.type) > 1 and len(options.type) != len(names):
        raise UsageError(
            f"--type names {len(options.type)} file types for {len(names)} models.",
            "Name one for all models, or one for each, in the order of --model.",
        )
    found = []
    for number, name in enumerate(names):
        file = files[number if len(files) > 1 else 0] if files else ServingFile()
        typed = options.type[number if len(options.type) > 1 else 0] if options.type else file.type
        (given,) = models_in(request, [name], [typed] if typed else [])
        plan = serving_plan(options.part(ServingPlan), file.fields)
        found.append(WantedModel(given=given, plan=plan))
    return tuple(found)


@verb(InstallOptions, keeps=True, takes_back=True)
def install(options: InstallOptions) -> Result:
    """Install a model as a service that a board starts whenever it boots.

    Copies engine and models, tells the board's init system, starts the service and asks it for its
    first tokens. Several boards are handled one after another, up to the first that fails.
    Example: armload service.install --board dayu200 --model m.gguf --name tutor
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import in_turn
    from armload.report.services import InstalledOnBoards
    from armload.services.listening import WantedAddress
    from armload.services.making import WantedService
    from armload.services.reaching import keep_installed_key, keys_in_file
    from armload.services.setting_up import install as install_there

    progress = terminal.progress()
    listen = WantedAddress.read(options.listen) if options.listen else None
    keys = keys_in_file(options.key_file) if options.key_file else ()
    tls = _tls_files(options.tls_certificate, options.tls_key)

    def put(board: str, own: Progress) -> InstalledService:
        request = options.part(Request).model_copy(update={"board": board})
        return install_there(
            request,
            reach.board(board, own),
            WantedService(
                name=options.name,
                models=wanted_models(options, request),
                most_loaded=options.most_loaded,
                sleep_idle_s=options.sleep_idle,
            ),
            own,
            listen=listen,
            init=options.init,
            keys=keys,
            overwrite=options.overwrite,
            key_kept=lambda name, key: keep_installed_key(name, options.name, key),
            tls=tls,
            may_be_public=options.public,
        )

    boards = boards_called(options.board)
    with boards_reached(options.scheduler, boards, progress) as reach:
        return InstalledOnBoards(
            outcomes=in_turn(boards, put, progress), scheduler=options.scheduler
        )


def _tls_files(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    from armload.core.errors import UsageError
    from armload.services.certificate import read_tls_files

    if certificate is None:
        return None
    if key is None:
        raise UsageError(
            "--tls-certificate needs the certificate's private key.", "Add it: --tls-key FILE"
        )
    return read_tls_files(certificate, key)


@contextmanager
def _reached(options: OnGateways, name: str) -> Iterator[tuple[Board, Progress]]:
    """Yield a board, however it is reached, and where progress is shown."""
    from armload.cli import terminal
    from armload.fleet.reach import boards_reached

    progress = terminal.progress()
    with boards_reached(options.scheduler, [name], progress) as reach:
        yield reach.board(name, progress), progress


class ListOptions(OnBoards, OnGateways, OutputOptions):
    """The boards whose services are listed."""


@verb(ListOptions, name="list")
def list_services(options: ListOptions) -> Result:
    """List the services of boards: of a running command, detached, and installed.

    Example: armload service.list --board dayu200,kitchen
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.core.errors import CombinedError
    from armload.core.values import ValueList
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.result import as_result
    from armload.report.services import services_view
    from armload.services.listing import ListedService, services_of

    boards, progress = boards_called(options.board), terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:
        outcomes = on_each(
            boards, lambda name, own: services_of(reach.board(name, own), own), progress
        )
    found = [service for one in outcomes for service in one.result or ()]
    answered = [one.board for one in outcomes if one.error is None]
    return as_result(
        ValueList[ListedService](tuple(found)),
        services_view(found, answered),
        error=CombinedError.of_boards({one.board: one.error for one in outcomes}),
    )


class StatusOptions(OnBoards, OnGateways, OutputOptions):
    """The boards whose installed services are shown."""

    name: Annotated[
        str, Option("only the service of that name", "NAME", "all", heading="Service")
    ] = ""


@verb(StatusOptions)
def status(options: StatusOptions) -> Result:
    """Show the state of installed services and of the boards they run on.

    Example: armload service.status --board @lab
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.services import StatusOfBoards
    from armload.services.status import board_status

    boards, progress = boards_called(options.board), terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:
        outcomes = on_each(
            boards,
            lambda name, own: board_status(reach.board(name, own), own, name=options.name),
            progress,
        )
    return StatusOfBoards(outcomes=tuple(outcomes), scheduler=options.scheduler)


class OneServiceOptions(OnNamedBoard, OnGateways, Waiting, OutputOptions):
    """An installed service."""

    name: Annotated[str, _NAME] = ""


class LogOptions(OnBoard, OnGateways, OutputOptions):
    """An installed service's log."""

    name: Annotated[str, _NAME] = ""
    follow: Annotated[bool, Option("keep printing new lines until Ctrl-C", heading="Service")] = (
        False
    )
    lines: Annotated[
        Annotated[int, Field(ge=1, le=10_000)],
        Option("lines from the end of the log", "N", heading="Service"),
    ] = 50


@verb(LogOptions)
def logs(options: LogOptions) -> Generator[Result, None, None]:
    """Show the end of an installed service's log.

    Example: armload service.logs --board dayu200 --name tutor --follow
    """
    from armload.core.errors import UsageError
    from armload.report.result import Verbatim, as_result
    from armload.report.services import ServiceLog
    from armload.services.managing import followed_log, recent_log

    if options.follow and options.as_json:
        raise UsageError("--follow cannot be combined with --json.", "Remove one.")
    most_bytes = min(options.lines * 400, 1 << 20)
    with _reached(options, options.board) as (board, progress):
        text, name = recent_log(board, progress, name=options.name, most_bytes=most_bytes)
        lines = text.splitlines()[-options.lines :]
        shown = "".join(f"{line}\n" for line in lines)
        document = ServiceLog(board=board.name, name=name, lines=tuple(lines))
        yield as_result(document, Verbatim(text=shown))
        if options.follow:
            try:
                for part in followed_log(board, progress, name=name):
                    print(part, end="", flush=True)
            except KeyboardInterrupt:
                return


class StopOptions(OnBoard, OnGateways, Waiting, OutputOptions):
    """The service that ends."""

    name: Annotated[
        str,
        Option(
            "its name, or the beginning of its run's id",
            "NAME",
            "the board's only running service",
            heading="Service",
        ),
    ] = ""
    force: Annotated[
        bool, Option("also stop a service that another machine started", heading="Service")
    ] = False


@verb(StopOptions)
def stop(options: StopOptions) -> Result:
    """Stop a service of a board; an installed one starts again when the board boots.

    Example: armload service.stop --board dayu200
    """
    from armload.report.result import as_result
    from armload.report.services import stopped_lines
    from armload.services.managing import stop_any

    with _reached(options, options.board) as (board, progress):
        stopped = stop_any(
            board, progress, name=options.name, force=options.force, wait_s=options.wait_s
        )
    return as_result(stopped, *stopped_lines(stopped, options.scheduler))


@verb(OneServiceOptions)
def restart(options: OneServiceOptions) -> Result:
    """Stop and start an installed service, and wait until it answers.

    Example: armload service.restart --board dayu200 --name tutor
    """
    from armload.report.result import as_result
    from armload.report.services import changed_line
    from armload.services.managing import restart as restart_there

    with _reached(options, options.board) as (board, progress):
        done = restart_there(board, progress, name=options.name, wait_s=options.wait_s)
    return as_result(done, changed_line(done))


class UpdateOptions(ServiceModels, OnNamedBoards, Waiting, EngineSource, OutputOptions):
    """What changes of a service."""

    kept: ClassVar[frozenset[str]] = frozenset(ServiceModels.model_fields)

    alternatives: ClassVar[Alternatives] = (
        *ServiceModels.alternatives,
        Exclusive(
            (("no_tls",), ("tls_certificate",)), "Remove one.", "one removes what the other adds"
        ),
    )

    name: Annotated[str, _NAME] = ""
    slower: Annotated[
        Share,
        Option(
            "reject the new version if it is slower by more than this, beyond noise",
            "PERCENT",
            "10%",
            heading="Service",
        ),
    ] = 0.1
    overwrite: Annotated[
        bool, Option("replace a unit that was edited by hand", heading="Service")
    ] = False
    tls_certificate: Annotated[
        Path | None,
        Option(
            "PEM file with a renewed certificate, and those that issued it; with its key alone, it "
            "is taken up without a restart",
            "FILE",
            heading="Service",
        ),
    ] = None
    tls_key: Annotated[Path | None, _TLS_KEY] = None
    no_tls: Annotated[bool, Option("serve without encryption from now on", heading="Service")] = (
        False
    )


@verb(UpdateOptions, keeps=True, takes_back=True)
def update(options: UpdateOptions) -> Result:
    """Change an installed service; the current version keeps running if that fails.

    Without options, only the engine is updated, to armload's current one. The new version is copied
    and tested alongside the running one, where memory allows. Options that you omit keep their
    values.
    Example: armload service.update --board dayu200 --name tutor --model new.gguf
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import in_turn
    from armload.report.services import UpdatedOnBoards
    from armload.services.managing import renew_certificate
    from armload.services.updating import update as update_there

    tls = _tls_files(options.tls_certificate, options.tls_key)
    changes = {*ServiceModels.model_fields, *EngineSource.model_fields} & options.model_fields_set

    def put(board: str, own: Progress) -> UpdatedService | RenewedCertificate:
        if tls is not None and not changes:
            there = reach.board(board, own)
            renewed = renew_certificate(
                there, own, name=options.name, tls=tls, wait_s=options.wait_s
            )
            if renewed is not None:
                return renewed
        request = options.part(Request).model_copy(update={"board": board})
        names_models = bool(options.model or options.plan or options.type)
        return update_there(
            request,
            reach.board(board, own),
            own,
            name=options.name,
            models=wanted_models(options, request) if names_models else None,
            changed=options.part(ServingPlan),
            most_loaded=options.most_loaded,
            sleep_idle_s=options.sleep_idle,
            slower=options.slower,
            overwrite=options.overwrite,
            tls=tls,
            without_tls=options.no_tls,
        )

    boards, progress = boards_called(options.board), terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:
        return UpdatedOnBoards(outcomes=in_turn(boards, put, progress), scheduler=options.scheduler)


@verb(OneServiceOptions, takes_back=True)
def rollback(options: OneServiceOptions) -> Result:
    """Return a service to its previous version; nothing is copied.

    Example: armload service.rollback --board dayu200 --name tutor
    """
    from armload.report.result import as_result
    from armload.report.services import rolled_back_line
    from armload.services.switching import roll_back

    with _reached(options, options.board) as (board, progress):
        done = roll_back(board, progress, name=options.name, wait_s=options.wait_s)
    return as_result(done, rolled_back_line(done))


@verb(OneServiceOptions)
def remove(options: OneServiceOptions) -> Result:
    """Remove an installed service from a board: its unit, its keys and its versions.

    Programs and models stay; board.clean removes those that nothing uses.
    Example: armload service.remove --board dayu200 --name tutor
    """
    from armload.report.result import as_result
    from armload.report.services import changed_line
    from armload.services.managing import remove as remove_there

    with _reached(options, options.board) as (board, progress):
        done = remove_there(board, progress, name=options.name, wait_s=options.wait_s)
    return as_result(done, changed_line(done))


class KeyOptions(OnNamedBoard, OnGateways, Waiting, OutputOptions):
    """Keys of an installed service."""

    name: Annotated[str, _NAME] = ""
    add: Annotated[
        str,
        Option(
            "add a random key with this name, which is shown only once", "KEYNAME", heading="Keys"
        ),
    ] = ""
    revoke: Annotated[
        Names, Option("names of the keys to revoke", "KEYNAMES", "", "commas", heading="Keys")
    ] = ()


@verb(KeyOptions)
def keys(options: KeyOptions) -> Result:
    """List the API keys of an installed service by name; add and revoke some.

    A change restarts the service, which reads its keys when it starts.
    Example: armload service.keys --board dayu200 --name tutor --add prometheus
    """
    from armload.report.result import as_result
    from armload.report.services import keys_view
    from armload.services.managing import change_keys

    with _reached(options, options.board) as (board, progress):
        done = change_keys(
            board,
            progress,
            name=options.name,
            add=[options.add] if options.add else [],
            revoke=options.revoke,
            wait_s=options.wait_s,
        )
    return as_result(done, keys_view(done))
