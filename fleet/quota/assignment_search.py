"""Searches what one workload could have now: flavors, a place, and victims if that is what it takes.

Kueue's getAssignments (`pkg/scheduler/scheduler.go`; reference 2.3-2.5). The flavor assigner says which flavors have
quota, the placement backend whether the pods have a place, and preemption whom to evict where either is missing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TypeVar

from fleet.quota.fair_preemption import fair_preemptions
from fleet.quota.flavor_assigner import FlavorAssigner, PreemptionOracle
from fleet.quota.ledger import NO_PLACEMENT, AdmittedWorkload, PlacementRefusal, QuotaLedger, SecondPassWorkload
from fleet.quota.preemption import Mover, PreemptionContext, Victim, classical_preemptions, satisfies_policy
from fleet.quota.specs import AdmissionRules, CandidatePolicy, QuotaFlavorSpec, QuotaQueueSpec
from fleet.quota.tree import Cell, QuotaNode, borrow_height, fits
from fleet.quota.workload import (
    FlavorAssignment,
    FlavorRefusal,
    GranularMode,
    PodSetAssignment,
    PodSetFlavors,
    PreemptionMode,
    Workload,
    WorkloadAssignment,
)
from fleet.reasons import Reason
from fleet.snapshot.sub_groups import SubGroup, chosen, first_choice

MOST_OPTIONS = 64
"""Most assignments tried for one workload: a bound in steps, so that the same input gives the same answer."""

Found = tuple[WorkloadAssignment, list[Victim]]

Answer = TypeVar("Answer")


@dataclass(slots=True)
class AssignmentSearch:
    """An `AssignmentSearch` looks for flavors, a place and victims for one workload; the ledger ends as it began."""

    ledger: QuotaLedger
    rules: AdmissionRules
    queue: QuotaQueueSpec
    node: QuotaNode
    flavors: Mapping[str, QuotaFlavorSpec]
    local_usage: Mapping[str, float] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, str]] | None = None
    """Pod set -> resource -> the one flavor to look at; None = all."""
    mover: Mover | None = None
    """Finds who could stand elsewhere, where a workload has quota and no place; None = nobody is moved."""
    places_later: bool = False
    """Whether what fits now needs no place yet: it gets one when its turn comes, as others take theirs before."""
    _answers: dict[tuple[Cell, int], list[Victim]] = field(default_factory=dict)
    """Victims that the oracle found for an amount of one cell, as the ledger stands."""

    def best(self, workload: Workload, resume: Sequence[Mapping[str, int]] | None = None) -> Found:
        """Returns the best assignment with its victims; for fewer pods, where only that is possible."""
        if workload.choice is not None:
            return self._best_choice(workload, workload.choice)
        self._answers.clear()
        assigner = self._assigner(workload)
        options = list(self._options(workload, assigner, resume))
        if options[-1].mode is PreemptionMode.FIT:
            cheaper = self._moves_instead(workload, options[-1])
            return self._placed_without(cheaper, workload, options[-1]), cheaper
        for option in options:
            if option.mode.preempting and (victims := self._moves(workload, option) or self.victims(workload, option)):
                return self._placed_without(victims, workload, option), victims
        full = next((it for it in options if _is_telling(it)), options[0])
        if self.rules.partial_admission and any(pods.min_count is not None for pods in workload.pod_sets):
            found = self._partial(workload, self._assigner(workload))
            if found is not None:
                return self._placed_without(found[1], workload, found[0]), found[1]
        return full, []

    def fits_now(self, workload: Workload, resume: Sequence[Mapping[str, int]] | None = None) -> bool:
        """Returns whether `best` may find an assignment that needs nobody to leave; False is certain, and cheap."""
        if workload.choice is not None or any(pods.min_count is not None for pods in workload.pod_sets):
            return True
        assigner = self._assigner(workload)
        assigner.oracle = _nobody_leaves
        return [*self._options(workload, assigner, resume)][-1].mode is PreemptionMode.FIT

    def _best_choice(self, workload: Workload, choice: SubGroup) -> Found:
        """Returns the assignment of the first pods in order that can start, else of those that can by evictions.

        No more than `MOST_OPTIONS` numbers of pods are tried either way.
        """
        first = self.best(workload.sized(first_choice(choice)))
        if first[0].mode is PreemptionMode.FIT:
            return first
        found = self._first_possible(workload, choice, evicts=False)
        if found is None and not first[1]:
            found = self._first_possible(workload, choice, evicts=True)
        return found or first

    def _first_possible(self, workload: Workload, choice: SubGroup, *, evicts: bool) -> Found | None:
        kept: dict[frozenset[tuple[str, int]], Found] = {}

        def possible(counts: Mapping[str, int]) -> bool:
            if len(kept) >= MOST_OPTIONS:
                return False
            found = self.best(workload.sized(counts))
            kept[frozenset(counts.items())] = found
            return found[0].mode is PreemptionMode.FIT or (evicts and bool(found[1]))

        counts = chosen(choice, possible)
        return None if counts is None else kept.get(frozenset(counts.items()))

    def _moves(self, workload: Workload, option: WorkloadAssignment) -> list[Victim]:
        """Returns whom to move; nobody where it is quota that is short, or the assignment has a place."""
        placeless = any(pods.at_best is PreemptionMode.PREEMPT for pods in option.pod_sets)
        if self.mover is None or not self.queue.preemption.moves or not placeless:
            return []
        if self.ledger.leaving_gone or not fits(self.node, option.usage):
            return []
        return self.mover.room(workload, option.given)

    def _moves_instead(self, workload: Workload, option: WorkloadAssignment) -> list[Victim]:
        """Returns whom to move because that costs less than what would be bought; nobody while others leave already."""
        if self.mover is None or not self.queue.preemption.moves or self.ledger.leaving:
            return []
        return self.mover.instead_of_buying(workload, option.given)

    def find_place(self, second_pass: SecondPassWorkload) -> Found:
        """Returns a place for a workload that holds quota, with victims if need be, but none where it lost a node."""
        workload = second_pass.holder.workload
        found = self._placed(workload, _held(workload, second_pass.holder.given), may_evict=not second_pass.lost)
        victims = self.victims(workload, found) if found.mode.preempting else []
        return self._placed_without(victims, workload, found), victims

    def _options(
        self, workload: Workload, assigner: FlavorAssigner, resume: Sequence[Mapping[str, int]] | None
    ) -> Iterator[WorkloadAssignment]:
        """Yields the best assignment; where its quota fits and it finds no machine, the next best, and so on."""
        for _ in range(MOST_OPTIONS):
            found = assigner.assign(workload, None, resume)
            fitting = found.mode is PreemptionMode.FIT
            yield self._instead(workload, partial(self._placed, workload, found))
            if not self.rules.every_flavor or not fitting or found.mode is PreemptionMode.FIT:
                return
            for pods in found.pod_sets:
                if pods.mode is not PreemptionMode.FIT:
                    assigner.passed_over |= {(pods.pod_set.name, flavor) for flavor in pods.flavors}

    def _partial(self, workload: Workload, assigner: FlavorAssigner) -> Found | None:
        """Returns the assignment for the most pods that can be had, within minimum counts; None if there is none."""
        kept: dict[tuple[int, ...], Found] = {}

        def possible(counts: tuple[int, ...]) -> bool:
            assigned = assigner.assign(workload, counts)
            assignment = self._instead(workload, partial(self._placed, workload, assigned))
            victims = self.victims(workload, assignment) if assignment.mode.preempting else []
            kept[counts] = (assignment, victims)
            return assignment.mode is PreemptionMode.FIT or bool(victims)

        counts = most_possible([(pods.count, pods.min_count) for pods in workload.pod_sets], possible)
        return kept[counts] if counts is not None else None

    def _assigner(self, workload: Workload) -> FlavorAssigner:
        replaced = self._replaced(workload)
        only = self.only
        if only is None and replaced is not None:  # pods that run already do not change their nodes
            only = {given.name: given.flavors for given in replaced.given}
        return FlavorAssigner(
            self.ledger.tree,
            self.queue,
            self.node,
            self.flavors,
            self._oracle(workload),
            fair=bool(self.rules.fair),
            pairwise=self.rules.upstream_defects,
            declared_only=self.rules.count_declared_only or self.queue.declared_only,
            own_usage=replaced.usage if replaced else {},
            only=only,
            guarantee_left=partial(self.ledger.guarantee_left, self.node) if workload.non_preemptible else None,
        )

    def _replaced(self, workload: Workload) -> AdmittedWorkload | None:
        """Returns the holder that a workload replaces, while that one is in the ledger."""
        found = self.ledger.holders.get(workload.replaces)
        return None if found is None or found.out else found

    def _instead(self, workload: Workload, ask: Callable[[], Answer]) -> Answer:
        """Returns the answer of `ask` as if the workload that this one replaces were gone: it leaves on admission."""
        replaced = self._replaced(workload)
        if replaced is None:
            return ask()
        self.ledger.lift(replaced)
        answer = ask()
        self.ledger.put_back(replaced)
        return answer

    def _placed_without(
        self, victims: Sequence[Victim], workload: Workload, assignment: WorkloadAssignment
    ) -> WorkloadAssignment:
        """Returns the assignment with the place it would have once the victims are gone."""
        if not victims or self.ledger.placement is NO_PLACEMENT:
            return assignment
        for victim in victims:
            self.ledger.lift(victim.holder)
        place = self._instead(workload, partial(self.ledger.placement.find, workload, assignment.given))
        for victim in reversed(victims):
            self.ledger.put_back(victim.holder)
        assignment.place = None if isinstance(place, PlacementRefusal) else place
        return assignment

    def _placed(
        self, workload: Workload, assignment: WorkloadAssignment, *, may_evict: bool = True
    ) -> WorkloadAssignment:
        """Returns the assignment with its place; the pod sets without one need preemption, or fit nowhere at all."""
        if self.ledger.placement is NO_PLACEMENT:
            return assignment
        if assignment.mode is PreemptionMode.FIT:
            if self.places_later and self.ledger.placement.fits(workload, assignment.given):
                return assignment
            place = self.ledger.placement.find(workload, assignment.given)
            if not isinstance(place, PlacementRefusal):
                assignment.place = place
                return assignment
            _refuse(assignment, place, PreemptionMode.PREEMPT if may_evict else PreemptionMode.NO_FIT)
        if assignment.mode.preempting:
            place = self.ledger.placement.find(workload, assignment.given, empty=True)
            if isinstance(place, PlacementRefusal):
                _refuse(assignment, place, PreemptionMode.NO_FIT)
            else:
                assignment.place = place
        return assignment

    def victims(self, workload: Workload, assignment: WorkloadAssignment) -> list[Victim]:
        """Returns whom to evict for the assignment; empty when nobody may be evicted, or all would not do."""
        return self._instead(workload, partial(self._victims, workload, assignment)) if workload.preempts else []

    def _victims(self, workload: Workload, assignment: WorkloadAssignment) -> list[Victim]:
        if self.ledger.placement is NO_PLACEMENT and len(assignment.usage) == 1 and self._replaced(workload) is None:
            [asked] = assignment.usage.items()
            if asked in self._answers:  # the oracle has answered this, and there is no place to find
                return self._answers[asked]
        finds_place = partial(self.ledger.placement.fits, workload, assignment.given)
        contested = assignment.contested(self.ledger.tree)
        for cells in dict.fromkeys((contested, frozenset(assignment.usage))):
            context = self._context(workload, assignment.usage, cells)
            context.finds_place = finds_place
            if victims := self._search(context):
                return victims
            if self.ledger.placement is NO_PLACEMENT:
                return []  # others could only help with a place
        return self._who_stands_there(workload, assignment.usage, finds_place)

    def _who_stands_there(
        self, workload: Workload, usage: Mapping[Cell, int], finds_place: Callable[[], bool]
    ) -> list[Victim]:
        """Returns holders of the own queue to evict that take room and nothing that quota counts, and others beside."""
        if not self._others_stand_there(workload, usage):
            return []
        context = self._context(workload, usage, frozenset())
        context.finds_place, context.whoever = finds_place, True
        return self._search(context)

    def _others_stand_there(self, workload: Workload, usage: Mapping[Cell, int]) -> bool:
        """Returns whether its own queue may have somebody evicted who uses none of these cells, but takes room."""
        policy = self.queue.preemption.within_queue
        if policy is CandidatePolicy.NEVER:
            return False
        if policy is CandidatePolicy.LOWER and self.ledger.lowest_priority(self.node.name) >= workload.priority:
            return False
        below: Iterable[AdmittedWorkload] = self.ledger.staying(self.node.name)
        if policy is not CandidatePolicy.ANY:  # the lowest priority comes first
            below = takewhile(lambda it: it.workload.priority <= workload.priority, below)
        return any(not it.uses_any(usage) and satisfies_policy(policy, workload, it.workload) for it in below)

    def _context(self, workload: Workload, usage: Mapping[Cell, int], cells: frozenset[Cell]) -> PreemptionContext:
        return PreemptionContext(
            self.ledger, workload, self.queue, self.node, usage, cells, local_usage=self.local_usage
        )

    def _search(self, context: PreemptionContext) -> list[Victim]:
        if self.rules.fair:
            return fair_preemptions(
                context,
                self.rules.fair,
                upstream=self.rules.upstream_defects,
                elsewhere=self.rules.victims_elsewhere,
            )
        return classical_preemptions(context, elsewhere=self.rules.victims_elsewhere)

    def _oracle(self, workload: Workload) -> PreemptionOracle:
        def ask(cell: Cell, amount: int) -> GranularMode:
            """Returns how evictions alone would provide the amount, and how high it borrows once they are done."""
            victims: list[Victim] = []
            if workload.preempts:
                victims = self._search(self._context(workload, {cell: amount}, frozenset((cell,))))
                self._answers[cell, amount] = victims
            if not victims:
                return GranularMode(PreemptionMode.NO_CANDIDATES, borrow_height(self.node, cell, amount)[0])
            for victim in victims:
                self.ledger.lift(victim.holder)
            borrow, _ = borrow_height(self.node, cell, amount)
            for victim in reversed(victims):
                self.ledger.put_back(victim.holder)
            own = any(victim.holder.queue is self.node for victim in victims)
            return GranularMode(PreemptionMode.PREEMPT if own else PreemptionMode.RECLAIM, borrow)

        return ask


def _nobody_leaves(_cell: Cell, _amount: int) -> GranularMode:
    return GranularMode(PreemptionMode.NO_CANDIDATES, 0)


def _is_telling(assignment: WorkloadAssignment) -> bool:
    """Returns whether something stands against it but that its flavors are not for such pods at all."""
    refusals = [refused for pods in assignment.pod_sets for refused in pods.refusals]
    return any(refused.reason is not Reason.NO_MATCHING_FLAVOR for refused in refusals)


def _held(workload: Workload, given: Sequence[PodSetAssignment]) -> WorkloadAssignment:
    """Returns the assignment of what a workload holds already, which asks for no more quota."""
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    held = [
        PodSetFlavors(
            pod_sets[one.name],
            one.count,
            dict(one.amounts),
            {resource: FlavorAssignment(flavor, PreemptionMode.FIT, 0, -1) for resource, flavor in one.flavors.items()},
        )
        for one in given
    ]
    return WorkloadAssignment(held, {})


def _refuse(assignment: WorkloadAssignment, found: PlacementRefusal, mode: PreemptionMode) -> None:
    """Records a placement refusal on the pod sets that have no place: their mode becomes `mode` at best."""
    for pods in assignment.pod_sets:
        if pods.pod_set.name in found.pod_sets:
            refusal = found.refusal
            pods.refusals.append(FlavorRefusal(refusal.reason, refusal.message, retry_at_s=refusal.retry_at_s))
            pods.no_place = mode is PreemptionMode.NO_FIT
            pods.at_best = min(pods.at_best, mode)
            for choice in (pods.choices or {}).values():
                choice.mode = min(choice.mode, mode)


def most_possible(
    wanted: Sequence[tuple[int, int | None]], possible: Callable[[tuple[int, ...]], bool]
) -> tuple[int, ...] | None:
    """Returns the largest pod counts that are possible, by binary search (partial admission; reference 2.5).

    `wanted`: (count, least count or None = all) of each pod set. All sets are reduced in proportion to what they can
    spare.
    """
    spare = [count - (count if least is None else least) for count, least in wanted]
    total = sum(spare)
    if not total:
        return None

    def counts(given_up: int) -> tuple[int, ...]:
        return tuple(count - part * given_up // total for (count, _), part in zip(wanted, spare, strict=True))

    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        if possible(counts(middle)):
            high = middle
        else:
            low = middle + 1
    return counts(low) if low <= total else None
