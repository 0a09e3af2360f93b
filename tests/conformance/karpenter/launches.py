"""`launch`: pools that run short, what is remembered of it, and what is asked for next."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from bench.reference.karpenter.buy import MachineType, PlannedClaim, ReferenceOffering, WaitingPod, solve
from bench.reference.karpenter.launch import batches
from bench.reference.karpenter.launch.filters import Wanted, launchable
from bench.reference.karpenter.launch.overrides import Inflexible, Override, named
from bench.reference.karpenter.launch.shortages import Shortages, Tried
from fleet.snapshot import CapacityPool, Reach
from model import labels
from model.requirements import Requirement, Requirements
from providers.aws.catalog import package_catalog
from providers.aws.fleet_request import failure_of
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.requirements import requirements

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
SHORT = "InsufficientInstanceCapacity"
SHORTAGE = "insufficient-capacity"
Given = Mapping[str, Any]
Pools = frozenset[tuple[str, str, str]]


def run(case: Case) -> dict[str, Any]:
    """The first of the sorts of case that knows what is given."""
    given = case["given"]
    return next(play for words, play in SORTS if words <= given.keys())(given, case)


# -- the market -------------------------------------------------------------------------------------------------------


@cache
def market(names: tuple[str, ...] = SOLD) -> tuple[MachineType, ...]:
    """The types with their facts and prices, spot cheaper than on-demand, in all zones."""
    catalog = package_catalog(REGION).catalog
    prices = {(offer.instance_type.name, offer.capacity_type): offer.price_usd_h for offer in catalog.offers}
    out = []
    for name in names:
        found = catalog.types[name]
        offers = [
            ReferenceOffering(capacity_type, zone, prices[name, capacity_type])
            for zone in ZONES
            for capacity_type in ("on-demand", "spot")
            if (name, capacity_type) in prices
        ]
        carried = Requirements.from_labels(found.labels)
        out.append(MachineType(name, carried, found.capacity, found.allocatable, tuple(offers)))
    return tuple(out)


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


def _all(pools: Iterable[tuple[str, ReferenceOffering]]) -> list[str]:
    return [f"{offer.capacity_type}:{offer.zone}" for _, offer in pools]


def _tried(override: Override) -> Tried:
    offer = override.offer
    pool: Any = (offer.capacity_type, override.machine, offer.zone)
    return Tried(CapacityPool(*pool), reservation=offer.reservation_id)


def _launched(
    machines: Iterable[MachineType], wanted: Wanted, short: Pools, known: Shortages
) -> tuple[Override | None, Shortages]:
    """One call: the machine that comes, or none; and what is known to be short afterwards."""
    for override in named(launchable(machines, wanted), wanted).overrides:
        offer = override.offer
        if (offer.capacity_type, override.machine, offer.zone) not in short:
            return override, known
        known = known.learned(_tried(override), failure_of(SHORT, "").reach, 0.0)
    return None, known


# -- pods that wait while capacity is short ---------------------------------------------------------------------------


def _attempts(given: Given, case: Case) -> dict[str, Any]:
    """Passes, until something comes: what was short in one is known in the next."""
    names = tuple(given.get("allowed_types", SOLD))
    pods = [catalogs.pod(number, each) for number, each in enumerate(given["pods"])]
    pool = given.get("node_pool_requirements", [_in(labels.CAPACITY_TYPE, "on-demand")])
    known, told = Shortages(), {}
    for number in range(1, _attempts_asked(case) + 1):
        templates = catalogs.templates([{"requirements": pool}], tuple(known.spare(market(names), 0.0, {})))
        came: list[Override] = []
        scheduled = 0
        for claim in solve(pods, templates).claims:
            machine, known = _launched(_options(claim, templates[0].machines), _asked(claim), short_pools(given), known)
            if machine is not None:
                came.append(machine)
                scheduled += len(claim.pods)
        told |= {
            f"attempt_{number}_scheduled": scheduled,
            f"attempt_{number}_nodes": len(came),
            f"attempt_{number}": _machine(came, case["expect"].get(f"attempt_{number}", {})),
            "scheduled": scheduled,
            "cost_usd_h": sum(each.offer.price_usd_h for each in came),
        }
        if came:
            break
    return told


def _attempts_asked(case: Case) -> int:
    return max(int(word.split("_")[1]) for word in case["expect"])


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "op": "In", "values": list(values)}


def _options(claim: PlannedClaim, machines: Iterable[MachineType]) -> Iterator[MachineType]:
    kept = {option.machine for option in claim.options}
    return (machine for machine in machines if machine.name in kept)


def _asked(claim: PlannedClaim) -> Wanted:
    return Wanted(claim.requirements, claim.requests)


def _machine(came: list[Override], asked: Given) -> dict[str, Any]:
    """The facts that are asked for of what came."""
    if not came:
        return {}
    facts = {
        "instance_type": came[0].machine,
        "zone": came[0].offer.zone,
        "capacity_type": came[0].offer.capacity_type,
        "nodes": len(came),
    }
    return {name: facts[name] for name in asked}


# -- single calls -----------------------------------------------------------------------------------------------------


def _calls(given: Given, case: Case) -> dict[str, Any]:
    """The same launch again and again, each with what the ones before have taught."""
    name = given["launch"].split(",")[0]
    zones = sorted({zone for _, _, zone in short_pools(given)})
    known, told = Shortages(), {}
    wanted = Wanted(Requirements({labels.ZONE: Requirement.one_of(*zones)}))
    for call in case["expect"]:
        came, known = _launched(known.spare(market((name,)), 0.0, {}), wanted, short_pools(given), known)
        offers = [(name, offer) for offer in market((name,))[0].offerings if offer.zone in zones]
        offers.sort(key=lambda each: (each[1].capacity_type != "spot", each[1].zone))
        gone = [each for each in offers if known.cover(*each, 0.0)]
        told[call] = {
            "error": "" if came else SHORTAGE,
            "unavailable": _all(gone),
            **(
                {"still_available": _all(each for each in offers if each not in gone)}
                if len(gone) < len(offers)
                else {}
            ),
        }
    return told


def _failed(given: Given, case: Case) -> dict[str, Any]:
    """One error code: what it puts out of reach."""
    reach = failure_of(given["fleet_error"], "").reach
    capacity_type = given.get("capacity_type", "reserved" if "reservation" in given else "spot")
    pool: Any = (capacity_type, given.get("instance_type", "m5.large"), given.get("zone", "a"))
    known = Shortages().learned(Tried(CapacityPool(*pool), reservation=given.get("reservation", "")), reach, 0.0)
    told: dict[str, Any] = {} if reach is Reach.NOTHING else {"error": SHORTAGE}
    if "reservation" in given:
        offer = ReferenceOffering("reserved", "a", 0.0, reservation_id=given["reservation"])
        told["reservation_available"] = 0 if known.cover(pool[1], offer, 0.0) else given["believed_available"]
        return told
    return told | _out_of_reach(known, case["expect"])


def _out_of_reach(known: Shortages, expect: Given, subnets: Mapping[str, list[str]] | None = None) -> dict[str, Any]:
    """What is short and what is not, as the case puts it: in words for whole classes, else offers one by one."""
    told: dict[str, Any] = {}
    for word in ("unavailable", "still_available", "available"):
        asked = expect.get(word)
        wanted = word == "unavailable"
        if isinstance(asked, str):
            chosen = _chosen(asked)
            told[word] = asked if chosen and all(_is_short(known, *each, subnets) == wanted for each in chosen) else ""
        elif asked is not None:
            told[word] = [each for each in asked if _is_short(known, *_named(each), subnets) == wanted]
    return told


def _is_short(
    known: Shortages, machine: str, offer: ReferenceOffering, subnets: Mapping[str, list[str]] | None
) -> bool:
    return known.cover(machine, offer, 0.0, (subnets or {}).get(offer.zone, ()))


def _chosen(words: str) -> list[tuple[str, ReferenceOffering]]:
    """The offers that a phrase names: by the capacity type or the zone that is said in it."""
    offers = [(machine.name, offer) for machine in market() for offer in machine.offerings]
    zone = re.search(r"\bin (\S+)$", words)
    kind = next((kind for kind in ("on-demand", "spot") if kind in words), "")
    return [
        (name, offer)
        for name, offer in offers
        if kind in {"", offer.capacity_type} and (zone is None or zone[1] == offer.zone)
    ]


def _named(text: str) -> tuple[str, ReferenceOffering]:
    name, capacity_type, zone = text.split(":")
    return name, ReferenceOffering(capacity_type, zone, 0.0)


def _marked(given: Given, case: Case) -> dict[str, Any]:
    pool: Any = (given["mark_capacity_type"], "m5.large", "a")
    return _out_of_reach(Shortages().learned(Tried(CapacityPool(*pool)), Reach.CAPACITY_TYPE, 0.0), case["expect"])


def _marked_subnet(given: Given, case: Case) -> dict[str, Any]:
    tried = Tried(CapacityPool("spot", "m5.large", "a"), subnet=given["mark_subnet"])
    return _out_of_reach(Shortages().learned(tried, Reach.SUBNET, 0.0), case["expect"], given["zones"])


def _truncated(given: Given, case: Case) -> dict[str, Any]:
    try:
        named(market(), Wanted(requirements(given["requirements"])))
    except Inflexible as error:
        return {"error": SHORTAGE, "message_contains": str(error)}
    return {"error": ""}


# -- what is bought where nothing is short ----------------------------------------------------------------------------


def _packed(given: Given, case: Case) -> dict[str, Any]:
    """Pods, and types by name or in words: how many machines of which type, and how many ways each may be bought."""
    told = given.get("instance_types", "")
    if isinstance(told, str) and told.startswith("large catalog"):
        machines = _large(case)
    else:
        machines = market(tuple(told) if isinstance(told, list) else SOLD)
    pods = [catalogs.pod(number, each) for number, each in enumerate(given["pods"])]
    claims = _claims(pods, machines)
    asked = [(list(_options(claim, machines)), _asked(claim)) for claim in claims]
    launches = [named(launchable(options, wanted), wanted).overrides for options, wanted in asked]
    prices = [[override.offer.price_usd_h for override in each] for each in launches]
    types = sorted({each[0].machine for each in launches})
    return {
        "nodes": len(claims),
        "instance_type": types[0] if len(types) == 1 else types,
        "overrides": len(launches[0]),
        "cheapest_first": all(each == sorted(each) for each in prices),
        "scheduled": sum(len(claim.pods) for claim in claims),
        "cost_usd_h": sum(each[0] for each in prices),
    }


def _claims(pods: list[WaitingPod], machines: tuple[MachineType, ...]) -> tuple[PlannedClaim, ...]:
    pool = {"requirements": [_in(labels.CAPACITY_TYPE, "on-demand")]}
    return solve(pods, catalogs.templates([pool], machines)).claims


def _large(case: Case) -> tuple[MachineType, ...]:
    """Many types, each with one offer."""
    found = catalogs.machines({"catalog": "bench400"}, case["folder"])
    only = (
        (machine, next(each for each in machine.offerings if each.capacity_type == "on-demand")) for machine in found
    )
    return tuple(replace(machine, offerings=(offer,)) for machine, offer in only)


# -- equal calls at once ----------------------------------------------------------------------------------------------


def _batched(given: Given, case: Case) -> dict[str, Any]:
    asked = given.get("requests", {"A": given.get("concurrent_identical_requests", 0)})
    callers = chain.from_iterable(((f"{what}-{n}", what) for n in range(count)) for what, count in asked.items())
    calls = batches.merged(callers)
    sizes = [len(call.callers) for call in calls]
    came = given.get("instances_returned", sizes[0])
    failures = [f"error-{number}" for number in range(given.get("fleet_errors", 0))]
    shares = batches.dealt(calls[0], [f"i-{number}" for number in range(came)], failures)
    served = sum(bool(share.instance) for share in shares)
    return {
        "create_fleet_calls": len(calls),
        "total_target_capacity": sizes[0],
        "total_target_capacities": sizes,
        "each_gets": came // len(shares),
        "callers_with_instance": served,
        "callers_seeing_errors": sum(bool(share.failures) for share in shares),
        "call_error": not served,
    }


Play = Callable[[Given, Case], dict[str, Any]]
SORTS: tuple[tuple[frozenset[str], Play], ...] = (
    (frozenset({"ice_pools", "pods"}), _attempts),
    (frozenset({"ice_pools", "launch"}), _calls),
    (frozenset({"fleet_error"}), _failed),
    (frozenset({"mark_capacity_type"}), _marked),
    (frozenset({"mark_subnet"}), _marked_subnet),
    (frozenset({"concurrent_identical_requests"}), _batched),
    (frozenset({"requests"}), _batched),
    (frozenset({"pods"}), _packed),
    (frozenset({"requirements"}), _truncated),
)
"""What is given -> how it is played; the first that is given whole."""
