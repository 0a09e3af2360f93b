"""Waits for gangs that say when they end, where they leave room before a machine that is bought would have booted.

That starts the waiting gang sooner than a purchase, and costs nothing, so it is not weighed against one. Ends are
estimates: nobody waits for longer than a boot takes, counted from when it came or was evicted last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from math import inf

from fleet.gangs.lost_machines import boot_s
from fleet.placement.plan import PlacementPlan
from fleet.quota.ledger import AdmittedWorkload, QuotaLedger
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal, some_of
from fleet.scheduling.placement_backend import ClusterBackend
from fleet.snapshot import Snapshot


@dataclass(slots=True)
class DeclaredEnds:
    """`DeclaredEnds` are those of the gangs that hold capacity as a pass begins; the ledger stays as it was."""

    snapshot: Snapshot
    backend: ClusterBackend
    ledger: QuotaLedger
    awaited: dict[str, Refusal] = field(default_factory=dict)
    """uid of a gang that could buy -> why it had better wait for others to end."""
    _promised: dict[str, tuple[Workload, PlacementPlan]] = field(default_factory=dict)
    """uid of a gang that waits so -> its place once they have ended: nobody else waits for that."""
    _ending: list[AdmittedWorkload] | None = None
    """None = not asked yet."""

    @property
    def ending(self) -> Sequence[AdmittedWorkload]:
        """Returns the holders that say when they end, in that order."""
        if self._ending is None:
            saying = (it for it in self.ledger.holders.values() if it.ends_at_s < inf)
            self._ending = sorted(saying, key=lambda it: (it.ends_at_s, it.workload.uid))
        return self._ending

    def leave_room(self, workload: Workload, given: Sequence[PodSetAssignment], plan: PlacementPlan) -> bool:
        """Returns whether a workload that would buy had better wait, and keeps the place for it if so."""
        by_s = max(workload.created_at_s, workload.evicted_at_s) + boots_s(self.snapshot, plan)
        ending = list(self._until(by_s))
        place = self._place_without(ending, workload, given) if ending else None
        if not isinstance(place, PlacementPlan):
            return False
        last = datetime.fromtimestamp(ending[-1].ends_at_s, UTC)
        words = (
            f"waits instead of buying {purchase_words(plan)}: {some_of([it.workload.name for it in ending])} "
            f"will have left room for it by {last:%H:%M:%S} UTC, before a machine would be ready"
        )
        self.awaited[workload.uid] = Refusal(Reason.BATCHING, words, by_s)
        self._promised[workload.uid] = workload, place
        return True

    def _until(self, by_s: float) -> Iterator[AdmittedWorkload]:
        """Yields the holders that say they end by then."""
        ending = takewhile(lambda it: it.ends_at_s <= by_s, self.ending)
        return (it for it in ending if not (it.out or it.unsettled or it.leaving))

    def _place_without(
        self, gone: Sequence[AdmittedWorkload], workload: Workload, given: Sequence[PodSetAssignment]
    ) -> object:
        """Returns the place on machines that stand once these holders are gone, beside what is promised to others."""
        for holder in gone:
            self.ledger.lift(holder)
        others = [kept for uid, kept in self._promised.items() if uid != workload.uid]
        for kept in others:
            self.backend.hold(*kept)
        place = self.backend.find(replace(workload, buys=False), given)
        for kept in reversed(others):
            self.backend.release(*kept)
        for holder in reversed(gone):
            self.ledger.put_back(holder)
        return place


def boots_s(snapshot: Snapshot, plan: PlacementPlan) -> float:
    """Returns how long until the last machine of a purchase is ready (s)."""
    machines = ((it.offering.pool.name, it.offering.offer.instance_type.name) for it in plan.purchases)
    return max(boot_s(snapshot, *machine) for machine in machines)


def purchase_words(plan: PlacementPlan) -> str:
    """Returns what a plan buys and its price: `1 x p5.48xlarge at 98.00 USD/h`."""
    machines = (f"{it.count} x {it.offering.offer.instance_type.name}" for it in plan.purchases)
    return f"{' and '.join(machines)} at {plan.cost_usd_h:.2f} USD/h"
