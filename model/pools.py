"""What follows from a `NodePool` alone: its requirements on labels, its preferences, the hash that tells drift."""

import hashlib
import json
from collections.abc import Iterator, Mapping

from model import labels
from model.index import Index, derived
from model.kinds.node_pool import GpuSelector, NodePool
from model.labels import CapacityType
from model.requirements import Requirement, Requirements


def pool_requirements(pool: NodePool) -> Requirements:
    """Everything the pool requires of an offer or a node, as one set of requirements.

    Instance types, families, zones, capacity types, GPUs and the free terms hold at once; the template's labels, the
    pool's name and its MIG layouts are known values, so that work which asks for them finds the pool. Raises
    `InvalidRequirement` for a malformed term (a loaded fleet has none).
    """
    spec = pool.spec
    sugar = Requirements(dict(_sugar(pool)))
    return sugar & Requirements.from_terms(spec.requirements) & Requirements.from_labels(spec.template.labels)


def _sugar(pool: NodePool) -> Iterator[tuple[str, Requirement]]:
    spec = pool.spec
    listed = (
        (labels.NODE_POOL, (pool.name,)),
        (labels.INSTANCE_TYPE, spec.instance_types),
        (labels.INSTANCE_FAMILY, spec.instance_families),
        (labels.ZONE, spec.zones),
        (labels.CAPACITY_TYPE, spec.capacity_types),
        (labels.MIG_LAYOUT, spec.sharing.mig.layouts if spec.sharing.mig else ()),
    )
    yield from ((key, Requirement.one_of(*values)) for key, values in listed if values)
    if spec.gpu is not None:
        yield from _gpu(spec.gpu)


def _gpu(gpu: GpuSelector) -> Iterator[tuple[str, Requirement]]:
    """A pool that selects GPUs has at least one, even when it names no property of it."""
    yield labels.INSTANCE_GPU_COUNT, Requirement(complement=True, gte=gpu.min_count or 1, lte=gpu.max_count)
    if gpu.models:
        yield labels.INSTANCE_GPU_NAME, Requirement.one_of(*gpu.models)
    if gpu.min_memory_mib is not None:
        yield labels.INSTANCE_GPU_MEMORY, Requirement(complement=True, gte=gpu.min_memory_mib)


def capacity_rank(pool: NodePool, capacity_type: CapacityType) -> int:
    """The place of a capacity type in the pool's order of preference.

    On demand right after spot shares its place, and the cheaper counts: nobody wants a machine that can be taken away
    for more money (aws/karpenter-provider-aws `pkg/providers/instance/filter`, `SpotOfferingFilter`).
    """
    order = pool.spec.capacity_types
    place = order.index(capacity_type)
    return place - 1 if order[max(0, place - 1) : place + 1] == ("spot", "on-demand") else place


HASH_VERSION = "v2"
_READ_LIVE = {"expire_after", "termination_grace_period", "images"}
"""Of machines that stand it is the present declaration that counts, so that a change needs no new ones."""


def pool_hash(pool: NodePool) -> str:
    """Hash of what a machine is born with. Requirements are left out: they are judged one by one (`drift`).

    The version prefix lets a new release change the form without every machine drifting (Karpenter
    `karpenter.sh/nodepool-hash-version`).
    """
    # asked of the pool, which has been read: its template would need a serializer of its own
    dumped = pool.model_dump(mode="json", include={"spec": {"template"}}, exclude={"spec": {"template": _READ_LIVE}})
    template = dumped["spec"]["template"]
    if not template["annotations"]:
        del template["annotations"]  # a field that came later must not change the hash of pools that do not use it
    placement = pool.spec.placement
    if placement.fabric == "Requested":  # each machine for itself: those that have none are as the pool wants them
        placement = placement.model_copy(update={"fabric": False})
    born_with = {
        "template": template,
        # by the manifest's words, as the hash must outlive the names that code gives to fields
        "placement": placement.model_dump(mode="json", by_alias=True, exclude={"strategy"}),
        "sharing": _shared(pool),
    }
    text = json.dumps(born_with, sort_keys=True, separators=(",", ":"))
    return f"{HASH_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _shared(pool: NodePool) -> dict[str, object]:
    """How GPUs are shared and offered, without what is not said: these fields came later."""
    sharing = pool.spec.sharing
    ways = {"time_slicing": sharing.time_slicing, "mps": sharing.mps}
    found: dict[str, object] = {
        name: way and way.model_dump(mode="json", exclude_defaults=True) for name, way in ways.items()
    }
    if sharing.dra is None:
        return found
    # how many claims may have a device the driver is told, and no machine is born with it
    return found | {"dra": sharing.dra.model_dump(mode="json", exclude_defaults=True, exclude={"consumable_shares"})}


@derived()
def pool_hashes(_index: Index, pools: Mapping[str, NodePool]) -> Mapping[str, str]:
    """Pool name -> hash of what its machines are born with."""
    return {name: pool_hash(pool) for name, pool in pools.items()}
