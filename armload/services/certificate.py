"""The certificate that a service shows its clients: read, checked, and told of later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from armload.core.errors import UsageError
from armload.core.files import require_file, require_private
from armload.core.values import Value
from armload.services.version import Listening

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

_MOST_BYTES = 48 << 10
_LEAST_RSA_BITS = 2048
_CURVES = ("secp256r1", "secp384r1")
_SOON = timedelta(days=14)
_SOON_SHARE = 4


CertificateState = Literal["valid", "expires soon", "expired", "unreadable"]
"""The last: the service's file has none that this login can read."""


class Certificate(Value):
    """What a certificate says.

    Attributes:
        names: host names and addresses that it is for.
        begins_utc, ends_utc: between which it is valid, in ISO 8601.
        sha256: of its DER form, 64 hexadecimal digits.
    """

    names: tuple[str, ...]
    begins_utc: str
    ends_utc: str
    sha256: str

    def is_over(self, now: datetime) -> bool:
        return now >= datetime.fromisoformat(self.ends_utc)

    def is_soon_over(self, now: datetime) -> bool:
        """Say whether so little of its time is left that it ought to have been renewed."""
        ends = datetime.fromisoformat(self.ends_utc)
        whole = ends - datetime.fromisoformat(self.begins_utc)
        return ends - now < min(_SOON, whole / _SOON_SHARE)

    def state(self, now: datetime) -> CertificateState:
        if self.is_over(now):
            return "expired"
        return "expires soon" if self.is_soon_over(now) else "valid"

    def is_for(self, name: str) -> bool:
        """Say whether clients accept it under a host name or an address."""
        _, _, parent = name.partition(".")
        return name in self.names or (bool(parent) and f"*.{parent}" in self.names)


class TlsFiles(Value):
    """A certificate with its chain and its private key, as a service's file has them.

    Attributes:
        certificate: the service's own.
        pem: all of it, and the key, which is a secret.
        notes: what is to be known of it, in sentences.
    """

    certificate: Certificate
    pem: Annotated[str, Field(repr=False)]
    notes: tuple[str, ...] = ()

    def notes_for(self, listening: Listening) -> tuple[str, ...]:
        """Return what is to be known of it where a service listens so."""
        naming = naming_note(self.certificate, listening)
        return (*([naming] if naming else []), *self.notes)


def read_tls_files(certificate: Path, key: Path) -> TlsFiles:
    """Read and check a certificate with its chain, and its private key.

    Raises:
        UsageError: one cannot be read, they do not match, or clients would refuse them; says why.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    text = _content(certificate, "certificate", "--tls-certificate")
    try:
        chain = x509.load_pem_x509_certificates(text)
    except ValueError as error:
        raise UsageError(
            f"{certificate}: not a certificate in PEM format: {error}.",
            "Correct --tls-certificate: the file has a line -----BEGIN CERTIFICATE-----.",
        ) from error
    private = _private_key(key)
    own, *above = chain
    if _public(own.public_key()) != _public(private.public_key()):
        later = any(_public(each.public_key()) == _public(private.public_key()) for each in above)
        raise UsageError(
            f"{certificate}: its first certificate does not match the private key in {key}.",
            "Put the service's own certificate first, and those that issued it after it."
            if later
            else "Give the key that the certificate was issued for with --tls-key.",
        )
    described = described_certificate(own)
    _check_times(certificate, described)
    if not described.names:
        raise UsageError(
            f"{certificate}: it names neither a host nor an address (subjectAltName), so that "
            "every client refuses it.",
            "Have one issued for the name by which clients reach the service.",
        )
    content = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    content += private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return TlsFiles(
        certificate=described,
        pem=content.decode("ascii"),
        notes=tuple(_notes(chain)),
    )


def described_certificate(certificate: x509.Certificate) -> Certificate:
    """Return what a certificate says."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = [
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        ]
    except (x509.ExtensionNotFound, ValueError):
        hosts = []
    return Certificate(
        names=tuple(hosts),
        begins_utc=certificate.not_valid_before_utc.isoformat(timespec="seconds"),
        ends_utc=certificate.not_valid_after_utc.isoformat(timespec="seconds"),
        sha256=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def certificate_told(base64: str) -> Certificate | None:
    """Read the certificate that a board has told of; none where it cannot be one."""
    from cryptography import x509

    lines = f"-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n"
    try:
        return described_certificate(x509.load_pem_x509_certificate(lines.encode()))
    except ValueError:
        return None


def naming_note(certificate: Certificate, listening: Listening) -> str:
    """Say by which names clients have to reach a service; empty where its addresses will do."""
    shown = [each for each in listening.open_addresses if not ip_address(each).is_unspecified]
    lacking = [each for each in shown if not certificate.is_for(each)]
    if not lacking:
        return ""
    return (
        f"The certificate is for {', '.join(certificate.names)}, not for {', '.join(lacking)}: "
        "clients must use one of those names, which has to lead to the board."
    )


def service_url(listening: Listening, certificate: Certificate | None) -> str:
    """Return the URL of a service by which other machines reach it, or its loopback."""
    if not listening.with_tls:
        return f"http://{listening.words}"
    shown = listening.open_addresses
    fits = next((each for each in shown if certificate and certificate.is_for(each)), None)
    hosts = [] if certificate is None else [each for each in certificate.names if "*" not in each]
    if fits is None and hosts:
        return f"https://{hosts[0]}:{listening.port}"
    return f"https://{listening.words}"


def _content(path: Path, what: str, option: str) -> bytes:
    require_file(path, what, f"Correct the path of {option}.")
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"{path}: too large for a {what}.", f"Correct {option}.")
    try:
        return path.read_bytes()
    except PermissionError as error:
        raise UsageError(f"{path}: you may not read this file.", "Run it as its owner.") from error


def _private_key(path: Path) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    text = _content(path, "private key", "--tls-key")
    require_private(path, "private key", "have a new certificate issued.")
    try:
        key = serialization.load_pem_private_key(text, None)
    except TypeError as error:
        raise UsageError(
            f"{path}: this private key has a passphrase, which no board could type when it boots.",
            f"Remove it: openssl pkey -in {path} -out PLAIN.key && chmod 600 PLAIN.key",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path}: not a private key in PEM format: {error}.",
            "Correct --tls-key: the file has a line -----BEGIN PRIVATE KEY-----.",
        ) from error
    is_rsa = isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _LEAST_RSA_BITS
    is_curve = isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES
    if not is_rsa and not is_curve:
        raise UsageError(
            f"{path}: this kind of key is not one that all clients take.",
            f"Use RSA with at least {_LEAST_RSA_BITS} bits, or ECDSA with P-256 or P-384.",
        )
    return key


def _public(key: PublicKeyTypes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _check_times(path: Path, certificate: Certificate) -> None:
    now = datetime.now(UTC)
    if certificate.is_over(now):
        raise UsageError(
            f"{path}: this certificate expired on {certificate.ends_utc[:10]}.", "Renew it first."
        )
    if now < datetime.fromisoformat(certificate.begins_utc):
        raise UsageError(
            f"{path}: this certificate is not valid before {certificate.begins_utc[:10]}.",
            "Check the date of this machine, or use the certificate later.",
        )


def _notes(chain: Sequence[x509.Certificate]) -> list[str]:
    now = datetime.now(UTC)
    notes = []
    own = described_certificate(chain[0])
    if own.is_soon_over(now):
        notes.append(f"The certificate expires soon, on {own.ends_utc[:10]}.")
    for lower, upper in pairwise(chain):
        if lower.issuer != upper.subject:
            notes.append(
                "The certificates in the file are not in the order in which each is issued by the "
                "next; some clients refuse that."
            )
            break
    old = [each for each in chain[1:] if each.not_valid_after_utc <= now]
    if old:
        notes.append("An intermediate certificate in the file has expired; some clients refuse it.")
    if chain[0].issuer == chain[0].subject:
        notes.append(
            "The certificate is self-signed: clients must be given it as one that they trust."
        )
    elif len(chain) == 1:
        notes.append(
            "The file has no intermediate certificate. Unless clients know the issuer "
            f"({chain[0].issuer.rfc4514_string()}), use the full chain."
        )
    return notes
