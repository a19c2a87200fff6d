"""Certificates as people have them issued, by an authority of the tests' own."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Kind = Literal["ecdsa", "ecdsa-384", "rsa", "rsa-1024"]
_PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def _new_key(kind: Kind) -> _PrivateKey:
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if kind == "rsa-1024" else 2048)
    return ec.generate_private_key(ec.SECP384R1() if kind == "ecdsa-384" else ec.SECP256R1())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """Issues certificates through an intermediate authority, which servers have to send along."""

    def __init__(self) -> None:
        self._root_key, self._key = _new_key("ecdsa"), _new_key("ecdsa")
        self.root = self._issued("root", "root", self._root_key, self._root_key, is_authority=True)
        self.intermediate = self._issued(
            "intermediate", "root", self._key, self._root_key, is_authority=True
        )

    def _issued(
        self,
        subject: str,
        issuer: str,
        key: _PrivateKey,
        by: _PrivateKey,
        *,
        names: tuple[str, ...] = (),
        days: tuple[float, float] = (-1, 90),
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(subject))
            .issuer_name(_named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            san = x509.SubjectAlternativeName(list(map(_san, names)))
            builder = builder.add_extension(san, critical=False)
        return builder.sign(by, hashes.SHA256())

    def issue(
        self,
        folder: Path,
        *names: str,
        kind: Kind = "ecdsa",
        days: tuple[float, float] = (-1, 90),
        passphrase: bytes = b"",
    ) -> tuple[Path, Path]:
        """Write the files of a certificate with its chain, and of its private key."""
        key = _new_key(kind)
        own = self._issued("service", "intermediate", key, self._key, names=names, days=days)
        chain, private = folder / "chain.pem", folder / "private.key"
        chain.write_bytes(_pem(own) + _pem(self.intermediate))
        private.touch(0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(passphrase)
                if passphrase
                else serialization.NoEncryption(),
            )
        )
        return chain, private

    @property
    def pem(self) -> str:
        """What clients are to trust."""
        return _pem(self.root).decode()

    def context(self) -> ssl.SSLContext:
        """Return what a client trusts this authority with, and nobody else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.pem)
        return context


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(chain: Path) -> str:
    """Return the SHA-256 of the first certificate of a file."""
    own = x509.load_pem_x509_certificates(chain.read_bytes())[0]
    return own.fingerprint(hashes.SHA256()).hex()
