/* Prints the names of the CPU's features in the words of /proc/cpuinfo, on one line.
 *
 * An emulator of programs, such as qemu-user, shows the host's /proc/cpuinfo; what it tells a
 * program itself is true. Bits: Linux, arch/arm64/include/uapi/asm/hwcap.h; names:
 * arch/arm64/kernel/cpuinfo.c. */
#include <stddef.h>
#include <stdio.h>
#include <sys/auxv.h>

static const char *const FIRST[] = {
    "fp",       "asimd", "evtstrm", "aes",     "pmull",    "sha1",  "sha2",    "crc32",
    "atomics",  "fphp",  "asimdhp", "cpuid",   "asimdrdm", "jscvt", "fcma",    "lrcpc",
    "dcpop",    "sha3",  "sm3",     "sm4",     "asimddp",  "sha512", "sve",    "asimdfhm",
    "dit",      "uscat", "ilrcpc",  "flagm",   "ssbs",     "sb",    "paca",    "pacg"};

static const char *const SECOND[] = {
    "dcpodp",    "sve2",      "sveaes",    "svepmull", "svebitperm", "svesha3",   "svesm4",
    "flagm2",    "frint",     "svei8mm",   "svef32mm", "svef64mm",   "svebf16",   "i8mm",
    "bf16",      "dgh",       "rng",       "bti",      "mte",        "ecv",       "afp",
    "rpres",     "mte3",      "sme",       "smei16i64", "smef64f64", "smei8i32",  "smef16f32",
    "smeb16f32", "smef32f32", "smefa64",   "wfxt",     "ebf16",      "sveebf16",  "cssc",
    "rprfm",     "sve2p1",    "sme2",      "sme2p1",   "smei16i32",  "smebi32i32", "smeb16b16",
    "smef16f16", "mops",      "hbc",       "sveb16b16", "lrcpc3"};

static void print(unsigned long bits, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bits >> i & 1)
            printf("%s ", names[i]);
}

int main(void)
{
    print(getauxval(AT_HWCAP), FIRST, sizeof FIRST / sizeof *FIRST);
    print(getauxval(AT_HWCAP2), SECOND, sizeof SECOND / sizeof *SECOND);
    putchar('\n');
    return fflush(stdout) != 0;
}
