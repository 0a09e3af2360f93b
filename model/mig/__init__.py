"""How MIG cuts GPUs: the facts, the geometry of one GPU, and what a layout makes of a machine."""

from model.mig.arrangements import best_multisets, every_layout
from model.mig.geometry import (
    Impossible,
    MigModel,
    MigPlacement,
    Profile,
    feasible,
    mig_models,
    models_for_instance_gpu,
    resource_name,
)
from model.mig.layouts import (
    ALL_DISABLED,
    LayoutMismatch,
    config_name,
    devices_of,
    layout_counts,
    layout_resources,
    mig_parted_config,
    with_carried,
)

__all__ = [
    "ALL_DISABLED",
    "Impossible",
    "LayoutMismatch",
    "MigModel",
    "MigPlacement",
    "Profile",
    "best_multisets",
    "config_name",
    "devices_of",
    "every_layout",
    "feasible",
    "layout_counts",
    "layout_resources",
    "mig_models",
    "mig_parted_config",
    "models_for_instance_gpu",
    "resource_name",
    "with_carried",
]
