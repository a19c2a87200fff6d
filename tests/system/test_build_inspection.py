"""Inspection, on code that a real assembler and linker made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from armload.build.backend import overlay_folder
from armload.build.inspection import check, inspect
from armload.build.stripping import strip
from armload.build.target import load_target
from armload.build.vulkan import GLIBC, VULKAN_LOADER
from armload.core.errors import BuildError, DataError, UsageError
from tests.programs import DOT, PLAIN, compiled, without_library, zig_cc
from tests.system.engines import emulator

pytestmark = pytest.mark.build

RK3568 = load_target("rk3568")

INSTRUCTIONS: dict[str, str] = yaml.safe_load(
    (Path(__file__).parent / "instructions.yaml").read_text()
)
"""Assembly for each feature; ``none`` runs on every CPU."""

ARCHITECTURE = (
    "armv8.8-a+crc+crypto+sha3+sm4+fp16+fp16fml+rdma+rcpc+lse+dotprod+i8mm+bf16+sve+sve2+sme"
    "+memtag+rng+mops+pauth+flagm+sb+cssc"
)


def _assembled(assembly: str, folder: Path) -> Path:
    (folder / "code.s").write_text(f".arch {ARCHITECTURE}\n.text\n{assembly}\n")
    zig_cc(folder, "-target", "aarch64-linux-musl", "-c", "code.s", "-o", "code.o")
    return folder / "code.o"


def test_every_instruction_is_counted_for_its_feature(tmp_path: Path) -> None:
    assembly = {feature: text for feature, text in INSTRUCTIONS.items() if feature != "none"}
    expected = {feature: len(text.splitlines()) for feature, text in assembly.items()}
    expected["sve"] += sum(expected[feature] for feature in ("svei8mm", "svebf16", "sve2"))
    found = inspect(_assembled("\n".join(assembly.values()), tmp_path)).features
    assert {use.feature: use.count for use in found} == expected


def test_code_for_the_oldest_cpu_uses_no_feature(tmp_path: Path) -> None:
    assert inspect(_assembled(INSTRUCTIONS["none"], tmp_path)).features == ()


def test_a_static_program_for_the_target_passes(tmp_path: Path) -> None:
    program = compiled(tmp_path, DOT, "-mcpu=cortex_a55")
    inspection = inspect(program)
    assert (inspection.architecture, inspection.is_static, inspection.is_stripped) == (
        "aarch64",
        True,
        True,
    )
    check(inspection, RK3568)


def test_a_feature_that_the_cpu_lacks_is_named_with_address_and_target(tmp_path: Path) -> None:
    code = DOT.replace("vdotq_s32(v", "vusdotq_s32(v").replace(
        "vdupq_n_s8((signed char) n)", "vdupq_n_u8((unsigned char) n)"
    )
    code = code.replace("int main", '__attribute__((target("i8mm"))) int main')
    program = without_library(tmp_path, code, "-mcpu=cortex_a55")
    strip(program, tmp_path / "stripped")
    stripped = inspect(tmp_path / "stripped")
    with pytest.raises(BuildError, match=r"'i8mm', the first at 0x[0-9a-f]+ \(usdot\).*'rk3568'"):
        check(stripped, RK3568)
    with_symbols = stripped.model_copy(update={"features": inspect(program).features})
    with pytest.raises(BuildError, match=r"the first in main at 0x[0-9a-f]+ \(usdot\)"):
        check(with_symbols, RK3568)


def test_a_program_without_dot_products_counts_as_slow(tmp_path: Path) -> None:
    program = compiled(tmp_path, PLAIN)
    with pytest.raises(BuildError, match=r"no instruction uses the CPU feature 'asimddp'"):
        check(inspect(program), RK3568)


def test_a_dynamic_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    zig_cc(tmp_path, "-target", "aarch64-linux-gnu", "-s", "main.c", "-o", "program")
    with pytest.raises(BuildError, match="needs a loader"):
        check(inspect(tmp_path / "program"), RK3568)


_CALLS_THE_LOADER = """
#include <math.h>
#include <stdio.h>
void *vkGetInstanceProcAddr(void *, const char *);
int main(int n, char **v) { return printf("%f %p", pow(n, 0.5), vkGetInstanceProcAddr(0, v[0])); }
"""


def test_a_program_for_gpus_is_stripped_and_keeps_the_versions_that_it_needs(
    tmp_path: Path,
) -> None:
    glibc = ("-target", f"aarch64-linux-gnu.{GLIBC}")
    stand_in = str(overlay_folder() / "vulkan_loader.c")
    soname = f"-Wl,-soname,{VULKAN_LOADER}"
    zig_cc(tmp_path, *glibc, "-shared", soname, "-o", VULKAN_LOADER, stand_in)
    (tmp_path / "main.c").write_text(_CALLS_THE_LOADER)
    zig_cc(tmp_path, *glibc, "-O2", "-o", "linked", "main.c", VULKAN_LOADER, "-lm")
    strip(tmp_path / "linked", tmp_path / "program")
    linked, stripped = inspect(tmp_path / "linked"), inspect(tmp_path / "program")
    assert (stripped.needed, stripped.glibc) == (linked.needed, linked.glibc)
    assert {VULKAN_LOADER, "libm.so.6", "libc.so.6"} == {*stripped.needed}
    assert (2, 17) <= tuple(map(int, stripped.glibc.split("."))) <= (2, 31)
    check(stripped, load_target("armv8-generic"))


def test_a_program_with_debug_information_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="debug information"):
        check(inspect(without_library(tmp_path, PLAIN, "-g")), RK3568)


def test_a_program_for_another_architecture_is_refused() -> None:
    if not sys.platform.startswith("linux") or os.uname().machine == "aarch64":
        pytest.skip("this Python itself is no ELF file of another architecture")
    with pytest.raises(BuildError, match="built for x86_64"):
        check(inspect(Path(sys.executable)), RK3568)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an ELF program: it is empty"),
        (b"GGUF\x03", 'not an ELF program: it begins with "GGUF"'),
        (b"\xcf\xfa\xed\xfe", "not an ELF program: it begins with the bytes cf fa ed fe"),
        (b"\x7fELF", "ELF file is damaged or truncated"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 20, "ELF file is damaged or truncated"),
    ],
)
def test_a_file_that_is_no_program_is_one_clear_error(
    content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=said):
        inspect(tmp_path / "file")


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no program"):
        inspect(tmp_path / "absent")


DATA_TOO = """
int filled[4] = {1, 2, 3, 4}, empty[64];
const char *words[] = {"none", "some"};
int main(int n, char **v) { return filled[n] + empty[n] + words[n][0]; }
"""


def _loaded(path: Path) -> list[tuple[int, bytes]]:
    with path.open("rb") as file:
        return [
            (segment["p_vaddr"], segment.data())
            for segment in ELFFile(file).iter_segments("PT_LOAD")
        ]


def test_stripping_takes_symbols_and_debug_information_and_leaves_what_is_loaded(
    tmp_path: Path,
) -> None:
    program = without_library(tmp_path, DATA_TOO, "-g")
    stripped = tmp_path / "stripped"
    strip(program, stripped)
    assert inspect(stripped).is_stripped
    # The first segment begins with the header, which tells where the section table is.
    assert [(at, code[64:]) for at, code in _loaded(stripped)] == [
        (at, code[64:]) for at, code in _loaded(program)
    ]
    with program.open("rb") as full, stripped.open("rb") as short:
        tables = [list(ELFFile(file).iter_sections()) for file in (full, short)]
        loaded, kept = (
            [one for one in table if one["sh_flags"] & SH_FLAGS.SHF_ALLOC] for table in tables
        )
        assert [(one.name, one["sh_addr"], one["sh_size"]) for one in kept] == [
            (one.name, one["sh_addr"], one["sh_size"]) for one in loaded
        ]
        assert [one.name for one in tables[1]][-1] == ".shstrtab"
    done = subprocess.run([*emulator(), str(stripped)], check=False)
    assert done.returncode == subprocess.run([*emulator(), str(program)], check=False).returncode


def test_the_c_librarys_own_choice_of_variants_is_told_from_unguarded_code(tmp_path: Path) -> None:
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        pytest.skip("no cross compiler (Debian: g++-aarch64-linux-gnu)")
    program = tmp_path / "program"
    (tmp_path / "main.cc").write_text(
        "#include <cstring>\n#include <iostream>\n"
        "int main(int n, char **v) { if (n > 9) throw n; std::cout << std::strlen(v[0]); }\n"
    )
    subprocess.run(
        [compiler, "-static", "-O2", str(tmp_path / "main.cc"), "-o", str(program)], check=True
    )
    uses = {use.feature: use for use in inspect(program).features}
    assert uses["sve"].count > 50  # memcpy and memset for CPUs that have it
    assert [name for name, use in uses.items() if not use.guarded] == []
    strip(program, tmp_path / "stripped")
    blind = {use.feature: use for use in inspect(tmp_path / "stripped").features}
    assert not blind["sve"].guarded
    assert blind["atomics"].guarded  # told by the code itself


def test_outline_atomics_are_told_from_unguarded_ones(tmp_path: Path) -> None:
    guarded = "ldrb w16, [x16]\ncbz w16, 1f\ncas w0, w1, [x2]\nret\n1: ldxr w0, [x2]\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uses = [
        inspect(_assembled(guarded, tmp_path / "a")).features,
        inspect(_assembled(guarded + "cas w0, w1, [x2]", tmp_path / "b")).features,
    ]
    assert [[(use.feature, use.guarded) for use in one] for one in uses] == [
        [("atomics", True)],
        [("atomics", False)],
    ]


@pytest.mark.parametrize(
    ("function", "is_guarded"), [("__libgcc_arm_za_disable", True), ("compute", False)]
)
def test_the_calling_conventions_routines_for_sme_check_the_cpu_themselves(
    tmp_path: Path, *, function: str, is_guarded: bool
) -> None:
    code = f".global {function}\n.type {function}, %function\n{function}: smstop za\nret\n"
    (use,) = inspect(_assembled(code, tmp_path)).features
    assert (use.feature, use.symbol, use.guarded) == ("sme", function, is_guarded)
