"""Makes room by moving: which running gangs go elsewhere so that a waiting one, which has quota, finds a place.

Nothing is stopped for good: whoever leaves has a place on machines that stand, kept for it until it is back. So this
comes before anybody is evicted. Where machines can be had, it competes with buying them: what the moves cost in lost
work and restarts with what the machines cost for as long as they are needed; and both with waiting, where gangs say
that they end before a machine would have booted. A gang moves whole, or a pod of its surplus does. The cheapest in lost
work is taken; one gang is made room for at a time.

Source: KAI-Scheduler's consolidation action, which moves pods; here gangs move, under PodDisruptionBudgets and freeze
windows, and one that was evicted before stays for a while wherever it starts (`stays_until_s`).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import groupby
from typing import Final

from fleet.cost.lost_work import PAYBACK_S, devices, move_usd
from fleet.gangs.pod_budgets import pod_budget_refusal
from fleet.placement.cluster_state import StateVersion
from fleet.placement.plan import PlacementPlan
from fleet.quota.build_tree import QuotaSpecs, pod_set_assignments
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal, QuotaLedger
from fleet.quota.pending_queue import order_key
from fleet.quota.preemption import Victim
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, some_of
from fleet.scheduling.declared_ends import DeclaredEnds, boots_s, purchase_words
from fleet.scheduling.placement_backend import ClusterBackend
from fleet.scheduling.prefilter import frozen, immovable
from fleet.scheduling.queue_order import made_room_for
from fleet.snapshot import Gang, GangState, Snapshot
from fleet.snapshot.elastic_parts import whole
from model.fleet import Fleet
from model.kinds.base import format_duration

MOST_ALONE: Final = 16
"""Gangs that are tried one by one: a bound in steps, so that the same input gives the same answer."""
MOST_TOGETHER: Final = 24
"""Gangs that are taken off together before a search ends."""
MOST_TRIES: Final = 64
"""Sets of gangs that are tried in a pass."""
MOST_COMPARED: Final = 8
"""Shapes of gangs for which a purchase is compared with moves in a pass: the others buy."""
STAYS_S: Final = 600.0
STAYS_MOST_S: Final = 86_400.0
"""A gang that was evicted once stays `STAYS_S` seconds where it starts, each further time twice as long up to this."""


def stays_until_s(gang: Gang) -> float:
    """Returns until when a gang is not moved after it has started (epoch seconds): moves never go in circles."""
    if not gang.evictions:
        return gang.admitted_at_s
    return gang.admitted_at_s + min(STAYS_MOST_S, STAYS_S * 2.0 ** min(gang.evictions - 1, 20))


@dataclass(slots=True)
class RoomByMoving:
    """`RoomByMoving` finds gangs to move for one waiting gang in a pass; it leaves the ledger as it was."""

    fleet: Fleet
    snapshot: Snapshot
    specs: QuotaSpecs
    parts: Mapping[str, Gang]
    """uid -> what holds capacity: a whole gang, its core, or a pod of its surplus."""
    backend: ClusterBackend
    ledger: QuotaLedger
    ends: DeclaredEnds
    compared: dict[str, str] = field(default_factory=dict)
    """uid of a gang that could buy -> what that was compared with and what came of it, as a clause."""
    _for: str = ""
    """uid of the gang that room is made for in this pass; there is one at most."""
    _movable: dict[str, bool] = field(default_factory=dict)
    """uid of a gang -> whether it may be moved."""
    _tries: int = 0
    _free: tuple[StateVersion, dict[str, int]] | None = None
    """Version of the state -> what was free then on all open machines, by resource."""
    _rests: bool | None = None
    """Whether nobody is moved in this pass; None = not asked yet."""
    _buys: dict[Hashable, str] = field(default_factory=dict)
    """(queue, shape, assignment) of gangs that buy rather than have others moved -> why, as a clause."""
    _usd: dict[str, float] | None = None
    """uid of a holder -> what moving it costs (USD), while moves are compared with a purchase; None = they are not."""

    def room(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Victim]:
        """Returns whom to move, each with its new place, so that a workload finds one; empty where nobody helps."""
        if not self._may_ask(workload):
            return []
        found = self._search(workload, given)
        if found:
            self._for = workload.uid
        return found

    def instead_of_buying(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Victim]:
        """Returns whom to move because that costs less than what would be bought; empty where it does not.

        Gangs of one shape share the answer that they buy. A gang that waits for others to end buys nothing either:
        what it would buy is taken back at the end of the pass (`DeclaredEnds.awaited`).
        """
        if (plan := self._purchase(workload, given)) is None:
            return []
        if self.ends.ending and self.ends.leave_room(workload, given, plan):
            return []
        asked = self.backend.planner.alike(workload, given)
        if self._is_new(asked):
            found, clause = self._cheaper(workload, given, plan)
            self.compared[workload.uid] = clause
            if found:
                self._for = workload.uid
                return found
            self._buys[asked] = clause
        self.compared[workload.uid] = self._buys.get(asked, "")
        return []

    def compares(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns whether `instead_of_buying` may look for moves: it would buy, and of its shape none was compared."""
        return self._is_new(self.backend.planner.alike(workload, given)) and bool(self._purchase(workload, given))

    def note_purchase(self, workload: Workload, given: Sequence[PodSetAssignment]) -> None:
        """Notes of a gang that buys, as those of its shape do, what that was compared with, or that it had better wait.

        That is what `instead_of_buying` notes of one for which it has nothing to look for.
        """
        plan = self._purchase(workload, given)
        if plan is not None and not (self.ends.ending and self.ends.leave_room(workload, given, plan)):
            self.compared[workload.uid] = self._buys.get(self.backend.planner.alike(workload, given), "")

    def rests(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns whether it is certain that there is nothing to compare with a purchase, and nothing to tell of one.

        So it is where gangs of its shape buy as nobody can be moved, and where there is room now.
        """
        if workload.moved or not workload.buys:
            return True
        if self.ends.ending:
            return False
        clause = self._buys.get(self.backend.planner.alike(workload, given))
        if clause is None:
            return self.backend.planner.has_room(self.backend.state, workload, given) is True
        return not clause

    def _is_new(self, asked: Hashable) -> bool:
        """Returns whether what gangs of a shape would buy is still to be compared with moves; few shapes are."""
        return asked not in self._buys and len(self._buys) < MOST_COMPARED

    def _purchase(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | None:
        """Returns the plan of a workload that would buy; None where it is moved itself, or finds room as it is."""
        if workload.moved or not workload.buys:
            return None
        return self.backend.would_buy(workload, given)

    def _cheaper(
        self, workload: Workload, given: Sequence[PodSetAssignment], plan: PlacementPlan
    ) -> tuple[list[Victim], str]:
        """Returns the cheapest moves in USD if they cost less than a purchase, and the clause that tells of both."""
        if not self._may_ask(workload):
            return [], ""
        self._usd = {}
        found = self._search(workload, given)
        moves_usd = sum(self._price(it.holder) for it in found)
        self._usd = None
        if not found:
            return [], ""
        needed_s = workload.runs_s or PAYBACK_S
        bought_usd = plan.cost_usd_h * (needed_s + boots_s(self.snapshot, plan)) / 3600
        bought = f"{purchase_words(plan)} ({bought_usd:.2f} USD for {format_duration(needed_s)} and the boot)"
        names = some_of(sorted({it.holder.workload.name for it in found}))
        if moves_usd < bought_usd:
            return found, f"moved {names} at {moves_usd:.2f} USD of lost work instead of buying {bought}"
        return [], f"bought {bought} instead of moving {names} at {moves_usd:.2f} USD of lost work"

    def _may_ask(self, workload: Workload) -> bool:
        """Returns whether anybody may be moved for a workload at all, and all open machines together have room."""
        if self._for not in {"", workload.uid} or not workload.buys or self._tries > MOST_TRIES:
            return False
        return next(self._settled(), None) is not None and self._room_in_all(workload)

    def _room_in_all(self, workload: Workload) -> bool:
        """Returns whether all open machines together have room: moving makes none."""
        asked: dict[str, int] = {}
        for pods in workload.pod_sets:
            for name, amount in pods.requests.items():
                asked[name] = asked.get(name, 0) + amount * pods.count
        return all(self._free_in_all(name) >= amount for name, amount in asked.items() if amount)

    def _free_in_all(self, resource: str) -> int:
        """Returns what is free of a resource on all open machines, summed up once as long as everything stands so."""
        state = self.backend.state
        if self._free is None or self._free[0] != state.version:
            self._free = state.version, {}
        known = self._free[1]
        if resource not in known:
            free = [  # of thousands of machines: a generator takes half as long again
                amount
                for slot in state.slots.values()
                if (amount := slot.free.get(resource, 0)) > 0 and slot.node and not slot.only_for
            ]
            known[resource] = sum(free)
        return known[resource]

    def _search(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Victim]:
        on_machine = self._by_machine(workload)
        alone = {it.workload.uid: it for holders in on_machine for it in holders if self._helps_alone(workload, it)}
        for holder in nsmallest(MOST_ALONE, alone.values(), key=self._cost):
            if found := self._moved(workload, given, [holder]):
                return found
        together: list[AdmittedWorkload] = []
        for holders in on_machine:
            together += [holder for holder in holders if holder not in together and self._may_move(holder)]
            if len(together) > MOST_TOGETHER:
                return []
            if len(together) > 1 and (found := self._moved(workload, given, together)):
                return self._fewest(workload, given, together, found)
        return []

    def _fewest(
        self,
        workload: Workload,
        given: Sequence[PodSetAssignment],
        together: Sequence[AdmittedWorkload],
        found: list[Victim],
    ) -> list[Victim]:
        """Returns the moves without those that are not needed after all, the dearest left out first."""
        needed = list(together)
        for holder in sorted(together, key=self._cost, reverse=True):
            fewer = [other for other in needed if other is not holder]
            if fewer and (less := self._moved(workload, given, fewer)):
                needed, found = fewer, less
        return found

    def _moved(
        self, workload: Workload, given: Sequence[PodSetAssignment], holders: Sequence[AdmittedWorkload]
    ) -> list[Victim]:
        """Returns the moves of these holders; empty where one finds no place elsewhere, or the workload none then."""
        self._tries += 1
        if not self._free_to_go(holders):
            return []
        for holder in holders:
            self.ledger.lift(holder)
        places = self._places(self._in_turn(workload, given, holders))
        for holder in reversed(holders):
            self.ledger.put_back(holder)
        return [Victim(it, Reason.MADE_ROOM, places[it.workload.uid]) for it in holders] if places else []

    def _free_to_go(self, holders: Sequence[AdmittedWorkload]) -> bool:
        return self._tries <= MOST_TRIES and all(map(self._may_move, holders)) and self._in_budget(holders)

    def _places(self, in_turn: Iterable[tuple[Workload, Sequence[PodSetAssignment]]]) -> Mapping[str, object]:
        """Returns uid -> a place for each beside those before it; empty where one finds none."""
        held: list[tuple[Workload, object]] = []
        place: object = None
        for who, what in in_turn:
            place = self.backend.find(who, what)
            if isinstance(place, PlacementRefusal):
                break
            self.backend.hold(who, place)
            held.append((who, place))
        for who, kept in reversed(held):
            self.backend.release(who, kept)
        return {} if isinstance(place, PlacementRefusal) else {who.uid: kept for who, kept in held}

    def _in_turn(
        self, workload: Workload, given: Sequence[PodSetAssignment], holders: Sequence[AdmittedWorkload]
    ) -> Iterator[tuple[Workload, Sequence[PodSetAssignment]]]:
        """Yields who looks for a place, the waiting one first, then those that move: as they will start."""
        yield workload, given
        for holder in sorted(holders, key=lambda holder: order_key(holder.workload)):
            part = self.parts[holder.workload.uid]
            assigned = pod_set_assignments(self.specs, holder.queue.name, part)
            yield replace(holder.workload, buys=False), assigned

    def _in_budget(self, holders: Iterable[AdmittedWorkload]) -> bool:
        gangs = {uid: self.snapshot.gangs[uid] for uid in {whole(it.workload.uid) for it in holders}}
        if not self.snapshot.pod_budgets:
            return True
        leaving = {uid: it for uid, it in self.snapshot.gangs.items() if it.state is GangState.EVICTING}
        return pod_budget_refusal(self.snapshot, gangs, lambda: leaving) is None

    def _by_machine(self, workload: Workload) -> list[list[AdmittedWorkload]]:
        """Returns the settled holders of each machine that a pod would fit on without them, least lost work first."""
        standing: dict[str, list[AdmittedWorkload]] = {}
        freed: dict[str, Counter[str]] = {}
        for holder in self._settled():
            for machine, amounts in self._takes(holder):
                standing.setdefault(machine, []).append(holder)
                freed.setdefault(machine, Counter()).update(amounts)

        def cost(machine: str) -> tuple[float, int, str]:
            holders = standing[machine]
            work = sum(map(self._price, holders))
            return work, sum(devices(self.parts[holder.workload.uid]) for holder in holders), machine

        useful = [machine for machine, amounts in freed.items() if self._holds_a_pod(workload, machine, amounts)]
        return [sorted(standing[machine], key=self._cost) for machine in sorted(useful, key=cost)]

    def _helps_alone(self, workload: Workload, holder: AdmittedWorkload) -> bool:
        return any(self._holds_a_pod(workload, machine, freed) for machine, freed in self._takes(holder))

    def _takes(self, holder: AdmittedWorkload) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yields the machines that a holder stands on, and what it takes there."""
        part = self.parts[holder.workload.uid]
        for machine, pins in groupby(sorted(part.pins, key=lambda pin: pin.node), key=lambda pin: pin.node):
            taken = Counter[str]()
            for pin in pins:
                for name, amount in part.pod_set(pin.pod_set).requests.items():
                    taken[name] += amount * pin.count
            yield machine, taken

    def _holds_a_pod(self, workload: Workload, machine: str, freed: Mapping[str, int]) -> bool:
        slot = self.backend.state.slots.get(machine)
        return slot is not None and any(
            all(slot.free.get(name, 0) + freed.get(name, 0) >= amount for name, amount in pods.requests.items())
            for pods in workload.pod_sets
        )

    def _settled(self) -> Iterator[AdmittedWorkload]:
        """Yields holders that have stood since before the pass; none while somebody moves already, or it is frozen."""
        if self._rests is None:
            frozen_now = frozen(self.fleet, self.snapshot.now_s, "Disruption")
            self._rests = bool(frozen_now) or bool(made_room_for(self.snapshot))
        if not self._rests:
            standing = (self.ledger.holders.get(uid) for uid, part in self.parts.items() if part.pins)
            yield from (it for it in standing if it and not (it.leaving or it.protected or it.unsettled))

    def _may_move(self, holder: AdmittedWorkload) -> bool:
        """Returns whether a holder may be moved now; asked once each."""
        uid = whole(holder.workload.uid)
        if uid not in self._movable:
            gang = self.snapshot.gangs[uid]
            rested = self.snapshot.now_s >= stays_until_s(gang)
            self._movable[uid] = rested and not immovable(self.fleet, self.snapshot, gang)
        return self._movable[uid]

    def _price(self, holder: AdmittedWorkload) -> float:
        """Returns what moving a holder costs: in USD while it is compared with a purchase, else its lost work.

        See `lost_work_s` for how an order differs from a price.
        """
        uid, usd = holder.workload.uid, self._usd
        if usd is None:
            return holder.workload.lost_work_s
        if uid not in usd:
            usd[uid] = move_usd(self.parts[uid], self.snapshot)
        return usd[uid]

    def _cost(self, holder: AdmittedWorkload) -> tuple[float, int, float, str]:
        workload = holder.workload
        return self._price(holder), workload.priority, -holder.reserved_at_s, workload.uid
