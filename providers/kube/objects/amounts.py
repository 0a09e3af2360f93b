"""Resource amounts of nodes, containers and pods.

Equal objects share one mapping: the JSON text of the resources is the key, so that of 100,000 pods of a few hundred
shapes almost none has its quantities parsed. Callers never change what they get.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

import msgspec
from msgspec import Raw, Struct

from fleet.snapshot.limit_ranges import AdmittedPod, ContainerAmounts, PodAmounts, admitted, containers_total
from model.quantity import MAX_AMOUNT, Resources, canonical_resources, parse_quantity

NO_RESOURCES: Resources = {}
_FINEST: Final = 10**9
"""Quantities are kept in billionths at the finest."""
_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
Container = tuple[bool, bytes]
"""(is a sidecar, JSON of its `resources`)."""


class _Requirements(Struct, frozen=True, gc=False):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


_requirements = msgspec.json.Decoder(_Requirements)
_list = msgspec.json.Decoder(dict[str, str | int] | None)


def exact_amount(value: str | int) -> Fraction:
    """A quantity as Kubernetes keeps it, not below 0; raises `InvalidQuantity`."""
    found = min(max(parse_quantity(value), Fraction(0)), Fraction(MAX_AMOUNT))
    return Fraction(ceil(found * _FINEST), _FINEST)


def amount_text(amount: Fraction) -> str:
    """The quantity that is read as such an amount again."""
    return str(amount) if amount.denominator == 1 else f"{amount * _FINEST}n"


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
def _container_amounts(text: bytes) -> tuple[Resources, Resources]:
    """Requests and limits of one container. A limit without a request is the request (`core/v1` SetDefaults_Pod).

    The API does that when it stores a pod but not inside a job's template, where GPUs are often given as limits only.
    """
    if not text:
        return NO_RESOURCES, NO_RESOURCES
    found = _requirements.decode(text)
    limits = canonical_resources(found.limits or {})
    return {**limits, **canonical_resources(found.requests or {})}, limits


@lru_cache(maxsize=65536)
def pod_amounts(
    containers: tuple[bytes, ...], init_containers: tuple[Container, ...], overhead: bytes, pod_level: bytes
) -> PodAmounts:
    """What a pod spec says of amounts. What is given for the whole pod replaces what its containers ask."""
    read = (
        *(
            ContainerAmounts(f"spec.initContainers[{n}]", *_container_amounts(text), init=True, sidecar=is_sidecar)
            for n, (is_sidecar, text) in enumerate(init_containers)
        ),
        *(ContainerAmounts(f"spec.containers[{n}]", *_container_amounts(text)) for n, text in enumerate(containers)),
    )
    requests, limits = NO_RESOURCES, NO_RESOURCES
    if pod_level:
        requests, limits = _of_whole_pod(pod_level, containers_total([(it, it.requests) for it in read]))
    return PodAmounts(read, resource_list(overhead), requests, limits)


@lru_cache(maxsize=65536)
def as_created(
    containers: tuple[bytes, ...], init_containers: tuple[Container, ...], overhead: bytes, pod_level: bytes
) -> AdmittedPod:
    """What a pod of these amounts takes on a node where no LimitRange is, and why no API server takes it."""
    return admitted(pod_amounts(containers, init_containers, overhead, pod_level), ())


def _of_whole_pod(text: bytes, of_containers: Resources) -> tuple[Resources, Resources]:
    """Requests and limits of the whole pod. A limit counts as request where no container requests any of it.

    That of huge pages always does. (`SetDefaults_Pod`, KEP-2837)
    """
    found = _requirements.decode(text)
    limits = canonical_resources(found.limits or {})
    asked = {name: it for name, it in limits.items() if name not in of_containers or name.startswith(_HUGE_PAGES)}
    asked |= canonical_resources(found.requests or {})
    return _pod_level(asked), _pod_level(limits)


def _pod_level(amounts: Resources) -> Resources:
    return {name: it for name, it in amounts.items() if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}
