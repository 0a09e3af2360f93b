"""The mig-parted configuration file (`api/spec/v1`): parsed, checked and turned into a geometry for one machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from providers.sim.controllers.gpus import PhysicalGpu
from providers.sim.machines import NodeShape

_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z]+(?:\.[a-z]+)*)*")
_FIELDS = frozenset({"device-filter", "devices", "mig-enabled", "mig-devices"})


class InvalidMigConfig(ValueError):
    """The file or one of its configurations is not what mig-parted accepts."""


@dataclass(frozen=True, slots=True)
class MigGroup:
    """Which GPUs (`indices` None = all; `filters` empty = any model), and how to cut them."""

    filters: tuple[str, ...]
    indices: tuple[int, ...] | None
    gpu: PhysicalGpu

    def covers(self, index: int, shape: NodeShape) -> bool:
        """Whether this entry speaks of that GPU."""
        if self.filters and not set(self.filters) & set(shape.gpu_device_ids):
            return False
        return self.indices is None or index in self.indices


MigConfig = tuple[MigGroup, ...]


def parse_mig_configs(text: str) -> dict[str, MigConfig]:
    """All configurations of a file by name; the file is refused as a whole, as `assert --valid-config` does."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidMigConfig(f"not YAML: {error}") from error
    if not isinstance(document, dict) or document.get("version") != "v1" or set(document) != {"version", "mig-configs"}:
        raise InvalidMigConfig("expected exactly the fields version: v1 and mig-configs")
    configs = document["mig-configs"]
    if not isinstance(configs, dict) or not all(isinstance(groups, list) and groups for groups in configs.values()):
        raise InvalidMigConfig("mig-configs must map each name to a list of groups")
    return {str(name): tuple(_group(str(name), group) for group in groups) for name, groups in configs.items()}


def _group(name: str, group: Any) -> MigGroup:
    if not isinstance(group, dict) or not set(group) <= _FIELDS:
        raise InvalidMigConfig(f"{name}: unknown fields in {group!r}")
    filters, devices = group.get("device-filter") or (), group.get("devices")
    if devices != "all" and not (
        isinstance(devices, list) and devices and all(type(d) is int and d >= 0 for d in devices)
    ):
        raise InvalidMigConfig(f"{name}: devices must be 'all' or a list of indexes")
    return MigGroup(
        filters=(filters,) if isinstance(filters, str) else tuple(map(str, filters)),
        indices=tuple(devices) if isinstance(devices, list) else None,
        gpu=_gpu(name, group.get("mig-enabled"), group.get("mig-devices")),
    )


def _gpu(name: str, enabled: Any, counts: Any) -> PhysicalGpu:
    if not isinstance(enabled, bool):
        raise InvalidMigConfig(f"{name}: mig-enabled must be true or false")
    if not enabled:
        if counts:
            raise InvalidMigConfig(f"{name}: mig-devices without mig-enabled")
        return PhysicalGpu()
    if not isinstance(counts, dict):
        raise InvalidMigConfig(f"{name}: mig-enabled without mig-devices")
    if not all(_PROFILE.fullmatch(str(profile)) and type(n) is int and n >= 0 for profile, n in counts.items()):
        raise InvalidMigConfig(f"{name}: mig-devices must map profiles to counts")
    if counts and not any(counts.values()):
        raise InvalidMigConfig(f"{name}: all counts are zero")
    return PhysicalGpu({str(profile): n for profile, n in counts.items() if n})


def geometry(config: MigConfig, shape: NodeShape, present: tuple[PhysicalGpu, ...]) -> tuple[PhysicalGpu, ...]:
    """How a machine is to be cut; a GPU no entry speaks of stays as it is, the last entry that does wins."""
    wanted = list(present)
    for index in range(len(wanted)):
        for group in config:
            if group.covers(index, shape):
                wanted[index] = group.gpu
    return tuple(wanted)


def same_geometry(a: tuple[PhysicalGpu, ...], b: tuple[PhysicalGpu, ...]) -> bool:
    """Whether two geometries hold the same instances on every GPU."""
    return len(a) == len(b) and all(_counts(x) == _counts(y) for x, y in zip(a, b, strict=True))


def _counts(gpu: PhysicalGpu) -> Mapping[str, int] | None:
    return None if gpu.profiles is None else {profile: n for profile, n in gpu.profiles.items() if n}
