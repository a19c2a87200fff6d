"""Kernels that lack something, on this machine's own: for programs that are started in one."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

_NUMBERS = {
    "x86_64": {"mlock": 149, "mlock2": 325, "memfd_create": 319},
    "aarch64": {"mlock": 228, "mlock2": 284, "memfd_create": 279},
}
"""Of system calls (asm/unistd_64.h, asm-generic/unistd.h)."""

_FILTERED = """
import ctypes, errno, os, struct, sys
numbers = [int(word) for word in sys.argv[1].split(",")]
load, jump_equal, give = 0x20, 0x15, 0x06  # struct sock_filter of linux/filter.h
allowed, refused = 0x7FFF0000, 0x00050000 | errno.ENOSYS
rules = [(load, 0, 0, 0)]
for number in numbers:
    rules += [(jump_equal, 0, 1, number), (give, 0, 0, refused)]
rules.append((give, 0, 0, allowed))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
no_new_privileges, set_filter = 38, 22
assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
assert libc.prctl(set_filter, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[2], sys.argv[2:])
"""


def without_calls(*names: str) -> list[str]:
    """Return the words that start a program for which system calls do not exist (ENOSYS)."""
    numbers = ",".join(str(_NUMBERS[platform.machine()][name]) for name in names)
    return [sys.executable, "-c", _FILTERED, numbers]


def with_meminfo(text: str, folder: Path) -> list[str]:
    """Return the words that start a program that sees another ``/proc/meminfo``; takes root."""
    path = folder / "meminfo"
    path.write_text(text)
    mount = 'mount --bind "$0" /proc/meminfo && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, str(path)]
