"""Looks at a program's code before anything is copied to a board."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from armload.build.binary import FeatureUse
from armload.build.features import Encoding, Symbols, found_in, guarded
from armload.build.target import Target
from armload.build.vulkan import VULKAN_LOADER
from armload.core.errors import BuildError, DataError
from armload.core.files import beginning, require_file, sha256_of, unreadable
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    from elftools.elf.elffile import ELFFile
    from numpy.typing import NDArray

SHF_EXECINSTR = 4
PF_X = 1
_MAGIC = b"\x7fELF"
_IFUNC = "STT_LOOS"  # GNU's meaning of the first number that is left to systems
_ARCHITECTURES = {"AArch64": "aarch64", "x64": "x86_64"}


class Inspection(Value):
    """What a program file is.

    Attributes:
        path: the file.
        sha256: of the file.
        size_bytes: of the file.
        architecture: in the kernel's words, such as ``aarch64``; else in those of ELF.
        is_static: it needs neither a loader nor a library.
        interpreter: the loader that a dynamic program asks for.
        needed: the shared libraries that it asks for.
        glibc: the oldest version of that C library that has all it asks for, such as ``2.31``;
            empty where it asks for nothing of it.
        is_stripped: it carries neither symbols nor debug information.
        features: CPU features that its code uses, in the order of their names.
        prebuilt_in: the release of armload that it came with; empty where that is not known.
    """

    path: Path
    sha256: str
    size_bytes: int
    architecture: str
    is_static: bool
    interpreter: str | None
    needed: tuple[str, ...]
    glibc: str = ""
    is_stripped: bool
    features: tuple[FeatureUse, ...]
    prebuilt_in: str = ""


def inspect(path: Path) -> Inspection:
    """Read an ELF file and find the CPU features that its code uses."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    require_file(path, "program", "Correct the path.")
    try:
        with path.open("rb") as file:
            found = file.read(len(_MAGIC))
            if found != _MAGIC:
                raise DataError(
                    f"{path}: this is not an ELF program: it {beginning(found, _MAGIC, path)}.",
                    "Give a program compiled for Linux, such as one that 'armload build' prints.",
                )
            elf = ELFFile(file)
            interpreter, needed = _interpreter(elf), _needed(elf)
            names = [section.name for section in elf.iter_sections()]
            return Inspection(
                path=path,
                sha256=sha256_of(path),
                size_bytes=path.stat().st_size,
                architecture=_architecture(elf),
                is_static=interpreter is None and not needed,
                interpreter=interpreter,
                needed=needed,
                glibc=_glibc(elf),
                is_stripped=not any(
                    name == ".symtab" or name.startswith(".debug_") for name in names
                ),
                features=_features(elf),
            )
    except OSError as error:
        raise unreadable(path, error) from error
    except (ELFError, ValueError) as error:  # an offset or a name in it may make no sense
        raise DataError(
            f"{path}: this ELF file is damaged or truncated.", "Build, download or copy it again."
        ) from error


_OF_GLIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux-[a-z0-9_-]+)\.so\.[0-9]+")


def is_for_vulkan(needed: tuple[str, ...]) -> bool:
    """Tell whether a program needs nothing but Vulkan's loader and the C library glibc."""
    others = [each for each in needed if each != VULKAN_LOADER]
    return len(others) < len(needed) and all(map(_OF_GLIBC.fullmatch, others))


def check(inspection: Inspection, target: Target) -> None:
    """Make sure that the program runs on the target's CPU, and runs fast.

    Raises:
        BuildError: it does not; says which feature, where in the code, which target.
    """
    path = inspection.path
    if inspection.architecture != target.architecture:
        raise BuildError(
            f"{path}: it is built for {inspection.architecture}, and the target {target.name!r} is "
            f"{target.architecture}.",
            f"Build it with 'armload build --target {target.name}'.",
        )
    if not inspection.is_static and not is_for_vulkan(inspection.needed):
        raise BuildError(
            f"{path}: it needs a loader or shared libraries, which a board may not have.",
            "Link it with -static.",
        )
    if not inspection.is_stripped:
        raise BuildError(f"{path}: it contains symbols or debug information.", "Strip it.")
    used = {use.feature for use in inspection.features if not use.guarded}
    for use in inspection.features:
        if use.feature not in target.features and not use.guarded:
            place = f"{'in ' + use.symbol + ' ' if use.symbol else ''}at {use.address:#x}"
            raise BuildError(
                f"{path}: {use.count - use.guarded_count} instructions need the CPU feature "
                f"{use.feature!r}, the first {place} ({use.mnemonic}), and the target "
                f"{target.name!r} does not have it.",
                f"If that CPU has it, add it to 'features' in toolchains/{target.name}.yaml. "
                "Otherwise build the program for that target: armload build --target "
                f"{target.name}. If you did, check 'cpu', 'cflags' and 'cxxflags' in that file.",
            )
    for feature in target.must_use:
        if feature not in used:
            raise BuildError(
                f"{path}: no instruction uses the CPU feature {feature!r}, so the engine would be "
                f"slow on the target {target.name!r}.",
                f"Check 'cpu' and 'cflags' in toolchains/{target.name}.yaml: a compiler ignores a "
                "name that it does not know.",
            )


def _interpreter(elf: ELFFile) -> str | None:
    from elftools.elf.segments import InterpSegment

    for segment in elf.iter_segments():
        if isinstance(segment, InterpSegment):
            name: str = segment.get_interp_name()
            return name
    return None


def _needed(elf: ELFFile) -> tuple[str, ...]:
    from elftools.elf.dynamic import DynamicSegment

    return tuple(
        tag.needed  # type: ignore[attr-defined] # set at run time
        for segment in elf.iter_segments()
        if isinstance(segment, DynamicSegment)
        for tag in segment.iter_tags("DT_NEEDED")
    )


def _glibc(elf: ELFFile) -> str:
    from elftools.elf.gnuversions import GNUVerNeedSection

    named = [
        tuple(int(part) for part in match[1].split("."))
        for section in elf.iter_sections()
        if isinstance(section, GNUVerNeedSection)
        for _, versions in section.iter_versions()
        for version in versions
        if (match := re.fullmatch(r"GLIBC_([0-9.]+)", version.name))
    ]
    return ".".join(map(str, max(named, default=())))


def _architecture(elf: ELFFile) -> str:
    name: str = elf.get_machine_arch()
    return _ARCHITECTURES.get(name, name)


def _features(elf: ELFFile) -> tuple[FeatureUse, ...]:
    import numpy as np

    if _architecture(elf) != "aarch64":
        return ()
    symbols = _symbols(elf)
    found: dict[str, FeatureUse] = {}
    for address, code in _code(elf):
        words = np.frombuffer(code[: len(code) // 4 * 4], dtype="<u4")
        for encoding, where in found_in(words):
            use = _use(encoding, words, where, address, symbols)
            former = found.get(use.feature)
            if former is None:
                found[use.feature] = use
            else:
                first = min(former, use, key=lambda one: (one.guarded, one.address))
                found[use.feature] = first.model_copy(
                    update={
                        "count": former.count + use.count,
                        "guarded_count": former.guarded_count + use.guarded_count,
                    }
                )
    return tuple(found[feature] for feature in sorted(found))


def _use(
    encoding: Encoding,
    words: NDArray[np.uint32],
    where: NDArray[np.intp],
    address: int,
    symbols: Symbols,
) -> FeatureUse:
    """Return the use of one encoding in code that begins at ``address``."""
    import numpy as np

    addresses = (where * 4 + address).astype("uint64")
    names = symbols.names_at(addresses)
    is_guarded = guarded(encoding.feature, words, where, names, symbols)
    first = int(np.argmin(is_guarded))  # of False and True, the first False
    return FeatureUse(
        feature=encoding.feature,
        count=len(where),
        guarded_count=int(is_guarded.sum()),
        address=int(addresses[first]),
        mnemonic=encoding.mnemonic,
        symbol=names[first],
    )


def _symbols(elf: ELFFile) -> Symbols:
    from elftools.elf.sections import SymbolTableSection

    table = elf.get_section_by_name(".symtab")
    functions = []
    chosen = set()
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        kind = symbol["st_info"]["type"]
        if kind in {"STT_FUNC", _IFUNC} and symbol["st_shndx"] != "SHN_UNDEF":
            functions.append((symbol["st_value"], symbol.name))
            if kind == _IFUNC:
                chosen.add(symbol.name)
    return Symbols(functions, frozenset(chosen))


def _code(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    """Yield address and bytes of each part of the file that is executed."""
    sections = [
        section
        for section in elf.iter_sections()
        if section["sh_flags"] & SHF_EXECINSTR and section["sh_type"] == "SHT_PROGBITS"
    ]
    if sections:
        for section in sections:
            yield section["sh_addr"], section.data()
        return
    for segment in elf.iter_segments("PT_LOAD"):
        if segment["p_flags"] & PF_X:
            yield segment["p_vaddr"], segment.data()
