"""Certificates for tests: an authority, servers and clients it signed, and foreign ones.

Created in milliseconds with elliptic curves; everything is valid for a day and for loopback only.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

STORE_PASSWORD = "changeit"
KEY_PASSWORD = "open-sesame"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key in PEM files."""

    cert: str
    key: str


@dataclass(frozen=True)
class Certificates:
    """Certificates for tests. `misnamed` is signed by `ca` for another host, `stranger` by another
    CA."""

    directory: Path
    ca: str
    other_ca: str
    server: Pair
    misnamed: Pair
    client: Pair
    locked_client: Pair
    stranger: Pair

    def key_store(self) -> Path:
        """Return the server's pair as the PKCS12 file of a genuine server."""
        path = self.directory / "server.p12"
        key = serialization.load_pem_private_key(Path(self.server.key).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        cert = x509.load_pem_x509_certificate(Path(self.server.cert).read_bytes())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"server", key, cert, None, serialization.BestAvailableEncryption(_STORE)
            )
        )
        return path

    def trust_store(self) -> Path:
        """Return the authority as the PKCS12 trust store of Java."""
        path = self.directory / "trust.p12"
        cert = x509.load_pem_x509_certificate(Path(self.ca).read_bytes())
        entry = pkcs12.PKCS12Certificate(cert, b"ca")
        path.write_bytes(
            pkcs12.serialize_java_truststore([entry], serialization.BestAvailableEncryption(_STORE))
        )
        return path


_STORE = STORE_PASSWORD.encode()
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def make_certificates(directory: Path) -> Certificates:
    ca, other = _Authority(directory, "ca"), _Authority(directory, "other-ca")
    return Certificates(
        directory,
        ca.file,
        other.file,
        server=ca.sign("server", LOOPBACK),
        misnamed=ca.sign("misnamed", ("elsewhere.example",)),
        client=ca.sign("client", ()),
        locked_client=ca.sign("locked", (), KEY_PASSWORD),
        stranger=other.sign("stranger", LOOPBACK),
    )


class _Authority:
    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._name, self._key.public_key(), self._key)
        builder = builder.add_extension(constraints, critical=True)
        cert = builder.add_extension(_SIGNS, critical=True).sign(self._key, hashes.SHA256())
        self.file = _write(directory / f"{name}.pem", _pem(cert))

    def sign(self, name: str, hosts: tuple[str, ...], password: str | None = None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key.public_key(), self._key)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        locked: serialization.KeySerializationEncryption = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
        )
        cert = builder.sign(self._key, hashes.SHA256())
        return Pair(
            _write(self._directory / f"{name}.pem", _pem(cert)),
            _write(self._directory / f"{name}.key", text),
        )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signed_by: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    """With what RFC 5280 demands; Python 3.13 looks."""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer,
        subject,
        key,
        x509.random_serial_number(),
        now - datetime.timedelta(hours=1),
        now + datetime.timedelta(days=1),
    )
    whose = x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key())
    own = x509.SubjectKeyIdentifier.from_public_key(key)
    return builder.add_extension(whose, critical=False).add_extension(own, critical=False)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tube-{name}")])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)
