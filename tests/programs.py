"""Programs for boards, made by zig, and one that cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from armload.build.backend import native_folder
from armload.build.helper import any_cpu_compiler
from armload.build.stripping import strip
from armload.build.target import machine_architecture
from armload.core.places import cache_folder

_LOADERS = (b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-linux-aarch64.so.1")


def without_loader(path: Path) -> Path:
    """Write a program of this machine's that asks for a loader which is nowhere."""
    dynamic = Path("/bin/true").read_bytes()
    loader = next(name for name in _LOADERS if name in dynamic)
    path.write_bytes(dynamic.replace(loader, loader[:-1] + b"X"))
    path.chmod(0o755)
    return path


PLAIN = "int main(int n, char **v) { return n - 1; }"
DOT = """
#include <arm_neon.h>
int main(int n, char **v) {
    float16x8_t h = vdupq_n_f16((float16_t) n);
    h = vfmaq_f16(h, h, h);
    int32x4_t s = vdotq_s32(vdupq_n_s32(n), vdupq_n_s8((signed char) n), vdupq_n_s8(3));
    return vaddvq_s32(s) + (int) vgetq_lane_f16(h, 0);
}
"""


def zig_cc(folder: Path, *words: str) -> None:
    """Run zig's C compiler in a folder."""
    zig = str(cache_folder() / "zig")
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *words],
        cwd=folder,
        env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": zig, "ZIG_LOCAL_CACHE_DIR": zig},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def compiled(folder: Path, code: str, *flags: str, architecture: str = "aarch64") -> Path:
    """Compile a static program of one file, without symbols.

    It is linked as armload's own programs for boards are: zig compiles the C library once for each
    set of flags, which takes a minute.
    """
    _compiled(folder, code, architecture, *flags, "-c", "-o", "main.o")
    words = [*any_cpu_compiler(architecture), "main.o", "-o", "linked"]
    subprocess.run(words, cwd=folder, check=True)
    strip(folder / "linked", folder / "program")
    return folder / "program"


_START = """
void _start(void) {
    register long number __asm__("x8") = 93; /* exit */
    register long status __asm__("x0") = main(1, 0);
    __asm__ volatile("svc 0" : : "r"(number), "r"(status));
    __builtin_unreachable();
}
"""


def without_library(folder: Path, code: str, *flags: str) -> Path:
    """Compile a static program of one file, with symbols and without a C library."""
    _compiled(folder, code + _START, "aarch64", *flags, "-nostdlib", "-static", "-o", "program")
    return folder / "program"


def _compiled(folder: Path, code: str, architecture: str, *flags: str) -> None:
    (folder / "main.c").write_text(code)
    zig_cc(folder, "-target", f"{architecture}-linux-musl", "-O2", "-g0", *flags, "main.c")


_MAPPED_WEIGHTS = """
#include "armload_stream.h"
bool armload_stream_state(struct armload_stream * state) { (void) state; return false; }
int64_t armload_stream_wait_ns(void) { return 0; }
bool armload_stream_experts(int64_t * used, int64_t * missed) { *used = *missed = 0; return false; }
"""


def traced(folder: Path, code: str, name: str) -> Path:
    """Compile a program of this machine's that takes steps of its own, without an engine."""
    (folder / f"{name}.c").write_text(code)
    (folder / "weights.c").write_text(_MAPPED_WEIGHTS)
    native = native_folder()
    subprocess.run(
        [
            *(*any_cpu_compiler(machine_architecture()), "-std=gnu11", f"-I{native}"),
            *('-DARMLOAD_ENGINE_COMMIT="abc"', folder / f"{name}.c", folder / "weights.c"),
            *(native / f"armload_{part}.c" for part in ("environment", "step", "trace_file")),
            *("-o", folder / name),
        ],
        check=True,
    )
    return folder / name
