"""Shares pods that ask something of each other out among domains, before any machine is looked for.

Whom constraints count by zone gets a zone; what they ask by machine is a cap that the solver knows
(`fleet.placement.machine_caps`). So machines for thousands of classes are chosen at once
(`fleet.scheduling.joint_purchase`), and none is looked for class by class.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fleet.offerings.min_values import asked_values
from fleet.offerings.offerings import Offering
from fleet.optimize.packing import Floats
from fleet.optimize.presolve import amounts
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS, NodeSlot, planned_slot
from fleet.placement.domains import EqualPods
from fleet.placement.flavor_nodes import sells
from fleet.placement.machine_caps import DomainLabel, MachineCaps, domains_on
from fleet.placement.neighbours import Neighbours
from fleet.placement.offering_columns import DIGITS
from fleet.placement.plan import Need
from fleet.placement.pod_filter import PodFilter, pod_filter
from fleet.placement.pod_score import prefers
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import admits
from model.kinds import NodePool
from model.labels import ZONE
from model.pools import capacity_rank


class ZoneShare(NamedTuple):
    """A `ZoneShare` is some of the pods of a class in domains, with what would be bought for them alone."""

    pods: int
    domains: frozenset[DomainLabel]
    """Labels with their values; none where the pods may stand in any."""
    offering: Offering
    machines: int
    able: Sequence[Offering]
    """All that may be bought instead; one object where it is the same."""

    @property
    def usd_h(self) -> float:
        """Returns what these machines cost."""
        return self.machines * self.offering.offer.price_usd_h


class _ForSale(NamedTuple):
    """A `_ForSale` is an offering that can be bought for the pods of a need, if it is large enough."""

    tier: tuple[int, int]
    """Ranks of capacity type and pool: what is preferred whatever it costs."""
    usd_h: float
    """Expected cost of a machine."""
    offering: Offering


class _Choice(NamedTuple):
    """A `_Choice` is what would be bought in some domains; the lowest is the best."""

    tier: tuple[int, int]
    usd_h: float
    """Expected cost for one pod."""
    site: int
    offering: int
    fits: int
    """Pods on each machine."""


class _SiteTier(NamedTuple):
    """A `_SiteTier` is what can be bought in a domain and is preferred alike."""

    rank: tuple[int, int]
    offerings: Sequence[Offering]
    """[N]."""
    usd_h: Floats
    """[N]."""
    room: Floats
    """[N, R] what one machine offers."""


@dataclass(slots=True)
class _Site:
    """A `_Site` is all that can be bought in one domain of each label."""

    domains: frozenset[DomainLabel]
    place: NodeSlot
    """A machine there, to ask constraints about."""
    tiers: Sequence[_SiteTier]
    """Best first."""


@dataclass(slots=True)
class ZoneShares:
    """`ZoneShares` shares out class after class; who was shared out counts for those after."""

    neighbours: Neighbours
    capacity: BuyableCapacity
    caps: MachineCaps
    names: tuple[str, ...]
    """[R] resources that any of the pods ask for."""
    _able: dict[Hashable, Sequence[_ForSale]] = field(default_factory=dict)
    """By kind of need, best first."""
    _sites: dict[Hashable, Sequence[_Site]] = field(default_factory=dict)
    _order: dict[Hashable, Mapping[int, _Choice]] = field(default_factory=dict)
    _put: list[tuple[PodSet, NodeSlot, int]] = field(default_factory=list)
    _filters: dict[tuple[EqualPods, int], PodFilter | None] = field(default_factory=dict)

    def concerns(self, need: Need) -> bool:
        """Returns whether pods ask something of others, or others of them."""
        pods = need.pod_set
        return bool(pods.constraints.required or self.caps.keys(pods) or self.caps.taken(pods))

    def reduces(self, need: Need) -> bool:
        """Returns whether what pods ask of others is all said by zones and caps, and by nothing else."""
        pods, asked, keys = need.pod_set, need.pod_set.constraints, self.caps.keys(need.pod_set)
        if any((asked.claims, asked.ephemeral, prefers(asked), pods.wishes, pods.required_topology)):
            return False
        if not {ZONE}.issuperset(keys):  # kinds of machines would be settled before anybody knows who shares them
            return False
        if self.caps.stays(pods) or self.caps.gathers(pods) is not None:
            return False
        return not any(_is_bound(pool) for pool in need.pools)

    def shares(self, needs: Mapping[str, Need]) -> "Shares":
        """Returns where the pods go, by uid, in this order; none at all where some may stand in no domain for sale."""
        for need in needs.values():
            self._look_at(need)
        found: dict[str, tuple[Need, Sequence[ZoneShare]]] = {}
        for uid, need in needs.items():
            if not (mine := self._share(need)):
                found.clear()
                break
            found[uid] = need, mine
        self._forget()
        return found

    def _look_at(self, need: Need) -> None:
        """Has what can be bought for the pods count as domains."""
        keys = self.caps.keys(need.pod_set)
        if (need.kind, keys) in self._sites:
            return
        self._sites[need.kind, keys] = sites = self._found(need, keys)
        for site in sites:
            self.neighbours.add_place(site.place)

    def _share(self, need: Need) -> list[ZoneShare]:
        """Returns where the pods of a need go; nothing where some may stand in no domain that is for sale."""
        pods, keys = need.pod_set, self.caps.keys(need.pod_set)
        sites = self._sites[need.kind, keys]
        order = self._in_order(need, sites)
        if not keys or not order:
            return [_shared(sites[site], it, pods.count) for site, it in order.items()]
        shares = self._put_into(pods, sites, order)
        return [_shared(sites[site], order[site], count) for site, count in shares.items() if count]

    def _put_into(self, pods: PodSet, sites: Sequence[_Site], among: Iterable[int]) -> Mapping[int, int]:
        """Returns how many pods go to each site, by its number; nothing where some may stand in none of them."""
        rules, shares, left = self._rules(pods), dict.fromkeys(among, 0), pods.count
        one_by_one = rules is not None and (rules.spreads or _keeps_own_apart(self.neighbours, pods))
        while left:
            if (site := _open_site(sites, shares, rules)) is None:
                return {}
            count = 1 if one_by_one else left
            self.neighbours.put(pods, sites[site].place, count)
            self._put.append((pods, sites[site].place, count))
            shares[site] += count
            left -= count
        return shares

    def _forget(self) -> None:
        """Takes everybody off the domains again."""
        self.neighbours.forget_counts()
        for pods, place, count in self._put:
            self.neighbours.put(pods, place, -count)
        for site in (site for sites in self._sites.values() for site in sites):
            self.neighbours.drop_place(site.place)
        self._put, self._sites = [], {}

    # -- what can be bought where -------------------------------------------------------------------------------------

    def _found(self, need: Need, keys: tuple[str, ...]) -> Sequence[_Site]:
        if need.kind not in self._able:
            self._able[need.kind] = sorted(self._candidates(need), key=lambda it: (*it[:2], it.offering.key))
        by_domain: dict[tuple[DomainLabel, ...], list[_ForSale]] = {}
        for it in self._able[need.kind]:
            by_domain.setdefault(domains_on(it.offering.labels, keys), []).append(it)
        return [self._site(domains, able) for domains, able in by_domain.items()]

    def _candidates(self, need: Need) -> Iterator[_ForSale]:
        for pool in need.pools:
            if not sells(pool, need) or self.capacity.headroom[pool.name].stopped:
                continue
            rank, ranks = need.rank(pool), {it: capacity_rank(pool, it) for it in pool.spec.capacity_types}
            for it in self._for_sale(pool):
                if admits(need.pod_set, need.tolerations, it.labels, it.taints):
                    usd_h = self.capacity.expected_usd_h(it.offer)
                    yield _ForSale((ranks[it.offer.capacity_type], rank), usd_h, it)

    def _for_sale(self, pool: NodePool) -> Iterator[Offering]:
        """Yields the offerings of a pool that are not short, but for what is reserved."""
        shortages, types = self.capacity.shortages, pool.spec.capacity_types
        for it in self.capacity.offerings.of(pool):
            offer = it.offer
            if offer.pool_key not in shortages and offer.capacity_type in types and offer.reservation is None:
                yield it

    def _site(self, domains: tuple[DomainLabel, ...], able: Sequence[_ForSale]) -> _Site:
        tiers = [self._tier(rank, list(alike)) for rank, alike in groupby(able, key=attrgetter("tier"))]
        place = planned_slot(able[0].offering, f"site/{len(self._sites)}/{domains}")
        return _Site(frozenset(domains), place, tiers)

    def _tier(self, rank: tuple[int, int], alike: Sequence[_ForSale]) -> _SiteTier:
        return _SiteTier(
            rank,
            [it.offering for it in alike],
            np.array([it.usd_h for it in alike]),
            amounts((it.offering.allocatable for it in alike), self.names),
        )

    def _in_order(self, need: Need, sites: Sequence[_Site]) -> Mapping[int, _Choice]:
        """Returns what would be bought in each of the domains, the best first, by number of the site."""
        pods, taken = need.pod_set, self.caps.taken(need.pod_set)
        most = min((self.caps.capacity[name] // amount for name, amount in taken.items()), default=pods.count)
        asked = need.asks, self.caps.keys(pods), min(most, pods.count)
        if asked not in self._order:
            of_one = {**pods.requests, PODS: 1}
            requests = [of_one.get(name, 0) for name in self.names]
            found = (_choice(site, number, requests, asked[2]) for number, site in enumerate(sites))
            self._order[asked] = {it.site: it for it in sorted(it for it in found if it is not None)}
        return self._order[asked]

    def _rules(self, pods: PodSet) -> PodFilter | None:
        """Returns what pods ask of larger domains; asked anew only where there are others who keep pods away."""
        asked = self.neighbours.kind_of(pods), len(tuple(self.neighbours.repelling()))
        if asked not in self._filters:
            found = pod_filter(self.neighbours, pods)
            self._filters[asked] = found.beyond_hosts if found is not None else None
        return self._filters[asked]


def _choice(site: _Site, number: int, requests: Sequence[int], most: int) -> _Choice | None:
    """Returns the cheapest of the best tier for a pod, `most` on a machine; None where none fits."""
    asked = [(column, amount) for column, amount in enumerate(requests) if amount]
    for tier, _, usd_h, room in site.tiers:
        fits = np.full(len(usd_h), float(most))
        for column, amount in asked:
            fits = np.minimum(fits, room[:, column] // amount)
        able = np.flatnonzero(fits > 0)
        if len(able):
            cost = np.round(usd_h[able] / fits[able], DIGITS)
            best = int(cost.argmin())
            return _Choice(tier, float(cost[best]), number, int(able[best]), int(fits[able[best]]))
    return None


def _open_site(sites: Sequence[_Site], shares: Mapping[int, int], rules: PodFilter | None) -> int | None:
    """Returns the first site where a pod may stand, for who spreads the one with fewest pods; None where none is."""
    if rules is None:
        return next(iter(shares))
    among = sorted(shares, key=lambda it: shares[it]) if rules.spreads else shares
    return next((it for it in among if rules.obstacle(sites[it].place) is None), None)


def _shared(site: _Site, chosen: _Choice, count: int) -> ZoneShare:
    able = next(it.offerings for it in site.tiers if it.rank == chosen.tier)
    return ZoneShare(count, site.domains, able[chosen.offering], -(-count // chosen.fits), able)


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


Shares = Mapping[str, tuple[Need, Sequence[ZoneShare]]]
"""uid -> the pods that are bought for under it, and their domains."""
