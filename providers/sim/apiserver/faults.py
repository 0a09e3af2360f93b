"""Misbehaviour on demand: what a real API server does on a bad day, made repeatable.

A rule says which requests, how often (by count or by a seeded generator) and what happens to them. The same rules serve
both ways in: `ApiServer(store, faults=rules)` and, without a wire, `DirectTransport(store, clock, rules=rules)`, where
those that refuse strike reads and writes and `LoseAnswer` strikes writes (the others need a connection). For example:

    rules = FaultRules()
    rules.add(FaultRule(PriorityReject(retry_after_s=1), when=lambda count: count <= 20))
    broken = rules.add(FaultRule(WebhookFails("pods.example.com"), verbs=WRITES, resources=frozenset({"pods"})))
    rules.add(FaultRule(WebhookDenies("all.example.com", "closed today"), verbs=frozenset({"create"})))
    rules.remove(broken)

Which group versions are served is no fault but a profile: `Store(clock, release=RELEASES["1.33"])`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from providers.sim.store import (
    ApiError,
    StoreConflict,
    StoreForbidden,
    StoreInternalError,
    StoreOverloaded,
    StoreTooManyRequests,
)

When = Callable[[int], bool]
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""The verbs that admission webhooks hear of."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with a failure and leave the store alone."""

    code: Literal[409, 429, 500]
    retry_after_s: int = 1

    def error(self) -> ApiError:
        """The failure."""
        if self.code == 429:
            return StoreTooManyRequests("the server has received too many requests", retry_after_s=self.retry_after_s)
        if self.code == 409:
            return StoreConflict(
                "Operation cannot be fulfilled: the object has been modified; please apply your changes again"
            )
        return StoreInternalError("Internal error occurred: injected")


@dataclass(frozen=True, slots=True)
class PriorityReject:
    """Turned away by priority and fairness: 429 with `Retry-After` and plain text, no Status object."""

    retry_after_s: int = 1

    def error(self) -> ApiError:
        """The failure."""
        return StoreOverloaded(self.retry_after_s)


@dataclass(slots=True)
class Seats:
    """A priority level: a request holds one of its seats for `held_s`, or waits for one, or is turned away.

    Source: apiserver `pkg/util/flowcontrol` (one queue, no borrowing between levels).
    """

    seats: int
    held_s: float
    queue: int = 0
    retry_after_s: int = 1
    turned_away: int = field(default=0, init=False)
    inside: int = field(default=0, init=False)
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """All seats are free."""
        self._free = asyncio.Semaphore(self.seats)

    async def take(self) -> None:
        """Returns when the request has had its time on a seat; raises where there is not even a place in the queue."""
        if self.inside >= self.seats + self.queue:
            self.turned_away += 1
            raise StoreOverloaded(self.retry_after_s)
        self.inside += 1
        try:
            async with self._free:
                await asyncio.sleep(self.held_s)
        finally:
            self.inside -= 1


@dataclass(frozen=True, slots=True)
class WebhookFails:
    """A webhook with `failurePolicy: Fail` that does not answer: 500, and nothing has happened.

    Source: apiserver `pkg/admission/plugin/webhook` (`ErrCallingWebhook`), api/errors `NewInternalError`.
    """

    webhook: str
    why: str = 'Post "https://webhook.muster-test.svc:443/admit?timeout=10s": context deadline exceeded'

    def error(self) -> ApiError:
        """The failure."""
        said = f'failed calling webhook "{self.webhook}": failed to call webhook: {self.why}'
        return StoreInternalError(f"Internal error occurred: {said}", {"causes": [{"message": said}]})


@dataclass(frozen=True, slots=True)
class WebhookDenies:
    """A webhook that says no: 403 in its words.

    Source: apiserver `pkg/admission/plugin/webhook/errors/statuserror.go` (`ToStatusErr`).
    """

    webhook: str
    why: str = ""

    def error(self) -> ApiError:
        """The failure."""
        said = f'admission webhook "{self.webhook}" denied the request'
        return StoreForbidden(f"{said}: {self.why}" if self.why else f"{said} without explanation")


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Do what is asked, then drop the connection: the caller cannot know whether it happened."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Half-open: accept and never answer."""


@dataclass(frozen=True, slots=True)
class CutWatch:
    """End a watch after so many events: cleanly, in the middle of the next line, or by falling silent for ever."""

    after_events: int
    how: Literal["close", "mid-line", "silence"] = "close"


@dataclass(frozen=True, slots=True)
class Trickle:
    """Send bodies in small pieces with a pause between them."""

    piece_bytes: int = 64
    pause_s: float = 0.01


@dataclass(frozen=True, slots=True)
class Compact:
    """Forget all history just before the request is served."""


@dataclass(frozen=True, slots=True)
class GoneStatus:
    """Answer a watch from a forgotten version with HTTP 410, not with an ERROR event in a 200 stream."""


Refusal = Refuse | PriorityReject | WebhookFails | WebhookDenies
Effect = Delay | Refusal | Seats | LoseAnswer | Hang | CutWatch | Trickle | Compact | GoneStatus


def always(_: int) -> bool:
    """Every matching request."""
    return True


@dataclass(slots=True)
class FaultRule:
    """`effect` for requests of these verbs and resources (`plural.group`; empty means any), `when` of their count."""

    effect: Effect
    verbs: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    when: When = always
    seen: int = field(default=0, init=False)
    hits: int = field(default=0, init=False)

    def strikes(self, verb: str, resource: str) -> bool:
        """Count the request and say whether the effect applies to it."""
        if (self.verbs and verb not in self.verbs) or (self.resources and resource not in self.resources):
            return False
        self.seen += 1
        hit = self.when(self.seen)
        self.hits += hit
        return hit


class FaultRules:
    """The rules in force. Change them between requests; the server asks once a request, on its own thread."""

    def __init__(self, *rules: FaultRule) -> None:
        self._rules: tuple[FaultRule, ...] = rules

    def add(self, rule: FaultRule) -> FaultRule:
        """Put a rule in force; returned for its counts."""
        self._rules = (*self._rules, rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Take a rule out of force."""
        self._rules = tuple(held for held in self._rules if held is not rule)

    def clear(self) -> None:
        """Removes all rules."""
        self._rules = ()

    def effects(self, verb: str, resource: str) -> tuple[Effect, ...]:
        """Returns the effects on this request, in the order of the rules."""
        if not self._rules:
            return ()
        return tuple(rule.effect for rule in self._rules if rule.strikes(verb, resource))

    def refuse(self, verb: str, resource: str) -> tuple[Effect, ...]:
        """The effects on this request, for a caller without a connection; raises the first refusal among them."""
        found = self.effects(verb, resource)
        for effect in found:
            if isinstance(effect, Refusal):
                raise effect.error()
        return found
