"""Resource quotas: what pods count in them, and whether a new one fits.

Only what is about pods is counted: storage and numbers of other objects are left out of its status.
Source: `pkg/quota/v1/evaluator/core/pods.go`, `apiserver/pkg/admission/plugin/resourcequota/controller.go`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from model.quantity import format_amount
from providers.sim.store.amounts import amount, is_extended
from providers.sim.store.endpoints import details
from providers.sim.store.errors import StoreForbidden, cause
from providers.sim.store.naming import Fault, invalid_value, qualified_name
from providers.sim.store.objects import Obj
from providers.sim.store.podrequests import Amounts, amounts, limits_of, requests_of
from providers.sim.store.registry import Resource

QUOTAS: Final = "resourcequotas"
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COUNTS: Final = frozenset({"pods", "count/pods"})
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_EACH_CONTAINER: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""Where a quota names one of these, each container has to say how much of it it wants."""


def counts(quota: Obj, pod: Obj) -> bool:
    """Whether a pod counts in a quota: it is in every scope of it (`podMatchesScopeFunc`)."""
    spec = quota.get("spec") or {}
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_in_scope(term, pod["spec"]) for term in terms)


def _in_scope(term: Obj, spec: Obj) -> bool:
    name, class_name = term["scopeName"], spec.get("priorityClassName") or ""
    if name == "PriorityClass":
        listed = class_name in (term.get("values") or ())
        chosen = {"In": listed, "NotIn": not listed, "Exists": bool(class_name), "DoesNotExist": not class_name}
        return chosen.get(term["operator"], False)
    if name == "CrossNamespacePodAffinity":
        return any("namespaces" in it or "namespaceSelector" in it for it in _affinity_terms(spec))
    ends = (spec.get("activeDeadlineSeconds") or -1) >= 0
    scopes = {"Terminating": ends, "NotTerminating": not ends}
    if name in scopes:
        return scopes[name]
    best_effort = not any(_says_cpu_or_memory(it) for it in (spec, *_containers(spec)))
    return {"BestEffort": best_effort, "NotBestEffort": not best_effort}.get(name, False)


def _affinity_terms(spec: Obj) -> Iterator[Obj]:
    for kind in ("podAffinity", "podAntiAffinity"):
        wishes = (spec.get("affinity") or {}).get(kind) or {}
        yield from wishes.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        yield from (it["podAffinityTerm"] for it in wishes.get("preferredDuringSchedulingIgnoredDuringExecution") or ())


def _containers(spec: Obj) -> tuple[Obj, ...]:
    return (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))


def _says_cpu_or_memory(holder: Obj) -> bool:
    sides = (holder.get("resources") or {}).values()
    return any(amount(it.get(name) or 0) > 0 for it in sides if isinstance(it, Mapping) for name in ("cpu", "memory"))


def hard_of(quota: Obj, part: str = "status") -> dict[str, int]:
    """The bounds on what pods take, in canonical integers: those in force (its status), or those asked for (`spec`)."""
    hard = (quota.get(part) or {}).get("hard") or {}
    return {name: most for name, most in _canonical(hard).items() if _of_pods(name)}


def used_of(quota: Obj) -> dict[str, int]:
    """What is used of each, as far as its status says."""
    return _canonical((quota.get("status") or {}).get("used") or {})


def usage_of(pod: Obj, now_s: float) -> dict[str, int]:
    """What a pod counts in quotas: nothing but its number once it has ended, or should have (`QuotaV1Pod`)."""
    if gone_at(pod) <= now_s:
        return {"count/pods": 1}
    found = dict.fromkeys(_COUNTS, 1)
    for name, wanted in requests_of(pod).items():
        if name != "pods":
            found |= dict.fromkeys(_names_of(name), wanted)
    found |= {_LIMITS + name: most for name, most in limits_of(pod).items() if name in _NATIVE}
    return found


def gone_at(pod: Obj) -> float:
    """When a pod counts no more: as soon as it has ended; where it is being deleted, a second grace period later."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0.0
    meta = pod["metadata"]
    at, grace_s = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if at is None or grace_s is None:
        return float("inf")
    return datetime.fromisoformat(at).timestamp() + float(grace_s)


def shown(counted: Amounts) -> dict[str, str]:
    """Amounts as quantities, in order of their names."""
    return {name: format_amount(_base(name), counted[name]) for name in sorted(counted)}


def charged(resource: Resource, pod: Obj, quotas: Iterable[Obj], now_s: float) -> list[Obj]:
    """The quotas of its namespace that a new pod counts in, with what they then have used. Forbidden: it does not fit.

    What counts is the status: a quota that its controller has not seen yet bounds nothing.
    """
    usage, found = usage_of(pod, now_s), []
    for quota in quotas:
        if counts(quota, pod) and (hard := hard_of(quota)):
            used = used_of(quota)
            if refusal := _refusal(quota["metadata"]["name"], pod, usage, hard, used):
                name = pod["metadata"]["name"]
                raise StoreForbidden(f'pods "{name}" is forbidden: {refusal}', details(resource, name))
            more = {name: used[name] + usage.get(name, 0) for name in hard}
            if more != {name: used[name] for name in hard}:
                status = {**quota["status"], "used": {**quota["status"]["used"], **shown(more)}}
                found.append({**quota, "status": status})
    return found


def _refusal(quota: str, pod: Obj, usage: Amounts, hard: Amounts, used: Amounts) -> str:
    """Why a quota has no room for a pod, in the API server's words; empty where it has."""
    if missing := list(_unsaid(pod, hard.keys() & _EACH_CONTAINER)):
        return f"failed quota: {quota}: must specify {'; '.join(missing)}"
    if hard.keys() - used.keys():
        return f"status unknown for quota: {quota}, resources: {','.join(sorted(hard))}"
    over = sorted(name for name, most in hard.items() if name in usage and used[name] + usage[name] > most)
    if not over:
        return ""
    told = (",".join(f"{name}={text}" for name, text in shown({it: of[it] for it in over}).items()) for of in
            (usage, used, hard))  # fmt: skip
    requested, taken, limited = told
    return f"exceeded quota: {quota}, requested: {requested}, used: {taken}, limited: {limited}"


def _unsaid(pod: Obj, required: Iterable[str]) -> Iterator[str]:
    spec = pod["spec"]
    for name in sorted(required):
        silent = sorted({it["name"] for it in _containers(spec) if _base(name) not in _side(it, name)})
        if silent and _base(name) not in _side(spec, name):
            yield f"{name} for: {','.join(silent)}"


def _side(holder: Obj, name: str) -> Mapping[str, Any]:
    """What a container or a pod says on the side that a bound is about: its limits, or what it requests."""
    return (holder.get("resources") or {}).get("limits" if name.startswith(_LIMITS) else "requests") or {}


def quota_faults(new: Obj, old: Obj | None) -> Iterator[Fault]:
    """What is wrong with a ResourceQuota (`ValidateResourceQuota`)."""
    spec = new.get("spec") or {}
    for name, value in (spec.get("hard") or {}).items():
        here = f"spec.hard[{name}]"
        yield from invalid_value(here, name, qualified_name(name))
        if "/" not in name and not _of_pods(name) and not name.startswith(("limits.", _REQUESTS)):
            yield cause(here, f'Invalid value: "{name}": must be a standard resource for quota')
        if amount(value) < 0:
            yield cause(here, f'Invalid value: "{value}": must be greater than or equal to 0')
    if old is not None and (old.get("spec") or {}).get("scopes") != spec.get("scopes"):
        yield cause("spec.scopes", f"Invalid value: {spec.get('scopes') or []}: field is immutable")


def _names_of(resource: str) -> tuple[str, ...]:
    """The names by which quotas count requests for a resource."""
    if resource in _NATIVE or resource.startswith("hugepages-"):
        return resource, _REQUESTS + resource
    return (_REQUESTS + resource,) if is_extended(resource) else ()


def _of_pods(name: str) -> bool:
    if name.startswith(_LIMITS):
        return _base(name) in _NATIVE
    return name in _COUNTS or name in _names_of(_base(name))


def _base(name: str) -> str:
    return name.removeprefix(_LIMITS).removeprefix(_REQUESTS)


def _canonical(listed: Mapping[str, Any]) -> dict[str, int]:
    return {name: amounts({_base(name): value})[_base(name)] for name, value in listed.items()}
