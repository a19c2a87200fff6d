"""What a program may use of a board's cores decides threads, pinning, forecasts and refusals."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board
from armload.boards.cpu_access import CpuAccess, read_cpu_access
from armload.boards.local import LocalHost
from armload.boards.probe import Probe, parse_probe
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.engines.completion import settings_of
from armload.engines.engine import RunContext, Settings
from armload.engines.llama_cpp import settings_words
from armload.engines.plan import Plan
from armload.report.board_state import cpu_access_line
from armload.runs.prepare import _pinning, check_cores
from armload.runs.resources import facts_of
from tests.unit.test_boards_probe import core, output
from tests.unit.test_engines_job import board

FOUR_AND_FOUR = "".join(core(n, part="0xd05" if n < 4 else "0xd0b") for n in range(8))
GROUPED = "groups\n"


def found(*lines: str) -> Probe:
    told = "".join(f"{line}\n" for line in lines)
    return parse_probe(output(FOUR_AND_FOUR, policies="", cpus=told), "b")


def words(probe: Probe, plan: Plan) -> str:
    cores = settings_of(plan).cores_on(probe)
    context = RunContext(layout=Layout(workdir=PurePosixPath("/w")), found=probe, cores=cores)
    return " ".join(settings_words(plan, Path("/b"), context.cores, context.most_threads))


@pytest.mark.parametrize(
    ("lines", "access"),
    [
        ((), CpuAccess()),
        (("affinity 0-3",), CpuAccess(usual=(0, 1, 2, 3))),
        (("affinity 0-1", "groups"), CpuAccess(usual=(0, 1), allowed=(0, 1))),
        (("affinity 0-1", "groups", "cpuset 0-2"), CpuAccess(usual=(0, 1), allowed=(0, 1, 2))),
        (("quota 150000 100000", "quota max 100000", "quota 2 1"), CpuAccess(quota=1.5)),
        (("quota -1 100000", "quota 0 5", "quota 5 0", "quota", "quota x y"), CpuAccess()),
        (("affinity 3-1", "cpuset ", "odd", "affinity 0"), CpuAccess()),
        ((f"affinity {'9' * 5000}",), CpuAccess()),
    ],
)
def test_what_a_board_does_not_tell_is_unknown(lines: tuple[str, ...], access: CpuAccess) -> None:
    assert read_cpu_access(lines) == access


@pytest.mark.parametrize(
    ("lines", "cores", "threads"),
    [
        (("affinity 0-7",), "4-7", "-t 4"),
        (("affinity 2-5",), "4-5", "-t 2"),  # the fast ones of them
        (("affinity 0-3",), None, "-t 4"),  # no fast one is left
        (("affinity 0-7", "quota 250000 100000"), "4-7", "-t 2"),
        (("affinity 0-1", "quota 50000 100000"), None, "-t 1"),
        (("affinity 0-7", "quota 1600000 100000"), "4-7", "-t 4"),
    ],
)
def test_threads_and_pinning_follow_what_is_left(
    lines: tuple[str, ...], cores: str | None, threads: str
) -> None:
    probe = found(*lines)
    assert settings_of(Plan()).cores_on(probe) == cores
    assert words(probe, Plan()) == threads
    assert words(probe, Plan(threads=3)) == "-t 3", "a person's own choice"


def test_a_core_that_is_not_allowed_is_refused_with_those_that_are() -> None:
    kept = found("affinity 0-3", "groups", "cpuset 0-3,6")
    with pytest.raises(UsageError, match=r"does not allow core 4-5,7\.") as caught:
        check_cores(Settings(cpus="3-7"), board(), kept)
    assert caught.value.remedy == "Allowed: 0-3,6."
    check_cores(Settings(cpus="3,6"), board(), kept)
    with pytest.raises(UsageError, match="b lets this user's programs run on 4 cores") as caught:
        check_cores(Settings(threads=5), board(), kept)
    assert caught.value.remedy == "Use --threads 4 or fewer."
    # Cores that isolcpus keeps free are there for whoever asks.
    check_cores(Settings(cpus="4-7", threads=4), board(), found("affinity 0-3"))


def test_only_cores_that_a_person_chose_need_something_that_pins() -> None:
    def pinned(cpus: str | None, *tools: str) -> tuple[str, ...]:
        probe = found("affinity 0-7").model_copy(update={"tools": tools})
        host = LocalHost("b", launcher=("emulator",))
        return _pinning(host, board(), Settings(cpus=cpus), "4-7", probe, Silent())

    assert pinned(None, "taskset") == pinned("4-7", "taskset") == ("taskset", "f0")
    assert pinned(None) == ()
    with pytest.raises(BoardError) as refused:
        pinned("4-7")
    assert "taskset" in refused.value.remedy


def test_forecasts_count_the_cores_that_are_left() -> None:
    def counted(where: Board, *lines: str) -> list[tuple[str, int]]:
        clusters = facts_of(where, found(*lines)).clusters
        return [(each.name, each.cores) for each in clusters]

    def names(probe: Probe) -> list[tuple[str, int]]:
        return [(each.name, each.cores) for each in probe.usual_clusters]

    assert counted(board(), "affinity 0-7") == [("Cortex-A55", 4), ("Cortex-A76", 4)]
    assert counted(board(), "affinity 3-5") == [("Cortex-A76", 2), ("Cortex-A55", 1)]
    assert counted(board(), "quota 500000 100000") == [("Cortex-A76", 4), ("Cortex-A55", 1)]
    assert names(found("affinity 3-5")) == [("Cortex-A55", 1), ("Cortex-A76", 2)]


def test_what_is_left_is_said() -> None:
    assert cpu_access_line(found("affinity 0-7").conditions) == ""
    now = found("affinity 0-3", "quota 150000 100000").conditions
    assert cpu_access_line(now) == (
        "programs run on 0-3, may ask for all, get at most 1.5 cores of CPU time"
    )
    now = found("affinity 0-3", "groups", "cpuset 0-5").conditions
    assert cpu_access_line(now) == "programs run on 0-3, may ask for 0-5"
