"""The boundary between simulated cloud and simulated cluster: which machines run, and what a type is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fleet.snapshot import CapacityPool

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
    efa: int = 0
    """EFA interfaces that it was launched with."""
    reservation: str = ""
    """Id of the capacity reservation that it runs in."""

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
    feature-discovery label, `gpu_device_ids` what mig-parted device filters match (`0x20B010DE`), `clique` the NVLink
    domain that a machine shares with others (`<cluster uuid>.<clique id>`; empty: none).
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
    mig_attributes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """MIG profile -> what NVML tells of an instance, by the names of feature discovery (`memory`, `slices.gi`)."""
    compute_capability: tuple[int, int] | None = None
    clique: str = ""
    ultraserver: int = 0
    """So many machines of the type make up an NVLink domain, which each is given as its `clique`; 0: none do."""
    labels: Mapping[str, str] = field(default_factory=dict)
    attach_limits: Mapping[str, int] = field(default_factory=dict)
    """CSI driver that runs on it -> how many volumes the driver says it attaches."""


ShapeOf = Callable[[str], NodeShape | None]
"""Instance type -> shape; None for a type nobody knows."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One launch and its end: the truth about what was bought. `ended_at_s` is None while it bills.

    `price_usd_h` is the price at launch, `cost_usd` what it has cost so far at the prices of the time.
    """

    instance_id: str
    pool: CapacityPool
    fleet_id: str
    token: str
    launched_at_s: float
    ended_at_s: float | None
    reason: str
    price_usd_h: float | None
    cost_usd: float


@dataclass(frozen=True, slots=True)
class MachineTimings:
    """How long things take, in seconds."""

    pending_s: float = 10.0
    """Launch to running."""
    boot_s: float = 50.0
    """Running to the registration of its kubelet."""
    stopping_s: float = 20.0
    """Order to end to terminated."""
    listed_s: float = 3600.0
    """Terminated to not listed any more."""
    tokens_s: float = 86_400.0
    """How long a client token is remembered."""
