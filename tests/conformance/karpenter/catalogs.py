"""Machine types, pools and pods as the cases write them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.reference.karpenter.buy import (
    MachineType,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    WaitingPod,
    Weighted,
)
from model import labels
from model.requirements import Requirement, Requirements
from tests.conformance.karpenter.requirements import requirements

CANONICAL = {"cpu_m": "cpu", "memory_bytes": "memory"}
_RESERVED_KEYS = {
    "reservation_type": labels.CAPACITY_RESERVATION_TYPE,
    "interruptible": labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
}
_PLACES = ("reservation_capacity", "capacity", "remaining")
_AMOUNTS = frozenset({*CANONICAL, "pods"})


def amounts(given: Mapping[str, int]) -> dict[str, int]:
    """Resources in canonical amounts."""
    return {CANONICAL.get(name, name): amount for name, amount in given.items()}


def machines(given: Any, folder: Path) -> tuple[MachineType, ...]:
    """Machine types: a list, or a catalogue by name, `minus` what is taken out of it (`minus arm64 in zone-2`)."""
    if isinstance(given, list):
        return tuple(machine(each) for each in given)
    name, _, without = given["catalog"].partition(" minus ")
    words = frozenset(without.split()) - {"in"}
    found = (_without(each, words) for each in _catalog(folder, name))
    return tuple(each for each in found if each.offerings)


def _without(given: MachineType, words: frozenset[str]) -> MachineType:
    """The type without the offers that all the words are said of: architecture, system, zone or capacity type."""
    own = {value for requirement in given.requirements.values() for value in requirement.values}
    left = (each for each in given.offerings if not words or not words <= own | {each.zone, each.capacity_type})
    return replace(given, offerings=tuple(left))


@cache
def _catalog(folder: Path, name: str) -> tuple[MachineType, ...]:
    catalogs = json.loads((folder / "catalogs.json").read_text("utf-8"))["catalogs"]
    return tuple(machine(each) for each in catalogs[name])


def machine(given: Mapping[str, Any]) -> MachineType:
    """One machine type."""
    capacity = amounts(given.get("capacity", {})) or _bare(given)
    overhead = amounts(given.get("overhead", {}))
    carried = {labels.INSTANCE_TYPE: (given["name"],), labels.ARCH: given.get("arch"), labels.OS: given.get("os")}
    carried |= {key: (value,) for key, value in given.get("labels", {}).items()}
    listed = {key: (each,) if isinstance(each, str) else tuple(each) for key, each in carried.items() if each}
    allocatable = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
    return MachineType(
        given["name"],
        Requirements({key: Requirement.one_of(*values) for key, values in listed.items()}),
        capacity,
        allocatable,
        tuple(_offering(each, allocatable) for each in given["offerings"]),
    )


def _bare(given: Mapping[str, Any]) -> dict[str, int]:
    """Amounts that stand beside the name, as in the cases about filters."""
    return amounts({name: given[name] for name in sorted(_AMOUNTS) if name in given} | given.get("resources", {}))


def _offering(given: Mapping[str, Any], allocatable: Mapping[str, int]) -> ReferenceOffering:
    override, reserved = given.get("capacity_override"), given["capacity_type"] == "reserved"
    told = {label: given[key] for key, label in _RESERVED_KEYS.items() if key in given}
    return ReferenceOffering(
        capacity_type=given["capacity_type"],
        zone=given.get("zone", ""),
        price_usd_h=given.get("price", 0.0),
        available=given.get("available", True),
        reservation_id=given.get("reservation_id", ""),
        reserved_left=next((given[word] for word in _PLACES if word in given), int(reserved)),
        labels={key: str(value).lower() for key, value in told.items()},
        allocatable=amounts(override) if override else None,
    )


def templates(given: Iterable[Mapping[str, Any]], known: tuple[MachineType, ...]) -> list[PoolTemplate]:
    """Pools that may buy all the machine types known."""
    return [
        PoolTemplate(
            each.get("name", f"pool-{number}"),
            known,
            requirements(each.get("requirements", [])) & Requirements.from_labels(each.get("labels", {})),
            weight=each.get("weight", 0),
            remaining=amounts(each["limits"]) if "limits" in each else None,
        )
        for number, each in enumerate(given)
    ]


_BESIDE = frozenset({"app", "arch", "instance_type", "labels", "name", "node_affinity", "node_selector", "spread"})
_BESIDE_TOO = frozenset({"preferred_zone", "zone"})


def pod(number: int, given: Mapping[str, Any], **more: Any) -> WaitingPod:
    """One pod: what is no word of the cases is a resource it requests."""
    chosen = {labels.ZONE: given.get("zone"), labels.INSTANCE_TYPE: given.get("instance_type")}
    chosen |= {labels.ARCH: given.get("arch"), **given.get("node_selector", {})}
    liked = given.get("preferred_zone")
    affinity = given.get("node_affinity")
    ask = PodSpecification(
        amounts({name: amount for name, amount in given.items() if name not in _BESIDE | _BESIDE_TOO}),
        labels={**({"app": given["app"]} if "app" in given else {}), **given.get("labels", {})},
        selector=Requirements.from_labels({key: value for key, value in chosen.items() if value}),
        required=(requirements(affinity),) if affinity else (),
        preferred=(Weighted(1, Requirements.from_labels({labels.ZONE: liked})),) if liked else (),
        **more,
    )
    return WaitingPod(f"default/pod-{number:03}", ask, float(number))
