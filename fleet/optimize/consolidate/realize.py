"""From groups to machines: which of equal machines go, who stands where, and smaller machines where those will do."""

import numpy as np

from fleet.optimize.consolidate.ground import Ground, Plan, affordable, displaced, nothing, room, valid
from fleet.optimize.consolidate.master import Whole
from fleet.optimize.purchase.part import Floats, Ints


def realized(ground: Ground, groups: list[list[int]], whole: Whole) -> Plan | None:
    """The plan of a solution in whole numbers; None where it comes to nothing that is valid."""
    removed = np.zeros(len(ground.price), dtype=bool)
    for group, going in zip(groups, whole.going.tolist(), strict=True):
        removed[group[len(group) - going :]] = True
    moving = [bool(removed[gang.machines].any()) for gang in ground.gangs]
    ways = np.where(np.array(moving, dtype=bool), whole.ways, -1)
    empty = nothing(ground)
    plan = Plan(removed, ways, empty.received, empty.kinds, empty.pods)
    missing, free = displaced(ground, plan), room(ground, plan)
    received = empty.received.copy()
    for group, wanted in zip(groups, whole.received, strict=True):
        staying = [machine for machine in group if not removed[machine]]
        _seat(ground, staying, np.minimum(wanted, missing), free, received, missing)
    kinds, pods = _filled(ground, whole, missing)
    if missing.any():
        _seat(ground, np.flatnonzero(~removed).tolist(), missing.copy(), free, received, missing)
    if missing.any():
        kinds, pods = _more(ground, kinds, pods, missing)
    if missing.any():
        return None
    plan = Plan(removed, ways, received, *_smaller(ground, kinds, pods))
    return plan if valid(ground, plan) else None


def _seat(ground: Ground, machines: list[int], wanted: Ints, free: Floats, received: Ints, missing: Ints) -> None:
    """First fit, largest first; what finds a seat is taken off `missing`, whatever else is changed goes along."""
    wanted = wanted.copy()
    for machine in machines:
        for row in np.flatnonzero(wanted).tolist():
            if not ground.fits[row, machine]:
                continue
            asked = ground.requests[row]
            asks = asked > 0
            times = int((free[machine][asks] // asked[asks]).min(initial=float(wanted[row])))
            pods = max(0, min(times, int(wanted[row])))
            free[machine] -= pods * asked
            received[machine, row] += pods
            wanted[row] -= pods
            missing[row] -= pods


def _filled(ground: Ground, whole: Whole, missing: Ints) -> tuple[list[int], list[Ints]]:
    """The machines bought, each with what of its pattern is missing; those that get nothing are not bought."""
    kinds: list[int] = []
    pods: list[Ints] = []
    price = ground.kinds.price[whole.kinds]
    for at in np.argsort(price, kind="stable").tolist():
        held = np.minimum(whole.pods[at], missing)
        if held.any():
            missing -= held
            kinds.append(int(whole.kinds[at]))
            pods.append(held)
    return kinds, pods


def _more(ground: Ground, kinds: list[int], pods: list[Ints], missing: Ints) -> tuple[list[int], list[Ints]]:
    """Another machine for what is missing, the one that costs least for each pod of the largest class, and so on."""
    part = ground.kinds
    while missing.any():
        row = int(np.flatnonzero(missing)[0])
        holds = np.minimum(part.holds[row], missing[row])
        if not holds.any():
            break
        kind = int(np.where(holds > 0, part.price / np.maximum(holds, 1), np.inf).argmin())
        held = np.zeros(len(missing), dtype=np.int64)
        free = part.capacity[kind].copy()
        for other in [row, *np.flatnonzero(missing).tolist()]:
            asked = ground.requests[other]
            asks = asked > 0
            count = int((free[asks] // asked[asks]).min(initial=float(missing[other]))) if part.fits[other, kind] else 0
            count = max(0, min(count, int(missing[other] - held[other])))
            held[other] += count
            free -= count * asked
        missing -= held
        kinds.append(kind)
        pods.append(held)
    return kinds, pods


def _smaller(ground: Ground, kinds: list[int], pods: list[Ints]) -> tuple[Ints, Ints]:
    """Each on the cheapest kind that holds it, as far as the bounds allow."""
    part = ground.kinds
    chosen = np.array(kinds, dtype=np.int64)
    for at, held in enumerate(pods):
        holding = (held @ ground.requests <= part.capacity).all(axis=1) & part.fits[held > 0].all(axis=0)
        for kind in np.flatnonzero(holding).tolist():
            if kind >= chosen[at]:
                break
            changed = chosen.copy()
            changed[at] = kind
            if affordable(ground, np.bincount(changed, minlength=len(part.price)).astype(np.float64)):
                chosen = changed
                break
    classes = len(ground.requests)
    return chosen, np.array(pods, dtype=np.int64).reshape(len(pods), classes)
