"""The files of a version of a service: how it is started, and what supervises it."""

from __future__ import annotations

from collections.abc import Sequence

from armload.core.errors import BoardError
from armload.core.shell import render
from armload.engines.engine import RunContext
from armload.engines.server import LOOPBACK, ServerAddress, Serving
from armload.services.router import PRESET, preset_section, router_words
from armload.services.users import UserIds
from armload.services.version import ServiceLayout, ServiceVersion

ENVIRONMENT_VARIABLE = "ARMLOAD_OWN_ENVIRONMENT"
"""A folder that holds a file of further variables for each of a router's models."""

LOG_BYTES = 4 << 20
_OOM_SCORE_ADJ = 500
"""The kernel ends the service before a shell or an SSH server."""


def version_files(
    engines: Sequence[Serving],
    context: RunContext,
    record: ServiceVersion,
    layout: ServiceLayout,
    address: ServerAddress,
) -> dict[str, str]:
    """Return the contents of a version's files by name, without what its supervisor is told.

    Raises:
        UsageError, BoardError: a name or an option cannot stand in one.
    """
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
    only: Serving | None = None,
) -> str:
    """Return what the supervisor is told of a version.

    Args:
        ids: of the user that it has to become; none where it is that already.
        holds_port: of the server, which listens behind it.
        port: that it listens on; none for that of the record.
        failures: in a row, after which it is given up.
        only: the server, if it has one model, to keep what its slots hold over a restart.
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
        if record.listening.with_tls and port is None:
            own["tls"] = "yes"
    if record.memory_limit_bytes is not None:
        own["memory_limit_bytes"] = record.memory_limit_bytes
    if only is not None and only.kept_slots:
        own |= {"slots": only.kept_slots, "slots_key": int(only.fingerprint[:12], 16)}
    if ids is not None:
        own |= {"uid": ids.uid, "gid": ids.gid}
    return "".join(f"{key} {value}\n" for key, value in own.items())
