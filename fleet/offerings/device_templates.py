"""Foresees the devices that NVIDIA's DRA driver will publish of a machine that is not there yet.

They have what follows from the type of the machine and how its GPUs are cut: names, types, profiles, products, compute
capability and memory. What only the machine knows (UUIDs, buses, the version of its driver) selectors do not find;
`uuid` and `parentUUID` tell GPUs apart. Source: its `cmd/gpu-kubelet-plugin/{deviceinfo,partitions}.go`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from fleet.catalog import InstanceType
from fleet.mig.layouts import pool_layouts
from fleet.snapshot.devices import (
    CHANNEL,
    GPU_DRIVER,
    PROFILE,
    TYPE,
    AttributeValue,
    CounterSet,
    Device,
    DeviceVersion,
    MachineDevices,
    TaintRules,
    shared_devices,
    to_come_under_rules,
)
from model.fleet import Fleet
from model.gpu_facts import COMPUTE_CAPABILITIES
from model.index import Index, derived
from model.kinds import MigLayout, NodePool
from model.labels import GPU_RESOURCE
from model.mig.geometry import MigModel, MigPlacement, Profile, feasible, models_for_instance_gpu
from model.mig.layouts import LayoutMismatch, devices_of

_ARCHITECTURES: Final = (
    *(((12, 0), "Blackwell"), ((10, 0), "Blackwell"), ((9, 0), "Hopper"), ((8, 9), "Ada Lovelace")),
    *(((8, 0), "Ampere"), ((7, 5), "Turing"), ((7, 0), "Volta")),
)
_CUT_WITHOUT_RESET: Final = (9, 0)
"""From this compute capability on the driver cuts GPUs as they are claimed; others stay as they were born."""
_MIB: Final = 1024**2
_MANY: Final = 99
"""As many engines as the tables give models of which they never bind."""


def machine_devices(
    index: Index, fleet: Fleet, pool: NodePool, machine: InstanceType, layout: str, rules: TaintRules = ()
) -> MachineDevices | None:
    """Returns what pods will be able to claim, under rules, on a machine with a layout (configuration; empty = whole).

    None where the device plugin offers its GPUs, or it has none.
    """
    if pool.spec.sharing.dra is None or not machine.allocatable.get(GPU_RESOURCE, 0):
        return None
    cut, dra = pool_layouts(fleet, pool).get(layout), pool.spec.sharing.dra
    found = _machine_devices(index, machine, cut, "dynamic" if dra.dynamic_mig else "static")
    return to_come_under_rules(index, shared_devices(index, found, dra.consumable_shares), rules)


@derived(1024)
def _machine_devices(_index: Index, machine: InstanceType, layout: MigLayout | None, way: str) -> MachineDevices:
    models = models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib)
    capability, count = COMPUTE_CAPABILITIES.get(machine.gpu_name.lower(), (0, 0)), machine.allocatable[GPU_RESOURCE]
    common = dict(_common(machine, models[0] if models else None, capability))
    if way == "dynamic" and models and capability >= _CUT_WITHOUT_RESET:
        cards = [_partitionable(n, models[0], common, machine.gpu_memory_mib) for n in range(count)]
        return MachineDevices(
            (CHANNEL, *(device for devices, _ in cards for device in devices)),
            {key: it for _, both in cards for key, it in both},
        )
    cuts = _profiles(layout, models, count)
    devices = (device for n in range(count) for device in _card(n, cuts.get(n), common, machine.gpu_memory_mib))
    return MachineDevices((CHANNEL, *devices))


def _common(
    machine: InstanceType, model: MigModel | None, capability: tuple[int, int]
) -> Iterator[tuple[str, AttributeValue]]:
    """Yields the attributes that a GPU and its slices have in common."""
    label = model.products[0] if model and model.products else f"NVIDIA-{machine.gpu_name.upper()}"
    named = re.sub(r" (SXM\d|PCIE) (\d+GB)", r"-\1-\2", label.replace("-", " "))
    found = next((name for least, name in _ARCHITECTURES if capability >= least), "Unknown")
    yield f"{GPU_DRIVER}/productName", named
    yield f"{GPU_DRIVER}/brand", "Nvidia"
    yield f"{GPU_DRIVER}/architecture", found
    yield f"{GPU_DRIVER}/cudaComputeCapability", DeviceVersion(f"{capability[0]}.{capability[1]}.0")


def _profiles(
    layout: MigLayout | None, models: tuple[MigModel, ...], count: int
) -> Mapping[int, tuple[MigModel, Mapping[str, int]]]:
    """Returns the index of each GPU that is cut -> its profiles."""
    for model in models:
        groups = layout.spec.models.get(model.id) if layout is not None else None
        if groups is None:
            continue
        try:
            named = devices_of(groups, count)
        except LayoutMismatch:
            continue
        return {
            n: (model, it.profiles) for it, devices in zip(groups, named, strict=True) for n in devices if it.profiles
        }
    return {}


def _device(name: str, attributes: Mapping[str, AttributeValue], memory_mib: int) -> Device:
    return Device(GPU_DRIVER, "", name, attributes, {f"{GPU_DRIVER}/memory": memory_mib * _MIB})


def _card(
    n: int, cut: tuple[MigModel, Mapping[str, int]] | None, common: Mapping[str, AttributeValue], memory_mib: int
) -> list[Device]:
    """Returns the devices of one GPU: itself, or its slices in order of their names."""
    if cut is None:
        return [_whole(n, common, memory_mib)]
    model, profiles = cut
    placed = feasible(model, profiles)
    places = placed.instances if isinstance(placed, MigPlacement) else ()
    return sorted((_slice(n, model.profiles[name], start, common) for name, start in places), key=lambda it: it.name)


def _whole(n: int, common: Mapping[str, AttributeValue], memory_mib: int) -> Device:
    return _device(f"gpu-{n}", {TYPE: "gpu", f"{GPU_DRIVER}/uuid": f"GPU-{n}", **common}, memory_mib)


def _slice(n: int, profile: Profile, start: int, common: Mapping[str, AttributeValue]) -> Device:
    short = re.sub(r"[^a-z0-9-]", "-", profile.name.replace(".", "").lower()).strip("-")
    parent = {f"{GPU_DRIVER}/parentUUID": f"GPU-{n}"}
    return _device(
        f"gpu-{n}-mig-{short}-{start}", {TYPE: "mig", PROFILE: profile.name, **parent, **common}, profile.memory_mib
    )


def _partitionable(
    n: int, model: MigModel, common: Mapping[str, AttributeValue], memory_mib: int
) -> tuple[list[Device], list[tuple[CounterSet, Mapping[str, int]]]]:
    """Returns one GPU whole and in every slice at every place, and the counters that they share."""
    counters: CounterSet = GPU_DRIVER, "", f"gpu-{n}-counter-set"
    everything = {f"memory-slice-{unit}": 1 for unit in range(model.units)}
    everything |= {"copy-engines": model.compute_slices} | _engines(model, None)
    found = [(_whole(n, common, memory_mib), everything)]
    for profile in model.profiles.values():
        for start in profile.starts:
            taken = {f"memory-slice-{unit}": 1 for unit in range(start, start + profile.size)}
            taken |= {"copy-engines": profile.compute_slices} | _engines(model, profile)
            found.append((_slice(n, profile, start, common), taken))
    devices = [replace(it, consumes={counters: taken}) for it, taken in found]
    return sorted(devices, key=lambda it: it.name), [(counters, everything)]


def _engines(model: MigModel, profile: Profile | None) -> dict[str, int]:
    """Returns the media engines of a slice, or of the whole GPU; of a model without a table one that `+me` takes."""
    if model.media[2] >= _MANY:
        full = profile is None or "+me" in profile.name or profile.compute_slices == model.compute_slices
        return {"ofa-engines": int(full)}
    counts = profile.media if profile else model.media
    return dict(zip(("decoders", "jpeg-engines", "ofa-engines"), counts, strict=True))
