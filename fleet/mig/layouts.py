"""Layouts as capacity: what a machine offers once it is cut, and which configurations a pool may carry."""

from collections.abc import Mapping
from dataclasses import replace

from fleet.snapshot import Claim, InstanceType
from model.fleet import Fleet
from model.kinds import MigLayout, NodePool
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.mig.geometry import models_for_instance_gpu
from model.mig.layouts import LayoutMismatch, config_name, layout_resources
from model.quantity import Resources

WHOLE = ""
"""The layout name of a machine whose GPUs are not cut."""


def is_gpu_resource(resource: str) -> bool:
    """Whether the resource is a whole GPU or a slice of one."""
    return resource == GPU_RESOURCE or resource.startswith((MIG_RESOURCE_PREFIX, GPU_RESOURCE + "."))


def cut(instance_type: InstanceType, layout: MigLayout) -> Resources | None:
    """The GPU resources of the type under a layout; None when the layout does not fit the machine's GPUs."""
    for model in models_for_instance_gpu(instance_type.gpu_name, instance_type.gpu_memory_mib):
        try:
            return layout_resources(layout, model.id, instance_type.gpu_count)
        except LayoutMismatch:
            continue
    return None


def pool_layouts(fleet: Fleet, pool: NodePool) -> dict[str, MigLayout]:
    """Configuration name -> layout for every layout the pool allows, in the pool's order; empty without MIG."""
    mig = pool.spec.sharing.mig
    if mig is None:
        return {}
    return {config_name(layout): layout for layout in (fleet.mig_layouts[name] for name in mig.layouts)}


def layout_name(config: str) -> str:
    """The declared name behind a configuration name (`all-1g.10gb-400a3253` -> `all-1g.10gb`)."""
    return config.rpartition("-")[0]


def with_gpus(resources: Resources, gpus: Mapping[str, int]) -> dict[str, int]:
    """`resources` with its GPU amounts replaced by `gpus`."""
    return {name: amount for name, amount in resources.items() if not is_gpu_resource(name)} | dict(gpus)


def cut_anew(claim: Claim, layout: str, gpus: Mapping[str, int], now_s: float) -> Claim:
    """The claim asked to be cut to another layout; `recut_at_s` is after `ready_at_s` even at the same instant."""
    asked_at_s = max(now_s, claim.ready_at_s + 0.001)
    return replace(claim, layout=layout, resources=with_gpus(claim.resources, gpus), recut_at_s=asked_at_s)


def gpu_part(resources: Resources) -> dict[str, int]:
    """Only the GPU amounts that are not zero."""
    return {name: amount for name, amount in sorted(resources.items()) if amount and is_gpu_resource(name)}
