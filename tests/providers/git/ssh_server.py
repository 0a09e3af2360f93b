"""The first half of an SSH server (RFC 4253, RFC 8731): it proves its host key and hangs up on whoever logs in.

Enough to see whether a client checks the key: one that does not trust it leaves, one that does asks to log in.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_BANNER = b"SSH-2.0-halfway"
_SERVICE_ACCEPT, _KEXINIT, _NEWKEYS, _ECDH_REPLY, _USERAUTH = 6, 20, 21, 31, 50
_NAMES = [b"curve25519-sha256", b"ssh-ed25519", *[b"aes128-ctr"] * 2, *[b"hmac-sha2-256"] * 2, *[b"none"] * 2, b"", b""]


def string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


class HalfSshServer:
    """Listens on loopback; `logins` counts the clients that went on after seeing the host key."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.logins = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def public(self) -> bytes:
        return string(b"ssh-ed25519") + string(self._key.public_key().public_bytes_raw())

    @property
    def known_hosts(self) -> str:
        return f"[127.0.0.1]:{self.port} ssh-ed25519 {base64.b64encode(self.public).decode()}\n"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(5)
                with connection, contextlib.suppress(OSError, EOFError):
                    self._shake_hands(connection)

    def _shake_hands(self, connection: socket.socket) -> None:
        connection.sendall(_BANNER + b"\r\n")
        stream = connection.makefile("rb")
        their_banner = stream.readline().rstrip(b"\r\n")
        offer = bytes([_KEXINIT]) + os.urandom(16) + b"".join(map(string, _NAMES)) + b"\0" * 5
        connection.sendall(_packet(offer))
        their_offer = _payload(stream.read)
        their_point = _payload(stream.read)[5:]
        secret = X25519PrivateKey.generate()
        point = secret.public_key().public_bytes_raw()
        shared = secret.exchange(X25519PublicKey.from_public_bytes(their_point)).lstrip(b"\0")
        number = b"\0" + shared if shared[0] & 0x80 else shared
        parts = (their_banner, _BANNER, their_offer, offer, self.public, their_point, point, number)
        proof = self._key.sign(hashlib.sha256(b"".join(map(string, parts))).digest())
        signature = string(b"ssh-ed25519") + string(proof)
        connection.sendall(_packet(bytes([_ECDH_REPLY]) + b"".join(map(string, (self.public, point, signature)))))
        connection.sendall(_packet(bytes([_NEWKEYS])))
        assert _payload(stream.read)[0] == _NEWKEYS
        secured = _Secured(connection, string(number), hashlib.sha256(b"".join(map(string, parts))).digest())
        if secured.receive(stream.read)[:1] == b"\5":
            secured.send(bytes([_SERVICE_ACCEPT]) + string(b"ssh-userauth"))
            self.logins += secured.receive(stream.read)[0] == _USERAUTH


class _Secured:
    """aes128-ctr and hmac-sha2-256 over what was agreed; packets are counted from the first, plain ones included."""

    def __init__(self, connection: socket.socket, secret: bytes, digest: bytes) -> None:
        def derive(letter: bytes) -> bytes:
            return hashlib.sha256(secret + digest + letter + digest).digest()

        def stream(initial: bytes, key: bytes) -> Cipher[modes.CTR]:
            return Cipher(algorithms.AES(derive(key)[:16]), modes.CTR(derive(initial)[:16]))

        self._connection = connection
        self._inward = stream(b"A", b"C").decryptor()
        self._outward = stream(b"B", b"D").encryptor()
        self._seal = derive(b"F")

    def receive(self, read: object) -> bytes:
        assert callable(read)
        first: bytes = self._inward.update(read(16))
        if len(first) < 16:
            raise EOFError
        length, padding = struct.unpack(">IB", first[:5])
        body = first[5:] + self._inward.update(read(length + 4 - 16))
        read(32)
        return body[: length - 1 - padding]

    def send(self, payload: bytes) -> None:
        packet = _packet(payload, 16)
        seal = hmac.new(self._seal, struct.pack(">I", 3) + packet, hashlib.sha256).digest()
        self._connection.sendall(self._outward.update(packet) + seal)


def _packet(payload: bytes, block: int = 8) -> bytes:
    padding = block - (len(payload) + 5) % block
    padding += block if padding < 4 else 0
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + b"\0" * padding


def _payload(read: object) -> bytes:
    assert callable(read)
    head: bytes = read(5)
    if len(head) < 5:
        raise EOFError
    length, padding = struct.unpack(">IB", head)
    body: bytes = read(length - 1)
    return body[: length - 1 - padding]


@contextlib.contextmanager
def half_ssh_server() -> Iterator[HalfSshServer]:
    server = HalfSshServer()
    try:
        yield server
    finally:
        server.close()
