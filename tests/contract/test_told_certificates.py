"""A service's certificate is told on every kind of host, and never its key."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.host import Host
from armload.core.shell import quote
from armload.services.state import installed_services
from tests.certificates import Authority


@pytest.fixture
def service(host: Host, workdir: PurePosixPath) -> PurePosixPath:
    folder = workdir / "services" / "tutor"
    assert host.run(f"mkdir -p {quote(folder / 'versions' / 'a')}").status == 0
    return folder


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lines", "CRLF"])
def test_the_first_certificate_of_the_file_is_told(
    host: Host, workdir: PurePosixPath, service: PurePosixPath, tmp_path: Path, end: bytes
) -> None:
    chain, key = Authority().issue(tmp_path, "board.example")
    text = chain.read_bytes() + key.read_bytes()
    host.write(service / "tls.pem", [text.replace(b"\n", end)])
    (told,) = installed_services(host, workdir)
    assert told.certificate is not None
    assert told.certificate.names == ("board.example",)


@pytest.mark.parametrize("text", [b"", b"no certificate\n", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_file_without_one_is_told_as_such(
    host: Host, workdir: PurePosixPath, service: PurePosixPath, text: bytes
) -> None:
    host.write(service / "tls.pem", [text])
    (told,) = installed_services(host, workdir)
    assert told.certificate is None
