"""Who goes where: the pods of machines that go, and of gangs that move, are dealt to the places of a plan.

Equal pods may be dealt in many ways. Here each machine that is bought is filled from as few others as possible, so that
the plan falls into many small steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.optimize.consolidate.ground import Ground, Plan
from fleet.optimize.purchase.part import Ints


@dataclass(frozen=True, slots=True)
class Flow:
    """Pods of one row on their way. Targets from M on are machines that are bought."""

    machine: int
    gang: int
    """Of the ground's gangs; -1 for pods that each move by themselves."""
    target: int
    row: int
    pods: int


def dealt(ground: Ground, plan: Plan) -> list[Flow]:
    """Every pod that moves, once."""
    sources, rest = _sources(ground, plan)
    flows: list[Flow] = []
    for number in np.argsort(-plan.pods.sum(axis=1), kind="stable").tolist():
        wanted = plan.pods[number].copy()
        while wanted.any():
            taken = np.minimum(rest, wanted)
            at = int(taken.sum(axis=1).argmax())
            target = len(ground.price) + number
            flows += [
                Flow(*sources[at], target, row, int(taken[at, row])) for row in np.flatnonzero(taken[at]).tolist()
            ]
            wanted -= taken[at]
            rest[at] -= taken[at]
    for machine, row in np.argwhere(plan.received).tolist():
        for at, pods in _poured(rest[:, row], int(plan.received[machine, row])):
            flows.append(Flow(*sources[at], machine, row, pods))
    return flows


def _poured(rest: Ints, wanted: int) -> Iterator[tuple[int, int]]:
    """From the first that have some, which are then taken off."""
    for at in np.flatnonzero(rest).tolist():
        pods = min(wanted, int(rest[at]))
        if not pods:
            return
        rest[at] -= pods
        wanted -= pods
        yield at, pods


def _sources(ground: Ground, plan: Plan) -> tuple[list[tuple[int, int]], Ints]:
    """(machine, gang or -1) and the pods of each [S, C]."""
    sources: list[tuple[int, int]] = []
    pods: list[Ints] = []
    for machine in np.flatnonzero(plan.removed & ground.loose.any(axis=1)).tolist():
        sources.append((machine, -1))
        pods.append(ground.loose[machine])
    for number, (gang, way) in enumerate(zip(ground.gangs, plan.ways.tolist(), strict=True)):
        if way >= 0:
            sources += [(machine, number) for machine in gang.machines.tolist()]
            pods += list(gang.ways[way])
    return sources, np.array(pods, dtype=np.int64).reshape(len(pods), len(ground.requests))
