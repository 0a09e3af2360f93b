"""OpenPGP signatures, checked by the program `gpgv` (GnuPG) with the keys of one armored file and nothing else.

gpgv does exactly this and no more: no trust database, no key servers, no agent. It runs bounded, in an empty home, and
what counts is its machine-readable status (doc/DETAILS of GnuPG). The library `cryptography` has no OpenPGP.
"""

import base64
import binascii
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from providers.git.errors import SignatureRejected

PROGRAM = "gpgv"
_MISSING = f"source.trust pgp needs the program {PROGRAM}, which is not installed: install it, or use another mode"
_BLOCK = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[^\r\n]+: [^\r\n]*\r?\n)*\r?\n"
    rb"([A-Za-z0-9+/=\s]+?)(?:\r?\n=[A-Za-z0-9+/]{4})?\s*-----END PGP PUBLIC KEY BLOCK-----"
)
_MAX_KEYS = 1024 * 1024
_MAX_SIGNATURE = 64 * 1024
_MEMORY = 256 * 1024 * 1024
_CPU_S = 5
_WALL_S = 10.0
_BAD = {"BADSIG", "ERRSIG", "REVKEYSIG", "EXPSIG", "NODATA", "UNEXPECTED", "FAILURE"}
_SIGNED = {"GOODSIG", "EXPKEYSIG"}
_WEAK_HASHES = {"1", "2", "3"}
"""MD5, SHA-1 and RIPEMD-160 (RFC 9580, 9.5)."""


@dataclass(frozen=True)
class PgpSigners:
    """Holders of OpenPGP keys: the content of an armored file, as a binary keyring."""

    keyring: bytes

    def signer(self, signature: bytes, payload: bytes, seen_s: float) -> str:
        """The first user id of the key that signed. A key that has expired since is judged by the first sight.

        Errors: SignatureRejected.
        """
        if len(signature) > _MAX_SIGNATURE:
            raise SignatureRejected(f"its signature takes more than {_MAX_SIGNATURE} bytes")
        return _judged(_status(self.keyring, signature, payload), seen_s)


def check_program() -> None:
    """Errors: SignatureRejected where the program that checks is not there."""
    if shutil.which(PROGRAM) is None:
        raise SignatureRejected(_MISSING)


def parse_keys(content: bytes) -> PgpSigners:
    """The keys of an armored file. Errors: SignatureRejected: a file that is half understood guards nothing."""
    if len(content) > _MAX_KEYS:
        raise SignatureRejected(f"the file of OpenPGP keys is larger than {_MAX_KEYS} bytes")
    blocks = _BLOCK.findall(content)
    if not blocks or len(blocks) != content.count(b"-----BEGIN PGP "):
        raise SignatureRejected("the file of OpenPGP keys is not made of armored public keys (gpg --export --armor)")
    try:
        return PgpSigners(b"".join(base64.b64decode(b"".join(block.split()), validate=True) for block in blocks))
    except binascii.Error as error:
        raise SignatureRejected("a key in the file of OpenPGP keys is not base64") from error


def _status(keyring: bytes, signature: bytes, payload: bytes) -> list[list[str]]:
    """What gpgv says of a detached signature: its status lines, as words."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise SignatureRejected(_MISSING)
    with tempfile.TemporaryDirectory(prefix="muster-pgp-") as folder:
        place = Path(folder)
        (place / "keys.gpg").write_bytes(keyring)
        (place / "payload").write_bytes(payload)
        command = [program, "--homedir", folder, "--keyring", str(place / "keys.gpg"), "--status-fd", "1"]
        process = subprocess.Popen(  # noqa: S603 - the program and its arguments are ours
            [*command, "-", str(place / "payload")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            cwd=folder,
            start_new_session=True,
        )
        try:
            # It waits for the signature on its input; a compressed packet in there cannot outgrow this.
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
            said, _ = process.communicate(signature, timeout=_WALL_S)
        except subprocess.TimeoutExpired as error:
            raise SignatureRejected(f"{PROGRAM} took longer than {_WALL_S:g} s over the signature") from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = said.decode("utf-8", "replace").splitlines()
    return [line.split(" ")[1:] for line in lines if line.startswith("[GNUPG:] ")]


def _judged(status: list[list[str]], seen_s: float) -> str:
    """Who signed, by the status lines: exactly one signature, good, by a key that was good at the first sight."""
    kinds = [words[0] for words in status]
    if "NO_PUBKEY" in kinds:
        raise SignatureRejected("it is signed by an OpenPGP key that is not among the allowed ones")
    valid = [words for words in status if words[0] == "VALIDSIG"]
    signed = [words for words in status if words[0] in _SIGNED]
    if _BAD & set(kinds) or len(valid) != 1 or len(signed) != 1 or kinds.count("NEWSIG") > 1:
        raise SignatureRejected("its OpenPGP signature does not hold")
    if len(valid[0]) > 8 and valid[0][8] in _WEAK_HASHES:
        raise SignatureRejected("its OpenPGP signature uses a hash that can be forged")
    who = " ".join(signed[0][2:])
    if signed[0][0] == "EXPKEYSIG":
        ends = [int(words[1]) for words in status if words[0] == "KEYEXPIRED" and words[1].isdigit()]
        if not ends or seen_s > min(ends):
            raise SignatureRejected(f"the OpenPGP key of {who} had expired when this was first seen")
    return who
