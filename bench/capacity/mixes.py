"""Batches of pods to buy machines for: seeded mixes of CPU, GPU and MIG pods, and the pods of the openb trace.

The mix: 30 % of the pods want CPU only, 40 % one GPU, 8, 6 and 4 % two, four and eight, 12 % a MIG slice (1g, 2g,
3g), in 15 to 28 classes. CPU pods stand on machines without GPUs, GPU pods on machines with the models they name, MIG
pods on machines whose GPUs are cut. Machines are those of us-east-1 on demand: categories c, m, r, g and p above
generation 2, x86, no metal.
"""

import csv
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fleet.catalog import InstanceType
from fleet.optimize.purchase import MachineKind, PodDemand, PurchaseProblem
from providers.aws.catalog import package_catalog

REGION = "us-east-1"
RESOURCES = ("cpu", "memory", "gpu", "mig-1g", "mig-2g", "mig-3g", "pods")
_GIB = 1024**3
_PREFIX = "karpenter.k8s.aws/instance-"
CUTS: Mapping[str, Mapping[str, int]] = {
    "all-1g": {"mig-1g": 7},
    "all-2g": {"mig-2g": 3},
    "all-3g": {"mig-3g": 2},
    "balanced": {"mig-1g": 2, "mig-2g": 1, "mig-3g": 1},
}
"""The ways to cut every GPU of a machine, and the slices of one GPU."""
_CUTTABLE = frozenset({"a100", "h100", "h200"})
_ANY_MODEL = ("t4", "l4", "a10g", "l40s", "a100", "h100")
_INFERENCE = ("t4", "l4", "a10g", "l40s")


@dataclass(frozen=True, slots=True)
class MixMachine:
    """A type, as a whole or cut in one way."""

    kind: MachineKind
    model: str
    """Of its GPUs; empty without any."""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class MixShare:
    """A part of the pods: how many of 100, in how many classes, and how many GPUs each asks for."""

    percent: int
    classes: tuple[int, int]
    gpus: int = 0
    slices: tuple[str, ...] = ()


MIXED = (
    MixShare(30, (5, 9)),
    MixShare(40, (5, 9), 1),
    MixShare(8, (1, 2), 2),
    MixShare(6, (1, 2), 4),
    MixShare(4, (1, 2), 8),
    MixShare(12, (2, 4), 0, ("mig-1g", "mig-2g", "mig-3g")),
)
INFERENCE = (MixShare(38, (5, 9)), MixShare(52, (8, 14), 1), MixShare(10, (2, 4), 2))


@cache
def machines() -> tuple[MixMachine, ...]:
    """What can be bought in the region, each type once, whichever zones have it."""
    prices: dict[str, tuple[float, InstanceType]] = {}
    for offer in package_catalog(REGION).catalog.offers:
        if offer.capacity_type == "on-demand" and _wanted(offer.instance_type):
            prices[offer.instance_type.name] = (offer.price_usd_h, offer.instance_type)
    return tuple(machine for _, (price, it) in sorted(prices.items()) for machine in _variants(it, price))


def _wanted(it: InstanceType) -> bool:
    labels = it.labels
    if it.gpu_name and not it.gpu_count:
        return False  # a fraction of a GPU
    return (
        labels[_PREFIX + "category"] in "cmrgp"
        and int(labels[_PREFIX + "generation"]) > 2
        and labels["kubernetes.io/arch"] == "amd64"
        and "metal" not in it.name
        and bool(it.gpu_name) == (labels[_PREFIX + "category"] in "gp")
    )


def _variants(it: InstanceType, price: float) -> Iterator[MixMachine]:
    base = {name: it.allocatable[name] for name in ("cpu", "memory", "pods")}
    whole = {**base, "gpu": it.gpu_count} if it.gpu_count else base
    yield MixMachine(MachineKind(it.name, price, whole), it.gpu_name)
    if it.gpu_name in _CUTTABLE:
        for name, slices in CUTS.items():
            offered = {slice_: count * it.gpu_count for slice_, count in slices.items()}
            yield MixMachine(MachineKind(f"{it.name}/{name}", price, base | offered), it.gpu_name, cut=True)


def mix(
    seed: int, pods: int, shares: Sequence[MixShare] = MIXED, models: Sequence[str] = _ANY_MODEL
) -> PurchaseProblem:
    """One seeded batch; the same in every process."""
    draw = random.Random(f"{seed}/{pods}")
    classes: list[PodDemand] = []
    for share, count in zip(shares, _split(pods, [share.percent for share in shares]), strict=True):
        wanted = min(draw.randint(*share.classes), max(count, 1))
        weights = [draw.uniform(0.3, 1.7) for _ in range(wanted)]
        for each in _split(count, weights):
            classes.append(_pods(draw, f"class-{len(classes):02}", share, each, models))
    return PurchaseProblem(RESOURCES, tuple(classes), tuple(machine.kind for machine in machines()))


def inference(seed: int, pods: int) -> PurchaseProblem:
    """CPU pods and pods with one or two GPUs of a smaller model."""
    return mix(seed, pods, INFERENCE, _INFERENCE)


def varied(seed: int, pods: int, classes: int) -> PurchaseProblem:
    """As many different classes: every pod asks CPU and memory as it likes, a third of them one to eight GPUs."""
    draw = random.Random(f"{seed}/{pods}/{classes}")
    anywhere = frozenset(it.kind.name for it in machines() if not it.model)
    by_model = {
        model: frozenset(it.kind.name for it in machines() if it.model == model and not it.cut) for model in _ANY_MODEL
    }
    found = []
    for number, count in enumerate(_split(pods, [draw.uniform(0.3, 1.7) for _ in range(classes)])):
        gpus = draw.choice((0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 4, 8)[: 12 if number % 3 else 6])
        cpu_milli = 50 * draw.randint(1, 160) + 1000 * gpus
        requests = _request(cpu_milli, cpu_milli / 1000 * draw.uniform(0.5, 7.5))
        allowed = by_model[draw.choice(_ANY_MODEL[2 if gpus > 4 else 0 :])] if gpus else anywhere
        found.append(PodDemand(f"class-{number:04}", requests | ({"gpu": gpus} if gpus else {}), allowed, count))
    return PurchaseProblem(RESOURCES, tuple(found), tuple(machine.kind for machine in machines()))


def competing(seed: int, pods: int, classes: int) -> PurchaseProblem:
    """The same classes where each may stand on every machine that holds it: all of them compete for all kinds."""
    drawn, every = varied(seed, pods, classes), frozenset(it.kind.name for it in machines())
    return replace(drawn, classes=tuple(replace(it, kinds=every) for it in drawn.classes))


def _split(count: int, weights: Sequence[float]) -> list[int]:
    """`count` by weight, in whole numbers."""
    total, found, before = sum(weights), [], 0.0
    for weight in weights:
        before += weight
        found.append(round(count * before / total) - sum(found))
    return found


def _pods(draw: random.Random, name: str, share: MixShare, count: int, models: Sequence[str]) -> PodDemand:
    if share.slices:
        size = draw.choice(share.slices)
        requests = _request(draw.choice((1, 2, 3, 4)) * 1000, draw.choice((4, 8, 12, 16))) | {size: 1}
        return PodDemand(name, requests, frozenset(it.kind.name for it in machines() if it.cut), count)
    if share.gpus:
        gpus = share.gpus
        requests = _request(gpus * draw.choice((2, 3, 4, 6, 8)) * 1000, gpus * draw.choice((8, 12, 16, 24, 32)))
        accepted = _accepted(draw, models, 1 if gpus < 8 else 2)
        fitting = frozenset(it.kind.name for it in machines() if it.model in accepted and not it.cut)
        return PodDemand(name, requests | {"gpu": gpus}, fitting, count)
    cpu_milli = draw.choice((250, 500, 1000, 2000, 4000, 8000, 16000))
    requests = _request(cpu_milli, max(0.5, cpu_milli / 1000 * draw.choice((1, 2, 3, 4, 6, 8))))
    return PodDemand(name, requests, frozenset(it.kind.name for it in machines() if not it.model), count)


def _accepted(draw: random.Random, models: Sequence[str], least: int) -> tuple[str, ...]:
    """The smallest model that will do, and some larger ones; pods of eight GPUs need large machines."""
    smallest = draw.randrange(0 if least == 1 else len(models) // 2, len(models))
    return tuple(model for model in models[smallest:] if model == models[smallest] or draw.random() < 0.75)


def _request(cpu_milli: int, memory_gib: float) -> dict[str, int]:
    return {"cpu": cpu_milli, "memory": int(memory_gib * _GIB), "pods": 1}


# -- the openb trace --------------------------------------------------------------------------------------------------

_MODELS: Mapping[str, tuple[str, ...]] = {
    "T4": ("t4",),
    "P100": ("t4", "l4"),
    "V100M16": ("a10g", "l4"),
    "V100M32": ("l40s",),
    "G1": ("a10g",),
    "G2": ("a10g", "l4"),
    "G3": ("a100",),
}
"""What stands for the trace's GPUs; a pod that names none takes any of these."""
_UNNAMED = ("t4", "l4", "a10g", "l40s", "a100")


def openb(pod_list: Path) -> PurchaseProblem:
    """The pods of a list of the trace, GPUs counted in thousandths that may lie on any of a machine's GPUs."""
    with pod_list.open(encoding="utf-8", newline="") as lines:
        counted = Counter(_asked(row) for row in csv.DictReader(lines))
    kinds = [_milli(it) for it in machines() if not it.cut]
    classes = tuple(
        PodDemand(
            f"class-{number:03}",
            {"cpu": cpu_milli, "memory": memory_mib * 1024**2, "gpu": gpu_milli, "pods": 1},
            frozenset(it.kind.name for it in kinds if (it.model in models if gpu_milli else not it.model)),
            count,
        )
        for number, ((cpu_milli, memory_mib, gpu_milli, models), count) in enumerate(sorted(counted.items()))
    )
    return PurchaseProblem(("cpu", "memory", "gpu", "pods"), classes, tuple(it.kind for it in kinds))


def _milli(machine: MixMachine) -> MixMachine:
    kind = machine.kind
    capacity = {**kind.capacity, "gpu": 1000 * kind.capacity.get("gpu", 0)}
    return MixMachine(MachineKind(kind.name, kind.price_usd_h, capacity), machine.model)


def _asked(row: Mapping[str, str]) -> tuple[int, int, int, tuple[str, ...]]:
    gpu_milli = int(row["num_gpu"]) * int(row["gpu_milli"])
    named = [model for spec in (row.get("gpu_spec") or "").split("|") if spec for model in _MODELS[spec]]
    return int(row["cpu_milli"]), int(row["memory_mib"]), gpu_milli, tuple(sorted(set(named))) or _UNNAMED
