"""Layouts as capacity: what a machine offers once it is cut, what a pool may carry, and whether a node keeps its word.

A node is judged from its allocatable, never from a state label alone: `nvidia.com/mig.config.state` has no observed
generation and still says `success` of the previous layout until mig-manager wakes (reference gpu-partitioning, 2.6).
"""

from collections.abc import Mapping
from dataclasses import replace

from fleet.snapshot import Claim, InstanceType, Node
from model import labels
from model.fleet import Fleet
from model.kinds import MigLayout, NodePool
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.mig.geometry import models_for_instance_gpu
from model.mig.layouts import LayoutMismatch, config_name, layout_resources
from model.quantity import Resources

WHOLE = ""
"""The layout name of a machine whose GPUs are not cut."""


def is_gpu_resource(resource: str) -> bool:
    """Returns whether the resource is a whole GPU or a slice of one."""
    return resource == GPU_RESOURCE or resource.startswith((MIG_RESOURCE_PREFIX, GPU_RESOURCE + "."))


def is_cuttable(instance_type: InstanceType) -> bool:
    """Returns whether MIG can cut the GPUs of the type."""
    name, memory_mib = instance_type.gpu_name, instance_type.gpu_memory_mib
    return bool(name and models_for_instance_gpu(name, memory_mib))


def cut(instance_type: InstanceType, layout: MigLayout) -> Resources | None:
    """Returns the GPU resources of the type under a layout; None when the layout does not fit the machine's GPUs."""
    for model in models_for_instance_gpu(instance_type.gpu_name, instance_type.gpu_memory_mib):
        try:
            return layout_resources(layout, model.id, instance_type.gpu_count)
        except LayoutMismatch:
            continue
    return None


def pool_layouts(fleet: Fleet, pool: NodePool) -> dict[str, MigLayout]:
    """Returns configuration name -> layout, for the layouts that the pool allows in its order; empty without MIG."""
    mig = pool.spec.sharing.mig
    if mig is None:
        return {}
    return {config_name(layout): layout for layout in (fleet.mig_layouts[name] for name in mig.layouts)}


def layout_name(config: str) -> str:
    """Returns the declared name behind a configuration name (`all-1g.10gb-400a3253` -> `all-1g.10gb`)."""
    return config.rpartition("-")[0]


def with_gpus(resources: Resources, gpus: Mapping[str, int]) -> dict[str, int]:
    """Returns `resources` with its GPU amounts replaced by `gpus`."""
    return {name: amount for name, amount in resources.items() if not is_gpu_resource(name)} | dict(gpus)


def cut_anew(claim: Claim, layout: str, gpus: Mapping[str, int], now_s: float) -> Claim:
    """Returns the claim to be cut to another layout; `recut_at_s` is after `ready_at_s` even at the same instant."""
    asked_at_s = max(now_s, claim.ready_at_s + 0.001)
    return replace(claim, layout=layout, resources=with_gpus(claim.resources, gpus), recut_at_s=asked_at_s)


def gpu_part(resources: Resources) -> dict[str, int]:
    """Returns the GPU amounts that are not zero, by resource."""
    return {name: amount for name, amount in sorted(resources.items()) if amount and is_gpu_resource(name)}


MIG_SUCCESS = "success"


def owed(claim: Claim, node: Node) -> str:
    """Returns what the node lacks of the claim's layout and devices, in words; empty when it lacks nothing."""
    if claim.layout:
        return _cut_owed(claim, node) or _devices_owed(claim, node)
    return _devices_owed(claim, node) or _gpus_owed(claim, node)


def _cut_owed(claim: Claim, node: Node) -> str:
    if node.labels.get(labels.MIG_CONFIG) != claim.layout:
        return f"label {labels.MIG_CONFIG} is not {claim.layout}"
    state = node.labels.get(labels.MIG_CONFIG_STATE, "")
    if state != MIG_SUCCESS:
        return f"mig-manager reports {state or 'nothing yet'}"
    if gpu_part(node.allocatable) != gpu_part(claim.resources):
        return f"allocatable shows {_shown(node.allocatable)}, the layout promises {_shown(claim.resources)}"
    return ""


def _devices_owed(claim: Claim, node: Node) -> str:
    """Returns the first extended resource other than GPUs of which the node has too little."""
    for resource, amount in sorted(claim.resources.items()):
        if "/" in resource and node.allocatable.get(resource, 0) < amount and not is_gpu_resource(resource):
            return f"{resource} is {node.allocatable.get(resource, 0)}, promised {amount}"
    return ""


def _gpus_owed(claim: Claim, node: Node) -> str:
    if all(node.allocatable.get(resource, 0) >= amount for resource, amount in gpu_part(claim.resources).items()):
        return ""
    return f"allocatable shows {_shown(node.allocatable)}, promised {_shown(claim.resources)}"


def _shown(resources: Resources) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in gpu_part(resources).items()) or "no GPU"
