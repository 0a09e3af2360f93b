"""What a ResourceQuota counts of a pod, and what it asks of its containers (`pkg/quota/v1/evaluator/core/pods.go`)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from fleet.snapshot.gangs import Job, PodSet
from fleet.snapshot.limit_ranges import ContainerAmounts, containers_total
from fleet.snapshot.nodes import Pod
from fleet.snapshot.surroundings import NamespaceQuota, NamespaceQuotas, QuotaScope
from model.quantity import CPU, Resources

REQUESTS: Final = "requests."
LIMITS: Final = "limits."
COUNTS: Final = ("pods", "count/pods")
_NATIVE: Final = frozenset({CPU, "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_OF_QUALITY: Final = (CPU, "memory")
"""Resources that decide whether a pod is best effort, and that each container has to name where a quota bounds them."""


def counts_in(quota: NamespaceQuota, pods: PodSet, default_class: str = "") -> bool:
    """Returns whether pods of a set count in a quota; `default_class` is that of pods which name none."""
    return all(_holds(scope, pods, default_class) for scope in quota.scopes)


def strange_scopes(quota: NamespaceQuota) -> tuple[str, ...]:
    """Returns the scopes of a quota that are not known: they are taken to hold."""
    return tuple(scope.name for scope in quota.scopes if scope.name not in _SCOPES and scope.name != _CLASS)


def unsaid(quota: NamespaceQuota, pods: PodSet) -> Iterator[str]:
    """Yields what a quota wants each container to name, and some do not, in Kubernetes' words."""
    if pods.amounts is None or pods.amounts.pod_requests or pods.amounts.pod_limits:
        return
    for name in sorted(quota.hard):
        base = resource_of(name)
        silent = sorted(it.path for it in pods.amounts.containers if base not in _side(it, name))
        if base in _OF_QUALITY and silent:
            yield f"{name} for: {', '.join(silent)}"


def usage_of(pods: PodSet) -> dict[str, int]:
    """Returns what one pod of a set counts in quotas, by their names (`podComputeUsageHelper`)."""
    found = dict.fromkeys(COUNTS, 1)
    for name, amount in pods.requests.items():
        found |= dict.fromkeys(_names_of(name), amount)
    for name, amount in limits_of(pods).items():
        if name in _NATIVE:
            found[LIMITS + name] = amount
    return found


def recounted(
    quotas: NamespaceQuotas, before: Pod | None, after: Pod | None, job_of: Callable[[Pod], Job | None]
) -> NamespaceQuotas:
    """Returns the quotas once one pod has come, gone or ended, whose job says what quotas look at."""
    was, counts = (it is not None and it.active for it in (before, after))
    pod, change = after or before, int(counts) - int(was)
    found = quotas.by_namespace.get(pod.namespace, ()) if pod is not None and change else ()
    if pod is None or not found:
        return quotas
    job, plain = job_of(pod), PodSet(pod.pod_set, 1, pod.requests, namespace=pod.namespace, constraints=pod.constraints)
    pods = next((it for it in job.pod_sets if it.name == pod.pod_set), plain) if job is not None else plain
    usage = {name: change * amount for name, amount in usage_of(pods).items()}
    now = tuple(_with_more(it, usage) if counts_in(it, pods, quotas.default_class) else it for it in found)
    return replace(quotas, by_namespace={**quotas.by_namespace, pod.namespace: now})


def _with_more(quota: NamespaceQuota, usage: Resources) -> NamespaceQuota:
    more = {name: max(0, quota.used.get(name, 0) + usage[name]) for name in quota.hard.keys() & usage.keys()}
    return replace(quota, used={**quota.used, **more})


def limits_of(pods: PodSet) -> Resources:
    """Returns the limits of a pod, with what its runtime takes where it has any; none of pods that are there already.

    What it requests beyond its containers is what its runtime takes.
    """
    amounts = pods.amounts
    if amounts is None:
        return {}
    requests = containers_total([(it, it.requests) for it in amounts.containers]) | dict(amounts.pod_requests)
    limits = containers_total([(it, it.limits) for it in amounts.containers]) | dict(amounts.pod_limits)
    return {name: most + pods.requests.get(name, 0) - requests.get(name, 0) for name, most in limits.items() if most}


def resource_of(name: str) -> str:
    """Returns the resource that a quota bounds by this name: `requests.cpu` is `cpu`."""
    return name.removeprefix(LIMITS).removeprefix(REQUESTS)


def bounds_pods(name: str) -> bool:
    """Returns whether a bound of this name is about pods, and not about other objects or their storage."""
    if name.startswith(LIMITS):
        return name.removeprefix(LIMITS) in _NATIVE
    return name in COUNTS or name in _names_of(name.removeprefix(REQUESTS))


def _names_of(resource: str) -> tuple[str, ...]:
    """Returns the names by which quotas count requests of a resource."""
    if resource in _NATIVE or resource.startswith(_HUGE_PAGES):
        return resource, REQUESTS + resource
    return (REQUESTS + resource,) if "/" in resource else ()


def _side(container: ContainerAmounts, name: str) -> Resources:
    return container.limits if name.startswith(LIMITS) else container.requests


def _holds(scope: QuotaScope, pods: PodSet, default_class: str) -> bool:
    if scope.name == _CLASS:
        name = (pods.amounts.priority_class if pods.amounts is not None else "") or default_class
        return _selected(scope, name)
    known = _SCOPES.get(scope.name)
    return known is None or known(pods)


def _selected(scope: QuotaScope, name: str) -> bool:
    """Returns whether a PriorityClass is selected; pods without one are not in any, and exist in none."""
    chosen = {
        "In": name in scope.values,
        "NotIn": name not in scope.values,
        "Exists": bool(name),
        "DoesNotExist": not name,
    }
    return chosen.get(scope.operator, True)


def _is_best_effort(pods: PodSet) -> bool:
    """Returns whether no container says anything of CPU or memory (`qos.GetPodQOS`)."""
    amounts = pods.amounts
    if amounts is None:
        return not any(pods.requests.get(name) for name in _OF_QUALITY)
    sides = [amounts.pod_requests, amounts.pod_limits]
    sides += [side for it in amounts.containers for side in (it.requests, it.limits)]
    return not any(side.get(name) for side in sides for name in _OF_QUALITY)


def _terminates(pods: PodSet) -> bool:
    return pods.amounts is not None and pods.amounts.has_deadline


def _looks_abroad(pods: PodSet) -> bool:
    """Returns whether its affinity, required or preferred, looks at pods of other namespaces."""
    asks = pods.constraints
    terms, own = (*asks.affinity, *asks.anti_affinity, *(it.term for it in asks.preferred_pods)), {pods.namespace}
    return any(it.namespace_selector is not None or it.namespaces != own for it in terms)


_CLASS: Final = "PriorityClass"
_SCOPES: Final[Mapping[str, Callable[[PodSet], bool]]] = {
    "BestEffort": _is_best_effort,
    "NotBestEffort": lambda pods: not _is_best_effort(pods),
    "Terminating": _terminates,
    "NotTerminating": lambda pods: not _terminates(pods),
    "CrossNamespacePodAffinity": _looks_abroad,
}
