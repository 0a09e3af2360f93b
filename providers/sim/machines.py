"""The boundary between simulated cloud and simulated cluster: which machines run, and what a type is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

MachineState = Literal["pending", "running", "shutting-down", "terminated"]


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """One instance as the cloud lists it; `launched_at` is UTC epoch seconds, `user_data` is decoded text."""

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: str
    state: MachineState
    launched_at: float
    user_data: str = ""
    private_dns: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def provider_id(self) -> str:
        """The `spec.providerID` of the node this machine becomes."""
        return f"aws:///{self.zone}/{self.instance_id}"

    @property
    def region(self) -> str:
        """The region of an availability zone: `us-east-1` of `us-east-1a`; a local zone keeps its first three words."""
        return "-".join(self.zone.split("-")[:3]).rstrip("abcdefghijklmnopqrstuvwxyz")


class SimulatedMachines(Protocol):
    """Whoever knows the machines; terminated ones may be listed for a while or be missing at once, as with EC2."""

    def list(self) -> Sequence[SimulatedMachine]:
        """Every known machine, in any order."""
        ...


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a machine of one type offers as a node.

    `capacity` and `allocatable` are Kubernetes quantities; `nvidia.com/*` entries are ignored, since GPUs are published
    by the device plugin from the GPU fields. `gpu_model` is the key of the MIG tables (`a100-40gb`), `gpu_product` the
    feature-discovery label, `gpu_device_ids` what mig-parted device filters match (`0x20B010DE`).
    """

    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    architecture: str = "amd64"
    gpu_model: str | None = None
    gpu_count: int = 0
    gpu_product: str = ""
    gpu_memory_mib: int = 0
    gpu_device_ids: tuple[str, ...] = ()
    mig_capable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


ShapeOf = Callable[[str], NodeShape | None]
"""Instance type -> shape; None for a type nobody knows."""
