"""Decides for every waiting gang: quota, a place and a paid-for machine together, or a refusal that says why not.

The quota engine sweeps through all queues and asks the placement backend for a place (`ClusterBackend`), so that a gang
gets flavors and a place together: on idle machines, on machines whose GPUs are partitioned anew, or on machines bought
for it. Only where others hold the quota or the machines, others are evicted. What the pass decides becomes actions
here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from fleet.actions import Action, OpenClaims, PurchaseTally, SaveClaim, SaveGang, gang_subject
from fleet.fence import Decided, concerning
from fleet.fence import together as decided_together
from fleet.gangs.admission_checks import open_checks
from fleet.gangs.elastic import dismissed, growing, grown, joining
from fleet.gangs.replacement import pods_to_replace, refilled
from fleet.gangs.transitions import evicted, missing_words, progress
from fleet.nodeclaims.drift import drifted_claims
from fleet.offerings.offerings import work_out_offerings
from fleet.placement.carried_state import CarriedState, EmptyMachines
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity
from fleet.quota.admission_cycle import CycleResult
from fleet.quota.admission_fair_sharing import usage_ledger
from fleet.quota.build_tree import QuotaSpecs, pod_set_assignments, usage_of_all_parts, usages
from fleet.quota.entries import CycleEntry
from fleet.quota.ledger import AdmittedWorkload, QuotaLedger, SecondPassWorkload
from fleet.quota.namespace_room import NamespaceRoom
from fleet.quota.preemption import Victim
from fleet.quota.queue_binding import within_guarantee
from fleet.quota.scheduler import SETS_ASIDE, AdmissionScheduler
from fleet.quota.specs import FlavorResource
from fleet.quota.workload import Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.again import nothing_to_do, remember_nothing_to_do
from fleet.scheduling.carried_ledger import CarriedLedger, held_by, standing_parts
from fleet.scheduling.declared_ends import DeclaredEnds
from fleet.scheduling.gang_planner import GangPlanner
from fleet.scheduling.moves import RoomByMoving
from fleet.scheduling.never_fits import BEFORE_MACHINES, foremost, never_fits
from fleet.scheduling.ordinary_pods import OrdinaryPods, forgotten, lacking
from fleet.scheduling.placement_backend import ClusterBackend, PlacedGang
from fleet.scheduling.prefilter import prefilter, takes_no_more, uncut
from fleet.scheduling.queue_order import (
    batching_refusal,
    keeps_turn,
    made_room_for,
    makes_room,
    making_room,
    open_batch,
    pending,
    pending_in_order,
    soon_free,
)
from fleet.scheduling.sentences import Explainer
from fleet.scheduling.workloads import Workloads
from fleet.snapshot import Gang, GangState, PodSet, Snapshot
from fleet.snapshot.elastic_parts import together, whole
from model.fleet import Fleet


def decide(fleet: Fleet, snapshot: Snapshot, *, may_buy: bool = True) -> list[Decided]:
    """Returns the actions for every gang that waits. Gangs and claims with an action under way are left alone."""
    return decided_together(snapshot, lambda world: _decided(fleet, world, may_buy=may_buy))


def _decided(fleet: Fleet, snapshot: Snapshot, *, may_buy: bool) -> list[Action]:
    waits = pending(snapshot) or lacking(fleet, snapshot)
    if not waits and not growing(snapshot) and not pods_to_replace(fleet, snapshot):
        work_out_offerings(fleet, snapshot)
        return list(forgotten(snapshot))
    if may_buy and nothing_to_do(fleet, snapshot) and not pods_to_replace(fleet, snapshot):
        return []
    machines, quota = CarriedState.taken(fleet, snapshot), CarriedLedger.taken(fleet, snapshot)
    started = AdmissionPass.start(fleet, snapshot, machines, quota, may_buy=may_buy)
    actions = started.run()
    machines.hand_on(snapshot)
    started.empty.hand_on()
    if started.stand:
        quota.hand_on(snapshot)
    if may_buy and not actions:
        remember_nothing_to_do(fleet, snapshot)
    return actions


@dataclass(slots=True)
class AdmissionPass:
    """An `AdmissionPass` is the working state of one pass; nothing of it outlives the pass."""

    fleet: Fleet
    snapshot: Snapshot
    specs: QuotaSpecs
    backend: ClusterBackend
    scheduler: AdmissionScheduler
    mover: RoomByMoving
    workloads: Workloads
    waiting: list[Gang]
    """All pending gangs, in the order of their queues."""
    ordinary: OrdinaryPods
    """Those that belong to no gang."""
    empty: EmptyMachines
    parts: Mapping[str, Gang] = field(default_factory=dict)
    """uid -> what holds capacity: a whole gang, the core of an elastic one, or a single pod beyond the core."""
    stand: bool = False
    """Whether all of them have their places on the machines already."""
    changed: dict[str, Gang] = field(default_factory=dict)
    """uid -> gang that holds capacity and was changed by this pass, as it is to be saved."""
    actions: list[Action] = field(default_factory=list)
    tally: PurchaseTally | None = None
    """Cost of all that the pass buys, until the first `OpenClaims` has taken it along."""
    still_leaving: tuple[Gang, ...] = ()
    """Gangs that leave their places to others and have not left yet: all come back together, after the gang that they
    left for."""

    @classmethod
    def start(
        cls,
        fleet: Fleet,
        snapshot: Snapshot,
        machines: CarriedState | None = None,
        quota: CarriedLedger | None = None,
        *,
        may_buy: bool = True,
    ) -> "AdmissionPass":
        """Begins a pass: charges what gangs hold to the quota tree and takes their places on the machines.

        `machines`, `quota`: those of the pass before, which are brought up to date; None = they are set up for this
        pass alone.
        """
        # With somebody set aside, gangs are put one by one: the machines of those who cannot be charged are withheld.
        stand = not snapshot.set_aside
        if quota is None or not stand:
            quota = CarriedLedger.empty(fleet, snapshot)
        specs, tree = quota.specs, quota.tree
        lost = pods_to_replace(fleet, snapshot)
        held = standing_parts(snapshot, lost)
        machines = CarriedState.empty(fleet, snapshot) if machines is None else machines
        drifted = drifted_claims(fleet, snapshot)
        machines.update(snapshot, held if stand else {}, drifted)
        empty = EmptyMachines(fleet, snapshot, drifted)
        state = machines.state
        capacity = build_capacity(fleet, snapshot, may_buy=may_buy)
        flavors = FleetFlavors(fleet, capacity.offerings, state, machines.offered)
        planner = GangPlanner(specs.queues, tree, capacity, flavors, snapshot.now_s)
        backend = ClusterBackend(planner, state, empty, held, machines.by_claim, lost)
        ledger = QuotaLedger(tree, backend)
        scheduler = AdmissionScheduler(ledger, specs.queues, flavors.specs(), specs.rules, snapshot.now_s)
        if (usage := usage_ledger(fleet, snapshot)) is not None:
            scheduler.usage_ledger, scheduler.local_usage = usage, usage.values()
        waiting = [
            gang for gang in pending_in_order(fleet, snapshot) if gang_subject(gang.uid) not in snapshot.set_aside
        ]
        still_leaving = making_room(snapshot)
        left_for = frozenset(gang.eviction.room_for for gang in still_leaving if gang.eviction is not None)
        workloads = Workloads(fleet, snapshot, made_room_for(snapshot), left_for)
        ends = DeclaredEnds(snapshot, backend, ledger)
        scheduler.mover = mover = RoomByMoving(fleet, snapshot, specs, held, backend, ledger, ends)
        if stand:
            quota.settle(ledger, workloads, held, lost)
        pods = OrdinaryPods.start(fleet, snapshot, backend)
        started = cls(fleet, snapshot, specs, backend, scheduler, mover, workloads, waiting, pods, empty, held, stand)
        started.still_leaving = still_leaving
        if not stand:
            started._charge_one_by_one()
        if snapshot.namespace_quotas.by_namespace:
            backend.namespaces = NamespaceRoom.of(snapshot)
        return started

    def _charge_one_by_one(self) -> None:
        """Charges what gangs hold and takes their places; somebody is set aside, whose machines may be withheld."""
        taken, lost = usages(self.fleet, self.snapshot), self.backend.lost_pods
        part: Gang
        with concerning(lambda: gang_subject(whole(part.uid))):
            for part in self.parts.values():
                self._charge_or_withhold(
                    part, usage_of_all_parts(part, taken) if part.uid in lost else taken.get(part.uid, {})
                )

    def _charge_or_withhold(self, gang: Gang, usage: Mapping[FlavorResource, int]) -> None:
        """Charges what a gang holds; if that raises for a gang set aside, closes its machines to all others."""
        if gang_subject(whole(gang.uid)) not in self.snapshot.set_aside:
            self._charge(gang, usage)
            return
        try:
            self._charge(gang, usage)
        except Exception:  # noqa: BLE001  it is set aside already, its condition tells why
            self.backend.withhold(gang.pins)

    def _charge(self, gang: Gang, usage: Mapping[FlavorResource, int]) -> None:
        """Charges what a gang holds to its queue's quota and takes its places."""
        binding = self.workloads.binding(gang)
        if binding is None:  # its queue is no longer declared: it holds machines, and no quota
            self.backend.shift(gang.pins, gang.pod_sets, 1)
            return
        holder = held_by(self.workloads, self.backend.planner.tree, gang, binding, usage)
        if gang.uid in self.backend.lost_pods:
            holder.given = pod_set_assignments(self.specs, binding.name, gang)
        self.scheduler.settle(holder)

    def run(self) -> list[Action]:
        """Replaces what running gangs have lost, then considers every waiting gang once. Returns the actions."""
        self._replace()
        self.ordinary.nominate()
        self._submit()
        result = self.scheduler.sweep()
        self.ordinary.buy()
        for uid in (later := self.backend.awaits_writes()):
            del self.backend.placed[uid]  # they keep what they say; the next pass finds their machines written
        postponed = self._postpone_purchases()
        self._buy_together()
        admitted = [it for it in result.admitted if it.workload.uid not in later]
        with concerning(lambda: gang_subject(whole(holder.workload.uid))):
            for holder in admitted:
                gang = self.snapshot.gangs[whole(holder.workload.uid)]
                if gang.uid in postponed:
                    self._wait(gang, postponed[gang.uid])
                elif gang.uid == holder.workload.uid:
                    self._commit(gang, holder)
                else:
                    self._admit_surplus(gang, holder)
        self.actions += [action for placed in self.ordinary.claims() for action in self._prepare(placed)]
        self.actions += self.ordinary.news()
        for victim, preemptor in result.evictions:
            with concerning(gang_subject(whole(victim.holder.workload.uid))):
                self._evict(victim, preemptor)
        self.actions += [SaveGang(gang) for gang in self.changed.values()]
        self._explain(result)
        return self.actions

    def _postpone_purchases(self) -> Mapping[str, Refusal]:
        """Takes back purchases that may not be needed in a moment; returns by uid why gangs wait therefore.

        These are single pods of an open batch, and gangs for which pods or gangs that are ending leave room. Nothing is
        taken back where another gang has pods on one of the machines: then all buy at once.
        """
        placed = self.backend.placed
        buying = [gang for gang in self.waiting if gang.uid in placed and placed[gang.uid].bought]
        awaited = {
            gang.uid: self.mover.ends.awaited[gang.uid] for gang in buying if gang.uid in self.mover.ends.awaited
        }
        ending = {**soon_free(self.snapshot, self.backend.state, buying), **awaited}
        batched = open_batch(self.waiting, self.snapshot.now_s) | ending.keys()
        batched_claims = {claim for uid in batched & placed.keys() for claim in placed[uid].bought}
        if not batched_claims:
            return {}
        beside = frozenset(uid for uid, it in placed.items() if any(pin.claim in batched_claims for pin in it.pins))
        if not beside <= batched:
            return {}
        for uid in beside:
            del placed[uid]
        return {uid: ending.get(uid, batching_refusal()) for uid in beside}

    def _buy_together(self) -> None:
        """Replaces the purchases of the pass by one for all gangs, where that costs less."""
        if not any(placed.bought for placed in self.backend.placed.values()):
            return
        from fleet.scheduling.joint_purchase import buy_together  # imports numpy, which most passes do not need

        ours, gangs = self.ordinary.names(), self.snapshot.gangs
        names = {uid: ours[uid] if uid in ours else gangs[whole(uid)].name for uid in self.backend.placed}
        self.tally = buy_together(self.backend, names, self.fleet.policy.spec.purchases, self.ordinary.apart)

    def _replace(self) -> None:
        """Finds other places for lost pods of running gangs, before all that waits and without evictions.

        Corresponds to Kueue's second pass. A gang that finds no other place is evicted at once.
        """
        holders = [self.scheduler.ledger.holders[uid] for uid in sorted(self.backend.lost_pods)]
        if not holders:
            return
        result = self.scheduler.decide((), [SecondPassWorkload(holder, lost=True) for holder in holders])
        for holder in result.placed:
            self._commit_replacement(holder)
        for holder in result.lost:
            self._evict_without_replacement(holder)

    def _commit_replacement(self, holder: AdmittedWorkload) -> None:
        """Saves a gang with the places that replace its lost ones."""
        gang = self.snapshot.gangs[holder.workload.uid]
        lost_pods, placed = self.backend.lost_pods[gang.uid], self.backend.placed[gang.uid]
        if placed.plan.busy:
            return
        pins = together((*(pin for pin in gang.pins if lost_pods.keeps(pin)), *placed.pins))
        self.actions.append(SaveGang(refilled(gang, lost_pods, placed.plan, pins, self.snapshot.now_s)))
        self.actions += self._prepare(placed)
        holder.unsettled = True

    def _evict_without_replacement(self, holder: AdmittedWorkload) -> None:
        """Evicts a gang whose lost pods find no place; one that only wanted a better place stays as it is."""
        gang, uid = self.snapshot.gangs[holder.workload.uid], holder.workload.uid
        lost_pods = self.backend.lost_pods[uid]
        if lost_pods.idle_only:
            return
        message = f"{lost_pods.message}, and there is no replacement: {self.backend.refused[uid].message}"
        job = self.snapshot.jobs.get(uid)
        self.actions.append(SaveGang(evicted(gang, job, lost_pods.reason, message, self.snapshot.now_s)))
        self.scheduler.ledger.evict(holder)

    def _evict(self, victim: Victim, preemptor: Workload) -> None:
        """Evicts a victim: a whole gang, or only the pods beyond the core of an elastic one."""
        part, now = self.parts[victim.holder.workload.uid], self.snapshot.now_s
        gang = self.changed.get(whole(part.uid), self.snapshot.gangs[whole(part.uid)])
        if gang.state is GangState.EVICTING:
            return
        message = f"makes room for {preemptor.name} (priority {preemptor.priority}, queue {preemptor.queue})"
        if victim.destination is not None:
            message += " and starts again elsewhere, where room is kept for it"
            message += _clause(self.mover.compared.get(preemptor.uid, ""))
        if part.uid == gang.uid:
            job, room_for = self.snapshot.jobs.get(gang.uid), preemptor.uid if victim.destination is not None else ""
            self.changed[gang.uid] = evicted(gang, job, victim.reason, message, now, room_for=room_for)
        elif not part.leaving:
            self.changed[gang.uid] = dismissed(gang, part.pins, f"pods beyond its minimum leave: it {message}", now)

    def _submit(self) -> None:
        """Puts the waiting gangs and those that may grow into their queues.

        One with an action under way keeps its turn there.
        """
        with concerning(lambda: gang_subject(gang.uid)):
            for gang in self.waiting:
                self._submit_one(gang)
        for gang in self.still_leaving:  # they keep their turn, and by that the places they come back to
            if (binding := self.workloads.binding(gang)) is not None:
                self.scheduler.submit(replace(self.workloads.of(gang, binding), busy=True, overdue=True, moved=True))
        for gang in growing(self.snapshot):
            if gang_subject(gang.uid) not in self.snapshot.set_aside:
                with concerning(gang_subject(gang.uid)):
                    self._submit_surplus(gang)

    def _submit_one(self, gang: Gang) -> None:
        """Puts a waiting gang into its queue, or saves the refusal of the first rule that keeps it out."""
        busy, binding = gang_subject(gang.uid) in self.snapshot.busy, self.workloads.binding(gang)
        refusal = prefilter(self.fleet, self.snapshot, gang, binding) if not busy else None
        if refusal is not None:
            self._wait(gang, refusal)
        elif binding is not None:
            waits = busy or (makes_room(gang) and bool(self.still_leaving))
            workload = self.workloads.waiting(gang, binding)
            self.scheduler.submit(replace(workload, busy=True) if waits else workload)
            if not waits:
                self.backend.planner.expect(workload)

    def _submit_surplus(self, gang: Gang) -> None:
        """Submits the further pods that an elastic gang may have, each as a workload of its own."""
        binding = self.workloads.binding(gang)
        busy = gang_subject(gang.uid) in self.snapshot.busy or gang.uid in self.backend.lost_pods
        if binding and not busy and gang.active and takes_no_more(self.snapshot, binding) is None:
            for more in joining(self.snapshot, gang, binding):
                self.scheduler.submit(replace(more, non_preemptible=within_guarantee(self.fleet, gang)))

    def _admit_surplus(self, gang: Gang, holder: AdmittedWorkload) -> None:
        """Adds admitted pods beyond the core to their gang: some of one set, or a whole sub-group."""
        gang, placed = self.changed.get(gang.uid, gang), self.backend.placed[holder.workload.uid]
        for given in holder.given:
            flavors = self.backend.planner.flavors_of(holder.workload, given)
            pins = [pin for pin in placed.pins if pin.pod_set == given.name]
            gang = grown(gang, self.snapshot.gangs[gang.uid], given.name, pins, flavors, self.snapshot.now_s)
        self.changed[gang.uid] = gang

    def _commit(self, gang: Gang, holder: AdmittedWorkload) -> None:
        """Saves an admitted gang with its flavors and places, and the claims it buys."""
        placed, now = self.backend.placed[gang.uid], self.snapshot.now_s
        plan = placed.plan
        state, reason, message = progress(plan, self.snapshot.claims)
        message += missing_words(gang, sum([it.count for it in holder.given]))
        message += _clause(self.mover.compared.get(gang.uid, ""))
        flavors = {one.name: self.backend.planner.flavors_of(holder.workload, one) for one in holder.given}
        if state is GangState.ADMITTED and (checks := open_checks(self.fleet, gang, flavors)):
            state, reason, message = GangState.RESERVED, Reason.WAITING_FOR_CHECKS, checks
        changed = gang.moved(
            state,
            reason,
            message,
            now,
            pod_sets=_sized(gang, holder),
            flavors=flavors,
            pins=placed.pins,
            recuts={recut.claim: recut.layout for recut in plan.recuts},
            quota_reserved_at_s=now,
            admitted_at_s=now if state is GangState.ADMITTED else 0.0,
            eviction=None,
        )
        self.actions.append(SaveGang(changed))
        self.actions += self._prepare(placed)

    def _prepare(self, placed: PlacedGang) -> Iterator[Action]:
        """Yields the actions that ready machines for a gang: claims to open, claims whose MIG layout changes."""
        if placed.bought:
            yield OpenClaims(placed.claims, self.tally)
            self.tally = None
        for recut in placed.plan.recuts:
            cut = recut.of(self.snapshot.claims[recut.claim], self.snapshot.now_s)
            yield SaveClaim(replace(cut, emptied_at_s=0.0))

    def _explain(self, result: CycleResult) -> None:
        """Saves for every gang that still waits why it does."""
        explainer = Explainer(self.fleet, self.snapshot, self.scheduler)
        answers = {entry.workload.uid: explainer.entry(entry) for entry in result.waiting}
        heads = {entry.queue.name: entry.workload for entry in result.waiting if entry.queue.strict}
        # Those set aside were so for the entry of their shape that found nothing, not for one that somebody leaves for.
        of_shape: dict[object, CycleEntry] = {}
        for entry in sorted(result.waiting, key=lambda entry: entry.outcome not in SETS_ASIDE):
            of_shape.setdefault((entry.queue.name, entry.workload.shape), entry)
        left = list(self.scheduler.still_waiting())
        for waiting in left:
            if waiting.uid not in answers and waiting.queue in heads:
                answers[waiting.uid] = explainer.behind(heads[waiting.queue])
            elif waiting.uid not in answers:
                answers[waiting.uid] = explainer.entry(of_shape[waiting.queue, waiting.shape])
        shapes = {it.uid: (it.queue, it.shape) for it in (*(e.workload for e in result.waiting), *left)}
        never: dict[object, Refusal | None] = {}
        for gang in self.waiting:
            if gang.uid in answers and gang_subject(gang.uid) not in self.snapshot.busy:
                answer = self._with_clause(gang, answers[gang.uid])
                if answer.reason in BEFORE_MACHINES:  # what no machine could ever hold is said first
                    shape = shapes[gang.uid]
                    if shape not in never:
                        never[shape] = never_fits(self.fleet, self.snapshot, gang, self.backend.planner.capacity)
                    answer = foremost(answer, never[shape])
                self._wait(gang, uncut(self.snapshot, gang) or answer)

    def _with_clause(self, gang: Gang, refusal: Refusal) -> Refusal:
        """Returns the refusal with what moving others was compared with, for a gang that waits for them to leave."""
        if refusal.reason is not Reason.WAITING_FOR_PREEMPTED:
            return refusal
        return replace(refusal, message=refusal.message + _clause(self.mover.compared.get(gang.uid, "")))

    def _wait(self, gang: Gang, refusal: Refusal) -> None:
        """Saves a refusal, unless the gang says the same already."""
        says = gang.reason == refusal.reason and f"{gang.message}; ".startswith(f"{refusal.message}; ")
        if not says and not keeps_turn(gang, refusal):
            told = gang.moved(GangState.PENDING, refusal.reason, refusal.message, self.snapshot.now_s)
            self.actions.append(SaveGang(told))


def _clause(words: str) -> str:
    return f"; {words}" if words else ""


def _sized(gang: Gang, holder: AdmittedWorkload) -> tuple[PodSet, ...]:
    """Returns the gang's pod sets with the counts it was admitted with; what it asks for stays with the job."""
    counts = {one.name: one.count for one in holder.given}
    pairs = ((pods, counts.get(pods.name, 0)) for pods in gang.pod_sets)
    sized = tuple([pods if pods.count == count else replace(pods, count=count) for pods, count in pairs])
    return sized if gang.choice is None else tuple([replace(pods, core=pods.count) for pods in sized])
