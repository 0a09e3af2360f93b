"""Facts about GPU models that no catalogue of a cloud tells."""

from collections.abc import Mapping
from typing import Final

COMPUTE_CAPABILITIES: Final[Mapping[str, tuple[int, int]]] = {
    "v100": (7, 0),
    "t4": (7, 5),
    "t4g": (7, 5),
    "a100": (8, 0),
    "a10g": (8, 6),
    "l4": (8, 9),
    "l40s": (8, 9),
    "h100": (9, 0),
    "h200": (9, 0),
    "b200": (10, 0),
    "gb200": (10, 0),
    "b300": (10, 3),
    "rtx-pro-4500": (12, 0),
    "rtx-pro-server-6000": (12, 0),
}
"""GPU name -> compute capability (developer.nvidia.com/cuda-gpus; MIG user guide, "Supported GPUs")."""
