"""What a mig-parted configuration makes of the GPUs of one machine."""

from collections.abc import Mapping
from functools import lru_cache

import yaml

from model.mig.parted import InvalidMigParted, PartedConfigs, PartedEntry, read_mig_parted
from providers.sim.controllers.gpus import PhysicalGpu
from providers.sim.machines import NodeShape

MigConfig = tuple[PartedEntry, ...]


@lru_cache(maxsize=16)
def parse_mig_configs(text: str) -> PartedConfigs:
    """All configurations of a file by name; raises `InvalidMigParted` as `assert --valid-config` refuses it."""
    try:
        return read_mig_parted(yaml.load(text, yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise InvalidMigParted(f"not YAML: {error}") from error


def geometry(config: MigConfig, shape: NodeShape, present: tuple[PhysicalGpu, ...]) -> tuple[PhysicalGpu, ...]:
    """How a machine is to be cut; a GPU no entry speaks of stays as it is, the last entry that does wins."""
    wanted = list(present)
    for index in range(len(wanted)):
        for entry in config:
            if _covers(entry, index, shape):
                wanted[index] = PhysicalGpu(entry.profiles)
    return tuple(wanted)


def _covers(entry: PartedEntry, index: int, shape: NodeShape) -> bool:
    mine = any(map(entry.speaks_of, shape.gpu_device_ids)) or not entry.filters
    return mine and (entry.devices is None or index in entry.devices)


def same_geometry(a: tuple[PhysicalGpu, ...], b: tuple[PhysicalGpu, ...]) -> bool:
    """Whether two geometries hold the same instances on every GPU."""
    return len(a) == len(b) and all(_counts(x) == _counts(y) for x, y in zip(a, b, strict=True))


def _counts(gpu: PhysicalGpu) -> Mapping[str, int] | None:
    return None if gpu.profiles is None else {profile: n for profile, n in gpu.profiles.items() if n}
