"""The pods of a case before and after the agent has decided, and what it decided between."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cases import Case


@dataclass(frozen=True, slots=True)
class PodNow:
    """Where a pod is: the scheduler's word for its state, its node and the GPUs it has parts of."""

    state: str
    node: str = ""
    devices: tuple[str, ...] = ()


Pods = Mapping[str, PodNow]


@dataclass(frozen=True, slots=True)
class RowEviction:
    """A pod that leaves, why, and for which gang (empty when for none)."""

    pod: str
    group: str
    reason: str
    beneficiary: str = ""


@dataclass(frozen=True, slots=True)
class RowDecision:
    """All that changes by the unique names of the pods: pod -> node, for those that start or move, and who leaves."""

    bound: Mapping[str, str]
    nominated: Mapping[str, str]
    moved: Mapping[str, str]
    evicted: tuple[RowEviction, ...]


@dataclass(slots=True)
class SceneRound:
    """The pods before and after, and the decision between."""

    before: Pods
    after: Pods
    decision: RowDecision
    phases: Mapping[str, str] = field(default_factory=dict)
    """`namespace/group` -> phase of its PodGroup: `Pending` before the gate, `Inqueue` behind it, `Running`."""


def group_of(case: Case) -> dict[str, str]:
    """Pod -> the name of its group."""
    return {pod_name(pod): pod["podgroup"] for pod in case["pods"]}


def pod_name(pod: Mapping[str, Any]) -> str:
    """The unique name of a pod in a case."""
    name: str = pod.get("name") or pod["id"]
    return name


def initial(case: Case) -> dict[str, PodNow]:
    """The pods as the case gives them."""
    found = {}
    for pod in case["pods"]:
        state = pod.get("state") or pod["phase"]
        node = "" if state == "Pending" else pod.get("node") or ""
        devices = tuple(str(group) for group in pod.get("gpu_groups") or ()) if node else ()
        found[pod_name(pod)] = PodNow(state, node, devices)
    return found
