"""How the agent gets into the repository: what is missing is said with its remedy, what changes is read again."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from agent.cli.run import run_agent
from agent.config import InvalidConfiguration, Settings, load_settings
from agent.fleet_source import open_source, remote_of
from agent.logs import configure_logs
from model.addresses import without_secrets
from providers.clock import VirtualClock
from providers.git.auth import Bearer, SshKey, UserPassword
from providers.git.errors import AuthenticationFailed, CredentialsMissing, SignatureRejected, SourceError
from tests.agent.test_config import GOOD, written
from tests.providers.git.support import GitHttpServer, SmartHttp, WorkTree
from tests.providers.git.test_transport import basic

URL = "https://git.example.com/fleet.git"
SECRET = "ghp_verysecret"
TALE = f"went to https://bot:{SECRET}@x/y"


@pytest.fixture
def http_git(tmp_path: Path) -> Iterator[GitHttpServer]:
    server = GitHttpServer(tmp_path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def settings_of(folder: Path, **source: Any) -> Settings:
    return load_settings(written(folder, {**GOOD, "source": {"url": URL, "cacheDir": str(folder / "cache"), **source}}))


@pytest.mark.parametrize(
    "url",
    [
        f"https://bot:{SECRET}@git.example.com/fleet.git",
        f"https://{SECRET}@git.example.com/fleet.git",
        f"http://bot:{SECRET}@git.example.com/fleet.git",
        f"ssh://git:{SECRET}@git.example.com/fleet.git",
        f"{URL}?private_token={SECRET}",
        f"{URL}#{SECRET}",
        f"https://bot:p@{SECRET}@git.example.com/fleet.git",
    ],
)
def test_a_secret_in_the_address_is_refused_with_the_remedy_and_not_repeated(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        settings_of(tmp_path, url=url)
    assert "source.url" in str(caught.value)
    assert "auth.passwordEnv or auth.passwordFile" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert run_agent(tmp_path / "muster.yaml") == 1
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert SECRET not in without_secrets(f"fetching {url} failed, see {url}")


@pytest.mark.parametrize(
    "url", [URL, "ssh://git@git.example.com/fleet.git", "git@git.example.com:fleet.git", "/srv/f.git"]
)
def test_addresses_without_a_secret_stay_as_they_are(tmp_path: Path, url: str) -> None:
    assert settings_of(tmp_path, url=url).source.url == url


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_log_line_carries_a_secret(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_format)
    log = structlog.get_logger("x")
    log.warning(TALE, source=f"https://{SECRET}@x/y?token={SECRET}")
    try:
        raise ValueError(f"https://bot:{SECRET}@x/y is bad")
    except ValueError:
        log.exception("failed")
    said = capsys.readouterr().err
    assert "https://x/y" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("source", "key", "words"),
    [
        ({"auth": {"passwordEnv": "A", "bearerEnv": "B"}}, "source.auth", "passwordEnv and bearerEnv are given"),
        ({"auth": {"passwordEnv": "A", "passwordFile": "/b"}}, "source.auth", "passwordEnv and passwordFile are given"),
        ({"auth": {"sshPassphraseEnv": "A"}}, "source.auth", "needs sshKeyFile"),
        ({"proxy": "http://p:3128", "proxyEnv": "P"}, "source", "proxy and proxyEnv are given"),
        ({"proxy": f"http://a:{SECRET}@p:3128"}, "source", "name a variable that holds it in proxyEnv"),
        ({"url": "git@x:y", "proxy": "http://p:3128"}, "source", "a proxy is used for https only"),
        ({"url": "git@x:y", "caFile": "/x"}, "source", "caFile is used for https only"),
        ({"allowRewind": ["abc"]}, "source.allowRewind", "pattern"),
        ({"history": "Backwards"}, "source.history", "FastForward"),
        ({"trust": ["x509"]}, "source.trust", "'ssh', 'pgp'"),
        ({"limits": {"memoryMib": 1}}, "source.limits.memoryMib", "256"),
    ],
)
def test_mistakes_in_the_section(tmp_path: Path, source: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        settings_of(tmp_path, **source)
    assert key in str(caught.value)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"auth": {"passwordEnv": "NOT_SET"}}, "source.auth.passwordEnv names the environment variable NOT_SET"),
        ({"auth": {"bearerEnv": "NOT_SET"}}, "source.auth.bearerEnv names"),
        ({"auth": {"sshKeyFile": "/x/key"}}, "source.auth.sshKeyFile /x/key cannot be read: No such file"),
        ({"auth": {"passwordFile": "/x/p"}}, "source.auth.passwordFile /x/p cannot be read"),
        ({"proxyEnv": "NOT_SET"}, "source.proxyEnv names"),
        ({"knownHosts": "/x/known"}, "source.knownHosts /x/known cannot be read"),
        ({"caFile": "/x/ca"}, "source.caFile /x/ca cannot be read"),
        ({"caFile": __file__}, "has no certificate in PEM form"),
    ],
)
def test_what_is_named_and_missing_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any], words: str
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(CredentialsMissing) as caught:
        open_source(settings_of(tmp_path, **source), VirtualClock())
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"trust": ["pgp"]}, "pgp needs source.pgpKeys"),
        ({"trust": ["pgp"], "pgpKeys": "/x", "allowedSigners": "/x"}, "allowedSigners counts only with ssh"),
        ({"pgpKeys": "/x"}, "ssh needs source.allowedSigners"),
        ({"allowedSigners": "/x/signers"}, "the list of signers /x/signers cannot be read"),
    ],
)
def test_a_mode_of_trust_that_cannot_work_is_said_at_the_start(
    tmp_path: Path, source: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, SignatureRejected), match=words):
        open_source(settings_of(tmp_path, **source), VirtualClock())


def test_every_way_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S", "secret")
    (tmp_path / "s").write_text("secret\n")
    for auth, expected in (
        ({"passwordEnv": "S", "username": "u"}, UserPassword("u", "secret")),
        ({"passwordFile": str(tmp_path / "s")}, UserPassword("x-access-token", "secret")),
        ({"bearerEnv": "S"}, Bearer("secret")),
        ({"bearerFile": str(tmp_path / "s")}, Bearer("secret")),
        ({"sshKeyFile": str(tmp_path / "s"), "sshPassphraseEnv": "S"}, SshKey("secret\n", passphrase="secret")),
        ({}, None),
    ):  # fmt: skip
        assert remote_of(settings_of(tmp_path, auth=auth).source).auth == expected
    assert remote_of(settings_of(tmp_path, proxy="http://p:3128").source).proxy == "http://p:3128"
    monkeypatch.setenv("P", f"http://a:{SECRET}@p:3128")
    remote = remote_of(settings_of(tmp_path, proxyEnv="P").source)
    assert remote.proxy == f"http://a:{SECRET}@p:3128"
    assert SECRET not in repr(remote)


def test_a_token_that_changes_in_its_file_counts_at_the_next_poll(tmp_path: Path, http_git: GitHttpServer) -> None:
    work = WorkTree(tmp_path / "work")
    work.path.mkdir()
    work.git("init", "-q", "-b", "main")
    work.commit()
    old, new = basic("ada", "old"), basic("ada", "new")
    http_git.rules.append(old)
    token = tmp_path / "token"
    token.write_text("old\n")
    auth = {"username": "ada", "passwordFile": str(token)}
    source = open_source(settings_of(tmp_path, url=f"{http_git.url}/work/.git", auth=auth), VirtualClock())
    try:
        assert source.poll() is not None
        http_git.rules[:] = [new]
        with pytest.raises(AuthenticationFailed):
            source.poll()
        token.write_text("new\n")
        assert source.poll() is None
        token.unlink()
        with pytest.raises(CredentialsMissing):
            source.poll()
        assert source.last_good is not None
    finally:
        source.close()


def test_no_error_of_the_source_carries_its_credentials(tmp_path: Path, http_git: GitHttpServer) -> None:
    def away(request: SmartHttp) -> bool:
        return request.reply(302, {"Location": f"http://127.0.0.1:1/x?token={SECRET}"})

    http_git.rules.append(away)
    (tmp_path / "token").write_text(SECRET)
    auth = {"passwordFile": str(tmp_path / "token")}
    source = open_source(settings_of(tmp_path, url=f"{http_git.url}/work/.git", auth=auth), VirtualClock())
    try:
        with pytest.raises(SourceError) as caught:
            source.poll()
        assert SECRET not in str(caught.value)
    finally:
        source.close()
