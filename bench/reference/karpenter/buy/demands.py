"""Asks worked out: what each class of pods takes, wants, must heed and is counted by."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.reference.karpenter.buy.families import ClaimClass, Families
from bench.reference.karpenter.buy.groups import Sort, TopologyGroup
from bench.reference.karpenter.buy.relax import heaviest
from bench.reference.karpenter.buy.rows import Ints
from bench.reference.karpenter.buy.taints import tolerated
from bench.reference.karpenter.buy.values import ANYTHING, PodSpecification
from model.labels import HOSTNAME
from model.requirements import Requirements

PLACEHOLDER = "hostname-placeholder-0001"
"""What machines to be bought are called: no pod can ask for it, but it can be among those a pod does not exclude."""


@dataclass(slots=True, eq=False)
class Demand:
    """One class of equal pods at one step of relaxation."""

    number: int
    ask: PodSpecification
    take: Ints
    """What one pod takes, in the order of the solve's resources."""
    wanted: tuple[Requirements, ...]
    """Alternatives (by where its volumes are); preferences held are in them."""
    bought: tuple[tuple[int, Requirements], ...]
    """The alternatives as machines to be bought must meet them, numbered for all demands together."""
    strict: Requirements
    """Without preferences: what the pod's domains are judged by."""
    rules: tuple[tuple[TopologyGroup, bool], ...]
    """Groups it must heed, and whether equal pods are among those counted."""
    selected_by: list[TopologyGroup]
    """Groups whose selector counts it; grows when relaxed pods bring new ones."""
    own: tuple[TopologyGroup, ...]
    """Groups that count it by what it does: repel others, hold ports."""

    @property
    def counted(self) -> tuple[TopologyGroup, ...]:
        """Every group that counts it."""
        return (*self.selected_by, *self.own)

    def steady(self) -> bool:
        """Whether placing one leaves for the next all as it was, room aside."""
        return all(group.steady(self.strict.of(group.key.key), mine=mine) for group, mine in self.rules)

    @property
    def lasting(self) -> bool:
        """Whether no equal pod can ever find a place once one of them has found none, wherever relaxed fellows go."""
        return all(_only_worse(group, mine=mine) for group, mine in self.rules)

    def target(self, families: Families, family: ClaimClass) -> ClaimClass | None:
        """What a claim of the family becomes with such a pod on it; None when it cannot take one."""
        if not tolerated(families.templates[family.pool].taints, self.ask.tolerations):
            return None
        for number, wanted in self.bought:
            found = families.after(family, number, wanted)
            if found is not None:
                found = self._within(families, found)
            if found is not None:
                return found
        return None

    def _within(self, families: Families, family: ClaimClass) -> ClaimClass | None:
        """The family held to the domains that every group allows (`topology.go AddRequirements`)."""
        chosen: list[tuple[str, tuple[str, ...]]] = []
        for group, mine in self.rules:
            key = group.key.key
            if group.by_host:
                continue
            allowed = group.allowed(self.strict.of(key), family.requirements.of(key), mine=mine)
            if not allowed:
                return None
            chosen.append((key, allowed))
        return families.within(family, tuple(chosen)) if chosen else family


def _only_worse(group: TopologyGroup, *, mine: bool) -> bool:
    """Whether a group that refuses a pod still refuses it after more of its kind were placed."""
    if group.key.sort is Sort.AFFINITY:
        return not mine
    return group.key.sort is not Sort.SPREAD or group.by_host


Numbering = Callable[[Requirements], int]


def alternatives(ask: PodSpecification) -> tuple[Requirements, ...]:
    """What a node must meet: selector, the required term in force, the preference in force, and a place of volumes."""
    wanted = strictly(ask)
    preferred = heaviest(ask.preferred)
    if preferred is not None:
        wanted &= preferred
    return tuple(wanted & volume for volume in ask.volumes) or (wanted,)


def strictly(ask: PodSpecification) -> Requirements:
    """Selector and the first term of required node affinity."""
    return ask.selector & ask.required[0] if ask.required else ask.selector


def to_buy(wanted: tuple[Requirements, ...], number: Numbering) -> tuple[tuple[int, Requirements], ...]:
    """The alternatives a machine to be bought can meet, whose hostname nobody knows yet."""
    out = []
    for each in wanted:
        if HOSTNAME not in each:
            out.append((number(each), each))
        elif each[HOSTNAME].has(PLACEHOLDER):
            rest = Requirements({key: value for key, value in each.items() if key != HOSTNAME}) or ANYTHING
            out.append((number(rest), rest))
    return tuple(out)
