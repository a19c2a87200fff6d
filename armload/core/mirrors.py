"""The package archives that this machine's own apt uses, and a disk too full for them."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from armload.core.errors import MissingToolError
from armload.core.values import Value

_FULL = re.compile(r"No space left on device|enough free space|Disk quota exceeded")


def in_english() -> dict[str, str]:
    """Return the environment in which a program's words are the ones that are looked for."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": ""}


def reports_full_disk(output: str) -> bool:
    """Say whether a program complains, in English, that the disk is full."""
    return _FULL.search(output) is not None


DEBIAN_SUITE = "trixie"
"""The one release that boards are made from on any Debian: its QEMU knows Cortex-A55."""


class PackageArchive(Value):
    """A distribution's package archive.

    Attributes:
        uri: as apt's sources name it.
        suite: the release to take packages from.
        components: parts of the archive.
        keyring: file with the keys that its signature is checked with.
        kernel: name of the package that depends on the newest kernel for virtual machines.
    """

    uri: str
    suite: str
    components: tuple[str, ...]
    keyring: Path
    kernel: str


class PackageSource(Value):
    """One entry of apt's sources that is in use."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""


def archives() -> list[PackageArchive]:
    """Return the archives worth asking, the likeliest first.

    A third party's archive may be among them; the signature check refuses it.
    """
    release = platform.freedesktop_os_release()
    kinds = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    if "ubuntu" in kinds:
        suite = release.get("UBUNTU_CODENAME") or release.get("VERSION_CODENAME", "")
        keyring = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
        components: tuple[str, ...] = ("main", "universe")
        kernel = "linux-image-virtual"
    elif "debian" in kinds:
        suite = DEBIAN_SUITE
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        components = ("main",)
        kernel = "linux-image-cloud-arm64"
    else:
        raise MissingToolError(
            f"What is missing comes in Debian packages, and {release.get('NAME', 'this')} is "
            "neither Debian nor Ubuntu.",
            "Copy an image folder from a Debian machine, and set ARMLOAD_IMAGES to it.",
        )
    found = [
        PackageArchive(uri=uri, suite=suite, components=components, keyring=keyring, kernel=kernel)
        for uri in distribution_uris(list(_machine_sources()), keyring)
    ]
    if not keyring.exists():
        package = keyring.stem.replace("ubuntu-archive", "ubuntu")
        raise MissingToolError(
            f"{keyring} is missing, which signs the distribution's packages.",
            f"Install it, then repeat the command: apt install {package}",
        )
    if not found:
        raise MissingToolError(
            "This machine's apt sources list no archive of the distribution itself.",
            "Add it to /etc/apt/sources.list.d, then repeat the command.",
        )
    return found


def parse_deb822(text: str) -> list[PackageSource]:
    """Read a ``.sources`` file: stanzas of ``Key: value`` lines."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[key] = f"{fields.get(key, '')} {line.strip()}"
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.strip().lower()
                fields[key] = value.strip()
        usable = "deb" in fields.get("types", "").split() and fields.get("enabled") != "no"
        if usable:
            found.append(
                PackageSource(
                    uris=tuple(fields.get("uris", "").split()),
                    suites=tuple(fields.get("suites", "").split()),
                    components=tuple(fields.get("components", "").split()),
                    signed_by=fields.get("signed-by", ""),
                )
            )
    return found


def parse_one_line(text: str) -> list[PackageSource]:
    """Read a ``.list`` file: lines such as ``deb [signed-by=…] URI suite component…``."""
    found = []
    pattern = re.compile(r"^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#\n]*)", re.MULTILINE)
    for options, uri, suite, components in pattern.findall(text):
        settings = dict(word.split("=", 1) for word in options.split() if "=" in word)
        found.append(
            PackageSource(
                uris=(uri,),
                suites=(suite,),
                components=tuple(components.split()),
                signed_by=settings.get("signed-by", ""),
            )
        )
    return found


def distribution_uris(sources: list[PackageSource], keyring: Path) -> list[str]:
    """Return the distribution's own archives: sources name its keyring, or none at all.

    Those that name it come first; security archives lack most packages and are left out.
    """
    family = keyring.name.split("-")[0]
    ranked: dict[str, int] = {}
    for source in sources:
        is_security = all("security" in suite or "/" in suite for suite in source.suites)
        if "main" not in source.components or is_security:
            continue
        if source.signed_by and f"{family}-archive" not in source.signed_by:
            continue
        for uri in source.uris:
            ranked.setdefault(uri, 0 if source.signed_by else 1)
    return sorted(ranked, key=lambda uri: ranked[uri])


def _machine_sources() -> Iterator[PackageSource]:
    question = ["L", "Dir::Etc::sourcelist/f", "P", "Dir::Etc::sourceparts/d"]
    answer = subprocess.run(
        ["apt-config", "shell", *question],
        env=in_english(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    settings = dict(word.split("=", 1) for word in shlex.split(answer))
    listing, parts = Path(settings["L"]), Path(settings["P"])
    files = [listing, *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    for path in files:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from (parse_deb822 if path.suffix == ".sources" else parse_one_line)(text)
