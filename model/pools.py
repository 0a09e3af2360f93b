"""What a `NodePool` asks of a machine, in the language of label requirements."""

from collections.abc import Iterator

from model import labels
from model.kinds.node_pool import GpuSelector, NodePool
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
