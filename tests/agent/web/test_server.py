"""The page over a socket: headers that guard it, parts that are sent alone, the stream, and bounds."""

import gzip
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from agent.http import status_listener
from agent.listener import HttpListener
from agent.web import server
from agent.web.access import Gate, KubeGate, OpenGate
from agent.web.pages import Pages
from agent.web.seen import PageWatcher
from agent.web.server import WebPages
from tests.agent.test_http import FakeStatus, name_served, write_certificate
from tests.agent.web import stage
from tests.agent.web.test_access import api

WITHIN_S = 60.0


class PageSite:
    """The status server with a page."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.world = stage.world()
        self.watcher: PageWatcher = stage.watching(self.world)
        self.pages = WebPages(Pages(self.watcher), gate or OpenGate())
        self.listener: HttpListener = status_listener(FakeStatus(), "127.0.0.1", 0, page=self.pages.answer)
        self.listener.start()

    def turn(self) -> None:
        self.watcher.turned(self.world.fleet, self.world.snapshot())

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.listener.port, timeout=WITHIN_S)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): it for name, it in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


@pytest.fixture
def site() -> Iterator[PageSite]:
    made = PageSite()
    yield made
    made.listener.stop()


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/", 200, "text/html; charset=utf-8"),
        ("/gangs/red/job-red-0", 200, "text/html; charset=utf-8"),
        ("/nothing", 404, "text/html; charset=utf-8"),
        ("/static/page.css", 200, "text/css; charset=utf-8"),
        ("/static/page.js?v=1", 200, "text/javascript; charset=utf-8"),
        ("/static/../seen.py", 404, "text/plain; charset=utf-8"),
        ("/static/%2e%2e/seen.py", 404, "text/plain; charset=utf-8"),
        ("/healthz", 200, "text/plain; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4"),
    ],
)
def test_an_answer_and_its_kind(site: PageSite, path: str, status: int, kind: str) -> None:
    found, headers, _ = site.ask(path)
    assert (found, headers["Content-Type"]) == (status, kind)


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/page.css", "/static/no"])
def test_headers_let_nothing_in_from_elsewhere(site: PageSite, path: str) -> None:
    _, headers, _ = site.ask(path)
    policy = dict(each.strip().partition(" ")[::2] for each in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert {it for name, it in policy.items() if name.endswith("-src") and name != "default-src"} == {"'self'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Server"] == "muster"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_only_read(site: PageSite, method: str) -> None:
    assert site.ask("/", method)[0] == 405


def test_a_head_has_no_body(site: PageSite) -> None:
    status, headers, body = site.ask("/", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


def test_it_is_sent_compressed_to_who_can_read_that(site: PageSite) -> None:
    _, headers, body = site.ask("/", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == site.ask("/")[2]


def test_only_parts_that_a_viewer_has_not_are_sent(site: PageSite) -> None:
    _, _, body = site.ask("/machines", X_Have="")
    told = json.loads(body)
    assert told["order"] == list(told["parts"]) == ["head", "m1", "m2"]
    hashes = [hashed for hashed, _ in told["parts"].values()]
    assert json.loads(site.ask("/machines", X_Have=",".join(hashes))[2])["parts"] == {}
    assert list(json.loads(site.ask("/machines", X_Have=",".join(hashes[:2]))[2])["parts"]) == ["m2"]


# -- the stream -------------------------------------------------------------------------------------------------------


class LiveStream:
    """A viewer that listens; it leaves by closing the socket."""

    def __init__(self, site: PageSite, known: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", site.listener.port), timeout=WITHIN_S)
        last = f"Last-Event-ID: {known}\r\n" if known else ""
        self._socket.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])

    def event(self) -> str:
        """The next version that is told of; empty when the stream is over."""
        for line in self._file:
            if line.startswith(b"data: "):
                return line.removeprefix(b"data: ").strip().decode()
        return ""

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def test_a_viewer_is_told_of_another_picture(site: PageSite) -> None:
    stream = LiveStream(site, known="1")
    site.turn()
    assert stream.event() == "2"
    site.turn()
    site.turn()
    assert stream.event() == "4"
    stream.close()


def test_whoever_comes_again_is_told_what_was_missed(site: PageSite) -> None:
    stream = LiveStream(site, known="0")
    assert stream.event() == "1"
    stream.close()


def test_a_stream_ends_by_itself(site: PageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STREAM_S", 0.3)
    stream = LiveStream(site, known="1")
    assert stream.event() == ""
    stream.close()


def test_of_too_many_viewers_the_last_are_not_live(site: PageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "VIEWERS_MOST", 2)
    streams = [LiveStream(site) for _ in range(3)]
    assert [stream.status for stream in streams] == [200, 200, 204]
    for stream in streams:
        stream.close()


# -- who may look -----------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[PageSite]:
    made = PageSite(KubeGate(api(ann=["red"], bob=[""]), time.monotonic))
    yield made
    made.listener.stop()


def test_without_a_token_the_page_says_how_to_get_one(guarded: PageSite) -> None:
    status, headers, body = guarded.ask("/gangs")
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"kubectl create token" in body
    assert b'action="./login"' in body
    assert b"red/" not in body


@pytest.mark.parametrize("path", ["/", "/live", "/machines", "/gangs/blue/job-blue-0", "/nothing"])
def test_nothing_is_told_without_a_token(guarded: PageSite, path: str) -> None:
    assert guarded.ask(path)[0] == 401
    assert guarded.ask(path, Authorization="Bearer made-up")[0] == 401
    assert guarded.ask(path, Authorization="Bearer token-of-eve")[0] == 403


def test_each_sees_their_own(guarded: PageSite) -> None:
    ann = guarded.ask("/gangs", Authorization="Bearer token-of-ann")[2]
    bob = guarded.ask("/gangs", Cookie="muster=token-of-bob")[2]
    assert b"red/red-0" in ann
    assert b"blue" not in ann
    assert b"blue/blue-0" in bob
    assert b"ann" in ann
    assert b">ann" not in bob


def login(site: PageSite, token: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", site.listener.port, timeout=WITHIN_S)
    here = {"Origin": f"http://127.0.0.1:{site.listener.port}", **headers}
    connection.request("POST", "/login", urlencode({"token": token}), here)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders())


def test_a_token_is_kept_where_no_script_reads_it(guarded: PageSite) -> None:
    status, headers = login(guarded, "token-of-ann")
    assert status == 303
    assert {"HttpOnly", "SameSite=Strict"} <= set(headers["Set-Cookie"].split("; "))
    kept = headers["Set-Cookie"].partition(";")[0]
    assert guarded.ask("/", Cookie=kept)[0] == 200


@pytest.mark.parametrize(
    ("token", "origin", "status"),
    [
        ("token-of-ann", "https://evil.example", 403),
        ("token-of-ann", "null", 403),
        ("bad\r\nSet-Cookie: x=y", "", 400),
        ("a; Path=/", "", 400),
        ("", "", 400),
        ("x" * 9000, "", 400),
    ],
)
def test_a_bad_token_or_another_site_sets_no_cookie(guarded: PageSite, token: str, origin: str, status: int) -> None:
    found, headers = login(guarded, token, **({"Origin": origin} if origin else {}))
    assert (found, "Set-Cookie" in headers) == (status, False)


def test_where_tokens_do_not_count_nobody_logs_in(site: PageSite) -> None:
    assert login(site, "token-of-ann")[0] == 405


def test_the_page_speaks_tls_with_a_certificate_that_is_read_anew(tmp_path: Path) -> None:
    files = write_certificate(tmp_path, "first")
    made = WebPages(Pages(stage.watching(stage.world())), OpenGate())
    listener = status_listener(FakeStatus(), "127.0.0.1", 0, page=made.answer, tls=files)
    listener.start()
    try:
        assert name_served(listener.port) == "first"
        connection = http.client.HTTPSConnection(
            "127.0.0.1", listener.port, timeout=WITHIN_S, context=ssl._create_unverified_context()
        )
        connection.request("GET", "/")
        assert b"blue/blue-1" in connection.getresponse().read()
        connection.close()
        write_certificate(tmp_path, "second")
        assert name_served(listener.port) == "second"
    finally:
        listener.stop()
