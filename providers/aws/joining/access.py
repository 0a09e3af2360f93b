"""What every family has to be told, and the forms that labels and taints must have."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from model.kinds import NodeTemplate, Taint
from providers.ports import CloudRejected

_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_OWN_KUBERNETES_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_OWN_KUBERNETES_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How a node finds and trusts its API server; `certificate_authority` is base64 of PEM."""

    name: str
    endpoint: str = ""
    certificate_authority: str = ""
    service_cidr: str = ""


class Mark(NamedTuple):
    """A taint as a tuple, which sorts."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Joining:
    """All that a machine is told to join its cluster. Labels and taints are sorted: equal nodes get equal text."""

    access: ClusterAccess
    template: NodeTemplate
    labels: Mapping[str, str]
    """Without those that a kubelet may not give itself."""
    taints: tuple[Mark, ...]


def joining(
    access: ClusterAccess, template: NodeTemplate, labels: Mapping[str, str], taints: Iterable[Taint]
) -> Joining:
    """Raises `CloudRejected` for labels or taints that are none.

    `kubernetes.io` labels that a kubelet must not give itself are left out, as it would refuse to start; whoever
    registers the node writes them.
    """
    for key, value in labels.items():
        _check(_NAME.fullmatch(key) and _VALUE.fullmatch(value), f"{key}={value} is not a label")
    marks = sorted({Mark(taint.key, taint.value, taint.effect) for taint in taints})
    for mark in marks:
        _check(_NAME.fullmatch(mark.key) and _VALUE.fullmatch(mark.value), f"{mark.key}={mark.value} is not a taint")
    own = {key: labels[key] for key in sorted(labels) if _kubelet_may_set(key)}
    return Joining(access, template, own, tuple(marks))


def kubelet_flags(told: Joining) -> list[str]:
    """`--node-labels` and `--register-with-taints`."""
    flags = []
    if told.labels:
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in told.labels.items()))
    if told.taints:
        marks = (f"{mark.key}={mark.value}:{mark.effect}" for mark in told.taints)
        flags.append("--register-with-taints=" + ",".join(marks))
    return flags


def _check(valid: object, message: str) -> None:
    if not valid:
        raise CloudRejected(message)


def _kubelet_may_set(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    reserved = any(domain == name or domain.endswith("." + name) for name in ("kubernetes.io", "k8s.io"))
    if not reserved or key in _OWN_KUBERNETES_LABELS:
        return True
    return any(domain == name or domain.endswith("." + name) for name in _OWN_KUBERNETES_DOMAINS)
