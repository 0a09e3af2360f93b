"""Several ledgers as one: everything has to be allowed by all of them, and they order queues one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.reference.session.ledger import Claim, SessionLedger, Tab, Vector, plain
from tests.reference.session.values import Squad


class Together:
    """The conjunction of ledgers that count the same resources; without any, everything is allowed."""

    def __init__(self, resources: Sequence[str], parents: Mapping[str, str], ledgers: Sequence[SessionLedger]) -> None:
        self.resources, self.parents = tuple(resources), parents
        self._ledgers = tuple(ledgers)
        self._age = {name: place for place, name in enumerate(parents)}

    def vector(self, requests: Mapping[str, float]) -> Vector:
        """Every resource for itself."""
        return plain(self.resources, requests)

    def open(self, total: Vector, wanted: Mapping[str, Vector], reserved: Mapping[str, Vector]) -> None:
        """Open all."""
        for ledger in self._ledgers:
            ledger.open(total, wanted, reserved)

    def charge(self, squad: Squad, amounts: Vector, count: int) -> None:
        """Charge all."""
        for ledger in self._ledgers:
            ledger.charge(squad, amounts, count)

    def takes_turns(self, queue: str) -> bool:
        """Whether it does in all."""
        return all(ledger.takes_turns(queue) for ledger in self._ledgers)

    def may_start(self, squad: Squad, amounts: Vector) -> bool:
        """Whether all allow it."""
        return all(ledger.may_start(squad, amounts) for ledger in self._ledgers)

    def may_claim(self, squad: Squad, amounts: Vector) -> bool:
        """Whether all allow it."""
        return all(ledger.may_claim(squad, amounts) for ledger in self._ledgers)

    def may_queue(self, squad: Squad) -> bool:
        """Whether all gates open."""
        return all(ledger.may_queue(squad) for ledger in self._ledgers)

    def grace_s(self, queue: str, claimant: str) -> float:
        """The longest that any grants."""
        return max((ledger.grace_s(queue, claimant) for ledger in self._ledgers), default=0.0)

    def worth_trying(self, squad: Squad, amounts: Vector, queue: str) -> bool:
        """Whether it is for all."""
        return all(ledger.worth_trying(squad, amounts, queue) for ledger in self._ledgers)

    def claim(self, squad: Squad, amounts: Vector) -> Claim:
        """A claim that all honour."""
        claims = [ledger.claim(squad, amounts) for ledger in self._ledgers]
        return lambda: _Tabs([claim() for claim in claims])

    def nearness(self, one: str, other: str) -> int:
        """How closely all say they are related."""
        return sum(ledger.nearness(one, other) for ledger in self._ledgers)

    def turn(self, queue: str, amounts: Vector | None, relief: Vector | None = None) -> tuple[float, ...]:
        """The first ledger decides, then the next; in the end the older queue."""
        found: tuple[float, ...] = ()
        for ledger in self._ledgers:
            found += ledger.turn(queue, amounts, relief)
        return (*found, self._age[queue])


@dataclass(frozen=True, slots=True)
class _Tabs:
    tabs: Sequence[Tab]

    def offer(self, queue: str, loss: Vector) -> bool:
        """All are asked, so that all take note."""
        answers = [tab.offer(queue, loss) for tab in self.tabs]
        return all(answers)

    def closes(self) -> bool:
        """Whether all do."""
        return all(tab.closes() for tab in self.tabs)
