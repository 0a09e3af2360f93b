"""SSH signatures against the oracle `ssh-keygen`, and what a forger would try."""

import base64
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pygit2.enums import ObjectType

from providers.git.allowed import AllowedSigners, parse_allowed_signers
from providers.git.errors import SignatureRejected
from providers.git.history import MOST_TRAILERS, confirmations
from providers.git.opening import open_repository
from providers.git.selector import Target
from providers.git.signature import (
    Evidence,
    Mode,
    split_commit,
    split_tag,
    verify_revision,
)
from providers.git.sshsig import check_signature, parse_signature
from providers.git.trust import ListedSigners, SshSigners, TrustMode, Verification
from tests.providers.git.support import ENVIRONMENT, EPOCH_S, WorkTree

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")

KINDS = ["ed25519", "ecdsa-256", "ecdsa-384", "ecdsa-521", "rsa-2048"]


def keygen(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *arguments], input=stdin, capture_output=True, check=False, env=ENVIRONMENT)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Private keys by name, made once; the kind is what comes before a colon (`ed25519:rogue`)."""
    folder = tmp_path_factory.mktemp("keys")

    def make(name: str) -> Path:
        path = folder / name.replace(":", "-")
        if not path.exists():
            kind, _, bits = name.partition(":")[0].partition("-")
            size = ["-b", bits] if bits else []
            assert keygen("-q", "-t", kind, *size, "-N", "", "-C", "", "-f", str(path)).returncode == 0
        return path

    return make


def public(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text().strip()


def sign(key: Path, payload: bytes, namespace: str = "git", *flags: str) -> bytes:
    done = keygen("-q", "-Y", "sign", "-f", str(key), "-n", namespace, *flags, stdin=payload)
    assert done.returncode == 0, done.stderr
    return done.stdout


def oracle(folder: Path, allowed: str, signature: bytes, payload: bytes, at_s: int, namespace: str = "git") -> bool:
    """As git asks ssh-keygen: find the principals, then verify as the first of them."""
    (folder / "allowed").write_text(allowed)
    (folder / "sig").write_bytes(signature)
    when = "-Overify-time=" + datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%d%H%M%SZ")
    found = keygen("-Y", "find-principals", "-f", f"{folder}/allowed", "-s", f"{folder}/sig", when)
    if found.returncode:
        return False
    principal = found.stdout.decode().splitlines()[0]
    common = ["-f", f"{folder}/allowed", "-n", namespace, "-s", f"{folder}/sig", when]
    return keygen("-Y", "verify", "-I", principal, *common, stdin=payload).returncode == 0


def ours(allowed: str, signature: bytes, payload: bytes, at_s: int) -> bool:
    try:
        parsed = parse_signature(signature)
        check_signature(parsed, payload)
        parse_allowed_signers(allowed.encode()).principal(parsed.key, at_s)
    except SignatureRejected:
        return False
    return True


@pytest.mark.parametrize("flags", [(), ("-Ohashalg=sha256",)], ids=["sha512", "sha256"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key(keys: Callable[[str], Path], tmp_path: Path, kind: str, flags: tuple[str, ...]) -> None:
    key = keys(kind)
    signature = sign(key, b"payload", "git", *flags)
    allowed = f"ada@example.com {public(key)}\n"
    for payload in (b"payload", b"payloaD", b""):
        assert ours(allowed, signature, payload, EPOCH_S) is (payload == b"payload")
        assert oracle(tmp_path, allowed, signature, payload, EPOCH_S) is (payload == b"payload")
    shown = keygen("-l", "-f", str(key)).stdout.decode().split()[1]
    assert parse_signature(signature).fingerprint == shown


LINES = [
    "{p} {k}",
    "{p} {k} a comment",
    "  {p}   {k}",
    "\t{p}\t{k}",
    "# {p} {k}",
    "a@x,{p} {k}",
    '"{p}" {k}',
    '{p} namespaces="git" {k}',
    '{p} NameSpaces="git" {k}',
    '{p} namespaces="file,git" {k}',
    '{p} namespaces="g?t" {k}',
    '{p} namespaces="*" {k}',
    '{p} namespaces="*,!git" {k}',
    '{p} namespaces="file" {k}',
    '{p} valid-after="20231114" {k}',
    '{p} valid-after="20231115" {k}',
    '{p} valid-after="202311142213Z" {k}',
    '{p} valid-after="20231114221320Z" {k}',
    '{p} valid-after="20231114221321Z" {k}',
    '{p} valid-before="20231114221320Z" {k}',
    '{p} valid-before="20231114221319Z" {k}',
    '{p} valid-before="20231114" {k}',
    '{p} valid-after="20230101",valid-before="20240101" {k}',
    '{p} namespaces="git",valid-before="20230101" {k}',
    '{p} valid-before="20230101" {k}\n{p} {k}',
    '{p} namespaces="file" {k}\n{p} namespaces="git" {k}',
    "{p} {r}",
    "{p} {r}\n{p} {k}",
    "",
    "{p}",
    "{p} ssh-ed25519",
    "{p} ssh-ed25519 !!!!",
    "{p} ecdsa-sha2-nistp256 {b}",
    '{p} valid-before="soon" {k}',
    '{p} valid-after="20250101",valid-before="20240101" {k}',
    "{p} cert-authority {k}",
    "{p} no-such-option {k}",
    '{p} namespaces="git {k}',
    '{p} valid-after="20231301" {k}',
]


@pytest.mark.parametrize("line", LINES)
def test_allowed_signers_as_ssh_keygen(keys: Callable[[str], Path], tmp_path: Path, line: str) -> None:
    key, rogue = keys("ed25519"), keys("ed25519:rogue")
    words = {"p": "ada@example.com", "k": public(key), "r": public(rogue), "b": public(key).split()[1]}
    allowed = line.format(**words) + "\n"
    signature = sign(key, b"payload")
    assert ours(allowed, signature, b"payload", EPOCH_S) is oracle(tmp_path, allowed, signature, b"payload", EPOCH_S)


def test_a_signature_for_files_is_none_for_git(keys: Callable[[str], Path], tmp_path: Path) -> None:
    key = keys("ed25519")
    signature = sign(key, b"payload", "file")
    allowed = f"ada {public(key)}\n"
    assert not ours(allowed, signature, b"payload", EPOCH_S)
    assert oracle(tmp_path, allowed, signature, b"payload", EPOCH_S, "file")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n# x\na cert-authority ssh-ed25519 AAAA\n", "line 3: cert-authority is not supported"),
        (b"a ssh-ed25519 AAAA", "line 1"),
        (b"\xff", "UTF-8"),
        (b"a wrong ssh-ed25519 AAAA", "line 1"),
        (b'a valid-after="x",valid-after="y" ssh-ed25519 AAAA', "line 1"),
        (b"#" * (1024 * 1024 + 1), "larger"),
    ],
)
def test_a_file_that_cannot_be_understood_allows_nobody(content: bytes, words: str) -> None:
    with pytest.raises(SignatureRejected, match=words):
        parse_allowed_signers(content)


def armor(blob: bytes) -> bytes:
    return b"-----BEGIN SSH SIGNATURE-----\n" + base64.b64encode(blob) + b"\n-----END SSH SIGNATURE-----\n"


def string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def container(key: bytes, signature: bytes, namespace: bytes = b"git", hash_name: bytes = b"sha512") -> bytes:
    fields = (key, namespace, b"", hash_name, signature)
    return armor(b"SSHSIG" + struct.pack(">I", 1) + b"".join(map(string, fields)))


def signed_text(payload: bytes) -> bytes:
    return b"SSHSIG" + b"".join(map(string, (b"git", b"", b"sha512", hashlib.sha512(payload).digest())))


@pytest.mark.parametrize(("flags", "good"), [(1, True), (5, True), (0, False), (4, False)])
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_hardware_keys(tmp_path: Path, kind: str, flags: int, good: bool) -> None:
    application = b"ssh:"
    message = (
        hashlib.sha256(application).digest()
        + bytes([flags])
        + b"\0\0\0\7"
        + hashlib.sha256(signed_text(b"payload")).digest()
    )
    if kind == "ed25519":
        name = b"sk-ssh-ed25519@openssh.com"
        token = Ed25519PrivateKey.generate()
        key = string(name) + string(token.public_key().public_bytes_raw()) + string(application)
        value = token.sign(message)
    else:
        name = b"sk-ecdsa-sha2-nistp256@openssh.com"
        chip = ec.generate_private_key(ec.SECP256R1())
        point = chip.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        key = string(name) + string(b"nistp256") + string(point) + string(application)
        numbers = decode_dss_signature(chip.sign(message, ec.ECDSA(hashes.SHA256())))
        value = b"".join(
            string(b"\0" * (number.bit_length() % 8 == 0) + number.to_bytes((number.bit_length() + 7) // 8))
            for number in numbers
        )
    signature = container(key, string(name) + string(value) + bytes([flags]) + b"\0\0\0\7")
    allowed = f"ada {name.decode()} {base64.b64encode(key).decode()}\n"
    assert ours(allowed, signature, b"payload", EPOCH_S) is good
    if good:  # without a touch ssh-keygen is more lenient than we are
        assert oracle(tmp_path, allowed, signature, b"payload", EPOCH_S)
    assert not ours(allowed, signature, b"other", EPOCH_S)


RSA, SHA512, P256 = string(b"ssh-rsa"), string(b"rsa-sha2-512"), string(b"ecdsa-sha2-nistp256")
ED_KEY = string(b"ssh-ed25519") + string(b"\1" * 32)


@pytest.mark.parametrize(
    ("armored", "words"),
    [
        (b"", "malformed"),
        (b"-----BEGIN SSH SIGNATURE-----", "malformed"),
        (armor(b"")[:-10], "malformed"),
        (armor(b"SSHSIG"), "cut short"),
        (armor(b"SSHSIX" + struct.pack(">I", 1)), "version"),
        (armor(b"SSHSIG" + struct.pack(">I", 2)), "version"),
        (armor(b"SSHSIG" + struct.pack(">I", 1) + struct.pack(">I", 2**32 - 1)), "cut short"),
        (b"-----BEGIN SSH SIGNATURE-----\n!!!\n-----END SSH SIGNATURE-----", "base64"),
        (armor(b"\0" * 70_000), "malformed"),
        (container(ED_KEY, string(b"ssh-ed25519") + string(b"x" * 64)), "altered"),
        (container(ED_KEY, string(b"ssh-ed25519") + string(b"x" * 3)), "altered"),
        (container(ED_KEY, string(b"rsa-sha2-512") + string(b"x" * 64)), "contradicts"),
        (container(ED_KEY + b"x", string(b"ssh-ed25519") + string(b"x" * 64)), "trailing"),
        (container(ED_KEY, string(b"ssh-ed25519") + string(b"x" * 64) + b"y"), "trailing"),
        (container(string(b"ssh-ed25519") + string(b"x"), string(b"ssh-ed25519") + string(b"x")), "malformed"),
        (container(ED_KEY, b"", b"file"), "another purpose"),
        (container(ED_KEY, b"", hash_name=b"md5"), "unknown hash"),
        (container(string(b"ssh-dss"), string(b"ssh-dss")), "not supported"),
        (container(string(b"ssh-ed25519-cert-v01@openssh.com"), string(b"")), "certificates"),
        (container(RSA + string(b"\3") + string(b"\x7f" * 256), string(b"ssh-rsa") + string(b"x")), "SHA-2"),
        (container(RSA + string(b"\3") + string(b"\x7f" * 128), SHA512 + string(b"x")), "2048"),
        (container(RSA + string(b"\3") + string(b"\xff" * 256), SHA512 + string(b"x")), "negative"),
        (container(RSA + string(b"\2") + string(b"\0" + b"\xff" * 256), SHA512 + string(b"x")), "malformed"),
        (container(P256 + string(b"nistp384") + string(b"x"), P256), "contradicts"),
        (container(P256 + string(b"nistp256") + string(b"\4" + b"\1" * 64), P256 + string(b"")), "malformed"),
    ],
)
def test_malformed_signatures_are_refused(armored: bytes, words: str) -> None:
    with pytest.raises(SignatureRejected, match=words):
        check_signature(parse_signature(armored), b"payload")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_bit_of_a_signature_can_be_changed(keys: Callable[[str], Path], data: st.DataObject) -> None:
    key = keys(data.draw(st.sampled_from(["ed25519", "ecdsa-256", "rsa-2048"])))
    blob = bytearray(base64.b64decode(b"".join(_signed_once(key).split(b"\n")[1:-2])))
    position = data.draw(st.integers(0, len(blob) - 1))
    blob[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not ours(f"ada {public(key)}\n", armor(bytes(blob)), b"payload", EPOCH_S)


_SIGNED: dict[Path, bytes] = {}


def _signed_once(key: Path) -> bytes:
    return _SIGNED.setdefault(key, sign(key, b"payload"))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_and_nothing_else_happens(blob: bytes) -> None:
    for armored in (armor(blob), container(blob, blob), container(ED_KEY, blob)):
        with pytest.raises(SignatureRejected):
            check_signature(parse_signature(armored), b"payload")


# Commits and tags ---------------------------------------------------------------------------------------------------


@pytest.fixture
def signed(work: WorkTree, keys: Callable[[str], Path]) -> WorkTree:
    """A repository that signs what it commits and tags with ada's key."""
    for name, value in {
        "gpg.format": "ssh",
        "user.signingkey": str(keys("ed25519")),
        "commit.gpgsign": "true",
        "tag.gpgsign": "true",
    }.items():
        work.git("config", name, value)
    work.commit()
    return work


@pytest.fixture
def ada(keys: Callable[[str], Path]) -> str:
    return f"ada@example.com {public(keys('ed25519'))}\n"


def test_a_signed_commit(signed: WorkTree, ada: str) -> None:
    repo = open_repository(signed.path)
    assert by_commit(repo, signed.head(), parse_allowed_signers(ada.encode())) == "ada@example.com"
    # libgit2's own extraction is a second opinion on what was signed.
    mine = split_commit(repo.odb.read(signed.head())[1])
    signature, payload = repo[signed.head()].gpg_signature
    assert (mine.payload, mine.signature.strip()) == (payload, signature.strip())


def test_unsigned_rogue_and_late(signed: WorkTree, ada: str, keys: Callable[[str], Path]) -> None:
    repo = open_repository(signed.path)
    unsigned = signed.commit("a.yaml", "x", "--no-gpg-sign")
    rogue = signed.commit("a.yaml", "y", f"--gpg-sign={keys('ed25519:rogue')}")
    good = signed.commit()
    allowed = parse_allowed_signers(ada.encode())
    with pytest.raises(SignatureRejected, match="is not signed"):
        by_commit(repo, unsigned, allowed)
    with pytest.raises(SignatureRejected, match="not among the allowed"):
        by_commit(repo, rogue, allowed)
    expired = parse_allowed_signers(ada.replace(" ", ' valid-before="20231114" ', 1).encode())
    with pytest.raises(SignatureRejected, match="had expired"):
        by_commit(repo, good, expired)
    with pytest.raises(SignatureRejected, match="allowed"):
        by_commit(repo, good, parse_allowed_signers(b""))


def test_a_tampered_commit(signed: WorkTree, ada: str) -> None:
    raw = signed.git("cat-file", "commit", signed.head()).encode() + b"\n"
    forged = signed.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.replace(b"\n\nchange", b"\n\nmalice"))
    with pytest.raises(SignatureRejected, match="altered"):
        by_commit(open_repository(signed.path), forged, parse_allowed_signers(ada.encode()))


def test_a_second_signature_is_refused(signed: WorkTree) -> None:
    raw = open_repository(signed.path).odb.read(signed.head())[1]
    head, _, message = raw.partition(b"\n\n")
    with pytest.raises(SignatureRejected, match="more than one"):
        split_commit(head + b"\ngpgsig x\n y\n\n" + message)
    with pytest.raises(SignatureRejected, match="more than one"):
        split_commit(head + b"\ngpgsig-sha256 x\n\n" + message)


def test_the_first_sight_counts_and_not_the_committers_clock(signed: WorkTree, ada: str) -> None:
    """Whoever holds an expired key can write any time into a commit."""
    signed.seconds = EPOCH_S - 10 * 86_400
    repo, back_dated = open_repository(signed.path), signed.commit()
    expired = parse_allowed_signers(ada.replace(" ", ' valid-before="20231114" ', 1).encode())
    with pytest.raises(SignatureRejected, match="had expired when this was first seen"):
        by_commit(repo, back_dated, expired)
    assert by_commit(repo, back_dated, expired, seen_s=EPOCH_S - 86_400.0) == "ada@example.com"
    later = parse_allowed_signers(ada.replace(" ", ' valid-after="20231115" ', 1).encode())
    with pytest.raises(SignatureRejected, match="was not valid yet when this was first seen"):
        by_commit(repo, back_dated, later)


def test_what_was_read_must_be_what_its_name_says(signed: WorkTree, ada: str) -> None:
    found = evidence(open_repository(signed.path), Target("", signed.head()))
    signers = ListedSigners(SshSigners(parse_allowed_signers(ada.encode())))
    with pytest.raises(SignatureRejected, match="is not"):
        verify_revision(replace(found, target=Target("", "1" * 40)), Mode.HEAD, signers, EPOCH_S)


def test_pgp_is_refused_in_words(signed: WorkTree, ada: str) -> None:
    raw = open_repository(signed.path).odb.read(signed.head())[1].replace(b"SSH SIGNATURE", b"PGP SIGNATURE")
    oid = signed.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw)
    with pytest.raises(SignatureRejected, match="carries an OpenPGP signature, and SSH signatures count"):
        by_commit(open_repository(signed.path), oid, parse_allowed_signers(ada.encode()))


def evidence(repo: Any, target: Target) -> Evidence:
    """As the reader gives it."""
    ref = repo.references.get(target.ref) if target.ref else None
    raw = target.oid if ref is None else str(ref.target)
    tagged = raw != target.oid and repo.odb.read_header(raw)[0] == ObjectType.TAG
    return Evidence(target, raw, repo.odb.read(target.oid)[1], repo.odb.read(raw)[1] if tagged else b"")


def by_mode(repo: Any, target: Target, mode: Mode, allowed: AllowedSigners, seen_s: float = EPOCH_S) -> str:
    return verify_revision(evidence(repo, target), mode, ListedSigners(SshSigners(allowed)), seen_s).signer


def by_commit(repo: Any, oid: str, allowed: AllowedSigners, seen_s: float = EPOCH_S) -> str:
    return by_mode(repo, Target("", oid), Mode.HEAD, allowed, seen_s)


def tag(work: WorkTree, name: str, *flags: str) -> Target:
    work.git("tag", "-m", f"release\n\n{name}", *flags, name, GIT_COMMITTER_DATE=f"{work.seconds} +0000")
    return Target(f"refs/tags/{name}", work.head(f"{name}^{{commit}}"))


def test_a_signed_tag(signed: WorkTree, ada: str) -> None:
    target = tag(signed, "v1.0.0", "-s")
    repo = open_repository(signed.path)
    assert by_mode(repo, target, Mode.TAG, parse_allowed_signers(ada.encode())) == "ada@example.com"
    raw = repo.odb.read(signed.head("v1.0.0"))[1]
    parts = split_tag(raw)
    assert parts.payload + parts.signature == raw


@pytest.mark.parametrize(
    ("mode", "name", "accepted"),
    [
        (Mode.HEAD, "signed", True),
        (Mode.TAG, "signed", True),
        (Mode.TAG_AND_HEAD, "signed", True),
        (Mode.HEAD, "plain", True),
        (Mode.TAG, "plain", False),
        (Mode.TAG_AND_HEAD, "plain", False),
        (Mode.HEAD, "light", True),
        (Mode.TAG, "light", False),
        (Mode.HEAD, "over-unsigned", False),
        (Mode.TAG, "over-unsigned", True),
        (Mode.TAG_AND_HEAD, "over-unsigned", False),
        (Mode.TAG, "rogue", False),
        (Mode.TAG, "branch", False),
        (Mode.TAG, "nested", False),
        (Mode.TAG, "absent", False),
    ],
)
def test_modes(signed: WorkTree, ada: str, keys: Callable[[str], Path], mode: Mode, name: str, accepted: bool) -> None:
    targets = {"signed": tag(signed, "signed", "-s"), "plain": tag(signed, "plain", "--no-sign", "-a")}
    signed.git("config", "tag.gpgsign", "false")
    signed.git("tag", "light")
    targets["light"] = Target("refs/tags/light", signed.head())
    targets["rogue"] = tag(signed, "rogue", "-u", str(keys("ed25519:rogue")))
    targets["branch"] = Target("refs/heads/main", signed.head())
    targets["absent"] = Target("refs/tags/absent", signed.head())
    signed.git("tag", "-s", "-m", "n", "nested", "signed")
    targets["nested"] = Target("refs/tags/nested", signed.head())
    signed.commit("a.yaml", "x", "--no-gpg-sign")
    targets["over-unsigned"] = tag(signed, "over-unsigned", "-s")
    allowed = parse_allowed_signers(ada.encode())
    repo = open_repository(signed.path)
    if accepted:
        assert by_mode(repo, targets[name], mode, allowed) == "ada@example.com"
    else:
        with pytest.raises(SignatureRejected):
            by_mode(repo, targets[name], mode, allowed)


def test_a_signed_tag_cannot_be_put_up_under_another_name_or_commit(signed: WorkTree, ada: str) -> None:
    target = tag(signed, "v1.0.0", "-s")
    signed.git("update-ref", "refs/tags/v2.0.0", signed.head("refs/tags/v1.0.0"))
    repo, allowed = open_repository(signed.path), parse_allowed_signers(ada.encode())
    with pytest.raises(SignatureRejected, match="another name"):
        by_mode(repo, replace_ref(target, "refs/tags/v2.0.0"), Mode.TAG, allowed)
    later = signed.commit()
    with pytest.raises(SignatureRejected, match="another name or commit"):
        by_mode(repo, Target(target.ref, later), Mode.TAG, allowed)


def replace_ref(target: Target, ref: str) -> Target:
    return target._replace(ref=ref)


def test_the_list_is_read_anew_and_its_absence_allows_nobody(tmp_path: Path, ada: str) -> None:
    path = tmp_path / "signers"
    wanted = Verification(path)
    with pytest.raises(SignatureRejected, match="cannot be read"):
        wanted.read()
    path.write_text(ada)
    wanted.check()
    assert wanted.read().parse() == ListedSigners(SshSigners(parse_allowed_signers(ada.encode())))
    path.write_text("")
    assert wanted.read().parse() == ListedSigners(SshSigners(parse_allowed_signers(b"")))
    path.write_text("ada what")
    with pytest.raises(SignatureRejected, match="line 1"):
        wanted.check()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trust": (TrustMode.FORGE_APPROVAL,), "allowed_signers": Path("x")}, "allowedSigners counts only with ssh"),
        ({"trust": (TrustMode.PGP,)}, "pgp needs source.pgpKeys"),
        ({}, "ssh needs source.allowedSigners"),
        ({"allowed_signers": Path("x"), "pgp_keys": Path("y")}, "pgpKeys counts only with pgp in source.trust"),
    ],
)
def test_a_mode_of_trust_and_its_file_go_together(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Verification(**given)


@pytest.mark.parametrize(
    ("message", "confirmed"),
    [
        (
            b"Drop\n\nMuster-Confirm-Deletion: nodepool/a\nMuster-Confirm-Deletion: team/b.c\n",
            {"nodepool/a", "team/b.c"},
        ),
        (b"Drop\n\nMuster-Confirm-Deletion: nodepool/a\n\nmore", set()),
        (b"Muster-Confirm-Deletion: nodepool/a", {"nodepool/a"}),
        (b"Drop\n\n Muster-Confirm-Deletion: nodepool/a", set()),
        (b"Drop\n\nMuster-Confirm-Deletion: nodepool/a and more", set()),
        (b"Drop\n\nMuster-Confirm-Deletion: queue/a", set()),
        (b"Drop\n\nMuster-Confirm-Deletion: nodepool/" + b"a" * 63, {"nodepool/" + "a" * 63}),
        (b"Drop\n\nMuster-Confirm-Deletion: nodepool/" + b"a" * 64, set()),
    ],
)
def test_what_a_message_confirms(message: bytes, confirmed: set[str]) -> None:
    assert confirmations(b"tree 0\nauthor a\n\n" + message) == confirmed


def test_a_message_confirms_no_more_than_so_much() -> None:
    lines = b"\n".join(b"Muster-Confirm-Deletion: team/t%d" % n for n in range(3 * MOST_TRAILERS))
    assert len(confirmations(b"tree 0\n\nDrop\n\n" + lines)) == MOST_TRAILERS
