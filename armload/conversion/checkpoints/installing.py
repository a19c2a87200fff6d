"""The converters' packages, installed into an environment of their own when first needed."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from armload.conversion.checkpoints.environment import (
    COMPARING,
    Environment,
    FailedProgramError,
    Packages,
)
from armload.conversion.checkpoints.proposal import Download, Proposal, read_report
from armload.core.cache import CacheItem, CacheKind, disk_usage, entries, is_left_over, left_over
from armload.core.errors import ArmloadError, ConnectError, DiskError, MissingToolError, UsageError
from armload.core.files import CACHE_REMEDY, require_room, write_whole, written_in
from armload.core.locks import locked
from armload.core.package_index import without_login
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import ValueList, format_bytes

KIND = "converters"
_RECORD = "packages.json"
_SPARE_BYTES = 200_000_000
_QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}


@contextmanager
def environment(
    packages: Packages, agree: Callable[[Proposal], bool], progress: Progress
) -> Iterator[Environment]:
    """Hold the converters' environment; make it if it is missing and ``agree`` says so."""
    folder = cache_folder() / KIND
    place = folder / packages.environment_id
    waiting = "Another armload process is converting a checkpoint."
    with written_in(folder), locked(place.with_suffix(".lock"), progress, waiting=waiting) as lock:
        if not ((place / _RECORD).is_file() and _python(place).exists()):
            _make(packages, place, lock, agree, progress)
        yield Environment(python=_python(place), lock=lock)


def converter_kinds() -> tuple[CacheKind, ...]:
    return (
        CacheKind(
            name=KIND,
            what="packages that convert checkpoints",
            again="a download of 300 MB, or 3 GB where torch comes with CUDA",
            read=_installed,
        ),
    )


def _installed() -> Iterator[CacheItem]:
    for path in entries(KIND):
        if path.suffix != ".lock" and not is_left_over(path):
            in_use = {path.with_suffix(".lock"): "another armload process is converting with it"}
            yield CacheItem(
                label=path.stem,
                paths=(path,),
                size_bytes=disk_usage([path]),
                locks=partial(dict, in_use),
            )
    yield from left_over(KIND)


def _python(place: Path) -> Path:
    return place / "bin" / "python"


def _make(
    packages: Packages,
    place: Path,
    lock: int,
    agree: Callable[[Proposal], bool],
    progress: Progress,
) -> None:
    unfinished = place.with_suffix(".partial")
    for former in (place, unfinished):
        shutil.rmtree(former, ignore_errors=True)
    try:
        with progress.step("Looking up the converters' packages in the package index"):
            _make_empty(unfinished, packages.pip, lock)
            proposal = Proposal(place=place, downloads=_resolved(packages, unfinished, lock))
        # pip keeps what it downloads until it is unpacked, and then in its own cache.
        needed = proposal.unpacked_bytes + proposal.size_bytes + _SPARE_BYTES
        need = f"The packages that convert checkpoints need {format_bytes(needed)}"
        require_room(place.parent, needed, f"{need} during installation", CACHE_REMEDY)
        if not agree(proposal):
            raise UsageError(
                "The packages that convert checkpoints are not installed, so nothing was "
                "converted.",
                "Repeat the command with --yes to install them without being asked.",
            )
        _install(proposal.downloads, unfinished, lock, progress)
        record = ValueList[Download](proposal.downloads)
        write_whole(unfinished / _RECORD, record.model_dump_json(indent=1).encode())
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _make_empty(place: Path, pip: str, lock: int) -> None:
    made = subprocess.run(
        [sys.executable, "-P", "-m", "venv", str(place)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if made.returncode != 0:
        said = (made.stderr or made.stdout).strip().splitlines()
        raise MissingToolError(
            f"{sys.executable} cannot make a virtual environment: {said[-1] if said else ''}",
            "Install Python's venv (on Debian and Ubuntu: apt install python3-venv).",
        )
    _pip(place, ["install", "--quiet", f"pip=={pip}"], lock)


def _resolved(packages: Packages, place: Path, lock: int) -> tuple[Download, ...]:
    report = place / "report.json"
    look = [
        *("install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:"),
        # Without it pip downloads whole wheels to read what they require.
        "--use-feature=fast-deps",
        *("--report", str(report)),
    ]
    found: list[Download] = []
    for words, comparing in (
        (packages.packages, False),
        (("--no-deps", *packages.alone), False),
        (("--no-deps", *packages.comparing), True),
    ):
        _pip(place, [*look, *words], lock)
        try:
            each = read_report(json.loads(report.read_text(encoding="utf-8")))
            found += [one.model_copy(update={"comparing": comparing}) for one in each]
        except OSError as error:
            raise ConnectError(
                f"The package index does not say how large a file is: {without_login(str(error))}.",
                "Check the network and pip's index-url and cert, then repeat the command.",
            ) from error
    return tuple(found)


def _install(downloads: Sequence[Download], place: Path, lock: int, progress: Progress) -> None:
    total = sum(each.size_bytes for each in downloads)
    sizes = {unquote(each.url.rpartition("/")[2]): each.size_bytes for each in downloads}
    begun: list[str] = []
    with progress.step("Installing the converters", total=total, unit="B") as step:

        def watch(line: str) -> None:
            word = line.split(maxsplit=1)[0]
            if word == "Installing":
                step.update(total, note="unpacking")
            elif word in {"Collecting", "Processing"}:  # what came before has arrived
                step.update(sum(sizes[name] for name in begun))
                begun.extend(name for name in sizes if name in unquote(line))

        for comparing, target in ((False, []), (True, ["--target", str(place / COMPARING)])):
            wanted = place / "requirements.txt"
            lines = [each.requirement for each in downloads if each.comparing == comparing]
            wanted.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            words = ["install", "--no-deps", "--no-compile", *target, "-r", str(wanted)]
            if lines:
                _pip(place, words, lock, watch)


def _pip(
    place: Path, words: Sequence[str], lock: int, watch: Callable[[str], None] | None = None
) -> None:
    try:
        Environment(python=_python(place), lock=lock).run(
            ["-I", "-m", "pip", *words],
            folder=place,
            variables=_QUIET,
            watch=watch or (lambda _: None),
        )
    except FailedProgramError as error:
        raise _pip_failure(error) from error


def _pip_failure(error: FailedProgramError) -> ArmloadError:
    shown = without_login(error.shown)
    if "No space left on device" in shown:
        return DiskError("The disk is full while the converters are installed.", CACHE_REMEDY)
    if "No matching distribution found" in shown:
        python = f"Python {platform.python_version()} on {sys.platform} {platform.machine()}"
        return MissingToolError(
            f"The package index has no build of a package that the converters need for {python}:\n"
            f"{shown}",
            "Install armload with Python 3.11, 3.12 or 3.13, or convert on another machine.",
        )
    return ConnectError(
        f"pip could not install the packages that convert checkpoints:\n{shown}",
        "Check the network and pip's index-url and cert, then repeat the command: what was "
        "downloaded is kept in pip's cache.",
    )
