"""Certificates for a test's own servers, made when they are needed: nothing secret lies in the repository."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NAMES = ("localhost", "model.test", "xn--bcher-kva.test")
_DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates; `file` is what SSL_CERT_FILE names to trust them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Test Authority")])
        self.file = folder / "authority.pem"
        certificate = self._built(self._name, self._key.public_key(), 0).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def server(self, *names: str, days_ago: int = 0) -> ssl.SSLContext:
        """What a server needs: a certificate for the names and addresses that was made so many days ago, for two."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Test Server")])
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names or NAMES]
        if not names:
            alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
        built = self._built(subject, key.public_key(), days_ago).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        file = self._folder / f"{'-'.join(names) or 'server'}-{days_ago}.pem"
        file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, form, plain) + _pem(built.sign(self._key, hashes.SHA256()))
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def _built(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days_ago: int) -> x509.CertificateBuilder:
        begins = dt.datetime.now(dt.UTC) - (days_ago + 1) * _DAY
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + 2 * _DAY)
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
