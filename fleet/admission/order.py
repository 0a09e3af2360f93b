"""The order in which waiting gangs are considered, within a queue and between queues."""

from collections.abc import Iterator

from fleet.admission.compile import usage_of
from fleet.admission.screen import screen
from fleet.admission.share import dominant_share
from fleet.admission.tree import QuotaTree, Usage
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet


def queue_key(gang: Gang) -> tuple[object, ...]:
    """Within a queue: who already had others evicted for it, higher priority, older, uid (Kueue 2.2)."""
    sticky = gang.reason == Reason.WAITING_FOR_PREEMPTED
    return (not sticky, -gang.priority, gang.created_at_s, gang.uid)


class Waiting:
    """The pending gangs of all queues, handed out one at a time against the tree as it is at that moment."""

    def __init__(self, fleet: Fleet, snapshot: Snapshot, tree: QuotaTree) -> None:
        self._fleet = fleet
        self._tree = tree
        self._all = sorted((g for g in snapshot.gangs.values() if g.state is GangState.PENDING), key=queue_key)
        self._queues: dict[str, list[Gang]] = {}
        self._behind: list[tuple[Gang, Gang]] = []
        for gang in self._all:
            if screen(fleet, snapshot, gang) is None:
                self._queues.setdefault(gang.queue, []).append(gang)

    def pending(self) -> list[Gang]:
        """Every pending gang, those that may not be considered included."""
        return list(self._all)

    def in_order(self) -> Iterator[Gang]:
        """The best head of all queues, again and again, until every queue is done or blocked."""
        while heads := [gangs[0] for _, gangs in sorted(self._queues.items()) if gangs]:
            best = min(heads, key=self._key)
            self._queues[best.queue].pop(0)
            yield best

    def stays(self, gang: Gang) -> None:
        """The gang could not run; in a StrictFIFO queue nothing passes it."""
        if self._fleet.queues[gang.queue].spec.order == "StrictFIFO":
            self._behind += [(behind, gang) for behind in self._queues.pop(gang.queue, [])]

    def blocked(self) -> list[tuple[Gang, Gang]]:
        """Gangs behind the head of a StrictFIFO queue, with that head."""
        return list(self._behind)

    def _key(self, gang: Gang) -> tuple[object, ...]:
        """Between queues: whom others left for, less borrowing, lower share where asked, then as within (Kueue 2.6)."""
        queue = self._fleet.queues[gang.queue]
        usage = self._first_usage(gang)
        height = max((self._tree.borrow_height(gang.queue, cell, amount) for cell, amount in usage.items()), default=0)
        fair = queue.spec.fairness == "DominantShare"
        share = dominant_share(self._tree, gang.queue, usage) if fair else 0.0
        sticky, *rest = queue_key(gang)
        return (sticky, height, round(share, 9), *rest)

    def _first_usage(self, gang: Gang) -> Usage:
        """What it would take of the first flavor its queue may use."""
        for flavor in self._fleet.queues[gang.queue].spec.flavors:
            if self._tree.offers_flavor(gang.queue, flavor):
                return usage_of(self._tree, gang, {pod_set.name: flavor for pod_set in gang.pod_sets})
        return {}
