"""Making a version of a service: its models checked, on the board, and how they are started."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path, PurePosixPath

from armload import __version__
from armload.boards.boot import InitName
from armload.boards.probe import Probe
from armload.build.helper import SUPERVISE
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.compatibility import check_folder
from armload.deploy.deployment import deploy
from armload.deploy.layout import Layout
from armload.deploy.own_programs import program_of_the_shell
from armload.deploy.rates import measured_rates
from armload.deploy.retry import with_retries
from armload.engines.job import ModelRecord, ProjectorRecord
from armload.engines.model_program import binary_record, model_record
from armload.engines.perception import projector_record
from armload.engines.server import SERVER, ServerAddress, Serving, plan_for
from armload.engines.service_plan import ServingPlan
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.model import Model
from armload.models.projector import Projector
from armload.runs.footprint import checked_memory
from armload.runs.predicting import predict_and_warn
from armload.runs.prepare import as_wanted
from armload.runs.session import Session
from armload.services.memory import forecast_of, memory_limit_bytes, together
from armload.services.users import UserIds
from armload.services.version import (
    InstalledModel,
    Listening,
    ServiceLayout,
    ServiceVersion,
    new_version_id,
)
from armload.services.version_files import supervisor_lines, version_files
from armload.serving.starting import draft_of, one_request, projector_for

_BEHIND = "private/server.sock"
"""Where a server listens whose port is held by its supervisor, in the folder of that."""


class WantedModel(Value):
    """A model that is to be served.

    Attributes:
        given: as it was named.
        plan: how; none for the defaults.
        known: checksums of the files that the board's own record has named, not a person, by the
            option that names them; empty for none.
    """

    given: str
    plan: ServingPlan | None = None
    known: Mapping[str, str] = {}


class WantedService(Value):
    """What a service is to be.

    Attributes:
        most_loaded: how many of several models are in memory at a time; none for what fits.
        sleep_idle_s: idle for so long, a model's memory is freed; none or infinite for never.
    """

    name: str
    models: tuple[WantedModel, ...]
    most_loaded: int | None = None
    sleep_idle_s: float | None = None

    @property
    def sleeps_after_s(self) -> int | None:
        """The same as llama-server takes it, in whole seconds; none for never."""
        wanted = self.sleep_idle_s
        return None if wanted is None or math.isinf(wanted) else max(1, round(wanted))


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


def find_models(wanted: Sequence[WantedModel], progress: Progress) -> tuple[Model, ...]:
    """Find models on this machine, so that a wrong name is told before anything is built."""
    return tuple(
        model_called(
            each.given,
            progress,
            or_embeds=each.plan is not None and each.plan.embeddings is not None,
        )
        for each in wanted
    )


def make_version(
    where: Session,
    wanted: WantedService,
    models: Sequence[Model],
    listening: Listening,
    progress: Progress,
    *,
    init: InitName,
    user: str | None,
    ids: UserIds | None,
    freed_bytes: int = 0,
    knows_tls: bool = False,
) -> MadeVersion:
    """Check a service's models on a board, put what it needs there, and return its version.

    The caller has the board's lease.

    Args:
        models: those that are wanted, as they were found.
        listening: where it will listen.
        init: what will start it.
        user: of its own, that it will run as; none for the login's.
        ids: of that user, where the supervisor has to become it.
        freed_bytes: that the version which runs now will give back.
        knows_tls: its supervisor has to know TLS, because another version needs that.

    Raises:
        UsageError, BoardError: it cannot be; says why.
    """
    host, board = where.connection.host, where.connection.board
    layout = ServiceLayout(workdir=board.workdir, name=wanted.name)
    found = _with_freed(where.found, freed_bytes)
    check_folder(board, found)
    if len(wanted.models) > 1:  # how long a switch takes is said before anything is copied
        rates = measured_rates(host, board, where.found, progress)
        found = found.model_copy(update={"rates": rates})
    address = ServerAddress(
        addresses=listening.addresses,
        behind=_BEHIND,
        port=listening.port,
        key_file=layout.keys,
        sleep_idle_s=wanted.sleeps_after_s,
    )
    holds_port = address.is_behind(where.binaries[SERVER].path)
    if listening.with_tls and not holds_port:
        raise UsageError(
            "--tls-certificate: this llama.cpp is too old for it: its llama-server cannot listen "
            "on a socket behind armload's supervisor.",
            "Omit --source, or give a newer one.",
        )
    engines, predictions = [], []
    for each, bare in zip(wanted.models, models, strict=True):
        plan = plan_for(bare, each.plan)
        model = with_adapters(bare, plan.adapters, progress)
        draft = draft_of(plan, progress)
        projector = projector_for(model, plan, progress, each.given)
        check_known(each, checksums(model, draft, projector))
        engine = Serving(
            *(plan, where.binaries[SERVER], model),
            draft=draft,
            projector=projector,
            address=address,
        )
        with_retries(lambda engine=engine: engine.check(host, board, found, progress))  # type: ignore[misc]
        known = checked_memory(where, engine, found, progress)
        assert isinstance(known, Serving)  # noqa: S101 - the same kind as was given
        request = one_request(plan)
        predictions.append(predict_and_warn(where, model, request, found, known.memory, progress))
        engines.append(known)
    _check_together(engines)
    most_loaded, note = together(
        engines,
        list(map(forecast_of, engines, repeat(found), predictions)),
        found,
        wanted.most_loaded,
    )
    if note:
        progress.say(f"{host.name}: {note}")
    payload = tuple(dict.fromkeys(item for each in engines for item in each.payload))
    deployment = deploy(host, board, payload, progress)
    files_layout = Layout(workdir=board.workdir)
    supervise = program_of_the_shell(
        *(host, files_layout, SUPERVISE, deployment.shell_machine, progress),
        with_tls=listening.with_tls or knows_tls,
    )
    largest = max(engines[0].payload, key=lambda item: item.size_bytes)
    reads = [item.remote for item in largest.items(files_layout)]
    ready = as_wanted(
        *(host, board, engines[0].settings), found=where.found, reads=reads, progress=progress
    )
    context = ready.context.model_copy(
        update={"found": _with_freed(ready.context.found, freed_bytes)}
    )
    forecasts = list(map(forecast_of, engines, repeat(context.found), predictions))
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
        sleep_idle_s=wanted.sleeps_after_s,
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
    files = version_files(engines, context, record, layout, address)
    only = engines[0] if len(engines) == 1 else None
    files["supervisor"] = supervisor_lines(record, ids, holds_port=holds_port, only=only)
    return MadeVersion(
        record=record,
        files=files,
        supervise=supervise,
        notes=(note,) if note else (),
        holds_port=holds_port,
    )


def checksums(
    model: Model | ModelRecord,
    draft: Model | ModelRecord | None,
    projector: Projector | ProjectorRecord | None,
) -> dict[str, str]:
    """Return the checksums of a served model's files by the option that names them.

    Of several adapters, they are in one text; what it does without has an empty one.
    """
    return {
        "--model": model.sha256,
        "--speculate": draft.sha256 if draft else "",
        "--mmproj": projector.sha256 if projector else "",
        "--lora": ",".join(each.sha256 for each in model.adapters),
    }


def check_known(wanted: WantedModel, found: Mapping[str, str]) -> None:
    """Refuse files that a board has named, unless it has named their checksums, too.

    A board could otherwise have any model of this machine sent to it.

    Args:
        found: checksums of the files on this machine.

    Raises:
        UsageError: one is another file than the board's.
    """
    for option, known in wanted.known.items():
        if found[option] not in ("", known):
            raise UsageError(
                f"{wanted.given!a:.200}: the file that the board's record names for {option} "
                "differs on this machine.",
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
