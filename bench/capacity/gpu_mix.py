"""Pods of a GPU fleet on some 700 machine types of us-east-1, in three pools: CPU, whole GPUs, GPUs cut by MIG.

The mix: 30 % CPU, 40 % one GPU, 8, 6 and 4 % two, four and eight, 12 % slices of 1g, 2g and 3g. Prices on demand.
"""

import random
import statistics
import time

from bench.reference.karpenter.buy import (
    MachineType,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    WaitingPod,
    solve,
)
from fleet.snapshot import InstanceType
from model import labels
from model.kinds import Taint, Toleration
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.requirements import Requirements
from providers.aws.catalog import package_catalog
from providers.kube.memory import settle_heap

GIB = 2**30
SEEDS = tuple(range(20))
COUNTS = (1_000, 10_000)
CUTS = {"seven": {"1g.10gb": 7}, "three": {"2g.20gb": 3}, "two": {"3g.40gb": 2}, "mixed": {"1g.10gb": 2, "2g.20gb": 1}}
"""Slices of one GPU by layout."""
CUT_MODELS = frozenset({"a100", "h100"})
TAINT = Taint(key=GPU_RESOURCE, effect="NoSchedule")
TOLERATION = Toleration(key=GPU_RESOURCE, operator="Exists")
KINDS = (("cpu", 30), ("1", 40), ("2", 8), ("4", 6), ("8", 4), ("1g.10gb", 4), ("2g.20gb", 4), ("3g.40gb", 4))


def run() -> dict[str, float]:
    """Milliseconds of process time for the greedy order over all seeds: median and most; what it buys, in USD/h."""
    pools = templates()
    settle_heap()  # as the agent does once it has read its cluster
    found: dict[str, float] = {"types": sum(len(pool.machines) for pool in pools)}
    for count in COUNTS:
        taken_ms, costs = [], []
        for seed in SEEDS:
            mix = pods(count, seed)
            began_s = time.process_time()
            outcome = solve(mix, pools)
            taken_ms.append(1000 * (time.process_time() - began_s))
            costs.append(outcome.cost_usd_h)
            if outcome.unplaced:
                raise RuntimeError(f"seed {seed}: {outcome.unplaced[0].message}")
        found |= {
            f"greedy_{count}_ms": statistics.median(taken_ms),
            f"greedy_{count}_most_ms": max(taken_ms),
            f"greedy_{count}_usd_h": statistics.fmean(costs),
        }
    return found


def templates() -> list[PoolTemplate]:
    """The three pools."""
    catalog = package_catalog("us-east-1").catalog
    prices = {o.instance_type.name: o.price_usd_h for o in catalog.offers if o.capacity_type == "on-demand"}
    types = [found for name, found in sorted(catalog.types.items()) if name in prices and _usual(found)]
    gpus = [found for found in types if found.allocatable.get(GPU_RESOURCE)]
    plain = [found for found in types if found.labels[labels.INSTANCE_CATEGORY] in {"c", "m", "r"}]
    cut = [
        _machine(found, prices[found.name], f"/{layout}", _slices(found, layout))
        for found in gpus
        if found.gpu_name in CUT_MODELS
        for layout in CUTS
    ]
    return [
        PoolTemplate("cpu", tuple(_machine(found, prices[found.name]) for found in plain)),
        PoolTemplate("gpu", tuple(_machine(found, prices[found.name]) for found in gpus), taints=(TAINT,)),
        PoolTemplate("mig", tuple(cut), taints=(TAINT,)),
    ]


def pods(count: int, seed: int) -> list[WaitingPod]:
    """A mix of 15 to 28 classes."""
    draw = random.Random(seed)
    classes = [asked(draw, draw.choices(*zip(*KINDS, strict=True))[0]) for _ in range(draw.randint(15, 28))]
    return [WaitingPod(f"pod-{number:06}", draw.choice(classes)) for number in range(count)]


def asked(draw: random.Random, kind: str) -> PodSpecification:
    """What a pod of a kind asks for."""
    cpu_m = draw.choice([500, 1000, 2000, 4000, 8000])
    requests = {"cpu": cpu_m, "memory": cpu_m // 500 * draw.choice([1, 2, 4]) * GIB}
    if kind == "cpu":
        return PodSpecification(requests)
    resource = GPU_RESOURCE if kind.isdigit() else MIG_RESOURCE_PREFIX + kind
    return PodSpecification({**requests, resource: int(kind) if kind.isdigit() else 1}, tolerations=(TOLERATION,))


def _usual(found: InstanceType) -> bool:
    generation = int(found.labels.get(labels.INSTANCE_GENERATION, "0"))
    return generation > 2 and "metal" not in found.labels[labels.INSTANCE_SIZE] and found.labels[labels.ARCH] == "amd64"


def _slices(found: InstanceType, layout: str) -> dict[str, int]:
    each = found.allocatable[GPU_RESOURCE]
    slices = {MIG_RESOURCE_PREFIX + profile: count * each for profile, count in CUTS[layout].items()}
    return {**{name: n for name, n in found.allocatable.items() if name != GPU_RESOURCE}, **slices}


def _machine(found: InstanceType, price: float, cut: str = "", amounts: dict[str, int] | None = None) -> MachineType:
    offers = tuple(ReferenceOffering("on-demand", f"us-east-1{zone}", price) for zone in "ab")
    carried = Requirements.from_labels(found.labels)
    return MachineType(found.name + cut, carried, found.capacity, amounts or found.allocatable, offers)
