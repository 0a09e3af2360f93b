"""Settings of the kubelet, as a node template and Karpenter's classes write them."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator
from pydantic.json_schema import WithJsonSchema

from model.kinds.base import Amounts, Bool, Duration, Spec
from model.quantity import parse_quantity

_PERCENTAGE = re.compile(r"(100|[0-9]{1,2})(\.[0-9]+)?%")
_RESERVABLE = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})


def _check_reserved(amounts: dict[str, int]) -> dict[str, int]:
    if strangers := sorted(amounts.keys() - _RESERVABLE):
        raise ValueError(f"{strangers[0]!r} cannot be reserved: cpu, memory, ephemeral-storage and pid can")
    return amounts


def _check_threshold(value: Any) -> str:
    text = str(value)
    if not _PERCENTAGE.fullmatch(text):
        parse_quantity(text)
    return text


ReservedAmounts = Annotated[Amounts, AfterValidator(_check_reserved)]
Threshold = Annotated[
    str, BeforeValidator(_check_threshold), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
]
Signal = Literal[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
]
Percent = Annotated[int, Strict(), Field(ge=0, le=100)]


class Kubelet(Spec):
    """Settings of the kubelet; what is unset is up to the image. What pods find on a node is computed from them."""

    cluster_dns: tuple[str, ...] = Field(default=(), alias="clusterDNS")
    """Addresses of the cluster's DNS. Bottlerocket and AL2 use the first."""
    max_pods: Annotated[int, Strict(), Field(ge=0, le=10_000)] | None = None
    """Most pods on a node; unset = as many as its network interfaces have addresses for."""
    pods_per_core: Annotated[int, Strict(), Field(ge=0, le=10_000)] | None = None
    """Most pods for each core. Bottlerocket does not know it."""
    system_reserved: ReservedAmounts = Field(default_factory=dict)
    """Kept for the system: `cpu`, `memory`, `ephemeral-storage`, `pid`."""
    kube_reserved: ReservedAmounts = Field(default_factory=dict)
    """Kept for Kubernetes' own daemons, instead of what the image keeps. Machines that have less are not bought."""
    eviction_hard: dict[Signal, Threshold] = Field(default_factory=dict)
    """Signal -> quantity or percentage below which pods are evicted at once."""
    eviction_soft: dict[Signal, Threshold] = Field(default_factory=dict)
    """Signal -> quantity or percentage below which pods are evicted after a grace period."""
    eviction_soft_grace_period: dict[Signal, Duration] = Field(default_factory=dict)
    """How long each signal of `evictionSoft` is borne."""
    eviction_max_pod_grace_period: Annotated[int, Strict(), Field(ge=0, le=86_400)] | None = None
    """Seconds that a pod may take to end when a soft threshold is met."""
    image_gc_high_threshold_percent: Percent | None = Field(default=None, alias="imageGCHighThresholdPercent")
    """Disk usage above which images are collected."""
    image_gc_low_threshold_percent: Percent | None = Field(default=None, alias="imageGCLowThresholdPercent")
    """Disk usage down to which images are collected."""
    cpu_cfs_quota: Bool | None = Field(default=None, alias="cpuCFSQuota")
    """Whether CPU limits are enforced."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.eviction_soft.keys() != self.eviction_soft_grace_period.keys():
            raise ValueError("evictionSoft and evictionSoftGracePeriod name the same signals")
        high, low = self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent
        if high is not None and low is not None and high <= low:
            raise ValueError("imageGCHighThresholdPercent is more than imageGCLowThresholdPercent")
        return self
