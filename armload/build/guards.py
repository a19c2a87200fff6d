"""Which uses of a CPU feature lie behind a check at run time, and so need no such CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
