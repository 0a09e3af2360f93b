"""The one decision: for every waiting gang, quota and a place and a paid-for machine, or a reason why not.

The quota engine sweeps through all queues and asks the machines for a place (`ClusterBackend`): a gang gets flavors
and a place together, on machines that stand idle, on ones cut anew, on ones bought for it; and only where quota or
machines are in others' hands, these are evicted. What the pass decides becomes actions here.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from fleet.actions import Action, OpenClaims, PurchaseTally, SaveClaim, SaveGang, gang_subject
from fleet.cost.lost_work import lost_work_s
from fleet.fence import Decided, concerning
from fleet.fence import together as decided_together
from fleet.gangs.admission_checks import open_checks
from fleet.gangs.elastic import dismissed, growing, grown, joining
from fleet.gangs.replacement import pods_to_replace, refilled
from fleet.gangs.transitions import evicted
from fleet.mig.layouts import cut_anew
from fleet.placement.cluster_state import ClusterState
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state, coming_machines
from fleet.placement.plan import PlacementPlan
from fleet.quota.admission_cycle import CycleResult
from fleet.quota.admission_fair_sharing import local_queue_of, usage_ledger
from fleet.quota.build_tree import QuotaSpecs, current_quota_specs, pod_set_assignments, usages
from fleet.quota.ledger import AdmittedWorkload, QuotaLedger, SecondPassWorkload
from fleet.quota.preemption import Victim
from fleet.quota.queue_binding import QueueBinding, binding_of, boosted_priority
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.specs import FlavorResource
from fleet.quota.workload import Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.gang_planner import GangPlanner
from fleet.scheduling.placement_backend import ClusterBackend, PlacedGang
from fleet.scheduling.prefilter import may_take_more, prefilter
from fleet.scheduling.queue_order import ends_at_s, gathering, in_line, overdue, put_off, runs_s, tired
from fleet.scheduling.sentences import Explainer
from fleet.snapshot import Gang, GangState, PodSet, Snapshot
from fleet.snapshot.elastic_parts import cores, parts, together, whole
from fleet.snapshot.lookups import holders
from fleet.snapshot.seats import seated
from model.fleet import Fleet


def decide(fleet: Fleet, snapshot: Snapshot, *, may_buy: bool = True) -> list[Decided]:
    """What to do for every gang that waits. Gangs and claims with an action under way are left alone."""
    return decided_together(snapshot, lambda world: _decided(fleet, world, may_buy=may_buy))


def _decided(fleet: Fleet, snapshot: Snapshot, *, may_buy: bool) -> list[Action]:
    pending = any(gang.state is GangState.PENDING for gang in snapshot.gangs.values())
    if not pending and not growing(snapshot) and not pods_to_replace(fleet, snapshot):
        return []
    return AdmissionPass.start(fleet, snapshot, may_buy=may_buy).run()


@dataclass(slots=True)
class AdmissionPass:
    """The working state of one pass; nothing of it outlives the pass."""

    fleet: Fleet
    snapshot: Snapshot
    specs: QuotaSpecs
    backend: ClusterBackend
    scheduler: AdmissionScheduler
    waiting: list[Gang]
    """All that are pending, in the order of their queues."""
    parts: Mapping[str, Gang] = field(default_factory=dict)
    """uid -> gang that holds capacity, or the part of one: its core, or a single pod beyond it."""
    changed: dict[str, Gang] = field(default_factory=dict)
    """uid -> gang that holds capacity and has changed, as it is to be written."""
    actions: list[Action] = field(default_factory=list)
    tally: PurchaseTally | None = None
    """Of all that is bought, until it has been told."""
    lines: dict[tuple[str, str], QueueBinding | None] = field(default_factory=dict)
    """(namespace, queue) -> the line behind it, as far as it was asked for."""

    @classmethod
    def start(cls, fleet: Fleet, snapshot: Snapshot, *, may_buy: bool = True) -> "AdmissionPass":
        """Charge what is held to the quota tree and to the machines."""
        specs = current_quota_specs(fleet, snapshot)
        lost = pods_to_replace(fleet, snapshot)
        held = {part.uid: part for gang in holders(snapshot) for part in _held(snapshot, gang, lost)}
        tree = specs.tree()
        state = _cluster_state(fleet, snapshot)
        capacity = build_capacity(fleet, snapshot, may_buy=may_buy)
        flavors = FleetFlavors(fleet, capacity.offerings, state)
        planner = GangPlanner(specs.queues, tree, capacity, flavors, snapshot.now_s)
        backend = ClusterBackend(planner, state, partial(_cluster_state, fleet, snapshot), held, lost)
        ledger = QuotaLedger(tree, backend)
        scheduler = AdmissionScheduler(ledger, specs.queues, flavors.specs(), specs.rules, snapshot.now_s)
        if (usage := usage_ledger(fleet, snapshot)) is not None:
            scheduler.usage_ledger, scheduler.local_usage = usage, usage.values()
        waiting = [gang for gang in in_line(fleet, snapshot) if gang_subject(gang.uid) not in snapshot.set_aside]
        started = cls(fleet, snapshot, specs, backend, scheduler, waiting, held)
        taken = usages(fleet, snapshot)
        part: Gang
        with concerning(lambda: gang_subject(whole(part.uid))):
            for part in held.values():
                started._settle_or_withhold(part, _summed(part, taken) if part.uid in lost else taken.get(part.uid, {}))
        return started

    def _settle_or_withhold(self, gang: Gang, usage: Mapping[FlavorResource, int]) -> None:
        """Charge what a gang holds; of one that cannot even be charged, nobody else gets the machines."""
        aside = self.snapshot.set_aside
        if not aside or gang_subject(whole(gang.uid)) not in aside:
            self._settle(gang, usage)
            return
        try:
            self._settle(gang, usage)
        except Exception:  # noqa: BLE001  it is set aside already, its condition tells why
            self.backend.withhold(gang.pins)

    def _settle(self, gang: Gang, usage: Mapping[FlavorResource, int]) -> None:
        line = self._line(gang)
        if line is None:  # its queue is no longer declared: it holds machines, and nobody's quota
            self.backend.shift(gang.pins, gang.pod_sets, 1)
            return
        holder = AdmittedWorkload(
            self._workload(gang, line, gang.pod_sets),
            self.backend.planner.tree.queues[line.name],
            (),
            {self.backend.planner.tree.cell(named): amount for named, amount in usage.items()},
            gang.quota_reserved_at_s,
            ends_at_s(gang, self.snapshot.now_s),
            leaving=gang.state is GangState.EVICTING or bool(gang.leaving),
            protected=self._protected(gang, line),
            unsettled=bool(self.snapshot.busy) and gang_subject(whole(gang.uid)) in self.snapshot.busy,
        )
        if gang.uid in self.backend.vacancies:
            holder.given = pod_set_assignments(self.specs, line.name, gang)
        self.scheduler.settle(holder)

    def _line(self, gang: Gang) -> QueueBinding | None:
        """The line a gang stands in, looked up once for all of its queue."""
        key = gang.namespace, gang.queue
        if key not in self.lines:
            self.lines[key] = binding_of(self.fleet, *key)
        return self.lines[key]

    def _protected(self, gang: Gang, line: QueueBinding) -> bool:
        """Whether it may not be chosen as a victim yet."""
        ran_s = self.snapshot.now_s - gang.admitted_at_s
        return gang.state is GangState.ADMITTED and ran_s < line.protected_run_s

    def _workload(self, gang: Gang, line: QueueBinding, pod_sets: tuple[PodSet, ...] = ()) -> Workload:
        """As the quota engine knows it; of a gang that waits only its core has to start."""
        now = self.snapshot.now_s
        return Workload(
            gang.uid,
            gang.name,
            line.name,
            boosted_priority(self.fleet, gang),
            gang.created_at_s,
            pod_sets or cores(gang.pod_sets),
            evicted_at_s=gang.eviction.at_s if gang.eviction else 0.0,
            local_queue=local_queue_of(gang),
            preempts=gang.preempts and not tired(gang, now),
            overdue=overdue(gang, line, now),
            runs_s=runs_s(gang),
            nominated=gang.reason == Reason.WAITING_FOR_PREEMPTED,
            lost_work_s=lost_work_s(gang, self.snapshot.now_s),
        )

    def run(self) -> list[Action]:
        """Replace what running gangs have lost, then consider every waiting gang once."""
        self._replace()
        self._submit()
        result = self.scheduler.sweep()
        gathers = self._put_off()
        self._buy_together()
        for holder in result.admitted:
            gang = self.snapshot.gangs[whole(holder.workload.uid)]
            with concerning(gang_subject(gang.uid)):
                if gang.uid in gathers:
                    self._wait(gang, put_off())
                elif gang.uid == holder.workload.uid:
                    self._commit(gang, holder)
                else:
                    self._grow(gang, holder)
        for victim, preemptor in result.evictions:
            with concerning(gang_subject(whole(victim.holder.workload.uid))):
                self._evict(victim, preemptor)
        self.actions += [SaveGang(gang) for gang in self.changed.values()]
        self._explain(result)
        return self.actions

    def _put_off(self) -> frozenset[str]:
        """Single pods that would buy, and gather instead; those beside a gang that does not wait buy with it."""
        written = self.backend.written
        young = gathering(self.waiting, self.snapshot.now_s)
        theirs = {claim.name for uid in young & written.keys() for claim in written[uid].claims}
        beside = frozenset(uid for uid, it in written.items() if any(pin.claim in theirs for pin in it.pins))
        if not beside <= young:
            return frozenset()
        for uid in beside:
            del written[uid]
        return beside

    def _buy_together(self) -> None:
        if not any(written.claims for written in self.backend.written.values()):
            return
        from fleet.scheduling.joint_purchase import buy_together  # numpy with it, which most passes have no use for

        names = {uid: self.snapshot.gangs[whole(uid)].name for uid in self.backend.written}
        self.tally = buy_together(self.backend, names, self.fleet.policy.spec.purchases)

    def _replace(self) -> None:
        """Gangs that run go first, and evict nobody (Kueue's second pass); who finds no other place leaves at once."""
        holders = [self.scheduler.ledger.holders[uid] for uid in sorted(self.backend.vacancies)]
        if not holders:
            return
        result = self.scheduler.decide((), [SecondPassWorkload(holder, lost=True) for holder in holders])
        for holder in result.placed:
            self._reseat(holder)
        for holder in result.lost:
            self._give_up(holder)

    def _reseat(self, holder: AdmittedWorkload) -> None:
        gang = self.snapshot.gangs[holder.workload.uid]
        vacancy, written = self.backend.vacancies[gang.uid], self.backend.written[gang.uid]
        pins = together((*(pin for pin in gang.pins if vacancy.keeps(pin)), *written.pins))
        self.actions.append(SaveGang(refilled(gang, vacancy, written.plan, pins, self.snapshot.now_s)))
        self.actions += self._prepare(written)
        holder.unsettled = True

    def _give_up(self, holder: AdmittedWorkload) -> None:
        """It leaves as a whole; one that only would have liked a better place goes on waiting for its own."""
        gang, uid = self.snapshot.gangs[holder.workload.uid], holder.workload.uid
        vacancy = self.backend.vacancies[uid]
        if vacancy.idle_only:
            return
        message = f"{vacancy.message}, and there is no replacement: {self.backend.refused[uid].message}"
        job = self.snapshot.jobs.get(uid)
        self.actions.append(SaveGang(evicted(gang, job, vacancy.reason, message, self.snapshot.now_s)))
        self.scheduler.ledger.evict(holder)

    def _evict(self, victim: Victim, preemptor: Workload) -> None:
        part, now = self.parts[victim.holder.workload.uid], self.snapshot.now_s
        gang = self.changed.get(whole(part.uid), self.snapshot.gangs[whole(part.uid)])
        if gang.state is GangState.EVICTING:
            return
        message = f"makes room for {preemptor.name} (priority {preemptor.priority}, queue {preemptor.queue})"
        if part.uid == gang.uid:
            self.changed[gang.uid] = evicted(gang, self.snapshot.jobs.get(gang.uid), victim.reason, message, now)
        elif not part.leaving:
            self.changed[gang.uid] = dismissed(gang, part.pins, f"pods beyond its minimum leave: it {message}", now)

    def _submit(self) -> None:
        """Put the waiting gangs into their queues. One with an action under way keeps its turn there."""
        for gang in self.waiting:
            with concerning(gang_subject(gang.uid)):
                self._submit_one(gang)
        for gang in growing(self.snapshot):
            if gang_subject(gang.uid) not in self.snapshot.set_aside:
                with concerning(gang_subject(gang.uid)):
                    self._submit_surplus(gang)

    def _submit_one(self, gang: Gang) -> None:
        busy = gang_subject(gang.uid) in self.snapshot.busy
        refusal = prefilter(self.fleet, self.snapshot, gang) if not busy else None
        if refusal is not None:
            self._wait(gang, refusal)
        elif (line := self._line(gang)) is not None:
            self.scheduler.submit(replace(self._workload(gang, line), busy=busy))

    def _submit_surplus(self, gang: Gang) -> None:
        line = self._line(gang)
        busy = gang_subject(gang.uid) in self.snapshot.busy or gang.uid in self.backend.vacancies
        if line is not None and not busy and may_take_more(self.fleet, self.snapshot, gang, line):
            for more in joining(self.snapshot, gang, line):
                self.scheduler.submit(more)

    def _grow(self, gang: Gang, holder: AdmittedWorkload) -> None:
        [given] = holder.given
        flavors = self.backend.planner.flavors_of(holder.workload, given)
        pins = self.backend.written[holder.workload.uid].pins
        gang = self.changed.get(gang.uid, gang)
        self.changed[gang.uid] = grown(gang, given.name, pins, flavors, self.snapshot.now_s)

    def _commit(self, gang: Gang, holder: AdmittedWorkload) -> None:
        written, now = self.backend.written[gang.uid], self.snapshot.now_s
        plan = written.plan
        state, reason, message = progress(plan)
        fewer = sum(pods.count for pods in gang.pod_sets) - sum(one.count for one in holder.given)
        if fewer:
            may_join = any(pods.core is not None for pods in gang.pod_sets)
            message += f"; {fewer} more may join" if may_join else f", with {fewer} pods fewer than it asks"
        flavors = {one.name: self.backend.planner.flavors_of(holder.workload, one) for one in holder.given}
        if state is GangState.ADMITTED and (checks := open_checks(self.fleet, replace(gang, flavors=flavors))):
            state, reason, message = GangState.RESERVED, Reason.WAITING_FOR_CHECKS, checks
        changed = gang.moved(
            state,
            reason,
            message,
            now,
            pod_sets=_sized(gang, holder),
            flavors=flavors,
            pins=written.pins,
            recuts={recut.claim: recut.layout for recut in plan.recuts},
            quota_reserved_at_s=now,
            admitted_at_s=now if state is GangState.ADMITTED else 0.0,
            eviction=None,
        )
        self.actions.append(SaveGang(changed))
        self.actions += self._prepare(written)

    def _prepare(self, written: PlacedGang) -> Iterator[Action]:
        if written.claims:
            yield OpenClaims(written.claims, self.tally)
            self.tally = None
        for recut in written.plan.recuts:
            cut = cut_anew(self.snapshot.claims[recut.claim], recut.layout, recut.gpus, self.snapshot.now_s)
            yield SaveClaim(replace(cut, emptied_at_s=0.0))

    def _explain(self, result: CycleResult) -> None:
        explainer = Explainer(self.fleet, self.snapshot, self.scheduler)
        answers = {entry.workload.uid: explainer.entry(entry) for entry in result.waiting}
        heads = {entry.queue.name: entry.workload for entry in result.waiting if entry.queue.strict}
        of_shape = {(entry.queue.name, entry.workload.shape): entry for entry in reversed(result.waiting)}
        for waiting in self.scheduler.still_waiting():
            if waiting.uid not in answers and waiting.queue in heads:
                answers[waiting.uid] = explainer.behind(heads[waiting.queue])
            elif waiting.uid not in answers:
                answers[waiting.uid] = explainer.entry(of_shape[waiting.queue, waiting.shape])
        for gang in self.waiting:
            if gang.uid in answers and gang_subject(gang.uid) not in self.snapshot.busy:
                self._wait(gang, answers[gang.uid])

    def _wait(self, gang: Gang, refusal: Refusal) -> None:
        """Write the reason down, once: an unchanged sentence is not written again."""
        if (gang.reason, gang.message) != (refusal.reason, refusal.message):
            self.actions.append(
                SaveGang(gang.moved(GangState.PENDING, refusal.reason, refusal.message, self.snapshot.now_s))
            )


def _cluster_state(fleet: Fleet, snapshot: Snapshot) -> ClusterState:
    """The machines there are and those on their way, as if no gang stood on them."""
    return build_cluster_state(snapshot, (), coming_machines(fleet, snapshot), fleet.node_pools)


def _held(snapshot: Snapshot, gang: Gang, lost: Container[str]) -> Iterable[Gang]:
    """The parts of a gang that stand; one that has lost machines is looked at as a whole."""
    stands = seated(snapshot, gang)
    return (stands,) if gang.uid in lost else parts(stands)


def _summed(gang: Gang, taken: Mapping[str, Mapping[FlavorResource, int]]) -> Mapping[FlavorResource, int]:
    """What all parts of a gang take."""
    total: Counter[FlavorResource] = Counter()
    for part in parts(gang):
        total.update(taken.get(part.uid, {}))
    return total


def _sized(gang: Gang, holder: AdmittedWorkload) -> tuple[PodSet, ...]:
    """The gang's pod sets with the pods it was admitted with; what it asks for stays with the job."""
    counts = {one.name: one.count for one in holder.given}
    return tuple(replace(pods, count=counts.get(pods.name, 0)) for pods in gang.pod_sets)


def progress(plan: PlacementPlan) -> tuple[GangState, Reason, str]:
    """How far a gang has come with a plan: state, reason and the sentence for it."""
    if plan.ready:
        machines = len({seat.slot.name for seat in plan.assignments})
        return GangState.ADMITTED, Reason.ADMITTED, f"placed on {machines} machine{'s' if machines != 1 else ''}"
    parts = [
        f"{count} x {offer.instance_type.name} ({offer.capacity_type}, {offer.zone})"
        for count, offer in ((lot.count, lot.offering.offer) for lot in plan.purchases)
    ]
    if plan.recuts:
        parts.append(f"a new MIG layout on {', '.join(recut.slot.node for recut in plan.recuts)}")
    if not parts:
        awaited = len({seat.slot.claim for seat in plan.assignments if not seat.slot.node})
        message = f"waits for {awaited} machine{'s' if awaited != 1 else ''} on the way"
        return GangState.RESERVED, Reason.BUYING, message
    if plan.purchases:
        return GangState.RESERVED, Reason.BUYING, f"buying {', '.join(parts)} at {plan.cost_usd_h:.2f} USD/h"
    return GangState.RESERVED, Reason.RECUTTING, f"waits for {', '.join(parts)}"
