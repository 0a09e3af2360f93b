"""Translates offerings into the solver's terms: each is a kind of machine with a name, and limits bound the kinds."""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.offerings.min_values import asked_values, flexible, shared_rooms
from fleet.offerings.offerings import Offering
from fleet.optimize.inputs import MACHINES
from fleet.optimize.purchase import Limit, MachineKind
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.candidate_offerings import KnownCandidates
from fleet.placement.machine_caps import DomainLabel, is_in
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.snapshot.affinity import selects, tolerates
from model import labels
from model.index import Index, derived
from model.kinds import NodePool
from model.pools import capacity_rank
from model.quantity import CPU, Resources

_MICRO = 1_000_000
_MOST_DESCRIBED, _MOST_KINDS = 16, 32_768
"""Descriptions of pools of which kinds are kept, and kinds in all, from pass to pass."""
_PRICE = "micro-USD an hour"
"""Name under which a limit counts the listed price; the solver chooses by expected cost, which may be more."""


class Tier(NamedTuple):
    """A `Tier` is what `place_gang` prefers by before it looks at prices: pool weight and capacity type."""

    weight: int
    """Weight of the pool (Karpenter's `spec.weight`); higher is preferred."""
    rank: int
    """Place of the capacity type in the pool's order of preference; lower is preferred."""


@dataclass(slots=True)
class OfferingCatalog:
    """An `OfferingCatalog` names the offerings that solvers may choose from, and the limits on them."""

    supply: BuyableCapacity
    caps: Resources = field(default_factory=dict)
    """What every machine has beside what it offers: caps that pods take from (`MachineCaps`)."""
    kinds: dict[str, MachineKind] = field(default_factory=dict)
    offerings: dict[str, Offering] = field(default_factory=dict)
    _kinds_by_question: dict[Hashable, frozenset[str]] = field(default_factory=dict)
    """(need, tiers, domains) -> names of kinds, for each question that was asked before."""
    _known: dict[str, "_KnownKinds"] = field(default_factory=dict)
    """Pool -> its kinds, as passes before have made them."""
    _rooms: dict[Hashable, Resources] = field(default_factory=dict)
    """What is the same for offerings of which the solver's kinds have the same room -> that room."""
    _choices: dict[Hashable, str] = field(default_factory=dict)
    """(pool with `minValues`, what pods may use of it) -> the ending of names of its kinds for such pods."""

    def kinds_like(
        self, need: Need, wanted: Sequence[Offering], domains: frozenset[DomainLabel] = frozenset()
    ) -> frozenset[str]:
        """Returns the names of the kinds that pods of a need may stand on, of the tiers of `wanted`, in these domains.

        Where these are too few for a pool's `minValues`, the `wanted` offerings alone.
        """
        asked = (
            need.kind,
            frozenset((offering.pool.name, tier_of(offering), offering.offer.zone) for offering in wanted),
            domains,
        )
        if asked not in self._kinds_by_question:
            found: list[str] = []
            for pool in need.pools:
                able = _in(domains, self._alternatives(need, pool, wanted))
                found += self._flexible_kinds(need, pool, able, domains)
            self._kinds_by_question[asked] = frozenset(found) or frozenset(map(self.name, wanted))
        return self._kinds_by_question[asked]

    def kinds_of(self, able: Sequence[Offering]) -> frozenset[str]:
        """Returns the names of the kinds of some offerings; equal for one object, which has to stay."""
        if id(able) not in self._kinds_by_question:
            self._kinds_by_question[id(able)] = frozenset(self._names(able))
        return self._kinds_by_question[id(able)]

    def _flexible_kinds(
        self, need: Need, pool: NodePool, able: Sequence[Offering], domains: frozenset[DomainLabel] = frozenset()
    ) -> Iterable[str]:
        """Returns the names of the kinds of some offerings of a pool; none where those are too few for its `minValues`.

        A machine may be filled as far as enough others would hold that pods of the need may use, whatever its zone. So
        pods that may use different ones of the pool have kinds of their own, and share no machine of it.
        """
        if not asked_values(pool):
            return self._names(able)
        among = self._choice(need, pool, domains)
        every = self.supply.offerings.of(pool)
        if _values(pool, among) == _values(pool, every):
            return self._names(able)
        rooms = {it.key: room for it, room in zip(among, shared_rooms(pool, among), strict=True)}
        chosen = self._choices.setdefault((pool.name, _values(pool, among)), f"/{len(self._choices)}")
        return [self._chosen(replace(it, flexible_room=rooms[it.key]), chosen) for it in able if it.key in rooms]

    def _choice(self, need: Need, pool: NodePool, domains: frozenset[DomainLabel]) -> Sequence[Offering]:
        """Returns the offerings that `minValues` are counted among: those pods may use, in their domains if enough."""
        every = self.supply.offerings.of(pool)
        admitted = _admitted(need, pool, every)
        here = _in(domains, admitted)
        found = here if flexible(pool, here) else admitted
        return found if flexible(pool, found) else ()

    def _alternatives(self, need: Need, pool: NodePool, wanted: Sequence[Offering]) -> Sequence[Offering]:
        """Returns a pool's offerings that may be bought instead of the `wanted` ones.

        A pool with a placement group or a fabric keeps its zones: its machines are not exchanged with those elsewhere.
        """
        if pool.spec.replicas is not None:
            return ()
        own = {it.offer.zone for it in wanted if it.pool.name == pool.name}
        bound = _has_placement(pool) or any(_has_placement(it.pool) for it in wanted)
        tiers, weight = {tier_of(offering) for offering in wanted}, pool.spec.weight
        capacity_types = {it for it in pool.spec.capacity_types if Tier(weight, capacity_rank(pool, it)) in tiers}
        return self._available(need, pool, capacity_types, own if bound else self.supply.offerings.zones(pool))

    def kinds_in(
        self,
        need: Need,
        zones: Container[str],
        capacity_types: Mapping[str, Container[str]],
        domains: frozenset[DomainLabel] = frozenset(),
    ) -> frozenset[str]:
        """Returns the names of the kinds for pods of a need in these zones and domains, of capacity types by pool."""
        found: list[str] = []
        for pool in need.pools:
            if pool.spec.replicas is None and pool.name in capacity_types:
                able = _in(domains, self._available(need, pool, capacity_types[pool.name], zones))
                found += self._flexible_kinds(need, pool, able, domains) if flexible(pool, able) else []
        return frozenset(found)

    def _available(
        self, need: Need, pool: NodePool, capacity_types: Container[str], zones: Container[str]
    ) -> Sequence[Offering]:
        """Returns the offerings of a pool of which machines may be bought for pods of a need, limits aside."""
        every = self.supply.offerings.of(pool)
        here = [it for it in every if it.offer.capacity_type in capacity_types and it.offer.zone in zones]
        if shortages := self.supply.shortages:
            here = [it for it in here if it.offer.pool_key not in shortages]
        if (left := self.supply.headroom[pool.name]).grouped:
            here = [it for it in here if not left.bound_to(it)]
        return _admitted(need, pool, here)

    def name(self, offering: Offering) -> str:
        """Returns the name of an offering's kind, and enters the kind when it is new."""
        return self._names((offering,))[0]

    def _names(self, offerings: Sequence[Offering]) -> list[str]:
        """Returns the names of the kinds of some offerings of the supply, and enters those that are new."""
        found, pool, known = [], None, _KnownKinds()
        for offering in offerings:
            if offering.pool is not pool:
                pool = offering.pool
                known = self._known_of(pool.name)
            kind = known.get(id(offering))
            if kind is None:
                kind = known[id(offering)] = _KnownKind(offering, self._kind(offering))
            found.append(name := kind.kind.name)
            if name not in self.kinds:
                self.kinds[name], self.offerings[name] = kind.kind, offering
        return found

    def _known_of(self, pool: str) -> "_KnownKinds":
        if pool not in self._known:
            limited = tuple(self.supply.headroom[pool].resources)
            self._known[pool] = _known_kinds(self.supply, (pool, limited, tuple(self.caps.items())))
        return self._known[pool]

    def _chosen(self, offering: Offering, choice: str) -> str:
        """Returns the name of the kind of an offering of which `choice` tells what part may be filled; enters it."""
        name = _NAME % offering.key + choice
        if name not in self.kinds:
            self.kinds[name], self.offerings[name] = self._kind(offering, choice), offering
        return name

    def _kind(self, offering: Offering, choice: str = "") -> MachineKind:
        name = _NAME % offering.key + choice
        return MachineKind(name, self.supply.expected_usd_h(offering.offer), self._room(offering))

    def _room(self, offering: Offering) -> Resources:
        """Returns what a machine has for pods, caps and limits: one object for offerings that differ by zone alone."""
        offered = offering.allocatable if offering.flexible_room is None else offering.flexible_room
        machine, usd_h = offering.offer.instance_type, offering.offer.price_usd_h
        alike = id(offered), id(machine), id(offering.pool), usd_h
        if (room := self._rooms.get(alike)) is None:
            room = {resource: max(0, amount) for resource, amount in offered.items()} | dict(self.caps)
            limited = self.supply.headroom[offering.pool.name].resources
            room |= {_counted_by_limits(resource): machine.capacity.get(resource, 0) for resource in limited}
            room[_PRICE] = round(_MICRO * usd_h)
            self._rooms[alike] = room
        return room

    def resources(self, asked: Iterable[str], pools: Iterable[str]) -> tuple[str, ...]:
        """Returns the resources that pods ask for, in the order of Karpenter's queue, then those that limits count."""
        return (*sorted(set(asked), key=lambda name: (_FIRST.get(name, 2), name)), *self._limited_resources(pools))

    def limits_of(self, pools: Iterable[str], spent: Sequence[PlannedNodeClaims] = ()) -> Iterator[Limit]:
        """Yields the limits on what these pools may still buy, with `spent` given back to them."""
        for pool in pools:
            left = self.supply.headroom[pool]
            if left.nodes is None and left.usd_h is None and not left.resources:
                continue
            mine = [planned for planned in spent if planned.offering.pool.name == pool]
            kinds = frozenset(name for name, offering in self.offerings.items() if offering.pool.name == pool)
            if left.nodes is not None:
                most = left.nodes + sum(planned.count for planned in mine)
                yield Limit(f"machines of {pool}", MACHINES, max(0, most), kinds)
            if left.usd_h is not None:
                usd_h = sum(planned.count * planned.offering.offer.price_usd_h for planned in mine)
                most_usd_h = max(0.0, left.usd_h + usd_h)
                yield Limit(f"price of {pool}", _PRICE, int(_MICRO * most_usd_h + 1e-3), kinds)
            for resource, amount in left.resources.items():
                most = amount + sum(planned.count * _capacity(planned.offering).get(resource, 0) for planned in mine)
                yield Limit(f"{resource} of {pool}", _counted_by_limits(resource), max(0, most), kinds)
        yield from self._reservation_limits(spent)

    def _reservation_limits(self, spent: Sequence[PlannedNodeClaims]) -> Iterator[Limit]:
        """Yields a limit for each capacity reservation: the machines it still has, with `spent` given back."""
        by_reservation: dict[str, list[str]] = {}
        for name, offering in self.offerings.items():
            if offering.offer.reservation is not None:
                by_reservation.setdefault(offering.offer.reservation.id, []).append(name)
        for reservation, kinds in sorted(by_reservation.items()):
            of_it = [planned for planned in spent if planned.offering.offer.pool_key.reservation == reservation]
            left = max(
                self.supply.headroom[self.offerings[it].pool.name].reserved_left(self.offerings[it]) or 0
                for it in kinds
            )
            most = left + sum(planned.count for planned in of_it)
            yield Limit(f"reservation {reservation}", MACHINES, max(0, most), frozenset(kinds))

    def _limited_resources(self, pools: Iterable[str]) -> list[str]:
        """Returns the names under which the limits of these pools count resources and the price."""
        found = [self.supply.headroom[pool] for pool in pools]
        counted = {_counted_by_limits(name) for left in found for name in left.resources}
        return sorted(counted | {_PRICE for left in found if left.usd_h is not None})


_FIRST = {CPU: 0, "memory": 1}
_NAME = "/".join(["%s"] * 8)
"""Of a kind of machines, by the key of its offering."""


def tier_of(offering: Offering) -> Tier:
    """Returns the tier of an offering."""
    return Tier(offering.pool.spec.weight, capacity_rank(offering.pool, offering.offer.capacity_type))


class _KnownKind(NamedTuple):
    """An offering, which is kept alive as others would take its identity, with its kind."""

    offering: Offering
    kind: MachineKind


_KnownKinds = dict[int, _KnownKind]
"""Identity of an offering -> its kind."""


@derived(1)
def _kinds_at_these_costs(_index: Index, _known: KnownCandidates) -> dict[Hashable, _KnownKinds]:
    """Where passes keep the kinds of offerings, for as long as they keep candidates."""
    return {}


def _known_kinds(supply: BuyableCapacity, described: Hashable) -> _KnownKinds:
    """Returns the kinds known of offerings that are `described` alike: by their pool, its limits, and caps."""
    kept = _kinds_at_these_costs(supply.offerings.index, supply.known_candidates)
    if len(kept) >= _MOST_DESCRIBED or sum(map(len, kept.values())) >= _MOST_KINDS:
        kept.clear()
    return kept.setdefault(described, {})


def _admitted(need: Need, pool: NodePool, offerings: Sequence[Offering]) -> Sequence[Offering]:
    """Returns those offerings of a pool on whose machines pods of a need may stand until they end."""
    pods = need.pod_set
    if not tolerates(pool.spec.template.taints, (*pods.tolerations, *need.tolerations)):  # which all of them have
        return ()
    picky = pods.node_selector or pods.required_affinity
    return [it for it in offerings if it.closes_s > need.until_s and (not picky or selects(pods, it.labels))]


def _in(domains: frozenset[DomainLabel], offerings: Sequence[Offering]) -> Sequence[Offering]:
    """Returns those offerings whose machines are in all of the domains."""
    return [it for it in offerings if is_in(it.labels, domains)] if domains else offerings


def _values(pool: NodePool, offerings: Iterable[Offering]) -> frozenset[object]:
    """Returns what `minValues` of a pool choose among, whichever zones it is sold in unless they count zones."""
    keys = [key for key, _ in asked_values(pool)]
    return frozenset((it.offer.instance_type.name, it.layout, *map(it.labels.get, keys)) for it in offerings)


def model_of(offering: Offering) -> str:
    """Returns the GPU model of an offering's machines; empty if they have no GPU."""
    return offering.labels.get(labels.INSTANCE_GPU_NAME, "")


def _has_placement(pool: NodePool) -> bool:
    """Returns whether a pool's machines share a placement group or a network fabric."""
    return bool(pool.spec.placement.group) or pool.spec.placement.fabric is True


def _counted_by_limits(resource: str) -> str:
    """Returns the name under which limits count a resource: the machine's capacity without MIG layout or overhead."""
    return f"capacity of {resource}"


def _capacity(offering: Offering) -> Resources:
    return offering.offer.instance_type.capacity
