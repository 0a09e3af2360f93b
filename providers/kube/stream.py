"""A watch's body as batches of whole lines: everything the socket holds at once, never waiting for more than it has.

An API server flushes each event as a chunk of its own. `urllib3` hands chunks out one by one and cannot say whether the
next read would block, so a reader either wakes per event or holds events back. Here the framing is decoded on top of
the socket: one blocking read, then whatever more is there already.
"""

import contextlib
import io
import socket
import threading
from types import TracebackType
from typing import Any, Final, Protocol, Self

import urllib3

from providers.kube.errors import Unreachable

READ_BYTES: Final = 256 * 1024
BATCH_BYTES: Final = 1024 * 1024
"""A firehose is handed over in pieces of about this size."""

LINE_BYTES: Final = 32 * 1024 * 1024
"""Longest line accepted; etcd refuses objects beyond 1.5 MiB."""


class Framing(Protocol):
    """How a body is cut into what the socket delivers."""

    ended: bool

    def feed(self, data: bytes) -> bytes:
        """The payload within `data`, the next bytes of the socket."""
        ...

    def at_eof(self) -> bool:
        """Whether the body may end where the connection does."""
        ...


class Chunked:
    """Transfer-Encoding: chunked (RFC 9112, 7.1); extensions are skipped, trailers not read."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""
        self._left = 0
        self._crlf = 0

    def feed(self, data: bytes) -> bytes:
        """The payload within `data`; raises `Unreachable` for what is not chunked framing."""
        data, payload, at = self._rest + data, [], 0
        while at < len(data) and not self.ended:
            if self._left:
                piece = data[at : at + self._left]
                payload.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._crlf = 2
            elif self._crlf:
                skipped = min(self._crlf, len(data) - at)
                at += skipped
                self._crlf -= skipped
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    break
                self._left = _chunk_size(data[at:end])
                at = end + 2
                self.ended = not self._left
        self._rest = b"" if self.ended else data[at:]
        if len(self._rest) > 4096:
            raise Unreachable("the body is not chunked as announced")
        return b"".join(payload)

    def at_eof(self) -> bool:
        """Never: the last chunk says it is the last."""
        return False


class Plain:
    """A body of `length` bytes, or up to the end of the connection where `length` is None."""

    def __init__(self, length: int | None) -> None:
        self.ended = length == 0
        self._left = length

    def feed(self, data: bytes) -> bytes:
        """The payload: all of it."""
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            self.ended = not self._left
        return data

    def at_eof(self) -> bool:
        """Whether nothing was announced that is still missing."""
        return self._left is None


def _chunk_size(head: bytes) -> int:
    digits = head.split(b";", 1)[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise Unreachable(f"not a chunk size: {head[:40]!r}")
    return int(digits, 16)


class LineStream:
    """An iterator over batches of whole lines; iterate and `close` in one thread, `interrupt` from any.

    Ends where the server ends the body in order or after `interrupt`. Raises `Unreachable` when the connection is cut,
    and when nothing at all arrives for `idle_s` seconds, which is how a half-open connection shows. An incomplete last
    line is dropped: whoever resumes gets it again.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, idle_s: float) -> None:
        self._response = response
        self._idle_s = idle_s
        self._interrupted = threading.Event()
        self._tail = b""
        # No public way leads to the socket under a response; these names are as old as http.client and io.
        raw: Any = response._original_response  # type: ignore[attr-defined]  # noqa: SLF001
        self._framing: Framing = Chunked() if raw.chunked else Plain(0 if raw.fp is None else raw.length)
        self._body: io.BufferedReader = raw.fp
        self._socket: socket.socket | None = None if raw.fp is None else raw.fp.raw._sock  # noqa: SLF001
        if self._socket is not None:
            self._socket.settimeout(idle_s)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        while not (self._framing.ended or self._interrupted.is_set()):
            data = self._read()
            if not data:
                if self._interrupted.is_set() or self._framing.at_eof():
                    break
                raise Unreachable("the stream was cut")
            if lines := self._whole_lines(self._framing.feed(data)):
                return lines
        raise StopIteration

    def _whole_lines(self, payload: bytes) -> bytes:
        cut = payload.rfind(b"\n") + 1
        if not cut:
            self._tail += payload
            if len(self._tail) > LINE_BYTES:
                raise Unreachable(f"a line of more than {LINE_BYTES} bytes")
            return b""
        lines, self._tail = self._tail + payload[:cut], payload[cut:]
        return lines

    def _read(self) -> bytes:
        try:
            first = self._body.read1(READ_BYTES)
            return first + self._drain() if first else b""
        except TimeoutError as error:
            raise Unreachable(f"not a byte for {self._idle_s:g} s: the connection is half-open") from error
        except (OSError, ValueError) as error:
            if self._interrupted.is_set():
                return b""
            raise Unreachable(f"the stream broke: {error}") from error

    def _drain(self) -> bytes:
        """What has arrived already, without waiting (of TLS: whole records only, which never lose their place)."""
        assert self._socket is not None  # noqa: S101 - a body implies a socket
        parts: list[bytes] = []
        room = BATCH_BYTES
        self._socket.settimeout(0)
        try:
            while room > 0 and (more := self._body.read1(READ_BYTES)):
                parts.append(more)
                room -= len(more)
        except OSError:
            pass  # "would block", or a failure that the next blocking read meets again: first hand over what is good
        finally:
            self._socket.settimeout(self._idle_s)
        return b"".join(parts)

    def interrupt(self) -> None:
        """End the iteration at once, also one that is waiting in another thread."""
        self._interrupted.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the peer was faster
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; it is in the middle of a body and never fit for reuse."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
