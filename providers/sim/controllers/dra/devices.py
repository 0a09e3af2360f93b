"""The devices that NVIDIA's DRA driver announces for the GPUs of one machine.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, `cmd/gpu-kubelet-plugin` (`deviceinfo.go`, `mig.go`, `partitions.go`,
`consumable_shares.go`); what real machines announced, as NVIDIA published it (H100 on EC2 under driver 580.105.08).
Left out: vfio devices, NUMA nodes and the addressing mode.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from model.mig.geometry import MigModel, MigPlacement, Profile, feasible, mig_models
from providers.sim.controllers.gpus import PhysicalGpu
from providers.sim.controllers.objects import Obj
from providers.sim.machines import NodeShape

DRIVER: Final = "gpu.nvidia.com"
_DRIVER_VERSION: Final = "580.105.8"
_CUDA_VERSION: Final = "13.0.0"
_ARCHITECTURES: Final = (
    ((7, 0), "Volta"),
    ((7, 5), "Turing"),
    ((8, 0), "Ampere"),
    ((8, 9), "Ada Lovelace"),
    ((9, 0), "Hopper"),
    ((10, 0), "Blackwell"),
)
"""Compute capability from which on NVML calls a GPU so."""
_HOPPER: Final = (9, 0)
"""From here on MIG is switched on and off without a reset, and the driver announces a GPU whole and in parts."""
_UNKNOWN_ENGINES: Final = 99
"""As many engines as the tables give models of which they never bind."""
_PROFILE_IDS: Final[Mapping[int, Mapping[tuple[int, bool, str], int]]] = {
    7: {
        (1, False, ""): 19,
        (1, False, "+me"): 20,
        (1, True, ""): 15,
        (2, False, ""): 14,
        (3, False, ""): 9,
        (4, False, ""): 5,
        (7, False, ""): 0,
    },
    4: {(1, False, ""): 14, (1, False, "+me"): 21, (2, False, ""): 5, (2, False, "+me"): 6, (4, False, ""): 0},
}
"""Compute slices of a GPU -> (compute slices, whether with more memory than usual, suffix) -> id of the profile.

As `nvidia-smi mig -lgip` lists them; a profile that is not here goes by its place in the table, from 40 on.
"""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the driver says of a machine: devices in the order of their GPUs, and what counters each GPU has."""

    devices: tuple[tuple[Obj, ...], ...]
    """By GPU."""
    counters: tuple[Obj, ...] = ()
    """CounterSets; with them devices come in slices of their own, a GPU each."""


def announced(
    machine: str, shape: NodeShape, gpus: Sequence[PhysicalGpu], *, dynamic: bool = False, shares: str = ""
) -> Announcement:
    """The devices of a machine (its uid) whose GPUs are cut so; `shares` as the driver's `--consumable-shares`.

    `dynamic`: every place of every profile is a device. Whether a GPU of before Hopper is in MIG mode stays as it is,
    so that one that is offers parts only, and one that is not itself.
    """
    model = mig_models().get(shape.gpu_model or "")
    devices, counters = [], []
    for minor, gpu in enumerate(gpus):
        card = _Card(machine, shape, minor)
        if dynamic and model is not None and (card.switches or gpu.mig_enabled):
            found = [*([card.partitionable(model)] if card.switches else []), *card.partitions(model)]
            counters.append(card.counter_set(model))
        elif gpu.mig_enabled:
            found = list(card.instances(model, gpu.profiles or {})) if model is not None else []
        else:
            found = [card.whole()]
        devices.append(tuple(_shared(device, shares) for device in sorted(found, key=lambda it: str(it["name"]))))
    return Announcement(tuple(devices), tuple(counters))


def gpu_uuid(machine: str, minor: int) -> str:
    """The UUID of a GPU of a machine."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{machine}/{minor}')}"


def _binary(amount_mib: int) -> str:
    return f"{amount_mib // 1024}Gi" if amount_mib and amount_mib % 1024 == 0 else f"{amount_mib}Mi"


def _product_name(label: str) -> str:
    """NVML's name from feature discovery's label, where every blank is a dash."""
    spaced = label.replace("-", " ")
    return re.sub(r" (SXM\d|PCIE) (\d+GB)", r"-\1-\2", spaced)


@dataclass(frozen=True, slots=True)
class _Card:
    """One GPU of a machine."""

    machine: str
    shape: NodeShape
    minor: int

    @property
    def name(self) -> str:
        return f"gpu-{self.minor}"

    @property
    def uuid(self) -> str:
        return gpu_uuid(self.machine, self.minor)

    @property
    def switches(self) -> bool:
        """Whether MIG goes on and off without a reset."""
        return (self.shape.compute_capability or (0, 0)) >= _HOPPER

    def common(self) -> dict[str, Obj]:
        """What a GPU and its parts have in common."""
        major, minor = self.shape.compute_capability or (0, 0)
        since = [name for least, name in _ARCHITECTURES if (major, minor) >= least]
        bus = 0x53 + 0x11 * self.minor
        return {
            "productName": {"string": _product_name(self.shape.gpu_product)},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": since[-1] if since else "Unknown"},
            "cudaComputeCapability": {"version": f"{major}.{minor}.0"},
            "driverVersion": {"version": _DRIVER_VERSION},
            "cudaDriverVersion": {"version": _CUDA_VERSION},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{bus:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{bus - 0xF:02x}"},
        }

    def whole(self) -> Obj:
        attributes = {"type": {"string": "gpu"}, "uuid": {"string": self.uuid}, **self.common()}
        capacity = {"memory": {"value": _binary(self.shape.gpu_memory_mib)}}
        return {"name": self.name, "attributes": attributes, "capacity": capacity}

    # Parts

    def instances(self, model: MigModel, counts: Mapping[str, int]) -> Iterator[Obj]:
        """The instances of a GPU that mig-parted has cut."""
        placed = feasible(model, counts)
        for name, start in placed.instances if isinstance(placed, MigPlacement) else ():
            profile = model.profiles[name]
            device = self._part(model, profile, start)
            told = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.machine}/{self.minor}/{name}/{start}")
            slices = {f"memorySlice{n}": {"value": "1"} for n in range(start, start + profile.size)}
            attributes = {**device["attributes"], "uuid": {"string": f"MIG-{told}"}}
            yield {**device, "attributes": attributes, "capacity": {**device["capacity"], **slices}}

    def partitions(self, model: MigModel) -> Iterator[Obj]:
        """Every place of every profile."""
        for profile in model.profiles.values():
            for start in profile.starts:
                device = self._part(model, profile, start)
                counters = {**_counters(device["capacity"]), **_slices(start, profile.size)}
                yield {**device, "consumesCounters": [{"counterSet": self.counters_name, "counters": counters}]}

    def partitionable(self, model: MigModel) -> Obj:
        """The whole GPU, which takes every counter that it has."""
        counters = self.counter_set(model)["counters"]
        consumed = [{"counterSet": self.counters_name, "counters": counters}]
        return {**self.whole(), "capacity": self._most(model), "consumesCounters": consumed}

    def counter_set(self, model: MigModel) -> Obj:
        """What the parts of a GPU share: the most that a profile has of anything, and the slices of its memory."""
        return {"name": self.counters_name, "counters": {**_counters(self._most(model)), **_slices(0, model.units)}}

    @property
    def counters_name(self) -> str:
        return f"{self.name}-counter-set"

    def _part(self, model: MigModel, profile: Profile, start: int) -> Obj:
        short = re.sub(r"[^a-z0-9-]", "-", profile.name.replace(".", "").lower()).strip("-")
        named = {"type": {"string": "mig"}, "parentUUID": {"string": self.uuid}, "profile": {"string": profile.name}}
        return {
            "name": f"{self.name}-mig-{short}-{profile_id(model, profile)}-{start}",
            "attributes": {**named, **self.common()},
            "capacity": self._capacity(model, profile),
        }

    def _capacity(self, model: MigModel, profile: Profile) -> dict[str, Obj]:
        """What NVML tells of a profile; of engines that no table has, only what tells profiles with all from others."""
        told = self.shape.mig_attributes.get(profile.name, {})
        if "engines.copy" in told:
            decoders, jpeg, ofa = (told[f"engines.{kind}"] for kind in ("decoder", "jpeg", "ofa"))
        elif model.media[2] < _UNKNOWN_ENGINES:
            decoders, jpeg, ofa = profile.media
        else:
            decoders, jpeg, ofa = 0, 0, int("+me" in profile.name or profile.compute_slices == model.compute_slices)
        amounts = {
            "copyEngines": profile.compute_slices,
            "decoders": decoders,
            "encoders": 0,
            "jpegEngines": jpeg,
            "ofaEngines": ofa,
        }
        multiprocessors = told.get("multiprocessors")
        amounts |= {"multiprocessors": multiprocessors} if multiprocessors is not None else {}
        found: dict[str, Obj] = {name: {"value": str(amount)} for name, amount in amounts.items()}
        return {**found, "memory": {"value": _binary(profile.memory_mib)}}

    def _most(self, model: MigModel) -> dict[str, Obj]:
        most: dict[str, Obj] = {}
        for profile in sorted(model.profiles.values(), key=lambda it: it.memory_mib):
            for name, held in self._capacity(model, profile).items():
                now = most.setdefault(name, held)
                if name == "memory" or int(held["value"]) > int(now["value"]):
                    most[name] = held
        return most


def profile_id(model: MigModel, profile: Profile) -> int:
    """The id of a profile of GPU instances."""
    alike = [it for it in model.profiles.values() if it.compute_slices == profile.compute_slices]
    usual = min(it.memory_slices for it in alike)
    key = (profile.compute_slices, profile.memory_slices > usual, profile.name.partition("gb")[2])
    known = _PROFILE_IDS.get(model.compute_slices, {}).get(key)
    return 40 + list(model.profiles).index(profile.name) if known is None else known


def _counters(capacity: Mapping[str, Obj]) -> dict[str, Obj]:
    """A counter for each capacity, its name in small letters: `copyEngines` -> `copy-engines`."""
    return {re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", name).lower(): dict(held) for name, held in capacity.items()}


def _slices(start: int, size: int) -> dict[str, Obj]:
    return {f"memory-slice-{n}": {"value": "1"} for n in range(start, start + size)}


# -- sharing -----------------------------------------------------------------------------------


def _shared(device: Obj, shares: str) -> Obj:
    """A device that more than one claim may have at once: `unlimited`, by `memory`, or by so many shares."""
    if not shares:
        return device
    memory = device["capacity"]["memory"]["value"]
    bounds = {"min": "1Mi" if shares == "memory" else "0", "max": memory, "step": "1Mi"}
    policy = {"default": memory if shares == "memory" else "0", "validRange": bounds}
    capacity = {**device["capacity"], "memory": {"value": memory, "requestPolicy": policy}}
    if shares.isdecimal():
        each = {"default": "1", "validRange": {"min": "1", "max": shares, "step": "1"}}
        capacity["shares"] = {"value": shares, "requestPolicy": each}
    return {**device, "allowMultipleAllocations": True, "capacity": capacity}
