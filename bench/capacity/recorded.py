"""What the real Karpenter paid for pods on an empty cluster, and the same pods and machines for a pass of the agent.

The folder lies beside the checkout, or where `MUSTER_SHARED` says (`data/karpenter_recorded`, with a README); a few
problems of it are kept in `tests/data`. Pods there are pods of no gang: what Karpenter serves.
"""

import json
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.catalog import InstanceOffer, InstanceType
from fleet.snapshot import Catalog, Pod, PodSet, Snapshot
from model import labels
from model.fleet import Fleet
from model.kinds import RequirementTerm, Toleration
from model.labels import GPU_RESOURCE
from model.loader import load
from model.quantity import Resources

SHARED = Path(os.environ.get("MUSTER_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FOLDER = SHARED / "data/karpenter_recorded"
SETS = (
    "inference-1000", "mixes-100", "mixes-1000", "mixes-10000", "singles-1000", "singles-10000",
    "openb-default", "openb-gpushare60", "openb-multigpu20",
)  # fmt: skip
NOW_S = 1_800_000_000.0
AS_IT_COMES = ("class_order", "random_ties")
"""Karpenter as most run it; its ties go by chance, so that these are several draws of one thing."""
PINNED = "gpu_count_pinned"
"""Karpenter for a user who has each GPU pod select the smallest number of GPUs that holds it."""
_REGION = "us-east-1"
_NAMESPACE = "all"
_GPU_NAMES = {"gpu": GPU_RESOURCE}
"""Recorded name of a resource -> what it is called on a cluster, where that decides something."""
_TAINT = {"key": GPU_RESOURCE, "effect": "NoSchedule"}
_TOLERATION = Toleration(key=GPU_RESOURCE, operator="Exists")


@dataclass(frozen=True, slots=True)
class KarpenterRun:
    """What one run of Karpenter bought."""

    usd_h: float
    nodes: int


@dataclass(frozen=True, slots=True)
class RecordedClass:
    """`count` equal pods."""

    name: str
    requests: Resources
    count: int
    affinity: tuple[RequirementTerm, ...]
    tolerant: bool
    """Whether they tolerate the taint of GPU pools."""


@dataclass(frozen=True, slots=True)
class RecordedKind:
    """A machine that can be bought, on demand, in every zone."""

    name: str
    pool: str
    usd_h: float
    allocatable: Resources
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RecordedProblem:
    """A batch of pods on an empty cluster, and what Karpenter paid for them."""

    name: str
    classes: tuple[RecordedClass, ...]
    runs: Mapping[str, tuple[KarpenterRun, ...]]

    @property
    def every_run(self) -> Iterator[KarpenterRun]:
        """All that is known of this problem."""
        return (run for runs in self.runs.values() for run in runs)

    def as_it_comes(self) -> KarpenterRun:
        """The median run of a user who does nothing about it."""
        return _median([run for name in AS_IT_COMES for run in self.runs.get(name, ())])

    def pinned(self) -> KarpenterRun | None:
        """The median run of a careful user; None where none is recorded."""
        runs = self.runs.get(PINNED, ())
        return _median(runs) if runs else None


@dataclass(frozen=True, slots=True)
class RecordedSet:
    """Problems over the same machines and pools."""

    zones: tuple[str, ...]
    tainted: Mapping[str, bool]
    """Pool -> whether its machines have the taint of GPU pools."""
    kinds: Mapping[str, RecordedKind]
    problems: tuple[RecordedProblem, ...]

    def fleet(self, usd_per_hour_per_machine: float | None = None) -> Fleet:
        """The pools as declarations; what a machine costs beside its price as given, or the default."""
        policy = {} if usd_per_hour_per_machine is None else {"usdPerHourPerMachine": usd_per_hour_per_machine}
        docs = [_document("NodePool", pool, self._pool(pool)) for pool in self.tainted]
        docs += [_document("FleetPolicy", "policy", policy)]
        return load({"fleet.yaml": "\n---\n".join(map(json.dumps, docs)).encode()})

    def _pool(self, pool: str) -> dict[str, Any]:
        """Pools are told apart by what their machines are: with GPUs or without."""
        own = [kind for kind in self.kinds.values() if kind.pool == pool]
        with_gpus = {labels.INSTANCE_GPU_NAME in kind.labels for kind in own}
        operator = {frozenset({True}): "Exists", frozenset({False}): "DoesNotExist"}.get(frozenset(with_gpus))
        term = {"key": labels.INSTANCE_GPU_NAME, "operator": operator, "values": []}
        taints = {"template": {"taints": [_TAINT]}} if self.tainted[pool] else {}
        return {
            "serves": ["Pods"],
            "zones": list(self.zones),
            "requirements": [term if operator else {"key": labels.ARCH, "operator": "In", "values": ["amd64"]}],
            **taints,
        }

    def catalog(self) -> Catalog:
        """The machines, at one price in every zone."""
        types = {kind.name: _type(kind) for kind in self.kinds.values()}
        offers = sorted((name, zone) for name in types for zone in self.zones)
        sold = tuple(InstanceOffer(types[name], zone, "on-demand", self.kinds[name].usd_h) for name, zone in offers)
        return Catalog(_REGION, types, sold, NOW_S, "recorded")


def snapshot(problem: RecordedProblem, catalog: Catalog) -> Snapshot:
    """The pods of a problem, which kube-scheduler has found no place for, on an empty cluster."""
    pods = [pod for each in problem.classes for pod in _pods(each)]
    return Snapshot(NOW_S, waiting_pods={pod.key: pod for pod in pods}, catalog=catalog)


def available(name: str) -> bool:
    """Whether the recorded set of that name is there."""
    return (FOLDER / f"{name}.json").is_file()


def recorded(name: str, folder: Path = FOLDER) -> RecordedSet:
    """The set of that name."""
    told = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return RecordedSet(
        tuple(told["zones"]),
        {each["name"]: each["taint"] for each in told["pools"]},
        {each["name"]: _kind(each) for each in told["kinds"]},
        tuple(map(_problem, told["problems"])),
    )


def _problem(told: Mapping[str, Any]) -> RecordedProblem:
    runs = {
        name: tuple(KarpenterRun(run["usd_h"], run["nodes"]) for run in found)
        for name, found in told["karpenter"].items()
    }
    if unknown := runs.keys() - {*AS_IT_COMES, PINNED}:
        raise ValueError(f"problem {told['name']}: runs of a sort that is not known: {', '.join(sorted(unknown))}")
    return RecordedProblem(told["name"], tuple(map(_class, told["classes"])), runs)


def _class(told: Mapping[str, Any]) -> RecordedClass:
    terms = tuple(RequirementTerm(key=it["key"], operator=it["op"], values=tuple(it["values"])) for it in told["aff"])
    requests = {name: amount for name, amount in _named(told["req"]).items() if name != "pods"}
    return RecordedClass(told["name"], requests, told["count"], terms, told["tolerate"])


def _kind(told: Mapping[str, Any]) -> RecordedKind:
    return RecordedKind(told["name"], told["pool"], told["price"], _named(told["cap"]), told["labels"])


def _named(amounts: Mapping[str, int]) -> Resources:
    return {_GPU_NAMES.get(name, name): amount for name, amount in amounts.items()}


def _type(kind: RecordedKind) -> InstanceType:
    own = {labels.INSTANCE_TYPE: kind.name, labels.ARCH: "amd64", labels.OS: "linux", **kind.labels}
    gpus = kind.allocatable.get(GPU_RESOURCE, 0)
    return InstanceType(
        kind.name, kind.allocatable, kind.allocatable, own, kind.labels.get(labels.INSTANCE_GPU_NAME, ""), gpus
    )


def _pods(asked: RecordedClass) -> Iterator[Pod]:
    shape = PodSet(
        "main",
        1,
        asked.requests,
        required_affinity=(asked.affinity,) if asked.affinity else (),
        tolerations=(_TOLERATION,) if asked.tolerant else (),
        namespace=_NAMESPACE,
    )
    for number in range(asked.count):
        name = f"{asked.name}-{number:05}"
        yield Pod(
            f"uid-{name}", _NAMESPACE, name, "", "Pending", asked.requests,
            shape=shape, controlled=True, waits_since_s=NOW_S - 60,
        )  # fmt: skip


def _document(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def _median(runs: Sequence[KarpenterRun]) -> KarpenterRun:
    """The middle one by cost; of an even number the costs of the middle two are averaged, and so are nodes."""
    return KarpenterRun(
        statistics.median(run.usd_h for run in runs), round(statistics.median(run.nodes for run in runs))
    )
