"""What would be downloaded and installed, which a person is asked to agree to.

pip's report names each file but not its size. A wheel is a zip archive: its end says how large
its files are, so the end is all that is read of it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from armload.core.package_index import trusted_certificates
from armload.core.values import Value, format_bytes

_END_BYTES = 1 << 16
_END_RECORD = b"PK\5\6"
_AT_ONCE = 8
_TIMEOUT_S = 30
_UNPACKED_FACTOR = 4
"""Of a wheel whose end cannot be read: torch, transformers and numpy take 3 to 10 times theirs."""


class Download(Value):
    """A file that pip would install.

    Attributes:
        name: of the package.
        version: of the package.
        url: where it is.
        sha256: of the file; empty if the index does not say.
        size_bytes: of the file.
        unpacked_bytes: of what is in it.
        comparing: whether it goes into the folder that only the comparison sees.
    """

    name: str
    version: str
    url: str
    sha256: str
    size_bytes: int
    unpacked_bytes: int
    comparing: bool = False

    @property
    def requirement(self) -> str:
        """Return the line of a requirements file that means exactly this file."""
        return f"{self.name} @ {self.url}" + (f"#sha256={self.sha256}" if self.sha256 else "")


def read_report(report: Mapping[str, Any]) -> list[Download]:
    """Return what a report of ``pip install --dry-run --report`` names, with sizes.

    Raises:
        OSError: a file's size cannot be asked for.
    """
    certificates = trusted_certificates()
    entries: Sequence[Mapping[str, Any]] = report["install"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda entry: _download(entry, certificates), entries))


def _download(entry: Mapping[str, Any], certificates: str | None) -> Download:
    info = entry["download_info"]
    url = info["url"]
    size_bytes, end = _end_of(url, _END_BYTES, certificates)
    if (at := end.rfind(_END_RECORD)) >= 0:  # it says how long the archive's directory is
        directory_bytes = len(end) - at + int.from_bytes(end[at + 12 : at + 16], "little")
        if directory_bytes > len(end):
            _, end = _end_of(url, directory_bytes, certificates)
    return Download(
        name=entry["metadata"]["name"],
        version=entry["metadata"]["version"],
        url=url,
        sha256=info.get("archive_info", {}).get("hashes", {}).get("sha256", ""),
        size_bytes=size_bytes,
        unpacked_bytes=_unpacked(size_bytes, end),
    )


def _end_of(url: str, length: int, certificates: str | None) -> tuple[int, bytes]:
    """Return a file's size and its last bytes; none of them where the server sends no part."""
    address = urlsplit(url)
    if address.scheme == "file":
        path = Path(unquote(address.path))
        with path.open("rb") as file:
            size_bytes = path.stat().st_size
            file.seek(max(0, size_bytes - length))
            return size_bytes, file.read()
    import requests

    asked = {"Range": f"bytes=-{length}", "Accept-Encoding": "identity"}
    with requests.get(
        url, headers=asked, stream=True, timeout=_TIMEOUT_S, verify=certificates or True
    ) as answer:
        answer.raise_for_status()
        if answer.status_code != requests.codes.partial_content:
            return int(answer.headers.get("Content-Length", 0)), b""
        return int(answer.headers["Content-Range"].rpartition("/")[2]), answer.content


def _unpacked(size_bytes: int, end: bytes) -> int:
    try:
        # What is missing before the directory does not keep zipfile from reading it.
        with zipfile.ZipFile(io.BytesIO(end)) as archive:
            return sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError):
        return size_bytes * _UNPACKED_FACTOR


_ASSUMED_BYTES_PER_S = 10e6
_LARGEST_SHOWN = 3


class Proposal(Value):
    """What an environment would take.

    Attributes:
        place: its folder.
        downloads: every package.
    """

    place: Path
    downloads: tuple[Download, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.downloads)

    @property
    def unpacked_bytes(self) -> int:
        return sum(each.unpacked_bytes for each in self.downloads)

    @property
    def accelerator_bytes(self) -> int:
        """To download of libraries that only a graphics card uses."""
        return sum(
            each.size_bytes
            for each in self.downloads
            if each.name.startswith(("nvidia-", "cuda-")) or each.name == "triton"
        )

    @property
    def lines(self) -> list[str]:
        by_size = sorted(self.downloads, key=lambda each: each.size_bytes, reverse=True)
        largest = (
            f"{each.name} {format_bytes(each.size_bytes)}" for each in by_size[:_LARGEST_SHOWN]
        )
        minutes = max(1.0, self.size_bytes / _ASSUMED_BYTES_PER_S / 60)
        what = (
            f"The converters are {len(self.downloads)} packages that are not installed "
            f"({', '.join(largest)}, …)."
        )
        takes = (
            f"Download: {format_bytes(self.size_bytes)}, about {minutes:.0f} min at "
            f"{format_bytes(_ASSUMED_BYTES_PER_S)}/s. On the disk: "
            f"{format_bytes(self.unpacked_bytes)}, in {self.place}, until "
            "`armload clean --what converters`."
        )
        if not self.accelerator_bytes:
            return [what, takes]
        smaller = (
            f"{format_bytes(self.accelerator_bytes)} of the download are CUDA libraries, which "
            "converting does not use, but without which this build of torch does not start. "
            "To get a build without them, set PIP_EXTRA_INDEX_URL to PyTorch's own index of builds "
            "for CPU, as its installation page gives it, and repeat the command."
        )
        return [what, takes, smaller]
