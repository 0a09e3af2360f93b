"""Computes what pods will find on a machine before there is one: catalogue amounts, corrected by what was measured.

A pool's image, disks and kubelet change what is left of the same hardware. An overlay adds resources. And a node that
has joined says what it really has: formulas take the largest part of memory that any type loses to its hypervisor, so
that most machines have more; of several the smallest counts (Karpenter's cache of discovered capacity).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.catalog import InstanceType, NodeProfiles
from model.index import Index, derived
from model.kinds import NodePool
from model.quantity import CPU, Resources

if TYPE_CHECKING:  # fleets are checked against what is sold without what is observed
    from fleet.snapshot import Claim, Measured, MeasuredKind, Node


@derived(4096)
def profiled(index: Index, profiles: NodeProfiles, pool: NodePool, machine: InstanceType) -> InstanceType:
    """Returns the instance type with the amounts that nodes of the pool have (image, disks, kubelet settings)."""
    return _profiles_of(index, profiles, pool)(machine)


@derived(64)
def _profiles_of(_index: Index, profiles: NodeProfiles, pool: NodePool) -> Callable[[InstanceType], InstanceType]:
    """Returns what sizes the machines of a pool: thousands of types are asked, and the pool says the same of all."""
    return profiles.of(pool.spec.template)


def with_capacity(machine: InstanceType, more: Resources) -> InstanceType:
    """Returns the instance type with further resources added, as an overlay declares them."""
    if not more:
        return machine
    return replace(machine, capacity={**machine.capacity, **more}, allocatable={**machine.allocatable, **more})


KEPT_FOR_NODES = (CPU, "memory", "ephemeral-storage")
"""The resources of which a kubelet keeps a part from pods."""
RESOURCES = (*KEPT_FOR_NODES, "pods")
"""The resources that a kubelet measures; devices follow from the MIG layout and are not taken from nodes."""
DAY_S = 86_400.0
KEPT_DAYS = 30
"""Days for which a measurement counts; older machines had other images or settings."""


def measure(claims: Mapping[str, "Claim"], nodes: Mapping[str, "Node"]) -> "dict[MeasuredKind, Resources]":
    """Returns the smallest allocatable of the machines that are ready, by instance type and template.

    The hash of the template stands for the image and the settings of the kubelet.
    """
    from fleet.snapshot import ClaimState

    found: dict[MeasuredKind, Resources] = {}
    for claim in claims.values():
        node = nodes.get(claim.node)
        if claim.state is ClaimState.READY and node is not None and node.ready:
            kind = claim.capacity_pool.instance_type, claim.pool_hash
            seen = {name: node.allocatable[name] for name in RESOURCES if node.allocatable.get(name)}
            found[kind] = smallest(found.get(kind, seen), seen)
    return found


def smallest(one: Resources, other: Resources) -> Resources:
    """Returns the smaller amount of each resource; one that only one side names counts as that side has it."""
    return {
        name: min(one.get(name, other.get(name, 0)), other.get(name, one.get(name, 0))) for name in {**one, **other}
    }


def corrected(computed: Resources, measured: Resources | None) -> Resources:
    """Returns the computed amounts with measured ones in their place where there are any."""
    return computed if measured is None else {**computed, **measured}


@dataclass(slots=True)
class DiscoveredCapacity:
    """`DiscoveredCapacity` remembers the allocatable of machines seen within the last `KEPT_DAYS`, day by day.

    Whoever holds it calls `learn` now and then (Karpenter's discovered capacity cache).
    """

    view: "Measured" = field(default_factory=dict)
    """The smallest allocatable of all days by instance type and template; the same object until it changes."""
    _days: "dict[int, dict[MeasuredKind, Resources]]" = field(default_factory=dict)

    def learn(self, claims: Mapping[str, "Claim"], nodes: Mapping[str, "Node"], now_s: float) -> None:
        """Adds what the ready machines of this moment have, and forgets days that are too old."""
        today = int(now_s // DAY_S)
        seen = self._days.setdefault(today, {})
        for kind, amounts in measure(claims, nodes).items():
            seen[kind] = smallest(seen.get(kind, amounts), amounts)
        self._days = {day: kinds for day, kinds in self._days.items() if day > today - KEPT_DAYS}
        least: dict[MeasuredKind, Resources] = {}
        for _, kinds in sorted(self._days.items()):
            for kind, amounts in kinds.items():
                least[kind] = smallest(least.get(kind, amounts), amounts)
        if least != self.view:
            self.view = least
