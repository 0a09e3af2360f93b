"""Buys once for all gangs of a pass instead of gang by gang (`fleet.scheduling.basket` chooses the machines).

A machine is owned by the first admitted gang with pods on it: its claim belongs to that gang's launch group, and other
gangs with pods on it wait for it as for any machine that is being launched.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from fleet.actions import PurchaseTally
from fleet.nodeclaims.launch import WrittenClaims
from fleet.offerings.offerings import Offering
from fleet.optimize.purchase import GREEDY, PurchaseEffort
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS, NodeAssignment, NodeSlot, lacks, planned_slot
from fleet.placement.machine_caps import DomainLabel, MachineCaps, domains_on
from fleet.placement.plan import Need, PlacementPlan, PlannedNodeClaims
from fleet.placement.volume_filter import attaches
from fleet.scheduling.basket import (
    PodSetOfGang,
    PurchaseLine,
    SharedMachine,
    purchase_together,
    purchase_unplanned,
)
from fleet.scheduling.catalog import Tier, tier_of
from fleet.scheduling.placement_backend import ClusterBackend, PlacedGang
from fleet.scheduling.pods_by_zone import Shares
from fleet.snapshot import OfferingKey
from fleet.snapshot.affinity import admits
from model import labels
from model.plain_text import counted
from model.pools import capacity_rank

_EFFORTS = {"Optimal": PurchaseEffort(), "Greedy": GREEDY}
_SHOWN = 3
"""Pod sets that a claim's purpose lists by name."""


class BoughtApart(NamedTuple):
    """`BoughtApart` is what was bought for ordinary pods together, before what is bought for all others."""

    uids: frozenset[str]
    tally: PurchaseTally


def buy_apart(machines: ClusterBackend, shares: Shares, caps: MachineCaps, purchases: str) -> BoughtApart | None:
    """Buys for ordinary pods whose domains are settled; None, and nothing is bought, where some find no machine."""
    gangs = {
        uid: PlacedGang(PlacementPlan(), WrittenClaims(), (need,), {}, ordinary=True)
        for uid, (need, _) in shares.items()
    }
    lines = list(_lines_apart(shares, caps))
    alone_usd_h = sum(share.usd_h for _, mine in shares.values() for share in mine)
    others = any(placed.bought for placed in machines.placed.values())  # then all is bought anew with theirs
    effort = _EFFORTS["Greedy" if others else purchases]
    found = purchase_unplanned(lines, alone_usd_h, machines.planner.capacity, effort, caps.capacity)
    if found is None or not _all_attached(machines, found.machines, lines):
        return None
    _commit(machines, gangs, found.machines)
    _stand(machines, gangs)
    return BoughtApart(frozenset(gangs), found.tally)


def _lines_apart(shares: Shares, caps: MachineCaps) -> Iterator[PurchaseLine]:
    """Yields a line for the pods of each class in each of their domains."""
    for uid, (need, mine) in shares.items():
        member, takes = PodSetOfGang(uid, need.pod_set.name), caps.taken(need.pod_set)
        for it in mine:
            yield PurchaseLine(member, need, it.pods, (it.offering,), it.domains, takes, able=it.able)


def buy_together(
    machines: ClusterBackend, names: Mapping[str, str], purchases: str, known: BoughtApart | None = None
) -> PurchaseTally | None:
    """Replaces what the gangs of this pass buy where it costs less together, and writes each claim's purpose.

    `names`: uid -> name of the gangs. `purchases`: `Optimal` or `Greedy` (`FleetPolicy`). None when nothing is bought.
    Where only what is `known` is bought, that stays.
    """
    if known is not None and known.uids.issuperset(uid for uid, placed in machines.placed.items() if placed.bought):
        _write_purposes(machines, [uid for uid, placed in machines.placed.items() if placed.needs], names)
        return known.tally
    needs = [need for placed in machines.placed.values() for need in placed.needs]
    picky = {it.pod_set.constraints.devices for it in needs if not machines.planner.capacity.claims_by_amounts(it)}
    caps = MachineCaps.of(machines.state.neighbours, (need.pod_set for need in needs), picky=picky)
    gangs = _exchangeable(machines.placed, caps)
    planned_claims = list(chain.from_iterable(placed.plan.purchases for placed in gangs.values()))
    if not planned_claims:
        return None
    lines = _purchase_lines(gangs, caps)
    effort = _EFFORTS[purchases]
    found = purchase_together(lines, planned_claims, machines.planner.capacity, effort, caps.capacity)
    kept = any(_placed_by_topology(gangs, line) for line in lines) or not _all_attached(machines, found.machines, lines)
    if found.machines and not kept:
        machines.planner.capacity.give_back(planned_claims)
        _commit(machines, gangs, found.machines)  # the cluster state stays as it is: all have their places
    _write_purposes(machines, gangs, names)
    return found.tally


def _exchangeable(placed: Mapping[str, PlacedGang], caps: MachineCaps) -> dict[str, PlacedGang]:
    """Returns the gangs whose machines may be exchanged, by uid, in order of admission.

    Others stay where they are planned, and so does whoever owns a machine on which they are.
    """
    owners = {claim: uid for uid, it in placed.items() for claim in it.bought}
    staying = list(_staying(placed, caps))
    known = set(staying)
    while staying:
        on = {it.slot.claim for it in placed[staying.pop()].plan.assignments}
        more = {owners[claim] for claim in on & owners.keys()} - known
        known |= more
        staying += sorted(more)
    return {uid: it for uid, it in placed.items() if uid not in known}


def _staying(placed: Mapping[str, PlacedGang], caps: MachineCaps) -> Iterator[str]:
    """Yields the gangs that no programme knows all about: also those of several sets that share a host with others."""
    groups = {uid: found for uid, it in placed.items() if caps.some_gather and (found := _gathered(it, caps))}
    sharing = Counter(chain.from_iterable(groups.values()))
    shared = {group for group, gangs in sharing.items() if gangs > 1}
    for uid, it in placed.items():
        torn = len(it.needs) > 1 and not shared.isdisjoint(groups.get(uid, ()))
        if torn or not it.needs or any(caps.stays(need.pod_set) or _by_nvlink(need) for need in it.needs):
            yield uid


def _gathered(placed: PlacedGang, caps: MachineCaps) -> set[Hashable]:
    return {group for need in placed.needs if (group := caps.gathers(need.pod_set)) is not None}


def _by_nvlink(need: Need) -> bool:
    pods = need.pod_set
    return bool(pods.required_topology or pods.slices) and labels.GPU_CLIQUE in {
        pods.required_topology,
        *(it.level for it in pods.slices),
    }


def _purchase_lines(gangs: Mapping[str, PlacedGang], caps: MachineCaps) -> list[PurchaseLine]:
    """Returns the pods that are bought for, in order of admission.

    They are a line for each pod set and each of its domains. Lines that have to share a machine are beside the first.
    """
    bought = {claim: offering for placed in gangs.values() for claim, offering in placed.bought.items()}
    found: list[PurchaseLine] = []
    gathered: dict[Hashable, int] = {}
    for uid, placed in gangs.items():
        kept = _kept_by_all(placed, caps, bought)
        for need in placed.needs:
            group = caps.gathers(need.pod_set)
            for line in _lines_of(PodSetOfGang(uid, need.pod_set.name), placed, need, bought, caps, kept):
                _add(found, line, len(found) if group is None else gathered.setdefault(group, len(found)))
    return found


def _add(lines: list[PurchaseLine], line: PurchaseLine, number: int) -> None:
    """Adds a line, beside the one of this number if there is one."""
    if number < len(lines):
        lines[number] = replace(lines[number], beside=(*lines[number].beside, line))
    else:
        lines.append(line)


def _lines_of(
    member: PodSetOfGang,
    placed: PlacedGang,
    need: Need,
    bought: Mapping[str, Offering],
    caps: MachineCaps,
    kept: frozenset[str],
) -> Iterator[PurchaseLine]:
    """Yields the lines of a pod set: its pods on machines of this pass, by the domains that they keep to."""
    own = [it for it in placed.plan.assignments if it.pod_set == member.pod_set and it.slot.claim in bought]
    gathers = caps.gathers(need.pod_set) is not None
    for domains, assignments in _by_domains(kept.union(caps.keys(need.pod_set)), own).items():
        count, takes = sum([it.count for it in assignments]), caps.taken(need.pod_set)
        yield PurchaseLine(member, need, count, _offerings(assignments, bought), domains, takes, gathers=gathers)


def _offerings(assignments: Iterable[NodeAssignment], bought: Mapping[str, Offering]) -> tuple[Offering, ...]:
    found = [bought[it.slot.claim] for it in assignments]
    if len(found) == 1:
        return tuple(found)
    return tuple(offering for _, offering in sorted({it.key: it for it in found}.items()))


def _kept_by_all(placed: PlacedGang, caps: MachineCaps, bought: Container[str]) -> frozenset[str]:
    """Returns the labels in whose domains all pods of a gang stay, whatever is bought for them.

    Where some of them stay in domains, none leaves its zone and its GPU model. Nor does any leave the zone that pods
    have to share in which others have a place already.
    """
    if placed.ordinary:
        return frozenset()
    for need in placed.needs:
        if caps.keys(need.pod_set):
            return frozenset({labels.ZONE, labels.INSTANCE_GPU_NAME})
    return frozenset({labels.ZONE}) if _zone_is_decided(placed, bought) else frozenset()


def _zone_is_decided(placed: PlacedGang, bought: Container[str]) -> bool:
    bound = labels.ZONE in [need.pod_set.required_topology for need in placed.needs]
    return bound and any(it.slot.claim not in bought for it in placed.plan.assignments)


def _by_domains(
    keys: frozenset[str], assignments: Sequence[NodeAssignment]
) -> dict[frozenset[DomainLabel], list[NodeAssignment]]:
    if not keys and assignments:
        return {frozenset(): list(assignments)}
    found: dict[frozenset[DomainLabel], list[NodeAssignment]] = {}
    for it in assignments:
        found.setdefault(frozenset(domains_on(it.slot.labels, keys)), []).append(it)
    return found


def _all_attached(machines: ClusterBackend, chosen: Iterable[SharedMachine], lines: Sequence[PurchaseLine]) -> bool:
    """Returns whether each machine attaches the volumes of all its pods, which the programme does not know of."""
    sets = {it.member: it.need.pod_set for line in lines for it in (line, *line.beside)}
    if not any(it.constraints.mounts for it in sets.values()):
        return True
    neighbours = machines.state.neighbours
    held = (
        (it.offering.offer.instance_type, [(sets[pods], count) for pods, count in it.pods.items()]) for it in chosen
    )
    return all(attaches(machine, neighbours, pods) for machine, pods in held)


def _placed_by_topology(gangs: Mapping[str, PlacedGang], line: PurchaseLine) -> bool:
    """Returns whether pods were placed within a topology domain on machines that others buy: those may not change."""
    return line.need.pod_set.wishes and not gangs[line.member.gang].plan.purchases


def _stand(machines: ClusterBackend, gangs: Iterable[str]) -> None:
    """Adds the machines of gangs all of whose pods are bought for, with these: others look for places after them."""
    slots: dict[str, NodeSlot] = {}
    for uid in gangs:
        placed = machines.placed[uid]
        pod_sets = {need.pod_set.name: need.pod_set for need in placed.needs}
        for it in placed.plan.assignments:
            if it.slot.claim not in slots:
                slots[it.slot.claim] = it.slot
                machines.state.add(it.slot)
            machines.state.place(it.slot, pod_sets[it.pod_set], it.count)


def _commit(machines: ClusterBackend, gangs: Mapping[str, PlacedGang], bought: Sequence[SharedMachine]) -> None:
    """Takes the chosen machines: opens their claims, deducts them from the limits, assigns the pods.

    Assignments to other machines stay.
    """
    order = {uid: number for number, uid in enumerate(gangs)}
    given_up = {claim for placed in gangs.values() for claim in placed.bought}
    assignments = {uid: [it for it in w.plan.assignments if it.slot.claim not in given_up] for uid, w in gangs.items()}
    written: dict[str, tuple[tuple[PlannedNodeClaims, ...], WrittenClaims, dict[str, Offering]]] = {}
    owned: dict[str, list[SharedMachine]] = {}
    for machine in bought:
        owned.setdefault(machine.owner, []).append(machine)
    for uid, mine in sorted(owned.items(), key=lambda it: order[it[0]]):
        if len(mine) > 1:
            mine.sort(key=lambda it: it.offering.key)
        lots: dict[OfferingKey, list[Offering]] = {}
        for it in mine:
            lots.setdefault(it.offering.key, []).append(it.offering)
        plan = PlacementPlan(purchases=tuple([PlannedNodeClaims(lot[-1], len(lot)) for lot in lots.values()]))
        claims = machines.claims_of(uid, plan, ordinary=gangs[uid].ordinary)
        by_claim = dict(zip(claims.names.values(), [it.offering for it in mine], strict=True))  # both by offering
        for claim, machine in zip(by_claim, mine, strict=True):
            slot = planned_slot(machine.offering, f"claim/{claim}", room=machine.offering.flexible_room)
            slot.claim = claim
            for member, count in machine.pods.items():
                assignments[member.gang].append(NodeAssignment(member.pod_set, slot, count))
        machines.planner.capacity.spend(plan.purchases)
        written[uid] = plan.purchases, claims, by_claim
    nothing: tuple[tuple[PlannedNodeClaims, ...], WrittenClaims, dict[str, Offering]] = (), WrittenClaims(), {}
    for uid, placed in gangs.items():
        purchases, claims, by_claim = written.get(uid, nothing)
        plan = PlacementPlan(tuple(assignments[uid]), placed.plan.recuts, purchases)
        machines.placed[uid] = PlacedGang(plan, claims, placed.needs, by_claim, placed.ordinary)


def _write_purposes(machines: ClusterBackend, gangs: Iterable[str], names: Mapping[str, str]) -> None:
    """Writes into every claim which pods the machine is for, and the next best instance type with its price."""
    mine = {uid: machines.placed[uid] for uid in gangs}
    needs = {PodSetOfGang(uid, it.pod_set.name): it for uid, placed in mine.items() for it in placed.needs}
    pods: defaultdict[str, dict[PodSetOfGang, int]] = defaultdict(dict)
    for uid, placed in mine.items():
        for assignment in placed.plan.assignments:
            there, member = pods[assignment.slot.claim], PodSetOfGang(uid, assignment.pod_set)
            there[member] = there.get(member, 0) + assignment.count
    next_best: dict[object, str] = {}
    for placed in mine.values():
        told = {}
        for claim, offering in placed.bought.items():
            machine = SharedMachine(offering, pods[claim])
            asked = offering.key, _pods_by_shape(machine, needs)
            if asked not in next_best:
                next_best[asked] = _next_best(runner_up(machine, needs, machines.planner.capacity))
            told[claim] = _purpose(machine, names) + next_best[asked]
        if told:
            placed.written.are_for(told)


def _pods_by_shape(machine: SharedMachine, needs: Mapping[PodSetOfGang, Need]) -> frozenset[tuple[Hashable, int]]:
    """Returns how many pods of each shape stand on a machine, whichever gang they belong to."""
    found: dict[Hashable, int] = {}
    for member, count in machine.pods.items():
        asks = needs[member].asks
        found[asks] = found.get(asks, 0) + count
    return frozenset(found.items())


def _purpose(machine: SharedMachine, names: Mapping[str, str]) -> str:
    """Returns which pods of which gangs a machine is for, those with most pods first."""
    if len(machine.pods) == 1:
        [(member, count)] = machine.pods.items()
        return f"for {_pods_of(member, count, names[member.gang])}"
    ranked = sorted(machine.pods.items(), key=lambda it: (-it[1], names[it[0].gang], it[0]))
    parts = [_pods_of(member, count, names[member.gang]) for member, count in ranked[:_SHOWN]]
    if len(ranked) > _SHOWN:
        parts.append(counted(sum(count for _, count in ranked[_SHOWN:]), "more pod"))
    return f"for {', '.join(parts)}"


def _pods_of(member: PodSetOfGang, count: int, name: str) -> str:
    """Returns pods of a gang, or of a class of ordinary pods, which goes by the name of the first of them."""
    if name.endswith(f"/{member.pod_set}"):
        return f"{counted(count, 'pod')} like {name}"
    return f"{count} x {member.pod_set} of {name}"


def _next_best(other: Offering | None) -> str:
    """Returns the part of the purpose that names the next best instance type; empty if there is none."""
    if other is None:
        return ""
    return f"; next best {other.offer.instance_type.name} at {other.offer.price_usd_h:.2f} USD/h"


def runner_up(machine: SharedMachine, needs: Mapping[PodSetOfGang, Need], supply: BuyableCapacity) -> Offering | None:
    """Returns the next best instance type in the same pool, zone and capacity type that holds the same pods.

    Ties of GPU models are ignored. None when there is no other.
    """
    total: dict[str, int] = {PODS: sum(machine.pods.values())}
    pods = {needs[member].kind: needs[member] for member in machine.pods}.values()
    for member, count in machine.pods.items():
        for resource, amount in needs[member].pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * count
    offer, tier, pool = machine.offering.offer, tier_of(machine.offering), machine.offering.pool
    capacity_types = {it for it in pool.spec.capacity_types if Tier(pool.spec.weight, capacity_rank(pool, it)) == tier}
    left, shortages = supply.headroom[pool.name], supply.shortages
    best: tuple[tuple[float, OfferingKey], Offering] | None = None
    for offering in supply.offerings.of(pool):  # by price, which nobody expects to pay less than
        other = offering.offer
        if best is not None and round(other.price_usd_h + supply.machine_usd_h, 6) > best[0][0]:
            break
        if (
            other.zone == offer.zone
            and other.capacity_type in capacity_types
            and other.instance_type.name != offer.instance_type.name
            and not lacks(offering.allocatable, total.items())
            and not (shortages and other.pool_key in shortages)
            and not left.bound_to(offering)
            and all(admits(it.pod_set, it.tolerations, offering.labels, offering.taints) for it in pods)
        ):
            rank = round(supply.expected_usd_h(other), 6), offering.key
            best = min(best or (rank, offering), (rank, offering), key=lambda it: it[0])
    return None if best is None else best[1]
