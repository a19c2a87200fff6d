"""The memory that a board has is what its control groups leave: as shells see it, and C."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from armload.boards.board import Board, LocalReach
from armload.boards.conditions import Conditions
from armload.boards.probe import parse_probe, probe_script
from armload.build.backend import native_folder
from armload.build.helper import MONITOR, any_cpu_compiler, helper
from armload.build.target import machine_architecture
from armload.core.shell import quote
from tests.contract.settings.kernel import SHELLS
from tests.memory_groups import limited_group, made

LIMIT_BYTES = 450 << 20
CACHED_BYTES = 64 << 20
NO_LIMIT = "9223372036854771712"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups take root")


class Seen(NamedTuple):
    """What a program finds out; the limit is none where the machine's memory is the limit."""

    memory_available_bytes: int
    memory_limit_bytes: int | None


Look = Callable[[str, Path], Seen]
"""Returns what a program sees that takes the place of a shell which has prepared something."""

PROGRAM = """
#define _GNU_SOURCE
#include "armload_memory.h"
#include <inttypes.h>
int main(void) {
    struct armload_memory memory;
    if (!armload_read_memory(&memory)) return 1;
    printf("%" PRId64 " %" PRId64 "\\n", memory.available_bytes, memory.total_bytes);
    return 0;
}
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "memory.c").write_text(PROGRAM)
    words = [*any_cpu_compiler(machine_architecture()), f"-I{native_folder()}"]
    subprocess.run([*words, "-o", folder / "memory", folder / "memory.c"], check=True)
    return folder / "memory"


@pytest.fixture(params=[*SHELLS, "C"])
def look(request: pytest.FixtureRequest) -> Look:
    name: str = request.param
    if name == "C":
        program: Path = request.getfixturevalue("program")
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

        def by_program(preparation: str, folder: Path) -> Seen:
            del folder
            available, limit = map(int, after(preparation, [str(program)]).split())
            return Seen(available, None if limit == total else limit)

        return by_program
    shell = ["busybox", "sh"] if name == "busybox" else [name]

    def by_shell(preparation: str, folder: Path) -> Seen:
        now = conditions_after(preparation, shell, folder)
        return Seen(now.memory_available_bytes, now.memory_limit_bytes)

    return by_shell


def after(preparation: str, program: list[str]) -> bytes:
    words = ["unshare", "-m", "sh", "-c", f'mount --make-rprivate / && {preparation} && exec "$@"']
    done = subprocess.run([*words, "sh", *program], capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout


def conditions_after(preparation: str, shell: list[str], folder: Path) -> Conditions:
    board = Board(
        name="b",
        target="host",
        reach=LocalReach(kind="local"),
        workdir=PurePosixPath(folder / "work"),
    )
    (folder / "probe.sh").write_text(probe_script(board))
    output = after(preparation, [*shell, str(folder / "probe.sh")])
    return parse_probe(output, "b").conditions


@pytest.fixture
def limited() -> Iterator[Path]:
    """Make a group with a limit, and one without inside it; return the inner one."""
    with limited_group(LIMIT_BYTES) as outer, made(outer / "inner") as inner:
        yield inner


def test_a_real_group_leaves_what_its_programs_and_not_its_page_cache_take(
    limited: Path, look: Look, tmp_path: Path
) -> None:
    fill = f"head -c {CACHED_BYTES} /dev/zero >{quote(str(tmp_path / 'cached'))}"
    now = look(f"echo $$ >{quote(str(limited / 'cgroup.procs'))} && {fill}", tmp_path)
    assert now.memory_limit_bytes == LIMIT_BYTES
    assert LIMIT_BYTES - CACHED_BYTES / 2 < now.memory_available_bytes < LIMIT_BYTES
    outside = look("true", tmp_path)
    assert outside.memory_limit_bytes != LIMIT_BYTES


def test_a_real_group_is_found_from_inside_its_namespace(
    limited: Path, look: Look, tmp_path: Path
) -> None:
    kind = "cgroup2" if (limited / "memory.max").exists() else "cgroup -o memory"
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    outer = limited.parent
    inside = (
        f"echo $$ >{quote(str(outer / 'cgroup.procs'))} && "
        f'exec unshare -C sh -c \'mount -t {kind} none {mounted} && exec "$@"\' sh "$@"'
    )
    now = look(inside, tmp_path)
    assert now.memory_limit_bytes == LIMIT_BYTES


def test_the_monitor_tells_what_its_group_leaves(limited: Path) -> None:
    monitor = helper(MONITOR, architecture=machine_architecture()).path
    enter = f"echo $$ >{quote(str(limited / 'cgroup.procs'))} && exec {quote(str(monitor))}"
    with subprocess.Popen(["sh", "-c", enter], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"s")
            told = json.loads(client.makefile().readline())
        process.kill()
    assert LIMIT_BYTES / 2 < told["memory_available_bytes"] <= LIMIT_BYTES


V2_STAT = "anon 39000000\nfile 60000000\ninactive_file 40000000\nactive_file 10000000\n"
V1_STAT = (
    f"cache 0\ninactive_file 1\nactive_file 1\nhierarchical_memory_limit {NO_LIMIT}\n"
    "total_cache 60000000\ntotal_inactive_file 40000000\ntotal_active_file 10000000\n"
)


def v2(limit: str, *, high: str = "max", used: int = 100_000_000) -> dict[str, str]:
    return {
        "memory.max": limit,
        "memory.high": high,
        "memory.current": str(used),
        "memory.stat": V2_STAT + "slab_reclaimable 1000000",
    }


def v1(limit: str, *, used: int = 100_000_000, stat: str = V1_STAT) -> dict[str, str]:
    return {
        "memory.limit_in_bytes": limit,
        "memory.usage_in_bytes": str(used),
        "memory.use_hierarchy": "1",
        "memory.stat": stat,
    }


V1_MOUNT = "37 28 0:33 {root} TREE rw,nosuid shared:16 master:9 - cgroup cgroup rw,memory"
V2_MOUNT = "29 22 0:26 {root} TREE rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("own", "mount", "tree", "left", "limit"),
    [
        pytest.param(
            r"0::/user.slice/a\x2db: c d.slice/session-3.scope",
            V2_MOUNT.format(root="/"),
            {
                r"user.slice/a\x2db: c d.slice": v2("471859200"),
                r"user.slice/a\x2db: c d.slice/session-3.scope": v2("max"),
            },
            471859200 - 49_000_000,
            471859200,
            id="the group of a login, with odd characters in its name",
        ),
        pytest.param(
            "0::/",
            V2_MOUNT.format(root="/"),
            {".": v2("471859200")},
            422859200,
            471859200,
            id="a container's own namespace",
        ),
        pytest.param(
            "0::/a",
            V2_MOUNT.format(root="/.."),
            {".": v2("471859200")},
            422859200,
            471859200,
            id="a mount from outside the namespace",
        ),
        pytest.param(
            "0::/a/b",
            V2_MOUNT.format(root="/"),
            {"a": v2("900000000"), "a/b": v2("800000000", high="300000000")},
            251_000_000,
            300_000_000,
            id="a limit that slows down",
        ),
        pytest.param(
            "0::/a/b",
            V2_MOUNT.format(root="/"),
            {"a": v2("500000000", used=460_000_000), "a/b": v2("450000000")},
            91_000_000,
            500_000_000,
            id="neighbours in the outer group",
        ),
        pytest.param(
            "0::/full",
            V2_MOUNT.format(root="/"),
            {"full": v2("20000000")},
            0,
            20_000_000,
            id="over its limit",
        ),
        pytest.param(
            "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/abc/in\n0::/docker/abc/in",
            V1_MOUNT.format(root="/docker/abc"),
            {".": v1("471859200"), "in": v1(NO_LIMIT)},
            471859200 - 50_000_000,
            471859200,
            id="v1, a group in a container without a namespace",
        ),
        pytest.param(
            "4:memory:/docker/abc",
            V1_MOUNT.format(root="/docker/abc"),
            {".": v1(NO_LIMIT, stat=V1_STAT.replace(NO_LIMIT, "471859200"))},
            421859200,
            471859200,
            id="v1, the limit of a group that cannot be seen",
        ),
        pytest.param(
            "4:memory:/a/b",
            V1_MOUNT.format(root="/"),
            {"a": {**v1("200000000"), "memory.use_hierarchy": "0"}, "a/b": v1("471859200")},
            421859200,
            471859200,
            id="v1, a limit that does not hold for the groups inside",
        ),
        pytest.param(
            "4:memory:/\n0::/",
            V1_MOUNT.format(root="/"),
            {".": v1(NO_LIMIT)},
            None,
            None,
            id="no limit",
        ),
        pytest.param("0::/a", V2_MOUNT.format(root="/"), {}, None, None, id="no controller"),
        pytest.param("3:cpu:/", "", {}, None, None, id="no mount"),
    ],
)
def test_the_tightest_of_the_enclosing_groups_counts(
    own: str,
    mount: str,
    tree: Mapping[str, Mapping[str, str]],
    left: int | None,
    limit: int | None,
    look: Look,
    tmp_path: Path,
) -> None:
    mounted = tmp_path / "tree"
    for group, files in tree.items():
        (mounted / group).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (mounted / group / name).write_text(f"{content}\n")
    (tmp_path / "cgroup").write_text(f"{own}\n")
    before = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
    other = "30 22 0:27 / /cpu rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
    (tmp_path / "mountinfo").write_text(f"{before}{other}{mount.replace('TREE', str(mounted))}\n")
    # The shell that is started then has the same process id.
    preparation = " && ".join(
        f"mount --bind {quote(str(tmp_path / name))} /proc/$$/{name}"
        for name in ("cgroup", "mountinfo")
    )
    now = look(preparation, tmp_path)
    assert now.memory_limit_bytes == limit
    if left is not None:
        assert now.memory_available_bytes == left
    else:
        assert now.memory_available_bytes > 0
