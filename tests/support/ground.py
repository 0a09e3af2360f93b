"""Builders for rounds over single pods: machine types with offers, pools, machines that stand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.reference.karpenter.buy import (
    KarpenterNode,
    MachineType,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    WaitingPod,
)
from bench.reference.karpenter.disrupt.eligibility import CandidateNode
from bench.reference.karpenter.disrupt.ground import DisruptionCandidate, DisruptionWorld
from model import labels
from model.kinds import NodePool
from model.requirements import Requirement, Requirements
from tests.support.fleets import NOW

ZONE = "z1"
Offers = Iterable[tuple[str, float]]


def machine(name: str, cpu: int, *offers: tuple[str, float], zone: str = ZONE, **more: Any) -> MachineType:
    """A type of so many cores, sold as `("on-demand", 1.0)`."""
    amounts = {"cpu": cpu * 1000, "memory": 1 << 40, "pods": 110}
    sold = tuple(ReferenceOffering(capacity_type, zone, price, **more) for capacity_type, price in offers)
    return MachineType(name, Requirements.from_labels({labels.INSTANCE_TYPE: name}), amounts, amounts, sold)


def pool(name: str = "p", **disruption: Any) -> NodePool:
    """A pool of which everything may go at once, unless `disruption` says otherwise; `replicas` make it a fixed one."""
    spec: dict[str, Any] = {key: disruption.pop(key) for key in ("replicas", "limits") if key in disruption}
    spec["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}], **disruption}
    told = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    return NodePool.model_validate(told)


def pods(count: int, cpu_m: int = 0, place: str = "w", **ask: Any) -> tuple[WaitingPod, ...]:
    """Equal pods."""
    return tuple(WaitingPod(f"default/{place}-{n}", PodSpecification({"cpu": cpu_m}, **ask)) for n in range(count))


def standing(
    name: str,
    kind: MachineType,
    running: Sequence[WaitingPod] = (),
    *,
    of: str = "p",
    cpu: int | None = None,
    **facts: Any,
) -> DisruptionCandidate:
    """A machine bought by the first offer of its type; `cpu` cores where it has others than its type."""
    offer = kind.offerings[0]
    carried = {labels.HOSTNAME: name, labels.INSTANCE_TYPE: kind.name, labels.NODE_POOL: of}
    carried |= {labels.ZONE: offer.zone, labels.CAPACITY_TYPE: offer.capacity_type}
    if offer.reservation_id:
        carried[labels.CAPACITY_RESERVATION_ID] = offer.reservation_id
    used = sum(pod.ask.requests.get("cpu", 0) for pod in running)
    total = kind.allocatable["cpu"] if cpu is None else cpu * 1000
    free = {"cpu": total - used, "memory": 1 << 40, "pods": 110 - len(running)}
    named = tuple(replace(pod, name=f"{pod.name}-on-{name}") for pod in running)
    node = KarpenterNode(name, carried, free, initialized=facts.pop("initialized", True))
    post = facts.pop("post", CandidateNode(initialized=node.initialized))
    return DisruptionCandidate(node, of, named, tuple(1.0 for _ in named), post, **facts)


def ground(
    kinds: Sequence[MachineType],
    machines: Iterable[DisruptionCandidate],
    *pools: NodePool,
    requirements: Mapping[str, Requirement] | None = None,
    **more: Any,
) -> DisruptionWorld:
    """All of it; every pool may buy every type under `requirements`."""
    known = {each.name: each for each in pools or (pool(),)}
    wanted = Requirements(dict(requirements or {}))
    templates = tuple(PoolTemplate(name, tuple(kinds), wanted) for name in known)
    return DisruptionWorld(known, templates, tuple(machines), now_s=NOW, **more)
