"""The GPUs of simulated nodes: how each is cut, and what the device plugin and feature discovery make of that.

Resource and label names after k8s-device-plugin `internal/rm`, `internal/lm`: strategy mixed gives `nvidia.com/gpu` for
GPUs that are not cut and `nvidia.com/mig-<profile>` for each profile, '+' written '.'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from providers.sim.controllers.objects import Obj, labels_of
from providers.sim.machines import NodeShape, ShapeOf

Strategy = Literal["none", "single", "mixed"]
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


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

    def shape(self, node: Obj) -> NodeShape | None:
        """The shape of a node with GPUs; None for any other node."""
        shape = self._shape_of(labels_of(node).get(INSTANCE_TYPE, ""))
        return shape if shape is not None and shape.gpu_count else None

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


def _uniform(gpus: tuple[PhysicalGpu, ...]) -> str | None:
    """The one profile of a node that strategy single can serve: every GPU cut into as many equal instances."""
    kinds = {tuple(sorted((gpu.profiles or {}).items())) for gpu in gpus}
    if len(kinds) != 1 or not all(gpu.mig_enabled for gpu in gpus):
        return None
    (kind,) = kinds
    return kind[0][0] if len(kind) == 1 else None


def device_resources(gpus: tuple[PhysicalGpu, ...], strategy: Strategy) -> dict[str, int]:
    """What the device plugin advertises."""
    whole = sum(not gpu.mig_enabled for gpu in gpus)
    counts = profile_counts(gpus)
    if strategy == "none" or not any(gpu.mig_enabled for gpu in gpus):
        return {"nvidia.com/gpu": whole}
    if strategy == "single":
        return {"nvidia.com/gpu": sum(counts.values()) if _uniform(gpus) else 0}
    return {"nvidia.com/gpu": whole, **{resource_name(profile): count for profile, count in counts.items()}}


def discovery_labels(shape: NodeShape, gpus: tuple[PhysicalGpu, ...], strategy: Strategy, now: float) -> dict[str, str]:
    """The labels GPU feature discovery keeps on the node; `mig-*` labels not among them are to be removed."""
    cut = any(gpu.mig_enabled for gpu in gpus)
    common = {
        "nvidia.com/gfd.timestamp": str(int(now)),
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(shape.gpu_count),
        "nvidia.com/gpu.product": shape.gpu_product,
        "nvidia.com/gpu.memory": str(shape.gpu_memory_mib),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true" if shape.mig_capable else "false",
        "nvidia.com/mig.strategy": strategy,
    }
    if not cut or strategy == "none":
        return common
    if strategy == "single":
        return {**common, **_single_labels(shape, gpus)}
    replicas = "0" if all(gpu.mig_enabled for gpu in gpus) else "1"
    return {**common, "nvidia.com/gpu.replicas": replicas, **_mixed_labels(shape, gpus)}


def _single_labels(shape: NodeShape, gpus: tuple[PhysicalGpu, ...]) -> dict[str, str]:
    profile = _uniform(gpus)
    if profile is None:
        invalid = {"nvidia.com/gpu.count": "0", "nvidia.com/gpu.memory": "0", "nvidia.com/gpu.replicas": "0"}
        return {**invalid, "nvidia.com/gpu.product": f"{shape.gpu_product}-MIG-INVALID"}
    count = sum(profile_counts(gpus).values())
    return {"nvidia.com/gpu.product": _product(shape, profile), "nvidia.com/gpu.count": str(count)}


def _mixed_labels(shape: NodeShape, gpus: tuple[PhysicalGpu, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for profile, count in profile_counts(gpus).items():
        prefix = resource_name(profile)
        labels[f"{prefix}.count"] = str(count)
        labels[f"{prefix}.product"] = _product(shape, profile)
        labels[f"{prefix}.replicas"] = "1"
        labels[f"{prefix}.sharing-strategy"] = "none"
    return labels


def _product(shape: NodeShape, profile: str) -> str:
    return f"{shape.gpu_product}-MIG-{profile.replace('+', '.')}"
