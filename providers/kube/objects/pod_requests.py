"""What a pod spec asks of a node, read alike from pods and from templates."""

from typing import Final

from msgspec import Raw

from fleet.snapshot.limit_ranges import AdmittedPod, PodAmounts
from model.quantity import Resources
from providers.kube.objects.amounts import Container, as_created, pod_amounts, raw_bytes
from providers.kube.objects.shapes import Wire

ABSENT: Final = Raw()
"""Stands for a field that is not there."""


class ContainerResources(Wire, frozen=True):
    """A container, as far as placement goes. `restart_policy` Always makes an init container a sidecar."""

    resources: Raw = Raw()
    restart_policy: str | None = None
    ports: Raw = ABSENT


class PodResources(Wire, frozen=True):
    """The fields of a pod spec that say what it takes on a node."""

    containers: list[ContainerResources] | None = None
    init_containers: list[ContainerResources] | None = None
    overhead: Raw = Raw()
    resources: Raw = Raw()


def requests_of(spec: PodResources, *, overhead: bool = True) -> Resources:
    """What a pod of this spec takes on a node, in canonical amounts, with or without its `overhead`.

    Equal pods share it.
    """
    return as_created(*_texts(spec, overhead=overhead)).requests


def template_amounts(spec: PodResources, *, overhead: bool) -> tuple[PodAmounts, AdmittedPod]:
    """What a template says of amounts, and what its pods are where no LimitRange is. Equal templates share both."""
    texts = _texts(spec, overhead=overhead)
    return pod_amounts(*texts), as_created(*texts)


def _texts(spec: PodResources, *, overhead: bool) -> tuple[tuple[bytes, ...], tuple[Container, ...], bytes, bytes]:
    return (
        tuple([raw_bytes(container.resources) for container in spec.containers or ()]),
        tuple([(one.restart_policy == "Always", raw_bytes(one.resources)) for one in spec.init_containers or ()]),
        raw_bytes(spec.overhead) if overhead else b"",
        raw_bytes(spec.resources),
    )
