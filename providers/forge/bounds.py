"""What one question to a forge may cost, and what a refusal means: the same for all of them."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from model.plain_text import instant, plain
from providers.clock import Clock
from providers.forge.port import ForgeError, ForgeRateLimited, ForgeUnreachable

_T = TypeVar("_T")

TIMEOUT_S: Final = 10.0
"""The longest silence: to connect, for a part of the answer, to send one."""
MOST_ANSWER_S: Final = 30.0
MOST_ANSWER_BYTES: Final = 16 * 1024 * 1024
MOST_PAGES: Final = 100
MOST_LISTING_BYTES: Final = 64 * 1024 * 1024
MOST_REST_S: Final = 2 * 3600.0
"""A rate is one of an hour at most; nobody can make us rest for a year."""
MOST_SAID: Final = 300
"""How much of a forge's own words is repeated."""
_REST_UNSAID_S = 60
"""How long to rest where the forge does not say it."""
_SECONDS = re.compile(r"[0-9]{1,10}")


class NotThere(ForgeError):
    """404: there is no such thing, or it is hidden from us."""


def bounded(parts: Iterable[bytes], forge: str, clock: Clock) -> Iterator[bytes]:
    """Yields the parts of an answer; errors after so many bytes and so long, however slowly it drips."""
    began_s, size = clock.monotonic(), 0
    for part in parts:
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            raise ForgeError(f"{forge}'s answer is longer than {MOST_ANSWER_BYTES // 1024**2} MiB")
        if clock.monotonic() - began_s > MOST_ANSWER_S:
            raise ForgeUnreachable(f"{forge}'s answer takes longer than {MOST_ANSWER_S:.0f} s")
        yield part


def check_unpacked(headers: Mapping[str, str], forge: str) -> None:
    """ForgeError where an answer is packed: a MiB of it may be a GiB."""
    if headers.get("content-encoding", "identity") != "identity":
        raise ForgeError(f"{forge}'s answer is packed, which nobody asked for: its size could not be bounded")


def all_pages(what: str, ask: Callable[[int], tuple[list[_T], int, bool]], *, most_bytes: int) -> list[_T]:
    """Returns the items of all pages; `ask` returns those of one, its bytes, and whether there may be another.

    ForgeError, which says `what` cannot be done, where the forge finds no end.
    """
    found: list[_T] = []
    size = 0
    for number in range(1, MOST_PAGES + 1):
        items, octets, more = ask(number)
        found += items
        size += octets
        if size > most_bytes:
            break
        if not more:
            return found
    raise ForgeError(f"to {what} takes more than {MOST_PAGES} pages or {most_bytes // 1024**2} MiB of answers")


def rest_s(headers: Mapping[str, str], reset: str, clock: Clock) -> int:
    """Returns for how many seconds a forge asks to be left alone; `reset` is its header with an end (epoch)."""
    if _SECONDS.fullmatch(headers.get("retry-after", "")):
        return int(headers["retry-after"])
    if "retry-after" not in headers and _SECONDS.fullmatch(headers.get(reset, "")):
        return max(0, math.ceil(int(headers[reset]) - clock.now()))
    return _REST_UNSAID_S


def limited(what: str, pause_s: float, clock: Clock) -> ForgeRateLimited:
    """Returns the error of a forge that wants to be left alone for so long, within reason."""
    until_s = clock.now() + min(max(pause_s, 1.0), MOST_REST_S)
    return ForgeRateLimited(f"{what}; it is left alone until {instant(math.ceil(until_s))}", until_s)


def refused(what: str, status: int, advice: str) -> ForgeError:
    """Returns the error of a status that is no success and no limit."""
    if status >= 500:
        return ForgeUnreachable(what)
    kind = NotThere if status == 404 else ForgeError
    return kind(f"{what}. {advice}".rstrip())


def remedy(status: int, needs: str, *, proof: str = "token") -> str:
    """Returns what to do about a refusal, empty where the forge's own words have to do."""
    if status == 401:
        return f"The {proof} is wrong, expired or revoked."
    if status == 403:
        return f"This takes {needs}."
    return f"It is not there, or hidden from who lacks {needs}." if status == 404 else ""


def own_words(message: str, reason: str) -> str:
    """Returns a forge's own message on one line and short, without a full stop; the status' words where it is none."""
    return plain(message[:MOST_SAID]).rstrip(". ") or plain(reason[:MOST_SAID]) or "it does not say why"
