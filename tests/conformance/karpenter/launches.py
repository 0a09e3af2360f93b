"""`launch`: what the agent takes to be out of reach after a launch has failed; and the machines of these rows."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from fleet.catalog import InstanceOffer
from fleet.nodeclaims.launch_outcome import settle
from fleet.snapshot import CapacityPool, Catalog, Claim, Launch, LaunchOutcome, Reservation, Snapshot
from model import labels
from model.kinds import CapacityType
from providers.aws.catalog import package_catalog
from providers.aws.fleet_request import failure_of
from tests.conformance.cases import Case
from tests.conformance.karpenter.manifests import Declined, only, pod_manifest
from tests.conformance.karpenter.trying import tried
from tests.conformance.karpenter.worlds import NOW_S, AgentWorld, fleet_of

REGION = "us-east-1"
ZONES = ("a", "b", "c")
SOLD = (
    "c6g.large",
    "g4dn.8xlarge",
    "g5.12xlarge",
    "inf2.24xlarge",
    "inf2.xlarge",
    "m5.large",
    "m5.metal",
    "m5.xlarge",
    "m6idn.32xlarge",
    "p5.48xlarge",
    "t3.large",
    "t4g.medium",
    "t4g.small",
    "t4g.xlarge",
    "trn1.2xlarge",
)
"""The types of upstream's fake EC2 that the package knows a price of; each is in every zone."""
SHORTAGE = "insufficient-capacity"
Given = Mapping[str, Any]
Pools = frozenset[tuple[str, str, str]]
CAPACITY_TYPES: tuple[CapacityType, ...] = ("on-demand", "spot")
_CODES = {
    "mark_capacity_type": "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "mark_subnet": "InsufficientFreeAddressesInSubnet",
}
"""What EC2 says when all of this is out of reach."""
_RESERVATION = "cr-1"


def run(case: Case) -> dict[str, Any]:
    """One launch that fails, and what is out of reach then; or one after the other, until nothing is left to try."""
    given = case["given"]
    if "launch" in given:
        return _calls(given)
    code = given.get("fleet_error") or next((code for word, code in _CODES.items() if word in given), "")
    if not code:
        raise Declined(f"row: no pods, no failure of a launch ({', '.join(sorted(given))})")
    lot = _claim(given)
    seen = Snapshot(NOW_S, claims={lot.name: lot}, catalog=every_offer(SOLD), reservations=_reservations(given))
    found = settle(LaunchOutcome((), (failure_of(code, ""),)), [lot], seen)
    told: dict[str, Any] = {} if found.ask_again else {"error": SHORTAGE}
    if "reservation" in given:
        short = lot.capacity_pool in found.shortages
        return {**told, "reservation_available": 0 if short else given["believed_available"]}
    return told | _out_of_reach(frozenset(found.shortages), case["expect"])


def _calls(given: Given) -> dict[str, Any]:
    """What is out of reach after each call: upstream's tries all places of a capacity type, a launch of ours one."""
    only("row", given, ("ice_pools", "launch"))
    named, _, rest = given["launch"].partition(", ")
    if rest != "capacity types any":
        raise Declined(f"launch: {given['launch']}")
    zones = sorted({zone for _, _, zone in short_pools(given)})
    terms = {labels.INSTANCE_TYPE: [named], labels.ZONE: zones, labels.CAPACITY_TYPE: CAPACITY_TYPES}
    pool = {"requirements": [{"key": key, "op": "In", "values": [*values]} for key, values in terms.items()]}
    left = {f"{it.capacity_type}:{it.zone}": None for it in every_offer((named,)).offers if it.zone in zones}
    short: list[str] = []
    told = {}
    launches = tried(fleet_of([pool]), AgentWorld(every_offer(SOLD)), pod_manifest("pod-000", {}))
    for number, (_, call) in enumerate(groupby(launches, lambda it: it.capacity_type), 1):
        for it in call:
            short.append(f"{it.capacity_type}:{it.zone}")
            del left[short[-1]]
        still = {"still_available": list(left)} if left else {}
        told[f"call_{number}"] = {"error": SHORTAGE, "unavailable": list(short), **still}
    return told


def _claim(given: Given) -> Claim:
    """The machine that was asked for."""
    zone = given.get("zone", next((z for z, its in given.get("zones", {}).items() if given["mark_subnet"] in its), "a"))
    kind = given.get("capacity_type", given.get("mark_capacity_type", "spot"))
    where = CapacityPool("reserved" if "reservation" in given else kind, given.get("instance_type", "m5.large"), zone)
    if "reservation" in given:
        where = replace(where, reservation=_RESERVATION)
    return Claim("n1", "uid-n1", "default", "v-h", where, 1.0, Launch("g", 0, 1), NOW_S)


def _reservations(given: Given) -> dict[str, Reservation]:
    left = given.get("believed_available", 0)
    return {_RESERVATION: Reservation(_RESERVATION, "m5.large", "a", left, left)} if "reservation" in given else {}


def _out_of_reach(short: frozenset[CapacityPool], expect: Given) -> dict[str, Any]:
    """What is short and what is not, as the row puts it: in words for whole classes, else offers one by one."""
    told: dict[str, Any] = {}
    for word in ("unavailable", "still_available", "available"):
        asked, wanted = expect.get(word), word == "unavailable"
        if isinstance(asked, str):
            chosen = _chosen(asked)
            told[word] = asked if chosen and all((it in short) == wanted for it in chosen) else ""
        elif asked is not None:
            told[word] = [each for each in asked if (_named(each) in short) == wanted]
    return told


def _chosen(words: str) -> list[CapacityPool]:
    """The offers that a phrase names: by the capacity type or the zone that is said in it."""
    zone = re.search(r"\bin (\S+)$", words)
    kind = next((kind for kind in CAPACITY_TYPES if kind in words), "")
    pools = [offer.pool_key for offer in every_offer(SOLD).offers]
    return [it for it in pools if kind in {"", it.capacity_type} and (zone is None or zone[1] == it.zone)]


def _named(text: str) -> CapacityPool:
    name, capacity_type, zone = text.split(":")
    pool: Any = (capacity_type, name, zone)
    return CapacityPool(*pool)


# -- the market -------------------------------------------------------------------------------------------------------


def every_offer(names: tuple[str, ...]) -> Catalog:
    """The types at their prices in every zone."""
    whole = package_catalog(REGION).catalog
    prices = {(it.instance_type.name, it.capacity_type): it for it in whole.offers}
    offers = [
        InstanceOffer(whole.types[name], zone, capacity_type, prices[name, capacity_type].price_usd_h)
        for name in sorted(names)
        for zone in ZONES
        for capacity_type in CAPACITY_TYPES
        if (name, capacity_type) in prices
    ]
    return Catalog(REGION, {name: whole.types[name] for name in names}, tuple(offers), NOW_S, "rows")


def short_pools(given: Given) -> Pools:
    """Pools without capacity: a list, or in words."""
    told = given.get("ice_pools", ())
    if not isinstance(told, str):
        return frozenset((each["capacity_type"], each["instance_type"], each["zone"]) for each in told)
    every = re.fullmatch(r"every (?P<kind>\S+) type in zones? (?P<zones>\S+)", told)
    if every:
        return frozenset((every["kind"], name, zone) for name in SOLD for zone in every["zones"].split(","))
    one = re.fullmatch(r"(?P<name>\S+) (?P<kinds>\S+) in (?P<zones>\S+)", told)
    if one is None:
        raise ValueError(f"cannot read the pools {told!r}")
    kinds = [{"od": "on-demand"}.get(kind, kind) for kind in one["kinds"].split("+")]
    return frozenset((kind, one["name"], zone) for kind in kinds for zone in one["zones"].split(","))
