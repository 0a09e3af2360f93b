"""Where dcgm-exporter answers: the pods of its DaemonSet, by label, with the node that each stands on."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from providers.kube.objects.shapes import Wire, WireMeta
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport

MOST_EXPORTERS: Final = 10_000
_PORT_NAME: Final = "metrics"
_USUAL_PORT: Final = 9400


class GpuExporter(NamedTuple):
    """A `GpuExporter` is one pod of dcgm-exporter."""

    node: str
    url: str


class _Port(Wire, frozen=True):
    name: str = ""
    container_port: int = 0


class _Container(Wire, frozen=True):
    ports: list[_Port] | None = None


class _ExporterSpec(Wire, frozen=True):
    node_name: str = ""
    containers: list[_Container] | None = None


class _ExporterStatus(Wire, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")


class _ExporterPod(Wire, frozen=True):
    metadata: WireMeta
    spec: _ExporterSpec = _ExporterSpec()
    status: _ExporterStatus = _ExporterStatus()


_decoder = msgspec.json.Decoder(_ExporterPod)


def find_exporters(
    transport: KubeTransport, namespace: str, selector: str, port: int | None = None
) -> tuple[GpuExporter, ...]:
    """Lists the pods that run, one a node. `port` None: their container port `metrics`, else 9400. Raises KubeError."""
    found = dict(_running(transport, namespace, selector, port))
    return tuple(GpuExporter(node, url) for node, url in sorted(found.items())[:MOST_EXPORTERS])


def _running(transport: KubeTransport, namespace: str, selector: str, port: int | None) -> Iterator[tuple[str, str]]:
    for page in transport.list_pages(PODS, namespace, label_selector=selector):
        for raw in page.items or ():
            pod = _decoder.decode(raw)
            if pod.status.phase == "Running" and pod.status.pod_ip and pod.spec.node_name:
                host = f"[{pod.status.pod_ip}]" if ":" in pod.status.pod_ip else pod.status.pod_ip
                yield pod.spec.node_name, f"http://{host}:{port or _port_of(pod)}/metrics"


def _port_of(pod: _ExporterPod) -> int:
    ports = (it for container in pod.spec.containers or () for it in container.ports or ())
    return next((it.container_port for it in ports if it.name == _PORT_NAME and it.container_port), _USUAL_PORT)
