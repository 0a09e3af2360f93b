"""Loading and planning a revision, beside the brain: it goes on deciding while this takes its time."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from agent.inbox import Event, Planned, Pushed
from fleet.offerings.declared import catalog_checks
from fleet.offerings.listing import CatalogListing
from fleet.plan import Consequences, declared_plan, make_plan
from fleet.plan.guards import RevisionTally
from fleet.policy.checks import unreadable_checks
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.index import Index
from model.loader import Check, InvalidFleet, load


class KnownRun(NamedTuple):
    """A `KnownRun` is what a fleet does from a snapshot on as long as no revision comes."""

    fleet: Fleet
    snapshot: Snapshot
    consequences: Consequences


@dataclass(frozen=True, slots=True)
class PlanJob:
    """One revision to be judged in the world of a snapshot. Calling it returns what came of it, and never raises."""

    event: Pushed
    before: Fleet | None
    """The fleet in force."""
    base_revision: str
    snapshot: Snapshot
    day: Sequence[RevisionTally] = ()
    """What came of the revisions of the last 24 hours."""
    observed: bool = True
    """Whether the plan looks at the world; else declarations are compared, and what they allow."""
    cluster: str = ""
    """Whose part of the repository is read, where that holds several clusters."""
    anyway: Callable[[], "KnownRun"] | None = None
    """Tells what happens without the revision, and in which snapshot; None = that is found out with the plan."""

    def __call__(self) -> Planned:
        """Load the files and plan what they declare."""
        try:
            fleet = load(self.event.files, further=self._checks(), cluster=self.cluster)
            known = self.anyway() if self.anyway is not None and self.observed and self.base_revision else None
            found = known.consequences if known else None
            # the brain goes on deriving views of its own
            snapshot = replace(known.snapshot if known else self.snapshot, index=Index())
            make = partial(make_plan, day=self.day, anyway=found) if self.observed else declared_plan
            plan = make(
                self.before or Fleet(),
                fleet,
                snapshot,
                base_revision=self.base_revision,
                head_revision=self.event.revision,
                confirmed=self.event.confirms,
            )
        except InvalidFleet as invalid:
            return Planned(self.event, problems=invalid.problems)
        except Exception as error:  # noqa: BLE001  the revision's fence: the sync shows it as PlanningFailed
            return Planned(self.event, error=error)
        return Planned(self.event, fleet, plan)

    def _checks(self) -> Sequence[Check]:
        """What is on sale judges what is new; what was in force before a restart has been judged when it came."""
        return (
            () if self.event.restored else (*catalog_checks(CatalogListing(self.snapshot.catalog)), unreadable_checks)
        )


class PlannerThread:
    """Carries plan jobs out one after the other. A daemon: a plan that never ends must not keep the process alive."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report
        self._jobs: SimpleQueue[Callable[[], Event]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="planner", daemon=True)

    def submit(self, job: Callable[[], Event]) -> None:
        """Carry a job out as soon as those before it are through."""
        if not self._thread.is_alive():
            self._thread.start()
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._report(self._jobs.get()())
