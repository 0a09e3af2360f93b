"""In which domain of a topology a pod may go: spread, affinity, anti-affinity (`topologygroup.go`).

`counts` are pods by domain, `pod` the values the pod allows for the key, `node` those the machine still may have. Where
upstream takes any of equal domains, the lowest name is taken.
"""

from collections.abc import Iterable, Mapping

from model.requirements import Requirement

Counts = Mapping[str, int]


def spread(counts: Counts, node: Requirement, highest: int) -> str | None:
    """The emptiest domain of the machine with at most `highest` pods; None where there is none."""
    fitting = ((counts[domain], domain) for domain in _within(counts, node) if counts[domain] <= highest)
    return min(fitting, default=(0, None))[1]


def lowest(counts: Counts, pod: Requirement, min_domains: int | None) -> int:
    """Pods in the emptiest domain the pod allows; 0 while there are fewer than `min_domains` of them."""
    allowed = [count for domain, count in counts.items() if pod.has(domain)]
    if not allowed or (min_domains is not None and len(allowed) < min_domains):
        return 0
    return min(allowed)


def affinity(counts: Counts, pod: Requirement, node: Requirement, *, selected: bool) -> tuple[str, ...]:
    """Every domain that has such a pod; a pod that is looked for itself may be the first one, in the first domain."""
    allowed = [domain for domain in _within(counts, node) if pod.has(domain)]
    taken = tuple(sorted(domain for domain in allowed if counts[domain]))
    if taken or not bootstraps(counts, pod, selected=selected):
        return taken
    return tuple(sorted(allowed)[:1])


def bootstraps(counts: Counts, pod: Requirement, *, selected: bool) -> bool:
    """Whether the pod may be the first of those it looks for."""
    return selected and not any(count and pod.has(domain) for domain, count in counts.items())


def anti_affinity(counts: Counts, pod: Requirement, node: Requirement) -> tuple[str, ...]:
    """Every domain without such a pod."""
    return tuple(sorted(d for d in _within(counts, node) if not counts[d] and pod.has(d)))


def _within(counts: Counts, node: Requirement) -> Iterable[str]:
    """Known domains the machine may be in; a decided machine has one, however many there are."""
    if not node.complement:
        return (domain for domain in node.values if domain in counts)
    return (domain for domain in counts if node.has(domain))
