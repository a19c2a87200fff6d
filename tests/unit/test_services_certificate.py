"""Certificates of services: what is refused, what is said of them, and their file on a board."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.host import Completed
from armload.boards.local import LocalHost
from armload.core.errors import UsageError
from armload.core.shell import render
from armload.services.certificate import (
    Certificate,
    TlsFiles,
    certificate_told,
    read_tls_files,
    service_url,
)
from armload.services.listening import WantedAddress, choose_listening, exposed_addresses
from armload.services.state import parse_services
from armload.services.tls_file import confirm_tls_file, put_back_tls_file, write_tls_file
from armload.services.version import Listening, ServiceLayout
from tests.certificates import Authority, Kind, fingerprint

PUBLIC = "8.8.8.8"
OUTER = Listening(addresses=("127.0.0.1", "192.168.1.20"), port=8443, with_tls=True)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize("kind", ["ecdsa", "ecdsa-384", "rsa"])
def test_a_certificate_its_chain_and_its_key_become_one_file(
    authority: Authority, tmp_path: Path, kind: Kind
) -> None:
    chain, key = authority.issue(tmp_path, "llm.example.org", "192.168.1.20", "fd00::1", kind=kind)
    chain.write_text(f"Some words of its issuer\n{chain.read_text()}")
    files = read_tls_files(chain, key)
    assert files.certificate.names == ("llm.example.org", "192.168.1.20", "fd00::1")
    assert files.certificate.sha256 == fingerprint(chain)
    assert files.certificate.state(datetime.now(UTC)) == "valid"
    assert files.pem.count("BEGIN CERTIFICATE") == 2
    assert files.pem.count("BEGIN PRIVATE KEY") == 1
    assert "words" not in files.pem
    assert files.notes == ()
    assert repr(files).count("PRIVATE") == 0


@pytest.mark.parametrize(
    ("names", "days", "kind", "problem"),
    [
        (["a.example.org"], (-20, -1), "ecdsa", "expired on"),
        (["a.example.org"], (1, 20), "ecdsa", "not valid before"),
        (["a.example.org"], (-1, 20), "rsa-1024", "this kind of key"),
        ([], (-1, 20), "ecdsa", "it names neither a host nor an address"),
    ],
)
def test_a_certificate_that_clients_would_refuse_is_refused(
    authority: Authority,
    tmp_path: Path,
    names: list[str],
    days: tuple[float, float],
    kind: Kind,
    problem: str,
) -> None:
    chain, key = authority.issue(tmp_path, *names, days=days, kind=kind)
    with pytest.raises(UsageError, match=problem):
        read_tls_files(chain, key)


def test_files_that_do_not_belong_together_are_refused(
    authority: Authority, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    chain, key = authority.issue(tmp_path, "a.example.org")
    _, other_key = authority.issue(other, "a.example.org")
    with pytest.raises(UsageError, match="does not match the private key") as caught:
        read_tls_files(chain, other_key)
    assert "--tls-key" in (caught.value.remedy or "")
    parts = chain.read_text().partition("-----END CERTIFICATE-----\n")
    chain.write_text(parts[2] + parts[0] + parts[1])
    with pytest.raises(UsageError, match="does not match") as caught:
        read_tls_files(chain, key)
    assert "first" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("mode", "content", "passphrase", "problem"),
    [
        (0o640, None, b"", "other users of this machine can read this private key"),
        (0o600, b"no key", b"", "not a private key"),
        (0o600, b"x" * 100_000, b"", "too large"),
        (0o600, None, b"secret", "has a passphrase"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused(
    authority: Authority,
    tmp_path: Path,
    mode: int,
    content: bytes | None,
    passphrase: bytes,
    problem: str,
) -> None:
    chain, key = authority.issue(tmp_path, "a.example.org", passphrase=passphrase)
    if content is not None:
        key.write_bytes(content)
    key.chmod(mode)
    with pytest.raises(UsageError, match=problem):
        read_tls_files(chain, key)


def test_files_that_are_no_certificates_are_refused(authority: Authority, tmp_path: Path) -> None:
    chain, key = authority.issue(tmp_path, "a.example.org")
    with pytest.raises(UsageError, match=r"chain\.pem\.gone"):
        read_tls_files(tmp_path / "chain.pem.gone", key)
    for content in (b"", key.read_bytes(), chain.read_bytes()[:200]):
        chain.write_bytes(content)
        with pytest.raises(UsageError, match="not a certificate in PEM format"):
            read_tls_files(chain, key)


def test_what_some_clients_refuse_is_said(authority: Authority, tmp_path: Path) -> None:
    chain, key = authority.issue(tmp_path, "a.example.org", days=(-80, 5))
    own, end, _ = chain.read_text().partition("-----END CERTIFICATE-----\n")
    chain.write_text(own + end)
    soon, alone = read_tls_files(chain, key).notes
    assert "expires soon" in soon
    assert "no intermediate certificate" in alone


@pytest.mark.parametrize(
    ("lasts_days", "left_days", "state"),
    [
        (90, 60, "valid"),
        (90, 14.5, "valid"),
        (90, 13, "expires soon"),
        (6, 2, "valid"),
        (6, 1, "expires soon"),
        (6, 0, "expired"),
        (90, -1, "expired"),
    ],
)
def test_how_long_a_certificate_is_valid(lasts_days: float, left_days: float, state: str) -> None:
    now = datetime.now(UTC)
    ends = now + timedelta(days=left_days)
    found = Certificate(
        names=("a",),
        begins_utc=(ends - timedelta(days=lasts_days)).isoformat(),
        ends_utc=ends.isoformat(),
        sha256="",
    )
    assert found.state(now) == state


@pytest.mark.parametrize(
    ("names", "url", "is_named"),
    [
        (("192.168.1.20",), "https://192.168.1.20:8443", True),
        (("a.example.org", "192.168.1.20"), "https://192.168.1.20:8443", True),
        (("*.example.org", "a.example.org"), "https://a.example.org:8443", False),
        (("*.example.org",), "https://192.168.1.20:8443", False),
    ],
)
def test_the_url_has_a_name_that_the_certificate_has(
    authority: Authority, tmp_path: Path, names: tuple[str, ...], url: str, *, is_named: bool
) -> None:
    files = read_tls_files(*authority.issue(tmp_path, *names))
    assert service_url(OUTER, files.certificate) == url
    assert (files.notes_for(OUTER) == ()) is is_named
    plain = OUTER.model_copy(update={"with_tls": False})
    assert service_url(plain, None) == "http://192.168.1.20:8443"


class Addressed(LocalHost):
    """A board on the internet."""

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if "ip -o addr" in command:
            said = f"2: eth0    inet {PUBLIC}/24 scope global eth0\n"
            return Completed(status=0, stdout=said.encode(), stderr=b"")
        return super().run(command, stdin=stdin, timeout_s=timeout_s)


@pytest.mark.parametrize("where", [PUBLIC, "0.0.0.0", "eth0", "8.8.8.0/24"])
def test_the_internet_reaches_a_service_only_where_that_is_wanted(where: str) -> None:
    host, wanted = Addressed("kitchen"), WantedAddress(where=where, port=None)
    for with_tls in (False, True):
        with pytest.raises(UsageError, match="can be reached from the internet") as caught:
            choose_listening(host, wanted, {}, with_tls=with_tls)
        assert "--public with --tls-certificate" in (caught.value.remedy or "")
    found = choose_listening(host, wanted, {}, with_tls=True, may_be_public=True)
    assert set(found.open_addresses) <= {PUBLIC, "0.0.0.0"}
    assert found.open_addresses
    assert exposed_addresses(host, found) == ()


def test_the_loopback_needs_no_tls() -> None:
    with pytest.raises(UsageError, match="nothing to encrypt"):
        choose_listening(Addressed("kitchen"), None, {}, with_tls=True)


def told(host: LocalHost, layout: ServiceLayout) -> Certificate | None:
    """Return the certificate that a board tells of a service."""
    script = render("service/tell.sh.j2", {"services": layout.folder.parent})
    (found,) = parse_services(host.run(script).text.splitlines(), host.name)
    return found.certificate


def test_a_file_on_a_board_is_replaced_in_one_step_and_can_be_put_back(
    authority: Authority, tmp_path: Path
) -> None:
    host = LocalHost("kitchen")
    layout = ServiceLayout(workdir=PurePosixPath(tmp_path / "it's $(id)"), name="tutor")
    folder = Path(layout.folder)
    (folder / "versions").mkdir(parents=True)
    assert told(host, layout) is None
    read: list[TlsFiles] = []
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        chain, key = authority.issue(place, "a.example.org", kind=("ecdsa", "rsa")[number])
        read.append(read_tls_files(chain, key))
    first, second = read
    own = folder / "tls.pem"
    write_tls_file(host, layout, first)
    assert own.read_text() == first.pem
    assert own.stat().st_mode & 0o777 == 0o600
    assert told(host, layout) == first.certificate
    assert not list((folder / "versions").iterdir())
    write_tls_file(host, layout, second)
    assert told(host, layout) == second.certificate
    put_back_tls_file(host, layout)
    assert own.read_text() == first.pem
    write_tls_file(host, layout, second)
    confirm_tls_file(host, layout)
    assert own.read_text() == second.pem
    assert not list((folder / "versions").iterdir())
    own.write_text(second.pem.partition("-----BEGIN PRIVATE")[2])  # by hand
    assert told(host, layout) is None


def test_what_a_board_tells_of_a_certificate_is_checked() -> None:
    for line in ("", "AAAA", "?" * 100, "A" * 100_000):
        assert certificate_told(line) is None
