"""What a session asks of the shares: one protocol, however queues are configured.

Amounts are tuples in the order of `resources`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tests.reference.session.values import Squad

Vector = tuple[float, ...]


class Tab(Protocol):
    """What one reclaimer may take, loss by loss."""

    def offer(self, queue: str, loss: Vector) -> bool:
        """Whether the queue may lose this too; if so it is noted as lost."""

    def closes(self) -> bool:
        """Whether all noted losses together are in order."""


Claim = Callable[[], Tab]
"""An entitlement found in one state of the ledger; every call opens a tab in that state, whatever happened since."""


class SessionLedger(Protocol):
    """Who holds what, and who may hold more."""

    @property
    def resources(self) -> tuple[str, ...]:
        """What is counted."""

    @property
    def parents(self) -> Mapping[str, str]:
        """Queue -> the queue above it, empty at the top. Only queues named here take part."""

    def vector(self, requests: Mapping[str, float]) -> Vector:
        """What a pod with these requests counts for."""

    def open(self, total: Vector, wanted: Mapping[str, Vector], reserved: Mapping[str, Vector]) -> None:
        """Begin: what all machines have, what each queue with work runs and waits for, and what it is owed already.

        Owed is what squads that passed the gate still miss of their floor, less what others hold above theirs. What is
        held has been charged before.
        """

    def charge(self, squad: Squad, amounts: Vector, count: int) -> None:
        """Note that the squad's queue holds `count` times more (less, if negative)."""

    def takes_turns(self, queue: str) -> bool:
        """Whether the queue may be given anything on idle machines now."""

    def may_start(self, squad: Squad, amounts: Vector) -> bool:
        """Whether the hard limits allow it."""

    def may_claim(self, squad: Squad, amounts: Vector) -> bool:
        """Whether the queue is entitled to so much that others may have to leave."""

    def may_queue(self, squad: Squad) -> bool:
        """Whether the gate of the queue opens; what is let in counts from then on."""

    def claim(self, squad: Squad, amounts: Vector) -> Claim:
        """What the squad may take from other queues, as things stand now."""

    def grace_s(self, queue: str, claimant: str) -> float:
        """How long what stands in the queue keeps its minimum for sure, whatever the claimant (or itself) is due."""

    def worth_trying(self, squad: Squad, amounts: Vector, queue: str) -> bool:
        """Whether anything of that queue could be offered at all."""

    def nearness(self, one: str, other: str) -> int:
        """How closely two queues are related; those nearest to a claimant are taken from first."""

    def turn(self, queue: str, amounts: Vector | None, relief: Vector | None = None) -> tuple[float, ...]:
        """What to sort queues by, the one to be served first smallest: with `amounts` more, or `relief` less."""


def add(one: Vector, other: Vector, times: int = 1) -> Vector:
    """One vector plus `times` another."""
    return tuple(a + b * times for a, b in zip(one, other, strict=True))


def total(parts: Iterable[Vector], size: int) -> Vector:
    """The sum; zeros when there is nothing to add."""
    found: Vector = (0.0,) * size
    for part in parts:
        found = add(found, part)
    return found


def plain(resources: Sequence[str], requests: Mapping[str, float]) -> Vector:
    """Requests in the order of the resources."""
    return tuple(float(requests.get(name, 0.0)) for name in resources)


def named(resources: Sequence[str], amounts: Vector) -> dict[str, float]:
    """A vector as a mapping, zeros left out."""
    return {name: amount for name, amount in zip(resources, amounts, strict=True) if amount}
