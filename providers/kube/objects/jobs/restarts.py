"""How many lost pods a job's own controller makes anew: what its user allows, less what is used up.

Source: Kubernetes `pkg/controller/job` (pods that are gone count as failed, unless the policy ignores disruptions).
"""

from typing import Final

from fleet.snapshot import ANY_NUMBER
from providers.kube.objects.jobs.kind import number
from providers.kube.objects.shapes import JsonObject

_BACKOFF_LIMIT: Final = 6
_ENDS: Final = frozenset({"FailJob", "FailIndex"})


def of_batch_job(spec: JsonObject, failed: int) -> int:
    """Pods that a `batch/v1` Job of this specification may lose before it has failed; `failed` are lost already."""
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    for rule in rules:  # the first that matches counts
        if rule.get("action") == "Ignore" and _on_disruption(rule):
            return ANY_NUMBER
        if rule.get("action") in _ENDS:
            return 0
    per_index = spec.get("backoffLimitPerIndex")
    allowed = number(spec.get("backoffLimit"), _BACKOFF_LIMIT if per_index is None else ANY_NUMBER)
    return max(0, min(allowed, ANY_NUMBER if per_index is None else per_index) - failed)


def _on_disruption(rule: JsonObject) -> bool:
    conditions = rule.get("onPodConditions") or ()
    return any(it.get("type") == "DisruptionTarget" and it.get("status", "True") == "True" for it in conditions)


def of_job_set(raw: JsonObject) -> int:
    """Any number while the set may be restarted as a whole; none where a rule of its failure policy may end it."""
    policy = raw["spec"].get("failurePolicy") or {}
    if any(rule.get("action") == "FailJobSet" for rule in policy.get("rules") or ()):
        return 0
    used = (raw.get("status") or {}).get("restartsCountTowardsMax") or 0
    return ANY_NUMBER if (policy.get("maxRestarts") or 0) > used else 0
