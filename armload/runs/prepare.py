"""Bringing a board into the state that a run asks for: its settings, and cool enough."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.boards.board import Board
from armload.boards.device_clocks import sampled_clocks
from armload.boards.host import Host
from armload.boards.probe import Probe, probe
from armload.boards.sensors import Sensor, chosen_zones, hottest, read_sensors
from armload.build.helper import CLOCK, PIN, RATES
from armload.core.cpu_sets import cpu_mask, cpu_numbers, cpu_words
from armload.core.errors import ArmloadError, BoardError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.shell import call
from armload.core.values import Value, counted
from armload.deploy.deployment import Deployment
from armload.deploy.launch import BoardSetup, check_governors, governor_settings
from armload.deploy.layout import Layout
from armload.deploy.own_programs import own_program, program_of_the_shell
from armload.deploy.rates import measured_rates
from armload.deploy.retry import with_retries
from armload.engines.completion import Completion
from armload.engines.engine import Engine, RunContext, Settings


class Prepared(Value):
    """A board that is ready for a run.

    Attributes:
        context: as the engine meets it.
        setup: what the run's script does first.
        uses: folders there that hold what the run needs.
    """

    context: RunContext
    setup: BoardSetup
    uses: tuple[PurePosixPath, ...] = ()


def prepare(
    host: Host,
    board: Board,
    engine: Engine,
    deployment: Deployment,
    progress: Progress,
) -> Prepared:
    """Bring a board into the state that a run asks for, and see how it is then.

    Args:
        engine: what is to run; its files are there.
    """
    layout = Layout(workdir=board.workdir)
    helpers = {
        name: program_of_the_shell(host, layout, name, deployment.shell_machine, progress)
        for name in engine.helpers
    }
    # Copying fills the page cache and wakes the CPU: after it, the board is another.
    found = with_retries(lambda: probe(host, board)) if deployment.sent else deployment.found
    largest = max(engine.payload, key=lambda each: each.size_bytes, default=None)
    files = sorted(largest.items(layout) if largest else (), key=lambda each: -each.size_bytes)
    ready = as_wanted(
        *(host, board, engine.settings),
        found=found,
        reads=[each.remote for each in files],
        progress=progress,
    )
    uses = (
        *(helper.parent for helper in helpers.values()),
        *(each.folder(layout) for each in engine.payload),
    )
    if isinstance(engine, Completion) and engine.plan.depth_tokens:
        uses = (*uses, engine.saved_context(layout).parent)
    context = ready.context.model_copy(update={"helpers": helpers})
    return ready.model_copy(update={"context": context, "uses": uses})


def as_wanted(
    host: Host,
    board: Board,
    settings: Settings,
    *,
    found: Probe,
    reads: Sequence[PurePosixPath],
    progress: Progress,
) -> Prepared:
    """Measure a board's rates once per boot, pin, let it cool: whatever the settings say.

    Args:
        reads: the files of the model that the engine reads there, the largest first.
    """
    check_cores(settings, board, found)  # not every command tells its session the settings
    rates = found.rates
    if settings.measure_rates and reads:
        rates = measured_rates(
            host, board, found, progress, file=reads[0], governor=settings.governor
        )
    cores = settings.cores_on(found)
    _say_quota(board, settings, found, progress)
    launcher = (*_pinning(host, board, settings, cores, found, progress), *host.launcher)
    evict: tuple[str, ...] = ()
    if settings.cold and len(reads) == 1:  # of several files, one alone would stay warm
        model = reads[0]
        purpose = "evict the model from the page cache"
        program = _own_or_none(host, board, RATES, found, progress, purpose)
        evict = (*program, "evict", str(model)) if program else ()
    if settings.cool_to_celsius is not None:
        cool_down(host, board, settings.cool_to_celsius, progress)
    if settings.cool_to_celsius is not None or rates != found.rates:
        # The board is another after minutes of waiting, or a second at full load.
        now = probe(host, board).conditions
        found = found.model_copy(update={"conditions": now, "rates": rates})
    setup = BoardSetup(
        cold=settings.cold,
        evict=evict,
        governors=governor_settings(board.name, settings.governor, found.conditions.device_clocks),
        clock=_clock(host, board, cores, found, progress),
        zones=chosen_zones(found.conditions.sensors),
        clocks=tuple(each.path for each in sampled_clocks(found.conditions.device_clocks)),
    )
    layout = Layout(workdir=board.workdir)
    return Prepared(
        context=RunContext(layout=layout, found=found, cores=cores, launcher=launcher),
        setup=setup,
    )


def check_state(host: Host, board: Board, settings: Sequence[Settings], found: Probe) -> None:
    """Refuse states that a board cannot be brought into."""
    for governor in {each.governor: None for each in settings if each.governor is not None}:
        check_governors(host, governor, found.conditions.device_clocks)
    if any(each.cool_to_celsius is not None for each in settings):
        need_sensor(board, found.conditions.sensors)


def check_cores(settings: Settings, board: Board, probe: Probe) -> None:
    """Refuse cores that a board does not have, and more threads than it has cores."""
    now = probe.conditions
    there = {*now.cores}
    chosen = {*now.usual_cores} if settings.cpus is None else {*cpu_numbers(settings.cpus)}
    if not chosen <= there:
        missing = ", ".join(str(core) for core in sorted(chosen - there))
        raise UsageError(
            f"--cpus {settings.cpus}: {board.name} has no core {missing}.",
            f"It has: {', '.join(str(core) for core in sorted(there))}.",
        )
    if refused := chosen - {*now.allowed_cores}:
        raise UsageError(
            f"--cpus {settings.cpus}: a control group (cpuset) on {board.name} does not allow core "
            f"{cpu_words(refused)}.",
            f"Allowed: {cpu_words(now.allowed_cores)}.",
        )
    if settings.threads is not None and settings.threads > len(chosen):
        where = f"{board.name} has" if settings.cpus is None else f"--cpus {settings.cpus} is"
        if settings.cpus is None and chosen != there:
            where = f"{board.name} lets this user's programs run on"
        cores = counted(len(chosen), "core")
        raise UsageError(
            f"--threads {settings.threads} is too many: {where} {cores}.",
            f"Use --threads {len(chosen)} or fewer.",
        )


def _say_quota(board: Board, settings: Settings, found: Probe, progress: Progress) -> None:
    cpus = found.conditions.cpus
    if cpus.quota is not None and (settings.threads or 0) > cpus.quota:
        progress.say(
            f"{board.name}: a control group limits this user's programs to {cpus.quota:.3g} cores "
            f"of CPU time: {settings.threads} threads will be paused for a part of it."
        )


def _pinning(
    host: Host,
    board: Board,
    settings: Settings,
    cores: str | None,
    found: Probe,
    progress: Progress,
) -> tuple[str, ...]:
    if cores is None:
        return ()
    if settings.cpus is None:
        fast = " and ".join(f"{each.cores} {each.name}" for each in found.fast_clusters)
        every = cpu_words(found.conditions.usual_cores)
        progress.say(
            f"{board.name}: using its {fast} (cores {cores}), because slower cores would hold them "
            f"up. --cpus {every} uses all."
        )
    mask = cpu_mask(cores)
    if "taskset" in found.tools:
        return ("taskset", mask)
    program = (
        None
        if host.launcher
        else own_program(host, Layout(workdir=board.workdir), PIN, found, progress)
    )
    if program is None:
        if settings.cpus is None:
            return ()
        raise BoardError(
            f"{board.name}: it has no taskset, which --cpus needs.",
            "Omit --cpus, or install taskset on the board.",
        )
    return (*program, mask)


_HIDES_ITS_CLOCK = "Raspberry Pi"
"""The beginning of a device's name: its kernel shows the frequency that it asked for."""


def _clock(
    host: Host, board: Board, cores: str | None, found: Probe, progress: Progress
) -> tuple[str, ...]:
    """Return the command that measures the clock of one core of each cluster that is used."""
    if not found.device.startswith(_HIDES_ITS_CLOCK):
        return ()
    program = _own_or_none(host, board, CLOCK, found, progress, "measure the real frequency")
    used = None if cores is None else {*cpu_numbers(cores)}
    each_cluster = (
        [core for core in cluster.cores if used is None or core in used]
        for cluster in found.conditions.clusters
    )
    first = [str(its[0]) for its in each_cluster if its]
    return (*program, *first) if program and first else ()


def _own_or_none(
    host: Host, board: Board, name: str, found: Probe, progress: Progress, purpose: str
) -> tuple[str, ...]:
    try:
        return own_program(host, Layout(workdir=board.workdir), name, found, progress) or ()
    except ConnectError:
        raise
    except ArmloadError as error:
        progress.say(f"{board.name}: cannot {purpose}: {error.message}")
        return ()


LONGEST_WAIT_S = 900.0
LOOK_EVERY_S = 2.0

CONSTANT_AFTER_S = 60.0
CONSTANT_WHILE_CELSIUS = 3.0
"""A zone that still shows the very same after that time, in which another has cooled by so much,
is taken for a constant."""


def cool_down(
    host: Host,
    board: Board,
    to_celsius: float,
    progress: Progress,
    *,
    limit_s: float = LONGEST_WAIT_S,
    every_s: float = LOOK_EVERY_S,
    constant_after_s: float = CONSTANT_AFTER_S,
) -> float:
    """Wait until a board's hottest sensor shows no more than that; return what it shows then."""
    sensors = _sensors(host, board)
    shown = {each.zone: {each.celsius} for each in sensors}
    constant: set[int] = set()
    first = now = need_sensor(board, sensors)
    began = time.monotonic()
    if _celsius(now) <= to_celsius:
        return _celsius(now)
    label = f"Cooling {host.name} to {to_celsius:g} °C"
    with progress.step(label, total=_celsius(first) - to_celsius, unit="degrees") as step:
        while _celsius(now) > to_celsius:
            waited_s = time.monotonic() - began
            cooled = max(_celsius(first) - _celsius(now), 0.0)
            step.update(cooled, note=f"{now.celsius:.1f} °C, {waited_s:.0f} s")
            if waited_s >= constant_after_s and _is_constant(now, shown):
                constant.add(now.zone)
                progress.say(
                    f"{host.name}: ignoring sensor {now.name}, which shows a constant "
                    f"{now.celsius:g} °C."
                )
            elif waited_s >= limit_s:
                raise BoardError(
                    f"{host.name} is still at {now.celsius:.1f} °C ({now.name}) after "
                    f"{limit_s:.0f} s; the target was {to_celsius:g} °C.",
                    "End other programs on the board, add a fan, or use a higher --cool-to. If "
                    f"{now.name} is not a CPU sensor, list others as 'sensors' in "
                    f"boards/{board.name}.yaml.",
                )
            else:
                time.sleep(every_s)
            sensors = _sensors(host, board)
            for each in sensors:
                shown.setdefault(each.zone, set()).add(each.celsius)
            now = need_sensor(board, tuple(each for each in sensors if each.zone not in constant))
    return _celsius(now)


def _sensors(host: Host, board: Board) -> tuple[Sensor, ...]:
    return read_sensors(host.run(call("tell_temperatures")).text.splitlines(), board.sensors)


def _is_constant(sensor: Sensor, shown: dict[int, set[float | None]]) -> bool:
    if len(shown[sensor.zone]) > 1:
        return False
    known = ([c for c in values if c is not None] for values in shown.values())
    return any(each and max(each) - min(each) >= CONSTANT_WHILE_CELSIUS for each in known)


def _celsius(sensor: Sensor) -> float:
    return sensor.celsius or 0.0


def need_sensor(board: Board, sensors: Sequence[Sensor]) -> Sensor:
    """Return the hottest of a board's sensors that count."""
    found = hottest(sensors)
    if found is not None:
        return found
    if not sensors:
        raise BoardError(
            f"{board.name}: its kernel exposes no temperature sensor, so --cool-to cannot work.",
            "Omit --cool-to.",
        )
    names = ", ".join(dict.fromkeys(each.name for each in sensors))
    if board.sensors:
        raise BoardError(
            f"{board.name}: no working sensor is called {' or '.join(board.sensors)}, as in "
            f"'sensors' of boards/{board.name}.yaml.",
            f"Available: {names}.",
        )
    raise BoardError(
        f"{board.name}: none of its temperature sensors shows a plausible value ({names}), so "
        "--cool-to cannot work.",
        "Omit --cool-to.",
    )
