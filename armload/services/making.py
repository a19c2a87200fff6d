"""Making a version of a service: its models checked, on the board, and how they are started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from armload import __version__
from armload.boards.boot import InitName
from armload.boards.probe import Probe
from armload.build.helper import SUPERVISE
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Progress
from armload.core.shell import render
from armload.core.values import Value, format_bytes, format_seconds
from armload.deploy.compatibility import check_folder
from armload.deploy.deployment import deploy
from armload.deploy.layout import Layout
from armload.deploy.own_programs import program_of_the_shell
from armload.deploy.retry import with_retries
from armload.engines.engine import MemoryNeed, RunContext
from armload.engines.model_program import binary_record, model_record
from armload.engines.perception import projector_record
from armload.engines.server import LOOPBACK, SERVER, ServerAddress, Serving, plan_for
from armload.engines.service_plan import ServingPlan
from armload.engines.weights import BoardMemory, are_streamed
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.runs.footprint import checked_memory
from armload.runs.predicting import predictor_of
from armload.runs.prepare import as_wanted
from armload.runs.session import Session
from armload.services.router import PRESET, preset_section, router_words
from armload.services.users import UserIds
from armload.services.version import (
    InstalledModel,
    Listening,
    MemoryForecast,
    ServiceLayout,
    ServiceVersion,
    new_version_id,
)
from armload.serving.starting import draft_of, one_request, projector_for

ENVIRONMENT_VARIABLE = "ARMLOAD_OWN_ENVIRONMENT"
"""A folder that holds a file of further variables for each of a router's models."""

LOG_BYTES = 4 << 20
_OOM_SCORE_ADJ = 500
"""The kernel ends the service before a shell or an SSH server."""

_BEHIND = "private/server.sock"
"""Where a server listens whose port is held by its supervisor, in the folder of that."""

_MEMORY_MARGIN, _MEMORY_MORE_BYTES = 1.25, 64 << 20
_MOST_OF_MEMORY = 0.95


class WantedModel(Value):
    """A model that is to be served.

    Attributes:
        given: as it was named.
        plan: how; none for the defaults.
        known, known_draft, known_projector: checksums of the model, of its draft model and of its
            projector where the board's own record has named them; none where a person has.
    """

    given: str
    plan: ServingPlan | None = None
    known: str | None = None
    known_draft: str | None = None
    known_projector: str | None = None


class WantedService(Value):
    """What a service is to be.

    Attributes:
        most_loaded: how many of several models are in memory at a time; none for what fits.
        sleep_idle_s: idle for so long, a model's memory is freed; none for never.
    """

    name: str
    models: tuple[WantedModel, ...]
    most_loaded: int | None = None
    sleep_idle_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class MadeVersion:
    """A version that can be written to a board, where all that it needs lies already.

    Attributes:
        record: what it is.
        files: of its folder, by name.
        supervise: the supervisor on the board.
        notes: what the forecast says, in sentences.
        holds_port: the supervisor does, and requests wait while it starts a version.
    """

    record: ServiceVersion
    files: Mapping[str, str]
    supervise: PurePosixPath
    notes: tuple[str, ...]
    holds_port: bool


def make_version(
    where: Session,
    wanted: WantedService,
    listening: Listening,
    progress: Progress,
    *,
    init: InitName,
    user: str | None,
    ids: UserIds | None,
    freed_bytes: int = 0,
) -> MadeVersion:
    """Check a service's models on a board, put what it needs there, and return its version.

    The caller has the board's lease.

    Args:
        listening: where it will listen.
        init: what will start it.
        user: of its own, that it will run as; none for the login's.
        ids: of that user, where the supervisor has to become it.
        freed_bytes: that the version which runs now will give back.

    Raises:
        UsageError, BoardError: it cannot be; says why.
    """
    host, board = where.connection.host, where.connection.board
    layout = ServiceLayout(workdir=board.workdir, name=wanted.name)
    found = _with_freed(where.found, freed_bytes)
    check_folder(board, found)
    address = ServerAddress(
        addresses=listening.addresses,
        behind=_BEHIND,
        port=listening.port,
        key_file=layout.keys,
        sleep_idle_s=wanted.sleep_idle_s,
    )
    engines = []
    for each in wanted.models:
        embeds = each.plan is not None and each.plan.embeddings is not None
        model = model_called(each.given, progress, or_embeds=embeds)
        plan = plan_for(model, each.plan)
        model = with_adapters(model, plan.adapters, progress)
        draft = draft_of(plan, progress)
        projector = projector_for(model, plan, progress, each.given)
        check_known(
            *(each, model.sha256, draft.sha256 if draft else None),
            projector=projector.sha256 if projector else None,
        )
        engine = Serving(
            *(plan, where.binaries[SERVER], model),
            draft=draft,
            projector=projector,
            address=address,
        )
        with_retries(lambda engine=engine: engine.check(host, board, found, progress))  # type: ignore[misc]
        known = checked_memory(where, engine, found, progress)
        assert isinstance(known, Serving)  # noqa: S101 - the same kind as was given
        predictor = predictor_of(where, model, one_request(plan), progress, is_kept=False)
        predictor(found, known.memory, None)
        engines.append(known)
    _check_together(engines)
    most_loaded, note = _most_loaded(
        engines, [_forecast(each, found) for each in engines], found, wanted.most_loaded
    )
    if note:
        progress.say(f"{host.name}: {note}")
    payload = tuple(dict.fromkeys(item for each in engines for item in each.payload))
    deployment = deploy(host, board, payload, progress)
    files_layout = Layout(workdir=board.workdir)
    supervise = program_of_the_shell(
        host, files_layout, SUPERVISE, deployment.shell_machine, progress
    )
    largest = max(engines[0].payload, key=lambda item: item.size_bytes)
    reads = [item.remote for item in largest.items(files_layout)]
    ready = as_wanted(
        *(host, board, engines[0].settings), found=where.found, reads=reads, progress=progress
    )
    context = ready.context.model_copy(
        update={"found": _with_freed(ready.context.found, freed_bytes)}
    )
    forecasts = [_forecast(each, context.found) for each in engines]
    version_id = new_version_id()
    limit = memory_limit_bytes(forecasts, most_loaded, context.found)
    record = ServiceVersion(
        id=version_id,
        service=wanted.name,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        armload=__version__,
        models=tuple(
            InstalledModel(
                alias=engine.alias,
                given=_given(each.given),
                file=model_record(engine.model),
                draft=model_record(engine.draft) if engine.draft else None,
                projector=projector_record(engine.projector) if engine.projector else None,
                plan=engine.plan,
                forecast=forecast,
            )
            for each, engine, forecast in zip(wanted.models, engines, forecasts, strict=True)
        ),
        most_loaded=most_loaded,
        sleep_idle_s=wanted.sleep_idle_s,
        listening=listening,
        engine=binary_record(where.binaries[SERVER]),
        memory_limit_bytes=limit,
        uses=tuple(
            sorted(
                {
                    item.relative_to(board.workdir)
                    for item in (
                        supervise.parent,
                        *(each.folder(files_layout) for each in payload),
                        *_helpers_in(context.launcher, files_layout),
                    )
                }
            )
        ),
        user=user,
        init=init,
    )
    files = _files(engines, context, record, layout, address)
    holds_port = address.is_behind(where.binaries[SERVER].path)
    files["supervisor"] = supervisor_lines(record, ids, holds_port=holds_port)
    notes = _switch_note(forecasts) if most_loaded < len(engines) else ()
    return MadeVersion(
        record=record, files=files, supervise=supervise, notes=notes, holds_port=holds_port
    )


def check_known(
    wanted: WantedModel, model: str, draft: str | None, *, projector: str | None = None
) -> None:
    """Refuse files that a board has named, unless it has named their checksums, too.

    A board could otherwise have any model of this machine sent to it.

    Args:
        model, draft, projector: checksums of the files on this machine.

    Raises:
        UsageError: one is another file than the board's.
    """
    for option, known, found in (
        ("--model", wanted.known, model),
        ("--speculate", wanted.known_draft, draft),
        ("--mmproj", wanted.known_projector, projector),
    ):
        if None not in (known, found) and known != found:
            raise UsageError(
                f"{wanted.given!a:.200}: what the board names for {option} is another file on this "
                "machine than the one on the board.",
                f"Name the file that you want with {option}.",
            )


def _with_freed(found: Probe, freed_bytes: int) -> Probe:
    if not freed_bytes:
        return found
    now = found.conditions
    available = min(now.memory_available_bytes + freed_bytes, now.memory_total_bytes)
    conditions = now.model_copy(update={"memory_available_bytes": available})
    return found.model_copy(update={"conditions": conditions})


def _given(name: str) -> str:
    path = Path(name)
    return str(path.resolve()) if path.is_file() else name


def _helpers_in(launcher: Sequence[str], layout: Layout) -> list[PurePosixPath]:
    programs = layout.workdir / "bin"
    paths = [PurePosixPath(word) for word in launcher]
    return [path.parent for path in paths if path.is_relative_to(programs)]


def _check_together(engines: Sequence[Serving]) -> None:
    aliases = [each.alias for each in engines]
    twice = next((each for each in aliases if aliases.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"--model names {twice} twice.", "Name each model once.")
    cpus = {each.plan.cpus for each in engines}
    if len(cpus) > 1:
        raise UsageError(
            "The plans of the models name different --cpus, but models behind one address share "
            "their cores.",
            "Use the same --cpus for all, or install a service for each model.",
        )


def _forecast(engine: Serving, found: Probe) -> MemoryForecast:
    need: MemoryNeed = engine.memory
    rate = found.rates.storage_read_bytes_per_s
    return MemoryForecast(
        weights_bytes=need.weights_bytes,
        own_bytes=need.own_bytes,
        is_exact=need.is_exact,
        is_streamed=are_streamed(engine.plan, engine.binary.path, need, found.conditions),
        load_s=need.weights_bytes / rate if rate else None,
    )


def _most_loaded(
    engines: Sequence[Serving],
    forecasts: Sequence[MemoryForecast],
    found: Probe,
    wanted: int | None,
) -> tuple[int, str]:
    """Return how many models are in memory at a time, and why, as a sentence."""
    if len(engines) == 1:
        return 1, ""
    free_bytes = BoardMemory.of(found.conditions).free_bytes
    needs = sorted((each.all_bytes for each in forecasts), reverse=True)
    fitting = sum(1 for n in range(1, len(needs) + 1) if sum(needs[:n]) <= free_bytes) or 1
    chosen = min(wanted or fitting, len(engines))
    together = " and ".join(each.alias for each in engines)
    said = (
        f"{together} fit into memory together ({format_bytes(sum(needs))} of "
        f"{format_bytes(free_bytes)} free)."
        if fitting == len(engines)
        else f"{together} do not fit into memory together ({format_bytes(sum(needs))}, and "
        f"{format_bytes(free_bytes)} are free): {chosen} at a time."
    )
    if chosen > fitting:
        said += f" With --most-loaded {chosen}, the board may run out of memory."
    return chosen, said


def _switch_note(forecasts: Sequence[MemoryForecast]) -> tuple[str, ...]:
    times = [each.load_s for each in forecasts if each.load_s is not None]
    if not times:
        return ()
    longest = format_seconds(max(times))
    return (f"A switch to another model reads it from storage, which takes up to {longest}.",)


def memory_limit_bytes(forecasts: Sequence[MemoryForecast], most_loaded: int, found: Probe) -> int:
    """Return the anonymous memory beyond which a service has gone wrong.

    It is what the largest models that are loaded together are expected to take, with a margin;
    weights count because repacking and streaming copy them.
    """
    needs = sorted((each.all_bytes for each in forecasts), reverse=True)[:most_loaded]
    wanted = int(_MEMORY_MARGIN * sum(needs)) + _MEMORY_MORE_BYTES
    if any(each.is_streamed for each in forecasts):
        wanted = found.conditions.memory_total_bytes
    return min(wanted, int(_MOST_OF_MEMORY * found.conditions.memory_total_bytes))


def _files(
    engines: Sequence[Serving],
    context: RunContext,
    record: ServiceVersion,
    layout: ServiceLayout,
    address: ServerAddress,
) -> dict[str, str]:
    folder = layout.version(record.id)
    files = {"service.json": record.model_dump_json() + "\n"}
    if len(engines) == 1:
        (engine,) = engines
        command = engine.command(context)
        variables = {"ARMLOAD_TRACE": str(layout.trace(record.id))}
        variables |= engine.environment(context)
    else:
        binary = engines[0].binary
        program = str(engines[0].payload[0].items(context.layout)[0].remote)
        slots = max(each.plan.slots for each in engines)
        words = router_words(
            binary.path,
            address,
            slots=slots,
            preset=folder / PRESET,
            most_loaded=record.most_loaded,
        )
        command = (*context.launcher, program, *words)
        variables = {ENVIRONMENT_VARIABLE: str(folder / "environment")}
        for each in engines:
            own = {"ARMLOAD_TRACE": str(layout.trace(record.id, each.alias))}
            own |= each.environment(context)
            lines = "".join(f"{name}={value}\n" for name, value in own.items())
            files[f"environment/{each.alias}"] = lines
        files[PRESET] = "\n".join(
            preset_section(each.alias, [*each.model_words(context), *each.plan.extra])
            for each in engines
        )
    if any("\n" in word for word in command):
        raise BoardError(f"{record.service}: a word of its command contains a line break.")
    at = command.index("--port")
    files["start"] = render(
        "service/start.sh.j2",
        {
            "id": record.id,
            "name": record.service,
            "environment": sorted(variables.items()),
            "before": list(command[:at]),
            "port": record.listening.port,
            "after": list(command[at + 2 :]),
            "holds_port": address.is_behind(engines[0].binary.path),
        },
    )
    files["uses"] = "".join(f"{each}\n" for each in record.uses)
    return files


def supervisor_lines(
    record: ServiceVersion,
    ids: UserIds | None,
    *,
    holds_port: bool,
    port: int | None = None,
    failures: int = 8,
) -> str:
    """Return what the supervisor is told of a version.

    Args:
        ids: of the user that it has to become; none where it is that already.
        holds_port: of the server, which listens behind it.
        port: that it listens on; none for that of the record.
        failures: in a row, after which it is given up.
    """
    own: dict[str, object] = {
        "port": port or record.listening.port,
        "failures": failures,
        "address": record.listening.addresses[0],
        "oom_score_adj": _OOM_SCORE_ADJ,
        "log_bytes": LOG_BYTES,
        "load_s": record.load_limit_s,
        "health": "yes",
    }
    if holds_port:
        own["listen"] = ",".join(record.listening.addresses if port is None else [LOOPBACK])
    if record.memory_limit_bytes is not None:
        own["memory_limit_bytes"] = record.memory_limit_bytes
    if ids is not None:
        own |= {"uid": ids.uid, "gid": ids.gid}
    return "".join(f"{key} {value}\n" for key, value in own.items())
