"""Compares what quotas guarantee with what the limits of the pools behind their flavors can ever hold."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from fleet.mig.layouts import is_gpu_resource
from fleet.offerings.declared_pools import DeclaredPools
from fleet.offerings.offerings import Offering
from fleet.offerings.reservations import RESERVED
from model.hints import listing
from model.kinds import Declaration, NodePool
from model.loader.checks.upstream import resource_flavor_pools
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.problem import Code, Problem
from model.quantity import format_amount
from model.upstream.quotas import cells


class GuaranteedQuota(NamedTuple):
    """A `GuaranteedQuota` is one quota of a team, ClusterQueue or Cohort that is its own, and where it is declared."""

    source: Declared[Declaration]
    path: Path
    flavor: str
    resource: str
    amount: int
    """In the canonical unit of the resource."""


def quotas_beyond_limits(pools: DeclaredPools) -> Iterator[Problem]:
    """Yields a warning for each resource of which quotas guarantee more than the pools behind a flavor can hold.

    Flavors that share pools are counted together. A warning, as guarantees may be meant to be used at different hours;
    all of them at once cannot be kept. It stands at the quota that goes beyond, in order of flavor and name.
    """
    behind, judged = _pools_behind(pools.declarations), {pool.value.name: pool.value for pool in pools.judged()}
    by_flavor: dict[str, list[GuaranteedQuota]] = {}
    for each in guarantees(pools.declarations):
        if each.amount:
            by_flavor.setdefault(each.flavor, []).append(each)
    for flavors in flavors_that_share_pools(behind):
        names = sorted({name for flavor in flavors for name in behind[flavor]})
        if any(name not in judged for name in names):
            continue
        given = [each for flavor in sorted(flavors) for each in by_flavor.get(flavor, ())]
        for resource in sorted({each.resource for each in given}):
            most = sum(ceiling(judged[name], pools.offerings(judged[name]), resource) for name in names)
            yield from _beyond([each for each in given if each.resource == resource], most, names)


def _beyond(given: Sequence[GuaranteedQuota], most: float, names: Sequence[str]) -> Iterator[Problem]:
    total = sum(each.amount for each in given)
    if total <= most:
        return
    reached = 0
    for each in sorted(given, key=lambda one: (one.flavor, one.source.value.name)):
        reached += each.amount
        if reached > most:
            one = each.resource
            message = (
                f"quotas guarantee {format_amount(one, total)} of {one} in all; the limits of the pools behind flavor "
                f"{each.flavor!r} ({listing(names)}) never hold more than {format_amount(one, int(most))}"
            )
            hint = "raise the limits, or guarantee less and let teams borrow"
            yield each.source.problem(each.path, message, Code.QUOTA_BEYOND_LIMITS, hint=hint, severity="warning")
            return


def ceiling(pool: NodePool, offerings: Sequence[Offering], resource: str) -> float:
    """Returns the most of a resource that a pool can hold by its limits; inf where none of them bounds it.

    Each limit alone bounds it by the machine that has most of the resource for what it takes of the limit.
    """
    limits = pool.spec.limits
    if not limits.resources and limits.nodes is limits.usd_per_hour is pool.spec.replicas is None:
        return inf
    amounts = [(offering, _amount(offering, resource)) for offering in offerings]
    if not any(amount for _, amount in amounts):
        return inf  # other checks tell of resources that no machine of the pool has
    nodes = min((count for count in (limits.nodes, pool.spec.replicas) if count is not None), default=None)
    bounds = [] if nodes is None else [nodes * max(float(amount) for _, amount in amounts)]
    if limits.usd_per_hour is not None and RESERVED not in pool.spec.capacity_types:
        bounds.append(limits.usd_per_hour * max(_rate(amount, each.offer.price_usd_h) for each, amount in amounts))
    for name, most in limits.resources.items():
        taken = [(amount, each.offer.instance_type.capacity.get(name, 0)) for each, amount in amounts if amount]
        bounds.append(most * max(_rate(amount, takes) for amount, takes in taken))
    return min(bounds, default=inf)


def _rate(amount: int, takes: float) -> float:
    """Returns how much comes for each unit of a limit."""
    return amount / takes if takes else inf


def _amount(offering: Offering, resource: str) -> int:
    """Returns what a machine has of the resource: of GPUs what its layout leaves, of others all, before any reserve."""
    left = offering.allocatable.get(resource, 0)
    return left if is_gpu_resource(resource) else max(left, offering.offer.instance_type.capacity.get(resource, 0))


def guarantees(declarations: Declarations) -> Iterator[GuaranteedQuota]:
    """Yields every quota that is a node's own: what a Cohort has comes on top of what its children have."""
    for team in declarations.teams.values():
        for flavor, quota in team.value.spec.quotas.items():
            for resource, amount in quota.guaranteed.items():
                path: Path = ("spec", "quotas", flavor, "guaranteed", resource)
                yield GuaranteedQuota(team, path, flavor, resource, amount)
    nodes: Sequence[Declared[Declaration]] = (*declarations.cluster_queues.values(), *declarations.cohorts.values())
    for node in nodes:
        for cell in cells(node.value.spec.resource_groups):  # type: ignore[attr-defined]
            path = ("spec", *cell.path, "nominalQuota")
            yield GuaranteedQuota(node, path, cell.flavor, cell.quota.name, cell.quota.nominal_quota)


def _pools_behind(declarations: Declarations) -> Mapping[str, frozenset[str]]:
    """Returns flavor -> its pools, of flavors that are nothing but pools."""
    found = {name: frozenset((name,)) for name in declarations.node_pools}
    found |= {name: frozenset(flavor.value.spec.node_pools) for name, flavor in declarations.flavors.items()}
    found |= {name: frozenset(pools) for name, pools in resource_flavor_pools(declarations).items()}
    return {name: pools for name, pools in found.items() if pools}


def flavors_that_share_pools(behind: Mapping[str, frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yields flavors, given with their pools, in groups that share no pool with one another, in order of name."""
    of_pool: dict[str, list[str]] = {}
    for name, pools in behind.items():
        for pool in pools:
            of_pool.setdefault(pool, []).append(name)
    seen: set[str] = set()
    for first in sorted(behind):
        group, left = set[str](), [first]
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                group.add(name)
                left += [other for pool in behind[name] for other in of_pool.pop(pool, ())]
        if group:
            yield frozenset(group)
