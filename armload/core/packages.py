"""Distribution packages in private folders: fetched and checked by apt, installed nowhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from armload.core.errors import ArmloadError, DiskError, MissingToolError
from armload.core.files import CACHE_REMEDY
from armload.core.locks import locked
from armload.core.mirrors import PackageArchive, archives, in_english, reports_full_disk
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes

WITHOUT_APT = (
    "Install QEMU (with qemu-system-aarch64) and e2fsprogs, and set ARMLOAD_IMAGES to an image "
    "folder from a Debian machine."
)


class Package(Value):
    """One package as the archive has it.

    Attributes:
        name: the package's name.
        file: name of its ``.deb``.
        size_bytes: of that file.
    """

    name: str
    file: str
    size_bytes: int


class Apt:
    """The machine's apt, for one architecture, with all its state in a private folder.

    Args:
        architecture: Debian's name of it: ``arm64``, ``amd64``.
        archive: where packages come from.
        folder: for the state; exists.
    """

    def __init__(self, architecture: str, archive: PackageArchive, folder: Path) -> None:
        self.archive = archive
        self._folder = folder
        self._settings = self._folder / "apt.conf"
        lists, caches = self._folder / "lists", self._folder / "cache"
        for folder in (lists / "partial", caches / "archives" / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        sources = self._folder / "archive.sources"
        sources.write_text(
            f"Types: deb\nURIs: {archive.uri}\nSuites: {archive.suite}\n"
            f"Components: {' '.join(archive.components)}\nArchitectures: {architecture}\n"
            f"Targets: Packages\nSigned-By: {archive.keyring}\n",
            encoding="utf-8",
        )
        values = {
            "Dir::State::Lists": lists,
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": caches,
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Install-Recommends": "false",
            "APT::Get::Assume-Yes": "true",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Debug::NoLocking": "1",
        }
        # The machine's hooks would act on its own state, and its foreign architectures and its
        # release would be asked of this archive.
        cleared = (
            "APT::Architectures",
            "APT::Default-Release",
            "APT::Update",
            "DPkg::Post-Invoke",
            "DPkg::Pre-Install-Pkgs",
        )
        lines = [f"#clear {key};" for key in cleared]
        lines += [f'{key} "{value}";' for key, value in values.items()]
        self._settings.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def update(self) -> None:
        """Fetch the package lists.

        Raises:
            MissingToolError: no network, or the archive's signature is not the distribution's.
        """
        self._run("apt-get", "-o", "APT::Update::Error-Mode=any", "update")

    def closure(self, names: Sequence[str]) -> list[Package]:
        """Return packages with everything that they depend on."""
        return _parsed(self._run("apt-get", "--print-uris", "install", *names))

    def alone(self, names: Sequence[str]) -> list[Package]:
        return _parsed(self._run("apt-get", "--print-uris", "download", *names))

    def dependencies(self, name: str) -> list[str]:
        """Return the names of what a package depends on directly."""
        answer = self._run("apt-cache", "depends", "--important", name)
        return re.findall(r"^\s*\|?Depends: <?([^\s>]+)", answer, re.MULTILINE)

    def unpack(
        self, packages: Sequence[Package], into: Path, progress: Progress, *, purpose: str
    ) -> None:
        """Fetch packages, let apt check them, and unpack them into a folder.

        Args:
            purpose: what they are for, in the labels of the steps.
        """
        total_bytes = sum(package.size_bytes for package in packages)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="debs-") as name:
            folder = Path(name)
            what = f"{len(packages)} packages for {purpose}"
            label = f"Fetching {what} ({format_bytes(total_bytes)})"
            with progress.step(label, total=total_bytes, unit="B") as step:
                words = ["apt-get", "download", *(package.name for package in packages)]
                for _ in self._polled(words, folder):
                    step.update(_size_bytes(folder))
                step.update(total_bytes)
            debs = sorted(folder.glob("*.deb"))
            with progress.step(f"Unpacking {what}", total=len(debs), unit="packages") as step:
                for number, deb in enumerate(debs):
                    step.update(number, note=deb.name.split("_")[0])
                    _checked(["dpkg-deb", "-x", str(deb), str(into)], into)
                step.update(len(debs))

    def _run(self, program: str, *arguments: str) -> str:
        return _checked([program, "-q", "-c", str(self._settings), *arguments], self._folder)

    def _polled(self, words: list[str], folder: Path) -> Iterator[None]:
        command = [words[0], "-q", "-c", str(self._settings), *words[1:]]
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen(
                command,
                cwd=folder,
                env=in_english(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ) as process,
        ):
            try:
                while process.poll() is None:
                    yield
                    time.sleep(0.1)
            except BaseException:
                process.terminate()
                raise
            if process.returncode != 0:
                log.seek(0)
                raise _failure(command, log.read())


def native_architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    require_apt()
    return _checked(["dpkg", "--print-architecture"], Path("/")).strip()


def require_apt() -> None:
    for tool in ("apt-get", "apt-config", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise MissingToolError(
                f"{tool} is not installed, which fetches Debian packages.", WITHOUT_APT
            )


@contextmanager
def packages_locked(progress: Progress) -> Iterator[None]:
    """Keep other armload processes from fetching the same meanwhile."""
    waiting = "Another armload process is fetching packages; waiting for it."
    with locked(cache_folder() / "packages" / "lock", progress, waiting=waiting):
        yield


@contextmanager
def updated_apt(architecture: str, progress: Progress, *, purpose: str) -> Iterator[Apt]:
    """Yield an apt with fresh package lists from the first archive that answers well.

    Args:
        purpose: what packages are wanted for, in the label of the step.
    """
    require_apt()
    (cache_folder() / "packages").mkdir(parents=True, exist_ok=True)
    failures: list[MissingToolError] = []
    for archive in archives():
        with tempfile.TemporaryDirectory(dir=cache_folder() / "packages", prefix=".apt-") as name:
            apt = Apt(architecture, archive, Path(name).resolve())
            try:
                with progress.step(f"Reading the package lists for {purpose}"):
                    apt.update()
            except MissingToolError as error:
                failures.append(error)
                continue
            yield apt
            return
    raise MissingToolError(
        failures[0].message,
        f"Check the network and this machine's apt sources. One of them must have {architecture} "
        "packages, which Ubuntu keeps on a separate mirror.",
    )


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; move it to ``path`` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        beside.chmod(0o755)
        yield beside
        if path.exists():
            shutil.rmtree(path)
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _parsed(uris: str) -> list[Package]:
    lines = re.findall(r"^'[^']+' (\S+) (\d+)", uris, re.MULTILINE)
    return [
        Package(name=file.split("_")[0], file=file, size_bytes=int(size)) for file, size in lines
    ]


def _size_bytes(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # apt renames files while this looks
            continue
    return total


def _checked(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=in_english(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise _failure(command, done.stdout + done.stderr)
    return done.stdout


def _failure(command: list[str], output: str) -> ArmloadError:
    lines = [line for line in output.splitlines() if line.startswith(("E:", "Err:", "dpkg"))]
    reason = " ".join(lines[:3] or output.splitlines()[-1:])
    verb = next((word for word in command[1:] if word in ("update", "install", "download")), "")
    message = f"{' '.join(filter(None, (command[0], verb)))} failed: {reason}"
    if reports_full_disk(output):
        return DiskError(f"The disk of this machine is full: {message}", CACHE_REMEDY)
    return MissingToolError(
        message, "Check the network and this machine's apt sources, then repeat the command."
    )
