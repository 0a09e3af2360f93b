"""The network at its worst: silence, refusal, redirects, wrong credentials, certificates nobody vouches for."""

import base64
import datetime as dt
import ipaddress
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pygit2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pygit2.enums import CredentialType

from providers.clock import Clock, VirtualClock
from providers.git.auth import Bearer, ForgeToken, Remote, SshKey, UserPassword, host_of
from providers.git.errors import (
    AuthenticationFailed,
    CacheUnavailable,
    CorruptRepository,
    HostKeyRejected,
    InvalidSelector,
    RemoteUnreachable,
    RepositoryTooLarge,
    SourceError,
    UnsupportedRepository,
)
from providers.git.limits import MirrorLimits
from providers.git.repository import BareMirror
from providers.git.transport import TransferLimits, callbacks, translated
from tests.providers.git.ssh_server import half_ssh_server
from tests.providers.git.support import ENVIRONMENT, MAIN, GitHttpServer, SmartHttp, WorkTree

MakeMirror = Callable[..., BareMirror]
QUICK = {"connect_timeout_s": 0.2, "read_timeout_s": 0.2}


@pytest.mark.parametrize("scheme", ["http", "https", "git", "ssh"])
def test_a_silent_server_costs_a_time_out(make_mirror: MakeMirror, silent_port: int, scheme: str) -> None:
    mirror = make_mirror(f"{scheme}://git@127.0.0.1:{silent_port}/fleet.git", **QUICK)
    with pytest.raises(RemoteUnreachable) as caught:  # without ours it would wait for the server for ever
        mirror.list_remote()
    assert caught.value.transient


@pytest.mark.parametrize("scheme", ["http", "https", "git", "ssh"])
def test_nobody_listens(make_mirror: MakeMirror, scheme: str) -> None:
    with pytest.raises(RemoteUnreachable):
        make_mirror(f"{scheme}://127.0.0.1:1/fleet.git", **QUICK).list_remote()


def test_a_server_that_drips_is_stopped_by_the_deadline(
    work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer
) -> None:
    """Every byte resets libgit2's own time-out; ours counts from the start."""

    def drip(request: SmartHttp) -> bool:
        if request.command != "POST":
            return False
        request.send_response(200)
        request.send_header("Content-Type", "application/x-git-upload-pack-result")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"8\r\n0008NAK\n\r\n")
        while not request.server.stopping.wait(0.05):
            request.wfile.write(b"7\r\n0007\x02..\r\n")
            request.wfile.flush()
        return True

    http_git.rules.append(drip)
    work.commit()
    root = work.path.parent / "drip"
    mirror = BareMirror(Remote(f"{http_git.url}/work/.git"), root, _Monotonic(), MirrorLimits(deadline_s=0.4))
    with pytest.raises(RemoteUnreachable, match="longer than"):
        mirror.fetch([MAIN])
    mirror.close()


class _Monotonic:
    """The machine's clock: this test is about real seconds."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def flipped(content: bytes) -> bytes:
    """One bit of the pack is wrong."""
    place = content.index(b"PACK") + 20_000
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda content: content[: len(content) // 2], RemoteUnreachable),
        (lambda _content: b"", RemoteUnreachable),
        (flipped, CorruptRepository),
    ],
    ids=["half", "nothing", "flipped"],
)
def test_a_download_that_goes_wrong_leaves_nothing_behind(
    work: WorkTree,
    make_mirror: MakeMirror,
    http_git: GitHttpServer,
    spoil: Callable[[bytes], bytes],
    error: type[SourceError],
) -> None:
    mirror = make_mirror(f"{http_git.url}/work/.git")
    mirror.fetch([MAIN])
    before = mirror.heads()
    work.write("big.bin", os.urandom(30_000).hex())
    work.commit()
    http_git.spoil = spoil
    with pytest.raises(error):
        mirror.fetch([MAIN])
    assert mirror.heads() == before
    http_git.spoil = lambda content: content
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == work.head()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AuthenticationFailed),
        (403, RemoteUnreachable),
        (404, RemoteUnreachable),
        (429, RemoteUnreachable),
        (500, RemoteUnreachable),
    ],
)
def test_http_errors(make_mirror: MakeMirror, http_git: GitHttpServer, status: int, error: type[SourceError]) -> None:
    http_git.rules.append(lambda request: request.reply(status, {"WWW-Authenticate": 'Basic realm="x"'}))
    with pytest.raises(error):
        make_mirror(f"{http_git.url}/work/.git").list_remote()


def test_a_page_instead_of_git(make_mirror: MakeMirror, http_git: GitHttpServer) -> None:
    http_git.rules.append(lambda request: request.reply(200, {"Content-Type": "text/html"}, b"<html>"))
    with pytest.raises(RemoteUnreachable):
        make_mirror(f"{http_git.url}/work/.git").list_remote()


def basic(user: str, password: str) -> Callable[[SmartHttp], bool]:
    wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def rule(request: SmartHttp) -> bool:
        if request.headers.get("Authorization") == wanted:
            return False
        return request.reply(401, {"WWW-Authenticate": 'Basic realm="git"'})

    return rule


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("auth", [UserPassword("ada", "test"), ForgeToken("test", "ada")])
def test_basic_authentication(
    work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer, auth: UserPassword | ForgeToken, closes: bool
) -> None:
    http_git.closes = closes
    http_git.rules.append(basic("ada", "test"))
    mirror = make_mirror(Remote(f"{http_git.url}/work/.git", auth))
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == work.head()


@pytest.mark.parametrize(
    "auth", [None, UserPassword("ada", "wrong"), ForgeToken("wrong"), SshKey("none"), Bearer("wrong")]
)
def test_wrong_credentials_are_tried_a_few_times_only(
    work: WorkTree,
    make_mirror: MakeMirror,
    http_git: GitHttpServer,
    auth: UserPassword | ForgeToken | SshKey | Bearer | None,
) -> None:
    http_git.rules.append(basic("ada", "test"))
    with pytest.raises(AuthenticationFailed) as caught:
        make_mirror(Remote(f"{http_git.url}/work/.git", auth)).list_remote()
    assert not caught.value.transient
    assert "wrong" not in str(caught.value)
    assert len(http_git.seen) <= 4


def test_a_bearer_token(work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer) -> None:
    def rule(request: SmartHttp) -> bool:
        if request.headers.get("Authorization") == "Bearer test":
            return False
        return request.reply(401, {"WWW-Authenticate": "Bearer"})

    http_git.rules.append(rule)
    mirror = make_mirror(Remote(f"{http_git.url}/work/.git", Bearer("test")))
    mirror.list_remote()
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == work.head()


@pytest.mark.parametrize("auth", [Bearer("test"), UserPassword("ada", "test"), None])
def test_credentials_do_not_follow_a_redirect_to_another_host(
    work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer, auth: Bearer | UserPassword | None
) -> None:
    """libgit2 hands custom headers to whoever a redirect names; the mirror's configuration forbids following."""

    def rule(request: SmartHttp) -> bool:
        if request.headers["Host"].startswith("localhost"):
            return False
        return request.reply(302, {"Location": f"http://localhost:{http_git.server_port}{request.path}"})

    http_git.rules.append(rule)
    with pytest.raises(SourceError):
        make_mirror(Remote(f"{http_git.url}/work/.git", auth)).list_remote()
    assert [headers["Host"] for _, headers in http_git.seen if headers["Host"].startswith("localhost")] == []


def test_a_redirect_within_the_host_is_followed(
    work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer
) -> None:
    """Forges redirect `fleet` to `fleet.git`."""

    def rule(request: SmartHttp) -> bool:
        if not request.path.startswith("/old/"):
            return False
        return request.reply(302, {"Location": f"{http_git.url}{request.path.replace('/old/', '/work/')}"})

    http_git.rules.append(rule)
    mirror = make_mirror(Remote(f"{http_git.url}/old/.git", Bearer("test")))
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == work.head()


def test_a_proxy_is_used_when_given(make_mirror: MakeMirror, http_git: GitHttpServer) -> None:
    http_git.rules.append(lambda request: request.reply(502, {}))
    with pytest.raises(RemoteUnreachable):
        make_mirror(Remote("https://git.invalid/fleet.git", proxy=http_git.url)).list_remote()
    assert http_git.seen[0][0] == "git.invalid:443"
    with pytest.raises(InvalidSelector):
        Remote("http://git.invalid/fleet.git", proxy=http_git.url)


RAW = "import pygit2; r = pygit2.init_repository(sys.argv[2], bare=True)"
OURS = """
from providers.clock import SystemClock; from providers.git.auth import Remote
from providers.git.repository import BareMirror; import pathlib
r = BareMirror(Remote(sys.argv[1]), pathlib.Path(sys.argv[2]), SystemClock()).repository()
"""


@pytest.mark.parametrize(("opened", "redirected"), [(RAW, True), (OURS, False)], ids=["libgit2", "ours"])
def test_the_users_configuration_is_out_of_reach(
    work: WorkTree, make_work: Callable[[str], WorkTree], tmp_path: Path, opened: str, redirected: bool
) -> None:
    """libgit2 finds the home folder once a process, so each case has one; the first shows that the trap is real."""
    other = make_work("other")
    other.commit("x.yaml", "other")
    (tmp_path / ".gitconfig").write_text(f'[url "{other.path}"]\n\tinsteadOf = {work.path}\n')
    listing = "print(*(head.oid for head in r.remotes.create_anonymous(sys.argv[1]).list_heads()))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{opened}\n{listing}", str(work.path), str(tmp_path / "probe")],
        env={**ENVIRONMENT, "HOME": str(tmp_path), "GIT_DIR": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == (other if redirected else work).head()


@pytest.fixture
def tls(http_git: GitHttpServer, tmp_path: Path) -> tuple[str, Path]:
    """The git server behind a certificate of its own making: its URL and that certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file, secret = tmp_path / "ca.pem", tmp_path / "key.pem"
    file.write_bytes(certificate.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    http_git.socket = context.wrap_socket(http_git.socket, server_side=True)
    return f"https://127.0.0.1:{http_git.server_port}/work/.git", file


def test_https_with_a_certificate_we_were_given(work: WorkTree, make_mirror: MakeMirror, tls: tuple[str, Path]) -> None:
    url, authority = tls
    with pytest.raises(HostKeyRejected):
        make_mirror(Remote(url)).list_remote()
    mirror = make_mirror(Remote(f"{url}/", ca_file=authority))
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == work.head()


@pytest.mark.parametrize("operation", ["list_remote", "fetch"])
@pytest.mark.parametrize(
    ("known", "logins", "error"),
    [
        ("right", 1, AuthenticationFailed),  # the server hangs up on the login
        ("none", 0, HostKeyRejected),
        ("other key", 0, HostKeyRejected),
        ("other host", 0, HostKeyRejected),
        ("garbage", 0, RemoteUnreachable),
    ],
)
def test_no_login_to_an_ssh_host_we_do_not_know(
    make_mirror: MakeMirror, known: str, logins: int, error: type[SourceError], operation: str
) -> None:
    with half_ssh_server() as server, half_ssh_server() as other:
        text = {
            "right": server.known_hosts,
            "none": "",
            "other key": other.known_hosts.replace(str(other.port), str(server.port)),
            "other host": other.known_hosts,
            "garbage": "garbage\n",
        }[known]
        url = f"ssh://git@127.0.0.1:{server.port}/fleet.git"
        mirror = make_mirror(Remote(url, SshKey("test"), known_hosts=text), connect_timeout_s=2, read_timeout_s=2)
        with pytest.raises(error):
            mirror.fetch([MAIN]) if operation == "fetch" else mirror.list_remote()
    assert server.logins == logins


def test_only_our_known_hosts_are_seen(make_mirror: MakeMirror, work: WorkTree) -> None:
    mirror = make_mirror(Remote(f"file://{work.path}", known_hosts="git.example.com ssh-ed25519 AAAA\n"))
    mirror.list_remote()
    assert pygit2.settings.homedir == str(mirror.root / "home")
    assert (mirror.root / "home" / ".ssh" / "known_hosts").read_text() == "git.example.com ssh-ed25519 AAAA\n"
    assert pygit2.settings.server_timeout > 0
    assert pygit2.settings.server_connect_timeout > 0


LIMITS = TransferLimits(10.0, 1_000)
USERNAME, PLAIN, SSH = (
    CredentialType.USERNAME,
    CredentialType.USERPASS_PLAINTEXT,
    CredentialType.SSH_MEMORY | CredentialType.SSH_KEY,
)


@pytest.mark.parametrize(
    ("auth", "user", "allowed", "expected"),
    [
        (SshKey("key", "public", "phrase"), None, USERNAME, ("git",)),
        (SshKey("key", user="deploy"), None, USERNAME, ("deploy",)),
        (SshKey("key", "public", "phrase"), "git", SSH, ("git", "public", "key", "phrase")),
        (SshKey("key"), None, SSH, ("git", None, "key", "")),
        (UserPassword("ada", "test"), "git", PLAIN, ("ada", "test")),
        (ForgeToken("test"), None, PLAIN, ("x-access-token", "test")),
        (UserPassword("ada", "test"), "git", SSH, None),
        (SshKey("key"), "git", PLAIN, None),
        (Bearer("test"), "git", PLAIN, None),
        (None, "git", SSH, None),
    ],
)
def test_what_is_offered_for_what_is_asked(
    auth: SshKey | UserPassword | ForgeToken | Bearer | None,
    user: str | None,
    allowed: CredentialType,
    expected: tuple[str | None, ...] | None,
) -> None:
    made = callbacks(Remote("ssh://git.example.com/fleet.git", auth), LIMITS, VirtualClock())
    if expected is None:
        with pytest.raises(AuthenticationFailed):
            made.credentials("ssh://git.example.com/fleet.git", user, allowed)
    else:
        assert made.credentials("ssh://git.example.com/fleet.git", user, allowed).credential_tuple == expected


def test_the_host_must_be_ours_and_the_tries_end() -> None:
    made = callbacks(Remote("https://git.example.com/x", ForgeToken("test")), LIMITS, VirtualClock())
    with pytest.raises(AuthenticationFailed):
        made.credentials("https://evil.example.com/x", None, PLAIN)
    made.credentials("https://git.example.com/x", None, PLAIN)
    made.credentials("https://GIT.example.com/x", None, PLAIN)
    made.credentials("https://git.example.com/x", None, PLAIN)
    with pytest.raises(AuthenticationFailed):
        made.credentials("https://git.example.com/x", None, PLAIN)


def test_time_and_bytes_are_watched() -> None:
    clock = VirtualClock()
    made = callbacks(Remote("https://git.example.com/x"), LIMITS, clock)

    class Stats:
        received_bytes = 1_000

    made.transfer_progress(Stats())
    clock.advance(10)
    made.sideband_progress("counting")
    Stats.received_bytes = 1_001
    with pytest.raises(RepositoryTooLarge):
        made.transfer_progress(Stats())
    clock.advance(0.1)
    with pytest.raises(RemoteUnreachable):
        made.sideband_progress("counting")


def git_error(error_class: int) -> pygit2.GitError:
    error = pygit2.GitError("https://ada:test@git.example.com/x failed")
    error.error_class = error_class
    return error


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (pygit2.AuthError("x"), AuthenticationFailed),
        (pygit2.CertificateError("x"), HostKeyRejected),
        (git_error(12), RemoteUnreachable),
        (git_error(34), RemoteUnreachable),
        (git_error(6), UnsupportedRepository),
        (git_error(9), CorruptRepository),
        (git_error(15), CorruptRepository),
        (KeyError("1" * 40), CorruptRepository),
        (OSError(28, "No space left on device"), CacheUnavailable),
        (RepositoryTooLarge("x"), RepositoryTooLarge),
    ],
)
def test_errors_become_types_and_keep_the_password_to_themselves(
    raised: Exception, expected: type[SourceError]
) -> None:
    with pytest.raises(expected) as caught, translated(Remote("https://ada:test@git.example.com/x")):
        raise raised
    assert "test" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "scheme", "host", "shown"),
    [
        (
            "https://u:p@Git.example.com:8443/x.git?a#b",
            "https",
            "git.example.com",
            "https://Git.example.com:8443/x.git",
        ),
        ("git@git.example.com:team/fleet.git", "ssh", "git.example.com", "git@git.example.com:team/fleet.git"),
        ("ssh://git@git.example.com/x", "ssh", "git.example.com", "ssh://git.example.com/x"),
        ("file:///srv/x.git", "file", "", "file:///srv/x.git"),
        ("/srv/a:b.git", "file", "", "/srv/a:b.git"),
    ],
)
def test_addresses(url: str, scheme: str, host: str, shown: str) -> None:
    remote = Remote(url)
    assert (remote.scheme, remote.host, remote.shown, host_of(url)) == (scheme, host, shown, host)
    assert "u:p" not in repr(remote)


@pytest.mark.parametrize("url", ["", "relative/path", "ext::sh -c id", "ftp://x/y", "https://x/\ny", "foo://x"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidSelector):
        Remote(url)


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "ä", "a b", "a\n"])
def test_a_token_cannot_smuggle_headers(token: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        Bearer(token)


def test_secrets_do_not_show() -> None:
    for auth in (UserPassword("u", "hidden"), ForgeToken("hidden"), Bearer("hidden"), SshKey("hidden", "", "hidden")):
        assert "hidden" not in repr(Remote("https://u:hidden@x/y", auth))


def test_the_clock_is_a_port() -> None:
    clock: Clock = _Monotonic()
    assert clock.monotonic() <= clock.monotonic()
