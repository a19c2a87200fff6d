"""What a build for GPUs needs here: Vulkan's headers and shader compiler, from Debian packages."""

from __future__ import annotations

from pathlib import Path

from armload.core.errors import MissingToolError
from armload.core.packages import (
    folder_written_whole,
    native_architecture,
    packages_locked,
    updated_apt,
)
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value

VULKAN_LOADER = "libvulkan.so.1"
"""The library by which programs find a board's drivers."""

GLIBC = "2.31"
"""The oldest C library that such programs run with: that of Debian 11, Ubuntu 20.04, JetPack 5."""

_FOLDER = "vulkan-1"
_COMPILER = "glslc"
_HEADERS = ("libvulkan-dev", "spirv-headers")
_RECORD = "packages.txt"
_SCRIPT = """\
#!/bin/sh
folder=${0%/*}
for loader in "$folder"/usr/lib/*/ld-linux-*.so.*; do
  exec "$loader" --library-path "${loader%/*}" "$folder/usr/bin/glslc" "$@"
done
"""


class VulkanTools(Value):
    """Headers and shader compiler.

    Attributes:
        folder: with ``glslc`` and ``usr``.
        packages: that they came in, each with its version.
    """

    folder: Path
    packages: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Says all that decides which shaders come out."""
        return " ".join(self.packages)


def vulkan_tools(progress: Progress) -> VulkanTools:
    """Return them; fetch them the first time.

    Raises:
        MissingToolError: they are not there, and cannot be had on this machine.
    """
    folder = cache_folder() / "packages" / _FOLDER
    record = folder / _RECORD
    if not record.is_file():
        try:
            with packages_locked(progress):
                if not record.is_file():
                    _fetch(folder, progress)
        except MissingToolError as error:
            raise MissingToolError(
                f"--backend vulkan: shaders are compiled by Debian's glslc. {error.message}",
                "Build on a machine with Debian or Ubuntu and a network connection.",
            ) from error
    packages = record.read_text(encoding="utf-8").split()
    return VulkanTools(folder=folder, packages=tuple(packages))


def _fetch(folder: Path, progress: Progress) -> None:
    purpose = "compiling shaders"
    with (
        updated_apt(native_architecture(), progress, purpose=purpose) as apt,
        folder_written_whole(folder) as fresh,
    ):
        packages = [*apt.closure((_COMPILER,)), *apt.alone(_HEADERS)]
        apt.unpack(packages, fresh, progress, purpose=purpose)
        script = fresh / _COMPILER
        script.write_text(_SCRIPT, encoding="utf-8")
        script.chmod(0o755)
        # Of the others, none has a part in what is compiled.
        names = sorted(
            each.file.removesuffix(".deb")
            for each in packages
            if each.name in (_COMPILER, "libshaderc1", *_HEADERS)
        )
        (fresh / _RECORD).write_text("\n".join(names) + "\n", encoding="utf-8")
