"""Misbehaviour on demand: what a real API server does on a bad day, made repeatable.

A rule says which requests, how often (by count or by a seeded generator) and what happens to them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from providers.sim.store import ApiError, StoreConflict, StoreInternalError, StoreTooManyRequests

When = Callable[[int], bool]


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


Effect = Delay | Refuse | LoseAnswer | Hang | CutWatch | Trickle | Compact | GoneStatus


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
