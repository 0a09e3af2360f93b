"""`muster run`: build the adapters from the settings and let the agent run."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from agent.cli import exits
from agent.clouds import cloud_provider
from agent.clouds.provider import CloudConnection, ConnectedCloud
from agent.config import InvalidConfiguration, Settings, load_settings
from agent.fleet_source import open_source
from agent.logs import configure_logs
from agent.process import Agent
from agent.review.opening import review_ports
from model.addresses import without_secrets
from providers.clock import Clock, SystemClock
from providers.git.errors import SourceError
from providers.kube.config import connect
from providers.kube.errors import AlreadyExists, KubeError
from providers.kube.transport import KubeTransport
from providers.ports import CloudError

log = structlog.get_logger(__name__)

_FRESH_S = 600.0
"""The server's version is asked for anew after this long."""


def run_agent(config: Path) -> int:
    """Run until told to stop; the exit code. A lost lease ends it with an error, so that it is started anew."""
    try:
        settings = load_settings(config)
    except InvalidConfiguration as error:
        exits.complain(*str(error).splitlines())
        return exits.ERROR
    configure_logs(settings.log_format)
    clock = SystemClock()
    try:
        transport = KubeTransport(connect(settings.kube.url, settings.kube.kubeconfig, settings.kube.context))
        if settings.install_crds:
            install_crds(transport)
        cloud, notices, health = open_cloud(settings, clock, ClusterVersion(transport, clock))
        source = open_source(settings, clock)
        review = review_ports(settings, clock)
    except (KubeError, CloudError, SourceError, ValueError, OSError) as error:
        log.error("cannot_start", why=f"{type(error).__name__}: {error}")  # noqa: TRY400 - the cause is in the message
        return exits.ERROR
    agent = Agent(settings, transport, cloud, source, notices, health, review, clock=clock)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    log.info("started", cluster=settings.cluster, source=without_secrets(settings.source.url), pid=os.getpid())
    agent.run()
    log.info("stopped", lost_lease=agent.lost_lease)
    return exits.ERROR if agent.lost_lease else exits.OK


def install_crds(transport: KubeTransport) -> None:
    """Create Muster's CRDs where they are missing, and bring them up to date where they are not."""
    from providers.kube.objects.crds import definitions
    from providers.kube.resources import ResourcePath

    crds = ResourcePath("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
    for definition in definitions():
        try:
            transport.create(crds, definition)
        except AlreadyExists:
            transport.apply(crds, definition["metadata"]["name"], definition, force=True)


def open_cloud(settings: Settings, clock: Clock, kubernetes_version: Callable[[], str]) -> ConnectedCloud:
    """The cloud that the settings name."""
    said = settings.of_cloud
    where = CloudConnection(
        settings.region,
        settings.cluster,
        said.endpoint_url,
        said.interruption_queue_url,
        said.cluster_endpoint,
        said.certificate_authority,
        said.service_cidr,
        kubernetes_version,
    )
    return cloud_provider(settings.cloud).connect(where, clock)


class ClusterVersion:
    """Asks the API server, at most every ten minutes; while it does not answer, what it said last stands."""

    def __init__(self, transport: KubeTransport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._known = ""
        self._read_s = 0.0

    def __call__(self) -> str:
        """Such as `1.34`; empty as long as the server has never answered."""
        now_s = self._clock.monotonic()
        if not self._known or now_s - self._read_s > _FRESH_S:
            try:
                self._known = minor_version(self._transport.get("/version"))
                self._read_s = now_s
            except (KubeError, ValueError, KeyError) as error:
                log.warning("version of the cluster not read", error=str(error))
        return self._known


def minor_version(answer: bytes) -> str:
    """`1.34` of what `/version` answers; EKS writes its minor version `34+`."""
    said = json.loads(answer)
    return f"{said['major']}.{said['minor'].rstrip('+')}"
