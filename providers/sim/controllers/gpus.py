"""The GPUs of simulated nodes: how each is cut, and what the device plugin and feature discovery make of that.

Source: NVIDIA/k8s-device-plugin v0.20, `internal/rm/device_map.go` (resources), `internal/lm/{mig-strategy,resource,
nvml}.go` (labels).
"""

import itertools
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from providers.sim.controllers.objects import Obj, labels_of
from providers.sim.controllers.sharing import NOT_SHARED, GpuSharing
from providers.sim.machines import NodeShape, ShapeOf

GPU: Final = "nvidia.com/gpu"
Strategy = Literal["none", "single", "mixed"]
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
ULTRASERVER: Final = "topology.k8s.aws/ultraserver-id"
CLIQUE_ID: Final = 32766
"""The only clique of a cluster whose switches are not partitioned."""


@dataclass(frozen=True, slots=True)
class PhysicalGpu:
    """One physical GPU: not cut (`profiles` None), or in MIG mode with so many instances of each profile."""

    profiles: Mapping[str, int] | None = None

    @property
    def mig_enabled(self) -> bool:
        """Whether MIG mode is on."""
        return self.profiles is not None


class GpuHardware:
    """How the GPUs of every node are cut now; forgotten with the node, since geometry does not survive a machine."""

    def __init__(self, shape_of: ShapeOf) -> None:
        self._shape_of = shape_of
        self._cut: dict[str, tuple[PhysicalGpu, ...]] = {}
        self._trays: dict[str, tuple[str, int]] = {}

    def shape(self, node: Obj) -> NodeShape | None:
        """The shape of a node with GPUs, with its NVLink domain where it is in one; None for any other node."""
        shape = self._shape_of(labels_of(node).get(INSTANCE_TYPE, ""))
        if shape is None or not shape.gpu_count:
            return None
        return replace(shape, clique=self._clique(node, shape.ultraserver)) if shape.ultraserver else shape

    def _clique(self, node: Obj, machines: int) -> str:
        """`<cluster uuid>.<clique id>` of the UltraServer that a machine is in.

        The cloud's label says which; without it machines of a type and zone fill one after the other, as they come.
        """
        labels, uid = labels_of(node), node["metadata"]["uid"]
        named = labels.get(ULTRASERVER)
        if named is None:
            rack = f"{labels.get(INSTANCE_TYPE)}/{labels.get(ZONE, '')}"
            taken = Counter(number for kind, number in self._trays.values() if kind == rack)
            first = next(number for number in itertools.count() if taken[number] < machines)
            named = "/".join(map(str, self._trays.setdefault(uid, (rack, first))))
        return f"{uuid.uuid5(uuid.NAMESPACE_OID, named)}.{CLIQUE_ID}"

    def of(self, node: Obj) -> tuple[PhysicalGpu, ...]:
        """Returns the GPUs of a node by index; whole until `cut` was called."""
        shape = self.shape(node)
        return self._cut.get(node["metadata"]["uid"], (PhysicalGpu(),) * (shape.gpu_count if shape else 0))

    def cut(self, node: Obj, gpus: tuple[PhysicalGpu, ...]) -> None:
        """Change the geometry of a node's GPUs."""
        self._cut[node["metadata"]["uid"]] = gpus

    def forget(self, node: Obj) -> None:
        """The machine is gone."""
        self._cut.pop(node["metadata"]["uid"], None)
        self._trays.pop(node["metadata"]["uid"], None)


def resource_name(profile: str) -> str:
    """The extended resource of a MIG profile: `1g.5gb+me` -> `nvidia.com/mig-1g.5gb.me`."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def profile_counts(gpus: tuple[PhysicalGpu, ...]) -> dict[str, int]:
    """How many instances of each profile all GPUs together have, in order of their names."""
    counts: dict[str, int] = {}
    for gpu in gpus:
        for profile, count in (gpu.profiles or {}).items():
            counts[profile] = counts.get(profile, 0) + count
    return {profile: counts[profile] for profile in sorted(counts) if counts[profile]}


# -- the device plugin ------------------------------------------------------------------------------------------------


class PluginFails(Exception):
    """The device plugin does not start: the node has no GPU resources."""


def device_resources(
    shape: NodeShape, gpus: tuple[PhysicalGpu, ...], strategy: Strategy, sharing: GpuSharing = NOT_SHARED
) -> dict[str, int]:
    """The resources that the device plugin advertises, those of which there are none left out; raises `PluginFails`."""
    if sharing.strategy == "mps" and strategy != "none" and profile_counts(gpus):
        raise PluginFails("sharing using MPS is not supported for MIG devices")
    offered = {
        sharing.offered(resource): count * sharing.replicas.get(resource, 1)
        for resource, count in _devices(shape, gpus, strategy).items()
    }
    return {resource: count for resource, count in offered.items() if count}


def _devices(shape: NodeShape, gpus: tuple[PhysicalGpu, ...], strategy: Strategy) -> dict[str, int]:
    """Devices by resource. Strategy `none` does not look whether a GPU is cut (`buildGPUDeviceMap`)."""
    whole = sum(not gpu.mig_enabled for gpu in gpus)
    counts = profile_counts(gpus)
    if strategy == "none" or whole == len(gpus):
        return {GPU: len(gpus)}
    if strategy == "mixed":
        return {GPU: whole, **{resource_name(profile): count for profile, count in counts.items()}}
    if whole:
        raise PluginFails("all devices on the node must be configured with the same migEnabled value")
    if not all(profile_counts((gpu,)) for gpu in gpus):
        raise PluginFails("at least one device with migEnabled=true was not configured correctly")
    if len({_told_apart(shape, profile) for profile in counts}) > 1:
        raise PluginFails("more than one MIG device type present on node")
    return {GPU: sum(counts.values())}


def _told_apart(shape: NodeShape, profile: str) -> object:
    """By what the plugin tells instances apart: what NVML says of them, not their names."""
    attributes = shape.mig_attributes.get(profile)
    return profile if attributes is None else tuple(sorted(attributes.items()))


# -- feature discovery ------------------------------------------------------------------------------------------------

_FAMILIES: Final = (
    ((7, 0), "volta"),
    ((7, 5), "turing"),
    ((8, 0), "ampere"),
    ((8, 9), "ada-lovelace"),
    ((9, 0), "hopper"),
    ((10, 0), "blackwell"),
)
"""Compute capability from which on a GPU is of the family."""


def discovery_labels(
    shape: NodeShape,
    gpus: tuple[PhysicalGpu, ...],
    strategy: Strategy,
    sharing: GpuSharing = NOT_SHARED,
    *,
    started_s: float = 0.0,
) -> dict[str, str] | None:
    """The labels that feature discovery keeps on the node; None: it fails and leaves what there is.

    Labels of its own that are not among them are to be removed.
    """
    mps = sharing.strategy == "mps"
    if mps and any(gpu.mig_enabled for gpu in gpus):
        return None  # `isMPSCapable`: MPS sharing is not supported for MIG devices
    cut = _mig_labels(shape, gpus, strategy, sharing) if strategy != "none" else {}
    found = {
        "nvidia.com/gfd.timestamp": str(int(started_s)),
        "nvidia.com/gpu.present": "true",
        "nvidia.com/mig.capable": str(shape.mig_capable).lower(),
        "nvidia.com/mps.capable": str(mps).lower(),
        **resource_labels(shape, gpus, sharing),
        **cut,
    }
    return found | ({"nvidia.com/gpu.clique": shape.clique} if shape.clique else {})


def resource_labels(shape: NodeShape, gpus: tuple[PhysicalGpu, ...], sharing: GpuSharing) -> dict[str, str]:
    """The labels of whole GPUs. They count all; how they are shared they say only while one of them is not cut."""
    some_whole = not all(gpu.mig_enabled for gpu in gpus)
    labels = _base(GPU, (shape.gpu_product,), len(gpus), sharing if some_whole else None)
    labels[f"{GPU}.memory"] = str(shape.gpu_memory_mib)
    if shape.compute_capability is not None:
        major, minor = shape.compute_capability
        since = [family for least, family in _FAMILIES if (major, minor) >= least]
        labels |= {f"{GPU}.family": since[-1] if since else "undefined"}
        labels |= {f"{GPU}.compute.major": str(major), f"{GPU}.compute.minor": str(minor)}
    return labels


def _mig_labels(
    shape: NodeShape, gpus: tuple[PhysicalGpu, ...], strategy: Strategy, sharing: GpuSharing
) -> dict[str, str]:
    counts = profile_counts(gpus)
    labels: dict[str, str] = {"nvidia.com/mig.strategy": strategy}
    if strategy == "mixed":
        for profile, count in counts.items():
            labels |= _instance_labels(resource_name(profile), shape, profile, count, sharing)
    elif any(gpu.mig_enabled for gpu in gpus):
        if len(counts) == 1 and all(profile_counts((gpu,)) for gpu in gpus):
            ((profile, count),) = counts.items()
            return labels | _instance_labels(GPU, shape, profile, count, sharing)
        product = _product(shape.gpu_product, "MIG", "INVALID")
        labels |= {f"{GPU}.product": product, f"{GPU}.sharing-strategy": ""}
        labels |= {f"{GPU}.{each}": "0" for each in ("count", "memory", "replicas")}
    return labels


def _instance_labels(resource: str, shape: NodeShape, profile: str, count: int, sharing: GpuSharing) -> dict[str, str]:
    parts = (shape.gpu_product, "MIG", profile.replace("+", "."))
    attributes = shape.mig_attributes.get(profile, {})
    said = {f"{resource}.{name}": str(value) for name, value in attributes.items()}
    return _base(resource, parts, count, sharing) | said


def _base(resource: str, parts: tuple[str, ...], count: int, sharing: GpuSharing | None) -> dict[str, str]:
    """Product, count and replicas of a resource; `sharing` None: sharing does not apply, replicas are 0."""
    replicas = 0 if sharing is None else sharing.replicas.get(resource, 1)
    shared = sharing is not None and replicas > 1
    shown = (*parts, "SHARED") if shared and sharing is not None and not sharing.renamed else parts
    return {
        f"{resource}.product": _product(*shown),
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(replicas),
        f"{resource}.sharing-strategy": sharing.strategy if shared and sharing is not None else "none",
    }


def _product(*parts: str) -> str:
    """A product's name as a label may be: other characters go, blanks become one dash."""
    return "-".join("-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", part).split()) for part in parts)
