"""Starting a program on a board so that it survives a dropped connection."""

from __future__ import annotations

import math
import posixpath
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from armload.boards.device_clocks import GOVERNED, DeviceClock
from armload.boards.framing import reason
from armload.boards.governors import governors_in
from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import call, render
from armload.core.values import Value
from armload.deploy.claims import SERVING
from armload.deploy.heartbeat import PATIENCE_S
from armload.deploy.holder import RunMark, this_process
from armload.deploy.layout import PROGRAM_FOLDER
from armload.deploy.lease import RENEW_EVERY_S, TERM_S, Lease
from armload.deploy.retry import with_retries
from armload.deploy.space import refusal


def governor_settings(
    board_name: str, wanted: str | None, clocks: Sequence[DeviceClock]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the governors that a text names, as ``BoardSetup`` has them.

    Args:
        clocks: of the board, beside those of its cores.

    Raises:
        BoardError: there is no such device, or it has no governors.
    """
    found = []
    for kind, governor in governors_in(wanted).items() if wanted else ():
        its_own = [each for each in clocks if each.kind == kind and each.governor and each.path]
        if kind != "cpu" and not its_own:
            known = sorted({each.kind for each in clocks if each.governor})
            offered = ", ".join(each for each in GOVERNED if each in known and each != "cpu")
            raise BoardError(
                f"{board_name}: its kernel exposes no governor of {kind}.",
                f"Omit {kind} from --governor. Beside the CPU, there is: {offered or 'nothing'}.",
            )
        folders = () if kind == "cpu" else tuple(posixpath.dirname(each.path) for each in its_own)
        found.append((governor, folders))
    return tuple(found)


def check_governors(host: Host, wanted: str, clocks: Sequence[DeviceClock]) -> None:
    """Refuse governors that a board cannot be given.

    Args:
        clocks: of the board, beside those of its cores.
    """
    for governor, folders in governor_settings(host.name, wanted, clocks):
        _check_governor(host, governor, folders)


def _check_governor(host: Host, wanted: str, folders: Sequence[str]) -> None:
    told = host.run(call("tell_governors", *folders)).text.splitlines()
    policies = [line.split(";") for line in told]
    whose = " and ".join(posixpath.basename(each) for each in folders) or "the CPU"
    if not policies:
        raise BoardError(
            f"{host.name}: its kernel exposes no CPU frequency governors, so none can be set.",
            "Omit --governor.",
        )
    offered = {name for _, now, names in policies for name in (now, *names.split())}
    for may, now, names in policies:
        if wanted not in (now, *names.split()):
            raise BoardError(
                f"{host.name}: there is no frequency governor {wanted!r} for {whose}.",
                f"Available: {', '.join(sorted(offered))}.",
            )
        if may != "yes":
            raise BoardError(
                f"{host.name}: the governor of {whose} is {now}, and this user may not change it.",
                "Log in as root ('user' under 'reach' in the board's file), or omit --governor.",
            )


JOB_MARK = b"#job "
"""Begins the last line of a run's script, a comment that holds the job."""


class BoardSetup(Value):
    """What a run's script does on the board before it starts the program.

    Attributes:
        cold: drop the board's page cache first.
        evict: a command that drops the model alone, where the whole cache cannot be dropped.
        governors: for the time of the run, each with the folders of the devices that get it;
            without folders, the CPU.
        clock: a command that measures the real frequency of cores; it runs afterwards, too.
        zones: numbers of the thermal zones that programs of ours read; empty for all.
        clocks: files of clocks that programs of ours read, beside those of the cores.
    """

    cold: bool = False
    evict: tuple[str, ...] = ()
    governors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    clock: tuple[str, ...] = ()
    zones: tuple[int, ...] = ()
    clocks: tuple[str, ...] = ()


class ServiceOptions(Value):
    """What a run's script does for a service, which ends only when it is stopped.

    Attributes:
        patience_s: without a heartbeat for so long it ends, unless it was detached.
        log_every_s: how often the length of its standard error is looked at.
        log_limit_bytes: when its standard error has grown so long, it becomes ``stderr.1``.
        secret: a file that is deleted when it ends; none without one.
        keeps_board: it lasts until a person stops it, so that nobody waits for the board.
        samples: once a second it notes the program's CPU time and what thermal zones show.
    """

    patience_s: int = PATIENCE_S
    log_every_s: int = 60
    log_limit_bytes: int = 4 << 20
    secret: PurePosixPath | None = None
    keeps_board: bool = True
    samples: bool = False


def launch(
    host: Host,
    *,
    run_folder: PurePosixPath,
    argv: Sequence[str],
    trace: bool,
    time_limit_s: float,
    job: bytes,
    environment: Mapping[str, str] | None = None,
    fingerprint: str = "",
    lease: Lease | None = None,
    renew_every_s: float = RENEW_EVERY_S,
    uses: Sequence[PurePosixPath] = (),
    setup: BoardSetup | None = None,
    program: str = "",
    service_options: ServiceOptions | None = None,
) -> None:
    """Start a program, detached; its files appear in ``run_folder``, which must be new.

    A connection that drops meanwhile is renewed; the program is still started only once.

    Args:
        run_folder: the program works in its ``PROGRAM_FOLDER``.
        argv: the program and its arguments, with the host's launcher before them where it
            has one.
        trace: let our library write ``trace.jsonl`` there.
        time_limit_s: the board itself ends the program after that long, give or take a second.
        job: JSON that comes back as ``job.json`` with the run's files, whoever fetches them.
        environment: variables for the program.
        fingerprint: a checksum over what decides the run, by which it is found again.
        lease: of the board; the run renews it while the program lives, and ends it then.
        renew_every_s: how often the run renews the lease.
        uses: folders that the program needs; they are noted as used now.
        program: what the words before it start in the end, such as ``watch``; its end is what
            is explained. Empty for the first word.
        service_options: of a service; none for a run that ends by itself.

    Raises:
        BoardError: the folder exists or cannot be made.
    """
    script = render(
        "run/run.sh.j2",
        {
            "folder": run_folder,
            "program_folder": PROGRAM_FOLDER,
            "holds": f"{run_folder.name} {SERVING}"
            if service_options and service_options.keeps_board
            else run_folder.name,
            "argv": list(argv),
            "environment": dict(environment or {}),
            "program": program or argv[0],
            "trace": trace,
            "time_limit_s": math.ceil(time_limit_s),
            "lease": lease and {"folder": lease.folder, "token": lease.token},
            "uses": [str(folder) for folder in uses],
            "now_s": int(time.time()),
            "every_s": math.floor(renew_every_s),
            "term_s": TERM_S,
            "service": service_options and service_options.model_dump(),
            **(setup or BoardSetup()).model_dump(),
        },
    )
    mark = RunMark(fingerprint=fingerprint, holder=this_process())
    content = script.encode() + JOB_MARK + b" ".join(job.splitlines()) + b"\n"

    def start(*, again: bool) -> None:
        command = render(
            "run/launch.sh.j2",
            {
                "runs": run_folder.parent,
                "name": run_folder.name,
                "program_folder": PROGRAM_FOLDER,
                "size": len(content),
                "mark": mark.word,
                "again": again,
                "service": service_options is not None,
            },
        )
        done = host.run(command, stdin=content)
        if done.status != 0:
            runs = run_folder.parent
            complaint = f"cannot start the run in {run_folder}"
            raise refusal(host, runs, complaint, reason(done.stderr), runs.parent)

    try:
        start(again=False)
    except ConnectError:
        with_retries(lambda: start(again=True))
