"""What every virtual board boots: a kernel, and the programs of its root file system.

The image folder holds ``kernel``, ``base.cpio`` and ``packages.json``. It depends on no
machine and may be copied to a workstation that has no apt; ``ARMLOAD_IMAGES`` names it there.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from armload.boards.virtual import storage
from armload.core.errors import DataError, MissingToolError
from armload.core.packages import Apt, Package, folder_written_whole, updated_apt
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value

_PURPOSE = "the virtual board's image"
_KERNEL_FILE = "kernel"
_BASE_FILE = "base.cpio"
_RECORD_FILE = "packages.json"

_USERLAND = ("mksh", "toybox", "dropbear-bin")
_PROGRAMS = ("mksh", "toybox", "dropbear")
_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4")
_CPIO_MAGIC = b"070701"


class Image(Value):
    """What a virtual board boots.

    Attributes:
        kernel: an arm64 kernel that QEMU can load.
        base: an archive with shell, tools, SSH server and kernel modules.
    """

    kernel: Path
    base: Path


def image_for_boards(progress: Progress) -> Image:
    """Return the image; make it from packages the first time."""
    given = os.environ.get("ARMLOAD_IMAGES")
    folder = Path(given) if given else cache_folder() / "images" / "toybox"
    if not given and not (folder / _RECORD_FILE).exists():
        _make(folder, progress)
    found = Image(kernel=folder / _KERNEL_FILE, base=folder / _BASE_FILE)
    for path in (found.kernel, found.base):
        if not path.is_file():
            raise DataError(
                f"{folder} is not an image folder: it has no file {path.name}.",
                "Copy the folder images/toybox from the cache of a machine where a virtual "
                "board has been started, or unset ARMLOAD_IMAGES.",
            )
    with found.base.open("rb") as file:
        intact = file.read(len(_CPIO_MAGIC)) == _CPIO_MAGIC and found.base.stat().st_size % 512 == 0
    if not intact or found.kernel.stat().st_size == 0:
        raise DataError(
            f"The image in {folder} is damaged.", "Delete that folder; it will be made again."
        )
    return found


def _make(folder: Path, progress: Progress) -> None:
    with (
        updated_apt("arm64", progress, purpose=_PURPOSE) as apt,
        folder_written_whole(folder) as fresh,
        tempfile.TemporaryDirectory(dir=fresh) as name,
    ):
        tree = Path(name)
        packages = [*apt.closure(_USERLAND), *_kernel_packages(apt)]
        apt.unpack(packages, tree, progress, purpose=_PURPOSE)
        with progress.step(f"Building {_PURPOSE}", total=2, unit="parts") as step:
            step.update(0, note="kernel")
            shutil.copyfile(_kernel(tree), fresh / _KERNEL_FILE)
            step.update(1, note="root file system")
            (fresh / _BASE_FILE).write_bytes(storage.archive(_entries(tree)))
            record = {"suite": apt.archive.suite, "packages": [item.file for item in packages]}
            (fresh / _RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            step.update(2)


def _kernel_packages(apt: Apt) -> list[Package]:
    """Follow the package that stands for the newest kernel to the ones that hold it.

    Their own dependencies, such as tools for making an initramfs, are not wanted.
    """
    names: set[str] = set()
    waiting = [apt.archive.kernel]
    while waiting:
        for name in apt.dependencies(waiting.pop()):
            if re.match(r"linux-(image|modules)-.*\d", name) and name not in names:
                names.add(name)
                waiting.append(name)
    return apt.alone(sorted(names))


def _kernel(tree: Path) -> Path:
    for path in sorted((tree / "boot").glob("vmlinuz-*")):
        return path
    raise MissingToolError("The kernel's package contains no kernel.")


def _entries(tree: Path) -> list[storage.ArchiveEntry]:
    folders = ("usr", "usr/bin", "usr/lib", "usr/lib/modules")
    entries = [storage.folder(name) for name in folders]
    programs = [_program(tree, name) for name in _PROGRAMS]
    entries += [
        storage.file(f"usr/bin/{path.name}", path.read_bytes(), permissions=0o755)
        for path in programs
    ]
    entries += [
        storage.file(f"usr/lib/{name}", path.read_bytes(), permissions=0o755)
        for name, path in sorted(_libraries(tree, programs).items())
    ]
    modules = _modules(tree)
    entries += [
        storage.file(f"usr/lib/modules/{name}.ko", content) for name, content in modules.items()
    ]
    order = "".join(f"{name}.ko\n" for name in modules)
    return [*entries, storage.file("usr/lib/modules/order", order.encode())]


def _program(tree: Path, name: str) -> Path:
    for folder in ("usr/bin", "usr/sbin", "bin", "sbin"):
        if (tree / folder / name).is_file():
            return tree / folder / name
    raise MissingToolError(f"The packages for the virtual board contain no program {name}.")


def _libraries(tree: Path, programs: Iterable[Path]) -> dict[str, Path]:
    """Return every library that the programs load, by the name that they load it by."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    places = {
        path.name: path
        for folder in ("lib", "usr/lib")
        for path in (tree / folder).rglob("*.so*")
        if path.parent.name == "lib" or "-linux-gnu" in path.parent.name
    }
    found: dict[str, Path] = {}
    waiting = list(programs)
    while waiting:
        with waiting.pop().open("rb") as file:
            dynamic = ELFFile(file).get_section_by_name(".dynamic")
            if not isinstance(dynamic, DynamicSection):
                continue  # a static program
            tags = dynamic.iter_tags("DT_NEEDED")
            names = [tag.needed for tag in tags]  # type: ignore[attr-defined] # set at run time
        for name in names:
            if name in found:
                continue
            if name not in places:
                raise MissingToolError(
                    f"The packages for the virtual board contain no library {name}."
                )
            found[name] = places[name].resolve()
            waiting.append(found[name])
    return found


def _modules(tree: Path) -> dict[str, bytes]:
    """Return the modules that must be loaded, dependencies first; some kernels build them in."""
    files = {
        path.name.split(".ko")[0].replace("-", "_"): path for path in sorted(tree.rglob("*.ko*"))
    }
    loaded: dict[str, bytes] = {}

    def load(name: str) -> None:
        if name in loaded or name not in files:
            return
        content = _uncompressed(files[name])
        match = re.search(rb"\0depends=([^\0]*)\0", content)
        for needed in (match.group(1) if match else b"").decode().split(","):
            load(needed.replace("-", "_"))
        loaded[name] = content

    for name in _MODULES:
        load(name)
    return loaded


def _uncompressed(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".ko":
        return path.read_bytes()
    raise MissingToolError(
        f"The kernel's module {path.name} is compressed in a way that armload cannot read."
    )
