"""Framing decoded from whatever pieces the socket delivers, and the ways a stream ends."""

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.kube.config import from_url
from providers.kube.errors import Unreachable
from providers.kube.resources import PODS
from providers.kube.stream import Chunked, LineStream, Plain
from providers.kube.transport import KubeTransport
from tests.providers.kube.scripted import Asked, Peer, Scripted, scripted, watch


def opened(server: Scripted, timeout_s: int = 5, grace_s: float = 5.0) -> LineStream:
    return KubeTransport(from_url(server.url)).watch(PODS, "1", timeout_s, grace_s=grace_s)


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    extension=st.sampled_from([b"", b";a=b"]),
    cuts=st.lists(st.integers(0, 400), max_size=20),
)
@settings(deadline=None)
def test_any_cutting_of_a_chunked_body_gives_the_same_payload(
    chunks: list[bytes], extension: bytes, cuts: list[int]
) -> None:
    wire = b"".join(b"%x%s\r\n%s\r\n" % (len(c), extension, c) for c in chunks) + b"0\r\n\r\n"
    framing, payload, at = Chunked(), b"", 0
    for cut in sorted({min(c, len(wire)) for c in cuts} | {len(wire)}):
        payload += framing.feed(wire[at:cut])
        at = cut
    assert payload == b"".join(chunks)
    assert framing.ended


@pytest.mark.parametrize("head", [b"-5\r\nhello", b"zz\r\n", b"\r\n\r\n", b"1_0\r\n", b"a" * 5000])
def test_what_is_not_chunked_framing_is_refused(head: bytes) -> None:
    with pytest.raises(Unreachable):
        Chunked().feed(head)


def test_plain_bodies_end_at_their_length_or_with_the_connection() -> None:
    counted, open_ended = Plain(5), Plain(None)
    assert counted.feed(b"abc") == b"abc"
    assert not counted.ended
    assert counted.feed(b"defgh") == b"de"
    assert counted.ended
    assert not counted.at_eof()
    assert open_ended.feed(b"abc") == b"abc"
    assert open_ended.at_eof()
    assert not open_ended.ended
    assert Plain(0).ended


def test_everything_that_arrived_is_one_batch() -> None:
    sent, lines = threading.Event(), [b"%d\n" % n for n in range(1000)]

    def burst(peer: Peer, asked: Asked) -> bool:
        peer.head(200, {"Transfer-Encoding": "chunked"})
        peer.send(b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines))
        sent.set()
        peer.hang()
        return False

    with scripted(burst) as server, opened(server) as stream:
        assert sent.wait(5)
        assert next(stream) == b"".join(lines)


def test_an_event_is_not_held_back_by_half_of_the_next() -> None:
    with scripted(watch(b"one\n", tail=b"tw", then="hang")) as server, opened(server) as stream:
        assert next(stream) == b"one\n"


def test_a_line_in_many_pieces_comes_whole() -> None:
    def drip(peer: Peer, asked: Asked) -> bool:
        peer.head(200, {"Transfer-Encoding": "chunked"})
        for byte in b"hello\nworld\n":
            peer.chunk(bytes([byte]))
        peer.send(b"0\r\n\r\n")
        return False

    with scripted(drip) as server, opened(server) as stream:
        assert b"".join(stream) == b"hello\nworld\n"


@pytest.mark.parametrize("then", ["cut", "reset"])
def test_a_cut_stream_gives_its_whole_lines_and_then_fails(then: str) -> None:
    with scripted(watch(b"one\n", tail=b'{"ty', then=then)) as server, opened(server) as stream:
        got: list[bytes] = []
        with pytest.raises(Unreachable):
            got.extend(stream)
        # A reset may overtake data that was not read yet; half a line is never handed over.
        assert got == [b"one\n"] if then == "cut" else b"".join(got) in {b"", b"one\n"}


def test_an_orderly_end_is_no_error_even_with_an_unfinished_line() -> None:
    with scripted(watch(b"one\n", tail=b"tw")) as server, opened(server) as stream:
        assert list(stream) == [b"one\n"]


@pytest.mark.parametrize("headers", [{"Content-Length": "4"}, {"Connection": "close"}])
def test_bodies_without_chunks(headers: dict[str, str]) -> None:
    def step(peer: Peer, asked: Asked) -> bool:
        peer.head(200, headers)
        peer.send(b"one\n")
        return "Content-Length" in headers

    with scripted(step) as server, opened(server) as stream:
        assert b"".join(stream) == b"one\n"


def test_an_empty_body_is_an_end() -> None:
    def step(peer: Peer, asked: Asked) -> bool:
        peer.head(200, {"Content-Length": "0"})
        return True

    with scripted(step) as server, opened(server) as stream:
        assert list(stream) == []


def test_silence_is_a_half_open_connection() -> None:
    with (
        scripted(watch(b"one\n", then="hang")) as server,
        opened(server, timeout_s=0, grace_s=0.2) as stream,
    ):
        assert next(stream) == b"one\n"
        with pytest.raises(Unreachable, match="half-open"):
            next(stream)


def test_interrupt_ends_a_read_that_waits_in_another_thread() -> None:
    with scripted(watch(b"one\n", then="hang")) as server, opened(server, timeout_s=60) as stream:
        got: list[bytes] = []
        first = threading.Event()

        def read() -> None:
            for lines in stream:
                got.append(lines)
                first.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert first.wait(5)
        stream.interrupt()
        reader.join(5)
        assert not reader.is_alive()
        assert got == [b"one\n"]


def test_keepalive_is_on() -> None:
    with scripted(watch(then="hang")) as server, opened(server) as stream:
        assert stream._socket is not None
        assert stream._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_quiet_watch_may_be_quiet_for_its_whole_time() -> None:
    """The headers have less time than the events; the socket must not remember it."""
    with scripted(watch(b"one\n", then="hang")) as server, opened(server, timeout_s=600, grace_s=30.0) as stream:
        assert stream._socket is not None
        assert stream._socket.gettimeout() == 630.0
        next(stream)
        assert stream._socket.gettimeout() == 630.0
