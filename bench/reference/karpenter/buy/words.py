"""Why pods stay without a place, as a sentence: what each pool lacks, heaviest first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from bench.reference.karpenter.buy import min_values
from bench.reference.karpenter.buy.buyer import Buyer, PoolRefusal
from bench.reference.karpenter.buy.demands import Demand
from bench.reference.karpenter.buy.guard import fitting
from bench.reference.karpenter.buy.outcome import Why
from bench.reference.karpenter.buy.values import PoolTemplate
from model.hints import did_you_mean
from model.labels import WELL_KNOWN
from model.requirement import Requirement
from model.requirements import Requirements

Words = Callable[[Demand, int, Buyer], str]


def refusal(demand: Demand, refused: Sequence[PoolRefusal], buyer: Buyer) -> str:
    """All pools with what stands against them."""
    if not refused:
        return "no node has room, and no pool may buy a machine"
    parts = (f"pool {_template(buyer, pool).name!r}: {WORDS[why](demand, pool, buyer)}" for pool, why in refused)
    return "; ".join(parts)


def _template(buyer: Buyer, pool: int) -> PoolTemplate:
    return buyer.families.templates[pool]


def _requirements(demand: Demand, pool: int, buyer: Buyer) -> str:
    reasons = incompatibilities(_template(buyer, pool).requirements, demand.bought[0][1]) if demand.bought else ()
    return "; ".join(map(str, reasons)) or "asks for a node by name"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why two requirements cannot meet on one label."""

    key: str
    wanted: Requirement
    offered: Requirement | None
    """None: the offering side does not define the label."""
    hint: str = ""

    def __str__(self) -> str:
        if self.offered is None:
            reason = f"label {self.key!r} is required ({self.wanted}) but has no known values"
        else:
            reason = f"label {self.key!r}: wanted {self.wanted}, offered {self.offered}"
        return f"{reason}; {self.hint}" if self.hint else reason


def incompatibilities(
    mine: Requirements, incoming: Requirements, *, undefined: frozenset[str] = WELL_KNOWN
) -> tuple[Incompatibility, ...]:
    """Every reason why `mine.compatible(incoming)` is false, ordered by key, each with a hint at a near miss."""
    reasons, by_key = [], dict(mine.items())
    for key, wanted in sorted(incoming.items(), key=itemgetter(0)):
        offered = by_key.get(key)
        if offered is None:
            if key not in undefined and not wanted.allows_absent:
                hint = did_you_mean(key, undefined | by_key.keys())
                reasons.append(Incompatibility(key, wanted, None, hint))
        elif not offered.satisfiable_with(wanted):
            reasons.append(Incompatibility(key, wanted, offered, _value_hint(wanted, offered)))
    return tuple(reasons)


def _value_hint(wanted: Requirement, offered: Requirement) -> str:
    """A misspelt value, where both sides list theirs."""
    if wanted.complement or offered.complement:
        return ""
    hints = (did_you_mean(value, offered.values) for value in sorted(wanted.values))
    return next((hint for hint in hints if hint), "")


def _min_values(demand: Demand, pool: int, buyer: Buyer) -> str:
    """As upstream says it, which people search for."""
    rows = buyer.families.rows[pool]
    family = buyer.opening(pool)
    target = family and demand.target(buyer.families, family)
    least = buyer.guard.least[pool]
    left = min_values.unmet(least, rows, fitting(rows, target, demand.take)) if target else {}
    return min_values.sentence(left or least)


def _always(text: str) -> Words:
    return lambda _demand, _pool, _buyer: text


WORDS: Mapping[Why, Words] = {
    Why.NO_POOL: _always("buys nothing"),
    Why.TAINTS: _always("its taints are not tolerated"),
    Why.REQUIREMENTS: _requirements,
    Why.TOPOLOGY: _always("no domain is left that spread, affinity and anti-affinity allow"),
    Why.NO_MACHINE: _always("no machine type has the labels, the size and an available offering"),
    Why.MIN_VALUES: _min_values,
    Why.LIMITS: _always("every machine type that would do exceeds what its limits leave"),
    Why.RESERVATIONS: _always("its reserved capacity is held by others, and would be lost to what costs"),
}
