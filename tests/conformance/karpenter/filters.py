"""`launch-filter`: one filter of the launch at a time."""

from collections.abc import Mapping
from typing import Any

from bench.reference.karpenter.launch import filters
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.requirements import requirements

FILTERS: Mapping[str, filters.Filter] = {
    "capacity-block": filters.capacity_block,
    "capacity-reservation-type": filters.reservation_type,
    "compatible-available": filters.compatible_available,
    "exotic": filters.exotic,
    "reserved-offering": filters.reserved_offering,
    "spot-offering": filters.spot_offering,
}


def run(case: Case) -> dict[str, Any]:
    """Which types are left, and which of their offers."""
    given = case["given"]
    machines = catalogs.machines(given["instance_types"], case["folder"])
    wanted = filters.Wanted(requirements(given["requirements"]), catalogs.amounts(given.get("requests", {})))
    left = FILTERS[given["filter"]](machines, wanted)
    kept = {machine.name: machine for machine in left}
    reservations = [offer.reservation_id for machine in left for offer in machine.offerings if offer.reservation_id]
    return {
        "kept": [machine.name for machine in machines if machine.name in kept],
        "rejected": [machine.name for machine in machines if machine.name not in kept],
        "kept_offerings": {name: len(machine.offerings) for name, machine in kept.items()},
        "kept_reservation": reservations[0] if len(reservations) == 1 else reservations,
        "kept_reservations": sorted(reservations),
    }
