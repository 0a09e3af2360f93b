"""Resource amounts of nodes, containers and pods.

Equal objects share one mapping: the JSON text of the resources is the key, so that of 100,000 pods of a few hundred
shapes almost none has its quantities parsed. Callers never change what they get.
"""

from functools import lru_cache

import msgspec
from msgspec import Raw, Struct

from model.quantity import Resources, canonical_resources

NO_RESOURCES: Resources = {}
_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
Container = tuple[bool, bytes]
"""(is a sidecar, JSON of its `resources`)."""


class _Requirements(Struct, frozen=True, gc=False):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


_requirements = msgspec.json.Decoder(_Requirements)
_list = msgspec.json.Decoder(dict[str, str | int] | None)


def raw_bytes(raw: Raw) -> bytes:
    """The JSON text, empty where the field is absent (an empty `Raw`) or null."""
    text = bytes(raw)
    return b"" if text == b"null" else text


@lru_cache(maxsize=65536)
def resource_list(text: bytes) -> Resources:
    """A resource list (`overhead`, `allocatable`) in canonical amounts, without the zeros."""
    found = canonical_resources(_list.decode(text) or {}) if text else {}
    return {name: amount for name, amount in found.items() if amount}


@lru_cache(maxsize=65536)
def container_requests(text: bytes) -> Resources:
    """What one container asks for. A limit without a request is the request (`core/v1` SetDefaults_Pod).

    The API does that when it stores a pod but not inside a job's template, where GPUs are often given as limits only.
    """
    if not text:
        return NO_RESOURCES
    found = _requirements.decode(text)
    return canonical_resources({**(found.limits or {}), **(found.requests or {})})


@lru_cache(maxsize=65536)
def pod_requests(
    containers: tuple[bytes, ...], init_containers: tuple[Container, ...], overhead: bytes, pod_level: bytes
) -> Resources:
    """What a pod takes on a node (`k8s.io/component-helpers/resource` PodRequests).

    The larger of all containers with all sidecars together and, for each init container, itself with the sidecars
    started before it; what is given for the whole pod replaces that; plus the overhead of its runtime class.
    """
    sidecars: dict[str, int] = {}
    start: dict[str, int] = {}
    for is_sidecar, text in init_containers:
        asked = container_requests(text)
        if is_sidecar:
            _add(sidecars, asked)
            _raise_to(start, sidecars)
        else:
            _raise_to(start, _sum(sidecars, asked))
    total = dict(sidecars)
    for text in containers:
        _add(total, container_requests(text))
    _raise_to(total, start)
    total.update(_of_whole_pod(pod_level, total))
    _add(total, resource_list(overhead))
    return {name: amount for name, amount in total.items() if amount}


def _of_whole_pod(text: bytes, of_containers: Resources) -> Resources:
    """Requests of the whole pod. A limit counts where no container requests any of it, and of huge pages always.

    (`SetDefaults_Pod`, KEP-2837)
    """
    if not text:
        return NO_RESOURCES
    found = _requirements.decode(text)
    limits = canonical_resources(found.limits or {}).items()
    asked = {name: amount for name, amount in limits if name not in of_containers or name.startswith(_HUGE_PAGES)}
    asked |= canonical_resources(found.requests or {})
    return {name: amount for name, amount in asked.items() if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}


def _add(into: dict[str, int], amounts: Resources) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + amount


def _sum(left: Resources, right: Resources) -> dict[str, int]:
    total = dict(left)
    _add(total, right)
    return total


def _raise_to(into: dict[str, int], amounts: Resources) -> None:
    for name, amount in amounts.items():
        into[name] = max(into.get(name, 0), amount)
