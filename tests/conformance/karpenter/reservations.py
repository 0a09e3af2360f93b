"""`reservations`: how many machines of each reservation are left, as the agent counts them.

Upstream's claim holds a place in every reservation that it may be launched into; here each place is a claim of its own.
"""

from typing import Any

from fleet.catalog import InstanceOffer, InstanceType
from fleet.offerings.reservations import ReservationCapacity
from fleet.snapshot import CapacityPool, Claim, Launch, Reservation, Snapshot
from tests.conformance.cases import Case
from tests.conformance.karpenter.worlds import NOW_S

_TYPE, _ZONE = "m5.large", "a"


def run(case: Case) -> dict[str, Any]:
    """What can be had and what remains after the operations, or that they asked for more than there is."""
    given, expect = case["given"], case["expect"]
    known = {
        it["id"]: Reservation(it["id"], _TYPE, _ZONE, it["capacity"], it["capacity"]) for it in given["reservations"]
    }
    held: dict[str, Claim] = {}
    error = False
    for operation in given["ops"]:
        for name in operation["ids"]:
            host = operation.get("reserve", operation.get("release"))
            if "release" in operation:
                held.pop(f"{host}:{name}", None)
            elif f"{host}:{name}" not in held:
                error = error or _left(known, held, name) < 1
                held[f"{host}:{name}"] = _claim(f"{host}:{name}", name)
    asked = {it: it.partition(":")[2] for it in expect.get("can_reserve", {})}
    return {
        "error": error,
        "can_reserve": {it: it in held or _left(known, held, name) > 0 for it, name in asked.items()},
        "remaining": {name: _left(known, held, name) for name in expect.get("remaining", {})},
    }


def _left(known: dict[str, Reservation], held: dict[str, Claim], name: str) -> int:
    """What the agent may still buy of a reservation, with these claims on their way."""
    capacity = ReservationCapacity.of(Snapshot(NOW_S, reservations=known, reservations_at_s=NOW_S, claims=held))
    offer = InstanceOffer(InstanceType(_TYPE, {}, {}, {}), _ZONE, "reserved", 0.0, known.get(name))
    return capacity.most(offer, NOW_S + 1.0) or 0


def _claim(name: str, reservation: str) -> Claim:
    where = CapacityPool("reserved", _TYPE, _ZONE, reservation)
    return Claim(name, f"uid-{name}", "default", "v-h", where, 0.0, Launch("g", 0, 1), NOW_S)
