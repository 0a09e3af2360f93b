"""What views share: what they look at, the parts they are made of, and long lists a page at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from agent.spent import PastMonth
from agent.sync import SyncState
from agent.web.seen import Explain, JournalEntry, Scope, ToldEvent, explained_at_once
from fleet.cost.machine_use import MachineUse
from fleet.cost.uses import CostTerms, subject_usd_h, uses
from fleet.explain.gang import GangExplanation
from fleet.snapshot import Gang, Snapshot
from model.fleet import Fleet

T = TypeVar("T")
PAGE_ROWS: Final = 200
"""Rows of a list that are shown at once."""
QUERY_MOST: Final = 200
"""Signs of a word in the query that count."""


@dataclass(frozen=True, slots=True)
class Looking:
    """One look at what was seen: by whom, and at what of it."""

    fleet: Fleet
    snapshot: Snapshot
    state: SyncState
    journal: Sequence[JournalEntry]
    """Oldest first."""
    events: Sequence[ToldEvent]
    """Oldest first."""
    scope: Scope
    query: Mapping[str, str]
    names: Sequence[str]
    """What the address names, a part of the path each."""
    terms: CostTerms
    """How costs are told apart."""
    explain: Explain = explained_at_once
    months: Sequence[PastMonth] = ()
    """What months came to by the ledger, the latest first."""

    def explanation(self, gang: Gang) -> GangExplanation:
        """Returns the explanation of a gang, as the viewer may see it."""
        found = self.explain(self.fleet, self.snapshot, gang)
        return found if self.scope.namespaces is None else found.without_names(self.scope.namespaces)

    @property
    def used(self) -> Mapping[str, MachineUse]:
        """Returns machine -> who takes which part of it, at which price; borrowed quota is not told apart."""
        return uses(self.fleet, self.snapshot, self.terms)

    def usd_h(self, gang: Gang) -> float:
        """Returns what a gang's parts of machines cost an hour."""
        return subject_usd_h(self.snapshot.index, self.used).get(gang.uid, 0.0)

    @property
    def gangs(self) -> list[Gang]:
        """Returns the gangs that the viewer may know of, by name and uid."""
        seen = (gang for gang in self.snapshot.gangs.values() if self.scope.sees(gang))
        return sorted(seen, key=lambda gang: (gang.name, gang.uid))

    def asked(self, name: str) -> str:
        """Returns a word of the query; empty where it is not there."""
        return self.query.get(name, "")[:QUERY_MOST].strip()


class Part(NamedTuple):
    """A piece of a page that is sent anew when it has changed; `template` is filled with `values`."""

    id: str
    template: str
    values: Mapping[str, Any]


class PageView(NamedTuple):
    """A page: what is shown, before it is HTML."""

    title: str
    parts: Sequence[Part]


def notice(title: str, paragraphs: Sequence[str]) -> PageView:
    """Returns a page of a few sentences."""
    values = {"title": title, "paragraphs": paragraphs, "login": False}
    return PageView(title, [Part("notice", "notice.html", values)])


View = Callable[[Looking], PageView | None]
"""Makes a page of what is looked at; None where there is no such thing, or the viewer may not know of it."""


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """The rows of one page of a list, and the way to those before and after it."""

    rows: Sequence[T]
    total: int
    first: int
    """Number of the first row, from 1; 0 where there is none."""
    before: str
    """Query of the page before; empty where there is none."""
    after: str

    @property
    def last(self) -> int:
        """Returns the number of the last row."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def paged(rows: Sequence[T], look: Looking, most: int = PAGE_ROWS) -> Paged[T]:
    """Returns the page of the list that the query asks for (`page`, from 1); the nearest there is."""
    asked = look.asked("page")
    last = max(1, -(-len(rows) // most))
    number = min(last, max(1, int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 8 else 1))
    start = (number - 1) * most
    shown = rows[start : start + most]
    others = {name: value for name, value in look.query.items() if name != "page" and value}
    before = urlencode({**others, "page": number - 1}) if number > 1 else ""
    after = urlencode({**others, "page": number + 1}) if number < last else ""
    return Paged(shown, len(rows), start + 1 if shown else 0, before, after)
