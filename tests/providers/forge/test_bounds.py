"""What GitLab's and Forgejo's adapters bear: rates, refusals, answers that mean ill. GitHub's has tests of its own."""

import gzip
import json
import socket
import ssl
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.forge.forgejo import ForgejoForge, ForgejoToken
from providers.forge.gitlab import GitLabForge, GitLabToken
from providers.forge.port import ForgeError, ForgeRateLimited, ForgeUnreachable, RequestState
from providers.sim.forge import ForgeFault, ForgejoDialect, ForgeServer, ForgeState, GitLabDialect
from providers.sim.forge.forgejo import ForgejoDocuments
from providers.sim.forge.gitlab.documents import GitLabDocuments
from tests.providers.forge.conftest import NOW_S, TOKEN, HurriedClock, MakeWorld
from tests.providers.forge.contract import HEAD
from tests.support.certificates import write_loopback_certificate

_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class AdapterKind:
    """A forge, and how its requests are told."""

    name: str
    forge: Callable[..., Any]
    token: Callable[[str], Any]
    dialect: Any
    prefix: str
    client: str
    document: dict[str, Any]
    number: str
    head: Callable[[Any], dict[str, Any]]
    """The part of a document that tells a head."""


def _documents() -> tuple[dict[str, Any], dict[str, Any]]:
    state = ForgeState("acme", "fleet", VirtualClock(NOW_S))
    request = state.open("t", state.owner, HEAD)
    gitlab = GitLabDocuments(state, "https://web").request(request, whole=False)
    return gitlab, ForgejoDocuments(state, "https://api", "https://web").request(request)


_GITLAB, _FORGEJO = _documents()
KINDS = {
    "GitLab": AdapterKind(
        "GitLab",
        GitLabForge,
        GitLabToken,
        GitLabDialect,
        "/api/v4",
        "providers.forge.gitlab.client",
        _GITLAB,
        "iid",
        lambda commit: {"sha": commit},
    ),
    "Forgejo": AdapterKind(
        "Forgejo",
        ForgejoForge,
        ForgejoToken,
        ForgejoDialect,
        "/api/v1",
        "providers.forge.forgejo.client",
        _FORGEJO,
        "number",
        lambda commit: {"head": {**_FORGEJO["head"], "sha": commit}},
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> AdapterKind:
    return KINDS[request.param]


@pytest.fixture
def make(kind: AdapterKind, make_gitlab: MakeWorld, make_forgejo: MakeWorld) -> MakeWorld:
    return {"GitLab": make_gitlab, "Forgejo": make_forgejo}[kind.name]


def saying(document: Any, status: int = 200, **headers: str) -> ForgeFault:
    """An answer that is well-formed JSON, whatever it says."""
    return ForgeFault(status, {**_JSON, **headers}, (json.dumps(document).encode(),))


def refused(make: MakeWorld, *faults: ForgeFault, **more: Any) -> ForgeError:
    """What looking at requests ends with where a forge answers by these."""
    world = make(**more)
    world.server.fail(*faults)
    with pytest.raises(ForgeError) as caught:
        world.forge.open_requests("main")
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    return caught.value


# -- rates and refusals -----------------------------------------------------------------------------------------------

RATES = {
    "told how long": ({"Retry-After": "30"}, 30),
    "not told": ({}, 60),
    "at once": ({"Retry-After": "0"}, 1),
    "a year": ({"Retry-After": "31536000"}, 7200),
    "the end of time": ({"Retry-After": "9" * 400}, 60),
    "a date": ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 60),
    "an end": ({"{}-Reset": "+900"}, 900),
    "an end that is past": ({"{}-Reset": "-5"}, 1),
    "both": ({"Retry-After": "30", "{}-Reset": "+900"}, 30),
    "no end": ({"{}-Reset": "soon"}, 60),
}


@pytest.mark.parametrize("case", RATES)
def test_how_long_to_rest(kind: AdapterKind, make: MakeWorld, case: str) -> None:
    given, rest_s = RATES[case]
    stem = "RateLimit" if kind.name == "GitLab" else "X-RateLimit"
    headers = {name.format(stem): value for name, value in given.items()}
    reset = headers.get(f"{stem}-Reset", "")
    if reset[:1] in {"+", "-"}:
        headers[f"{stem}-Reset"] = str(int(NOW_S) + int(reset))
    error = refused(make, saying({"message": "slow down"}, 429, **headers))
    assert isinstance(error, ForgeRateLimited)
    assert error.until_s == NOW_S + rest_s
    assert "slow down" in str(error)


REFUSALS = {
    "a bad token": (401, {"message": "401 Unauthorized"}, ("401 Unauthorized", "expired or revoked")),
    "a lacking scope": (403, {"message": "insufficient_scope"}, ("insufficient_scope", "the scope `")),
    "hidden": (404, {"message": "404 Project Not Found"}, ("404 Project Not Found", "hidden", "the scope `")),
    "wrong": (422, {"message": "odd"}, ("odd", "HTTP 422")),
    "long and coloured": (422, {"message": "\x1b[31m\n@all " + "x" * 5000}, (r"\x1b[31m\n@all xxx",)),
    "other words": (400, {"detail": "?"}, ("Bad Request", "HTTP 400")),
    "no words": (409, [1], ("Conflict", "HTTP 409")),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_why_and_what_to_do(make: MakeWorld, case: str) -> None:
    status, document, said = REFUSALS[case]
    error = refused(make, saying(document, status))
    assert not isinstance(error, ForgeUnreachable)
    assert all(part in str(error) for part in said)
    assert "requests of acme/fleet" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b'{"message": 3}', b"\xff\xfe", b"[" * 200_000])
@pytest.mark.parametrize(("status", "wanted"), [(403, ForgeError), (404, ForgeError), (503, ForgeUnreachable)])
@pytest.mark.usefixtures("deep_texts")
def test_a_refusal_of_somebody_in_between(make: MakeWorld, body: bytes, status: int, wanted: type) -> None:
    error = refused(make, ForgeFault(status, {"Content-Type": "text/html"}, (body,)))
    assert isinstance(error, ForgeUnreachable) is (wanted is ForgeUnreachable)
    assert str(status) in str(error)


def test_nobody_listens(make: MakeWorld) -> None:
    world = make()
    world.server.stop()
    with pytest.raises(ForgeUnreachable, match=r"Connect(ion)?Error"):
        world.forge.open_requests("main")


def test_somebody_listens_and_says_nothing(kind: AdapterKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{kind.client}.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        forge = kind.forge("acme/fleet", kind.token(TOKEN), clock=VirtualClock(), url=url)
        with pytest.raises(ForgeUnreachable, match="ReadTimeout"):
            forge.open_requests("main")


@pytest.mark.parametrize("status", [500, 502, 503, 429, 409, 408])
def test_no_comment_is_written_twice(make: MakeWorld, status: int) -> None:
    """Both clients would ask again by themselves."""
    world = make()
    number = world.state.open("t", world.state.owner, HEAD).number
    assert world.forge.comments(number) == ()
    fault = saying({"message": "busy"}, status, **{"Retry-After": "0"})
    world.server.fail(ForgeFault(status, fault.headers, fault.parts, "comments|notes", is_done=True))
    with pytest.raises(ForgeError):
        world.forge.write_comment(number, "once")
    assert [each.body for each in world.state.comments.values()] == ["once"]


# -- answers that cannot be -------------------------------------------------------------------------------------------

MALFORMED: dict[str, Callable[[AdapterKind], Any]] = {
    "no list": lambda _: {"message": "hello"},
    "no number": lambda _: [{"title": "x"}],
    "a number of text": lambda kind: [{**kind.document, kind.number: "one"}],
    "a number of nothing": lambda kind: [{**kind.document, kind.number: 0}],
    "a short commit": lambda kind: [{**kind.document, **kind.head("abc")}],
    "a commit in capitals": lambda kind: [{**kind.document, **kind.head("A" * 40)}],
    "a path for a commit": lambda kind: [{**kind.document, **kind.head("../" + "a" * 37)}],
    "no time": lambda kind: [{**kind.document, "updated_at": "yesterday"}],
    "a time of no zone": lambda kind: [{**kind.document, "updated_at": "2026-01-01T00:00:00"}],
    "an endless title": lambda kind: [{**kind.document, "title": "x" * 2000}],
    "a title that is none": lambda kind: [{**kind.document, "title": None}],
    "a state of its own": lambda kind: [{**kind.document, "state": "odd"}],
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_answer_is_an_error(kind: AdapterKind, make: MakeWorld, case: str) -> None:
    assert not isinstance(refused(make, saying(MALFORMED[case](kind))), ForgeUnreachable)


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"\xff", b'["\\ud800"]', b"[" * 200_000, b'[{"x":' * 100_000])
@pytest.mark.usefixtures("deep_texts")
def test_what_is_no_json_is_an_error(make: MakeWorld, body: bytes) -> None:
    error = refused(make, ForgeFault(200, _JSON, (body,)))
    assert "cannot be read" in str(error)
    assert not isinstance(error, ForgeUnreachable)


def test_what_was_not_asked_for_is_left_out(kind: AdapterKind, make: MakeWorld) -> None:
    world = make()
    other = {"GitLab": {"target_branch": "x"}, "Forgejo": {"base": {**_FORGEJO["base"], "ref": "x"}}}[kind.name]
    told = [{"state": "closed"}, {}, {}, other]
    world.server.fail(saying([{**kind.document, kind.number: 9 - at, **it} for at, it in enumerate(told)]))
    assert [each.number for each in world.forge.open_requests("main")] == [7, 8]


def test_another_request_than_the_one_that_was_asked_for(kind: AdapterKind, make: MakeWorld) -> None:
    world = make()
    world.server.fail(saying({**kind.document, kind.number: 8}))
    with pytest.raises(ForgeError, match="8 where 7"):
        world.forge.request(7)


@pytest.mark.parametrize("status", [200, 403])
def test_an_answer_without_end(make: MakeWorld, status: int) -> None:
    error = refused(make, ForgeFault(status, _JSON, (b"[" + b" " * 2**20,) * 40))
    assert "longer than 16 MiB" in str(error)


def test_a_packed_answer(make: MakeWorld) -> None:
    packed = gzip.compress(b"[" + b" " * 2**20 + b"]")
    assert "packed" in str(refused(make, ForgeFault(200, {**_JSON, "Content-Encoding": "gzip"}, (packed,))))


def test_an_answer_that_drips(make: MakeWorld) -> None:
    error = refused(make, ForgeFault(200, _JSON, (b"[" + b" " * 2**17,) * 100), clock=HurriedClock(NOW_S))
    assert isinstance(error, ForgeUnreachable)
    assert "longer than 30 s" in str(error)


def test_an_answer_that_breaks_off(make: MakeWorld) -> None:
    headers = {**_JSON, "Content-Length": "100000"}
    assert isinstance(refused(make, ForgeFault(200, headers, (b"[",))), ForgeUnreachable)


def test_pages_without_end(make: MakeWorld) -> None:
    endless = saying([], Link='<https://forge.example.com/api?page=2>; rel="next"')
    assert "more than 100 pages" in str(refused(make, *[endless] * 101))


def test_pages_too_large_together(kind: AdapterKind, make: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{kind.client}.MOST_LISTING_BYTES", 150_000)
    world = make()
    for _ in range(300):
        world.state.open("t", world.state.owner, HEAD)
    with pytest.raises(ForgeError, match="MiB"):
        world.forge.open_requests("main")
    assert len(world.server.exchanges) < 4


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_takes_the_token_elsewhere(make: MakeWorld, status: int) -> None:
    world, elsewhere = make(), make()
    world.server.fail(saying({"message": "Moved"}, status, Location=f"{elsewhere.server.url}/elsewhere"))
    with pytest.raises(ForgeError, match="has moved"):
        world.forge.open_requests("main")
    assert elsewhere.server.exchanges == []


# -- who and where ----------------------------------------------------------------------------------------------------


def test_who_we_are_is_asked_once(make: MakeWorld) -> None:
    world = make()
    number = world.state.open("t", world.state.owner, HEAD).number
    for _ in range(3):
        world.forge.write_comment(number, "words")
        world.forge.comments(number)
    assert [each.path for each in world.server.exchanges].count("/user") == 1


def test_those_who_are_deleted(make: MakeWorld) -> None:
    world = make()
    number = world.state.open("t", None, HEAD, fork=0).number
    world.state.comment(number, None, "gone")
    (request,) = world.forge.open_requests("main")
    assert (request.author.lower().rstrip("1"), request.from_fork, request.state) == ("ghost", True, RequestState.OPEN)
    (comment,) = world.forge.comments(number)
    assert (comment.author.lower().rstrip("1"), comment.ours) == ("ghost", False)


@pytest.mark.parametrize("secret", ["", " ", "x\n", "a b", "\u00fc", "x\r\nX-Evil: 1"])
def test_what_is_no_token(kind: AdapterKind, secret: str) -> None:
    with pytest.raises(ForgeError, match="token") as caught:
        kind.token(secret)
    assert not secret.strip() or secret not in str(caught.value)
    assert TOKEN not in repr(kind.token(TOKEN))


@pytest.mark.parametrize("repository", ["", "fleet", "acme/", "/fleet", "acme/..", "../x", "a b/c", "a/fl?et", "a/b\n"])
def test_what_is_no_repository(kind: AdapterKind, repository: str) -> None:
    with pytest.raises(ForgeError, match="is written"):
        kind.forge(repository, kind.token(TOKEN), clock=VirtualClock(), url="https://forge.example.com")


@pytest.mark.parametrize("url", ["", "forge.example.com", "http://forge.example.com", "https://u:p@forge.example.com"])
def test_where_no_secret_is_sent(kind: AdapterKind, url: str) -> None:
    with pytest.raises(ForgeError, match="address"):
        kind.forge("acme/fleet", kind.token(TOKEN), clock=VirtualClock(), url=url)


def test_a_proxy_of_the_environment(kind: AdapterKind, make: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, world.server.root)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    forge = kind.forge("acme/fleet", kind.token(TOKEN), clock=world.clock, url="http://127.0.0.1:1")
    assert forge.open_requests("main") == ()
    assert len(world.server.exchanges) == 1


def test_a_certificate_authority_of_the_environment(
    kind: AdapterKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, clock = write_loopback_certificate(tmp_path / "server.pem"), VirtualClock(NOW_S)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    state = ForgeState("acme", "fleet", clock)
    state.account("robot", "admin", token=TOKEN)
    with ForgeServer(state, kind.dialect, prefix=kind.prefix, tls=tls) as server:
        stranger = kind.forge("acme/fleet", kind.token(TOKEN), clock=clock, url=server.root)
        with pytest.raises(ForgeUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.open_requests("main")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        friend = kind.forge("acme/fleet", kind.token(TOKEN), clock=clock, url=server.root)
        assert friend.open_requests("main") == ()


def test_the_client_is_loaded_when_it_is_used(kind: AdapterKind) -> None:
    module = kind.client.rpartition(".")[0]
    heavy = "{'gitlab', 'pyforgejo', 'httpx', 'requests', 'aiohttp', 'dotenv'}"
    script = f"import {module}, sys; print(*{heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
