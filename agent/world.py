"""One look at the cluster, for commands that only read."""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from agent.accounts import Accounts
from agent.mirror import Mirror
from agent.sources import WATCHED
from fleet.disruption.drift import RESERVATION
from fleet.nodeclaims.drift_facts import PROVIDER_DRIFT
from fleet.snapshot import Catalog, Snapshot
from model import labels
from providers.clock import Clock
from providers.kube.batches import Replace
from providers.kube.config import connect
from providers.kube.errors import Forbidden, NotFound
from providers.kube.objects import decode_drifted
from providers.kube.objects.paths import CONFIG_MAPS, NODE_POOLS
from providers.kube.transport import KubeTransport


def open_cluster(kubeconfig: Path | None, context: str | None = None, url: str = "") -> KubeTransport:
    """A transport to the cluster that kubectl would talk to; raises `BadConnection`."""
    return KubeTransport(connect(url, kubeconfig, context))


def read_world(transport: KubeTransport, clock: Clock, catalog: Catalog, cluster: str = "default") -> Snapshot:
    """Everything the deciders look at, listed once; the instances are taken for what the claims say.

    The cloud is not asked: how machines differ from what it would give their pools now is what the agent tells.
    """
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
    return replace(mirror.snapshot(clock.now(), frozenset()), strays=_strays(transport))


def _strays(transport: KubeTransport) -> Mapping[str, tuple[str, str]]:
    """Claim -> what the agent says of its machine that can only be known from the cloud."""
    found: dict[str, tuple[str, str]] = {}
    with suppress(Forbidden, NotFound):
        for page in transport.list_pages(NODE_POOLS):
            for raw in page.items or ():
                found |= {name: how for name, how in decode_drifted(raw).items() if how[0] in _FROM_THE_CLOUD}
    return found


_FROM_THE_CLOUD = PROVIDER_DRIFT | {RESERVATION}


def _books(transport: KubeTransport) -> Accounts:
    """What the agent's books say of use and interruptions; nothing for who may not read them."""
    accounts = Accounts()
    with suppress(Forbidden, ValueError):
        for page in transport.list_pages(CONFIG_MAPS, label_selector=labels.BOOKS):
            for raw in page.items or ():
                data = msgspec.json.decode(raw).get("data") or {}
                accounts.restore(data.get("books.json", ""))
    return accounts
