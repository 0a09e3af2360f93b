"""What a simulated machine of each instance type offers as a node, from the same catalogue the agent buys by."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from fleet.snapshot import Catalog
from model import labels
from model.gpu_facts import COMPUTE_CAPABILITIES
from model.mig.geometry import MigModel, MigPlacement, feasible, mig_models, models_for_instance_gpu
from model.quantity import Resources, format_amount
from providers.sim.machines import NodeShape, ShapeOf

_VENDOR = "10DE"
_EnginesOf = Mapping[tuple[int, int, str], tuple[int, int, int, int, int]]
_AMPERE: Final[_EnginesOf] = {
    (1, 1, ""): (14, 0, 0, 0, 0),
    (1, 1, "+me"): (14, 0, 1, 1, 1),
    (1, 2, ""): (14, 0, 1, 0, 0),
    (2, 2, ""): (28, 0, 1, 0, 0),
    (3, 4, ""): (42, 0, 2, 0, 0),
    (4, 4, ""): (56, 0, 2, 0, 0),
    (7, 8, ""): (98, 0, 5, 1, 1),
}
_HOPPER: Final[_EnginesOf] = {
    (1, 1, ""): (16, 0, 1, 1, 0),
    (1, 1, "+me"): (16, 0, 1, 1, 1),
    (1, 2, ""): (26, 0, 1, 1, 0),
    (2, 2, ""): (32, 0, 2, 2, 0),
    (3, 4, ""): (60, 0, 3, 3, 0),
    (4, 4, ""): (64, 0, 4, 4, 0),
    (7, 8, ""): (132, 0, 7, 7, 1),
}
_RTX_PRO: Final[_EnginesOf] = {
    (compute, compute, suffix): (multiprocessors, engines, engines, engines, ofa)
    for compute, multiprocessors, plain in ((1, 46, (1, 1, 0)), (2, 94, (2, 2, 0)), (4, 188, (4, 4, 1)))
    for suffix, (engines, ofa) in {
        "": (plain[0], plain[2]),
        "+me": (plain[0], 1),
        "+gfx": (plain[0], plain[2]),
        "+me.all": (4, 1),
        "-me": (0, 0),
    }.items()
}
_ENGINES: Final[Mapping[str, _EnginesOf]] = {
    "a100-40gb": _AMPERE,
    "a100-80gb": _AMPERE,
    "h100-80gb": _HOPPER,
    "h200-141gb": _HOPPER,
    "rtx-pro-6000-blackwell-96gb": _RTX_PRO,
}
"""MIG model -> (compute slices, memory slices, suffix) -> multiprocessors, encoders, decoders, JPEG and OFA engines.

Source: `nvidia-smi mig -lgip` in NVIDIA's MIG user guide and public listings. Of the GPUs that are not here no full
listing was seen; feature discovery's labels of them lack these.
"""


def shapes_of(catalog: Catalog) -> ShapeOf:
    """Instance type -> shape, worked out once."""

    @cache
    def shape_of(name: str) -> NodeShape | None:
        """What a machine of the type shows on its node; None for a type that is not in the catalogue."""
        machine = catalog.types.get(name)
        if machine is None:
            return None
        models = models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib) if machine.gpu_name else ()
        model: MigModel | None = models[0] if models else None
        return NodeShape(
            capacity=_quantities(machine.capacity),
            allocatable=_quantities(machine.allocatable),
            architecture=machine.labels.get("kubernetes.io/arch", "amd64"),
            gpu_model=model.id if model else None,
            gpu_count=machine.gpu_count or int(labels.GPU_FRACTION in machine.labels),
            gpu_product=model.products[0] if model and model.products else f"NVIDIA-{machine.gpu_name.upper()}",
            gpu_memory_mib=machine.gpu_memory_mib,
            gpu_device_ids=tuple(f"{device}{_VENDOR}" for device in model.device_ids) if model else (),
            mig_capable=model is not None,
            mig_attributes=_attributes(model) if model else {},
            compute_capability=COMPUTE_CAPABILITIES.get(machine.gpu_name),
            ultraserver=machine.nvlink_machines,
            labels=dict(machine.labels),
            attach_limits=machine.attach_limits,
        )

    return shape_of


def _attributes(model: MigModel) -> dict[str, dict[str, int]]:
    """What NVML tells of the instances of a model; an instance has one copy engine for each compute slice."""
    engines = _ENGINES.get(model.id, {})
    found = {}
    for profile in model.profiles.values():
        slices = profile.compute_slices
        told = {"memory": profile.memory_mib, "slices.gi": slices, "slices.ci": slices}
        suffix = profile.name.partition("gb")[2]
        if has := engines.get((slices, profile.memory_slices, suffix)):
            named = zip(("multiprocessors", *(f"engines.{it}" for it in _KINDS)), has, strict=True)
            told |= {"engines.copy": slices, **dict(named)}
        found[profile.name] = told
    return found


_KINDS: Final = ("encoder", "decoder", "jpeg", "ofa")


def _quantities(amounts: Resources) -> dict[str, str]:
    return {name: format_amount(name, amount) for name, amount in amounts.items()}


def can_be_cut(model_id: str, profiles: Mapping[str, int]) -> bool:
    """Whether one GPU of the model can hold these instances at once."""
    model = mig_models().get(model_id)
    return model is not None and isinstance(feasible(model, profiles), MigPlacement)
