"""Machine types, pools and pods as the cases write them, in the words of Karpenter's order."""

from collections.abc import Iterable, Mapping
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


def amounts(given: Mapping[str, int]) -> dict[str, int]:
    """Resources in canonical amounts."""
    return {CANONICAL.get(name, name): amount for name, amount in given.items()}


def machines(given: Iterable[Mapping[str, Any]]) -> tuple[MachineType, ...]:
    """Machine types as Karpenter's order knows them."""
    return tuple(machine(each) for each in given)


def machine(given: Mapping[str, Any]) -> MachineType:
    """One machine type."""
    capacity = amounts(given.get("capacity", {}))
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
        tuple(map(_offering, given["offerings"])),
    )


def _offering(given: Mapping[str, Any]) -> ReferenceOffering:
    return ReferenceOffering(
        given["capacity_type"], given.get("zone", ""), given.get("price", 0.0), given.get("available", True)
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
