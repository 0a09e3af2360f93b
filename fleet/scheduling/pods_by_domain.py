"""Shares pods that ask something of each other out among domains, before any machine is looked for.

Whom constraints count by larger domains (zones, racks, kinds of machines) gets a domain; what they ask by machine is a
cap that the solver knows (`fleet.placement.machine_caps`). So machines for thousands of classes are chosen at once
(`fleet.scheduling.joint_purchase`), and none is looked for class by class.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fleet.offerings.min_values import asked_values
from fleet.offerings.offerings import Offering
from fleet.optimize.packing import Floats
from fleet.placement.buyable_capacity import BuyableCapacity, sells
from fleet.placement.cluster_state import PODS, NodeSlot, planned_slot
from fleet.placement.domains import EqualPods
from fleet.placement.machine_caps import DomainLabel, MachineCaps, domains_on
from fleet.placement.neighbours import Neighbours
from fleet.placement.plan import Need
from fleet.placement.pod_filter import PodFilter, pod_filter
from fleet.placement.pod_score import prefers
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import admits
from model.kinds import NodePool
from model.pools import capacity_rank
from model.quantity import Resources


class DomainShare(NamedTuple):
    """A `DomainShare` is some of the pods of a class in domains, with what would be bought for them alone."""

    count: int
    domains: frozenset[DomainLabel]
    """Labels with their values; none where the pods may stand in any."""
    offering: Offering
    machines: int

    @property
    def usd_h(self) -> float:
        """Returns what these machines cost."""
        return self.machines * self.offering.offer.price_usd_h


class _Choice(NamedTuple):
    """A `_Choice` is what would be bought in some domains; the lowest is the best."""

    capacity_rank: int
    pool_rank: int
    cost_usd_h: float
    site: int
    offering: int
    machines: int


@dataclass(slots=True)
class _Site:
    """A `_Site` is all that can be bought in one domain of each label."""

    domains: frozenset[DomainLabel]
    place: NodeSlot
    """A machine there, to ask constraints about."""
    offerings: Sequence[Offering]
    ranks: Sequence[tuple[int, int]]
    """[N] ranks of capacity type and pool, ascending."""
    usd_h: Floats
    """[N] expected cost of a machine."""
    room: Floats
    """[N, R] what one machine offers."""


@dataclass(slots=True)
class DomainShares:
    """`DomainShares` shares out class after class; who was shared out counts until `forget`."""

    neighbours: Neighbours
    capacity: BuyableCapacity
    caps: MachineCaps
    names: tuple[str, ...]
    """[R] resources that any of the pods ask for."""
    _sites: dict[Hashable, Sequence[_Site]] = field(default_factory=dict)
    _order: dict[Hashable, Sequence[_Choice]] = field(default_factory=dict)
    _put: list[tuple[PodSet, NodeSlot, int]] = field(default_factory=list)
    _filters: dict[tuple[EqualPods, int], PodFilter | None] = field(default_factory=dict)

    def reduces(self, need: Need) -> bool:
        """Returns whether what pods ask of others is all said by caps and domains, and by nothing else."""
        pods, asked = need.pod_set, need.pod_set.constraints
        if not (self.caps.keys(pods) or self.caps.taken(pods)) or asked.claims or asked.ephemeral or prefers(asked):
            return False
        if pods.wishes or pods.required_topology or self.caps.stays(pods) or self.caps.gathers(pods) is not None:
            return False
        return not any(_is_bound(pool) for pool in need.pools)

    def look_at(self, need: Need) -> None:
        """Has what can be bought for the pods count as domains: before any pods are shared out."""
        keys = self.caps.keys(need.pod_set)
        if (need.kind, keys) in self._sites:
            return
        self._sites[need.kind, keys] = sites = self._found(need, keys)
        for site in sites:
            self.neighbours.add_place(site.place)

    def share(self, need: Need) -> list[DomainShare] | None:
        """Returns where the pods of a need go; None where some may stand in no domain that sells machines for them."""
        pods, keys = need.pod_set, self.caps.keys(need.pod_set)
        sites = self._sites[need.kind, keys]
        order = self._in_order(need, sites)
        if not keys or not order:
            return [self._shared(need, sites, order[0].site, pods.count)] if order else None
        rules = self._rules(pods)
        shares = dict.fromkeys((it.site for it in order), 0)
        one_by_one = rules is not None and (rules.spreads or _keeps_own_apart(self.neighbours, pods))
        left = pods.count
        while left:
            among = sorted(shares, key=lambda it: shares[it]) if rules is not None and rules.spreads else shares
            open_ = (it for it in among if rules is None or rules.obstacle(sites[it].place) is None)
            if (site := next(open_, None)) is None:
                return None
            count = 1 if one_by_one else left
            self.neighbours.put(pods, sites[site].place, count)
            self._put.append((pods, sites[site].place, count))
            shares[site] += count
            left -= count
        return [self._shared(need, sites, site, count) for site, count in shares.items() if count]

    def forget(self) -> None:
        """Takes everybody off the domains again."""
        for pods, place, count in self._put:
            self.neighbours.put(pods, place, -count)
        for site in (site for sites in self._sites.values() for site in sites):
            self.neighbours.drop_place(site.place)
        self._put, self._sites = [], {}
        self.neighbours.forget_counts()

    # -- what can be bought where -------------------------------------------------------------------------------------

    def _found(self, need: Need, keys: tuple[str, ...]) -> Sequence[_Site]:
        by_domain: dict[tuple[DomainLabel, ...], list[tuple[tuple[int, int], float, Offering]]] = {}
        for pool in need.pools:
            for offering in self._able(need, pool):
                offer = offering.offer
                rank = capacity_rank(pool, offer.capacity_type), need.rank(pool)
                found = rank, self.capacity.expected_usd_h(offer), offering
                by_domain.setdefault(domains_on(offering.labels, keys), []).append(found)
        return [self._site(domains, of_it, len(self._sites)) for domains, of_it in by_domain.items()]

    def _able(self, need: Need, pool: NodePool) -> Iterator[Offering]:
        """Yields the offerings of a pool that can be bought for the pods, if they are large enough."""
        shortages, headroom = self.capacity.shortages, self.capacity.headroom[pool.name]
        if not sells(pool, need) or headroom.stopped:
            return
        for offering in self.capacity.offerings.of(pool):
            if offering.offer.pool_key not in shortages and offering.offer.reservation is None:
                if admits(need.pod_set, need.tolerations, offering.labels, offering.taints):
                    yield offering

    def _site(
        self,
        domains: tuple[DomainLabel, ...],
        able: list[tuple[tuple[int, int], float, Offering]],
        number: int,
    ) -> _Site:
        able.sort(key=lambda it: (it[0], it[1], it[2].preference, it[2].key))
        offerings = [it[2] for it in able]
        place = planned_slot(offerings[0], f"site/{number}/{domains}")
        room = np.array([[it.allocatable.get(name, 0) for name in self.names] for it in offerings], dtype=np.float64)
        usd_h = np.array([it[1] for it in able])
        return _Site(frozenset(domains), place, offerings, [it[0] for it in able], usd_h, room)

    def _in_order(self, need: Need, sites: Sequence[_Site]) -> Sequence[_Choice]:
        """Returns what would be bought in each of the domains, the best first."""
        pods = need.pod_set
        taken = self.caps.taken(pods)
        asked = need.asks, self.caps.keys(pods), tuple(taken.items()), pods.count
        if asked not in self._order:
            most = min((self.caps.capacity[name] // amount for name, amount in taken.items()), default=pods.count)
            found = (_choice(site, n, self._amounts(pods.requests), pods.count, most) for n, site in enumerate(sites))
            self._order[asked] = sorted(it for it in found if it is not None)
        return self._order[asked]

    def _amounts(self, requests: Resources) -> list[int]:
        return [1 if name == PODS else requests.get(name, 0) for name in self.names]

    def _shared(self, need: Need, sites: Sequence[_Site], site: int, count: int) -> DomainShare:
        [chosen] = (it for it in self._in_order(need, sites) if it.site == site)
        machines = max(1, -(-chosen.machines * count // need.pod_set.count))
        return DomainShare(count, sites[site].domains, sites[site].offerings[chosen.offering], machines)

    def _rules(self, pods: PodSet) -> PodFilter | None:
        """Returns what pods ask of larger domains; asked anew only where there are others who keep pods away."""
        asked = self.neighbours.kind_of(pods), len(tuple(self.neighbours.repelling()))
        if asked not in self._filters:
            found = pod_filter(self.neighbours, pods)
            self._filters[asked] = found.beyond_hosts if found is not None else None
        return self._filters[asked]


def _choice(site: _Site, number: int, amounts: Sequence[int], count: int, most: int) -> _Choice | None:
    """Returns the cheapest machines of the best rank for so many pods, `most` of them on each; None where none fits."""
    asked = [(column, amount) for column, amount in enumerate(amounts) if amount]
    fits = np.full(len(site.offerings), float(min(count, most)))
    for column, amount in asked:
        fits = np.minimum(fits, site.room[:, column] // amount)
    able = np.flatnonzero(fits > 0)
    if not len(able):
        return None
    rank = site.ranks[int(able[0])]
    alike = able[: next((n for n, it in enumerate(able.tolist()) if site.ranks[it] != rank), len(able))]
    machines = np.ceil(count / fits[alike])
    cost = np.round(machines * site.usd_h[alike], 9)
    best = int(cost.argmin())
    return _Choice(*rank, float(cost[best]), number, int(alike[best]), int(machines[best]))


def _is_bound(pool: NodePool) -> bool:
    """Returns whether more decides about the machines of a pool than what each is by itself."""
    placement = pool.spec.placement
    return bool(asked_values(pool) or placement.group or placement.fabric is True)


def _keeps_own_apart(neighbours: Neighbours, pods: PodSet) -> bool:
    kind = neighbours.kind_of(pods)
    return any(neighbours.means(term, kind) for term in kind.constraints.anti_affinity)


def resource_names(needs: Iterable[Need]) -> tuple[str, ...]:
    """Returns all that pods ask for, their number among it."""
    return tuple(sorted({PODS}.union(*(need.pod_set.requests for need in needs))))


Shares = Mapping[str, tuple[Need, Sequence[DomainShare]]]
"""uid -> the pods that are bought for under it, and their domains."""
