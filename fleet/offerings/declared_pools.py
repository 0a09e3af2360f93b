"""Finds pools that can never buy a machine, with the condition that leaves none, and overlays about nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fleet.catalog import Catalog
from fleet.offerings.conditions import condition_steps
from fleet.offerings.declared_names import allowed_unknown, named_values
from fleet.offerings.listing import CatalogListing
from fleet.offerings.offerings import Offering, Offerings
from fleet.offerings.reservations import RESERVED
from model.fleet import Fleet
from model.kinds import NodePool
from model.loader.declarations import Declarations, Declared
from model.pools import pool_requirements
from model.problem import Code, Problem, Severity
from model.requirements import InvalidRequirement, Requirements

MOST_POOLS: Final = 500
"""Pools of one fleet that are looked at, in order of name; far above any real fleet, and a bound on a hostile one."""
_MOST_EXPLAINED: Final = 5
"""Pools without offers of which the condition is looked for: that takes a look at everything on sale for each."""
_FEW: Final = 4
"""Types that are looked at first: nearly always one of them can be bought, and that is all there is to ask."""


@dataclass(slots=True)
class DeclaredPools:
    """`DeclaredPools` says what declared pools could buy in a region, were nothing short and nothing spent."""

    listing: CatalogListing
    declarations: Declarations
    _offerings: dict[str, Sequence[Offering]] = field(default_factory=dict)
    _wanted: dict[str, Requirements] = field(default_factory=dict)
    _candidates: dict[str, Sequence[str]] = field(default_factory=dict)

    def judged(self) -> Iterator[Declared[NodePool]]:
        """Yields the pools of which it can be said: their own words are in order, and so are their layouts."""
        for _, pool in islice(sorted(self.declarations.node_pools.items()), MOST_POOLS):
            mig = pool.value.spec.sharing.mig
            if all(name in self.declarations.mig_layouts for name in (mig.layouts if mig else ())):
                try:
                    wanted = self.wanted(pool.value)
                except InvalidRequirement:
                    continue  # malformed_terms has said so
                if not wanted.empty_keys():
                    yield pool

    def wanted(self, pool: NodePool) -> Requirements:
        """Returns what the pool requires; raises `InvalidRequirement` for a malformed term."""
        if pool.name not in self._wanted:
            self._wanted[pool.name] = pool_requirements(pool)
        return self._wanted[pool.name]

    def offerings(self, pool: NodePool) -> Sequence[Offering]:
        """Returns all ways to buy a machine from the pool, but for those of capacity reservations."""
        if pool.name not in self._offerings:
            catalog = self.listing.catalog(self.candidates(pool))
            self._offerings[pool.name] = self._of(pool, catalog).of_variant(pool)
        return self._offerings[pool.name]

    def buys(self, pool: NodePool) -> bool:
        """Returns whether there is any way at all; for a pool that uses reservations, whether any type suits it."""
        names, wanted = self.candidates(pool), self.wanted(pool)
        if len(names) <= _FEW and RESERVED not in pool.spec.capacity_types:
            return bool(self.offerings(pool))
        for some in (names[:_FEW], names[_FEW:]):
            catalog = self.listing.catalog(some) if some else Catalog()
            offerings = self._of(pool, catalog)
            if RESERVED in pool.spec.capacity_types:
                if any(offerings.suits(pool, wanted, machine) for machine in catalog.types.values()):
                    return True
            elif offerings.of_variant(pool):
                return True
        return False

    def candidates(self, pool: NodePool) -> Sequence[str]:
        """Returns the types that no label of theirs keeps out of the pool, sorted."""
        if pool.name not in self._candidates:
            self._candidates[pool.name] = self.listing.suited(self.wanted(pool))
        return self._candidates[pool.name]

    def _of(self, pool: NodePool, catalog: Catalog) -> Offerings:
        layouts = {name: layout.value for name, layout in self.declarations.mig_layouts.items()}
        return Offerings(Fleet(node_pools={pool.name: pool}, mig_layouts=layouts), catalog)

    def all_offerings(self, pool: NodePool) -> Offerings:
        """Returns the offerings of the pool over all that is on sale, whatever it says."""
        return self._of(pool, self.listing.catalog(self.listing.types))


def pools_without_offers(pools: DeclaredPools) -> Iterator[Problem]:
    """Yields pools for which nothing is on sale, at the condition that leaves nothing.

    A warning where the policy vouches for a name in the pool: its machine may be newer than the catalogue.
    """
    listing, vouched = pools.listing, allowed_unknown(pools.declarations)
    if not listing.zones:
        return
    named: dict[str, set[str]] = {}
    for each in named_values(pools.declarations):
        named.setdefault(each.source.value.name, set()).add(each.value)
    explained = 0
    for pool in pools.judged():
        if not pools.buys(pool.value):
            explained += 1
            severity: Severity = "warning" if vouched & named.get(pool.value.name, set()) else "error"
            yield _nothing_left(pools, pool, severity, steps=explained <= _MOST_EXPLAINED)
        elif any(term.min_values for term in pool.value.spec.requirements):
            yield from _too_few_kinds(pools, pool)


def _too_few_kinds(pools: DeclaredPools, pool: Declared[NodePool]) -> Iterator[Problem]:
    """Yields the terms whose `minValues` are more than there are among all that the pool may buy."""
    offerings = pools.offerings(pool.value)
    for index, term in enumerate(pool.value.spec.requirements):
        kinds = len({offering.labels.get(term.key) for offering in offerings})
        if term.min_values and kinds < term.min_values and RESERVED not in pool.value.spec.capacity_types:
            message = f"{term.key}: minValues is {term.min_values}, and the pool has {kinds} in {pools.listing.region}"
            yield pool.problem(("spec", "requirements", index, "minValues"), message, Code.NO_OFFER)


def _nothing_left(pools: DeclaredPools, pool: Declared[NodePool], severity: Severity, *, steps: bool) -> Problem:
    where = f"in {pools.listing.region}"
    left: Mapping[str, int] = {}
    for condition, offerings in condition_steps(pool.value, pools.all_offerings(pool.value)) if steps else ():
        if condition is not None and not offerings:
            before = f"; of {_kinds(left)} that the conditions before it allow, it rules out all" if left else ""
            message = f"nothing {where} can be bought with {condition.words}{before}"
            return pool.problem(condition.path, message, Code.NO_OFFER, hint=_HINT, severity=severity)
        left = _by_type(offerings)
    message = f"nothing {where} can be bought with all that the pool asks for"
    return pool.problem(("spec",), message, Code.NO_OFFER, hint=_HINT, severity=severity)


_HINT = "muster explain pool shows what each condition leaves; a name that is right goes into allowUnknown"


def _by_type(offerings: Sequence[Offering]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for offering in offerings:
        name = offering.offer.instance_type.name
        found[name] = found.get(name, 0) + 1
    return found


def _kinds(left: Mapping[str, int]) -> str:
    names = ", ".join(sorted(left)[:3]) + (", ..." if len(left) > 3 else "")
    return f"{len(left)} type{'' if len(left) == 1 else 's'} ({names})"


def types_not_sold(pools: DeclaredPools) -> Iterator[Problem]:
    """Yields warnings about listed types that exist and are not sold in the region, where others of the pool are."""
    if not pools.listing.zones:
        return
    for pool in pools.judged():
        spec = pool.value.spec
        listed = [name for name in spec.instance_types if name in pools.listing.types]
        if not listed or RESERVED in spec.capacity_types:
            continue
        sold = {offer.instance_type.name for offer in pools.listing.catalog(listed).offers}
        for name in listed:
            if name not in sold and sold:
                path = ("spec", "instanceTypes", spec.instance_types.index(name))
                message = f"{name!r} is not known to be sold in {pools.listing.region}: the pool never buys it"
                yield pool.problem(path, message, Code.NO_OFFER, severity="warning")


def overlays_without_offers(pools: DeclaredPools) -> Iterator[Problem]:
    """Yields warnings about overlays whose conditions no instance type meets: prices or resources of nothing."""
    for overlay in pools.declarations.node_overlays.values():
        try:
            wanted = Requirements.from_terms(overlay.value.spec.requirements)
        except InvalidRequirement:
            continue  # malformed_overlays has said so
        if not pools.listing.suited(wanted):
            message = f"no machine that is known in {pools.listing.region} meets all of these: the overlay does nothing"
            yield overlay.problem(("spec", "requirements"), message, Code.NO_OFFER, severity="warning")
