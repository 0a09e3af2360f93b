"""SSH signatures, checked natively: the SSHSIG container (OpenSSH PROTOCOL.sshsig) and the keys it may carry.

Ed25519, ECDSA on the NIST curves, RSA with SHA-2, and the two hardware (`sk-`) kinds of OpenSSH PROTOCOL.u2f.
Refused by name: certificates, DSA, RSA with SHA-1, RSA below 2,048 bits.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from providers.git.errors import SignatureRejected

BEGIN = b"-----BEGIN SSH SIGNATURE-----"
_END = b"-----END SSH SIGNATURE-----"
_MAGIC = b"SSHSIG"
_MAX_ARMOR = 64 * 1024
_RSA_BITS = range(2_048, 16_385)
_USER_PRESENT = 0x01
_DIGESTS: dict[bytes, Callable[[bytes], "hashlib._Hash"]] = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_CURVES: dict[bytes, tuple[bytes, ec.EllipticCurve, hashes.HashAlgorithm]] = {
    b"ecdsa-sha2-nistp256": (b"nistp256", ec.SECP256R1(), hashes.SHA256()),
    b"ecdsa-sha2-nistp384": (b"nistp384", ec.SECP384R1(), hashes.SHA384()),
    b"ecdsa-sha2-nistp521": (b"nistp521", ec.SECP521R1(), hashes.SHA512()),
}
_RSA_HASHES: dict[bytes, hashes.HashAlgorithm] = {b"rsa-sha2-256": hashes.SHA256(), b"rsa-sha2-512": hashes.SHA512()}
_SK_ED25519 = b"sk-ssh-ed25519@openssh.com"
_SK_ECDSA = b"sk-ecdsa-sha2-nistp256@openssh.com"


class SshSignature(NamedTuple):
    """A parsed signature: the signer's key as the blob OpenSSH writes, and what it says about itself."""

    key: bytes
    namespace: bytes
    hash_name: bytes
    signature: bytes

    @property
    def fingerprint(self) -> str:
        """The key as `ssh-keygen -l` shows it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.key).digest()).decode().rstrip("=")


@dataclass
class _Reader:
    """Reads the strings of the SSH wire format (RFC 4251 section 5) from `data`."""

    data: bytes
    at: int = 0

    def raw(self, count: int) -> bytes:
        """The next bytes, so many; SignatureRejected when there are fewer."""
        if count > len(self.data) - self.at:
            raise SignatureRejected("the signature is cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """The next `uint32`."""
        value: int = struct.unpack(">I", self.raw(4))[0]
        return value

    def string(self) -> bytes:
        """The next `string`: its length, then its bytes."""
        return self.raw(self.number())

    def integer(self) -> int:
        """The next `mpint`; SignatureRejected when it is negative."""
        raw = self.string()
        if raw[:1] >= b"\x80":
            raise SignatureRejected("the signature has a negative number")
        return int.from_bytes(raw)

    def end(self) -> None:
        """SignatureRejected unless everything has been read."""
        if self.at != len(self.data):
            raise SignatureRejected("the signature has trailing bytes")


def parse_signature(armored: bytes) -> SshSignature:
    """Read an armoured signature. Errors: SignatureRejected where it is malformed or of an unknown version."""
    text = armored.strip()
    if len(text) > _MAX_ARMOR or not text.startswith(BEGIN) or not text.endswith(_END):
        raise SignatureRejected("the SSH signature is malformed")
    try:
        blob = base64.b64decode(b"".join(text[len(BEGIN) : -len(_END)].split()), validate=True)
    except binascii.Error as error:
        raise SignatureRejected("the SSH signature is not base64") from error
    reader = _Reader(blob)
    if reader.raw(len(_MAGIC)) != _MAGIC or reader.number() != 1:
        raise SignatureRejected("the SSH signature is of an unknown version")
    key, namespace, _reserved, hash_name, signature = (reader.string() for _ in range(5))
    reader.end()
    return SshSignature(key, namespace, hash_name, signature)


def check_signature(signature: SshSignature, payload: bytes, namespace: bytes = b"git") -> None:
    """Raise SignatureRejected unless `signature` is of its own key over `payload` in `namespace`.

    Whether that key may sign is another question: see `allowed`.
    """
    if signature.namespace != namespace:
        raise SignatureRejected("the SSH signature was made for another purpose than git")
    digest = _DIGESTS.get(signature.hash_name)
    if digest is None:
        raise SignatureRejected("the SSH signature uses an unknown hash")
    fields = (namespace, b"", signature.hash_name, digest(payload).digest())
    message = _MAGIC + b"".join(struct.pack(">I", len(one)) + one for one in fields)
    try:
        _check(signature, message)
    except InvalidSignature as error:
        raise SignatureRejected("the signature does not match the content: it was altered after signing") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureRejected("the signer's key is malformed") from error


def _check(signature: SshSignature, message: bytes) -> None:
    key, made = _Reader(signature.key), _Reader(signature.signature)
    kind, scheme = key.string(), made.string()
    check = _CHECKS.get(kind)
    if check is None:
        shown = kind.decode("ascii", "backslashreplace")[:60]
        what = "certificates are" if b"-cert-v" in kind else f"keys of the kind {shown!r} are"
        raise SignatureRejected(f"{what} not supported; sign with a plain ed25519, ecdsa or rsa key")
    check(kind, scheme, key, made, message)


def _check_ed25519(kind: bytes, scheme: bytes, key: _Reader, made: _Reader, message: bytes) -> None:
    _same(scheme, kind)
    public, value = key.string(), made.string()
    key.end()
    made.end()
    Ed25519PublicKey.from_public_bytes(public).verify(value, message)


def _check_ecdsa(kind: bytes, scheme: bytes, key: _Reader, made: _Reader, message: bytes) -> None:
    _same(scheme, kind)
    name, curve, algorithm = _CURVES[kind]
    _same(key.string(), name)
    public = ec.EllipticCurvePublicKey.from_encoded_point(curve, key.string())
    value = _Reader(made.string())
    key.end()
    made.end()
    public.verify(_dss(value), message, ec.ECDSA(algorithm))


def _check_rsa(_kind: bytes, scheme: bytes, key: _Reader, made: _Reader, message: bytes) -> None:
    algorithm = _RSA_HASHES.get(scheme)
    if algorithm is None:
        raise SignatureRejected("RSA signatures must use SHA-2 (rsa-sha2-256 or rsa-sha2-512)")
    exponent, modulus = key.integer(), key.integer()
    if modulus.bit_length() not in _RSA_BITS:
        raise SignatureRejected("RSA keys must have 2048 to 16384 bits")
    value = made.string()
    key.end()
    made.end()
    public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    # A signature shorter than the modulus lost its leading zeros (RFC 8332 section 3 allows that).
    public.verify(value.rjust((modulus.bit_length() + 7) // 8, b"\0"), message, padding.PKCS1v15(), algorithm)


def _check_sk_ed25519(kind: bytes, scheme: bytes, key: _Reader, made: _Reader, message: bytes) -> None:
    _same(scheme, kind)
    public, application, value = key.string(), key.string(), made.string()
    key.end()
    Ed25519PublicKey.from_public_bytes(public).verify(value, _touched(application, made, message))


def _check_sk_ecdsa(kind: bytes, scheme: bytes, key: _Reader, made: _Reader, message: bytes) -> None:
    _same(scheme, kind)
    _same(key.string(), b"nistp256")
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), key.string())
    application, value = key.string(), _Reader(made.string())
    key.end()
    public.verify(_dss(value), _touched(application, made, message), ec.ECDSA(hashes.SHA256()))


def _touched(application: bytes, made: _Reader, message: bytes) -> bytes:
    """What the token signed (PROTOCOL.u2f). Without a touch, malware on the signer's machine could have asked."""
    flags, counter = made.raw(1), made.raw(4)
    made.end()
    if not flags[0] & _USER_PRESENT:
        raise SignatureRejected("the hardware key signed without being touched")
    return hashlib.sha256(application).digest() + flags + counter + hashlib.sha256(message).digest()


def _dss(value: _Reader) -> bytes:
    first, second = value.integer(), value.integer()
    value.end()
    return encode_dss_signature(first, second)


def _same(found: bytes, wanted: bytes) -> None:
    if found != wanted:
        raise SignatureRejected("the SSH signature contradicts its key")


_Check = Callable[[bytes, bytes, _Reader, _Reader, bytes], None]
_CHECKS: dict[bytes, _Check] = {
    b"ssh-ed25519": _check_ed25519,
    **dict.fromkeys(_CURVES, _check_ecdsa),
    b"ssh-rsa": _check_rsa,
    _SK_ED25519: _check_sk_ed25519,
    _SK_ECDSA: _check_sk_ecdsa,
}
