"""What boards say is read right."""

from __future__ import annotations

import pytest

from armload.boards.conditions import ClusterState
from armload.boards.folder import free_bytes
from armload.boards.probe import FoundCluster, parse_probe
from armload.boards.rates import Rates
from armload.boards.sensors import Sensor
from armload.core.errors import BoardError

A55 = "fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"

MOUNTS = (
    "/dev/block/mmcblk0p7 / ext4 ro,seclabel,nodev,relatime 0 0\n"
    "tmpfs /data tmpfs rw 0 0\n"
    "/dev/block/by-name/user\\040data /data f2fs rw,lazytime 0 0\n"
    "10.0.0.1:/export /data/local/tmp/arm nfs rw 0 0\n"
    "tmpfs /mnt/with\\040space tmpfs rw 0 0\n"
)


def core(number: int, features: str = A55, part: str = "0xd05") -> str:
    return (
        f"processor\t: {number}\nBogoMIPS\t: 48.00\nFeatures\t: {features}\n"
        f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x2\n"
        f"CPU part\t: {part}\nCPU revision\t: 0\n\n"
    )


def output(cpuinfo: str, **changed: str) -> bytes:
    parts = {
        "workdir": "writable\nexecutable\n",
        "df": "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
        "/dev/block/by name   25803000 3145728  21324044      13% /data\n",
        "place": "/data/local/tmp/armload\n",
        "rates": "",
        "uname": "5.10.110 aarch64\n",
        "proc": "0d5e7a0c-5a3c-4b6e-9c39-6a5f0b9d2c11\n812.31 3011.02\n"
        "0.52 0.40 0.31 1/412 2213\n"
        "MemTotal:        1999652 kB\nMemFree:          902332 kB\n"
        "MemAvailable:    1433116 kB\nSwapTotal:       1048576 kB\nSwapFree:        1040384 kB\n"
        + cpuinfo
        + MOUNTS,
        "policies": "0 1;schedutil;408000;1992000;1992000\n",
        "temperatures": "0 41875 soc-thermal\n1 43125 gpu-thermal\n",
        "tools": "cat\ntail\n",
        "end": "",
        **changed,
    }
    return "".join(f"#armload {name}\n{text}" for name, text in parts.items()).encode()


@pytest.mark.parametrize("comes", ["after", "before"])
def test_old_kernels_list_what_all_cores_have_once(comes: str) -> None:
    numbers = "".join(f"processor\t: {number}\n" for number in range(4))
    common = core(0).partition("\n")[2]
    found = parse_probe(output(numbers + common if comes == "after" else common + numbers), "b")
    assert found.cores == 4
    assert found.cpu_features == tuple(A55.split())
    assert found.clusters == (FoundCluster(cores=4, numbers=(0, 1, 2, 3), name="Cortex-A55"),)


def test_a_boards_answer_is_read() -> None:
    found = parse_probe(output(core(0) + core(1)), "b")
    assert found.machine == "aarch64"
    assert found.cores == 2
    assert "asimddp" in found.cpu_features
    assert found.clusters == (FoundCluster(cores=2, numbers=(0, 1), name="Cortex-A55"),)
    assert (found.workdir_writable, found.workdir_executable) == (True, True)
    conditions = found.conditions
    assert conditions.kernel == "5.10.110"
    assert conditions.memory_total_bytes == 1999652 * 1024
    assert conditions.memory_available_bytes == 1433116 * 1024
    assert conditions.swap_used_bytes == 8192 * 1024
    assert conditions.workdir_free_bytes == 21324044 * 1024
    assert conditions.governors == ("schedutil",)
    assert conditions.swap_total_bytes == 1048576 * 1024
    assert conditions.workdir_filesystem == "f2fs"
    assert conditions.clusters == (
        ClusterState(
            cores=(0, 1),
            governor="schedutil",
            khz=408_000,
            max_khz=1_992_000,
            limit_khz=1_992_000,
        ),
    )
    assert found.max_khz == (1_992_000, 1_992_000)
    assert conditions.celsius == pytest.approx(43.125)
    assert conditions.sensors == (
        Sensor(name="soc-thermal", celsius=41.875),
        Sensor(zone=1, name="gpu-thermal", celsius=43.125),
    )
    assert (conditions.uptime_s, conditions.load_1min) == (812.31, 0.52)


def test_unequal_cores_are_told_apart_and_share_only_common_features() -> None:
    cpuinfo = core(0) + core(1, features=f"{A55} i8mm", part="0xd0b") + core(2, part="0xfff")
    found = parse_probe(output(cpuinfo), "b")
    assert [cluster.name for cluster in found.clusters] == [
        "Cortex-A55",
        "Cortex-A76",
        "implementer 0x41 part 0xfff",
    ]
    assert "i8mm" not in found.cpu_features


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        ("0x41", "0xd42", "Cortex-A78AE"),
        ("0x41", "0xd85", "Cortex-X925"),
        ("0x41", "0xd87", "Cortex-A725"),
        ("0x46", "0x001", "A64FX"),
        ("0x48", "0xd01", "TaiShan-v110"),
        ("0x4e", "0x004", "Carmel"),
        ("0x51", "0x001", "Oryon"),
        ("0x61", "0x023", "Firestorm-M1"),
        ("0x6d", "0xd49", "Azure-Cobalt-100"),
        ("0x70", "0x662", "FTC662"),
        ("0xc0", "0xac3", "Ampere-1"),
        ("0x41", "0xfff", "implementer 0x41 part 0xfff"),
        ("0x99", "0xd05", "implementer 0x99 part 0xd05"),
    ],
)
def test_cores_of_every_implementer_have_their_names(
    implementer: str, part: str, name: str
) -> None:
    named = f"CPU implementer\t: {implementer}"
    cpuinfo = core(0, part=part).replace("CPU implementer\t: 0x41", named)
    (cluster,) = parse_probe(output(cpuinfo), "b").clusters
    assert cluster == FoundCluster(cores=1, numbers=(0,), name=name)


def unnamed(number: int, part: str) -> str:
    return core(number, part=part).replace("implementer\t: 0x41", "implementer\t: 0x51")


@pytest.mark.parametrize(
    ("changed", "fast"),
    [
        # Of three kinds only the slow one is left alone.
        ({"capacities": "0 380\n1 870\n2 1024\n"}, (1, 2)),
        ({"policies": "0;x;1;1800000;1\n1;x;1;2420000;1\n2;x;1;2840000;1\n"}, (1, 2)),
        # The capacity says more than the clock.
        (
            {
                "capacities": "0 1024\n1 900\n2 900\n",
                "policies": "0;x;1;1800000;1\n1 2;x;1;2840000;1\n",
            },
            (),
        ),
        ({"capacities": "0 380\n1 870\n", "policies": ""}, ()),
        ({"policies": ""}, ()),
    ],
)
def test_cores_without_a_name_are_judged_by_their_speed(
    changed: dict[str, str], fast: tuple[int, ...]
) -> None:
    cpuinfo = unnamed(0, "0xa01") + unnamed(1, "0xa02") + unnamed(2, "0xa03")
    found = parse_probe(output(cpuinfo, **changed), "b")
    assert tuple(n for each in found.fast_clusters for n in each.numbers) == fast


def test_names_that_say_something_are_believed() -> None:
    kryo = unnamed(0, "0x805") + unnamed(1, "0x804")
    found = parse_probe(output(kryo, policies="0 1;x;1;2000000;1\n"), "b")
    assert [each.name for each in found.fast_clusters] == ["Kryo-4XX-Gold"]
    # A middle core is slower than the fastest, but none of the slow ones.
    cpuinfo = core(0) + unnamed(1, "0xa02") + core(2, part="0xd82")
    policies = "0;x;1;1800000;1\n1;x;1;2000000;1\n2;x;1;3300000;1\n"
    found = parse_probe(output(cpuinfo, policies=policies), "b")
    assert [each.numbers for each in found.fast_clusters] == [(1,), (2,)]


def test_what_android_keeps_from_apps_is_said_with_what_else_to_do() -> None:
    errors = b"cat: /proc/uptime: Permission denied\ncat: /proc/loadavg: Permission denied\n"
    closed = output(core(0), proc="0d5e7a0c\nMemTotal: 1 kB\n")
    with pytest.raises(BoardError, match="may not read /proc/uptime") as caught:
        parse_probe(closed, "b", errors)
    assert "by adb instead" in caught.value.remedy
    with pytest.raises(BoardError, match="does not look like Linux"):
        parse_probe(closed, "b")


def test_what_a_board_lacks_is_left_out() -> None:
    found = parse_probe(
        output(core(0) + core(1), policies="", temperatures="", workdir="", df="", place=""), "b"
    )
    assert found.conditions.governors == ()
    assert found.conditions.clusters == (ClusterState(cores=(0, 1)),)
    assert found.conditions.workdir_filesystem is None
    assert found.max_khz == ()
    assert found.conditions.celsius is None
    assert found.conditions.sensors == ()
    assert found.rates == Rates()
    assert found.conditions.workdir_free_bytes is None
    assert not found.workdir_writable


def test_clusters_of_unequal_cores_are_told_apart_even_where_each_core_shows_its_policy() -> None:
    cores = "".join(core(number) for number in range(4))
    policies = (
        "2 3;performance;2400000;2400000;\n0;schedutil;408000;1800000;\n"
        "0;schedutil;408000;1800000;\n;;;;\n"
    )
    found = parse_probe(output(cores, policies=policies), "b")
    assert found.conditions.clusters == (
        ClusterState(cores=(0,), governor="schedutil", khz=408_000, max_khz=1_800_000),
        ClusterState(cores=(2, 3), governor="performance", khz=2_400_000, max_khz=2_400_000),
        ClusterState(cores=(1,)),
    )
    assert found.conditions.governors == ("performance", "schedutil")
    assert found.max_khz == (1_800_000, 2_400_000, 2_400_000)


def test_a_frequency_that_the_kernel_does_not_know_is_left_out() -> None:
    found = parse_probe(output(core(0), policies="0;userspace;<unknown>;1992000;\n"), "b")
    (cluster,) = found.conditions.clusters
    assert (cluster.khz, cluster.max_khz) == (None, 1_992_000)


@pytest.mark.parametrize(
    ("place", "filesystem"),
    [("/mnt/with space/armload", "tmpfs"), ("/", "ext4"), ("/data/local/tmp/armload", "f2fs")],
)
def test_the_innermost_mount_says_what_the_work_folder_lies_on(place: str, filesystem: str) -> None:
    found = parse_probe(output(core(0), place=f"{place}\n"), "b")
    assert found.conditions.workdir_filesystem == filesystem


def test_rates_that_were_measured_in_this_boot_are_read_and_cut_lines_left_out() -> None:
    lines = (
        '{"memory_bytes_per_s":2900000000,"memory_threads":4,"memory_buffer_bytes":67108864}\n'
        '{"storage_read_bytes_per_s":1,"storage_way":"cache dropped"}\n'
        '{"storage_read_bytes_per_s":165000000,"storage_way":"direct","storage_read_bytes":9}\n'
        '[1]\n{"memory_bytes_per_s":-1}\n{"memory_bytes_pe'
    )
    rates = parse_probe(output(core(0), rates=f"{lines}\n"), "b").rates
    assert (rates.memory_bytes_per_s, rates.memory_threads) == (2_900_000_000, 4)
    assert (rates.storage_read_bytes_per_s, rates.storage_way) == (165_000_000, "direct")


@pytest.mark.parametrize(
    ("measured", "counts"),
    [
        ([(100, 0.0), (90, 0.0)], 90),  # the board may be slower by now
        ([(100, 2.0), (90, 0.0)], 90),  # it was another board's figure, or a wrong one
        ([(100, 2.0), (90, 0.5)], 100),
        ([(90, 2.0), (100, 0.5)], 100),
        ([(90, 0.0), (80, 2.0)], 90),
    ],
)
def test_of_rates_that_were_measured_beside_others_the_best_counts(
    measured: list[tuple[int, float]], counts: int
) -> None:
    lines = [
        f'{{"memory_bytes_per_s":{rate},"memory_others_cpu":{others}}}\n'
        for rate, others in measured
    ]
    rates = parse_probe(output(core(0), rates="".join(lines)), "b").rates
    assert rates.memory_bytes_per_s == counts
    assert rates.memory_is_settled == any(others == 0 for _, others in measured)


def test_degrees_without_thousandths_are_understood() -> None:
    lines = "0 47 battery\nno number\n\n1 -5 outside\n12 40\n"
    conditions = parse_probe(output(core(0), temperatures=lines), "b").conditions
    assert conditions.celsius == 47
    assert [sensor.name for sensor in conditions.sensors] == [
        "battery",
        "outside",
        "thermal_zone12",
    ]


@pytest.mark.parametrize("cut", [b"#armload end", b"#armload proc"])
def test_an_answer_cut_short_is_refused(cut: bytes) -> None:
    whole = output(core(0))
    with pytest.raises(BoardError, match=r"halfway: cat: not found\."):
        parse_probe(whole[: whole.index(cut)], "b", b"sh: cat: not found\n")


def test_a_system_that_is_not_linux_is_refused() -> None:
    with pytest.raises(BoardError, match="does not look like Linux"):
        parse_probe(output(core(0), proc=""), "b")


@pytest.mark.parametrize(
    ("lines", "kib"),
    [
        (["Filesystem 1K-blocks Used Available Use% Mounted on", "tmpfs 100 40 60 40% /tmp"], 60),
        (
            [
                "Filesystem 1K-blocks Used Available Use% Mounted on",
                "/dev/a/long/name",
                "  9 4 5 45% /x y",
            ],
            5,
        ),
        (["Filesystem 1K-blocks Used Available Use% Mounted on", "tmpfs 100 101 -1 100% /"], 0),
    ],
)
def test_free_space_is_read_from_df(lines: list[str], kib: int) -> None:
    assert free_bytes(lines, None) == kib * 1024


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Filesystem 1K-blocks Used Available Use% Mounted on"],
        ["Filesystem 1K-blocks Used Available Use% Mounted on", "storage 0 0 0 0% /mnt"],
    ],
    ids=["no df", "toybox where the root is no mount point", "busybox on FUSE without figures"],
)
def test_free_space_that_df_does_not_tell_is_unknown(lines: list[str]) -> None:
    assert free_bytes(lines, None) is None


@pytest.mark.parametrize(
    ("available", "kib"),
    [(888_448, 872_064), (825_984, 825_984)],
    ids=["as toybox counts for root", "as coreutils count"],
)
def test_what_ext4_keeps_for_itself_is_not_free(available: int, kib: int) -> None:
    """Figures of a file system of 900 MiB whose writes fail when 16,384 KiB are left."""
    df = ["Filesystem", f"/dev/loop0 888472 24 {available} 1% /m"]
    assert free_bytes(df, "ext4") == kib * 1024
    assert free_bytes(df, "xfs") == available * 1024
