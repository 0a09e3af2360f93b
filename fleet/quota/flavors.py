"""Which flavor each resource of a workload would get, and what that would take (Kueue `flavorassigner`; reference 2.5).

Differs from upstream in one thing, on purpose: a flavor's worst mode and its borrowing are combined separately over the
resources. Taking the worst pair reports a fit where one resource does not fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from fleet.quota.declared import (
    PODS,
    CandidatePolicy,
    FlavorResource,
    FungibilityPolicy,
    QueueFungibility,
    QuotaFlavorSpec,
    QuotaQueueSpec,
)
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, available, borrow_height
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import tolerates
from model.kinds import RequirementTerm
from model.requirements import Requirements


class PreemptionMode(IntEnum):
    """How an amount could be had, best last."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Only by preemption, and there is nobody to preempt."""
    PREEMPT = 2
    """By preemption, of a workload of the own queue among others."""
    RECLAIM = 3
    """By preemption in other queues only."""
    FIT = 4

    @property
    def preempting(self) -> bool:
        """Neither fits nor is out of the question."""
        return PreemptionMode.NO_FIT < self < PreemptionMode.FIT


class GranularMode(NamedTuple):
    """How a flavor could be had: by which means, borrowing how far up the tree."""

    mode: PreemptionMode
    borrow: int


class FlavorRefusal(NamedTuple):
    """What stands in the way of a pod set: where it is quota, a cell with the amounts asked of it and there."""

    reason: Reason
    message: str = ""
    cell: Cell = -1
    asked: int = 0
    there: int = 0
    retry_at_s: float = 0.0


@dataclass(slots=True)
class FlavorAssignment:
    """The flavor chosen for one resource of a pod set."""

    flavor: str
    mode: PreemptionMode
    borrow: int
    next_index: int
    """Where the search goes on next time: the index of the last flavor tried, -1 when all were."""


@dataclass(slots=True)
class PodSetFlavors:
    """Flavors for the resources of one pod set. `choices` is None when some resource fits no flavor."""

    pod_set: PodSet
    count: int
    amounts: dict[str, int]
    """Resource -> amount for all pods."""
    choices: dict[str, FlavorAssignment] | None = None
    problems: list[FlavorRefusal] = field(default_factory=list)
    no_place: bool = False
    """Quota or not: its pods could not stand anywhere, even if no workload stood there."""

    @property
    def mode(self) -> PreemptionMode:
        """The worst of its resources."""
        if self.choices is None or self.no_place:
            return PreemptionMode.NO_FIT
        worst = PreemptionMode.FIT
        for choice in self.choices.values():
            worst = min(worst, choice.mode)
        return worst

    def asks(self) -> set[str]:
        """Resources it asks for."""
        return {name for name, amount in self.amounts.items() if amount}

    @property
    def flavors(self) -> frozenset[str]:
        """Names of the flavors chosen."""
        return frozenset(choice.flavor for choice in (self.choices or {}).values())


@dataclass(slots=True)
class WorkloadAssignment:
    """An answer for the whole workload."""

    pod_sets: list[PodSetFlavors]
    usage: dict[Cell, int]
    place: object = None
    """Where the pods would stand, as the ground knows it."""

    @property
    def mode(self) -> PreemptionMode:
        """The worst of its pod sets."""
        pod_sets = self.pod_sets
        return (
            pod_sets[0].mode
            if len(pod_sets) == 1
            else min((pods.mode for pods in pod_sets), default=PreemptionMode.NO_FIT)
        )

    @property
    def borrow(self) -> int:
        """The highest level anything is borrowed from."""
        return max((c.borrow for p in self.pod_sets for c in (p.choices or {}).values()), default=0)

    @property
    def given(self) -> tuple[PodSetAssignment, ...]:
        """What the workload would hold."""
        return tuple(
            PodSetAssignment(
                pods.pod_set.name,
                pods.count,
                {resource: choice.flavor for resource, choice in (pods.choices or {}).items()},
                {resource: pods.amounts[resource] for resource in pods.choices or {}},
            )
            for pods in self.pod_sets
        )

    def contested(self, tree: QuotaTree) -> frozenset[Cell]:
        """Cells that have to be preempted for."""
        return frozenset(
            tree.cell(FlavorResource(choice.flavor, resource))
            for pods in self.pod_sets
            for resource, choice in (pods.choices or {}).items()
            if choice.mode is not PreemptionMode.FIT
        )

    def indexes(self) -> list[dict[str, int]]:
        """For each pod set: resource -> where its search goes on."""
        return [{name: choice.next_index for name, choice in (pods.choices or {}).items()} for pods in self.pod_sets]

    @property
    def problem(self) -> Reason | None:
        """The word for why it cannot be had: the least final reason of the first pod set that has no flavor."""
        for pods in self.pod_sets:
            if pods.mode is PreemptionMode.NO_FIT:
                reasons = {problem.reason for problem in pods.problems}
                return next((reason for reason in _LEAST_FINAL_FIRST if reason in reasons), None)
        return None

    def untried(self) -> bool:
        """Whether some resource has flavors left to try."""
        return any(index != -1 for indexes in self.indexes() for index in indexes.values())


_LEAST_FINAL_FIRST = (
    Reason.TOPOLOGY,
    Reason.WAITING_FOR_QUOTA,
    Reason.EXCEEDS_MAX_QUOTA,
    Reason.NO_MATCHING_FLAVOR,
)

PreemptionOracle = Callable[[Cell, int], GranularMode]
"""What preemption could do for an amount of one cell: mode, and the borrow level once the victims are gone."""


def is_preferred(a: GranularMode, b: GranularMode, fungibility: QueueFungibility) -> bool:
    """Whether `a` is preferred to `b`."""
    if not a.mode or not b.mode:
        return bool(a.mode)
    if fungibility.prefer_preemption:
        return _viable_key(a) > _viable_key(b)
    return (a.mode, -a.borrow) > (b.mode, -b.borrow)


def _viable_key(granule: GranularMode) -> tuple[bool, int, PreemptionMode]:
    return (granule.mode > PreemptionMode.NO_CANDIDATES, -granule.borrow, granule.mode)


def may_stop_search(found: GranularMode, fungibility: QueueFungibility) -> bool:
    """Whether the search ends with this flavor."""
    if found.mode <= PreemptionMode.NO_CANDIDATES:
        return False
    if found.mode < PreemptionMode.FIT and fungibility.when_can_preempt is FungibilityPolicy.NEXT:
        return False
    return not (found.borrow > 0 and fungibility.when_can_borrow is FungibilityPolicy.NEXT)


@dataclass(slots=True)
class FlavorAssigner:
    """Finds flavors for one workload against the tree as it stands."""

    tree: QuotaTree
    queue: QuotaQueueSpec
    node: QuotaNode
    flavors: Mapping[str, QuotaFlavorSpec]
    oracle: PreemptionOracle
    fair: bool = False
    """Fair sharing is on."""
    pairwise: bool = False
    """A flavor counts by its worst pair of mode and borrowing, as upstream has it."""
    declared_only: bool = False
    """A resource that no quota of the tree names is not limited, rather than refused."""
    own_usage: Mapping[Cell, int] = field(default_factory=dict)
    """What the workload holds already through the one it replaces."""
    only: Mapping[str, Mapping[str, str]] | None = None
    """Pod set -> resource -> the one flavor to look at; None = all."""
    passed_over: set[tuple[str, str]] = field(default_factory=set)
    """(pod set, flavor) not to look at: there is no machine."""

    def assign(
        self,
        workload: Workload,
        counts: Sequence[int] | None = None,
        resume: Sequence[Mapping[str, int]] | None = None,
    ) -> WorkloadAssignment:
        """Flavors for every pod set, of which there are `counts`; `resume` says which flavors were tried before."""
        found = WorkloadAssignment([], {})
        wanted = [self._wanted(pods, n) for pods, n in zip(workload.pod_sets, _counts(workload, counts), strict=True)]
        for members in _together([pods.pod_set for pods in wanted]):
            if not self._assign_together(workload, [wanted[index] for index in members], found, resume, members):
                break
        found.pod_sets = wanted
        return found

    def _wanted(self, pod_set: PodSet, count: int) -> PodSetFlavors:
        amounts = {resource: amount * count for resource, amount in self.queue.asked_of(pod_set).items()}
        return PodSetFlavors(pod_set, count, amounts)

    def _assign_together(
        self,
        workload: Workload,
        members: list[PodSetFlavors],
        found: WorkloadAssignment,
        resume: Sequence[Mapping[str, int]] | None,
        positions: Sequence[int],
    ) -> bool:
        """Fill in the choices of pod sets that share their flavors; False when one of their resources fits nowhere."""
        total: dict[str, int] = {}
        for pods in members:
            for resource, amount in pods.amounts.items():
                total[resource] = total.get(resource, 0) + amount
        chosen: dict[str, FlavorAssignment] = {}
        problems: list[FlavorRefusal] = []
        failed = False
        for resource in sorted(total):
            if resource in chosen or self._not_limited(resource, total[resource]):
                continue
            after = resume[positions[0]].get(resource, -1) if resume else -1
            known = len(problems)
            of_group = self._of_group(workload, members, resource, total, found.usage, after, problems)
            if not of_group:
                problems, failed = problems[known:], True
                break
            chosen |= of_group
        for pods in members:
            pods.problems = list(problems)
            pods.choices = None if failed else {name: chosen[name] for name in pods.amounts if name in chosen}
            if failed:
                continue
            for resource, choice in (pods.choices or {}).items():
                if not self._counted(choice.flavor, resource):
                    continue
                cell = self.tree.cell(FlavorResource(choice.flavor, resource))
                found.usage[cell] = found.usage.get(cell, 0) + pods.amounts[resource]
        return not failed

    def _not_limited(self, resource: str, amount: int) -> bool:
        return self.queue.group_of(resource) is None and (self.declared_only or not amount)

    def _of_group(
        self,
        workload: Workload,
        members: list[PodSetFlavors],
        resource: str,
        total: Mapping[str, int],
        assumed: Mapping[Cell, int],
        after: int,
        problems: list[FlavorRefusal],
    ) -> dict[str, FlavorAssignment] | None:
        """The best flavor for all resources of one group; None when there is none (upstream's findFlavorForPodSets)."""
        group = self.queue.group_of(resource)
        if group is None:
            problems.append(FlavorRefusal(Reason.NO_MATCHING_FLAVOR, f"no quota for {resource}"))
            return None
        wanted = {name: amount for name, amount in total.items() if group.covers(name)}
        best: dict[str, FlavorAssignment] | None = None
        best_granule = GranularMode(PreemptionMode.NO_FIT, 0)
        tried = -1
        for index in range(after + 1, len(group.flavors)):
            tried = index
            flavor = group.flavors[index]
            unfit = self._unfit(workload, members, flavor, resource)
            if unfit is not None:
                problems.append(unfit)
                continue
            granule, choices = self._at(flavor, wanted, assumed, problems)
            if is_preferred(granule, best_granule, self.queue.fungibility):
                best, best_granule = choices, granule
            if may_stop_search(granule, self.queue.fungibility):
                best = choices
                break
        next_index = -1 if tried == len(group.flavors) - 1 else tried
        for choice in (best or {}).values():
            choice.next_index = next_index
        return best

    def _unfit(
        self, workload: Workload, members: list[PodSetFlavors], name: str, resource: str
    ) -> FlavorRefusal | None:
        """Why pods of these sets could not stand on nodes of the flavor at all."""
        objection = next(self._objections(workload, members, name, resource), "")
        return FlavorRefusal(Reason.NO_MATCHING_FLAVOR, f"{name}: {objection}") if objection else None

    def _objections(self, workload: Workload, members: list[PodSetFlavors], name: str, resource: str) -> Iterator[str]:
        flavor = self.flavors.get(name)
        if flavor is None:
            yield "not declared"
            return
        if self.only is not None and name not in {self.only.get(m.pod_set.name, {}).get(resource) for m in members}:
            yield "not nominated in this cycle"
        if workload.allowed_flavors is not None and name not in workload.allowed_flavors:
            yield "not among the workload's allowed flavors"
        if self.queue.declared_only and not any(
            self.tree.cells[cell].flavor == name for cell in self.node.root.declared
        ):
            yield "no team of its tree has quota"
        for pods in members:
            if flavor.offers is not None and (missing := pods.asks() - flavor.offers - {PODS}):
                yield f"no machine offers {', '.join(sorted(missing))}"
            misplaced = flavor.levels is not None and _misplaced(pods.pod_set, flavor.levels)
            if misplaced and (flavor.levels or not self._placed_by_another(resource)):
                yield misplaced
            if (pods.pod_set.name, name) in self.passed_over:
                yield f"no machine for {pods.pod_set.name}"
            if flavor.taints and not tolerates(flavor.taints, (*pods.pod_set.tolerations, *flavor.tolerations)):
                yield f"{pods.pod_set.name} does not tolerate its taints"
            if flavor.node_labels and not _selects(pods.pod_set, flavor.node_labels):
                yield f"{pods.pod_set.name} selects other nodes"

    def _placed_by_another(self, resource: str) -> bool:
        """Whether flavors of another group of the queue have the topology that this one's do not."""
        own = self.queue.group_of(resource)
        placing = {id(g) for g in self.queue.groups for n in g.flavors if (f := self.flavors.get(n)) and f.levels}
        return bool(placing) and id(own) not in placing

    def _at(
        self, flavor: str, wanted: Mapping[str, int], assumed: Mapping[Cell, int], problems: list[FlavorRefusal]
    ) -> tuple[GranularMode, dict[str, FlavorAssignment]]:
        mode, borrow = PreemptionMode.FIT, 0
        choices: dict[str, FlavorAssignment] = {}
        for resource, amount in wanted.items():
            granule = GranularMode(PreemptionMode.FIT, 0)
            if self._counted(flavor, resource):
                cell = self.tree.cell(FlavorResource(flavor, resource))
                granule = self._granule(cell, assumed.get(cell, 0) + amount, problems)
            if not self.pairwise:
                mode, borrow = min(mode, granule.mode), max(borrow, granule.borrow)
            elif is_preferred(GranularMode(mode, borrow), granule, self.queue.fungibility):
                mode, borrow = granule
            if not granule.mode:
                return GranularMode(PreemptionMode.NO_FIT, 0), {}
            choices[resource] = FlavorAssignment(flavor, granule.mode, granule.borrow, -1)
        return GranularMode(mode, borrow), choices

    def _counted(self, flavor: str, resource: str) -> bool:
        return not self.declared_only or self.tree.counts(self.node, FlavorResource(flavor, resource))

    def _granule(self, cell: Cell, amount: int, problems: list[FlavorRefusal]) -> GranularMode:
        amount -= self.own_usage.get(cell, 0)
        most = self.node.potential[cell]
        if amount > most:
            problems.append(FlavorRefusal(Reason.EXCEEDS_MAX_QUOTA, "", cell, amount, most))
            return GranularMode(PreemptionMode.NO_FIT, 0)
        borrow, below_root = borrow_height(self.node, cell, amount)
        free = available(self.node, cell)
        if amount <= free:
            return GranularMode(PreemptionMode.FIT, borrow)
        problems.append(FlavorRefusal(Reason.WAITING_FOR_QUOTA, "", cell, amount, free))
        owner = self.node.owner
        own = owner.subtree[cell] if owner is not self.node else self.node.nominal[cell]
        if amount <= own or below_root or self._may_preempt_while_borrowing():
            return self.oracle(cell, amount)
        return GranularMode(PreemptionMode.NO_FIT, 0)

    def _may_preempt_while_borrowing(self) -> bool:
        preemption = self.queue.preemption
        return (preemption.reclaim if self.fair else preemption.while_borrowing) is not CandidatePolicy.NEVER


def _counts(workload: Workload, counts: Sequence[int] | None) -> Sequence[int]:
    return counts if counts is not None else [pods.count for pods in workload.pod_sets]


def _together(pod_sets: Sequence[PodSet]) -> list[list[int]]:
    """Positions of the pod sets that get the same flavors, in the order of the first of each."""
    if len(pod_sets) == 1:
        return [[0]]
    groups: dict[str, list[int]] = {}
    for index, pods in enumerate(pod_sets):
        groups.setdefault(pods.group or f"/{index}", []).append(index)
    return list(groups.values())


def _misplaced(pod_set: PodSet, levels: tuple[str, ...]) -> str:
    """Why a pod set and a flavor's topology do not go together; empty when they do."""
    wished = [pod_set.required_topology, pod_set.preferred_topology, *(layer.level for layer in pod_set.slices)]
    named = [level for level in wished if level]
    if not levels:
        return f"has no topology, which {pod_set.name} asks for" if named or pod_set.any_topology else ""
    if not named and not pod_set.any_topology:
        return f"only takes pods that ask for places on its topology, {pod_set.name} does not"
    missing = next((level for level in named if level not in levels), "")
    return f"its topology has no level {missing}" if missing else ""


def _selects(pod_set: PodSet, node_labels: Mapping[str, str]) -> bool:
    """Node selector and required affinity, as far as they speak of labels that the flavor defines."""
    if any(node_labels[key] != value for key, value in pod_set.node_selector.items() if key in node_labels):
        return False
    alternatives = pod_set.required_affinity
    if not alternatives:
        return True
    narrowed = [tuple(term for term in terms if term.key in node_labels) for terms in alternatives]
    return any(not terms or _holds(terms, node_labels) for terms in narrowed)


def _holds(terms: tuple[RequirementTerm, ...], node_labels: Mapping[str, str]) -> bool:
    return Requirements.from_terms(terms).matches(node_labels)
