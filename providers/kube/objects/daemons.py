"""`apps/v1` DaemonSet -> `DaemonOverhead`."""

import msgspec
from msgspec import Raw

from fleet.snapshot import DaemonOverhead
from providers.kube.objects.pod_requests import requests_of
from providers.kube.objects.pod_templates import PodTemplate, tolerations_of
from providers.kube.objects.shapes import Wire, WireMeta, interned


class _DaemonSetSpec(Wire, frozen=True):
    template: PodTemplate = PodTemplate()


class _DaemonSet(Wire, frozen=True):
    metadata: WireMeta
    spec: _DaemonSetSpec = _DaemonSetSpec()


_decoder = msgspec.json.Decoder(_DaemonSet)


def decode_daemonset(raw: bytes | Raw) -> DaemonOverhead:
    """What each of its pods takes and on which nodes. Affinity and tolerations do not lessen that: rather too much."""
    found = _decoder.decode(raw)
    spec = found.spec.template.spec
    name = f"{found.metadata.namespace}/{found.metadata.name}"
    return DaemonOverhead(
        node_selector=interned(spec.node_selector),
        requests=requests_of(spec),
        name=name,
        tolerations=tolerations_of(spec.tolerations),
    )
