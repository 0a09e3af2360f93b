"""What a revision changes about quotas: who is guaranteed what, before and after, and where that cannot be kept.

Also who stands beyond what the revision allows at once: pools over their new limits, teams over their new budgets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from fleet.offerings.declared_quotas import ceiling, flavors_that_share_pools
from fleet.offerings.limits import PoolHeadroom, headroom_of_pools
from fleet.offerings.offerings import offerings_now
from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.quota.build_tree import quota_specs
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.quantity import format_amount


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The guarantee of one team, cohort or ClusterQueue for one resource of a flavor, in canonical amounts."""

    address: str
    """As in `team/research`."""
    flavor: str
    resource: str
    before: int | None
    """None = there was none."""
    after: int | None
    """None = there is none any more."""


@dataclass(frozen=True, slots=True)
class Overcommitment:
    """Guarantees that cannot all be kept at once: in all they are more than the pools behind their flavors can hold."""

    flavors: tuple[str, ...]
    """All that share pools, in order of name."""
    resource: str
    guaranteed: int
    """In all, in canonical amounts."""
    most: int
    """What the limits of the pools let them hold."""


_Guarantee = tuple[str, str, str]
"""Address, flavor and resource."""


def quota_changes(before: Fleet, after: Fleet) -> tuple[QuotaChange, ...]:
    """Returns every guarantee that a revision changes, in order of address, flavor and resource."""
    old, new = _guarantees(before), _guarantees(after)
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return tuple(QuotaChange(*name, old.get(name), new.get(name)) for name in names)


def _guarantees(fleet: Fleet) -> dict[_Guarantee, int]:
    specs = quota_specs(fleet)
    found: dict[_Guarantee, int] = {}
    for cohort in specs.cohorts:
        kind = "team" if cohort.name in fleet.teams else "cohort"
        found |= {(f"{kind}/{cohort.name}", *cell): quota.nominal for cell, quota in cohort.quotas.items()}
    for name, queue in specs.queues.items():
        found |= {(f"clusterqueue/{name}", *cell): quota.nominal for cell, quota in queue.quotas.items()}
    return found


def new_overcommitments(before: Fleet, after: Fleet, snapshot: Snapshot) -> tuple[Overcommitment, ...]:
    """Returns where a revision guarantees more than its pools can hold, by the catalogue of the snapshot.

    What was so before, to the same extent, is not told again.
    """
    known = set(_overcommitments(before, snapshot))
    return tuple(it for it in _overcommitments(after, snapshot) if it not in known)


def _overcommitments(fleet: Fleet, snapshot: Snapshot) -> Iterator[Overcommitment]:
    given = _by_flavor(fleet)
    behind = {name: frozenset(_pools(fleet, name)) for name, _ in given}
    for flavors in flavors_that_share_pools({name: pools for name, pools in behind.items() if pools}):
        pools = sorted({pool for flavor in flavors for pool in behind[flavor]})
        for resource in sorted({resource for flavor, resource in given if flavor in flavors}):
            guaranteed = sum(given.get((flavor, resource), 0) for flavor in flavors)
            most = _most(fleet, snapshot, pools, resource)
            if guaranteed > most:
                yield Overcommitment(tuple(sorted(flavors)), resource, guaranteed, int(most))


def _pools(fleet: Fleet, flavor: str) -> Iterator[str]:
    nodes = nodes_of_flavor(fleet, flavor)
    yield from (pool.name for pool in nodes.pools) if nodes is not None else ()


def _by_flavor(fleet: Fleet) -> dict[tuple[str, str], int]:
    """Returns (flavor, resource) -> what is guaranteed of it in all."""
    found: dict[tuple[str, str], int] = {}
    for (_, flavor, resource), amount in _guarantees(fleet).items():
        found[flavor, resource] = found.get((flavor, resource), 0) + amount
    return found


def _most(fleet: Fleet, snapshot: Snapshot, pools: Sequence[str], resource: str) -> float:
    offerings = offerings_now(fleet, snapshot)
    known = [fleet.node_pools[name] for name in pools]
    return sum(ceiling(pool, offerings.of(pool), resource) for pool in known)


# -- who is beyond it at once -----------------------------------------------------------------------------------------


def beyond_new_limits(before: Fleet, after: Fleet, snapshot: Snapshot) -> Iterator[str]:
    """Yields a sentence for each pool that holds more than a limit that the revision lowers."""
    old, new = headroom_of_pools(before, snapshot), headroom_of_pools(after, snapshot)
    for name in sorted(new.keys() & old.keys()):
        excess = _excess(new[name])
        told = [words for limit, words in excess.items() if limit not in _excess(old[name])]
        if told:
            yield (
                f"nodepool/{name} is beyond its new limits by {' and '.join(told)}: nothing is given back for that, "
                "and nothing bought until it is below them"
            )


def _excess(left: PoolHeadroom) -> Mapping[str, str]:
    """Returns limit -> by how much it is exceeded, in words."""
    found = {}
    if left.nodes is not None and left.nodes < 0:
        found["nodes"] = f"{-left.nodes} machine{'' if left.nodes == -1 else 's'}"
    if left.usd_h is not None and left.usd_h < -0.005:
        found["usdPerHour"] = f"{-left.usd_h:.2f} USD/h"
    over = {name: -amount for name, amount in left.resources.items() if amount < 0}
    return found | {name: f"{format_amount(name, amount)} of {name}" for name, amount in over.items()}


def beyond_new_budgets(before: Fleet, after: Fleet, snapshot: Snapshot) -> Iterator[str]:
    """Yields a sentence for each team that has already spent this month what the revision allows it."""
    for name in sorted(after.teams):
        spent = snapshot.spent_usd.get(name, 0.0)
        most = _budget_usd(after, name)
        if spent >= most and spent < _budget_usd(before, name):
            yield (
                f"team/{name} has spent {spent:,.2f} USD this month, its new budget is {most:,.2f}: "
                "none of its gangs starts before the next month"
            )


def _budget_usd(fleet: Fleet, team: str) -> float:
    declared = fleet.teams.get(team)
    return declared.spec.budget.usd_per_month if declared and declared.spec.budget else inf
