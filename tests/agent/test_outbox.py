"""Notifications on their way: servers that answer badly, what is tried again, and nothing of an address in a log."""

import hashlib
import hmac
import http.server
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from agent import outbox as outbox_module
from agent.outbox import KEPT_S, LONGEST_PAUSE_S, LOOKS_AGAIN_S, MOST_WAITING, SIGNATURE, Delivery, Outbox, post_json
from model.plain_text import instant
from providers.clock import SystemClock, VirtualClock
from tests.agent.receiver import SECRET_PATH, Receiver

SENT, DOWN, NEVER = Delivery(sent=True), Delivery(sent=False, again=True), Delivery(sent=False)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


# -- one attempt ------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_once(receiver: Receiver) -> None:
    with capture_logs() as lines:
        assert post_json("s", receiver.url, {"text": "x"}) == SENT
    assert receiver.heard == [(SECRET_PATH, {"text": "x"})]
    assert receiver.signed[0][0] == "", "without a key nothing is signed"
    assert lines == []


def test_with_a_key_the_body_is_signed_as_it_is_sent(receiver: Receiver) -> None:
    assert post_json("s", receiver.url, {"text": "zw\u00f6lf"}, "key") == SENT
    ((signature, body),) = receiver.signed
    assert signature == "sha256=" + hmac.new(b"key", body, hashlib.sha256).hexdigest()
    assert SIGNATURE == "X-Muster-Signature-256"


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (204, {}, SENT),
        (307, {"Location": "/other"}, NEVER),
        (404, {}, NEVER),
        (429, {"Retry_After": "17"}, Delivery(sent=False, again=True, pause_s=17.0)),
        (429, {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}, DOWN),
        (503, {}, DOWN),
    ],
)
def test_what_is_worth_another_attempt(
    receiver: Receiver, status: int, headers: dict[str, str], expected: Delivery
) -> None:
    """Redirects are not followed: they would carry the message, and its secret, to where nobody has sent it."""
    receiver.answer = lambda handler: receiver.ok(handler, status, **headers)
    with capture_logs() as lines:
        found = post_json("s", receiver.url, {"text": "x"})
    assert found == expected._replace(why="" if expected.sent else f"it answers with status {status}")
    assert len(receiver.heard) == 1
    assert [(it["event"], it["status"]) for it in lines] == ([] if status < 300 else [("notification_refused", status)])


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
    post_json("s", receiver.url, {"text": "x"})
    assert ended.wait(20), "the connection is closed with what it still says unread"


def test_a_server_that_does_not_answer_is_given_up_and_tried_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "_SEND_S", 0.2)
    leave = threading.Event()
    receiver.answer = lambda _handler: leave.wait(20) and None
    with capture_logs() as lines:
        found = post_json("s", receiver.url, {"text": "x"})
    assert found == DOWN._replace(why="it does not answer (ReadTimeoutError)")
    leave.set()
    assert [line["event"] for line in lines] == ["notification_failed"]


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/very-secret", "http://[very-secret", "https://127.0.0.1:99999/very-secret"]
)
def test_addresses_are_not_logged(address: str) -> None:
    with capture_logs() as lines:
        assert not post_json("s", address, {"text": "x"}).sent
    assert [line["event"] for line in lines] == ["notification_failed"]
    assert "very-secret" not in str(lines)


# -- the queue --------------------------------------------------------------------------------------------------------


class Post:
    """An outbox in virtual time, and receivers that answer as the test says."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.counted: list[tuple[str, str]] = []
        self.outbox = Outbox(lambda sink, outcome: self.counted.append((sink, outcome)), self.clock)
        self.tried: list[tuple[str, str, float]] = []
        self.answers: dict[str, Delivery] = {}

    def put(self, sink: str, words: str = "x") -> None:
        def attempt() -> Delivery:
            self.tried.append((sink, words, self.clock.monotonic()))
            return self.answers.get(sink, SENT)

        self.outbox.put(sink, attempt)

    def run(self, seconds: float) -> None:
        ends_s = self.clock.monotonic() + seconds
        while True:
            pause_s = self.outbox.step()
            if pause_s is None or self.clock.monotonic() + pause_s > ends_s:
                self.clock.advance(ends_s - self.clock.monotonic())
                return
            self.clock.advance(pause_s)


def test_messages_of_a_sink_go_in_order() -> None:
    post = Post()
    for words in "abc":
        post.put("s", words)
    post.run(1)
    assert [words for _, words, _ in post.tried] == ["a", "b", "c"]
    assert post.counted == [("s", "sent")] * 3
    assert post.outbox.step() is None


def test_a_sink_that_nothing_reaches_is_told_of_until_something_does() -> None:
    post = Post()
    post.answers |= {
        "gone": Delivery(sent=False, why="it is gone"),
        "down": Delivery(sent=False, again=True, why="down"),
    }
    for sink in ("down", "gone", "well"):
        post.put(sink)
    post.run(2.0)
    since = f"since {instant(post.clock.now() - 2.0)}"
    gone = f"it is gone ({since}; tried with the next news)"
    assert post.outbox.troubles() == {"gone": gone}, "one that does not answer is given a few attempts"
    post.run(10.0)
    assert post.outbox.troubles() == {"down": f"down ({since}; what waits is tried again)", "gone": gone}
    post.answers.clear()
    post.put("gone")
    post.run(60.0)
    assert post.outbox.troubles() == {}


def test_a_sink_that_lacks_something_here_is_looked_at_again_and_nothing_is_sent_for_it() -> None:
    post = Post()
    lacks, looked = ["no address"], list[float]()

    def still() -> str:
        looked.append(post.clock.monotonic() - began_s)
        return lacks[0]

    began_s, since = post.clock.monotonic(), f"(since {instant(post.clock.now())})"
    post.answers["s"] = Delivery(sent=False, why="no address", still=still)
    post.put("s")
    post.run(LOOKS_AGAIN_S + 1.0)
    assert post.outbox.troubles() == {"s": f"no address {since}"}
    lacks[0] = "no secret"
    post.run(LOOKS_AGAIN_S)
    assert post.outbox.troubles() == {"s": f"no secret {since}"}, "what is wrong now, since nothing was sent"
    lacks[0] = ""
    post.run(10 * LOOKS_AGAIN_S)
    assert post.outbox.troubles() == {}
    assert looked == [LOOKS_AGAIN_S, 2 * LOOKS_AGAIN_S, 3 * LOOKS_AGAIN_S], "no more once it is there"
    assert (len(post.tried), post.outbox.step()) == (1, None)


def test_a_sink_that_is_looked_at_again_keeps_no_other_waiting() -> None:
    post = Post()
    post.answers["s"] = Delivery(sent=False, why="no address", still=lambda: "no address")
    post.put("s")
    post.run(LOOKS_AGAIN_S - 1.0)
    post.put("other")
    post.run(0.0)
    assert [sink for sink, _, _ in post.tried] == ["s", "other"]


def test_a_sink_that_is_down_is_tried_later_and_later_and_costs_the_others_nothing() -> None:
    post = Post()
    post.answers["down"] = DOWN
    began_s = post.clock.monotonic()
    for words in "ab":
        post.put("down", words)
        post.put("well", words)
    post.run(100)
    assert [at - began_s for sink, _, at in post.tried if sink == "down"] == [0, 1, 3, 7, 15, 31, 63]
    assert [at - began_s for sink, _, at in post.tried if sink == "well"] == [0, 0]
    post.answers["down"] = SENT
    post.run(100)
    assert [words for sink, words, _ in post.tried if sink == "down"][-2:] == ["a", "b"], "none is lost, none overtakes"
    assert post.counted.count(("down", "sent")) == 2


def test_pauses_end_at_a_bound_and_news_that_is_old_is_dropped() -> None:
    post = Post()
    post.answers["down"] = DOWN
    post.put("down")
    post.run(KEPT_S + LONGEST_PAUSE_S)
    times = [at for _, _, at in post.tried]
    assert max(later - before for before, later in pairwise(times)) == LONGEST_PAUSE_S
    assert post.counted[-1] == ("down", "expired")
    assert post.outbox.step() is None


def test_the_receiver_says_how_long_it_wants_to_rest() -> None:
    post = Post()
    post.answers["busy"] = Delivery(sent=False, again=True, pause_s=40.0)
    post.put("busy")
    post.run(85)
    assert [at - post.tried[0][2] for _, _, at in post.tried] == [0, 40, 80]


def test_what_a_receiver_refuses_for_good_is_dropped_and_the_next_goes() -> None:
    post = Post()
    post.answers["s"] = NEVER
    post.put("s", "a")
    post.put("s", "b")
    post.run(1)
    assert [words for _, words, _ in post.tried] == ["a", "b"]
    assert post.counted == [("s", "refused")] * 2


def test_the_queue_is_bounded_the_oldest_goes_and_the_loss_is_counted() -> None:
    post = Post()
    for number in range(MOST_WAITING + 3):
        post.put("s", str(number))
    assert post.counted == [("s", "overflowed")] * 3
    post.run(1)
    assert [words for _, words, _ in post.tried] == [str(number) for number in range(3, MOST_WAITING + 3)]


def test_a_message_that_is_dropped_while_it_is_sent_takes_no_other_with_it() -> None:
    post = Post()
    for number in range(MOST_WAITING - 1):
        post.put("s", str(number + 1))
    found: list[str] = []

    def flood() -> Delivery:
        for number in range(MOST_WAITING):
            post.put("s", f"new {number}")
        return SENT

    post.outbox._sinks["s"].waiting.appendleft((0.0, flood))
    post.outbox.step()
    post.run(1)
    found = [words for _, words, _ in post.tried]
    assert found == [f"new {number}" for number in range(MOST_WAITING)]


def test_the_thread_sends_retries_and_ends(receiver: Receiver) -> None:
    """The real thread against a server that fails once."""
    done, answers = threading.Event(), [503, 200]
    counted: list[str] = []

    def count(_sink: str, outcome: str) -> None:
        counted.append(outcome)
        if outcome == "sent":
            done.set()

    receiver.answer = lambda handler: receiver.ok(handler, answers.pop(0))
    outbox = Outbox(count, SystemClock())
    outbox.start()
    outbox.put("s", lambda: post_json("s", receiver.url, {"text": "x"}))
    assert done.wait(20)
    outbox.close()
    assert counted == ["retried", "sent"]
    assert receiver.heard == [(SECRET_PATH, {"text": "x"})] * 2
    outbox.put("s", lambda: post_json("s", receiver.url, {"text": "late"}))
    assert len(receiver.heard) == 2, "a closed outbox takes nothing"
