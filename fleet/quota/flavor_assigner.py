"""The flavor assigner finds which flavor each resource of a workload would get, and what that would take.

Kueue's `flavorassigner` (reference 2.5). It differs from upstream in one thing, on purpose: a flavor's worst mode and
its borrowing are combined separately over the resources. Taking the worst pair reports a fit where one resource does
not fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.quota.specs import (
    PODS,
    CandidatePolicy,
    FlavorResource,
    FungibilityPolicy,
    QueueFungibility,
    QuotaFlavorSpec,
    QuotaQueueSpec,
)
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, available, borrow_height
from fleet.quota.workload import (
    FlavorAssignment,
    FlavorRefusal,
    GranularMode,
    PodSetFlavors,
    PreemptionMode,
    Workload,
    WorkloadAssignment,
)
from fleet.reasons import Reason
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import tolerates
from model.kinds import RequirementTerm
from model.labels import GPU_EQUIVALENT, SHARED_CLAIM
from model.quantity import format_amount
from model.requirements import Requirements

PreemptionOracle = Callable[[Cell, int], GranularMode]
"""What preemption could do for an amount of one cell: mode, and the borrow level once the victims are gone."""


_OF_QUOTAS = frozenset({PODS, GPU_EQUIVALENT})
"""What quotas count and no machine has to offer."""


@dataclass(slots=True)
class FlavorAssigner:
    """Finds flavors for one workload against the tree as it stands."""

    tree: QuotaTree
    queue: QuotaQueueSpec
    node: QuotaNode
    flavors: Mapping[str, QuotaFlavorSpec]
    oracle: PreemptionOracle
    fair: bool = False
    """Whether fair sharing is on."""
    pairwise: bool = False
    """Whether a flavor counts by its worst (mode, borrowing) pair, as upstream has it."""
    declared_only: bool = False
    """Whether a resource without any quota in the tree is unlimited; else it is refused."""
    own_usage: Mapping[Cell, int] = field(default_factory=dict)
    """Cell -> what the workload holds already through the workload it replaces."""
    only: Mapping[str, Mapping[str, str]] | None = None
    """Pod set -> resource -> the one flavor to look at; None = all."""
    guarantee_left: Callable[[Cell], int] | None = None
    """Returns what a non-preemptible workload may take of a cell; None for one that may borrow."""
    passed_over: set[tuple[str, str]] = field(default_factory=set)
    """(pod set, flavor) to skip, because no machine can be had there."""

    def assign(
        self,
        workload: Workload,
        counts: Sequence[int] | None = None,
        resume: Sequence[Mapping[str, int]] | None = None,
    ) -> WorkloadAssignment:
        """Returns flavors for every pod set, with `counts` pods each; `resume` says where earlier searches ended."""
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
        """Fills in the choices of pod sets that share their flavors; False when a resource of theirs fits no flavor."""
        tried = resume[positions[0]] if resume else {}
        chosen, refusals = self._choose(workload, members, found.usage, tried)
        for pods in members:
            pods.refusals = list(refusals)
            pods.choices = None if chosen is None else {name: chosen[name] for name in pods.amounts if name in chosen}
            self._count(pods, found.usage)
        return chosen is not None

    def _choose(
        self, workload: Workload, members: list[PodSetFlavors], assumed: Mapping[Cell, int], tried: Mapping[str, int]
    ) -> tuple[dict[str, FlavorAssignment] | None, list[FlavorRefusal]]:
        """Returns the flavor of every resource and refusals of others; None where a resource gets no flavor."""
        total = _summed(members)
        chosen: dict[str, FlavorAssignment] = {}
        refusals: list[FlavorRefusal] = []
        for resource in sorted(total):
            if resource in chosen or self._not_limited(resource, total[resource]):
                continue
            known = len(refusals)
            after = tried.get(resource, -1)
            of_group = self._of_group(workload, members, resource, total, assumed, after, refusals)
            if not of_group:
                return None, refusals[known:]
            chosen |= of_group
        return chosen, refusals

    def _count(self, pods: PodSetFlavors, usage: dict[Cell, int]) -> None:
        """Adds to `usage` what quota counts of a pod set's choices."""
        for resource, choice in (pods.choices or {}).items():
            if (cell := self._counted(choice.flavor, resource)) is not None:
                usage[cell] = usage.get(cell, 0) + pods.amounts[resource]

    def _not_limited(self, resource: str, amount: int) -> bool:
        """Returns whether a resource gets no flavor: the queue's groups do not cover it, and need not."""
        return self.queue.group_of(resource) is None and (self.declared_only or not amount)

    def _of_group(
        self,
        workload: Workload,
        members: list[PodSetFlavors],
        resource: str,
        total: Mapping[str, int],
        assumed: Mapping[Cell, int],
        after: int,
        refusals: list[FlavorRefusal],
    ) -> dict[str, FlavorAssignment] | None:
        """Returns the best flavor for the resources of a group, or None (upstream findFlavorForPodSets)."""
        group = self.queue.group_of(resource)
        if group is None:
            refusals.append(FlavorRefusal(Reason.NO_MATCHING_FLAVOR, f"no quota for {resource}"))
            return None
        wanted = {name: amount for name, amount in total.items() if group.covers(name)}
        best: dict[str, FlavorAssignment] | None = None
        best_mode = GranularMode(PreemptionMode.NO_FIT, 0)
        tried = -1
        for index in range(after + 1, len(group.flavors)):
            tried = index
            flavor = group.flavors[index]
            unfit = self._unfit(workload, members, flavor, resource)
            if unfit is not None:
                refusals.append(unfit)
                continue
            mode, choices = self._at(flavor, wanted, assumed, refusals)
            if is_preferred(mode, best_mode, self.queue.fungibility):
                best, best_mode = choices, mode
            if may_stop_search(mode, self.queue.fungibility):
                best = choices
                break
        next_index = -1 if tried == len(group.flavors) - 1 else tried
        for choice in (best or {}).values():
            choice.next_index = next_index
        return best

    def _unfit(
        self, workload: Workload, members: list[PodSetFlavors], name: str, resource: str
    ) -> FlavorRefusal | None:
        """Returns why pods of these sets could not stand on nodes of the flavor at all."""
        objection = next(self._objections(workload, members, name, resource), "")
        return FlavorRefusal(Reason.NO_MATCHING_FLAVOR, f"{name}: {objection}") if objection else None

    def _objections(self, workload: Workload, members: list[PodSetFlavors], name: str, resource: str) -> Iterator[str]:
        """Yields reasons against a flavor, whatever its quota."""
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
            yield from self._against_pods(pods, flavor, resource)

    def _against_pods(self, pods: PodSetFlavors, flavor: QuotaFlavorSpec, resource: str) -> Iterator[str]:
        """Yields why pods of a set could not stand on nodes of a flavor."""
        pod_set = pods.pod_set
        if flavor.offers is not None and (missing := pods.asks() - flavor.offers - _OF_QUOTAS):
            yield "; ".join(filter(None, (f"no machine offers {', '.join(sorted(missing))}", flavor.unsold)))
        misplaced = flavor.levels is not None and _misplaced(pod_set, flavor.levels)
        if misplaced and (flavor.levels or not self._placed_by_another(resource)):
            yield misplaced
        if (pod_set.name, flavor.name) in self.passed_over:
            yield f"no machine for {pod_set.name}"
        if flavor.taints and not tolerates(flavor.taints, (*pod_set.tolerations, *flavor.tolerations)):
            yield f"{pod_set.name} does not tolerate its taints"
        if flavor.node_labels and not _selects(pod_set, flavor.node_labels):
            yield f"{pod_set.name} selects other nodes"

    def _placed_by_another(self, resource: str) -> bool:
        """Returns whether another resource group of the queue has flavors with a topology and this one has none."""
        own = self.queue.group_of(resource)
        placing = {id(g) for g in self.queue.groups for n in g.flavors if (f := self.flavors.get(n)) and f.levels}
        return bool(placing) and id(own) not in placing

    def _at(
        self, flavor: str, wanted: Mapping[str, int], assumed: Mapping[Cell, int], refusals: list[FlavorRefusal]
    ) -> tuple[GranularMode, dict[str, FlavorAssignment]]:
        """Returns how a flavor could give all that is `wanted` of it, and the choices; empty where it cannot."""
        mode, borrow = PreemptionMode.FIT, 0
        choices: dict[str, FlavorAssignment] = {}
        for resource, amount in wanted.items():
            found = GranularMode(PreemptionMode.FIT, 0)
            if (cell := self._counted(flavor, resource)) is not None:
                found = self._mode_of(cell, assumed.get(cell, 0) + amount, refusals)
            if not self.pairwise:
                mode, borrow = min(mode, found.mode), max(borrow, found.borrow)
            elif is_preferred(GranularMode(mode, borrow), found, self.queue.fungibility):
                mode, borrow = found
            if not found.mode:
                return GranularMode(PreemptionMode.NO_FIT, 0), {}
            choices[resource] = FlavorAssignment(flavor, found.mode, found.borrow, -1)
        return GranularMode(mode, borrow), choices

    def _counted(self, flavor: str, resource: str) -> Cell | None:
        """Returns the cell of a (flavor, resource); None where no quota counts it."""
        named = FlavorResource(flavor, resource)
        return self.tree.cell(named) if not self.declared_only or self.tree.counts(self.node, named) else None

    def _mode_of(self, cell: Cell, amount: int, refusals: list[FlavorRefusal]) -> GranularMode:
        """Returns how an amount of a cell could be had; adds to `refusals` what is short."""
        amount -= self.own_usage.get(cell, 0)
        if self.guarantee_left is not None and amount > (left := self.guarantee_left(cell)):
            refusals.append(self._beyond_guarantee(cell, amount, left))
            return GranularMode(PreemptionMode.NO_FIT, 0)
        most = self.node.potential[cell]
        if amount > most:
            refusals.append(FlavorRefusal(Reason.EXCEEDS_MAX_QUOTA, "", cell, amount, most))
            return GranularMode(PreemptionMode.NO_FIT, 0)
        borrow, below_root = borrow_height(self.node, cell, amount)
        free = available(self.node, cell)
        if amount <= free:
            return GranularMode(PreemptionMode.FIT, borrow)
        refusals.append(FlavorRefusal(Reason.WAITING_FOR_QUOTA, "", cell, amount, free))
        owner = self.node.owner
        own = owner.subtree[cell] if owner is not self.node else self.node.nominal[cell]
        if amount <= own or below_root or self._may_preempt_while_borrowing():
            return self.oracle(cell, amount)
        return GranularMode(PreemptionMode.NO_FIT, 0)

    def _beyond_guarantee(self, cell: Cell, amount: int, left: int) -> FlavorRefusal:
        """Returns the refusal of a non-preemptible workload that would use more than is guaranteed."""
        flavor, resource = self.tree.cells[cell]
        asked, free = format_amount(resource, amount), format_amount(resource, max(0, left))
        words = (
            f"asks {asked} {resource} of {flavor}; it is non-preemptible and stays within the guarantee of "
            f"{self.node.owner.name}, of which such work has {free} left"
        )
        never = amount > self.node.owner.nominal[cell]
        return FlavorRefusal(Reason.EXCEEDS_MAX_QUOTA if never else Reason.WAITING_FOR_QUOTA, words)

    def _may_preempt_while_borrowing(self) -> bool:
        preemption = self.queue.preemption
        return (preemption.reclaim if self.fair else preemption.while_borrowing) is not CandidatePolicy.NEVER


def is_preferred(a: GranularMode, b: GranularMode, fungibility: QueueFungibility) -> bool:
    """Returns whether mode and borrowing `a` are preferred to `b` by the queue's fungibility."""
    if not a.mode or not b.mode:
        return bool(a.mode)
    if fungibility.prefer_preemption:
        return _viable_key(a) > _viable_key(b)
    return (a.mode, -a.borrow) > (b.mode, -b.borrow)


def _viable_key(found: GranularMode) -> tuple[bool, int, PreemptionMode]:
    return (found.mode > PreemptionMode.NO_CANDIDATES, -found.borrow, found.mode)


def may_stop_search(found: GranularMode, fungibility: QueueFungibility) -> bool:
    """Returns whether the search for a flavor ends with one that is had in this way."""
    if found.mode <= PreemptionMode.NO_CANDIDATES:
        return False
    if found.mode < PreemptionMode.FIT and fungibility.when_can_preempt is FungibilityPolicy.NEXT:
        return False
    return not (found.borrow > 0 and fungibility.when_can_borrow is FungibilityPolicy.NEXT)


def _summed(members: Sequence[PodSetFlavors]) -> dict[str, int]:
    """Returns resource -> amount for all pods of some sets."""
    total: dict[str, int] = {}
    for pods in members:
        for resource, amount in pods.amounts.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _counts(workload: Workload, counts: Sequence[int] | None) -> Sequence[int]:
    return counts if counts is not None else [pods.count for pods in workload.pod_sets]


def _together(pod_sets: Sequence[PodSet]) -> list[list[int]]:
    """Returns the positions of pod sets that must get the same flavors, group by group."""
    if len(pod_sets) == 1:
        return [[0]]
    groups: dict[str, list[int]] = {}
    for index, pods in enumerate(pod_sets):
        groups.setdefault(pods.group or _shared_claim(pods) or f"/{index}", []).append(index)
    return list(groups.values())


def _shared_claim(pods: PodSet) -> str:
    """Returns what names the claim that pods share, and with it a machine; empty where they share none."""
    return next((f"claim/{value}" for key, value in pods.labels if key == SHARED_CLAIM), "")


def _misplaced(pod_set: PodSet, levels: tuple[str, ...]) -> str:
    """Returns why a pod set cannot be placed by a flavor's topology `levels`; empty when it can."""
    wished = [pod_set.required_topology, pod_set.preferred_topology, *(layer.level for layer in pod_set.slices)]
    named = [level for level in wished if level]
    if not levels:
        return f"has no topology, which {pod_set.name} asks for" if named or pod_set.any_topology else ""
    if not named and not pod_set.any_topology:
        return f"only takes pods that ask for places on its topology, {pod_set.name} does not"
    missing = next((level for level in named if level not in levels), "")
    return f"its topology has no level {missing}" if missing else ""


def _selects(pod_set: PodSet, node_labels: Mapping[str, str]) -> bool:
    """Returns whether node selector and required affinity hold, as far as the flavor defines the labels."""
    if any(node_labels[key] != value for key, value in pod_set.node_selector.items() if key in node_labels):
        return False
    alternatives = pod_set.required_affinity
    if not alternatives:
        return True
    narrowed = [tuple(term for term in terms if term.key in node_labels) for terms in alternatives]
    return any(not terms or _holds(terms, node_labels) for terms in narrowed)


def _holds(terms: tuple[RequirementTerm, ...], node_labels: Mapping[str, str]) -> bool:
    return Requirements.from_terms(terms).matches(node_labels)
