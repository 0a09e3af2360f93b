"""Which version of Kubernetes the cluster runs: images of an alias are made for one."""

import json

import structlog

from providers.clock import Clock
from providers.kube.errors import KubeError
from providers.kube.transport import KubeTransport

_FRESH_S = 600.0

_log = structlog.get_logger(__name__)


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
                _log.warning("version of the cluster not read", error=str(error))
        return self._known


def minor_version(answer: bytes) -> str:
    """`1.34` of what `/version` answers; EKS writes its minor version `34+`."""
    said = json.loads(answer)
    return f"{said['major']}.{said['minor'].rstrip('+')}"
