"""What is asked of the page by programs: which address tells what, as JSON or in words."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from agent.answers import NothingSo, price_words
from agent.answers.buffer import buffer_lines
from agent.answers.gpus import use_lines
from agent.answers.node import node_lines
from agent.answers.offers import offers_told
from agent.answers.pod import pod_lines
from agent.answers.pool import pool_lines
from agent.gang_answer import ANY_NAMESPACE, answer_lines, answer_of, gpus_answer
from agent.web.view import Looking
from fleet.cost.sizing import use_report
from fleet.explain.offers import GpuRequest
from fleet.snapshot.gpus import FRESH_S
from model.plain_text import plain

JSON, TEXT = "application/json", "text/plain"
IDLE_AFTER_S: Final = 1800.0
"""Who does nothing with a GPU for so long is named, where the question does not say."""


class ApiQuestion(NamedTuple):
    """What an address tells: as a value, in words, or either, whichever is accepted."""

    address: str
    """As people read it."""
    pattern: re.Pattern[str]
    value: Callable[[Looking], object] | None = None
    words: Callable[[Looking], Iterable[str]] | None = None
    whole: bool = False
    """Only for who may see the work of all namespaces: it is about what all of them share."""

    def kind(self, accepts: str) -> str:
        """Returns the content type of the answer to who accepts that."""
        return TEXT if self.words is not None and (accepts == TEXT or self.value is None) else JSON

    def told(self, look: Looking, kind: str) -> bytes:
        """Returns the answer. Errors: NothingSo, and ValueError for a question that makes no sense."""
        if kind == TEXT and self.words is not None:
            return "".join(f"{plain(line)}\n" for line in self.words(look)).encode()
        return msgspec.json.encode(self.value(look) if self.value is not None else None)


def _gang(look: Looking) -> object:
    if (found := answer_of(look)) is None:
        raise NothingSo(_unknown(look))
    return found


def _gang_words(look: Looking) -> Iterable[str]:
    if not (lines := list(answer_lines(look))):
        raise NothingSo(_unknown(look))
    return lines


def _unknown(look: Looking) -> str:
    namespace, name = look.names
    return f"no gang or job {name if namespace == ANY_NAMESPACE else f'{namespace}/{name}'} that you may see"


def _use(look: Looking) -> Iterable[str]:
    answer, asked = gpus_answer(look), look.asked("idleAfterS")
    held = tuple(it for it in answer.uses if answer.at_s - it.until_s <= FRESH_S)
    idle_after_s = _number(asked, "idleAfterS", 10**9) if asked else IDLE_AFTER_S
    return use_lines(use_report(held, look.snapshot.catalog, idle_after_s))


def _offers(look: Looking) -> Mapping[str, object]:
    gpu, count = look.asked("gpu"), look.asked("count") or "1"
    if not gpu:
        raise ValueError("gpu says which: a model (h100), a MIG profile (1g.10gb), or a fraction (l4/8)")
    where = (look.asked(name) for name in ("pool", "zone", "capacityType"))
    return offers_told(look.fleet, look.snapshot, GpuRequest(gpu, max(1, _number(count, "count", 10**5)), *where))


def _number(asked: str, name: str, most: int) -> int:
    if not (asked.isascii() and asked.isdigit() and len(asked) < 12 and int(asked) <= most):
        raise ValueError(f"{name} is a whole number, {most} at most")
    return int(asked)


def _pool(look: Looking) -> Iterable[str]:
    catalog, now_s = look.snapshot.catalog, look.snapshot.now_s
    prices = price_words(now_s, catalog.priced_at_s, catalog.price_source)
    return pool_lines(look.fleet, look.snapshot, look.names[0], prices)


_NAME: Final = r"[a-z0-9][a-z0-9.-]{0,252}"
API: Final = (
    ApiQuestion(
        "/api/gangs/NAMESPACE/NAME",
        re.compile(rf"/api/gangs/(-|{_NAME})/([A-Za-z0-9][A-Za-z0-9._:-]{{0,252}})"),
        _gang,
        _gang_words,
    ),
    ApiQuestion("/api/gpus", re.compile("/api/gpus"), gpus_answer, _use),
    ApiQuestion("/api/offers?gpu=MODEL", re.compile("/api/offers"), _offers),
    ApiQuestion(
        "/api/nodes/NAME",
        re.compile(rf"/api/nodes/({_NAME})"),
        words=lambda look: node_lines(look.fleet, look.snapshot, look.names[0]),
        whole=True,
    ),
    ApiQuestion("/api/pools/NAME", re.compile(rf"/api/pools/({_NAME})"), words=_pool, whole=True),
    ApiQuestion(
        "/api/pods/NAMESPACE/NAME",
        re.compile(rf"/api/pods/({_NAME}(?:/{_NAME})?)"),
        words=lambda look: pod_lines(look.fleet, look.snapshot, look.names[0]),
        whole=True,
    ),
    ApiQuestion(
        "/api/buffers/NAMESPACE/NAME",
        re.compile(rf"/api/buffers/({_NAME}(?:/{_NAME})?)"),
        words=lambda look: buffer_lines(look.fleet, look.snapshot, look.names[0]),
        whole=True,
    ),
)
"""All that may be asked."""
