"""What claims may still become. Claims with equal requirements and limits are one family, decided once for all of them.

Karpenter keeps the remaining types with every claim and filters them again for every pod; here a claim is its family
and how much of it is used, and a pod leads from one family to another.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bench.reference.karpenter.buy.fronts import Fronts
from bench.reference.karpenter.buy.rows import Bools, InstanceRows
from bench.reference.karpenter.buy.values import PoolTemplate
from model.requirements import Requirement, Requirements

Chosen = tuple[tuple[str, tuple[str, ...]], ...]
"""Topology key -> domains, as the topologies left them."""


@dataclass(slots=True, eq=False)
class ClaimClass:
    """Equal claims as they are seen from outside: pool, requirements (hostname aside), rows and offers left."""

    number: int
    pool: int
    """Index of its template."""
    requirements: Requirements
    rows: Bools
    offers: Bools
    front: int
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    next_by_ask: dict[int, "ClaimClass | None"] = field(default_factory=dict)
    next_by_domain: dict[Chosen, "ClaimClass | None"] = field(default_factory=dict)

    def domains(self, key: str) -> tuple[str, ...]:
        """The values of `key` a claim may end up with, none where nothing is known of it."""
        found = self.values.get(key)
        if found is None:
            requirement = self.requirements.of(key)
            found = self.values[key] = () if requirement.complement else tuple(sorted(requirement.values))
        return found


class Families:
    """All families of a solve."""

    def __init__(self, templates: Iterable[PoolTemplate], rows: list[InstanceRows]) -> None:
        self.templates = list(templates)
        self.rows = rows
        self.fronts = Fronts()
        self.all: list[ClaimClass] = []
        self._known: dict[tuple[int, Requirements, bytes], ClaimClass] = {}

    def first(self, pool: int, rows: Bools) -> ClaimClass | None:
        """What a new claim of the template is before its first pod, given the rows its limits leave."""
        wanted = self.templates[pool].requirements
        offers = np.ones(len(self.rows[pool].offers), dtype=np.bool_)
        kept, offers = self.rows[pool].narrowed(rows & self.rows[pool].alive, offers, wanted)
        return self._family(pool, wanted, kept, offers)

    def after(self, family: ClaimClass, ask: int, wanted: Requirements) -> ClaimClass | None:
        """The family once a pod that wants `wanted` (number `ask`) is on it; None when it cannot be."""
        if ask not in family.next_by_ask:
            family.next_by_ask[ask] = self._joined(family, wanted)
        return family.next_by_ask[ask]

    def within(self, family: ClaimClass, chosen: Chosen) -> ClaimClass | None:
        """The family held to the domains its topologies chose; None when they contradict or leave no machine."""
        if chosen not in family.next_by_domain:
            family.next_by_domain[chosen] = self._held(family, chosen)
        return family.next_by_domain[chosen]

    def _held(self, family: ClaimClass, chosen: Chosen) -> ClaimClass | None:
        wanted = Requirements()
        for key, domains in chosen:
            wanted &= Requirements({key: Requirement(frozenset(domains))})
        return None if wanted.empty_keys() else self._joined(family, wanted)

    def _joined(self, family: ClaimClass, wanted: Requirements) -> ClaimClass | None:
        if not wanted:
            return family
        if not family.requirements.compatible(wanted):
            return None
        return self._narrowed(family, family.requirements & wanted)

    def _narrowed(self, family: ClaimClass, requirements: Requirements) -> ClaimClass | None:
        old = family.requirements
        changed = {key: value for key, value in requirements.items() if key not in old or old[key] != value}
        if not changed:
            return family
        rows, offers = self.rows[family.pool].narrowed(family.rows, family.offers, changed)
        return self._family(family.pool, requirements, rows, offers)

    def _family(self, pool: int, requirements: Requirements, rows: Bools, offers: Bools) -> ClaimClass | None:
        if not rows.any():
            return None
        key = (pool, requirements, rows.tobytes())
        found = self._known.get(key)
        if found is None:
            front = self.fronts.of(self.rows[pool].room, rows)
            found = self._known[key] = ClaimClass(len(self.all), pool, requirements, rows, offers, front)
            self.all.append(found)
        return found
