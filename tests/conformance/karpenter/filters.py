"""`launch-filter`: what the agent launches for one pod, offer after offer, while the cloud is short of each it tries.

Upstream's filters say what one launch may name at once. A launch of the agent names one offer, and the next is tried
when that one is short: so what a filter keeps has to come before what it rejects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from fleet.offerings.reservations import DISCOUNT
from fleet.snapshot import CapacityPool, Reservation
from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter.manifests import Given, Obj, only, pod_manifest
from tests.conformance.karpenter.trying import tried
from tests.conformance.karpenter.worlds import NOW_S, AgentWorld, catalog_of, fleet_of, shortages_of

_ROW = ("filter", "requirements", "requests", "instance_types")
_TYPE = ("name", "offerings", "resources", "labels", "cpu_m", "memory_bytes")
_OFFER = ("capacity_type", "available", "price", "zone", "capacity_override")
_RESERVED = ("reservation_type", "reservation_id", "interruptible", "reservation_capacity")
_ROOM = {"cpu_m": 4000, "memory_bytes": 1 << 34, "pods": 110}
_SOMEWHERE = "zone-1"
_USD_H = 1.0
"""What offers cost that have no price in the row: all the same."""
_ENDS_S = NOW_S + 1e8
"""When capacity blocks end: not soon."""


def run(case: Case) -> dict[str, Any]:
    """Which types come first, as many as the row keeps, and which of their offers."""
    given, expect = case["given"], case["expect"]
    only("row", given, _ROW)
    market = _Market()
    for each in given["instance_types"]:
        market.enter(each)
    launched = _tried(market, given)
    if "kept_offerings" in expect:
        first = launched[: sum(expect["kept_offerings"].values())]
    else:
        some = list(dict.fromkeys(it.instance_type for it in launched))[: len(expect["kept"])]
        first = [it for it in launched if it.instance_type in some]
    kept = {it.instance_type for it in first}
    names = [each["name"] for each in given["instance_types"]]
    by_place = {(it.instance_type, it.zone): it.reservation for it in reversed(launched) if it.reservation}
    return {
        "kept": [name for name in names if name in kept],
        "rejected": [name for name in names if name not in kept],
        "kept_offerings": {name: sum(it.instance_type == name for it in first) for name in names if name in kept},
        "kept_reservation": market.called.get(launched[0].reservation) if launched else None,
        "kept_reservations": sorted(market.called[it] for it in by_place.values()),
    }


def _tried(market: "_Market", given: Given) -> list[CapacityPool]:
    """The offers in the order in which the agent launches them, each of which turns out to be short."""
    pool = {"requirements": [market.requirement(each) for each in given["requirements"]]}
    fleet = fleet_of([pool], list(market.reservations), market.overlays)
    pod = pod_manifest("pod-000", {_resource(name): it for name, it in given.get("requests", {}).items()})
    return list(tried(fleet, market.world(), pod))


def _resource(name: str) -> str:
    """A resource as Kubernetes would name it, where a row leaves out the domain."""
    return name if name in _ROOM or "/" in name else f"example.com/{name}"


@dataclass(slots=True)
class _Market:
    """The types of a row with what is sold of them.

    A place has one price and one amount of resources here: offers that differ in these alone are in places of their
    own.
    """

    types: list[Given] = field(default_factory=list)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    overlays: list[Obj] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)
    """Reservation -> what the row calls it."""
    _places: dict[str, str] = field(default_factory=dict)
    """Place of its own -> the zone of the row."""
    _taken: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """(Type, place, capacity type) -> price of what is sold there, or of what is reserved."""

    def enter(self, given: Given) -> None:
        """One type; all that have no offers are sold alike."""
        only("instance type", given, _TYPE)
        more = {name: given[name] for name in _ROOM if name in given}
        told = {"name": given["name"], "arch": "amd64", "labels": given.get("labels", {})}
        offers = [
            offer
            for each in given["offerings"] or [{"capacity_type": "on-demand"}]
            for offer in (self._reserve if each["capacity_type"] == "reserved" else self._sell)(given["name"], each)
        ]
        self.types.append({**told, "capacity": {**_ROOM, **more, **given.get("resources", {})}, "offerings": offers})

    def _sell(self, name: str, given: Given) -> Iterator[Given]:
        only("offering", given, _OFFER)
        kind, price = given["capacity_type"], given.get("price", _USD_H)
        zone = self._place(name, kind, given.get("zone", _SOMEWHERE), price, alone=True)
        if more := given.get("capacity_override"):
            self.overlays.append(_overlay(f"o-{len(self.overlays)}", name, zone, kind, more))
        yield {"capacity_type": kind, "zone": zone, "price": price, "available": given.get("available", True)}

    def _reserve(self, name: str, given: Given) -> Iterator[Given]:
        """A reservation. The price of what is reserved follows from a list price, at which nothing is for sale."""
        only("offering", given, {*_OFFER, *_RESERVED})
        price = given.get("price", _USD_H / DISCOUNT)
        zone = self._place(name, "reserved", given.get("zone", _SOMEWHERE), price, alone=False)
        number = f"cr-{len(self.reservations)}"
        left = given.get("reservation_capacity", 1) if given.get("available", True) else 0
        kind = given.get("reservation_type", "default")
        kept = Reservation(number, name, zone, max(left, 1), left, kind)
        if kind == "capacity-block":
            kept = replace(kept, terminates_s=_ENDS_S)
        self.reservations[number] = replace(kept, interruptible=given.get("interruptible", False))
        self.called[number] = given.get("reservation_id", number)
        if (name, zone, "on-demand") not in self._taken:
            self._taken[name, zone, "on-demand"] = price * DISCOUNT
            yield {"capacity_type": "on-demand", "zone": zone, "price": price * DISCOUNT, "available": False}

    def _place(self, name: str, kind: str, zone: str, price: float, *, alone: bool) -> str:
        """The zone, or where an unlike offer is there already, a place of its own that stands for it."""
        listed = {"reserved": ("on-demand", price * DISCOUNT)}.get(kind, ("reserved", price / DISCOUNT))
        for number in count(1):
            place = zone if number == 1 else f"{zone}-{number}"
            others = self._taken.get((name, place, kind)), self._taken.get((name, place, listed[0]))
            if (others[0] is None or (not alone and others[0] == price)) and others[1] in {None, listed[1]}:
                self._places[place] = zone
                self._taken[name, place, kind] = price
                return place
        raise AssertionError("unreachable")

    def requirement(self, given: Given) -> Given:
        """A requirement of the row; one on zones is one on the places that stand for them."""
        if given["key"] != labels.ZONE:
            return given
        named = set(given.get("values", ()))
        return {**given, "values": sorted(named | {place for place, zone in self._places.items() if zone in named})}

    def world(self) -> AgentWorld:
        """What the agent sees, before anything is tried."""
        world = AgentWorld(catalog_of(self.types), shortages=shortages_of(self.types))
        world.snapshot = replace(world.snapshot, reservations=self.reservations, reservations_at_s=NOW_S)
        return world


def _overlay(name: str, machine: str, zone: str, capacity_type: str, more: Mapping[str, int]) -> Obj:
    """Resources that one offer has beside those of its type, as a user of Karpenter tells of them."""
    told: Sequence[tuple[str, str]] = (
        (labels.INSTANCE_TYPE, machine), (labels.ZONE, zone), (labels.CAPACITY_TYPE, capacity_type),
    )  # fmt: skip
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in told]
    capacity = {_resource(resource): str(amount) for resource, amount in more.items()}
    spec = {"requirements": terms, "capacity": capacity}
    return {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec}
