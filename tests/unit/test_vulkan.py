"""Programs for GPUs: which boards they run on, how they are started, and what they tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.boards.probe import parse_probe
from armload.boards.vulkan import Vulkan, VulkanDevice, read_devices, read_vulkan
from armload.build.inspection import check, is_for_vulkan
from armload.build.target import Target
from armload.build.vulkan import VulkanTools
from armload.build.zig import find_zig
from armload.buildhost.remote import build_backend
from armload.core.errors import BoardError, BuildError, UsageError
from armload.core.progress import Silent
from armload.deploy.compatibility import check_fit
from armload.engines.contradictions import check_consistent
from armload.engines.llama_cpp import device_environment, device_words
from armload.engines.placement import read_placement
from armload.engines.plan import Plan
from armload.models.find import model_called
from armload.report.board_state import vulkan_line
from armload.runs.spreading import check_split
from tests.unit.test_boards_probe import core, output
from tests.unit.test_build_fit import program
from tests.unit.test_deploy_compatibility import BOARD, EMULATED, binary
from tests.unit.test_engines_depth import engine

LOADER = "loader /usr/lib/aarch64-linux-gnu/libvulkan.so.1"
DRIVER = "driver /usr/share/vulkan/icd.d/panfrost_icd.json"
READY = (LOADER, DRIVER, "glibc", "version glibc 2.36")
NEEDED = ("libvulkan.so.1", "libm.so.6", "libc.so.6", "ld-linux-aarch64.so.1")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "no Vulkan loader"),
        (("musl",), "its C library is musl"),
        ((LOADER, DRIVER), "its C library is not glibc"),
        ((LOADER, "glibc", "version glibc 2.36"), "a Vulkan loader, but no driver"),
        (
            (
                LOADER,
                DRIVER,
                "glibc",
                "version ld.so (Debian 2.28-10) stable release version 2.28.",
            ),
            "its glibc is 2.28, and programs for GPUs need 2.31 or newer",
        ),
    ],
)
def test_a_board_that_lacks_something_is_refused_with_the_reason(
    lines: tuple[str, ...], reason: str
) -> None:
    found = parse_probe(output(core(0), vulkan="\n".join(lines)), "my-board")
    for_gpu = binary().model_copy(update={"needed": NEEDED, "glibc": "2.31"})
    with pytest.raises(BoardError, match=f"my-board: .*{reason}"):
        check_fit(BOARD, for_gpu, found)
    check_fit(BOARD, binary(), found)  # a static program needs nothing of it
    check_fit(EMULATED, for_gpu, found)  # nobody knows what a launcher's programs find


def test_a_board_that_has_all_of_it_may_run_them() -> None:
    found = parse_probe(output(core(0), vulkan="\n".join(READY)), "my-board")
    check_fit(BOARD, binary().model_copy(update={"needed": NEEDED, "glibc": "2.31"}), found)
    assert (found.vulkan.glibc, found.vulkan.drivers) == ("2.36", (DRIVER.split()[1],))
    assert "devices not known" in vulkan_line(found.vulkan)


def test_an_unknown_version_of_the_c_library_is_no_reason_to_refuse() -> None:
    assert read_vulkan((LOADER, DRIVER, "glibc", "version nonsense")).obstacle() is None


def test_devices_are_read_with_their_kinds() -> None:
    summary = (
        "GPU0:\n\tdeviceType         = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU\n"
        "\tdeviceName         = Mali-G610 (Panfrost)\n"
        "GPU1:\n\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU\n"
        "\tdeviceName         = llvmpipe (LLVM 19.1.7, 128 bits)\n"
    )
    devices = read_devices(summary)
    assert devices == (
        VulkanDevice(name="Mali-G610 (Panfrost)", kind="GPU"),
        VulkanDevice(name="llvmpipe (LLVM 19.1.7, 128 bits)", kind="software"),
    )
    shown = read_vulkan(READY).model_copy(update={"devices": devices})
    assert vulkan_line(shown).startswith("Mali-G610 (Panfrost) (GPU), llvmpipe")
    assert vulkan_line(shown.model_copy(update={"devices": ()})).startswith("no device;")


def test_what_a_board_says_is_bounded() -> None:
    found = read_vulkan([f"driver {'x' * 9999}"] * 9999)
    assert len(found.drivers) <= 64
    assert max(map(len, found.drivers)) <= 256
    assert len(read_devices("deviceName = a\ndeviceType = b\n" * 9999)) <= 16
    assert Vulkan().devices is None


def test_a_program_for_gpus_may_need_the_loader_and_glibc_and_nothing_else() -> None:
    target = Target(name="any", cpu="generic")
    changes = {"is_static": False, "interpreter": "/lib/ld-linux-aarch64.so.1"}
    check(program(needed=NEEDED, **changes), target)
    for needed in ((*NEEDED, "libstdc++.so.6"), NEEDED[1:]):
        assert not is_for_vulkan(needed)
        with pytest.raises(BuildError, match="needs a loader or shared libraries"):
            check(program(needed=needed, **changes), target)


def test_the_identity_of_a_static_build_does_not_know_of_gpus(tmp_path: Path) -> None:
    target = Target(name="any", cpu="generic")
    tools = VulkanTools(folder=tmp_path, packages=("glslc_1", "spirv-headers_2"))
    static, dynamic = find_zig(target), find_zig(target, tools)
    assert static.identity == f"zig {static.version} aarch64-linux-musl"
    assert dynamic.identity == (
        f"zig {static.version} aarch64-linux-gnu.2.31 glslc_1 spirv-headers_2"
    )
    assert "ARMLOAD_VULKAN" not in static.definitions(target)
    assert dynamic.definitions(target)["ARMLOAD_VULKAN"] == str(tmp_path)


def test_shaders_are_compiled_on_this_machine_alone() -> None:
    backend = build_backend(on="virtual", compiler="", progress=Silent(), vulkan=True)
    with pytest.raises(UsageError, match="cannot build for GPUs"), backend:
        pass


@pytest.mark.parametrize(
    ("device", "words", "environment"),
    [
        (None, [], {}),
        ("cpu", ["--device", "none"], {}),
        ("gpu", ["--device", "Vulkan0", "-ngl", "999"], {}),
        ("Vulkan1", ["--device", "Vulkan0", "-ngl", "999"], {"GGML_VK_VISIBLE_DEVICES": "1"}),
    ],
)
def test_a_device_is_chosen_as_llama_cpp_takes_it(
    device: str | None, words: list[str], environment: dict[str, str]
) -> None:
    plan = Plan(device=device)
    assert device_words(plan) == words
    assert device_environment(plan) == environment


@pytest.mark.parametrize(
    "device", ["", "GPU", "Vulkan", "Vulkan00", "Vulkan100", "CUDA0", "cpu,gpu"]
)
def test_another_device_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="use cpu, gpu, or VulkanN"):
        Plan(device=device)


@pytest.mark.parametrize(
    "other",
    [
        {"speculate": "ngram"},
        {"image": "x.png"},
        {"weights": "streamed"},
        {"resident_bytes": 1},
    ],
)
def test_what_a_gpu_cannot_be_combined_with_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="--device gpu with --"):
        check_consistent(Plan.model_validate({"device": "gpu", **other}))


def test_a_group_has_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "pair.yaml").write_text("members: [a, b]\n")
    with pytest.raises(UsageError, match="pair is a group, whose members compute on their CPUs"):
        check_split(["pair"], [Plan(device="gpu")])


def test_runs_with_and_without_a_device_are_different_ones(tmp_path: Path) -> None:
    model = model_called("word-problems:Q8_0", Silent())
    plain, chosen = engine(model, tmp_path / "p"), engine(model, tmp_path / "p", device="cpu")
    assert chosen.fingerprint != plain.fingerprint


TOLD = """\
armload: placement: 12 passes
armload: placement: 1548 on Vulkan0: llvmpipe (LLVM 19.1.7, 128 bits)
armload: placement: 12 on the CPU: GET_ROWS q4_0
armload: placement: 3 on the CPU: FLASH_ATTN_EXT f16 unsupported
armload: placement: 2 on the CPU: others
"""


def test_what_the_program_tells_of_its_devices_is_read() -> None:
    found = read_placement(f"load: tensors\n\n{TOLD}")
    assert found is not None
    assert (found.passes, found.devices[0].operations, len(found.on_cpu)) == (12, 1548, 3)
    assert found.devices[0].description == "llvmpipe (LLVM 19.1.7, 128 bits)"
    assert [each.name for each in found.unsupported] == ["FLASH_ATTN_EXT"]
    assert (found.on_cpu[0].type, found.on_cpu[2].type) == ("q4_0", "")


def test_a_program_that_told_nothing_leaves_it_unknown() -> None:
    assert read_placement("") is None
    assert read_placement(TOLD.partition("\n")[2]) is None
    assert read_placement(f"armload: placement: {'9' * 99} passes\n") is None
