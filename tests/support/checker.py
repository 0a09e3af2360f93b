"""An independent judge of plans: it shares no code with what makes them, and is as plain as it can be."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.plan import Need, PlacementPlan
from fleet.snapshot import PodSet
from model import labels
from model.kinds import NodePool, RequirementTerm, Taint, Toleration


@dataclass(frozen=True)
class CheckedMachine:
    """A machine as the judge sees it, before the plan puts anything on it."""

    name: str
    pool: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    room: Mapping[str, int]
    only_for: frozenset[str] = frozenset()


def before(board: ClusterState) -> dict[str, CheckedMachine]:
    """What is on a board now, copied."""
    return {name: _machine(slot) for name, slot in board.slots.items()}


def _machine(slot: NodeSlot) -> CheckedMachine:
    return CheckedMachine(slot.name, slot.pool, dict(slot.labels), slot.taints, dict(slot.free), slot.only_for)


def faults(plan: PlacementPlan, needs: Iterable[Need], standing: Mapping[str, CheckedMachine], gang: str) -> list[str]:
    """Everything that is wrong with a plan; empty when it keeps every promise."""
    wanted = {need.pod_set.name: need for need in needs}
    machines = dict(standing)
    for lot_number, lot in enumerate(plan.purchases):
        machines |= {f"new/{lot_number}/{n}": _bought(f"new/{lot_number}/{n}", lot.offering) for n in range(lot.count)}
    for recut in plan.recuts:
        base = standing[recut.slot.name]
        room = {key: value for key, value in base.room.items() if "nvidia.com" not in key} | dict(recut.gpus)
        machines[f"recut/{recut.claim}"] = CheckedMachine(
            f"recut/{recut.claim}", base.pool, recut.slot.labels, base.taints, room, gang
        )
        machines.pop(recut.slot.name, None)
    return [
        *_everyone_once(plan, wanted),
        *_rooms(plan, wanted, machines),
        *_fits(plan, wanted, machines, gang),
        *_domains(plan, wanted, machines),
        *_purchases(plan, wanted),
    ]


def _bought(name: str, offering: Offering) -> CheckedMachine:
    return CheckedMachine(name, offering.pool.name, offering.labels, offering.taints, dict(offering.allocatable))


def _everyone_once(plan: PlacementPlan, wanted: Mapping[str, Need]) -> list[str]:
    seated = Counter[str]()
    for seat in plan.assignments:
        seated[seat.pod_set] += seat.count
    wrong = {name: seated[name] for name, need in wanted.items() if seated[name] != need.pod_set.count}
    strangers = seated.keys() - wanted.keys()
    empty = [seat for seat in plan.assignments if seat.count <= 0]
    return (
        [f"seated {wrong}"] * bool(wrong) + [f"strangers {strangers}"] * bool(strangers) + ["empty seat"] * bool(empty)
    )


def _rooms(plan: PlacementPlan, wanted: Mapping[str, Need], machines: Mapping[str, CheckedMachine]) -> list[str]:
    taken: dict[str, Counter[str]] = {}
    for seat in plan.assignments:
        on = taken.setdefault(seat.slot.name, Counter())
        on["pods"] += seat.count
        for resource, amount in wanted[seat.pod_set].pod_set.requests.items():
            on[resource] += amount * seat.count
    return [
        f"{name}: {amount} {resource} of {machines[name].room.get(resource, 0)}"
        for name, amounts in taken.items()
        if name in machines
        for resource, amount in amounts.items()
        if amount and amount > machines[name].room.get(resource, 0)
    ]


def _fits(
    plan: PlacementPlan, wanted: Mapping[str, Need], machines: Mapping[str, CheckedMachine], gang: str
) -> list[str]:
    found = []
    for seat in plan.assignments:
        need, machine = wanted[seat.pod_set], machines.get(seat.slot.name)
        if machine is None:
            found.append(f"{seat.slot.name} does not exist (any more)")
            continue
        if machine.only_for and gang not in machine.only_for:
            found.append(f"{machine.name} is kept for {sorted(machine.only_for)}")
        if need.node_labels:
            if any(machine.labels.get(key) != value for key, value in need.node_labels.items()):
                found.append(f"{machine.name} is not of the flavor")
        elif machine.pool not in [pool.name for pool in need.pools]:
            found.append(f"{machine.name} is of pool {machine.pool!r}")
        if not _tolerated(machine.taints, (*need.pod_set.tolerations, *need.tolerations)):
            found.append(f"{machine.name} is tainted")
        if not _selected(need.pod_set, machine.labels):
            found.append(f"{machine.name} is not selected")
    return found


def _tolerated(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> bool:
    def one(taint: Taint, t: Toleration) -> bool:
        key = not t.key or t.key == taint.key
        value = t.operator == "Exists" or t.value == taint.value
        return key and value and t.effect in {"", taint.effect}

    return all(any(one(taint, t) for t in tolerations) for taint in taints if taint.effect != "PreferNoSchedule")


def _selected(pod_set: PodSet, carried: Mapping[str, str]) -> bool:
    if any(carried.get(key) != value for key, value in pod_set.node_selector.items()):
        return False
    terms = pod_set.required_affinity
    return not terms or any(all(_term(it, carried.get(it.key)) for it in all_of) for all_of in terms)


def _term(term: RequirementTerm, value: str | None) -> bool:
    match term.operator:
        case "In":
            return value in term.values
        case "NotIn":
            return value not in term.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            raise AssertionError(f"the judge knows nothing of {term.operator}")


def _domains(plan: PlacementPlan, wanted: Mapping[str, Need], machines: Mapping[str, CheckedMachine]) -> list[str]:
    found = []
    for name, need in wanted.items():
        level = need.pod_set.required_topology
        on = [
            machines[seat.slot.name] for seat in plan.assignments if seat.pod_set == name and seat.slot.name in machines
        ]
        if level == labels.HOSTNAME:
            spread = {machine.name for machine in on}
        elif level:
            spread = {machine.labels.get(level, f"none ({machine.name})") for machine in on}
        else:
            continue
        if len(spread) > 1 or any(place.startswith("none") for place in spread):
            found.append(f"{name} is spread over {sorted(spread)}")
    return found


def _purchases(plan: PlacementPlan, wanted: Mapping[str, Need]) -> list[str]:
    found = []
    zones = {lot.offering.offer.zone for lot in plan.purchases}
    asked = [it.pod_set.constraints for it in wanted.values()]
    apart = any(it.topology_key == labels.ZONE for one in asked for it in (*one.spread, *one.anti_affinity))
    if len(zones) > 1 and not apart:
        found.append(f"bought in {sorted(zones)}")
    if any(lot.count < 1 for lot in plan.purchases):
        found.append("an empty lot")
    if any(lot.offering.pool.spec.replicas is not None for lot in plan.purchases):
        found.append("bought from a fixed pool")
    used = {seat.slot.name for seat in plan.assignments}
    idle = [
        f"new/{i}/{n}" for i, lot in enumerate(plan.purchases) for n in range(lot.count) if f"new/{i}/{n}" not in used
    ]
    if idle:
        found.append(f"bought for nothing: {idle}")
    if unused := [recut.claim for recut in plan.recuts if f"recut/{recut.claim}" not in used]:
        found.append(f"cut for nothing: {unused}")
    return found


def over_limits(pool: NodePool, machines: Iterable[tuple[float, Mapping[str, int]]]) -> list[str]:
    """Which limits of a pool machines of these prices and capacities break together."""
    known = list(machines)
    limits = pool.spec.limits
    broken = []
    if limits.nodes is not None and len(known) > limits.nodes:
        broken.append(f"{len(known)} nodes of {limits.nodes}")
    if limits.usd_per_hour is not None and sum(price for price, _ in known) > limits.usd_per_hour + 1e-6:
        broken.append("USD/h")
    for resource, most in limits.resources.items():
        if sum(capacity.get(resource, 0) for _, capacity in known) > most:
            broken.append(resource)
    return broken
