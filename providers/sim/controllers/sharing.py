"""The device plugin's configuration file, as far as GPUs are shared: who is offered how often, and under what name.

Source: NVIDIA/k8s-device-plugin `api/config/v1/{config,sharing,replicas,resources}.go`. As there, MPS goes before
time-slicing, `rename` and a choice of `devices` are ignored, and so is every key that nobody knows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import yaml

SharingStrategy = Literal["none", "time-slicing", "mps"]
_FIELDS: Final[Mapping[str, SharingStrategy]] = {"mps": "mps", "timeSlicing": "time-slicing"}
_NAME_MAX = 63
_DNS = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class InvalidPluginConfig(ValueError):
    """The device plugin refuses its configuration and does not start."""


@dataclass(frozen=True, slots=True)
class GpuSharing:
    """How a node's GPUs are shared; without a resource, not at all."""

    strategy: SharingStrategy = "none"
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Resource -> how often each device of it is offered, 2 or more."""
    renamed: bool = False
    """Whether what is shared is offered as `<resource>.shared`."""

    def offered(self, resource: str) -> str:
        """The name under which devices of a resource are offered."""
        return f"{resource}.shared" if self.renamed and resource in self.replicas else resource


NOT_SHARED: Final = GpuSharing()


def read_plugin_config(text: str) -> GpuSharing:
    """The sharing of a configuration; raises `InvalidPluginConfig`. An empty text shares nothing."""
    try:
        document = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise InvalidPluginConfig(f"not YAML: {error}") from error
    config = _mapping(document, "the configuration")
    if (version := config.get("version") or "v1") != "v1":
        raise InvalidPluginConfig(f"unknown version: {version}")
    sharing = _mapping(config.get("sharing"), "sharing")
    found = {kind: _shared(kind, sharing[key]) for key, kind in _FIELDS.items() if sharing.get(key) is not None}
    return next(iter(found.values()), NOT_SHARED)


def _shared(kind: SharingStrategy, said: object) -> GpuSharing:
    shared = _mapping(said, kind)
    renamed, resources = shared.get("renameByDefault") or False, shared.get("resources")
    for key in ("renameByDefault", "failRequestsGreaterThanOne"):
        if not isinstance(shared.get(key), bool | None):
            raise InvalidPluginConfig(f"{key} must be true or false")
    if not isinstance(resources, list) or not resources:
        raise InvalidPluginConfig("no resources specified")
    replicas: dict[str, int] = {}
    for one in resources:
        name, times = _replicated(_mapping(one, "a resource"))
        replicas.setdefault(name, times)
    return GpuSharing(kind, replicas, renamed)


def _replicated(said: Mapping[str, Any]) -> tuple[str, int]:
    if "name" not in said:
        raise InvalidPluginConfig("no resource name specified")
    if "replicas" not in said:
        raise InvalidPluginConfig("no replicas specified")
    _check_devices(said.get("devices", "all"))
    if "rename" in said:
        _resource_name(said["rename"])
    replicas = said["replicas"]
    if type(replicas) is not int or replicas < 2:
        raise InvalidPluginConfig(f"number of replicas must be >= 2, not {replicas!r}")
    return _resource_name(said["name"]), replicas


def _resource_name(said: object) -> str:
    """A resource in full: `gpu` is `nvidia.com/gpu`."""
    if not isinstance(said, str):
        raise InvalidPluginConfig(f"a resource name must be text, not {said!r}")
    name = said if said.startswith("nvidia.com/") else f"nvidia.com/{said}"
    if len(name) > _NAME_MAX or not _DNS.fullmatch(name.partition("/")[2]):
        raise InvalidPluginConfig(f"incorrect format for resource name {name!r}")
    return name


def _check_devices(said: object) -> None:
    """A choice of devices has no effect, but it must be one: all, a count, or a list of indexes and UUIDs."""
    if said == "all" or (type(said) is int and said > 0):
        return
    if not isinstance(said, list) or not all(_DEVICE.fullmatch(str(one)) for one in said):
        raise InvalidPluginConfig(f"devices cannot be {said!r}")


_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+(:\d+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")


def _mapping(said: object, what: str) -> Mapping[str, Any]:
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise InvalidPluginConfig(f"{what} must be a mapping, not {said!r}")
    return said
