"""The purchases of a pass, put together: gangs that buy in the same pass buy as one (`fleet.scheduling.basket`).

The machines are chosen anew for all of them. Whose pods come first on a machine owns it: its claim belongs to the
launch group of that gang, and who else is on it waits for it, as for any machine on its way.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fleet.actions import PurchaseTally
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.offerings import Offering
from fleet.optimize.purchase import GREEDY, PurchaseEffort
from fleet.placement.cluster_state import NodeAssignment, planned_slot
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.scheduling.basket import PodSetOfGang, PurchaseLine, SharedMachine, purchase_together, runner_up
from fleet.scheduling.placement_backend import ClusterBackend, PlacedGang
from model import labels

_EFFORTS = {"Optimal": PurchaseEffort(), "Greedy": GREEDY}
_SHOWN = 3
"""Gangs named in a claim's purpose."""


def buy_together(machines: ClusterBackend, names: Mapping[str, str], purchases: str) -> PurchaseTally | None:
    """Rewrite what the gangs of this pass buy where it costs less together, and say of every claim what it is for.

    `names`: uid -> name of the gangs. `purchases`: how hard to try (`FleetPolicy`). None when nothing is bought.
    """
    gangs = {uid: written for uid, written in machines.written.items() if written.needs}
    lots = [lot for written in gangs.values() for lot in written.plan.purchases]
    if not lots:
        return None
    lines = list(_lines(gangs))
    found = purchase_together(lines, lots, machines.planner.capacity, _EFFORTS[purchases])
    if found.machines and not any(_settled(gangs, line) for line in lines):
        _return(machines, gangs, lots)
        _take(machines, gangs, found.machines)
    _tell(machines, gangs, names)
    return found.tally


def _lines(gangs: Mapping[str, PlacedGang]) -> Iterator[PurchaseLine]:
    """What is bought, pod set by pod set, in order of admission."""
    bought = {claim: offering for written in gangs.values() for claim, offering in written.bought.items()}
    for uid, written in gangs.items():
        for need in written.needs:
            seats = [
                it for it in written.plan.assignments if it.pod_set == need.pod_set.name and it.slot.claim in bought
            ]
            if seats:
                offerings = {offering.key: offering for offering in (bought[it.slot.claim] for it in seats)}
                found = tuple(offering for _, offering in sorted(offerings.items()))
                zones = frozenset(it.offer.zone for it in found) if _tied_to(written, need, seats) else None
                yield PurchaseLine(
                    PodSetOfGang(uid, need.pod_set.name), need, sum(it.count for it in seats), found, zones
                )


def _tied_to(written: PlacedGang, need: Need, seats: Sequence[NodeAssignment]) -> bool:
    """Whether the zone is decided: others of the gang have a place in it already."""
    elsewhere = len(written.plan.assignments) > len(seats)
    return need.pod_set.required_topology == labels.ZONE and elsewhere


def _settled(gangs: Mapping[str, PlacedGang], line: PurchaseLine) -> bool:
    """Whether pods were placed within a topology, beside others' on what those buy: they do not change machines."""
    return line.need.pod_set.wishes and not gangs[line.member.gang].plan.purchases


def _return(machines: ClusterBackend, gangs: Mapping[str, PlacedGang], lots: Sequence[PlannedNodeClaims]) -> None:
    """Give back what was planned gang by gang; seats elsewhere stay."""
    for written in gangs.values():
        for claim in written.bought:
            machines.state.close(f"claim/{claim}")
    for lot in lots:
        machines.planner.capacity.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)


def _take(machines: ClusterBackend, gangs: Mapping[str, PlacedGang], bought: Sequence[SharedMachine]) -> None:
    """Seats and claims for what is bought instead."""
    given_up = {claim for written in gangs.values() for claim in written.bought}
    seats = {uid: [it for it in w.plan.assignments if it.slot.claim not in given_up] for uid, w in gangs.items()}
    requests = {(uid, it.pod_set.name): it.pod_set.requests for uid, w in gangs.items() for it in w.needs}
    anew: dict[str, PlacedGang] = {}
    owned: dict[str, list[SharedMachine]] = {}
    for machine in bought:
        owned.setdefault(machine.owner, []).append(machine)
    for uid, written in gangs.items():
        mine = sorted(owned.get(uid, ()), key=lambda it: it.offering.key)
        offerings = {it.offering.key: it.offering for it in mine}
        counted = Counter(it.offering.key for it in mine)
        plan = replace(
            written.plan, purchases=tuple(PlannedNodeClaims(offerings[key], count) for key, count in counted.items())
        )
        claims = write_claims(plan, uid, machines.planner.now_s, gang=uid).claims
        for claim, machine in zip(claims, mine, strict=True):  # both by lot
            slot = planned_slot(machine.offering, f"together/{claim.name}")
            slot.claim = claim.name
            machines.state.add(slot)
            for member, count in machine.pods.items():
                machines.state.take(slot, requests[member], count)
                seats[member.gang].append(NodeAssignment(member.pod_set, slot, count))
        for lot in plan.purchases:
            machines.planner.capacity.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        by_claim = {claim.name: machine.offering for claim, machine in zip(claims, mine, strict=True)}
        anew[uid] = PlacedGang(plan, claims, (), written.needs, by_claim)
    for uid, written in anew.items():
        plan = replace(written.plan, assignments=tuple(seats[uid]))
        machines.written[uid] = replace(written, plan=plan, pins=plan.pins())


def _tell(machines: ClusterBackend, gangs: Iterable[str], names: Mapping[str, str]) -> None:
    """Write into every claim what the machine is for, and what would have been the next best."""
    mine = {uid: machines.written[uid] for uid in gangs}
    needs = {PodSetOfGang(uid, it.pod_set.name): it for uid, written in mine.items() for it in written.needs}
    pods: dict[str, Counter[PodSetOfGang]] = {}
    for uid, written in mine.items():
        for seat in written.plan.assignments:
            pods.setdefault(seat.slot.claim, Counter())[PodSetOfGang(uid, seat.pod_set)] += seat.count
    seconds: dict[object, str] = {}
    for uid, written in mine.items():
        told = []
        for claim in written.claims:
            machine = SharedMachine(written.bought[claim.name], pods[claim.name])
            asked = machine.offering.key, _load(machine, needs)
            if asked not in seconds:
                seconds[asked] = _second(runner_up(machine, needs, machines.planner.capacity))
            told.append(replace(claim, purpose=_purpose(machine, names) + seconds[asked]))
        machines.written[uid] = replace(written, claims=tuple(told))


def _load(machine: SharedMachine, needs: Mapping[PodSetOfGang, Need]) -> frozenset[tuple[Hashable, int]]:
    """What stands on a machine, whoever's it is."""
    found: Counter[Hashable] = Counter()
    for member, count in machine.pods.items():
        found[needs[member].asks] += count
    return frozenset(found.items())


def _purpose(machine: SharedMachine, names: Mapping[str, str]) -> str:
    """For whom it is, most pods first."""
    ranked = sorted(machine.pods.items(), key=lambda it: (-it[1], names[it[0].gang], it[0]))
    parts = [f"{count} x {member.pod_set} of {names[member.gang]}" for member, count in ranked[:_SHOWN]]
    if len(ranked) > _SHOWN:
        parts.append(f"{sum(count for _, count in ranked[_SHOWN:])} more pods")
    return f"for {', '.join(parts)}"


def _second(other: Offering | None) -> str:
    if other is None:
        return ""
    return f"; next best {other.offer.instance_type.name} at {other.offer.price_usd_h:.2f} USD/h"
