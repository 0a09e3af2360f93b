"""Splits a change into independent steps; those that do not pay, or break a rule, are left out.

A step is tied together by a gang that moves, a machine that is bought, and room that only a gang leaves behind. A
machine that stays ties nothing: what it gives to several was free before.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.optimize.consolidate.consolidation_problem import (
    EPSILON_USD_H,
    ConsolidationProblem,
    ConsolidationStep,
    PodBlock,
    PodMove,
    ReplacementKind,
    ReplacementMachine,
    StandingMachine,
)
from fleet.optimize.consolidate.moves import ConsolidationChange
from fleet.optimize.inputs import PodClass
from fleet.optimize.packing import Floats
from fleet.optimize.presolve import amounts

_Node = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PayingSteps:
    """`PayingSteps` are the steps of a change that pay and keep the rules, best first, and why others are left out."""

    steps: tuple[ConsolidationStep, ...]
    too_dear: bool = False
    """Whether some step may cost more at worst than what it removes."""
    too_few_types: frozenset[str] = frozenset()
    """Spot machines left in place because their replacement could be launched as too few instance types."""

    @property
    def objective_usd_h(self) -> float:
        """Returns the saving less the disruption of all steps."""
        return sum(step.objective_usd_h for step in self.steps)


class ChangeSplitter:
    """A `ChangeSplitter` splits changes of one problem into steps, and judges each."""

    def __init__(self, problem: ConsolidationProblem) -> None:
        self._problem, self._catalog = problem, ReplacementCatalog.of(problem)
        self._standing: Mapping[str, StandingMachine] = {it.name: it for it in problem.standing}
        self._blocks: Mapping[str, PodBlock] = {it.name: it for it in problem.blocks}
        self._classes: Mapping[str, PodClass] = {it.name: it for it in problem.classes}

    def paying(self, change: ConsolidationChange) -> PayingSteps:
        """Returns the steps of a change that save more than they disrupt, and keep the rules."""
        steps: list[ConsolidationStep] = []
        too_few_types: set[str] = set()
        too_dear = False
        for removed, bought, moves in self._split(change):
            saving, moving = self._saving_usd_h(removed, bought), self._moving_usd_h(moves)
            if saving - moving <= EPSILON_USD_H:
                continue
            worst = sum(self._catalog[kind].dearest_usd_h for kind in bought.values())
            if bought and worst >= self._price_usd_h(removed) - EPSILON_USD_H:
                too_dear = True
                continue
            machines = self._replacements(removed, bought, moves)
            if machines is None:
                too_few_types |= set(removed)
                continue
            steps.append(ConsolidationStep(tuple(sorted(removed)), machines, tuple(sorted(moves)), saving, moving))
        steps.sort(key=lambda it: (-it.objective_usd_h, it.removed))
        return PayingSteps(tuple(steps), too_dear, frozenset(too_few_types))

    def _price_usd_h(self, removed: Iterable[str]) -> float:
        """Returns what these standing machines cost in USD an hour."""
        return sum(self._standing[name].price_usd_h for name in sorted(removed))

    def _saving_usd_h(self, removed: Iterable[str], bought: Mapping[str, str]) -> float:
        """Returns what removed machines cost more than bought ones."""
        return self._price_usd_h(removed) - sum(self._catalog[kind].price_usd_h for _, kind in sorted(bought.items()))

    def _moving_usd_h(self, moves: Iterable[PodMove]) -> float:
        """Returns what the moves cost; a gang counts as a whole."""
        moved = Counter[str]()
        for move in moves:
            moved[move.block] += move.pods
        found = 0.0
        for name, pods in sorted(moved.items()):
            block = self._blocks[name]
            found += self._problem.disruption_usd_h(block, block.pods if block.in_gangs else pods)
        return found

    # -- what belongs together ------------------------------------------------------------------------------------

    def _split(self, change: ConsolidationChange) -> Iterable[tuple[list[str], dict[str, str], list[PodMove]]]:
        """Returns (removed, bought, moves) of each step: what has to happen together."""
        ties = _DisjointSets()
        for name in sorted(change.removed):
            ties.head(("machine", name))
        for move in change.moves:
            node = self._node(move)
            if move.target in change.bought:
                ties.join((node, ("bought", move.target)))
            if move.origin in change.removed:
                ties.join((node, ("machine", move.origin)))
        for nodes in self._waiting_for_room(change):
            ties.join(nodes)
        found: dict[_Node, tuple[list[str], dict[str, str], list[PodMove]]] = {}
        for name in sorted(change.removed):
            found.setdefault(ties.head(("machine", name)), ([], {}, []))[0].append(name)
        for name, kind in sorted(change.bought.items()):
            found.setdefault(ties.head(("bought", name)), ([], {}, []))[1][name] = kind
        for move in change.moves:
            found.setdefault(ties.head(self._node(move)), ([], {}, []))[2].append(move)
        return found.values()

    def _node(self, move: PodMove) -> _Node:
        """Returns what a move is tied to: its gang, or else the machine it leaves."""
        return ("gang", move.block) if self._blocks[move.block].in_gangs else ("machine", move.origin)

    def _waiting_for_room(self, change: ConsolidationChange) -> Iterable[list[_Node]]:
        """Returns moves that need each other: those to machines where only leaving gangs make room, and these gangs."""
        coming: dict[str, Counter[str]] = {}
        for move in change.moves:
            if move.target in self._standing:
                for resource, amount in self._classes[move.pod_class].requests.items():
                    coming.setdefault(move.target, Counter())[resource] += amount * move.pods
        over = {
            name
            for name, used in coming.items()
            if any(amount > self._standing[name].free.get(resource, 0) for resource, amount in used.items())
        }
        together: dict[str, list[_Node]] = {}
        for move in change.moves:
            for name in {move.origin, move.target} & over:
                together.setdefault(name, []).append(self._node(move))
        return together.values()

    # -- rules ----------------------------------------------------------------------------------------------------

    def _replacements(
        self, removed: list[str], bought: Mapping[str, str], moves: list[PodMove]
    ) -> tuple[ReplacementMachine, ...] | None:
        """Returns the machines that a step buys, with all kinds they could be launched as.

        None when these are too few for one spot machine that replaces another.
        """
        goes = self._price_usd_h(removed)
        worst = sum(self._catalog[kind].dearest_usd_h for kind in bought.values())
        found: list[ReplacementMachine] = []
        swap = len(removed) == len(bought) == 1 and self._standing[removed[0]].spot
        for name, kind in bought.items():
            pods = Counter[str]()
            for move in moves:
                if move.target == name:
                    pods[move.pod_class] += move.pods
            keeps_domain = any(move.target == name and self._blocks[move.block].keeps_domain for move in moves)
            below = goes - (worst - self._catalog[kind].dearest_usd_h)
            others = self._catalog.instead(kind, pods, below_usd_h=below, same_domain=keeps_domain)
            if swap and self._catalog[kind].spot:
                if self._catalog.types(others) < self._problem.rules.spot_types:
                    return None
                others = self._catalog.of_first_types(others, self._problem.rules.spot_types, kind)
            found.append(ReplacementMachine(name, kind, dict(sorted(pods.items())), others))
        return tuple(found)


class _DisjointSets:
    """`_DisjointSets` is a union-find structure over nodes."""

    def __init__(self) -> None:
        self._above: dict[_Node, _Node] = {}

    def head(self, node: _Node) -> _Node:
        """Returns the node that represents the set of `node`."""
        path = [node]
        while (above := self._above.setdefault(path[-1], path[-1])) != path[-1]:
            path.append(above)
        for passed in path:
            self._above[passed] = path[-1]
        return path[-1]

    def join(self, nodes: Iterable[_Node]) -> None:
        """Unites the sets of all `nodes`."""
        heads = sorted({self.head(node) for node in nodes})
        for head in heads[1:]:
            self._above[head] = heads[0]


@dataclass(frozen=True, eq=False)
class ReplacementCatalog:
    """A `ReplacementCatalog` holds all kinds for sale, by their highest price, then name."""

    kinds: Sequence[ReplacementKind]
    capacity: Floats
    """[K, R]"""
    place: Mapping[str, int]
    """Kind -> its position in `kinds`."""
    classes: Mapping[str, PodClass]
    resources: Sequence[str]

    @classmethod
    def of(cls, problem: ConsolidationProblem) -> "ReplacementCatalog":
        """Returns the kinds of a problem."""
        kinds = sorted(problem.kinds, key=lambda it: (it.dearest_usd_h, it.price_usd_h, it.name))
        capacity = amounts((kind.capacity for kind in kinds), problem.resources)
        place = {kind.name: number for number, kind in enumerate(kinds)}
        return cls(kinds, capacity, place, {it.name: it for it in problem.classes}, problem.resources)

    def __getitem__(self, kind: str) -> ReplacementKind:
        return self.kinds[self.place[kind]]

    def instead(self, kind: str, pods: Mapping[str, int], *, below_usd_h: float, same_domain: bool) -> tuple[str, ...]:
        """Returns kinds of the same capacity type that hold the pods and cost less than a price at worst.

        Cheapest first. Kinds with a bound are left out, for others may take them.
        """
        own = self[kind]
        needs = np.zeros(len(self.resources))
        for name, count in pods.items():
            requests = self.classes[name].requests
            needs += count * np.array([requests.get(resource, 0) for resource in self.resources], dtype=np.float64)
        allowed = (
            frozenset.intersection(*(self.classes[name].kinds for name in pods)) if pods else frozenset(self.place)
        )
        return tuple(
            it.name
            for it in (self.kinds[at] for at in np.flatnonzero((needs <= self.capacity).all(axis=1)).tolist())
            if it.name in allowed
            and it.spot == own.spot
            and (it.most is None or it is own)
            and it.dearest_usd_h < below_usd_h
            and (not same_domain or it.domain == own.domain)
        )

    def types(self, kinds: Sequence[str]) -> int:
        """Returns how many instance types these kinds are."""
        return len({self._type(kind) for kind in kinds})

    def of_first_types(self, kinds: Sequence[str], most: int, own: str) -> tuple[str, ...]:
        """Returns those of `kinds` of the first `most` types and of the type of `own`.

        The list is cut as Karpenter does, so that a spot machine is not replaced by a cheaper one for ever.
        """
        first = [self._type(own), *list(dict.fromkeys(self._type(kind) for kind in kinds))[:most]]
        return tuple(kind for kind in kinds if self._type(kind) in first)

    def _type(self, kind: str) -> str:
        return self[kind].type or kind
