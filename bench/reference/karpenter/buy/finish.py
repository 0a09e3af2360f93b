"""Claims as they are handed over: the machines each may become, cheapest first (`nodeclaimtemplate.go ToNodeClaim`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bench.reference.karpenter.buy import min_values
from bench.reference.karpenter.buy.families import ClaimClass
from bench.reference.karpenter.buy.flight import Flight, host_name
from bench.reference.karpenter.buy.guard import Guard, fitting
from bench.reference.karpenter.buy.outcome import Option, PlannedClaim, Unplaced, Why
from bench.reference.karpenter.buy.rows import Bools, Floats, InstanceRows, Ints
from bench.reference.karpenter.buy.values import PODS, RESERVED
from model import labels
from model.quantity import Resources
from model.requirements import Requirement, Requirements

MOST_TYPES: Final = 600
"""Types a claim names at most (`MaxInstanceTypes`); the AWS provider cuts to 60 when it launches."""


@dataclass(slots=True)
class Finish:
    """Turns what is in flight into claims. Claims that may become the same share one list of options."""

    flight: Flight
    guard: Guard
    resources: Sequence[str]
    _offered: dict[tuple[int, frozenset[str]], tuple[Floats, list[Option]]] = field(default_factory=dict)
    _options: dict[tuple[int, bytes, frozenset[str]], "_Listed"] = field(default_factory=dict)
    _shapes: dict[tuple[int, bytes, frozenset[str]], "_Shape"] = field(default_factory=dict)

    def claim(self, number: int, pods: Sequence[str]) -> PlannedClaim | Unplaced:
        """The claim with its pods, or they go back: cut to the longest list, it would be too little flexible."""
        family = self.flight.family(number)
        held = self.guard.reservations.held(host_name(number))
        shape = self._shape(family, self.flight.used(number), held)
        if shape.unmet:
            return Unplaced(tuple(pods), Why.MIN_VALUES, min_values.sentence(shape.unmet))
        if not shape.options:
            return Unplaced(tuple(pods), Why.RESERVATIONS, "only reserved capacity would do, and others hold it")
        return PlannedClaim(
            name=host_name(number),
            template=self.flight.families.templates[family.pool].name,
            requirements=shape.requirements,
            requests=shape.requests,
            options=shape.options,
            pods=tuple(pods),
            reservations=tuple(sorted(held)),
        )

    def _shape(self, family: ClaimClass, used: Ints, held: frozenset[str]) -> "_Shape":
        """Claims that are equal but for their pods' names are worked out once."""
        key = (family.number, used.tobytes(), held)
        found = self._shapes.get(key)
        if found is None:
            rows = self.flight.families.rows[family.pool]
            left = fitting(rows, family, used)
            listed = self._listed(family, rows, left, held)
            least = min_values.least(self.flight.families.templates[family.pool].requirements)
            unmet = min_values.unmet(least, rows, listed.rows) if least else {}
            requests = self._amounts(used + rows.daemons[left].min(axis=0))
            found = _Shape(_pinned(family.requirements, held), requests, listed.options, unmet)
            self._shapes[key] = found
        return found

    def _amounts(self, taken: Ints) -> Resources:
        named: Mapping[str, int] = dict(zip(self.resources, taken.tolist(), strict=True))
        return {name: amount for name, amount in named.items() if amount and name != PODS}

    def _listed(self, family: ClaimClass, rows: InstanceRows, left: Bools, held: frozenset[str]) -> "_Listed":
        key = (family.number, left.tobytes(), held)
        found = self._options.get(key)
        if found is None:
            found = self._options[key] = self._list(family, rows, left, held)
        return found

    def _list(self, family: ClaimClass, rows: InstanceRows, left: Bools, held: frozenset[str]) -> "_Listed":
        prices, options = self._priced(family, rows, held)
        chosen: dict[str, int] = {}
        for row in np.lexsort((rows.rank, prices)).tolist():
            if left[row] and np.isfinite(prices[row]) and len(chosen) < MOST_TYPES:
                chosen.setdefault(rows.machines[row].name, row)
        kept = np.zeros(len(left), dtype=np.bool_)
        kept[list(chosen.values())] = True
        return _Listed(tuple(options[row] for row in chosen.values()), kept)

    def _priced(self, family: ClaimClass, rows: InstanceRows, held: frozenset[str]) -> tuple[Floats, list[Option]]:
        """By row of the family: its cheapest offer, and that as an option."""
        key = (family.number, held)
        found = self._offered.get(key)
        if found is None:
            prices, best = rows.cheapest(family.offers & _usable(rows, held))
            named = zip(rows.machines, (rows.offers[index] for index in best), strict=True)
            options = [
                Option(machine.name, offer.price_usd_h, offer.zone, offer.capacity_type) for machine, offer in named
            ]
            found = self._offered[key] = (prices, options)
        return found


@dataclass(frozen=True, slots=True)
class _Shape:
    requirements: Requirements
    requests: Resources
    options: tuple[Option, ...]
    unmet: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Listed:
    options: tuple[Option, ...]
    rows: Bools


def _usable(rows: InstanceRows, held: frozenset[str]) -> Bools:
    """Offers a claim may be launched into: its reservations if it holds any, else those nobody has to hold."""
    if not held:
        return ~rows.reserved
    return rows.reserved & np.array([offer.reservation_id in held for offer in rows.offers], dtype=np.bool_)


def _pinned(requirements: Requirements, held: frozenset[str]) -> Requirements:
    if not held:
        return requirements
    pins = {
        labels.CAPACITY_TYPE: Requirement.one_of(RESERVED),
        labels.CAPACITY_RESERVATION_ID: Requirement(held),
    }
    return requirements & Requirements(pins)
