"""One look at the cluster, for commands that only read."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from agent.accounts import Accounts
from agent.ears import WATCHED
from agent.mirror import Mirror
from fleet.snapshot import Catalog, Snapshot
from model import labels
from providers.clock import Clock
from providers.kube.batches import Replace
from providers.kube.config import connect
from providers.kube.errors import Forbidden, NotFound
from providers.kube.objects.paths import CONFIG_MAPS
from providers.kube.transport import KubeTransport


def open_cluster(kubeconfig: Path | None, context: str | None = None, url: str = "") -> KubeTransport:
    """A transport to the cluster that kubectl would talk to; raises `BadConnection`."""
    return KubeTransport(connect(url, kubeconfig, context))


def read_world(transport: KubeTransport, clock: Clock, catalog: Catalog, cluster: str = "default") -> Snapshot:
    """Everything the deciders look at, listed once; the instances are taken for what the claims say."""
    mirror = Mirror(cluster)
    mirror.catalog = catalog
    for table, watched in WATCHED.items():
        objects: dict[str, Any] = {}
        with suppress(NotFound) if watched.optional else nullcontext():
            for page in transport.list_pages(watched.resource):
                for raw in page.items or ():
                    value = watched.decode(raw)
                    objects[watched.key(value)] = value
        mirror.table(table).observe(Replace(objects, "0"))
    books = _books(transport)
    mirror.local_usage, mirror.interruptions = books.local_usage, books.interruptions
    return mirror.snapshot(clock.now(), frozenset())


def _books(transport: KubeTransport) -> Accounts:
    """What the agent's books say of use and interruptions; nothing for who may not read them."""
    accounts = Accounts()
    with suppress(Forbidden, ValueError):
        for page in transport.list_pages(CONFIG_MAPS, label_selector=labels.BOOKS):
            for raw in page.items or ():
                data = msgspec.json.decode(raw).get("data") or {}
                accounts.restore(data.get("books.json", ""))
    return accounts
