"""Whose signatures count: the modes of trust, and the lists that say who may sign, read anew each time."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from providers.git.allowed import AllowedSigners, parse_allowed_signers
from providers.git.errors import SignatureRejected
from providers.git.pgp import PgpSigners, check_program, parse_keys
from providers.git.signature import PGP, Mode, SignedObject, Signers
from providers.git.sshsig import BEGIN, check_signature, parse_signature


class TrustMode(Enum):
    """Whose signatures count (`source.trust`)."""

    SSH = "ssh"
    PGP = "pgp"
    FORGE_APPROVAL = "forgeApproval"
    """That of the forge, on what it merged; who approved that is asked by whoever brings it into force."""


@dataclass(frozen=True)
class SshSigners:
    """Holders of SSH keys, from an allowed_signers file."""

    allowed: AllowedSigners

    def signer(self, signed: SignedObject, seen_s: float) -> str:
        """The principal of the key. Errors: SignatureRejected."""
        signature = parse_signature(signed.signature)
        check_signature(signature, signed.payload)
        return self.allowed.principal(signature.key, seen_s)


@dataclass(frozen=True)
class ListedSigners:
    """Everybody who may sign, by kind of signature; None where that kind does not count."""

    ssh: SshSigners | None = None
    pgp: PgpSigners | None = None

    def signer(self, signed: SignedObject, seen_s: float) -> str:
        """Who signed, in the words of the list. Errors: SignatureRejected."""
        if signed.signature.startswith(BEGIN) and self.ssh is not None:
            return self.ssh.signer(signed, seen_s)
        if signed.signature.startswith(PGP) and self.pgp is not None:
            return self.pgp.signer(signed.signature, signed.payload, seen_s)
        raise SignatureRejected(f"it carries {_kind(signed.signature)}, and {self._counting()} count here")

    def _counting(self) -> str:
        kinds = (("SSH", self.ssh), ("OpenPGP", self.pgp))
        return " and ".join(f"{name} signatures" for name, held in kinds if held is not None)


def _kind(signature: bytes) -> str:
    if signature.startswith(BEGIN):
        return "an SSH signature"
    return "an OpenPGP signature" if signature.startswith(PGP) else "a signature of another kind"


@dataclass(frozen=True)
class SignerFiles:
    """What the files of signers held at one moment; None for a kind that does not count."""

    ssh: bytes | None = None
    pgp: bytes | None = None

    def parse(self) -> Signers:
        """The signers. Errors: SignatureRejected."""
        return ListedSigners(
            None if self.ssh is None else SshSigners(parse_allowed_signers(self.ssh)),
            None if self.pgp is None else parse_keys(self.pgp),
        )


@dataclass(frozen=True)
class Verification:
    """Demand signatures: what of, and the files that say by whom. The files must lie outside the repository.

    Errors: ValueError where a mode lacks its file, or a file its mode.
    """

    allowed_signers: Path | None = None
    mode: Mode = Mode.HEAD
    pgp_keys: Path | None = None
    trust: tuple[TrustMode, ...] = (TrustMode.SSH,)

    def __post_init__(self) -> None:
        for mode, file, key in (
            (TrustMode.SSH, self.allowed_signers, "allowedSigners"),
            (TrustMode.PGP, self.pgp_keys, "pgpKeys"),
        ):
            counts = mode in self.trust or (mode is TrustMode.PGP and TrustMode.FORGE_APPROVAL in self.trust)
            if counts and file is None:
                raise ValueError(f"source.trust {mode.value} needs source.{key}, the file that says who may sign")
            if not counts and file is not None:
                raise ValueError(f"source.{key} counts only with {mode.value} in source.trust")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of signers."""
        return tuple(file for file in (self.allowed_signers, self.pgp_keys) if file is not None)

    def check(self) -> None:
        """Errors: SignatureRejected where signatures could not be checked, for a start that says so."""
        if self.pgp_keys is not None:
            check_program()
        self.read().parse()

    def read(self) -> SignerFiles:
        """What the files hold now, read anew each time, so that a revoked key counts at once.

        Errors: SignatureRejected if a file cannot be read: no list, no trust.
        """
        return SignerFiles(_read(self.allowed_signers), _read(self.pgp_keys))


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise SignatureRejected(f"the list of signers {path} cannot be read: {error.strerror}") from error
