"""What the page shows: the values that the brain saw last, kept by a watcher for another thread."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from agent.inbox import Done, Failed
from agent.journal import JOURNAL_LINES_MOST, entries, outcome_entries, sync_entry
from agent.mirror import Mirror
from agent.review.world import LastPass
from agent.spent import PastMonth
from agent.sync import SyncState
from agent.watch import Watcher
from fleet.actions import Action, Announce
from fleet.cost.uses import CostTerms, subject_usd_h, uses
from fleet.explain.gang import GangExplanation, explain_gang
from fleet.explain.gang_facts import ToldLately
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Gang, Snapshot
from model.fleet import Fleet
from model.index import Index

EVENTS_MOST: Final = 4_000
"""Events that are kept to be shown."""


Months = Callable[[], tuple[PastMonth, ...]]
Explain = Callable[[Fleet, Snapshot, Gang], GangExplanation]


def explained_at_once(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> GangExplanation:
    """Returns the explanation without what takes long to find."""
    rates = subject_usd_h(snapshot.index, uses(fleet, snapshot, CostTerms(payer_of)))
    return explain_gang(fleet, snapshot, gang, ToldLately(usd_h=rates.get(gang.uid, 0.0)))


class JournalEntry(NamedTuple):
    """A line of the journal and when it was written (epoch seconds)."""

    at_s: float
    said: Mapping[str, Any]


class ToldEvent(NamedTuple):
    """An event as it was written to the cluster, and when (epoch seconds)."""

    at_s: float
    event: Announce


class PageNews(NamedTuple):
    """What there is to show at one instant; values, of which nothing changes any more."""

    version: int
    state: SyncState
    last: LastPass | None
    """None before the first pass of all deciders, and in an agent that does not lead."""
    journal: tuple[JournalEntry, ...]
    """Oldest first."""
    events: tuple[ToldEvent, ...]
    """Of this process, oldest first."""
    terms: CostTerms
    """How costs are told apart."""
    explain: Explain
    """Explains a gang of the last pass."""
    months: tuple[PastMonth, ...] = ()
    """What months came to by the ledger, the latest first."""


class PageWatcher(Watcher):
    """Keeps the last pass and the latest lines of the journal. The brain's thread pays for two assignments a turn."""

    def __init__(self) -> None:
        self._index = Index()
        self._lines: deque[JournalEntry] = deque(maxlen=JOURNAL_LINES_MOST)
        self._frozen: tuple[JournalEntry, ...] = ()
        self._events: deque[ToldEvent] = deque(maxlen=EVENTS_MOST)
        self._frozen_events: tuple[ToldEvent, ...] = ()
        self._stirred = False
        self._state: Callable[[], SyncState] = SyncState
        self._last: LastPass | None = None
        self._version = 0
        self._terms = CostTerms(payer_of)
        self._explain: Explain = explained_at_once
        self._months: Months = tuple
        self._at_first: Callable[[], object] | None = None

    def at_first(self, prepare: Callable[[], object]) -> None:
        """Have something done at the first picture, unless there is one; on the brain's thread, so it takes no time."""
        self._at_first = prepare if self._last is None else None

    def lead(
        self,
        state: Callable[[], SyncState],
        earlier: Iterable[tuple[float, Mapping[str, Any]]] = (),
        terms: CostTerms | None = None,
        explain: Explain | None = None,
        months: Months = tuple,
    ) -> None:
        """Begin to show a brain's sync; `earlier` are lines of the journal from before, oldest first."""
        self._state, self._terms, self._explain = state, terms or self._terms, explain or self._explain
        self._months = months
        self._lines.extend(JournalEntry(*each) for each in earlier)
        self._frozen = tuple(self._lines)

    def now(self) -> PageNews:
        """Returns what there is to show; another version is another picture. For any thread."""
        told = self._frozen, self._frozen_events, self._terms, self._explain, self._months()
        return PageNews(self._version, self._state(), self._last, *told)

    def hearing(self, say: Callable[[Announce], None], now: Callable[[], float]) -> Callable[[Announce], None]:
        """Returns a way to tell events that the page hears of as well."""

        def said(event: Announce) -> None:
            self._events.append(ToldEvent(now(), event))
            self._stirred = True
            say(event)

        return said

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Remember what is about to be done."""
        self._remember(now_s, entries(action, mirror))

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Remember what launches and returns came to."""
        self._remember(now_s, outcome_entries(event))

    def told(self, event: Announce, now_s: float) -> None:
        """Remember what became of a revision."""
        self._remember(now_s, [sync_entry(event)])

    def _remember(self, now_s: float, said: Iterable[Mapping[str, Any]]) -> None:
        for each in said:
            self._lines.append(JournalEntry(now_s, each))
            self._stirred = True

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Swap what is shown. The views that pages derive are kept apart from those of the brain."""
        if self._stirred:
            self._frozen, self._frozen_events, self._stirred = tuple(self._lines), tuple(self._events), False
        self._last = LastPass(fleet, replace(snapshot, index=self._index))
        self._version += 1
        if self._at_first is not None:
            prepare, self._at_first = self._at_first, None
            prepare()


EVERYTHING: Final = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose work a viewer may see."""

    namespaces: frozenset[str] | None = EVERYTHING
    """None = everything there is: all namespaces, and what is nobody's."""

    @property
    def whole(self) -> bool:
        """Returns whether nothing is left out."""
        return self.namespaces is None

    def sees(self, gang: Gang) -> bool:
        """Returns whether the viewer may know of a gang."""
        return self.namespaces is None or gang.namespace in self.namespaces

    def teams(self, fleet: Fleet) -> frozenset[str]:
        """Returns the payers (teams, ClusterQueues) of the viewer's namespaces."""
        if self.namespaces is None:
            return frozenset({*fleet.teams, *fleet.cluster_queues, *fleet.volcano_queues})
        own = {name for name, team in fleet.teams.items() if not self.namespaces.isdisjoint(team.spec.namespaces)}
        local = (it for it in fleet.local_queues.values() if it.metadata.namespace in self.namespaces)
        behind = {payer_of(fleet, it.metadata.namespace, it.name) for it in local}
        return frozenset(own | {payer for payer in behind if payer is not None})
