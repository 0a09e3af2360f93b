"""The bounds of an answer, for clients that ask by httpx."""

from collections.abc import Iterable, Iterator

import httpx

from providers.clock import Clock
from providers.forge.bounds import bounded, check_unpacked


class BoundedBody(httpx.SyncByteStream):
    """The body of an answer, which ends by an error after so many bytes and so long."""

    def __init__(self, response: httpx.Response, forge: str, clock: Clock) -> None:
        self._response = response.stream
        self._forge = forge
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        parts: Iterable[bytes] = self._response  # type: ignore[assignment]  # of a client that does not wait by `async`
        return bounded(parts, self._forge, self._clock)

    def close(self) -> None:
        """Gives the connection back."""
        self._response.close()  # type: ignore[union-attr]


def bound(response: httpx.Response, forge: str, clock: Clock) -> None:
    """To be called with every answer before its body is read."""
    check_unpacked(response.headers, forge)
    response.stream = BoundedBody(response, forge, clock)


def ask_plainly(request: httpx.Request) -> None:
    """To be called with every request before it is sent."""
    request.headers["Accept-Encoding"] = "identity"
