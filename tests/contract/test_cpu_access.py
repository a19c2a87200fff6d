"""What affinity, cpusets and quotas of control groups leave of the cores, as shells see it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from armload.boards.cpu_access import CpuAccess
from armload.core.shell import quote
from tests.contract.settings.kernel import SHELLS
from tests.contract.test_memory_groups import conditions_after
from tests.memory_groups import made

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="control groups take root"),
    pytest.mark.skipif(os.cpu_count() == 1, reason="one core cannot be divided"),
]
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return ["busybox", "sh"] if request.param == "busybox" else [request.param]


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a group that allows core 1 and half of its time; v1 has a tree for each."""
    names = [GROUPS / kind / f"armload-test-{os.getpid()}" for kind in ("cpuset", "cpu")]
    if not all(each.parent.is_dir() for each in names):
        pytest.skip("no control groups of version 1 here")
    with made(names[0]) as cpuset, made(names[1]) as cpu:
        (cpuset / "cpuset.cpus").write_text("1")
        (cpuset / "cpuset.mems").write_text("0")
        (cpu / "cpu.cfs_quota_us").write_text("50000")
        yield cpuset


def test_a_real_groups_core_and_quota_are_found(
    group: Path, shell: list[str], tmp_path: Path
) -> None:
    enter = " && ".join(
        f"echo $$ >{quote(str(GROUPS / kind / group.name / 'cgroup.procs'))}"
        for kind in ("cpuset", "cpu")
    )
    now = conditions_after(enter, shell, tmp_path)
    assert now.cpus == CpuAccess(usual=(1,), allowed=(1,), quota=0.5)
    assert (now.usual_cores, now.usual_threads) == ((1,), 1)


def test_an_affinity_may_be_widened_where_no_group_forbids_it(
    shell: list[str], tmp_path: Path
) -> None:
    now = conditions_after("taskset -p 1 $$ >/dev/null", shell, tmp_path)
    assert now.cpus.usual == (0,)
    assert now.allowed_cores == now.cores
    assert len(now.cores) > 1


V1 = (
    "30 22 0:27 / TREE rw shared:5 - cgroup cgroup rw,cpuset\n"
    "31 22 0:28 / TREE/cpu rw - cgroup cgroup rw,cpu,cpuacct"
)
V2 = "29 22 0:26 / TREE rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
ANDROID = "40 22 0:30 / TREE rw,nosuid - cgroup none rw,cpuset,noprefix,release_agent=/sbin/x"


@pytest.mark.parametrize(
    ("own", "mounts", "files", "allowed", "quota"),
    [
        pytest.param(
            "0::/a/b",
            V2,
            {
                "cpuset.cpus.effective": "0-1",
                "a/cpuset.cpus.effective": "1",
                "a/cpu.max": "150000 100000",
                "a/b/cpu.max": "max 100000",
            },
            (1,),
            1.5,
            id="v2, an outer group",
        ),
        pytest.param(
            "0::/",
            V2,
            {"cpuset.cpus.effective": "0", "cpu.max": "25000 100000"},
            (0,),
            0.25,
            id="v2, a container's own namespace",
        ),
        pytest.param(
            "5:cpu,cpuacct:/d\n4:cpuset:/d\n0::/d",
            V1,
            {
                "d/cpuset.cpus": "0-1",
                "d/cpuset.effective_cpus": "1",
                "cpu/d/cpu.cfs_quota_us": "-1",
                "cpu/d/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "200000",
                "cpu/cpu.cfs_period_us": "100000",
            },
            (1,),
            2.0,
            id="v1",
        ),
        pytest.param(
            "3:cpuset:/background", ANDROID, {"background/cpus": "0"}, (0,), None, id="Android"
        ),
        pytest.param("", "", {}, None, None, id="no control groups"),
        pytest.param("0::/x", "", {}, "as usual", None, id="groups that are not mounted"),
        pytest.param(
            "0::/", V2, {"cpuset.cpus.effective": "9-3", "cpu.max": "x"}, "as usual", None, id="odd"
        ),
    ],
)
def test_the_innermost_cpuset_and_the_lowest_quota_count(
    own: str,
    mounts: str,
    files: Mapping[str, str],
    allowed: tuple[int, ...] | str | None,
    quota: float | None,
    shell: list[str],
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"{content}\n")
    (tmp_path / "cgroup").write_text(f"{own}\n" if own else "")
    root = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
    (tmp_path / "mountinfo").write_text(f"{root}{mounts.replace('TREE', str(tree))}\n")
    seen = (
        f"mount --bind {quote(str(tmp_path / name))} /proc/$$/{name}"
        for name in ("cgroup", "mountinfo")
    )
    cpus = conditions_after(" && ".join(seen), shell, tmp_path).cpus
    assert cpus.usual is not None
    assert cpus.allowed == (cpus.usual if allowed == "as usual" else allowed)
    assert cpus.quota == quota
