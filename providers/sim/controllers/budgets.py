"""Keeps the status of PodDisruptionBudgets, on which eviction depends (kube-controller-manager `disruption.go`)."""

from collections.abc import Hashable
from math import ceil
from typing import Any

from providers.sim.controllers.matching import selector_matches
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    being_deleted,
    is_active,
    is_terminal,
    is_true,
    key_of,
    labels_of,
    status_of,
    with_condition,
)
from providers.sim.controllers.runtime import Reconciler

_SCALES = {
    "Deployment": ("apps", "replicas"),
    "ReplicaSet": ("apps", "replicas"),
    "StatefulSet": ("apps", "replicas"),
    "Job": ("batch", "parallelism"),
}


class Budgets(Reconciler[Key]):
    """Counts healthy pods for each budget; keys are budgets.

    How many pods are expected (for percentages and maxUnavailable) is what their controllers ask for, a Deployment for
    all its ReplicaSets; a pod without a known controller counts as itself. Unlike upstream, a Job's parallelism counts
    as its scale.
    """

    name = "budgets"

    def __init__(self, cluster: MirroredCluster) -> None:
        super().__init__(cluster)
        self._budgets = cluster.mirror("PodDisruptionBudget", "policy")
        self._owners = {kind: cluster.mirror(kind, group) for kind, (group, _) in _SCALES.items()}
        self._pods = cluster.mirror("Pod")
        self._pods.index("namespace", lambda pod: (pod["metadata"]["namespace"],))
        self._budgets.index("namespace", lambda budget: (budget["metadata"]["namespace"],))
        self._budgets.watch(self._on_budget)
        self._pods.watch(self._on_pod)

    def _on_budget(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(key_of(new))

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        for budget in self._budgets.by("namespace", pod["metadata"]["namespace"]):
            if any(side is not None and _covers(budget, side) for side in (old, new)):
                self._queue.add(key_of(budget))

    def reconcile(self, key: Key, now: float) -> float | None:
        """Recount one budget."""
        budget = self._budgets.get(key)
        if budget is None or being_deleted(budget):
            return None
        pods = [pod for pod in self._pods.by("namespace", key[0]) if _covers(budget, pod) and not is_terminal(pod)]
        healthy = sum(is_active(p) and is_true(p, "Ready") for p in pods)
        expected, desired = _wanted(budget["spec"], self._expected(pods), len(pods))
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status = {
            **status_of(budget),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "conditions": _conditions(budget, allowed, now),
        }
        status.pop("disruptedPods", None)  # eviction books and deletes in one write: what was booked is going by now
        if status != status_of(budget):
            self._budgets.update_status(budget, status)
        return None

    def _expected(self, pods: list[Obj]) -> int:
        scales: dict[Hashable, int] = {}
        for pod in pods:
            held = self._owner(pod)
            above = None if held is None else self._owner(held)
            held = above or held
            if held is None:
                scales[pod["metadata"]["uid"]] = 1
                continue
            scale = held["spec"].get(_SCALES[held["kind"]][1])
            scales[held["metadata"]["uid"]] = 1 if scale is None else int(scale)
        return sum(scales.values())

    def _owner(self, obj: Obj) -> Obj | None:
        """What controls an object and has a scale."""
        owner = next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)
        if owner is None or owner["kind"] not in _SCALES:
            return None
        return self._owners[owner["kind"]].get((obj["metadata"]["namespace"], owner["name"]))


def _covers(budget: Obj, pod: Obj) -> bool:
    return selector_matches(budget["spec"].get("selector"), labels_of(pod))


def _wanted(spec: Obj, expected: int, pods: int) -> tuple[int, int]:
    """Expected pods and desired healthy ones; percentages round up."""
    unavailable, available = spec.get("maxUnavailable"), spec.get("minAvailable")
    if unavailable is not None:
        return expected, max(0, expected - _scaled(unavailable, expected))
    if isinstance(available, str):
        return expected, _scaled(available, expected)
    return pods, int(available or 0)


def _scaled(value: int | str, total: int) -> int:
    return ceil(int(value.rstrip("%")) * total / 100) if isinstance(value, str) else int(value)


def _conditions(budget: Obj, allowed: int, now: float) -> list[Any]:
    status, reason = ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")
    return with_condition(status_of(budget).get("conditions") or (), now, "DisruptionAllowed", status, reason)
