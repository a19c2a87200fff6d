"""The files of a version of a service: how it is started, and what supervises it.

Several models are behind one address by llama-server's router, which starts each when it is asked
for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.core.errors import BoardError, UsageError
from armload.core.shell import render
from armload.engines.engine import RunContext
from armload.engines.llama_cpp import offers
from armload.engines.server import LOOPBACK, ServerAddress, Serving, program_words
from armload.services.users import UserIds
from armload.services.version import ServiceLayout, ServiceVersion

_SECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,126}")
_KEY = re.compile(r"--?([A-Za-z_][A-Za-z0-9_.-]*)(?:=(.*))?")
_FORBIDDEN = re.compile(r"[;#\r\n]")
"""In a preset they begin a comment, or end a line."""

PRESET = "models.ini"


def router_words(
    program: Path,
    address: ServerAddress,
    *,
    slots: int,
    preset: PurePosixPath,
    most_loaded: int,
) -> list[str]:
    """Return the options of a server that starts one of itself for each model.

    Args:
        program: on this machine.
        slots: of the model with the most.
        preset: on the board.
        most_loaded: models in memory at a time; another one takes the place of the one that was
            used longest ago.

    Raises:
        UsageError: it is too old.
    """
    if not offers(program, "--models-preset"):
        raise UsageError(
            "This release of llama.cpp cannot serve several models.",
            "Omit --source, or install a service for each model.",
        )
    words = [*address.words(program, slots), *program_words(program)]
    return [*words, "--models-preset", str(preset), "--models-max", str(most_loaded)]


def preset_section(alias: str, words: Sequence[str]) -> str:
    """Return a model's section of a preset: its options, as they would be typed.

    Raises:
        UsageError: the name or an option cannot stand in such a file.
    """
    if not _SECTION.fullmatch(alias):
        raise UsageError(
            f"{alias!a}: among several models, this cannot be the name of one.",
            "Rename its file: letters, digits and . _ @ - only.",
        )
    lines = [f"[{alias}]"]
    at = 0
    while at < len(words):
        match = _KEY.fullmatch(words[at])
        if match is None:
            raise UsageError(
                f"--engine-args: {words[at]!a:.80} is no option, and several models take options "
                "only.",
                "Remove it, or install a service for each model.",
            )
        at += 1
        key, value = match[1], match[2]
        if value is None:
            value = "true"
            if at < len(words) and (not _KEY.fullmatch(words[at]) or not words[at]):
                value = words[at]
                at += 1
        if key == "alias":
            continue  # it is the section's name
        if _FORBIDDEN.search(value):
            raise UsageError(
                f"{value!a:.80}: llama-server's file of several models cannot hold ; # or a line "
                "break in a value.",
                "Rename the file, or remove the option.",
            )
        lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


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
