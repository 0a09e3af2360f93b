"""What a simulated machine of each instance type offers as a node, from the same catalogue the agent buys by."""

from collections.abc import Mapping
from functools import cache

from fleet.snapshot import Catalog
from model import labels
from model.mig.geometry import MigModel, MigPlacement, feasible, mig_models, models_for_instance_gpu
from model.quantity import Resources, format_amount
from providers.sim.machines import NodeShape, ShapeOf

_VENDOR = "10DE"


def shapes_of(catalog: Catalog) -> ShapeOf:
    """Instance type -> shape, worked out once."""

    @cache
    def shape_of(name: str) -> NodeShape | None:
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
            labels=dict(machine.labels),
        )

    return shape_of


def _quantities(amounts: Resources) -> dict[str, str]:
    return {name: format_amount(name, amount) for name, amount in amounts.items()}


def can_be_cut(model_id: str, profiles: Mapping[str, int]) -> bool:
    """Whether one GPU of the model can hold these instances at once."""
    model = mig_models().get(model_id)
    return model is not None and isinstance(feasible(model, profiles), MigPlacement)
