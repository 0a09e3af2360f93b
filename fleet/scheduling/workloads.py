"""Gangs as the quota engine knows them: what a gang says, with what its queue and the instant make of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fleet.cost.lost_work import lost_work_s
from fleet.quota.admission_fair_sharing import local_queue_of
from fleet.quota.namespace_room import bounded_shape
from fleet.quota.queue_binding import QueueBinding, binding_of, boosted_priority, within_guarantee
from fleet.quota.workload import Workload
from fleet.reasons import Reason
from fleet.scheduling.prefilter import uncut
from fleet.scheduling.queue_order import PREEMPTION_BACKOFF_AFTER, is_moved, overdue, preemption_backs_off, runs_s
from fleet.snapshot import LAYOUTS, Gang, GangState, PodSet, Snapshot
from fleet.snapshot.constraints import PodAffinityTerm
from fleet.snapshot.elastic_parts import startable
from fleet.snapshot.lookups import anti_affinity_terms
from model.fleet import Fleet


@dataclass(slots=True)
class Workloads:
    """`Workloads` makes a workload of each gang of a pass; they are kept from pass to pass."""

    fleet: Fleet
    snapshot: Snapshot
    room_made_for: frozenset[str]
    """uids of gangs that others leave their places to, to start again elsewhere."""
    leave_for: frozenset[str] = frozenset()
    """Those of them that somebody has not left for yet: nothing is bought for them meanwhile."""
    _bindings: dict[tuple[str, str], QueueBinding | None] = field(default_factory=dict)
    _kept: dict[str, tuple[Gang, Fleet, Workload]] = field(init=False)
    """uid -> what was made of it last, in this pass or one before."""
    only_itself: bool = field(init=False)
    """Whether no MIG layout that cannot be written and nobody's anti-affinity decide what a gang is."""
    _repelling: Sequence[PodAffinityTerm] = field(init=False)
    """The anti-affinity of everybody."""

    def __post_init__(self) -> None:
        self._kept, self._repelling = self.snapshot.index.kept(Workloads), anti_affinity_terms(self.snapshot)
        self.only_itself = self.snapshot.refused.get(LAYOUTS) is None and not self._repelling

    def binding(self, gang: Gang) -> QueueBinding | None:
        """Returns where a gang's queue leads, None where it is not declared; looked up once a queue."""
        key = gang.namespace, gang.queue
        if key not in self._bindings:
            self._bindings[key] = binding_of(self.fleet, *key)
        return self._bindings[key]

    def held(self, part: Gang, binding: QueueBinding) -> Workload:
        """Returns what holds capacity as a workload; the one of the last pass where nothing says otherwise since."""
        if not self.lasts(part, binding):
            return self.of(part, binding, part.pod_sets)
        known, lost_s = self._remembered(part, binding, part.pod_sets), lost_work_s(part, self.snapshot.now_s)
        return known if known.lost_work_s == lost_s else replace(known, lost_work_s=lost_s)

    def waiting(self, gang: Gang, binding: QueueBinding) -> Workload:
        """Returns a waiting gang as a workload; the one of the last pass where nothing says otherwise since."""
        others_say = (
            not self.only_itself,
            gang.uid in self.room_made_for,
            gang.uid in self.leave_for,
            self._is_bounded(gang),
        )
        reads_clock = gang.eviction, gang.sla_waiting_s, binding.reserve_after_s
        if any(others_say) or reads_clock != (None, None, None):
            return self.of(gang, binding)
        return self._remembered(gang, binding)

    def _remembered(self, gang: Gang, binding: QueueBinding, pod_sets: tuple[PodSet, ...] = ()) -> Workload:
        """Returns what `of` does, which nothing but gang and fleet decide; made anew where one of them is another."""
        kept, known = self._kept, self._kept.get(gang.uid)
        if known is None or known[0] is not gang or known[1] is not self.fleet:
            if len(kept) > 2 * len(self.snapshot.gangs) + 1024:
                kept.clear()
            known = kept[gang.uid] = gang, self.fleet, self.of(gang, binding, pod_sets)
        return known[2]

    def lasts(self, part: Gang, binding: QueueBinding) -> bool:
        """Returns whether nothing but the part itself, the fleet and the work it would lose decides what it is."""
        waits = binding.reserve_after_s is not None or part.sla_waiting_s is not None
        rests = part.state is not GangState.PENDING and part.evictions < PREEMPTION_BACKOFF_AFTER
        return self.only_itself and rests and not waits

    def of(self, gang: Gang, binding: QueueBinding, pod_sets: tuple[PodSet, ...] = ()) -> Workload:
        """Returns a gang as a workload with these pod sets; none given: a waiting one, whose core has to start."""
        now = self.snapshot.now_s
        moved = self._goes_first(gang)
        return Workload(
            gang.uid,
            gang.name,
            binding.name,
            boosted_priority(self.fleet, gang),
            gang.created_at_s,
            pod_sets or startable(gang),
            evicted_at_s=gang.eviction.at_s if gang.eviction else 0.0,
            local_queue=local_queue_of(gang),
            preempts=gang.preempts and not preemption_backs_off(gang, now),
            overdue=moved or overdue(gang, binding, now),
            moved=moved,
            buys=uncut(self.snapshot, gang) is None and gang.uid not in self.leave_for,
            repelled=self._repelled(pod_sets or gang.pod_sets),
            runs_s=runs_s(gang),
            non_preemptible=within_guarantee(self.fleet, gang),
            nominated=gang.reason == Reason.WAITING_FOR_PREEMPTED,
            choice=None if pod_sets else gang.choice,
            bounded=bounded_shape(self.snapshot, gang) if not pod_sets and self._is_bounded(gang) else None,
            lost_work_s=lost_work_s(gang, self.snapshot.now_s),
        )

    def _is_bounded(self, gang: Gang) -> bool:
        """Returns whether there are ResourceQuotas in its namespace."""
        return gang.namespace in self.snapshot.namespace_quotas.by_namespace

    def _goes_first(self, gang: Gang) -> bool:
        """Returns whether a waiting gang goes before all others: it is being moved, or others move for it."""
        goes = is_moved(gang, self.snapshot.now_s) or gang.uid in self.room_made_for
        return goes and gang.state is GangState.PENDING

    def _repelled(self, pod_sets: Iterable[PodSet]) -> bool:
        """Returns whether the anti-affinity of anybody means pods of these sets."""
        terms, namespaces = self._repelling, self.snapshot.namespaces
        return bool(terms) and any(
            term.means(pods.namespace, dict(pods.labels), namespaces) for pods in pod_sets for term in terms
        )
