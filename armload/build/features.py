"""Which CPU features AArch64 code uses, and which uses lie behind a check at run time.

The encodings are those of the Arm Architecture Reference Manual for A-profile (DDI 0487),
chapter C4. Hints that older CPUs ignore (``bti``, ``paciasp``) count as no feature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Encoding(NamedTuple):
    """Instruction words ``w`` with ``w & mask == value``, unless ``w & but_mask == but_value``.

    Attributes:
        feature: in the words of ``/proc/cpuinfo``.
        mnemonic: of the instruction, or of a typical one of the group.
    """

    feature: str
    mnemonic: str
    mask: int
    value: int
    but_mask: int = 0
    but_value: int = 1


ENCODINGS = (
    # Loads and stores
    Encoding("atomics", "ldadd", 0x3F208C00, 0x38200000),
    Encoding("atomics", "swp", 0x3F20FC00, 0x38208000),
    Encoding("atomics", "cas", 0x3FA07C00, 0x08A07C00),
    Encoding("atomics", "casp", 0xBFA07C00, 0x08207C00),
    Encoding("lrcpc", "ldapr", 0x3FFFFC00, 0x38BFC000),
    Encoding("ilrcpc", "ldapur", 0x3F200C00, 0x19000000),
    Encoding("mops", "cpyf", 0x3B200C00, 0x19000400),
    Encoding("mte", "stg", 0xFF200000, 0xD9200000),
    Encoding("paca", "ldraa", 0xFF200400, 0xF8200400),
    # Branches and system
    Encoding("paca", "retaa", 0xFE1FF800, 0xD61F0800),
    Encoding("dcpop", "dc cvap", 0xFFFFFFE0, 0xD50B7C20),
    Encoding("dcpodp", "dc cvadp", 0xFFFFFFE0, 0xD50B7D20),
    Encoding("sb", "sb", 0xFFFFF0FF, 0xD50330FF),
    Encoding("flagm", "cfinv", 0xFFFFF0FF, 0xD500401F),
    Encoding("flagm2", "xaflag", 0xFFFFF0FF, 0xD500403F),
    Encoding("flagm2", "axflag", 0xFFFFF0FF, 0xD500405F),
    Encoding("rng", "mrs rndr", 0xFFFFFFC0, 0xD53B2400),
    Encoding("wfxt", "wfet", 0xFFFFFFC0, 0xD5031000),
    Encoding("sme", "smstart", 0xFFFFF8FF, 0xD503407F),
    # Integer
    Encoding("crc32", "crc32", 0x7FE0E000, 0x1AC04000),
    Encoding("flagm", "rmif", 0xFFE07C10, 0xBA000400),
    Encoding("flagm", "setf8", 0xFFFFBC1F, 0x3A00080D),
    Encoding("paca", "pacia", 0xFFFF0000, 0xDAC10000),
    Encoding("pacg", "pacga", 0xFFE0FC00, 0x9AC03000),
    Encoding("mte", "irg", 0xFFE0FC00, 0x9AC01000),
    Encoding("mte", "gmi", 0xFFE0FC00, 0x9AC01400),
    Encoding("mte", "subp", 0xDFE0FC00, 0x9AC00000),
    Encoding("mte", "addg", 0xBFC00000, 0x91800000),
    Encoding("cssc", "ctz", 0x7FFFFC00, 0x5AC01800),
    Encoding("cssc", "cnt", 0x7FFFFC00, 0x5AC01C00),
    Encoding("cssc", "abs", 0x7FFFFC00, 0x5AC02000),
    Encoding("cssc", "smax", 0x7FE0F000, 0x1AC06000),
    Encoding("cssc", "smax", 0x7FC00000, 0x11C00000),
    # Cryptography
    Encoding("aes", "aese", 0xFFFFCC00, 0x4E284800),
    Encoding("pmull", "pmull", 0xBFE0FC00, 0x0EE0E000),
    Encoding("sha1", "sha1c", 0xFFE0CC00, 0x5E000000),
    Encoding("sha1", "sha1h", 0xFFFFEC00, 0x5E280800),
    Encoding("sha2", "sha256h", 0xFFE0CC00, 0x5E004000),
    Encoding("sha2", "sha256su0", 0xFFFFFC00, 0x5E282800),
    Encoding("sha512", "sha512h", 0xFFE0FC00, 0xCE608000),
    Encoding("sha512", "sha512h2", 0xFFE0FC00, 0xCE608400),
    Encoding("sha512", "sha512su1", 0xFFE0FC00, 0xCE608800),
    Encoding("sha512", "sha512su0", 0xFFFFFC00, 0xCEC08000),
    Encoding("sha3", "eor3", 0xFFE08000, 0xCE000000),
    Encoding("sha3", "bcax", 0xFFE08000, 0xCE200000),
    Encoding("sha3", "rax1", 0xFFE0FC00, 0xCE608C00),
    Encoding("sha3", "xar", 0xFFE00000, 0xCE800000),
    Encoding("sm3", "sm3ss1", 0xFFE08000, 0xCE400000),
    Encoding("sm3", "sm3tt1a", 0xFFE0C000, 0xCE408000),
    Encoding("sm3", "sm3partw1", 0xFFE0F800, 0xCE60C000),
    Encoding("sm4", "sm4e", 0xFFFFFC00, 0xCEC08400),
    Encoding("sm4", "sm4ekey", 0xFFE0FC00, 0xCE60C800),
    # Half precision: scalar, without the conversions that every CPU has; then vectors
    Encoding("fphp", "fadd", 0x7FE00000, 0x1EE00000, 0xFFFE7C00, 0x1EE24000),
    Encoding("fphp", "fcvtzs", 0x7FE00000, 0x1EC00000),
    Encoding("fphp", "fmadd", 0xFFC00000, 0x1FC00000),
    Encoding("asimdhp", "fmla", 0x9F60C400, 0x0E400400),
    Encoding("asimdhp", "fabd", 0xDF60C400, 0x5E400400),
    Encoding("asimdhp", "fabs", 0x9F7E0C00, 0x0E780800),
    Encoding("asimdhp", "fcmgt", 0xDF7E0C00, 0x5E780800),
    Encoding("asimdhp", "fmaxnmv", 0xBF7FFC00, 0x0E30C800),
    Encoding("asimdhp", "fmaxv", 0xBF7FFC00, 0x0E30F800),
    Encoding("asimdhp", "fmov", 0xBFF8FC00, 0x0F00FC00),
    Encoding("asimdhp", "fmla", 0x9FC0B400, 0x0F001000, 0xBFC0F400, 0x2F001000),
    Encoding("asimdhp", "fmul", 0x9FC0F400, 0x0F009000),
    Encoding("asimdhp", "fmla", 0xFFC0B400, 0x5F001000),
    Encoding("asimdhp", "fmul", 0xDFC0F400, 0x5F009000),
    Encoding("asimdhp", "scvtf", 0x9FF0FC00, 0x0F10E400),
    Encoding("asimdhp", "fcvtzs", 0x9FF0FC00, 0x0F10FC00),
    Encoding("asimdhp", "scvtf", 0xDFF0FC00, 0x5F10E400),
    Encoding("asimdhp", "fcvtzs", 0xDFF0FC00, 0x5F10FC00),
    Encoding("asimdhp", "fmaxnmp", 0xFF7FFC00, 0x5E30C800),
    Encoding("asimdhp", "faddp", 0xFF7FFC00, 0x5E30D800),
    Encoding("asimdhp", "fmaxp", 0xFF7FFC00, 0x5E30F800),
    # Other vector arithmetic
    Encoding("asimdrdm", "sqrdmlah", 0xBF20F400, 0x2E008400),
    Encoding("asimdrdm", "sqrdmlah", 0xFF20F400, 0x7E008400),
    Encoding("asimdrdm", "sqrdmlah", 0xBF00D400, 0x2F00D000),
    Encoding("asimdrdm", "sqrdmlah", 0xFF00D400, 0x7F00D000),
    Encoding("asimddp", "sdot", 0x9FE0FC00, 0x0E809400),
    Encoding("asimddp", "sdot", 0x9FC0F400, 0x0F80E000),
    Encoding("i8mm", "usdot", 0xBFE0FC00, 0x0E809C00),
    Encoding("i8mm", "usdot", 0xBFC0F400, 0x0F80F000),
    Encoding("i8mm", "sudot", 0xBFC0F400, 0x0F00F000),
    Encoding("i8mm", "smmla", 0xDFE0FC00, 0x4E80A400),
    Encoding("i8mm", "usmmla", 0xFFE0FC00, 0x4E80AC00),
    Encoding("bf16", "bfdot", 0xBFE0FC00, 0x2E40FC00),
    Encoding("bf16", "bfdot", 0xBFC0F400, 0x0F40F000),
    Encoding("bf16", "bfmmla", 0xFFE0FC00, 0x6E40EC00),
    Encoding("bf16", "bfmlal", 0xBFE0FC00, 0x2EC0FC00),
    Encoding("bf16", "bfmlal", 0xBFC0F400, 0x0FC0F000),
    Encoding("bf16", "bfcvtn", 0xBFFFFC00, 0x0EA16800),
    Encoding("bf16", "bfcvt", 0xFFFFFC00, 0x1E634000),
    Encoding("fcma", "fcmla", 0xBF20E400, 0x2E00C400),
    Encoding("fcma", "fcadd", 0xBF20EC00, 0x2E00E400),
    Encoding("fcma", "fcmla", 0xBF009400, 0x2F001000),
    Encoding("asimdfhm", "fmlal", 0xBF60FC00, 0x0E20EC00),
    Encoding("asimdfhm", "fmlal2", 0xBF60FC00, 0x2E20CC00),
    Encoding("asimdfhm", "fmlal", 0xBFC0B400, 0x0F800000),
    Encoding("asimdfhm", "fmlal2", 0xBFC0B400, 0x2F808000),
    Encoding("jscvt", "fjcvtzs", 0xFFFFFC00, 0x1E7E0000),
    Encoding("frint", "frint32z", 0xFFBE7C00, 0x1E284000),
    Encoding("frint", "frint32z", 0x9FBFEC00, 0x0E21E800),
    # Scalable vectors and matrices
    Encoding("sve", "sve", 0x1E000000, 0x04000000),
    Encoding("svei8mm", "smmla", 0xFF20FC00, 0x45009800),
    Encoding("svei8mm", "usdot", 0xFFE0FC00, 0x44807800),
    Encoding("svei8mm", "usdot", 0xFFE0F800, 0x44A01800),
    Encoding("svebf16", "bfdot", 0xFFE0FC00, 0x64608000),
    Encoding("svebf16", "bfdot", 0xFFE0FC00, 0x64604000),
    Encoding("svebf16", "bfmmla", 0xFFE0FC00, 0x6460E400),
    Encoding("svebf16", "bfmlalb", 0xFFE0F800, 0x64E08000),
    Encoding("svebf16", "bfmlalb", 0xFFE0F000, 0x64E04000),
    Encoding("svebf16", "bfcvt", 0xFFFFE000, 0x658AA000),
    Encoding("svebf16", "bfcvtnt", 0xFFFFE000, 0x648AA000),
    Encoding("sve2", "smlalb", 0xFF208000, 0x44008000),
    Encoding("sve2", "smlalb", 0xFF20C000, 0x44004000, 0xFFE0FC00, 0x44807800),
    Encoding("sve2", "cdot", 0xFF20F000, 0x44001000),
    Encoding("sve2", "sqdmlalbt", 0xFF20F800, 0x44000800),
    Encoding("sve2", "saddlb", 0xFF200000, 0x45000000, 0xFF20FC00, 0x45009800),
    Encoding("sve2", "histseg", 0xFF200000, 0x45200000),
    Encoding("sve2", "mul", 0xFF20F000, 0x04206000),
    Encoding("sve2", "eor3", 0xFF20F800, 0x04203800),
    Encoding("sve2", "whilegt", 0xFF20EC00, 0x25200000),
    Encoding("sme", "sme", 0x9E000000, 0x80000000),
)


def found_in(words: NDArray[np.uint32]) -> Iterator[tuple[Encoding, NDArray[np.intp]]]:
    """Yield each encoding that occurs in the code, and the indexes of its words."""
    import numpy as np

    for encoding in ENCODINGS:
        hit = (words & np.uint32(encoding.mask)) == np.uint32(encoding.value)
        if encoding.but_mask:
            hit &= (words & np.uint32(encoding.but_mask)) != np.uint32(encoding.but_value)
        where = np.flatnonzero(hit)
        if len(where):
            yield encoding, where


# The C library picks these through an IFUNC symbol, by what the kernel says of the CPU:
# glibc, sysdeps/aarch64/multiarch.
_VARIANT = re.compile(r"_*(mem\w+?|str\w+?)_(?:a64fx|mops|mte|oryon1|sve|sve_mops|sve_zva64)")
# glibc tags memory only when a tunable asks for it and the CPU can: sysdeps/aarch64/libc-mtag.h.
_TAGGING = re.compile(
    r"__libc_mtag_\w+|_?_?(?:libc_)?(?:malloc|calloc|realloc|free|memalign|malloc_usable_size|pvalloc)"
    r"|(?:_int|_mid)_(?:malloc|free|realloc|memalign)(?:\.\w+)*|sysmalloc(?:\.\w+)*"
)
CHECKED_BY_LIBRARIES = frozenset({"mops", "mte", "sme", "sve"})
"""Features that C libraries use behind checks which only the names of functions show."""
# libgcc reads the vector length only for frames whose unwind table says that they use SVE.
_UNWINDING = re.compile(r"execute_stack_op|uw_\w+|_Unwind_\w+")
# The routines that the calling convention (AAPCS64, "SME support routines") asks for first look
# whether the CPU has SME: libgcc since 14, glibc since 2.41.
_SUPPORT_FOR_SME = re.compile(
    r"__(?:lib(?:c|gcc)_)?arm_(?:sme_state|tpidr2_save|tpidr2_restore|za_disable)"
)


class Symbols:
    """The functions of a program, by address.

    Args:
        functions: address and name of each.
        chosen: names of functions that are chosen at run time (``IFUNC``).
    """

    def __init__(self, functions: list[tuple[int, str]], chosen: frozenset[str]) -> None:
        import numpy as np

        functions = sorted(functions)
        self._addresses = np.array([address for address, _ in functions], dtype=np.uint64)
        self._names = [name for _, name in functions]
        self._chosen = chosen

    def names_at(self, addresses: NDArray[np.uint64]) -> list[str | None]:
        """Return the function that each address lies in; none where that is not known."""
        import numpy as np

        places = np.searchsorted(self._addresses, addresses, side="right")
        return [self._names[place - 1] if place else None for place in places]

    def is_chosen_at_run_time(self, name: str) -> bool:
        """Tell whether a function is one of several that the C library chooses from."""
        variant = _VARIANT.fullmatch(name)
        return variant is not None and variant[1] in self._chosen


def guarded(
    feature: str,
    words: NDArray[np.uint32],
    where: NDArray[np.intp],
    names: list[str | None],
    symbols: Symbols,
) -> NDArray[np.bool_]:
    """Tell of each use whether it is reached only where the CPU has the feature.

    Args:
        feature: in the words of ``/proc/cpuinfo``.
        where: the indexes of the words that use the feature.
        names: the function that each use lies in.
    """
    import numpy as np

    known = np.zeros(len(where), dtype=np.bool_)
    if feature == "atomics":
        known |= _follows_a_check(words, where)
    if feature == "mte":
        known |= _clears_tags_while_unwinding(words, where)
        known |= _each(names, lambda name: _TAGGING.fullmatch(name) is not None)
    if feature == "sve":
        known |= _each(names, lambda name: _UNWINDING.fullmatch(name) is not None)
    if feature in ("sme", "sve"):
        known |= _each(names, lambda name: _SUPPORT_FOR_SME.fullmatch(name) is not None)
    return known | _each(names, symbols.is_chosen_at_run_time)


def _each(names: list[str | None], holds: Callable[[str], bool]) -> NDArray[np.bool_]:
    import numpy as np

    answers = {name: name is not None and holds(name) for name in set(names)}
    return np.array([answers[name] for name in names], dtype=np.bool_)


def _follows_a_check(words: NDArray[np.uint32], where: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell of each use whether it follows ``ldrb w16, …; cbz w16, …``, as outline atomics do."""
    loads = (words[where - 2] & 0xFFC003FF) == 0x39400210
    branches = (words[where - 1] & 0xFF00001F) == 0x34000010
    answer: NDArray[np.bool_] = loads & branches & (where >= 2)
    return answer


def _clears_tags_while_unwinding(
    words: NDArray[np.uint32], where: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Tell of each use whether it is the loop ``stg x, [x]; add x, x, #16`` of LLVM's libunwind.

    It enters that loop only for frames that were compiled with memory tagging.
    """
    register = words[where] & 0x1F
    following = words[(where + 1) % len(words)]
    stores = words[where] == (0xD9200800 | register << 5 | register)
    adds = following == (0x91004000 | register << 5 | register)
    answer: NDArray[np.bool_] = stores & adds & (where + 1 < len(words))
    return answer
