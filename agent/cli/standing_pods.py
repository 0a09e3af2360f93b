"""Pods that stand on nodes, of which only the GPUs that each has is read: those it asks for, and those it claims."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from model.labels import WORKLOAD

GPU: Final = "nvidia.com/"
STANDING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_DRIVER: Final = "gpu.nvidia.com"
_DeviceId = tuple[str, str, str]
"""Driver, pool and name of a device."""


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of an object that are read; all others are left aside."""


class _SeenAmounts(_Seen, frozen=True):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class _SeenContainer(_Seen, frozen=True):
    resources: _SeenAmounts = msgspec.field(default_factory=_SeenAmounts)
    restart_policy: str = ""


class _SeenMeta(_Seen, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None


class _SeenClaimRef(_Seen, frozen=True):
    resource_claim_name: str | None = None


class _SeenSpec(_Seen, frozen=True):
    node_name: str = ""
    containers: list[_SeenContainer] = []
    init_containers: list[_SeenContainer] = []
    resource_claims: list[_SeenClaimRef] = []


class _SeenStatus(_Seen, frozen=True):
    resource_claim_statuses: list[_SeenClaimRef] = []


class PodSeen(_Seen, frozen=True):
    """A `PodSeen` is a pod, of which only where it stands and which GPUs it asks for is read."""

    metadata: _SeenMeta
    spec: _SeenSpec
    status: _SeenStatus = _SeenStatus()

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def of_gang(self) -> bool:
        """Returns whether a gang's Workload tells of it."""
        return WORKLOAD in (self.metadata.labels or {})

    @property
    def gpus(self) -> Counter[str]:
        """Returns the GPUs and slices that kube-scheduler counts for it: of all containers, or of the largest step."""
        stay, step = Counter[str](), Counter[str]()
        for container in self.spec.init_containers:
            if container.restart_policy == "Always":
                stay.update(_asked(container))
            else:
                step |= stay + _asked(container)
        for container in self.spec.containers:
            stay.update(_asked(container))
        return stay | step

    @property
    def claims(self) -> list[str]:
        """Returns the ResourceClaims that it uses, made by hand or of templates, as `namespace/name`."""
        refs = (*self.spec.resource_claims, *self.status.resource_claim_statuses)
        return [f"{self.metadata.namespace}/{it.resource_claim_name}" for it in refs if it.resource_claim_name]


def _asked(container: _SeenContainer) -> Counter[str]:
    given = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    return Counter(gpu_part(given))


def gpu_part(resources: Mapping[str, Any]) -> dict[str, int]:
    """Returns the GPUs and slices among amounts of resources."""
    return {name: int(amount) for name, amount in resources.items() if name.startswith(GPU)}


decode_pod: Final = msgspec.json.Decoder(PodSeen).decode


# -- devices that pods claim ------------------------------------------------------------------------------------------


class _SeenAttribute(_Seen, frozen=True):
    string: str | None = None


class _SeenDevice(_Seen, frozen=True):
    name: str
    attributes: dict[str, _SeenAttribute] = {}


class _SeenPool(_Seen, frozen=True):
    name: str


class _SeenSliceSpec(_Seen, frozen=True):
    driver: str
    pool: _SeenPool
    devices: list[_SeenDevice] = []


class _SeenSlice(_Seen, frozen=True):
    spec: _SeenSliceSpec


class _SeenResult(_Seen, frozen=True):
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _SeenResults(_Seen, frozen=True):
    results: list[_SeenResult] = []


class _SeenAllocation(_Seen, frozen=True):
    devices: _SeenResults = _SeenResults()


class _SeenClaimStatus(_Seen, frozen=True):
    allocation: _SeenAllocation | None = None


class _SeenClaim(_Seen, frozen=True):
    metadata: _SeenMeta
    status: _SeenClaimStatus = _SeenClaimStatus()


_decode_slice: Final = msgspec.json.Decoder(_SeenSlice).decode
_decode_claim: Final = msgspec.json.Decoder(_SeenClaim).decode


def claimed_gpus(slices: Iterable[Any], claims: Iterable[Any]) -> Mapping[str, Counter[str]]:
    """Returns `namespace/name` of each claim -> the GPUs and slices that it was given; a part counts as a device.

    They are named as the device plugin names them (`Device.resource`). A claim with the rights of an administrator
    looks at devices, and has none of them.
    """
    known = dict(each for raw in slices for each in _resources(_decode_slice(raw).spec))
    found: dict[str, Counter[str]] = {}
    for claim in map(_decode_claim, claims):
        given = claim.status.allocation.devices.results if claim.status.allocation else ()
        ids = ((it.driver, it.pool, it.device) for it in given if not it.admin_access)
        found[f"{claim.metadata.namespace}/{claim.metadata.name}"] = Counter(known[it] for it in ids if it in known)
    return found


def _resources(spec: _SeenSliceSpec) -> Iterable[tuple[_DeviceId, str]]:
    from model.mig.geometry import device_resource

    for device in spec.devices if spec.driver == _DRIVER else ():
        if resource := device_resource(_attribute(device, "type"), _attribute(device, "profile")):
            yield (spec.driver, spec.pool.name, device.name), resource


def _attribute(device: _SeenDevice, name: str) -> str:
    """Returns an attribute of the driver's own, with or without its domain; empty where there is none."""
    own = device.attributes.get(name) or device.attributes.get(f"{_DRIVER}/{name}")
    return own.string or "" if own else ""
