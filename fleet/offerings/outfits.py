"""What a pool makes of an instance type: image, disks and kubelet decide what is left for pods of the same hardware."""

from dataclasses import replace

from fleet.offerings import node_sizes
from fleet.snapshot import InstanceType
from fleet.snapshot.memo import remembered
from model.kinds import NodePool
from model.kinds.node_template import NodeTemplate
from model.quantity import Resources

_USUAL = node_sizes.settings_of(NodeTemplate())


@remembered(4096)
def outfitted(pool: NodePool, machine: InstanceType) -> InstanceType:
    """The type with the amounts that nodes of the pool have; itself where the pool says nothing that matters."""
    settings = node_sizes.settings_of(pool.spec.template)
    if settings == _USUAL or machine.hardware is None:
        return machine
    return replace(
        machine,
        capacity={**machine.capacity, **node_sizes.capacity(machine.hardware, settings)},
        allocatable={**machine.allocatable, **node_sizes.allocatable(machine.hardware, settings)},
    )


def enriched(machine: InstanceType, more: Resources) -> InstanceType:
    """The type with further resources, as an overlay tells of them."""
    if not more:
        return machine
    return replace(machine, capacity={**machine.capacity, **more}, allocatable={**machine.allocatable, **more})
