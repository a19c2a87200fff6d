"""The files that a build host needs, in one archive."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from pathlib import Path

from armload.build.order import native_folder, overlay_folder, own_files
from armload.build.source import BUILT_PARTS
from armload.core.files import written_whole
from armload.core.progress import Progress


def pack(source: Path, archive: Path, progress: Progress) -> None:
    """Write what a build takes to ``archive``: the same files give the same bytes.

    It holds ``engine/`` (llama.cpp), ``overlay/`` (our CMake project) and ``native/`` (the
    trace's sources).
    """
    files = [
        *(("engine", source, file) for file in _files(source)),
        *(("overlay", overlay_folder(), file) for file in own_files(overlay_folder())),
        *(("native", native_folder(), file) for file in own_files(native_folder())),
    ]
    with (
        progress.step("Packing the source", total=len(files), unit="files") as step,
        written_whole(archive) as beside,
        beside.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for count, (name, folder, file) in enumerate(files):
            member = tarfile.TarInfo(f"{name}/{file.relative_to(folder).as_posix()}")
            with file.open("rb") as content:
                member.size = file.stat().st_size
                member.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
                tar.addfile(member, content)
            step.update(count + 1)


def _files(source: Path) -> Iterator[Path]:
    for part in BUILT_PARTS:
        top = source / part
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_file():
                yield file
