"""The configuration file of NVIDIA's mig-parted: what it may say, and nothing that mig-parted would refuse.

Source: NVIDIA/mig-parted `api/spec/v1/spec.go`, `pkg/types/mig_config.go`; NVIDIA/go-nvlib `pkg/nvlib/device/
mig_profile.go` (the format of profile names). A file is refused as a whole: mig-manager asserts it before it looks for
the configuration that a node asks for.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ATTRIBUTE = r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?"
_PROFILE = re.compile(rf"(?:\d+c\.)?\d+g\.\d+gb(?:[+-]({_ATTRIBUTE}(?:,{_ATTRIBUTE})*))?")
_REQUIRED = ("devices", "mig-enabled")
_FIELDS = frozenset({"device-filter", "mig-devices", *_REQUIRED})


class InvalidMigParted(ValueError):
    """mig-parted refuses the file; `path` is where, from the root of the document."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {message}" if path else message)
        self.message, self.path = message, path


@dataclass(frozen=True, slots=True)
class PartedEntry:
    """Which GPUs an entry speaks of, and how it cuts each of them."""

    filters: tuple[str, ...]
    """PCI ids (`0x20B010DE`, since v0.15 also `0x20B010DE:<subsystem>`); empty = of any model."""
    devices: tuple[int, ...] | None
    """Indexes; None = all."""
    profiles: Mapping[str, int] | None
    """Profile -> count, none of them zero; empty = MIG is on and nothing is cut; None = MIG is off."""

    def speaks_of(self, device_id: str) -> bool:
        """Whether the entry is for GPUs of this PCI id (`0x20B010DE`); ids are numbers, so that case does not count."""
        return not self.filters or any(_same_id(device, device_id) for device in self.filters)


PartedConfigs = Mapping[str, tuple[PartedEntry, ...]]
"""Configuration name -> its entries in order; of several that speak of a GPU the last one counts."""


def read_mig_parted(document: object) -> PartedConfigs:
    """The configurations of a parsed file by name; raises `InvalidMigParted` where mig-parted refuses it."""
    if not isinstance(document, Mapping):
        raise InvalidMigParted("the file must be a mapping")
    if document.get("version") != "v1":
        raise InvalidMigParted(f"the version must be the text v1, not {document.get('version')!r}", ("version",))
    for key in document:
        if key not in ("version", "mig-configs"):
            raise InvalidMigParted("unknown field", (str(key),))
    configs = document.get("mig-configs")
    if not isinstance(configs, Mapping) or not configs:
        raise InvalidMigParted("at least one configuration is required", ("mig-configs",))
    return {str(name): _entries(entries, ("mig-configs", str(name))) for name, entries in configs.items()}


def _same_id(one: str, other: str) -> bool:
    try:
        return int(one.partition(":")[0], 16) == int(other, 16)
    except ValueError:
        return False  # no number: mig-parted reads it as 0, which no GPU has


def _entries(entries: object, path: tuple[str | int, ...]) -> tuple[PartedEntry, ...]:
    if not isinstance(entries, list) or not entries:
        raise InvalidMigParted("at least one entry is required", path)
    return tuple(_entry(entry, (*path, index)) for index, entry in enumerate(entries))


def _entry(entry: object, path: tuple[str | int, ...]) -> PartedEntry:
    if not isinstance(entry, Mapping):
        raise InvalidMigParted("an entry must be a mapping", path)
    for key in entry:
        if key not in _FIELDS:
            raise InvalidMigParted("unknown field", (*path, str(key)))
    for key in _REQUIRED:
        if key not in entry:
            raise InvalidMigParted(f"the field {key!r} is required", path)
    enabled = entry["mig-enabled"]
    if not isinstance(enabled, bool | None):
        raise InvalidMigParted(f"expected true or false, not {enabled!r}", (*path, "mig-enabled"))
    counts = _counts(entry.get("mig-devices"), (*path, "mig-devices"))
    if enabled and counts is None:
        raise InvalidMigParted("'mig-devices' is required when 'mig-enabled' is true", path)
    if not enabled and counts:
        raise InvalidMigParted("'mig-devices' must be left out when 'mig-enabled' is false", (*path, "mig-devices"))
    return PartedEntry(
        _filters(entry.get("device-filter"), (*path, "device-filter")),
        _devices(entry["devices"], (*path, "devices")),
        counts if enabled else None,
    )


def _filters(filters: object, path: tuple[str | int, ...]) -> tuple[str, ...]:
    """A text or a list of texts; an empty one filters nothing."""
    listed = [filters] if isinstance(filters, str) and filters else filters or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidMigParted('expected a PCI id in quotes ("0x20B010DE") or a list of them', path)
    return tuple(listed)


def _devices(devices: object, path: tuple[str | int, ...]) -> tuple[int, ...] | None:
    """`all`, or a list of indexes, of which those that no GPU has speak of none."""
    if devices == "all":
        return None
    if not isinstance(devices, list) or not all(type(index) is int for index in devices):
        raise InvalidMigParted(f"expected 'all' or a list of indexes, not {devices!r}", path)
    return tuple(devices)


def _counts(counts: object, path: tuple[str | int, ...]) -> dict[str, int] | None:
    if counts is None:
        return None
    if not isinstance(counts, Mapping):
        raise InvalidMigParted("expected profiles and their counts", path)
    found = {str(profile): _count(count, (*path, str(profile))) for profile, count in counts.items()}
    for profile in found:
        named = _PROFILE.fullmatch(profile)
        attributes = (named[1] or "").split(",") if named else []
        if named is None or len(set(attributes)) < len(attributes):
            raise InvalidMigParted(f"{profile!r} is no profile; one is written 1g.5gb or 1g.5gb+me", (*path, profile))
    if found and not any(found.values()):
        raise InvalidMigParted("all counts are zero", path)
    return {profile: count for profile, count in found.items() if count}


def _count(count: Any, path: tuple[str | int, ...]) -> int:
    """A whole number from 0; nothing is 0, as Go reads it."""
    if count is None:
        return 0
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < 2**63 or count != int(count):
        raise InvalidMigParted(f"expected a number from 0, not {count!r}", path)
    return int(count)
