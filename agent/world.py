"""One look at the cluster, for commands that only read."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import structlog

from agent.accounts import Accounts
from agent.config import BOOKS, NAMESPACE
from agent.mirror import Mirror
from agent.sources import WATCHED
from fleet.cost.statement import Month
from fleet.nodeclaims.drift import RESERVATION
from fleet.nodeclaims.drift_facts import PROVIDER_DRIFT
from fleet.snapshot import Catalog, Snapshot
from model import labels
from providers.clock import Clock
from providers.kube.batches import Replace
from providers.kube.config import connect
from providers.kube.errors import Forbidden, NotFound
from providers.kube.objects import decode_drifted, decode_sync
from providers.kube.objects.names import GROUP
from providers.kube.objects.paths import CONFIG_MAPS, FLEET_SYNCS, NODE_POOLS
from providers.kube.objects.reports import SyncReport
from providers.kube.reading import Watched
from providers.kube.resources import ResourcePath
from providers.kube.transport import KubeTransport

log = structlog.get_logger(__name__)


def open_cluster(kubeconfig: Path | None, context: str | None = None, url: str = "") -> KubeTransport:
    """A transport to the cluster that kubectl would talk to; raises `BadConnection`."""
    return KubeTransport(connect(url, kubeconfig, context))


def read_world(
    transport: KubeTransport,
    clock: Clock,
    catalog: Catalog,
    cluster: str = "",
    *,
    installed: bool = True,
    warn: Callable[[str], object] = lambda words: log.warning("not_read", why=words),
) -> Snapshot:
    """Everything the deciders look at, listed once; the instances are taken for what the claims say.

    The cloud is not asked: how machines differ from what it would give their pools now is what the agent tells. Of a
    kind that a cluster need not serve, and that may not be read, there are none: `warn` hears which, and what would
    allow it. Raises `Forbidden`, with the same words, where any other kind may not be read. Where Muster is not
    installed the kinds that it defines need not be served either. A cluster that is not named is the one of the only
    FleetSync.
    """
    syncs = _syncs(transport)
    cluster = cluster or (syncs[0].name if len(syncs) == 1 else _UNNAMED)
    mirror, of_day = Mirror(cluster), transport.clock(clock)
    mirror.catalog = catalog
    for table, watched in WATCHED.items():
        may_lack = watched.optional or (not installed and watched.resource.group == GROUP)
        mirror.table(table).observe(Replace(_listed(transport, watched, warn, may_lack=may_lack), "0"))
    books = _books(transport)
    now_s = of_day.now()
    mirror.local_usage, mirror.interruptions = books.local_usage, books.interruptions
    mirror.spent_usd = books.spent_usd if books.month == Month.of(now_s).name else {}
    return replace(mirror.snapshot(now_s, frozenset()), strays=_strays(transport), **_remembered(syncs, cluster))


def _listed(
    transport: KubeTransport, watched: Watched[Any], warn: Callable[[str], object], *, may_lack: bool
) -> dict[str, Any]:
    objects: dict[str, Any] = {}
    try:
        for page in transport.list_pages(watched.resource, field_selector=watched.field_selector):
            for raw in page.items or ():
                value = watched.decode(raw)
                objects[watched.key(value)] = value
    except NotFound:
        if not may_lack:
            raise
    except Forbidden as error:
        if not may_lack:
            raise Forbidden(f"{rule_to_list(watched.resource)}: {error}", code=error.code) from error
        warn(f"{rule_to_list(watched.resource)}; without it the plan knows none of them")
        return {}
    return objects


def rule_to_list(resource: ResourcePath) -> str:
    """Returns which kind may not be listed, and the rule of a ClusterRole that would allow it."""
    rule = f'{{apiGroups: ["{resource.group}"], resources: [{resource.plural}], verbs: [list]}}'
    return f"{resource} may not be listed: add {rule} to the role (deploy/components/plan-reader has all of them)"


def _strays(transport: KubeTransport) -> Mapping[str, tuple[str, str]]:
    """Claim -> what the agent says of its machine that can only be known from the cloud."""
    found: dict[str, tuple[str, str]] = {}
    with suppress(Forbidden, NotFound):
        for page in transport.list_pages(NODE_POOLS):
            for raw in page.items or ():
                found |= {name: how for name, how in decode_drifted(raw).items() if how[0] in _FROM_THE_CLOUD}
    return found


def _syncs(transport: KubeTransport) -> Sequence[SyncReport]:
    """The FleetSyncs; none for who may not read them."""
    with suppress(Forbidden, NotFound):
        return [decode_sync(raw) for page in transport.list_pages(FLEET_SYNCS) for raw in page.items or ()]
    return ()


def _remembered(syncs: Sequence[SyncReport], cluster: str) -> dict[str, Any]:
    """What the agent remembers of roll-outs and layouts."""
    return next(({"rollout": it.rollout, "layout_records": it.layouts} for it in syncs if it.name == cluster), {})


_UNNAMED = "default"
_FROM_THE_CLOUD = PROVIDER_DRIFT | {RESERVATION}


def _books(transport: KubeTransport) -> Accounts:
    """What the agent's books say of use and interruptions; nothing for who may not read them.

    They are read by name where the agent usually lives, which takes no right to list ConfigMaps, or found by label.
    """
    accounts = Accounts()
    with suppress(Forbidden, ValueError):
        try:
            found = [transport.read(CONFIG_MAPS, BOOKS, NAMESPACE)]
        except (Forbidden, NotFound):
            pages = transport.list_pages(CONFIG_MAPS, label_selector=labels.BOOKS)
            found = [bytes(raw) for page in pages for raw in page.items or ()]
        for raw in found:
            data = msgspec.json.decode(raw).get("data") or {}
            accounts.restore(data.get("books.json", ""))
    return accounts
