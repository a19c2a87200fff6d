"""What ``/proc/cpuinfo`` says on some boards, by recordings that their owners have published."""

from __future__ import annotations


def _arm(cores: int, features: str, part: int, revision: int, mips: str) -> str:
    return "".join(
        f"processor\t: {number}\nBogoMIPS\t: {mips}\nFeatures\t: {features}\n"
        f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part:#05x}\nCPU revision\t: {revision}\n\n"
        for number in range(cores)
    )


RASPBERRY_PI_4 = (
    _arm(4, "fp asimd evtstrm crc32 cpuid", 0xD08, 3, "108.00")
    + "Hardware\t: BCM2835\nRevision\t: c03112\nModel\t\t: Raspberry Pi 4 Model B Rev 1.2\n"
)
"""Ubuntu 22.04, 64 bit."""

RASPBERRY_PI_ZERO_2 = _arm(4, "fp asimd evtstrm crc32 cpuid", 0xD03, 4, "38.40")
"""Debian 13, 64 bit."""

ODROID_M1 = _arm(
    4,
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop "
    "asimddp",
    0xD05,
    0,
    "48.00",
)
"""An RK3568."""

RASPBERRY_PI_4_OF_32_BITS = _arm(
    4,
    "half thumb fastmult vfp edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32 lpae evtstrm crc32",
    0xD08,
    3,
    "108.00",
)

X86 = "processor\t: 0\nflags\t\t: fpu sse sse2 pclmulqdq ssse3 aes avx\n"
OLD_X86 = "processor\t: 0\nflags\t\t: fpu sse sse2 ssse3\n"
