"""Looks at a program's code before anything is copied to a board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from armload.build.binary import FeatureUse
from armload.build.features import features_used, joined
from armload.build.target import Target
from armload.core.errors import BuildError
from armload.core.files import sha256_of
from armload.core.values import Value

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

SHF_EXECINSTR = 4
PF_X = 1


class Inspection(Value):
    """What a program file is.

    Attributes:
        path: the file.
        sha256: of the file.
        size_bytes: of the file.
        architecture: such as ``AArch64``, as ELF's machine field says.
        is_static: it needs neither a loader nor a library.
        is_stripped: it carries neither symbols nor debug information.
        features: CPU features that its code uses, in the order of their names.
    """

    path: Path
    sha256: str
    size_bytes: int
    architecture: str
    is_static: bool
    is_stripped: bool
    features: tuple[FeatureUse, ...]


def inspect(path: Path) -> Inspection:
    """Read an ELF file and find the CPU features that its code uses.

    Raises:
        BuildError: it cannot be read, or is no ELF file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            return Inspection(
                path=path,
                sha256=sha256_of(path),
                size_bytes=path.stat().st_size,
                architecture=elf.get_machine_arch(),
                is_static=_is_static(elf),
                is_stripped=_is_stripped(elf),
                features=_features(elf),
            )
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror}.") from error
    except ELFError as error:
        raise BuildError(f"{path}: this is no ELF program: {error}.") from error


def check(inspection: Inspection, target: Target) -> None:
    """Make sure that the program runs on the target's CPU, and runs fast.

    Raises:
        BuildError: it does not; says which feature, where in the code, which target.
    """
    path = inspection.path
    if inspection.architecture != "AArch64":
        raise BuildError(
            f"{path}: it is built for {inspection.architecture}, not for AArch64.",
            "Build it with 'armload build'.",
        )
    if not inspection.is_static:
        raise BuildError(
            f"{path}: it needs a loader or shared libraries, which a board may not have.",
            "Link it with -static.",
        )
    if not inspection.is_stripped:
        raise BuildError(f"{path}: it carries symbols or debug information.", "Strip it.")
    uses = {use.feature: use for use in inspection.features}
    for use in inspection.features:
        if use.feature not in target.features and not use.guarded:
            raise BuildError(
                f"{path}: {use.count} instructions need the CPU feature {use.feature!r}, the "
                f"first at {use.address:#x} ({use.mnemonic}), and the target {target.name!r} "
                "does not have it.",
                f"If that CPU has it, add it to 'features' in toolchains/{target.name}.yaml; "
                "else take it out of 'cpu' or 'cflags' there.",
            )
    for feature in target.must_use:
        if feature not in uses:
            raise BuildError(
                f"{path}: no instruction uses the CPU feature {feature!r}, so the engine would be "
                f"slow on the target {target.name!r}.",
                f"Look at 'cpu' and 'cflags' in toolchains/{target.name}.yaml: "
                "a compiler ignores a name that it does not know.",
            )


def _is_static(elf: ELFFile) -> bool:
    from elftools.elf.dynamic import DynamicSegment

    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_INTERP":
            return False
        if isinstance(segment, DynamicSegment) and any(segment.iter_tags("DT_NEEDED")):
            return False
    return True


def _is_stripped(elf: ELFFile) -> bool:
    names = [section.name for section in elf.iter_sections()]
    return not any(name == ".symtab" or name.startswith(".debug_") for name in names)


def _features(elf: ELFFile) -> tuple[FeatureUse, ...]:
    import numpy as np

    if elf.get_machine_arch() != "AArch64":
        return ()
    found: dict[str, FeatureUse] = {}
    for address, code in _code(elf):
        words = np.frombuffer(code[: len(code) // 4 * 4], dtype="<u4")
        for use in features_used(words, address).values():
            found[use.feature] = joined(found.get(use.feature), use)
    return tuple(found[feature] for feature in sorted(found))


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
