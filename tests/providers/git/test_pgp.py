"""OpenPGP signatures, as a forge puts on merges in its web page: real keys, real git, and the program gpgv."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.git import pgp
from providers.git.allowed import parse_allowed_signers
from providers.git.errors import SignatureRejected
from providers.git.opening import open_repository
from providers.git.pgp import PgpSigners, parse_keys
from providers.git.selector import Target
from providers.git.signature import Evidence, Mode, split_commit, verify_revision
from providers.git.trust import ListedSigners, SshSigners
from tests.providers.git.support import ENVIRONMENT, EPOCH_S, WorkTree

pytestmark = pytest.mark.skipif(
    shutil.which("gpg") is None or shutil.which("gpgv") is None, reason="gpg and gpgv are not installed"
)
FORGE = "Forge <noreply@forge.example.com>"


class Keys:
    """A home of gpg with keys in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(mode=0o700)

    def gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--pinentry-mode", "loopback", *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            env=ENVIRONMENT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End the gpg-agent that gpg has left behind."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False, env=ENVIRONMENT)

    def make(self, who: str, expires: str = "never", *flags: str) -> None:
        self.gpg(*flags, "--passphrase", "", "--quick-generate-key", who, "ed25519", "sign", expires)

    def public(self, *who: str) -> bytes:
        return self.gpg("--export", "--armor", *who)

    def sign(self, who: str, payload: bytes, *flags: str) -> bytes:
        return self.gpg("--local-user", who, "--armor", "--detach-sign", *flags, stdin=payload)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    made = Keys(tmp_path_factory.mktemp("gpg", numbered=True) / "h")
    made.make(FORGE)
    made.make("Eve <eve@example.com>")
    yield made
    made.close()


@pytest.fixture
def signed(work: WorkTree, keys: Keys) -> WorkTree:
    work.git("config", "user.signingkey", FORGE)
    (work.path.parent / "gpg").write_text(f'#!/bin/sh\nexec gpg --homedir {keys.home} "$@"\n')
    (work.path.parent / "gpg").chmod(0o755)
    work.git("config", "gpg.program", str(work.path.parent / "gpg"))
    work.commit("a.yaml", "signed", "-S")
    return work


def judged(work: WorkTree, signers: ListedSigners, oid: str = "") -> str:
    repo, at = open_repository(work.path), oid or work.head()
    return verify_revision(Evidence(Target("", at), at, repo.odb.read(at)[1]), Mode.HEAD, signers, EPOCH_S).signer


def test_a_merge_that_the_forge_signed(signed: WorkTree, keys: Keys) -> None:
    listed = ListedSigners(pgp=parse_keys(keys.public(FORGE)))
    assert judged(signed, listed) == FORGE
    both = ListedSigners(SshSigners(parse_allowed_signers(b"")), parse_keys(keys.public()))
    assert judged(signed, both) == FORGE
    with pytest.raises(SignatureRejected, match="OpenPGP key that is not among the allowed"):
        judged(signed, ListedSigners(pgp=parse_keys(keys.public("Eve <eve@example.com>"))))
    with pytest.raises(SignatureRejected, match="carries an OpenPGP signature, and SSH signatures count"):
        judged(signed, ListedSigners(SshSigners(parse_allowed_signers(b""))))
    with pytest.raises(SignatureRejected, match="is not signed"):
        judged(signed, listed, signed.commit("a.yaml", "unsigned"))


def test_what_is_altered_or_strung_together_does_not_hold(signed: WorkTree, keys: Keys) -> None:
    parts = split_commit(open_repository(signed.path).odb.read(signed.head())[1])
    signers = parse_keys(keys.public())
    assert signers.signer(parts.signature, parts.payload, EPOCH_S) == FORGE
    for signature, payload in (
        (parts.signature, parts.payload + b"x"),
        (parts.signature[:200] + b"A" + parts.signature[201:], parts.payload),
        (keys.gpg("--local-user", "Eve", "--armor", "--sign", stdin=parts.payload), b"other"),
        (b"-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----\n", parts.payload),
        (keys.sign("Eve", parts.payload) + keys.sign(FORGE, b"other"), parts.payload),
    ):
        with pytest.raises(SignatureRejected):
            signers.signer(signature, payload, EPOCH_S)


def test_a_weak_hash_is_refused(keys: Keys) -> None:
    signature = keys.sign(FORGE, b"payload", "--digest-algo", "SHA1", "--allow-weak-digest-algos")
    with pytest.raises(SignatureRejected):
        parse_keys(keys.public()).signer(signature, b"payload", EPOCH_S)


def test_a_key_that_has_expired_is_judged_by_the_first_sight(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "h")
    keys.make("Old <old@example.com>", "seconds=60", "--faked-system-time", f"{EPOCH_S}!")
    signature = keys.sign("Old", b"payload", "--faked-system-time", f"{EPOCH_S + 10}!")
    signers = parse_keys(keys.public())
    keys.close()
    assert signers.signer(signature, b"payload", EPOCH_S + 30) == "Old <old@example.com>"
    with pytest.raises(SignatureRejected, match="had expired when this was first seen"):
        signers.signer(signature, b"payload", EPOCH_S + 61)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _armored: b"",
        lambda armored: armored.replace(b"PUBLIC KEY BLOCK", b"PRIVATE KEY BLOCK"),
        lambda armored: armored + b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nhalf",
        lambda armored: armored.replace(b"=", b"!"),
        lambda _armored: b"x" * 2_000_000,
    ],
)
def test_a_file_that_is_half_understood_guards_nothing(keys: Keys, spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(SignatureRejected):
        parse_keys(spoil(keys.public()))


def test_garbage_for_keys_or_signature_ends_in_a_refusal() -> None:
    for signature in (b"-----BEGIN PGP ", b"-----BEGIN PGP SIGNATURE-----\n\n" + b"A" * 70_000):
        with pytest.raises(SignatureRejected):
            PgpSigners(b"\x99" * 100).signer(signature, b"payload", EPOCH_S)


def test_without_the_program_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgp, "PROGRAM", "no-such-gpgv")
    for ask in (pgp.check_program, lambda: PgpSigners(b"").signer(b"", b"", EPOCH_S)):
        with pytest.raises(SignatureRejected, match="needs the program gpgv, which is not installed"):
            ask()
