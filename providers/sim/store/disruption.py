"""Eviction: may this pod be disturbed now?

Source: `pkg/registry/core/pod/storage/eviction.go`.
"""

from typing import Any

from providers.sim.store.errors import StoreForbidden, StoreTooManyRequests, StoreUnknownError
from providers.sim.store.objects import Obj
from providers.sim.store.selectors import matches_label_selector

_UNOBSERVED_S = 10  # only a budget that nobody has counted says when to come back
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def eviction_of(name: str, namespace: str, said: Obj) -> Obj:
    """The Eviction of a pod, as admission sees it."""
    meta = {**(said.get("metadata") or {}), "name": name, "namespace": namespace}
    return {**said, "apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}


def spent_budget(pod: Obj, budgets: list[Obj], now: str) -> Obj | None:
    """The budget with this eviction booked, or None when none has to be.

    TooManyRequests when the budget allows no disruption now; UnknownError (500) when several budgets cover it.
    """
    if _needs_no_budget(pod):
        return None
    covering = [budget for budget in budgets if _covers(budget, pod)]
    if len(covering) > 1:
        raise StoreUnknownError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    if not covering:
        return None
    budget = covering[0]
    if not _ready(pod) and _unhealthy_may_go(budget):
        return None
    return _booked(pod, budget, now)


def evicted_pod(pod: Obj, now: str) -> Obj:
    """The pod with the condition that says who disturbed it; an older one of that kind gives way."""
    status = pod.get("status") or {}
    held = next((c for c in status.get("conditions") or () if c["type"] == "DisruptionTarget"), None)
    said = {"status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    if held is not None and all(held.get(field) == value for field, value in said.items()):
        return pod
    others = [c for c in status.get("conditions") or () if c is not held]
    condition = {"type": "DisruptionTarget", **said, "lastProbeTime": None, "lastTransitionTime": now}
    return {**pod, "status": {**status, "conditions": [*others, condition]}}


def _needs_no_budget(pod: Obj) -> bool:
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending")
    return finished or bool(pod["metadata"].get("deletionTimestamp"))


def _covers(budget: Obj, pod: Obj) -> bool:
    return matches_label_selector((budget.get("spec") or {}).get("selector"), pod["metadata"].get("labels") or {})


def _ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _unhealthy_may_go(budget: Obj) -> bool:
    status = budget.get("status") or {}
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return bool(desired > 0 and healthy >= desired)


def _booked(pod: Obj, budget: Obj, now: str) -> Obj:
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        reason = f"The disruption budget {name} is still being processed by the server."
        raise StoreTooManyRequests(_REFUSED, _because(reason), retry_after_s=_UNOBSERVED_S)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise StoreForbidden("pdb disruptions allowed is negative")
    if allowed == 0:
        needed, have = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        reason = f"The disruption budget {name} needs {needed} healthy pods and has {have} currently"
        raise StoreTooManyRequests(_REFUSED, _because(reason), retry_after_s=0)
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    return {**budget, "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}}


def _because(message: str) -> dict[str, Any]:
    return {"causes": [{"reason": "DisruptionBudget", "message": message}]}
