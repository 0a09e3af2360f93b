"""How a machine differs from what its pool declares: the first difference in a fixed order names the drift.

Karpenter `nodeclaim/disruption/drift.go`, reference 3.2: what the machine was born with, what the pool requires of it,
whether its type is still sold, and last what only the provider can tell. For that the rules are those of Karpenter's
AWS provider (`pkg/cloudprovider/drift.go`): the image is the one that the pool's terms choose for such a machine (the
newest of all they find), the subnet is among those they select, and the security groups are exactly those they select.
Terms that find nothing are an error there and show no difference here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from fleet.catalog import ImageKind
from fleet.snapshot import Instance, Resolved
from model.requirements import STRICT, Requirements

TYPE_CHECKED_AFTER_S: Final = 3600.0
"""A younger machine was bought by what was on sale: a gap in the listing says nothing of it."""


class DriftReason(StrEnum):
    """The difference that was found first, in Karpenter's words."""

    TEMPLATE = "NodePoolDrifted"
    REQUIREMENTS = "RequirementsDrifted"
    TYPE_GONE = "InstanceTypeNotFound"
    PROVIDER = "CloudProvider"


class Drift(NamedTuple):
    """The way a machine differs from its pool, as a reason and in words; both are empty where it does not."""

    reason: str
    words: str


NO_DRIFT: Final = Drift("", "")


class TemplateHash(NamedTuple):
    """The hash of a template and the version of the hash function; only hashes of one version can be compared."""

    hash: str
    version: str


class OfferingAvailability(NamedTuple):
    """A zone and capacity type in which a machine type is on sale."""

    zone: str
    capacity_type: str


NOWHERE: Final = OfferingAvailability("", "")


@dataclass(frozen=True, slots=True)
class DriftFacts:
    """What is known of a machine and of its pool; a fact that is None is unknown and shows no difference."""

    launched: bool = True
    pool_declared: bool = True
    pool: TemplateHash | None = None
    machine: TemplateHash | None = None
    carried: Mapping[str, str] = field(default_factory=dict)
    """Labels of the machine."""
    wanted: Requirements | None = None
    market: OfferingAvailability = NOWHERE
    on_sale: Collection[OfferingAvailability] | None = None
    """Where its type is sold; empty = nowhere any more."""
    age_s: float = inf
    provider: str = ""
    """What the provider finds different, such as `AMIDrift`; empty = nothing."""


def drift_reason(facts: DriftFacts) -> str:
    """Returns the first difference; empty when there is none, or nothing to compare with."""
    if not facts.launched or not facts.pool_declared:
        return ""
    found = next((reason for reason, differs in _CHECKS if differs(facts)), "")
    return facts.provider if found is DriftReason.PROVIDER else found


def wrong_key(carried: Mapping[str, str], wanted: Requirements) -> str:
    """Returns the first label, by name, with which a machine does not meet requirements; empty when it meets all."""
    for key, requirement in sorted(wanted.items()):
        offered = Requirements.from_labels({key: carried[key]} if key in carried else {})
        if not offered.compatible(Requirements({key: requirement}), undefined=STRICT):
            return key
    return ""


def _template(facts: DriftFacts) -> bool:
    mine, theirs = facts.machine, facts.pool
    return mine is not None and theirs is not None and mine.version == theirs.version and mine.hash != theirs.hash


def _requirements(facts: DriftFacts) -> bool:
    return facts.wanted is not None and bool(wrong_key(facts.carried, facts.wanted))


def _type_gone(facts: DriftFacts) -> bool:
    if facts.on_sale is None or facts.age_s < TYPE_CHECKED_AFTER_S:
        return False
    zone, capacity_type = facts.market
    wanted = {capacity_type, "on-demand"} if capacity_type == "reserved" else {capacity_type}
    return not any(each.zone == zone and each.capacity_type in wanted for each in facts.on_sale)


_CHECKS: Sequence[tuple[DriftReason, Callable[[DriftFacts], bool]]] = (
    (DriftReason.TEMPLATE, _template),
    (DriftReason.REQUIREMENTS, _requirements),
    (DriftReason.TYPE_GONE, _type_gone),
    (DriftReason.PROVIDER, lambda facts: bool(facts.provider)),
)
"""A machine whose reservation is gone runs on, on demand: it is not drifted while its type is sold that way."""


_SHOWN: Final = 3
"""Most ids in a sentence."""


class ProviderDrift(StrEnum):
    """The part of a machine that its pool would get otherwise now, in Karpenter's words; checked in this order."""

    IMAGE = "AMIDrift"
    SUBNET = "SubnetDrift"
    SECURITY_GROUPS = "SecurityGroupDrift"


PROVIDER_DRIFT: Final = frozenset(ProviderDrift)
"""Differences that no revision has made: the cloud has."""


def provider_drift(pool: str, kind: ImageKind | None, machine: Instance, now: Resolved) -> Drift:
    """Returns the first difference from what the pool would get now; `kind` is None for a type that is unknown now."""
    image = now.images.get(kind, "") if kind is not None else ""
    if image and machine.image and machine.image != image:
        return Drift(ProviderDrift.IMAGE, f"its image is {machine.image}, node pool {pool} now gets {image}")
    if not now.subnets or not machine.subnet:
        return NO_DRIFT
    if machine.subnet not in now.subnets:
        selected = f"node pool {pool} now selects {_told(now.subnets)}"
        return Drift(ProviderDrift.SUBNET, f"its subnet is {machine.subnet}, {selected}")
    wanted, carried = now.subnets[machine.subnet], machine.security_groups
    if wanted and carried and set(wanted) != set(carried):
        selected = f"node pool {pool} now selects {_told(wanted)}"
        return Drift(ProviderDrift.SECURITY_GROUPS, f"its security groups are {_told(carried)}, {selected}")
    return NO_DRIFT


def _told(ids: Iterable[str]) -> str:
    """Returns the ids in order, of many only the first few."""
    found = sorted(ids)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
