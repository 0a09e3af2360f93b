"""The one decision: for every waiting gang, quota and a place and a paid-for machine, or a reason why not.

Gangs are taken one at a time, the best head of all queues first, against state that already contains what was decided
before (Kueue `pkg/scheduler/scheduler.go`, joined with provisioning). A gang gets, in this order: a place on machines
that stand idle, a re-cut, a purchase; and only where quota or machines are in others' hands, their eviction.
"""

from dataclasses import dataclass, field, replace

from fleet.actions import Action, OpenClaims, SaveClaim, SaveGang, gang_subject
from fleet.admission.compile import compile_tree, usage_of
from fleet.admission.explain import max_quota_exceeded, quota_missing, waiting_for
from fleet.admission.flavors import Assignment, Flavors
from fleet.admission.order import Waiting
from fleet.admission.preempt import Contest, Victim, victims
from fleet.admission.screen import screen
from fleet.admission.transitions import evicted
from fleet.admission.tree import FlavorResource, QuotaTree
from fleet.capacity.intent import write_claims
from fleet.capacity.provision import Need, Plan, Refusal, Supply, provide
from fleet.capacity.stock import build_board, build_supply, coming_machines, holders
from fleet.mig.layouts import cut_anew
from fleet.placement.board import Board
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Pin, PodSet, Snapshot
from model.fleet import Fleet
from model.kinds import Queue


def decide(fleet: Fleet, snapshot: Snapshot, *, may_buy: bool = True) -> list[Action]:
    """What to do for every gang that waits. Gangs and claims with an action under way are left alone."""
    if not any(gang.state is GangState.PENDING for gang in snapshot.gangs.values()):
        return []
    return Cycle.start(fleet, snapshot, may_buy=may_buy).run()


@dataclass(slots=True)
class Cycle:
    """The working state of one pass; nothing of it outlives the pass."""

    fleet: Fleet
    snapshot: Snapshot
    tree: QuotaTree
    board: Board
    supply: Supply
    flavors: Flavors
    running: dict[str, Gang]
    decided: set[str] = field(default_factory=set)
    """Gangs this pass has admitted or bought for: nothing else is decided about them in it."""
    actions: list[Action] = field(default_factory=list)

    @classmethod
    def start(cls, fleet: Fleet, snapshot: Snapshot, *, may_buy: bool = True) -> "Cycle":
        """Charge what is held to the quota tree and to the machines."""
        tree = compile_tree(fleet)
        held = holders(snapshot)
        for gang in held:
            if gang.queue in tree.queues:
                tree.charge(gang.queue, usage_of(tree, gang))
        board = build_board(snapshot, held, coming_machines(fleet, snapshot))
        supply = build_supply(fleet, snapshot, may_buy=may_buy)
        flavors = Flavors(fleet, supply.shapes, board)
        return cls(fleet, snapshot, tree, board, supply, flavors, {gang.uid: gang for gang in held})

    def run(self) -> list[Action]:
        """Consider every waiting gang once."""
        waiting = Waiting(self.fleet, self.snapshot, self.tree)
        for gang in waiting.pending():
            if gang_subject(gang.uid) in self.snapshot.busy:
                continue
            refusal = screen(self.fleet, self.snapshot, gang)
            if refusal is not None:
                self._wait(gang, refusal)
        for gang in waiting.in_order():
            if gang_subject(gang.uid) in self.snapshot.busy:
                self._keep_turn(gang, self.fleet.queues[gang.queue])
                waiting.stays(gang)
                continue
            outcome = self._consider(gang, self.fleet.queues[gang.queue])
            if outcome is not None:
                self._wait(gang, outcome)
                waiting.stays(gang)
        for gang, head in waiting.blocked():
            self._wait(gang, Refusal(Reason.BEHIND_HEAD, f"waits behind {head.name} in a StrictFIFO queue"))
        return self.actions

    def _keep_turn(self, gang: Gang, queue: Queue) -> None:
        """Nobody takes what a gang could have now, just because its last decision is still being written."""
        options = self.flavors.assignments(gang, queue, self.tree)
        for assignment in () if isinstance(options, Refusal) else options:
            plan = self._reach(gang, assignment)
            if plan is not None:
                self._hold(gang, assignment, plan)
                return

    def _consider(self, gang: Gang, queue: Queue) -> Refusal | None:
        """Admit or buy for the gang, or evict for it; the refusal when it has to wait."""
        options = self.flavors.assignments(gang, queue, self.tree)
        if isinstance(options, Refusal):
            return options
        assignments = list(options)
        refusals: list[Refusal] = []
        for assignment in assignments:
            refusal = self._admit(gang, assignment)
            if refusal is None:
                return None
            refusals.append(refusal)
        for assignment in assignments:
            waits = self._preempt(gang, queue, assignment)
            if waits is not None:
                return waits
        return refusals[0]

    def _admit(self, gang: Gang, assignment: Assignment) -> Refusal | None:
        usage = usage_of(self.tree, gang, dict(assignment))
        for cell, amount in usage.items():
            if amount > (most := self.tree.potential(gang.queue, cell)):
                return max_quota_exceeded(cell, amount, most)
        if not self.tree.fits(gang.queue, usage):
            return quota_missing(self.tree, gang, usage)
        plan = provide(self.board, self.supply, gang.uid, self._needs(gang, assignment))
        if isinstance(plan, Refusal):
            return plan
        self.tree.charge(gang.queue, usage)
        self._commit(gang, assignment, plan)
        return None

    def _needs(self, gang: Gang, assignment: Assignment) -> list[Need]:
        return [
            replace(
                self.flavors.need(pod_set, assignment[pod_set.name]),
                charged=self._charged(gang, pod_set, assignment[pod_set.name]),
            )
            for pod_set in gang.pod_sets
        ]

    def _charged(self, gang: Gang, pod_set: PodSet, flavor: str) -> bool:
        """Whether any quota counts what a pod of the set takes of the flavor."""
        cells = (FlavorResource(flavor, resource) for resource, amount in pod_set.requests.items() if amount)
        return any(self.tree.counts(gang.queue, cell) for cell in cells)

    def _commit(self, gang: Gang, assignment: Assignment, plan: Plan) -> None:
        claims = write_claims(plan, gang.uid, self.snapshot.now_s, gang=gang.uid)
        names = {f"new/{lot}/{n}": name for (lot, n), name in claims.names.items()}
        pins = tuple(
            sorted(Pin(pin.pod_set, pin.node, names.get(pin.claim, pin.claim), pin.count) for pin in plan.pins())
        )
        state, reason, message = _progress(plan)
        now = self.snapshot.now_s
        changed = gang.moved(
            state,
            reason,
            message,
            now,
            flavors=dict(assignment),
            pins=pins,
            recuts={recut.claim: recut.layout for recut in plan.recuts},
            quota_reserved_at_s=now,
            admitted_at_s=now if state is GangState.ADMITTED else 0.0,
            eviction=None,
        )
        self.running[gang.uid] = changed
        self.decided.add(gang.uid)
        for slot_name, claim_name in names.items():
            bought = self.board.slots[slot_name]
            self.board.rename(bought, f"claim/{claim_name}")
            bought.claim = claim_name
        self._share(plan)
        self.actions.append(SaveGang(changed))
        if claims.claims:
            self.actions.append(OpenClaims(claims.claims))
        for recut in plan.recuts:
            cut = cut_anew(self.snapshot.claims[recut.claim], recut.layout, recut.gpus, now)
            self.actions.append(SaveClaim(replace(cut, emptied_at_s=0.0)))

    def _share(self, plan: Plan) -> None:
        """What is left on machines bought or cut for the gang is for everybody who can wait for them."""
        for seat in plan.seats:
            if seat.slot.name.startswith(("claim/", "recut/")):
                self.board.share(seat.slot)

    def _preempt(self, gang: Gang, queue: Queue, assignment: Assignment) -> Refusal | None:
        """Wait for gangs that are leaving already, or make some leave; None when neither helps."""
        usage = usage_of(self.tree, gang, dict(assignment))
        if any(amount > self.tree.potential(gang.queue, cell) for cell, amount in usage.items()):
            return None
        leaving = [held for held in self._running() if held.state is GangState.EVICTING]
        for held in leaving:
            self._lift(held)
        plan = self._reach(gang, assignment)
        chosen: tuple[Victim, ...] = ()
        if plan is None and self._may_preempt(gang):
            contested = tuple(c for c, amount in usage.items() if amount > self.tree.available(gang.queue, c))
            contest = Contest(self.tree, gang, queue, usage, contested or tuple(usage))
            chosen = victims(
                contest,
                [held for held in self._running() if held.state is not GangState.EVICTING],
                self.snapshot.now_s,
                self._protected_s,
                self._lift,
                self._return,
                lambda: self._reach(gang, assignment) is not None,
            )
            plan = self._plan_without(gang, assignment, chosen)
        for held in leaving:
            self._return(held)
        if plan is None or not (leaving or chosen):
            return None
        self._hold(gang, assignment, plan)
        if not any(self._unsettled(victim.gang) for victim in chosen):
            for victim in chosen:
                self._evict(victim, gang)
        return waiting_for(leaving, chosen)

    def _plan_without(self, gang: Gang, assignment: Assignment, chosen: tuple[Victim, ...]) -> Plan | None:
        if not chosen:
            return None
        for victim in chosen:
            self._lift(victim.gang)
        plan = self._reach(gang, assignment)
        for victim in chosen:
            self._return(victim.gang)
        return plan

    def _reach(self, gang: Gang, assignment: Assignment) -> Plan | None:
        """The plan the gang would get now; nothing is kept of it."""
        usage = usage_of(self.tree, gang, dict(assignment))
        if not self.tree.fits(gang.queue, usage):
            return None
        mark = self.board.mark()
        plan = provide(self.board, self.supply, gang.uid, self._needs(gang, assignment))
        if isinstance(plan, Refusal):
            return None
        self.board.undo(mark)
        for lot in plan.lots:
            self.supply.headroom[lot.shape.pool.name].spend(lot.shape, -lot.count)
        return plan

    def _hold(self, gang: Gang, assignment: Assignment, plan: Plan) -> None:
        """For the rest of the pass nobody else may have what the gang waits for, nor what its victims still hold."""
        self.tree.charge(gang.queue, usage_of(self.tree, gang, dict(assignment)))
        for taken in plan.seats:
            standing = self.board.slots.get(taken.slot.name)
            if standing is not None:
                self.board.take(standing, gang.pod_set(taken.pod_set).requests, taken.count)
        for recut in plan.recuts:
            self.board.close(recut.slot.name)
        for lot in plan.lots:
            self.supply.headroom[lot.shape.pool.name].spend(lot.shape, lot.count)

    def _unsettled(self, gang: Gang) -> bool:
        """Whether an action on the gang is under way or was just asked for; who waits for it looks again then."""
        return gang.uid in self.decided or gang_subject(gang.uid) in self.snapshot.busy

    def _evict(self, victim: Victim, preemptor: Gang) -> None:
        now = self.snapshot.now_s
        message = f"makes room for {preemptor.name} (priority {preemptor.priority}, queue {preemptor.queue})"
        changed = evicted(victim.gang, victim.reason, message, now)
        self.running[changed.uid] = changed
        self.actions.append(SaveGang(changed))

    def _running(self) -> list[Gang]:
        return [self.running[uid] for uid in sorted(self.running)]

    def _may_preempt(self, gang: Gang) -> bool:
        declared = self.fleet.priority_classes.get(gang.priority_class)
        return declared is None or declared.spec.preempts

    def _protected_s(self, gang: Gang) -> float:
        queue = self.fleet.queues.get(gang.queue)
        return queue.spec.protected_run_time if queue else 0.0

    def _lift(self, gang: Gang) -> None:
        self._shift(gang, -1)
        if gang.queue in self.tree.queues:
            self.tree.release(gang.queue, usage_of(self.tree, gang))

    def _return(self, gang: Gang) -> None:
        self._shift(gang, 1)
        if gang.queue in self.tree.queues:
            self.tree.charge(gang.queue, usage_of(self.tree, gang))

    def _shift(self, gang: Gang, sign: int) -> None:
        by_claim = {slot.claim: slot for slot in self.board.slots.values() if slot.claim}
        for pin in gang.pins:
            slot = by_claim.get(pin.claim) if pin.claim else self.board.slots.get(pin.node)
            if slot is not None:
                self.board.take(slot, gang.pod_set(pin.pod_set).requests, sign * pin.count)

    def _wait(self, gang: Gang, refusal: Refusal) -> None:
        """Write the reason down, once: an unchanged sentence is not written again."""
        if (gang.reason, gang.message) != (refusal.reason, refusal.message):
            self.actions.append(
                SaveGang(gang.moved(GangState.PENDING, refusal.reason, refusal.message, self.snapshot.now_s))
            )


def _progress(plan: Plan) -> tuple[GangState, Reason, str]:
    if plan.ready:
        machines = len({seat.slot.name for seat in plan.seats})
        return GangState.ADMITTED, Reason.ADMITTED, f"placed on {machines} machine{'s' if machines != 1 else ''}"
    parts = [
        f"{lot.count} x {lot.shape.offer.instance_type.name} ({lot.shape.offer.capacity_type}, {lot.shape.offer.zone})"
        for lot in plan.lots
    ]
    if plan.recuts:
        parts.append(f"a new cut of {', '.join(recut.slot.node for recut in plan.recuts)}")
    if not parts:
        awaited = len({seat.slot.claim for seat in plan.seats if not seat.slot.node})
        message = f"waits for {awaited} machine{'s' if awaited != 1 else ''} on the way"
        return GangState.RESERVED, Reason.BUYING, message
    if plan.lots:
        return GangState.RESERVED, Reason.BUYING, f"buying {', '.join(parts)} at {plan.cost_usd_h:.2f} USD/h"
    return GangState.RESERVED, Reason.RECUTTING, f"waits for {', '.join(parts)}"
