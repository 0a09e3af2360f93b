"""Notifications on their way: addresses that change, servers that answer badly, and nothing of it in a log."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent import notify
from agent.inbox import Done
from agent.mirror import Mirror
from agent.notify import Notifier, post_json
from agent.sync import Sync
from fleet.actions import SaveGang
from fleet.snapshot import GangState
from model.kinds.policy import NotificationSink
from tests.support.fleets import gang

SINK = NotificationSink(name="ours", addressEnv="SLACK_WEBHOOK", severity="Info")
SECRET_PATH = "/services/T0/B0/very-secret"


class Receiver:
    """Answers notifications as a test wants, and keeps them."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.answer: Callable[[http.server.BaseHTTPRequestHandler], None] = self.ok
        outer = self

        class NewsHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.heard.append((self.path, json.loads(body)))
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NewsHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}{SECRET_PATH}"

    @staticmethod
    def ok(handler: http.server.BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def test_a_message_is_sent_once(receiver: Receiver) -> None:
    with capture_logs() as lines:
        post_json(SINK, receiver.url, {"text": "x"})
    assert receiver.heard == [(SECRET_PATH, {"text": "x"})]
    assert lines == []


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.answer = lambda handler: receiver.ok(handler, 307, Location=receiver.url.replace("very", "other"))
    with capture_logs() as lines:
        post_json(SINK, receiver.url, {"text": "x"})
    assert len(receiver.heard) == 1
    assert [(line["event"], line["status"]) for line in lines] == [("notification_refused", 307)]


def test_an_answer_without_an_end_is_not_waited_for(receiver: Receiver) -> None:
    ended = threading.Event()

    def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            ended.set()

    receiver.answer = endless
    post_json(SINK, receiver.url, {"text": "x"})
    assert ended.wait(20), "the connection is closed with what it still says unread"


def test_a_server_that_does_not_answer_is_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_SEND_S", 0.2)
    leave = threading.Event()
    receiver.answer = lambda _handler: leave.wait(20) and None
    with capture_logs() as lines:
        post_json(SINK, receiver.url, {"text": "x"})
    leave.set()
    assert [line["event"] for line in lines] == ["notification_failed"]


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/very-secret", "http://[very-secret", "https://127.0.0.1:99999/very-secret"]
)
def test_addresses_are_not_logged(address: str) -> None:
    with capture_logs() as lines:
        post_json(SINK, address, {"text": "x"})
    assert [line["event"] for line in lines] == ["notification_failed"]
    assert "very-secret" not in str(lines)


class Telling:
    """A notifier with one sink, and what it posts."""

    def __init__(self, environment: dict[str, str], folder: Path | None) -> None:
        self.posted: list[str] = []
        post = lambda _sink, address, _body: self.posted.append(address)  # noqa: E731
        self.notifier = Notifier("c", Sync(), post, environment, folder)
        self.notifier._sinks = (SINK,)
        self.now_s = 0.0

    def news(self) -> list[str]:
        """Where the next news went."""
        self.now_s += 1000.0
        self.posted.clear()
        action = SaveGang(gang("g", state=GangState.ADMITTED))
        self.notifier.acting(action, Mirror("c"), self.now_s)
        self.notifier.ended(Done(action), self.now_s)
        return list(self.posted)


def test_an_address_in_a_file_is_read_anew_for_every_message(tmp_path: Path) -> None:
    telling = Telling({"SLACK_WEBHOOK": "https://environment.example.com"}, tmp_path)
    with capture_logs() as lines:
        assert telling.news() == [], "with a folder only files count"
        (tmp_path / "SLACK_WEBHOOK").write_text("https://one.example.com/very-secret\n", encoding="utf-8")
        assert telling.news() == ["https://one.example.com/very-secret"]
        (tmp_path / "SLACK_WEBHOOK").write_text("https://two.example.com/very-secret", encoding="utf-8")
        assert telling.news() == ["https://two.example.com/very-secret"]
        (tmp_path / "SLACK_WEBHOOK").write_bytes(b"\xff\xfe")
        assert telling.news() == []
    assert {line["event"] for line in lines} == {"sink_without_address"}
    assert "very-secret" not in str(lines)


@pytest.mark.parametrize("address", ["", "file:///etc/passwd", "ftp://x", "https://x/\r\nHost: y", "gopher://x"])
def test_only_addresses_of_the_web_are_used(address: str) -> None:
    assert Telling({"SLACK_WEBHOOK": address}, None).news() == []
    assert Telling({"SLACK_WEBHOOK": "https://ok.example.com"}, None).news() == ["https://ok.example.com"]
