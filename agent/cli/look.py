"""What commands that ask about machines look at: the cluster where there is one, and what is on sale."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cli import exits
from agent.clouds import cloud_provider
from fleet.snapshot import CapacityPool, Catalog, Snapshot
from model.loader import InvalidFleet
from model.report import text as problem_text
from providers.clock import SystemClock
from providers.kube.errors import KubeError

if TYPE_CHECKING:  # what reads a cluster takes longer to load than what a command does with files alone
    from providers.kube.transport import KubeTransport


def answered(answer: Callable[[], int]) -> int:
    """Returns the exit code of what a command answers; what is wrong with the files or the cluster becomes one too."""
    try:
        return answer()
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except (KubeError, UnknownRegion, OSError) as error:
        exits.complain(error)
        return exits.ERROR


class UnknownRegion(Exception):
    """Nothing is known to be sold there, so no purchase could be told of."""


@dataclass(frozen=True, slots=True)
class Look:
    """Holds what a command looks at: a snapshot of the cluster, with the prices that ship with Muster."""

    snapshot: Snapshot
    agent_priced_at_s: float = 0.0
    """How old the agent's own prices are (epoch seconds); 0 = it was not asked, or does not say."""


def catalog_of(region: str) -> Catalog:
    """The package's catalogue; raises `UnknownRegion`."""
    catalog = cloud_provider().catalog(region)
    if not catalog.offers:
        raise UnknownRegion(f"no machine is known to be sold in region {region!r}; check --region")
    return catalog


def look_away(region: str) -> Look:
    """Returns the catalogue without a cluster: no machine runs, and no capacity pool is known to be short."""
    return Look(Snapshot(now_s=SystemClock().now(), catalog=catalog_of(region)))


def look_at(kubeconfig: Path | None, context: str | None, region: str) -> Look:
    """The cluster with the catalogue, and with what the agent tells of shortages in the status of its pools."""
    from agent.world import open_cluster, read_world

    catalog = catalog_of(region)
    transport = open_cluster(kubeconfig, context)
    snapshot = read_world(transport, SystemClock(), catalog, warn=exits.complain)
    shortages, priced_at_s = market_of(transport)
    return Look(replace(snapshot, shortages=shortages), priced_at_s)


def market_of(transport: "KubeTransport") -> tuple[Mapping[CapacityPool, float], float]:
    """Returns until when the agent counts each capacity pool as short, and how old its prices are (0 = not said)."""
    from providers.kube.objects import decode_market
    from providers.kube.objects.paths import NODE_POOLS

    shortages: dict[CapacityPool, float] = {}
    ages = []
    for page in transport.list_pages(NODE_POOLS):
        for raw in page.items or ():
            short, priced_at_s = decode_market(raw)
            shortages |= short
            ages += [priced_at_s] if priced_at_s else []
    return shortages, min(ages, default=0.0)
