"""Giving machines back: `python -m bench.capacity.repack [--per-pod USD_H...]`, a line of JSON for each scene.

A fleet is bought for a mix of pods in Karpenter's order (`mixes.py`), then two pods of five leave, unevenly:

- `departures`: every class loses a part of its pods that is drawn between nothing and four fifths; which ones is drawn;
- `half-empty`: every machine loses such a part of each of its classes, rounded down, so that hardly one is empty;
- `gangs`: departures, and half of what is left belongs to gangs over two to six machines, with work to lose.

Beside the plan stands what the greedy search in Karpenter's order does when moving counts for nothing, to its end.
Medians over the seeds; seconds are CPU time of the process.
"""

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from bench.capacity.mixes import mix
from fleet.optimize.consolidate import (
    ConsolidationProblem,
    ConsolidationRules,
    PodBlock,
    PodClass,
    ReplacementKind,
    StandingMachine,
    applied,
    solve,
)
from fleet.optimize.consolidate.consolidation_problem import PER_POD_USD_H
from fleet.optimize.consolidate.greedy import greedy_order
from fleet.optimize.consolidate.instance import consolidation_instances
from fleet.optimize.purchase import PurchaseProblem
from fleet.optimize.purchase.heuristics import provisioning_order
from fleet.optimize.purchase.purchasing import batches, packing_instances

SEEDS = tuple(range(10))
LARGE_SEEDS = SEEDS[:3]
_RATE = 0.8
"""The largest part that leaves; the mean is half of it."""
_FIXED_POINT = 50
"""Sweeps after which no greedy search goes on."""
_WORK_USD = 40.0
"""What a gang may lose at most."""


@dataclass(frozen=True, slots=True)
class RepackScene:
    """What is left of a fleet."""

    name: str
    pods: int
    seeds: Sequence[int]
    asked: Callable[[int, int], PurchaseProblem] = mix
    """What the fleet was bought for, by seed and number of pods."""


SCENES = (
    RepackScene("departures", 1_000, SEEDS),
    RepackScene("half-empty", 1_000, SEEDS),
    RepackScene("gangs", 1_000, SEEDS),
    RepackScene("departures", 10_000, LARGE_SEEDS),
    RepackScene("half-empty", 10_000, LARGE_SEEDS),
)


@dataclass(frozen=True, slots=True)
class _RepackOutcome:
    """One seed; parts of the bill and of the pods in percent."""

    machines: int
    pods: int
    saving_pct: float
    moved_pct: float
    gap_pct: float
    steps: int
    seconds: float
    greedy_saving_pct: float
    greedy_moved_pct: float
    greedy_seconds: float


def run() -> dict[str, float]:
    """The numbers that matter of every scene, at the default price of moving."""
    found: dict[str, float] = {}
    for scene in SCENES:
        line = measured(scene, PER_POD_USD_H)
        kept = ("saving_pct", "moved_pct", "gap_pct", "seconds", "greedy_saving_pct", "greedy_moved_pct")
        found |= {f"{scene.name}_{scene.pods}_{name}": line[name] for name in kept}
    return found


def measured(scene: RepackScene, per_pod_usd_h: float) -> dict[str, float]:
    """Medians over the seeds, and the longest."""
    outcomes = [_outcome(left(scene, seed, ConsolidationRules(per_pod_usd_h=per_pod_usd_h))) for seed in scene.seeds]
    medians = {name: statistics.median(getattr(it, name) for it in outcomes) for name in _RepackOutcome.__slots__}
    return {**medians, "slowest_s": max(it.seconds for it in outcomes)}


def _outcome(problem: ConsolidationProblem) -> _RepackOutcome:
    bill = sum(it.price_usd_h for it in problem.standing)
    pods = sum(it.pods for it in problem.blocks)
    began_s = time.process_time()
    answer = solve(problem)
    seconds = time.process_time() - began_s
    if solve(applied(problem, answer.steps)).steps:
        raise RuntimeError("a plan was followed by another one")
    began_s = time.process_time()
    greedy = [(it, greedy_order(it, _FIXED_POINT, counts_moves=False)) for it in consolidation_instances(problem)]
    greedy_seconds = time.process_time() - began_s
    moved = sum(
        int(it.independent[plan.removed].sum())
        + sum(
            int(gang.options[0].sum())
            for gang, option in zip(it.gangs, plan.options.tolist(), strict=True)
            if option >= 0
        )
        for it, plan in greedy
    )
    return _RepackOutcome(
        machines=len(problem.standing),
        pods=pods,
        saving_pct=100 * answer.saving_usd_h / bill,
        moved_pct=100 * answer.moved / pods,
        gap_pct=100 * answer.gap_usd_h / bill,
        steps=len(answer.steps),
        seconds=seconds,
        greedy_saving_pct=100 * sum(plan.saving_usd_h(it) for it, plan in greedy) / bill,
        greedy_moved_pct=100 * moved / pods,
        greedy_seconds=greedy_seconds,
    )


# -- scenes -----------------------------------------------------------------------------------------------------------


def left(scene: RepackScene, seed: int, rules: ConsolidationRules) -> ConsolidationProblem:
    """What is left of the fleet of one seed."""
    asked = scene.asked(seed, scene.pods)
    draw = random.Random(f"departures/{seed}/{scene.pods}")
    rates = {it.name: draw.uniform(0.0, _RATE) for it in asked.classes}
    requests = {it.name: it.requests for it in asked.classes}
    kinds = {it.name: it for it in asked.kinds}
    standing: list[StandingMachine] = []
    blocks: list[PodBlock] = []
    for kind, held in _machines(asked):
        name = f"machine-{len(standing):04}"
        free = dict(kinds[kind].capacity)
        rate = draw.uniform(0.0, _RATE)
        for pod_class, count in sorted(held.items()):
            if scene.name == "half-empty":
                stays = count - int(rate * count)
            else:
                stays = sum(draw.random() >= rates[pod_class] for _ in range(count))
            for resource, amount in requests[pod_class].items():
                free[resource] = free.get(resource, 0) - amount * stays
            if stays:
                blocks.append(PodBlock(f"{name}/{pod_class}", {name: {pod_class: stays}}, whole=False))
        standing.append(StandingMachine(name, kind, kinds[kind].price_usd_h, free))
    problem = ConsolidationProblem(
        asked.resources,
        tuple(PodClass(it.name, it.requests, it.kinds) for it in asked.classes),
        tuple(standing),
        tuple(blocks),
        tuple(ReplacementKind(it.name, it.price_usd_h, it.capacity) for it in asked.kinds),
        rules=rules,
    )
    return replace(problem, blocks=tuple(_ganged(problem, draw))) if scene.name == "gangs" else problem


def _machines(asked: PurchaseProblem) -> list[tuple[str, dict[str, int]]]:
    """(kind, class -> pods) of every machine that Karpenter's order buys."""
    parts, _ = packing_instances(asked, {})
    bought = [batch for part in parts for batch in batches(part, provisioning_order(part))]
    return [(batch.kind, dict(batch.pods)) for batch in bought for _ in range(batch.machines)]


def _ganged(problem: ConsolidationProblem, draw: random.Random) -> Iterator[PodBlock]:
    """The same pods, of which neighbours of one class belong together."""
    places: dict[str, list[tuple[str, int]]] = {}
    for block in problem.blocks:
        for machine, held in block.places.items():
            for pod_class, pods in held.items():
                places.setdefault(pod_class, []).append((machine, pods))
    for pod_class, own in sorted(places.items()):
        begin = 0
        while begin < len(own):
            size = draw.randint(2, 6) if draw.random() < 0.5 else 1
            taken = own[begin : begin + size]
            begin += size
            whole = len(taken) > 1
            name = f"{taken[0][0]}/{pod_class}"
            lost_usd = draw.uniform(0.0, _WORK_USD) if whole else None
            yield PodBlock(name, {machine: {pod_class: pods} for machine, pods in taken}, lost_usd, whole)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.repack", description=__doc__)
    parser.add_argument(
        "--per-pod", nargs="*", type=float, default=[PER_POD_USD_H], metavar="USD_H", help="prices of moving a pod"
    )
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "highspy": version("highspy"),
        "muster": version("muster"),
        "load_5_min": round(os.getloadavg()[1], 2),
    }
    for price in parser.parse_args().per_pod:
        for scene in SCENES:
            numbers = {name: round(value, 2) for name, value in measured(scene, price).items()}
            line = {"scene": scene.name, "bought_for": scene.pods, "seeds": len(scene.seeds), "per_pod_usd_h": price}
            print(json.dumps({**line, **numbers, "machine": machine}), flush=True)


if __name__ == "__main__":
    main()
