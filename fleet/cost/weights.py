"""Weights: which part of a machine one unit of a resource is worth, so that slices cost what they are.

A slice of a GPU weighs `max(compute slices / all of them, memory slices / all of them)` by the numbers of its model,
since whichever of the two it takes more of is what nobody else can have. Weights are then normalised over the layout of
each physical GPU: whatever it is cut into costs together exactly one GPU, also what the layout leaves unused.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from fleet.catalog import InstanceType
from fleet.mig.layouts import gpu_part, is_gpu_resource
from model.kinds import MigLayout
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.mig.geometry import MigModel, Profile, models_for_instance_gpu, resource_name
from model.mig.layouts import LayoutMismatch, devices_of
from model.quantity import CPU, Resources

MEMORY: Final = "memory"
HOST_PART: Final = Fraction(1, 8)
"""What pods without a GPU pay on a machine with GPUs: this part of its price for all of its CPU or memory.

A p5.48xlarge costs about eight times what a machine of its size without GPUs costs. Where GPUs are all taken the parts
are scaled down together, so that GPU pods pay less the more of the host others use.
"""


class MachineWeights(NamedTuple):
    """`MachineWeights` say what parts of a machine are worth: `units` for GPU resources, `host` for CPU and memory."""

    units: Mapping[str, float]
    """GPU resource -> part of the machine that one unit is, 0 to 1; empty for a machine without GPUs."""
    host: Resources
    """CPU and memory of the whole machine."""

    def part_of(self, requests: Resources) -> float:
        """Returns the part of the machine that a pod takes: by its GPUs, or by CPU or memory where it asks for none."""
        gpus = sum(amount * self.units.get(name, 0.0) for name, amount in requests.items() if is_gpu_resource(name))
        if gpus:
            return gpus
        most = max((requests.get(name, 0) / whole for name, whole in self.host.items() if whole), default=0.0)
        return most * float(HOST_PART) if self.units else most


def machine_weights(resources: Resources, machine: InstanceType | None, layout: MigLayout | None) -> MachineWeights:
    """Returns the weights of a machine that offers `resources`, of a type and with a layout as far as they are known.

    Without the layout (it is declared no more) slices are normalised over all GPUs that are cut.
    """
    offered = gpu_part(resources)
    host = {name: resources.get(name, 0) for name in (CPU, MEMORY)}
    if not any(name.startswith(MIG_RESOURCE_PREFIX) for name in offered):
        whole = sum(offered.values())
        return MachineWeights(dict.fromkeys(offered, 1 / whole) if whole else {}, host)
    units = _by_layout(machine, layout, offered) if machine is not None and layout is not None else None
    return MachineWeights({name: float(it) for name, it in (units or _by_resources(offered, machine)).items()}, host)


def slice_weight(model: MigModel, profile: Profile) -> Fraction:
    """Returns the part of a GPU that a slice takes, of its compute or of its memory, whichever is more."""
    compute = Fraction(profile.compute_slices, model.compute_slices)
    return max(compute, Fraction(profile.memory_slices, model.memory_slices))


def _by_layout(machine: InstanceType, layout: MigLayout, offered: Mapping[str, int]) -> Mapping[str, Fraction] | None:
    """Returns the weights by what each GPU is cut into; None where this is not the layout that the machine has."""
    for model in models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib):
        groups = layout.spec.models.get(model.id)
        if groups is None:
            continue
        try:
            named = devices_of(groups, machine.gpu_count)
        except LayoutMismatch:
            continue
        gpus = [(group.profiles, len(devices)) for group, devices in zip(groups, named, strict=True)]
        worth, counts = _summed(model, gpus)
        if counts == offered:
            return {name: worth[name] / counts[name] / machine.gpu_count for name in counts}
    return None


def _summed(
    model: MigModel, gpus: Sequence[tuple[Mapping[str, int], int]]
) -> tuple[dict[str, Fraction], dict[str, int]]:
    """Returns resource -> what all of its units are worth (GPUs), and how many there are; `gpus` is (cut, how many)."""
    worth: dict[str, Fraction] = {}
    counts: dict[str, int] = {}
    for profiles, devices in gpus:
        weights = {resource_name(name): slice_weight(model, model.profiles[name]) for name in profiles}
        cut = {resource_name(name): count for name, count in profiles.items()} or {GPU_RESOURCE: 1}
        of_gpu = sum((weights.get(name, Fraction(1)) * count for name, count in cut.items()), Fraction(0))
        for name, count in cut.items():
            worth[name] = worth.get(name, Fraction(0)) + weights.get(name, Fraction(1)) * count / of_gpu * devices
            counts[name] = counts.get(name, 0) + count * devices
    return worth, counts


def _by_resources(offered: Mapping[str, int], machine: InstanceType | None) -> Mapping[str, Fraction]:
    """Returns the weights where the layout is not known: slices share the GPUs that are not whole."""
    raw = _raw_weights(offered, machine)
    whole = {name for name in offered if not name.startswith(MIG_RESOURCE_PREFIX)}
    slices = sum((raw[name] * count for name, count in offered.items() if name not in whole), Fraction(0))
    gpus = machine.gpu_count if machine is not None else 0
    cut = gpus - sum(offered[name] for name in whole)
    if gpus and slices and cut <= 0:  # cut as it is claimed: every GPU may be had whole, or in slices
        return {name: (Fraction(1) if name in whole else raw[name]) / gpus for name in offered}
    scale = cut / slices if cut > 0 else Fraction(1)
    worth = {name: Fraction(1) if name in whole else raw[name] * scale for name in offered}
    total = sum(worth[name] * count for name, count in offered.items())
    return {name: each / total for name, each in worth.items()}


def _raw_weights(offered: Iterable[str], machine: InstanceType | None) -> Mapping[str, Fraction]:
    """Returns what a slice weighs on the models that the machine's GPUs can be, the first of them first."""
    models = models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib) if machine else ()
    profiles = ((model, profile) for model in reversed(models) for profile in model.profiles.values())
    known = {profile.resource: slice_weight(model, profile) for model, profile in profiles}
    return {name: known.get(name) or _by_name(name) for name in offered}


def _by_name(resource: str) -> Fraction:
    """Returns what a slice of a GPU nobody knows is worth: by the number before `g`, of seven."""
    compute = resource.removeprefix(MIG_RESOURCE_PREFIX).partition("g")[0]
    return Fraction(int(compute) if compute.isdigit() and compute != "0" else 1, 7)
