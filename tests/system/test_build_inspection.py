"""Inspection, on code that a real assembler and linker made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from armload.build.inspection import check, inspect
from armload.build.target import load_target
from armload.core.errors import BuildError
from armload.core.workspace import cache_folder

pytestmark = pytest.mark.build

RK3568 = load_target("rk3568")

INSTRUCTIONS = {
    "atomics": """ldadd w1, w2, [x0]; ldaddal x1, x2, [x0]; swpb w1, w2, [x3]; cas w0, w1, [x2]
        casal x0, x1, [x2]; casp w0, w1, w2, w3, [x4]; caspal x0, x1, x2, x3, [x4]; stset w1, [x2]""",
    "lrcpc": "ldapr w1, [x0]; ldaprb w1, [x0]; ldapr x1, [x0]",
    "ilrcpc": "ldapur w1, [x0, #4]; stlur x1, [x0, #-8]; ldapursb w1, [x0]",
    "mops": "cpyfp [x0]!, [x1]!, x2!; setp [x0]!, x1!, x2",
    "mte": "stg x0, [x1]; st2g x0, [x1, #16]!; ldg x0, [x1]; irg x0, x1; gmi x0, x1, x2; addg x0, x1, #16, #1; subp x0, x1, x2",
    "paca": "ldraa x0, [x1]; retaa; braa x0, x1; blraaz x0; pacia x0, x1; autizb x0",
    "pacg": "pacga x0, x1, x2",
    "dcpop": "dc cvap, x0",
    "sb": "sb",
    "flagm": "cfinv; rmif x0, #1, #2; setf8 w0; setf16 w1",
    "flagm2": "xaflag; axflag",
    "rng": "mrs x0, rndr; mrs x1, rndrrs",
    "wfxt": "wfet x0; wfit x1",
    "crc32": "crc32b w0, w1, w2; crc32x w0, w1, x2; crc32cw w0, w1, w2",
    "cssc": "ctz x0, x1; cnt w0, w1; abs x0, x1; smax w0, w1, w2; umin x0, x1, #3",
    "aes": "aese v0.16b, v1.16b; aesimc v0.16b, v1.16b",
    "pmull": "pmull v0.1q, v1.1d, v2.1d; pmull2 v0.1q, v1.2d, v2.2d",
    "sha1": "sha1c q0, s1, v2.4s; sha1su0 v0.4s, v1.4s, v2.4s; sha1h s0, s1; sha1su1 v0.4s, v1.4s",
    "sha2": "sha256h q0, q1, v2.4s; sha256su1 v0.4s, v1.4s, v2.4s; sha256su0 v0.4s, v1.4s",
    "sha512": "sha512h q0, q1, v2.2d; sha512h2 q0, q1, v2.2d; sha512su1 v0.2d, v1.2d, v2.2d; sha512su0 v0.2d, v1.2d",
    "sha3": "eor3 v0.16b, v1.16b, v2.16b, v3.16b; bcax v0.16b, v1.16b, v2.16b, v3.16b; rax1 v0.2d, v1.2d, v2.2d; xar v0.2d, v1.2d, v2.2d, #3",
    "sm3": "sm3ss1 v0.4s, v1.4s, v2.4s, v3.4s; sm3tt2b v0.4s, v1.4s, v2.s[1]; sm3partw1 v0.4s, v1.4s, v2.4s; sm3partw2 v0.4s, v1.4s, v2.4s",
    "sm4": "sm4e v0.4s, v1.4s; sm4ekey v0.4s, v1.4s, v2.4s",
    "fphp": """fadd h0, h1, h2; fmov h0, #1.0; fcmp h0, h1; fcsel h0, h1, h2, eq; fsqrt h0, h1; fmov h0, h1
        fcvtzs w0, h1; scvtf h0, x1; fmov w0, h1; fcvtzs x0, h1, #3; fmadd h0, h1, h2, h3; frintn h0, h1""",
    "asimdhp": """fadd v0.8h, v1.8h, v2.8h; fmla v0.4h, v1.4h, v2.4h; fcmgt v0.8h, v1.8h, v2.8h; fabd h0, h1, h2
        fabs v0.8h, v1.8h; fsqrt v0.8h, v1.8h; fcmgt v0.8h, v1.8h, #0.0; scvtf h0, h1; fmaxv h0, v1.8h
        fminnmv h0, v1.8h; fmov v0.8h, #1.0; fmla v0.8h, v1.8h, v2.h[3]; fmls v0.8h, v1.8h, v2.h[7]
        fmul v0.8h, v1.8h, v2.h[3]; fmulx v0.4h, v1.4h, v2.h[1]; fmla h0, h1, v2.h[3]; fmul h0, h1, v2.h[1]
        scvtf v0.8h, v1.8h, #3; fcvtzu v0.8h, v1.8h, #3; fcvtzs h0, h1, #3; ucvtf h0, h1, #2
        faddp h0, v1.2h; fmaxnmp h0, v1.2h; fminp h0, v1.2h; frecpe v0.8h, v1.8h; faddp v0.8h, v1.8h, v2.8h""",
    "asimdrdm": """sqrdmlah v0.8h, v1.8h, v2.8h; sqrdmlsh v0.4s, v1.4s, v2.4s; sqrdmlah h0, h1, h2
        sqrdmlsh v0.4s, v1.4s, v2.s[1]; sqrdmlah h0, h1, v2.h[3]""",
    "asimddp": "sdot v0.4s, v1.16b, v2.16b; udot v0.2s, v1.8b, v2.8b; sdot v0.4s, v1.16b, v2.4b[3]; udot v0.2s, v1.8b, v2.4b[1]",
    "i8mm": """usdot v0.4s, v1.16b, v2.16b; usdot v0.4s, v1.16b, v2.4b[1]; sudot v0.4s, v1.16b, v2.4b[1]
        smmla v0.4s, v1.16b, v2.16b; ummla v0.4s, v1.16b, v2.16b; usmmla v0.4s, v1.16b, v2.16b""",
    "bf16": """bfdot v0.4s, v1.8h, v2.8h; bfdot v0.4s, v1.8h, v2.2h[1]; bfmmla v0.4s, v1.8h, v2.8h
        bfmlalb v0.4s, v1.8h, v2.8h; bfmlalt v0.4s, v1.8h, v2.h[3]; bfcvtn v0.4h, v1.4s; bfcvt h0, s1""",
    "fcma": "fcmla v0.4s, v1.4s, v2.4s, #90; fcadd v0.2d, v1.2d, v2.2d, #270; fcmla v0.4s, v1.4s, v2.s[1], #180",
    "asimdfhm": "fmlal v0.4s, v1.4h, v2.4h; fmlsl2 v0.4s, v1.4h, v2.4h; fmlsl v0.4s, v1.4h, v2.h[1]; fmlal2 v0.4s, v1.4h, v2.h[1]",
    "jscvt": "fjcvtzs w0, d1",
    "frint": "frint32z s0, s1; frint64x d0, d1; frint32x v0.4s, v1.4s; frint64z v0.2d, v1.2d",
    "sve": "ptrue p0.b; ld1b {z0.b}, p0/z, [x0]; fmla z0.s, p0/m, z1.s, z2.s; sdot z0.s, z1.b, z2.b; sdot z0.s, z1.b, z2.b[1]; whilelt p0.s, x0, x1; cntb x0",
    "svei8mm": "smmla z0.s, z1.b, z2.b; ummla z0.s, z1.b, z2.b; usmmla z0.s, z1.b, z2.b; usdot z0.s, z1.b, z2.b; usdot z0.s, z1.b, z2.b[1]; sudot z0.s, z1.b, z2.b[1]",
    "svebf16": """bfdot z0.s, z1.h, z2.h; bfdot z0.s, z1.h, z2.h[1]; bfmmla z0.s, z1.h, z2.h; bfmlalb z0.s, z1.h, z2.h
        bfmlalt z0.s, z1.h, z2.h; bfmlalb z0.s, z1.h, z2.h[1]; bfcvt z0.h, p0/m, z1.s; bfcvtnt z0.h, p0/m, z1.s""",
    "sve2": """smlalb z0.s, z1.h, z2.h; sqdmlalbt z0.s, z1.h, z2.h; cdot z0.s, z1.b, z2.b, #90; saddlb z0.h, z1.b, z2.b
        histseg z0.b, z1.b, z2.b; mul z0.s, z1.s, z2.s; eor3 z0.d, z0.d, z2.d, z3.d; whilegt p0.s, x0, x1
        addp z0.s, p0/m, z0.s, z1.s; sqadd z0.s, p0/m, z0.s, z1.s""",
    "sme": "smstart; smstop za; fmopa za0.s, p0/m, p1/m, z0.s, z1.s; zero {za}",
}
"""Each feature's instructions, in the assembler's words."""

BASELINE = """
    add x0, x1, x2; ldr w0, [x1, x2]; ldr x0, [x1], #8; ldxr w0, [x1]; stlxr w0, w1, [x2]; ldar w0, [x1]
    ldxp x0, x1, [x2]; stxp w0, x1, x2, [x3]; bti c; paciasp; autiasp; dmb ish; dsb sy; isb; mrs x0, tpidr_el0
    fcvt s0, h1; fcvt h0, s1; fcvt d0, h1; fcvt h0, d1; fcvtl v0.4s, v1.4h; fcvtn v0.4h, v1.4s
    fadd s0, s1, s2; fmla v0.4s, v1.4s, v2.4s; fmla v0.4s, v1.4s, v2.s[1]; fmul d0, d1, v2.d[1]; frintn s0, s1
    mla v0.8h, v1.8h, v2.8h; mla v0.8h, v1.8h, v2.h[3]; mls v0.4s, v1.4s, v2.s[1]; mul v0.8h, v1.8h, v2.h[3]
    smlal v0.4s, v1.4h, v2.h[3]; umlsl v0.4s, v1.4h, v2.4h; smull v0.8h, v1.8b, v2.8b; sqdmulh v0.8h, v1.8h, v2.h[1]
    sqrdmulh v0.8h, v1.8h, v2.h[1]; sqrdmulh v0.4s, v1.4s, v2.4s; pmull v0.8h, v1.8b, v2.8b; pmul v0.8b, v1.8b, v2.8b
    dup v0.8h, w1; dup h0, v1.h[3]; ins v0.h[1], w2; umov w0, v1.h[3]; ext v0.16b, v1.16b, v2.16b, #3
    tbl v0.16b, {v1.16b}, v2.16b; zip1 v0.8h, v1.8h, v2.8h; addp d0, v1.2d; faddp s0, v1.2s; addv h0, v1.8h
    fmaxnmv s0, v1.4s; sqxtn v0.8b, v1.8h; sshr v0.8h, v1.8h, #3; shl v0.8h, v1.8h, #3; movi v0.8h, #1; fmov v0.4s, #1.0
    scvtf v0.4s, v1.4s, #3; scvtf v0.4s, v1.4s; fsqrt v0.2d, v1.2d; frecpe v0.4s, v1.4s; fcmgt v0.4s, v1.4s, #0.0
    fcmp s0, s1; fcsel s0, s1, s2, eq; fmov s0, #1.0; fmov w0, s1; fcvtzs w0, s1; fmadd s0, s1, s2, s3; clz x0, x1
    rbit w0, w1; udiv x0, x1, x2; madd x0, x1, x2, x3; ccmp x0, x1, #0, eq; csel x0, x1, x2, eq; adc x0, x1, x2
    cmeq v0.16b, v1.16b, #0; uaddlv h0, v1.16b; ld1 {v0.16b}, [x0]; ldp q0, q1, [x0]; prfm pldl1keep, [x0]; br x0
    ret; blr x1; svc #0; adrp x0, . ; ubfx x0, x1, #3, #5; extr x0, x1, x2, #3; ldursw x0, [x1, #-3]; yield
"""


def _zig(arguments: list[str], folder: Path) -> None:
    caches = {name: str(cache_folder() / "zig") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *arguments],
        cwd=folder,
        env=os.environ | caches,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _assembled(assembly: str, folder: Path) -> Path:
    extensions = (
        "crc crypto sha3 sm4 fp16 fp16fml rdma rcpc lse dotprod i8mm bf16 sve sve2 sme memtag rng mops "
        "pauth flagm sb cssc ras predres"
    ).split()
    lines = assembly.replace(";", "\n")
    # The directive's name for the architecture brings what has no extension of its own.
    (folder / "code.s").write_text(
        ".arch armv8.8-a" + "".join(f"+{name}" for name in extensions) + f"\n.text\n{lines}\n"
    )
    _zig(["-target", "aarch64-linux-musl", "-c", "code.s", "-o", "code.o"], folder)
    return folder / "code.o"


@pytest.mark.parametrize("feature", INSTRUCTIONS)
def test_every_instruction_is_counted_for_its_feature(feature: str, tmp_path: Path) -> None:
    assembly = INSTRUCTIONS[feature]
    uses = {use.feature: use.count for use in inspect(_assembled(assembly, tmp_path)).features}
    expected = {feature: len([line for line in assembly.replace("\n", ";").split(";") if line.strip()])}
    if feature in {"svei8mm", "svebf16", "sve2"}:
        expected["sve"] = expected[feature]
    assert uses == expected


def test_code_for_the_oldest_cpu_uses_no_feature(tmp_path: Path) -> None:
    assert inspect(_assembled(BASELINE, tmp_path)).features == ()


def _program(folder: Path, *flags: str, code: str = "int main(void) { return 0; }") -> Path:
    (folder / "main.c").write_text(code)
    _zig(["-target", "aarch64-linux-musl", "-O2", "-g0", *flags, "main.c", "-o", "program"], folder)
    return folder / "program"


DOT = """
#include <arm_neon.h>
int main(int n, char **v) {
    float16x8_t h = vdupq_n_f16((float16_t) n);
    h = vfmaq_f16(h, h, h);
    int32x4_t s = vdotq_s32(vdupq_n_s32(n), vdupq_n_s8((signed char) n), vdupq_n_s8(3));
    return vaddvq_s32(s) + (int) vgetq_lane_f16(h, 0);
}
"""


def test_a_static_program_for_the_target_passes(tmp_path: Path) -> None:
    program = _program(tmp_path, "-static", "-s", "-mcpu=cortex_a55", code=DOT)
    inspection = inspect(program)
    assert (inspection.architecture, inspection.is_static, inspection.is_stripped) == (
        "AArch64",
        True,
        True,
    )
    check(inspection, RK3568)


def test_a_feature_that_the_cpu_lacks_is_named_with_address_and_target(tmp_path: Path) -> None:
    code = DOT.replace("vdotq_s32(v", "vusdotq_s32(v").replace(
        "vdupq_n_s8((signed char) n)", "vdupq_n_u8((unsigned char) n)"
    )
    program = _program(tmp_path, "-static", "-s", "-mcpu=cortex_a55+i8mm", code=code)
    with pytest.raises(BuildError, match=r"'i8mm', the first at 0x[0-9a-f]+ \(usdot\).*'rk3568'"):
        check(inspect(program), RK3568)


def test_a_program_without_dot_products_counts_as_slow(tmp_path: Path) -> None:
    program = _program(tmp_path, "-static", "-s")
    with pytest.raises(BuildError, match=r"no instruction uses the CPU feature 'asimddp'"):
        check(inspect(program), RK3568)


def test_a_dynamic_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    _zig(["-target", "aarch64-linux-gnu", "-s", "main.c", "-o", "program"], tmp_path)
    with pytest.raises(BuildError, match="needs a loader"):
        check(inspect(tmp_path / "program"), RK3568)


def test_a_program_with_debug_information_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="debug information"):
        check(inspect(_program(tmp_path, "-static", "-g")), RK3568)


def test_a_program_for_another_architecture_is_refused() -> None:
    if not sys.platform.startswith("linux") or os.uname().machine == "aarch64":
        pytest.skip("this Python itself is no ELF file of another architecture")
    with pytest.raises(BuildError, match="not for AArch64"):
        check(inspect(Path(sys.executable)), RK3568)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\0" * 20])
def test_a_file_that_is_no_program_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BuildError, match="no ELF program"):
        inspect(tmp_path / "file")


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be read"):
        inspect(tmp_path / "absent")


def test_outline_atomics_are_told_from_unguarded_ones(tmp_path: Path) -> None:
    guarded = "ldrb w16, [x16]; cbz w16, 1f; cas w0, w1, [x2]; ret; 1: ldxr w0, [x2]"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uses = [
        inspect(_assembled(guarded, tmp_path / "a")).features,
        inspect(_assembled(guarded + "; cas w0, w1, [x2]", tmp_path / "b")).features,
    ]
    assert [[(use.feature, use.guarded) for use in one] for one in uses] == [
        [("atomics", True)],
        [("atomics", False)],
    ]


