"""What to ask the cloud of the pools that have machines: what image and network they would get now."""

from collections.abc import Mapping

from fleet.snapshot import Claim, ImageKind, InstanceType, LaunchConfiguration
from model import labels
from model.fleet import Fleet
from model.pools import pool_hash


def image_kind(machine: InstanceType) -> ImageKind:
    """What the image of such a machine has to suit: its processor, and whose drivers it must bring."""
    makers = (labels.INSTANCE_GPU_MANUFACTURER, labels.INSTANCE_ACCELERATOR_MANUFACTURER)
    said = next((machine.labels[key] for key in makers if key in machine.labels), "")
    accelerator = said or ("nvidia" if machine.allocatable.get(labels.GPU_RESOURCE) else "")
    return ImageKind(machine.labels.get(labels.ARCH, "amd64"), accelerator)


def launch_configurations(
    fleet: Fleet, types: Mapping[str, InstanceType], claims: Mapping[str, Claim]
) -> tuple[LaunchConfiguration, ...]:
    """One question for each template that has machines, by hash; what nobody was born with is not asked for."""
    kinds: dict[str, set[ImageKind]] = {}
    for node_pool, instance_type in {(it.node_pool, it.capacity_pool.instance_type) for it in claims.values()}:
        if node_pool in fleet.node_pools and instance_type in types:
            kinds.setdefault(node_pool, set()).add(image_kind(types[instance_type]))
    asked: dict[str, LaunchConfiguration] = {}
    for node_pool, found in sorted(kinds.items()):
        pool = fleet.node_pools[node_pool]
        key = pool_hash(pool)
        known = asked[key].kinds if key in asked else ()
        asked[key] = LaunchConfiguration(key, pool.spec.template, tuple(sorted(found.union(known))))
    return tuple(birth for _, birth in sorted(asked.items()))
