"""TLS between processes that trust one store: the owner makes a certificate, and its claim has the fingerprint.

Nobody signs the certificate but itself, and nothing in it is read: a follower compares the SHA-256 digest of its bytes
with that of the claim, and TLS proves that the other side has its key. Key and certificate last as long as the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import ssl
from datetime import UTC, datetime
from tempfile import NamedTemporaryFile

from boatlift.errors import InvalidError

_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)  # no clock matters


class OwnCertificate:
    """A new key, and a certificate of it.

    Attributes:
        fingerprint: The SHA-256 digest of the certificate, in hexadecimal digits.
        context: For the connections of clients.

    Raises:
        InvalidError: `[MISSING_EXTRA]`.
    """

    def __init__(self) -> None:
        require_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "boatlift")])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_FIRST)
            .not_valid_after(_LAST)
            .sign(key, hashes.SHA256())
        )
        self.fingerprint = _fingerprint_of(made.public_bytes(Encoding.DER))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0  # nobody resumes a session
        password = secrets.token_bytes(32).hex().encode()  # OpenSSL reads files alone, and no disk has the key
        with NamedTemporaryFile() as file:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)))
            file.write(made.public_bytes(Encoding.PEM))
            file.flush()
            self.context.load_cert_chain(file.name, password=password)


def require_cryptography() -> None:
    """Import what makes certificates.

    Raises:
        InvalidError: `[MISSING_EXTRA]`.
    """
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise InvalidError(
            "MISSING_EXTRA",
            "an address that other hosts see speaks TLS, which needs cryptography: pip install 'boatlift[tls]', or, "
            "inside a network that you trust, allow clear text with --plain, in Python plain=True",
        ) from error


def client_context() -> ssl.SSLContext:
    """Return a context in which any certificate will do, for a client that compares its fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def shows(connection: ssl.SSLSocket, fingerprint: str) -> bool:
    """Return whether the server of a connection has proved that it has the key of a certificate."""
    shown = connection.getpeercert(binary_form=True) or b""
    return hmac.compare_digest(_fingerprint_of(shown).encode(), fingerprint.encode())


def _fingerprint_of(certificate: bytes) -> str:
    return hashlib.sha256(certificate).hexdigest()
