"""What a `MigLayout` makes of a machine: the resources it offers and the mig-parted configuration that cuts it."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from model.kinds.base import API_VERSION
from model.kinds.capacity import DeviceGroup, MigLayout
from model.labels import GPU_PARTS, GPU_RESOURCE
from model.mig.geometry import mig_models, resource_name
from model.mig.parted import InvalidMigParted, read_mig_parted

ALL_DISABLED: Final = "all-disabled"
"""The configuration of a machine whose GPUs are whole. The GPU operator gives it to every node without one."""
ALL_ENABLED: Final = "all-enabled"
"""MIG is on and nothing is cut, for those who cut by hand."""
ALWAYS: Final[dict[str, list[dict[str, Any]]]] = {
    ALL_DISABLED: [{"devices": "all", "mig-enabled": False}],
    ALL_ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
}
"""What every configuration file has. A file that lacks a name leaves its nodes `failed`."""
_LABEL_VALUE_MAX = 63
_HASH_LENGTH = 8
_NVIDIA_VENDOR = "10DE"


class LayoutMismatch(ValueError):
    """The device groups of a layout do not name every GPU of the machine exactly once."""


def devices_of(groups: Sequence[DeviceGroup], gpu_count: int) -> tuple[tuple[int, ...], ...]:
    """The GPU indexes of each group on a machine with `gpu_count` GPUs; raises `LayoutMismatch`."""
    named = tuple(tuple(range(gpu_count)) if group.devices == "all" else tuple(group.devices) for group in groups)
    every = sorted(index for devices in named for index in devices)
    if every != list(range(gpu_count)):
        raise LayoutMismatch(f"the device groups name {every}; the machine has GPUs 0 to {gpu_count - 1}")
    return named


def layout_counts(groups: Sequence[DeviceGroup], gpu_count: int) -> dict[str, int]:
    """The GPU resources of a machine cut by `groups`: whole GPUs left (`nvidia.com/gpu`) and MIG instances.

    Resources of which there are none are left out. Raises `LayoutMismatch`.
    """
    counts: dict[str, int] = {}
    for group, devices in zip(groups, devices_of(groups, gpu_count), strict=True):
        offered = {resource_name(profile): count for profile, count in group.profiles.items()} or {GPU_RESOURCE: 1}
        for resource, count in offered.items():
            counts[resource] = counts.get(resource, 0) + count * len(devices)
    return {resource: count for resource, count in sorted(counts.items()) if count}


def layout_resources(layout: MigLayout, model: str, gpu_count: int) -> dict[str, int]:
    """`layout_counts` for one GPU model of a layout; raises `LayoutMismatch` when the layout leaves the model out."""
    groups = layout.spec.models.get(model)
    if groups is None:
        raise LayoutMismatch(f"layout {layout.name!r} says nothing about {model!r}")
    return layout_counts(groups, gpu_count)


GpuCuts = tuple[Mapping[str, int], ...]
"""How each GPU of a machine is cut, by its index: profile -> count; empty = whole."""
MIXED: Final = "mixed"
"""Name of a layout that nobody declares: GPUs of one machine that are cut after different layouts."""


def gpu_cuts(layout: MigLayout, model: str, gpu_count: int) -> GpuCuts:
    """Returns how a layout cuts each GPU of a machine; raises `LayoutMismatch`."""
    groups = layout.spec.models.get(model)
    if groups is None:
        raise LayoutMismatch(f"layout {layout.name!r} says nothing about {model!r}")
    found = {
        index: group.profiles
        for group, devices in zip(groups, devices_of(groups, gpu_count), strict=True)
        for index in devices
    }
    return tuple(found[index] for index in range(gpu_count))


def mixed_layout(cuts: GpuCuts, model: str) -> MigLayout:
    """Returns the layout that cuts each GPU so, GPUs that are cut alike in one group."""
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, profiles in enumerate(cuts):
        alike.setdefault(tuple(sorted(profiles.items())), []).append(index)
    groups = [{"devices": devices} | ({"profiles": dict(it)} if it else {}) for it, devices in alike.items()]
    return MigLayout.model_validate(
        {"apiVersion": API_VERSION, "metadata": {"name": MIXED}, "spec": {"models": {model: groups}}}
    )


def gpu_equivalents(layouts: Iterable[MigLayout], *, every: bool = False) -> dict[str, int]:
    """Resource -> parts of a GPU (of `GPU_PARTS`), for whole GPUs and slices: those that layouts cut, or `every` one.

    A slice counts by its compute slices. Where a name means a larger part of one GPU than of another, it counts as
    the larger one.
    """
    found = {GPU_RESOURCE: GPU_PARTS}
    cuts = (
        (model, model.profiles[each])
        for layout in layouts
        for model, groups in ((mig_models()[name], groups) for name, groups in layout.spec.models.items())
        for group in groups
        for each in group.profiles
    )
    all_of_them = ((model, each) for model in mig_models().values() for each in model.profiles.values())
    for model, profile in all_of_them if every else cuts:
        parts = GPU_PARTS * profile.compute_slices // model.compute_slices
        found[profile.resource] = max(parts, found.get(profile.resource, 0))
    return found


def config_name(layout: MigLayout) -> str:
    """The value of the label `nvidia.com/mig.config`: the layout's name and a hash of its content.

    mig-manager acts only on a changed label value, so changed content must change the name (gpu-operator#891).
    """
    content = json.dumps(_entries(layout), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(content.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{layout.name[: _LABEL_VALUE_MAX - _HASH_LENGTH - 1]}-{digest}"


def mig_parted_config(layouts: Iterable[MigLayout]) -> dict[str, Any]:
    """The file of mig-parted (v1) that holds every layout under its `config_name`, and what every file has."""
    ordered = sorted(layouts, key=lambda layout: layout.name)
    return {"version": "v1", "mig-configs": {config_name(layout): _entries(layout) for layout in ordered} | ALWAYS}


def with_carried(config: dict[str, Any], published: object, carried: Collection[str]) -> dict[str, Any]:
    """A file with those configurations of the published one (parsed) that nodes still carry and it lacks.

    mig-manager reads a node's configuration again when it starts: one that is gone leaves the node `failed`. Of a
    published file that somebody has changed only those are kept that mig-parted accepts, since it refuses a file whole.
    """
    held = published.get("mig-configs") if isinstance(published, dict) else None
    old = {name: held[name] for name in sorted(carried) if name in held} if isinstance(held, dict) else {}
    kept = {name: entries for name, entries in old.items() if _acceptable(entries)}
    return {**config, "mig-configs": {**kept, **config["mig-configs"]}}


def _acceptable(entries: object) -> bool:
    try:
        read_mig_parted({"version": "v1", "mig-configs": {"it": entries}})
    except InvalidMigParted:
        return False
    return True


def _entries(layout: MigLayout) -> list[dict[str, Any]]:
    """One entry a device group; several models are told apart by their PCI ids."""
    models = sorted(layout.spec.models)
    return [
        {**(_device_filter(model) if len(models) > 1 else {}), **_entry(group)}
        for model in models
        for group in layout.spec.models[model]
    ]


def _device_filter(model: str) -> dict[str, Any]:
    return {"device-filter": [f"{device}{_NVIDIA_VENDOR}" for device in mig_models()[model].device_ids]}


def _entry(group: DeviceGroup) -> dict[str, Any]:
    devices = "all" if group.devices == "all" else sorted(group.devices)
    if not group.profiles:  # mig-parted refuses mig-devices next to mig-enabled: false, and the reverse
        return {"devices": devices, "mig-enabled": False}
    return {"devices": devices, "mig-enabled": True, "mig-devices": dict(sorted(group.profiles.items()))}
