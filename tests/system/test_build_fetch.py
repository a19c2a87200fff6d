"""Fetching the source from a real package index on the loopback."""

from __future__ import annotations

import functools
import http.server
import io
import ipaddress
import os
import random
import ssl
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from armload.build.archive import Archive
from armload.core.errors import BuildError
from armload.core.files import sha256_of
from armload.core.places import cache_folder
from armload.core.progress import Silent

FILE = "llama_cpp_python-9.9.tar.gz"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextmanager
def served(folder: Path, encrypted: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve an index; yield its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        scheme = "http"
        if encrypted:
            scheme = "https"
            server.socket = encrypted.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package index with one source archive; yields the archive's path."""
    project = tmp_path / "index" / "simple" / "llama-cpp-python"
    project.mkdir(parents=True)
    (project / "index.html").write_text(f'<!DOCTYPE html><a href="{FILE}">{FILE}</a>')
    more = random.Random(1).randbytes(1 << 17)  # than is read at once
    with tarfile.open(project / FILE, "w:gz") as tar:
        for name, content in {"include/llama.h": b"header", "models/vocabulary.bin": more}.items():
            member = tarfile.TarInfo(f"llama_cpp_python-9.9/vendor/llama.cpp/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(tmp_path / "index") as address:
        monkeypatch.setenv("PIP_INDEX_URL", address)
        yield project / FILE


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key for 127.0.0.1 with a certificate that no authority has signed, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    private = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(key.private_bytes(*private) + signed.public_bytes(Encoding.PEM))
    return path


def test_two_builds_that_need_an_archive_at_once_fetch_it_once(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    really = _Quiet.do_GET

    def noting(handler: _Quiet) -> None:
        if handler.path.endswith(FILE):
            fetched.append(handler.path)
            time.sleep(0.5)  # so that the other one asks meanwhile
        really(handler)

    monkeypatch.setattr(_Quiet, "do_GET", noting)
    source = _archive(sha256=sha256_of(index))
    with ThreadPoolExecutor(2) as both:
        places = list(both.map(lambda _: source.provide(Silent()), range(2)))
    assert places[0] == places[1]
    assert (places[0] / "include").is_dir()
    assert len(fetched) == 1


def test_the_certificates_that_pip_trusts_are_trusted(
    index: Path, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with served(tmp_path / "index", context) as address:
        monkeypatch.setenv("PIP_INDEX_URL", address)
        source = _archive(sha256=sha256_of(index))
        with pytest.raises(BuildError, match="certificate verify failed"):
            source.provide(Silent())
        monkeypatch.setenv("PIP_CERT", str(certificate))
        assert (source.provide(Silent()) / "include").is_dir()


def _archive(**changes: str) -> Archive:
    values = {
        "name": "llama-cpp",
        "project": "llama-cpp-python",
        "version": "9.9",
        "sha256": "0" * 64,
        "folder": "vendor/llama.cpp",
    }
    return Archive.model_validate(values | changes)


def test_the_archive_comes_from_the_configured_index_and_is_unpacked_once(index: Path) -> None:
    source = _archive(sha256=sha256_of(index))
    folder = source.provide(Silent())
    assert (folder / "include" / "llama.h").read_text() == "header"
    assert list((cache_folder() / "sources").iterdir()) == [folder]
    index.unlink()
    assert source.provide(Silent()) == folder


def test_a_file_with_another_checksum_is_refused_and_thrown_away(index: Path) -> None:
    with pytest.raises(BuildError, match="was expected") as caught:
        _archive().provide(Silent())
    assert sha256_of(index) in caught.value.message
    assert list((cache_folder() / "sources").iterdir()) == []


def test_a_connection_that_drops_in_the_middle_is_made_again(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = index.read_bytes()
    asked: list[str | None] = []
    really = _Quiet.do_GET

    def dropping(handler: _Quiet) -> None:
        if not handler.path.endswith(FILE):
            really(handler)
            return
        asked.append(handler.headers["Range"])
        start = int((asked[-1] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        handler.wfile.write(content[start:] if start else content[: 1 << 16])

    monkeypatch.setattr(_Quiet, "do_GET", dropping)
    assert (_archive(sha256=sha256_of(index)).provide(Silent()) / "include").is_dir()
    assert asked == [None, f"bytes={1 << 16}-"]


def test_a_damaged_left_over_archive_is_fetched_again(index: Path) -> None:
    left = cache_folder() / "sources" / "llama-cpp-python-9.9.tar.gz"
    left.parent.mkdir(parents=True)
    left.write_bytes(index.read_bytes()[:20])
    assert (_archive(sha256=sha256_of(index)).provide(Silent()) / "include").is_dir()


def test_a_version_that_the_index_lacks_is_named(index: Path) -> None:
    with pytest.raises(BuildError, match=r"no source archive of llama-cpp-python 9\.8"):
        _archive(version="9.8").provide(Silent())


def test_a_project_that_the_index_lacks_is_named(index: Path) -> None:
    with pytest.raises(BuildError, match="no project 'llama-cpp-rust'"):
        _archive(project="llama-cpp-rust").provide(Silent())


def test_a_file_that_the_index_lists_and_does_not_have_is_one_clear_error(index: Path) -> None:
    index.unlink()
    with pytest.raises(BuildError, match="Cannot fetch"):
        _archive().provide(Silent())
    assert list((cache_folder() / "sources").iterdir()) == []


def test_an_index_that_speaks_no_known_format_is_one_clear_error(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = index.with_name("index.html")
    page.write_text('<meta name="pypi:repository-version" content="9.0">' + page.read_text())
    with pytest.raises(BuildError, match=r"Cannot fetch.*version \(9\.0\)"):
        _archive().provide(Silent())
    monkeypatch.setitem(_Quiet.extensions_map, ".html", "text/plain")
    with pytest.raises(BuildError, match=r"Cannot fetch.*'text/plain'"):
        _archive().provide(Silent())


@pytest.mark.parametrize("what", ["version", "project", "file", "format", "address"])
def test_a_password_in_the_index_s_address_is_never_shown(
    what: str, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = os.environ["PIP_INDEX_URL"].replace("://", "://someone:s3cret@")
    wanted = _archive()
    match what:
        case "version":
            wanted = _archive(version="9.8")
        case "project":
            wanted = _archive(project="llama-cpp-rust")
        case "file":
            index.unlink()
        case "format":
            monkeypatch.setitem(_Quiet.extensions_map, ".html", "text/plain")
        case "address":
            address = address.replace("s3cret", "s3cret/more")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    with pytest.raises(BuildError) as caught:
        wanted.provide(Silent())
    assert "s3cret" not in str(caught.value)
