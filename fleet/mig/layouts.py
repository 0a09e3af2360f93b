"""Layouts as capacity: what a machine offers once it is cut, what a pool may carry, and whether a node keeps its word.

A node is judged from its allocatable, never from a state label alone: `nvidia.com/mig.config.state` has no observed
generation and still says `success` of the previous layout until mig-manager wakes (reference gpu-partitioning, 2.6).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fleet.catalog import InstanceType
from model import labels
from model.fleet import Fleet
from model.kinds import MigLayout, NodePool
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.mig.geometry import models_for_instance_gpu
from model.mig.layouts import ALL_DISABLED, GpuCuts, LayoutMismatch, config_name, layout_resources
from model.quantity import Resources

if TYPE_CHECKING:  # fleets are checked against what is sold without what is observed
    from fleet.snapshot import Claim, CutOrder, Node, Snapshot
    from fleet.snapshot.devices import MachineDevices

WHOLE = ""
"""The layout name of a machine whose GPUs are not cut."""


_SLICES: Final = (MIG_RESOURCE_PREFIX, GPU_RESOURCE + ".")


def is_gpu_resource(resource: str) -> bool:
    """Returns whether the resource is a whole GPU or a slice of one."""
    return resource == GPU_RESOURCE or resource.startswith(_SLICES)


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
    mig, former = pool.spec.sharing.mig, fleet.former_layouts.get(pool.name)
    if mig is None:
        return {}
    if former is not None:
        return {config_name(former): former}
    return {config_name(layout): layout for layout in (fleet.mig_layouts[name] for name in mig.layouts)}


def layout_name(config: str) -> str:
    """Returns the declared name behind a configuration name (`all-1g.10gb-400a3253` -> `all-1g.10gb`)."""
    return config.rpartition("-")[0]


def with_gpus(resources: Resources, gpus: Mapping[str, int]) -> dict[str, int]:
    """Returns `resources` with its GPU amounts replaced by `gpus`."""
    return {name: amount for name, amount in resources.items() if not is_gpu_resource(name)} | dict(gpus)


def cut_anew(
    claim: "Claim",
    layout: str,
    gpus: Mapping[str, int],
    now_s: float,
    order: "CutOrder | None" = None,
    cuts: GpuCuts = (),
) -> "Claim":
    """Returns the claim to be cut to a layout; `recut_at_s` is after `ready_at_s` even at the same instant."""
    asked_at_s = max(now_s, claim.ready_at_s + 0.001)
    resources = with_gpus(claim.resources, gpus)
    return replace(claim, layout=layout, gpu_cuts=cuts, resources=resources, recut_at_s=asked_at_s, cut=order)


def gpu_part(resources: Resources) -> dict[str, int]:
    """Returns the GPU amounts that are not zero, by resource."""
    found = [name for name, amount in resources.items() if amount and is_gpu_resource(name)]
    return {name: resources[name] for name in sorted(found)}


MIG_SUCCESS = "success"
TAKES_OVER: Final = "takes over layout"
"""What a roll-out says of a pool; gangs that leave for it say it, too."""
REASSERT: Final = "muster-reassert"
"""A name that no file of mig-parted has: it is answered `failed`, and nothing is paused or changed."""


def owed(claim: "Claim", node: "Node") -> str:
    """Returns what the node lacks of the claim's layout and devices, in words; empty when it lacks nothing."""
    if claim.layout:
        return _cut_owed(claim, node) or _devices_owed(claim, node)
    return _devices_owed(claim, node) or _gpus_owed(claim, node)


def parts_owed(pool: NodePool | None, claim: "Claim", devices: "MachineDevices | None") -> str:
    """Returns that the driver gives no parts of devices where the pool says so; else empty.

    Pods that ask for parts would be started there in vain, and on the next machine after it.
    """
    dra = pool.spec.sharing.dra if pool else None
    if dra is None or dra.consumable_shares is None or claim.adopts or devices is None or devices.shares:
        return ""
    return f"no device is for several claims, and the pool has sharing.dra.consumableShares {dra.consumable_shares}"


def kept_off(snapshot: "Snapshot", claim: "Claim", node: "Node") -> bool:
    """Returns whether the taint `FOR_GANGS` might keep from the node who brings what it still owes.

    Device plugins are pods of DaemonSets, and come only where they tolerate all taints. What selects them is often a
    label that the node gets later, so that one which it lacks says nothing.
    """
    from fleet.snapshot.affinity import FOR_GANGS, tolerates

    return bool(owed(claim, node)) and any(
        all(node.labels.get(key, value) == value for key, value in daemon.node_selector.items())
        and not tolerates((FOR_GANGS,), daemon.tolerations)
        for daemon in snapshot.daemon_overheads
    )


def due_config(pool: NodePool | None, claim: "Claim", types: Mapping[str, InstanceType]) -> str:
    """Returns the value that the label `nvidia.com/mig.config` has to have; empty where MIG cuts no such GPUs.

    Whole GPUs that could be cut have the template's, else `all-disabled`, as they are born with.
    """
    if claim.layout:
        return claim.layout
    if pool is not None and pool.spec.sharing.dynamic_mig:
        return ""
    instance_type = types.get(claim.capacity_pool.instance_type)
    if instance_type is None or not is_cuttable(instance_type):
        return ""
    return (pool.spec.template.labels.get(labels.MIG_CONFIG, "") if pool else "") or ALL_DISABLED


def departed(claim: "Claim", node: "Node", config: str) -> str:
    """Returns how the label, state or GPUs of a node depart from its claim, declared and real; empty where they do not.

    `config` is what its label has to be (`due_config`). Of whole GPUs only a cut is one: fewer of them are no layout.
    """
    label, state = node.labels.get(labels.MIG_CONFIG, ""), node.labels.get(labels.MIG_CONFIG_STATE, "")
    if claim.layout:
        promised = gpu_part(claim.resources)
        right = (label, state, gpu_part(node.allocatable)) == (config, MIG_SUCCESS, promised)
    else:
        right = not config or (label in {"", config} and not _has_slices(node.allocatable))
    if right:
        return ""
    said = f"label {label or 'missing'}, mig-manager says {state or 'nothing'}, allocatable {_shown(node.allocatable)}"
    return f"declared {config} ({_shown(claim.resources)}); real: {said}"


def _has_slices(resources: Resources) -> bool:
    slices = [it for it in resources if it.startswith(MIG_RESOURCE_PREFIX)]  # of every machine, and hardly any has some
    return any(resources[it] for it in slices) if slices else False


def slices_gone(claim: "Claim", node: "Node") -> bool:
    """Returns whether the GPUs are cut otherwise than the claim says, so that work there has to leave before a cut.

    A node that shows no GPUs at all has its device plugin paused: how its GPUs are cut is not known.
    """
    real, order = gpu_part(node.allocatable), claim.cut
    if order is not None and order.before is not None:
        return False  # only GPUs that nobody holds are cut
    if order is not None and order.former and node.labels.get(labels.MIG_CONFIG) not in {claim.layout, REASSERT}:
        return True
    return bool(real) and real != gpu_part(claim.resources)


def _cut_owed(claim: "Claim", node: "Node") -> str:
    if node.labels.get(labels.MIG_CONFIG) != claim.layout:
        return f"label {labels.MIG_CONFIG} is not {claim.layout}"
    state = node.labels.get(labels.MIG_CONFIG_STATE, "")
    if state != MIG_SUCCESS:
        return f"mig-manager reports {state or 'nothing yet'}"
    if gpu_part(node.allocatable) != gpu_part(claim.resources):
        return f"allocatable shows {_shown(node.allocatable)}, the layout promises {_shown(claim.resources)}"
    return ""


def _devices_owed(claim: "Claim", node: "Node") -> str:
    """Returns the first extended resource other than GPUs of which the node has too little."""
    for resource, amount in sorted(claim.resources.items()):
        if "/" in resource and node.allocatable.get(resource, 0) < amount and not is_gpu_resource(resource):
            return f"{resource} is {node.allocatable.get(resource, 0)}, promised {amount}"
    return ""


def _gpus_owed(claim: "Claim", node: "Node") -> str:
    if all(node.allocatable.get(resource, 0) >= amount for resource, amount in gpu_part(claim.resources).items()):
        return ""
    return f"allocatable shows {_shown(node.allocatable)}, promised {_shown(claim.resources)}"


def _shown(resources: Resources) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in gpu_part(resources).items()) or "no GPU"
