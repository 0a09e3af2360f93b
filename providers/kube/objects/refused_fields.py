"""Fields of a pod template that would decide about places and are not honoured, and fields that are not known.

A gang whose templates have any waits, with their paths and what to do instead (`UnsupportedConstraint`).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from fleet.snapshot.constraints import UnsupportedConstraint
from model.labels import MIG_RESOURCE_PREFIX
from providers.kube.objects.names import PLACEMENT_GATE
from providers.kube.objects.shapes import Wire


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READ: Final = _words(
    "affinity containers hostNetwork initContainers nodeSelector overhead priorityClassName resourceClaims resources "
    "runtimeClassName tolerations topologySpreadConstraints volumes"
)
_REFUSED: Final = frozenset({"nodeName", "schedulingGates", "schedulingGroup"})
_PLACELESS: Final = _words(
    "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
    "ephemeralContainers hostAliases hostIPC hostPID hostUsers hostname hostnameOverride imagePullSecrets "
    "os preemptionPolicy priority readinessGates restartPolicy schedulerName securityContext "
    "serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds"
)
"""Fields by which kube-scheduler filters no node. Which scheduler binds pods is one: they are pinned before."""
KNOWN: Final = _READ | _REFUSED | _PLACELESS
"""Fields of `core/v1` PodSpec, as of Kubernetes 1.36."""

_ATTACHED: Final = _words(
    "awsElasticBlockStore azureDisk azureFile cinder gcePersistentDisk iscsi portworxVolume rbd vsphereVolume"
)
"""Volumes without a claim, of which kube-scheduler knows where they may be attached, and how often."""
_PLACELESS_VOLUMES: Final = _words(
    "cephfs configMap csi downwardAPI emptyDir fc flexVolume flocker gitRepo glusterfs hostPath image "
    "name nfs photonPersistentDisk projected quobyte scaleIO secret storageos persistentVolumeClaim "
    "ephemeral"
)


class SchedulingGate(Wire, frozen=True):
    """One scheduling gate."""

    name: str


def refused_gates(gates: Sequence[SchedulingGate] | None) -> Iterator[UnsupportedConstraint]:
    """Each scheduling gate but ours: pods would hold their machines behind it for as long as somebody likes."""
    for n, gate in enumerate(gates or ()):
        if gate.name != PLACEMENT_GATE:
            words = f"nothing here opens gate {gate.name[:63]}; remove it"
            yield UnsupportedConstraint(f"spec.schedulingGates[{n}]", words)


def refused_volumes(volumes: Sequence[Mapping[str, Any]] | None) -> Iterator[UnsupportedConstraint]:
    """Each volume without a claim that some nodes cannot attach, or of a kind that is not known."""
    for n, volume in enumerate(volumes or ()):
        for source in volume:
            if source in _ATTACHED:
                yield UnsupportedConstraint(f"spec.volumes[{n}].{source}", "mount it by a PersistentVolumeClaim")
            elif source not in _PLACELESS_VOLUMES:
                yield UnsupportedConstraint(f"spec.volumes[{n}].{source[:63]}", "not known to this version; remove it")


_FRACTION_NOTES: Final = ("gpu-fraction", "gpu-fraction-num-devices", "gpu-memory")
"""KAI-Scheduler's annotations of pods."""
_FRACTION_RESOURCES: Final = re.compile(r"volcano\.sh/v?gpu-.*|nvidia\.com/gpu(mem|mem-percentage|cores)")
"""Parts of a GPU as Volcano's device plugins and HAMi's name them: no count of them says whether a pod fits a GPU."""
_SHARE = "ask for 1 GPU of a pool with sharing.timeSlicing or sharing.mps, or for a MIG slice"


def refused_fractions(notes: Mapping[str, str], requests: Collection[str]) -> Iterator[UnsupportedConstraint]:
    """Each wish for a part of a GPU by its size, and for slices by annotation, as Run:ai and KAI-Scheduler had it.

    Pools offer GPUs whole, in replicas, or in slices.
    """
    for name in _FRACTION_NOTES:
        if notes.get(name):
            yield UnsupportedConstraint(f"metadata.annotations[{name}]", _SHARE)
    for name in sorted(notes):
        if name.startswith(MIG_RESOURCE_PREFIX):
            words = "slices are resources of containers here, not annotations: move it to resources.limits"
            yield UnsupportedConstraint(f"metadata.annotations[{name[:63]}]", words)
    for resource in sorted(requests):
        if _FRACTION_RESOURCES.fullmatch(resource):
            yield UnsupportedConstraint(f"spec.containers[].resources[{resource[:63]}]", _SHARE)


def refused_name(node_name: str | None) -> Iterator[UnsupportedConstraint]:
    """A node that the template names."""
    if node_name:
        words = "pods that name their node cannot wait for their gang; use nodeSelector"
        yield UnsupportedConstraint("spec.nodeName", words)


def refused_group(group: bytes) -> Iterator[UnsupportedConstraint]:
    """A group that kube-scheduler starts together by itself, whatever has been decided for the gang."""
    if group:
        yield UnsupportedConstraint("spec.schedulingGroup", "pods are started together by their gang; remove it")


def unknown_fields(spec: Mapping[str, Any]) -> Iterator[UnsupportedConstraint]:
    """Each field with a value that is not one of `core/v1` PodSpec."""
    unknown: Collection[str] = spec.keys() - KNOWN
    for name in sorted(unknown):
        if spec[name]:
            words = "not known to this version and may decide about places; remove it"
            yield UnsupportedConstraint(f"spec.{name[:63]}", words)
