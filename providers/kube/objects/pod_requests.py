"""What a pod spec asks of a node, read alike from pods and from templates."""

from typing import Final

from msgspec import Raw

from model.quantity import Resources
from providers.kube.objects.amounts import pod_requests, raw_bytes
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
    return pod_requests(
        tuple([raw_bytes(container.resources) for container in spec.containers or ()]),
        tuple([(one.restart_policy == "Always", raw_bytes(one.resources)) for one in spec.init_containers or ()]),
        raw_bytes(spec.overhead) if overhead else b"",
        raw_bytes(spec.resources),
    )
