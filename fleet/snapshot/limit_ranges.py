"""What the API server makes of the amounts of a pod that is created: defaults of LimitRanges, and what it refuses.

Source: `plugin/pkg/admission/limitranger`, `pkg/apis/core/validation` (ValidateContainerResourceRequirements), as Kueue
foresees them (`pkg/util/limitrange`, `AdjustResources`). It does so with pods and not with the templates of jobs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from model.quantity import CPU, Resources, format_amount

CONTAINER: Final = "Container"
POD_TYPE: Final = "Pod"
MOST_TOLD: Final = 16
"""Refusals of a pod set that are told; one keeps its gang waiting."""
_NATIVE: Final = "kubernetes.io/"
_HUGE_PAGES: Final = "hugepages-"


@dataclass(frozen=True, slots=True)
class LimitRangeItem:
    """A `LimitRangeItem` bounds the amounts of each container, or of each pod, and gives containers defaults."""

    type: str
    """`Container` or `Pod`; items of other types are not about pods."""
    default: Resources = field(default_factory=dict)
    """Limits of containers that say none."""
    default_request: Resources = field(default_factory=dict)
    min: Resources = field(default_factory=dict)
    max: Resources = field(default_factory=dict)
    max_ratio_milli: Resources = field(default_factory=dict)
    """Largest limit by request, in thousandths (`maxLimitRequestRatio`)."""


@dataclass(frozen=True, slots=True)
class LimitRange:
    """A `LimitRange` as the API server stores it: it has filled in defaults by bounds already."""

    namespace: str
    name: str
    items: tuple[LimitRangeItem, ...] = ()

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ContainerAmounts(NamedTuple):
    """`ContainerAmounts` are what one container asks, a limit without a request being the request, and its limits."""

    path: str
    """Of the container in the pod template: `spec.containers[0]`."""
    requests: Resources
    limits: Resources
    init: bool = False
    sidecar: bool = False


class PodAmounts(NamedTuple):
    """`PodAmounts` are what a template says of amounts, before admission. Containers stand in their order."""

    containers: tuple[ContainerAmounts, ...]
    overhead: Resources
    pod_requests: Resources
    """Given for the whole pod; they replace those of its containers."""
    pod_limits: Resources
    priority_class: str = ""
    """Name of its PriorityClass, which ResourceQuotas may select by; empty = the cluster's default."""
    has_deadline: bool = False
    """Whether it says `activeDeadlineSeconds`, which ResourceQuotas may select by."""


class AdmittedPod(NamedTuple):
    """An `AdmittedPod` is what pods of a template take, and why the API server would refuse them, if it would."""

    requests: Resources
    forbidden: tuple[str, ...] = ()


def admitted(pod: PodAmounts, ranges: Sequence[LimitRange]) -> AdmittedPod:
    """Returns the pods as the API server makes them with the LimitRanges of their namespace, sorted by name.

    Of several defaults for one resource that of the first LimitRange counts, and within one the last item: each fills
    in what is not there yet. Kubernetes leaves the order of LimitRanges open.
    """
    pod = with_defaults(pod, ranges)
    against = (words for each in ranges for words in _against(pod, each))
    faults = [*islice(_faults(pod.containers), MOST_TOLD), *islice(against, MOST_TOLD)]
    return AdmittedPod(pod_requests(pod), tuple(faults[:MOST_TOLD]))


def with_defaults(pod: PodAmounts, ranges: Iterable[LimitRange]) -> PodAmounts:
    """Returns what pods say of amounts once each of the LimitRanges has filled in what they leave out."""
    for each in ranges:
        pod = pod._replace(containers=_with_defaults(pod.containers, each))
    return pod


def pod_requests(pod: PodAmounts) -> Resources:
    """Returns what a pod takes on a node, without zeros (`k8s.io/component-helpers/resource` PodRequests)."""
    total = containers_total([(it, it.requests) for it in pod.containers])
    total.update(pod.pod_requests)
    _add(total, pod.overhead)
    return {name: amount for name, amount in total.items() if amount}


def containers_total(amounts: Iterable[tuple[ContainerAmounts, Resources]]) -> dict[str, int]:
    """Returns the larger of all containers with all sidecars together and, for each init container, itself.

    With an init container run the sidecars that were started before it.
    """
    sidecars: dict[str, int] = {}
    start: dict[str, int] = {}
    regular: dict[str, int] = {}
    for container, asked in amounts:
        if container.sidecar:
            _add(sidecars, asked)
            _raise_to(start, sidecars)
        elif container.init:
            _raise_to(start, _sum(sidecars, asked))
        else:
            _add(regular, asked)
    total = _sum(sidecars, regular)
    _raise_to(total, start)
    return total


def _with_defaults(containers: tuple[ContainerAmounts, ...], given: LimitRange) -> tuple[ContainerAmounts, ...]:
    limits: dict[str, int] = {}
    requests: dict[str, int] = {}
    for item in given.items:
        if item.type == CONTAINER:
            limits |= item.default
            requests |= item.default_request
    if not limits and not requests:
        return containers
    return tuple(it._replace(requests={**requests, **it.requests}, limits={**limits, **it.limits}) for it in containers)


def _faults(containers: Iterable[ContainerAmounts]) -> Iterator[str]:
    """Yields which requests are above their limits, or other than these where nothing may be promised twice."""
    for it in containers:
        for name, asked in it.requests.items():
            path, limit = f"{it.path}.resources", it.limits.get(name)
            shown = format_amount(name, asked)
            if limit is None:
                if not _may_overcommit(name):
                    yield f"{path}.limits: Required value: Limit must be set for non overcommitable resources ({name})"
            elif asked != limit and not _may_overcommit(name):
                said = f"must be equal to {name} limit of {format_amount(name, limit)}"
                yield f'{path}.requests: Invalid value: "{shown}": {said}'
            elif asked > limit:
                said = f"must be less than or equal to {name} limit of {format_amount(name, limit)}"
                yield f'{path}.requests: Invalid value: "{shown}": {said}'


def _may_overcommit(name: str) -> bool:
    return ("/" not in name or _NATIVE in name) and not name.startswith(_HUGE_PAGES)


def _against(pod: PodAmounts, given: LimitRange) -> Iterator[str]:
    """Yields what of a LimitRange forbids the pod, in the words of Kubernetes, with the path and the LimitRange."""
    for item in given.items:
        for path, requests, limits in _bounded(pod, item.type):
            for words in _out_of_bounds(item, requests, limits):
                yield f"{path}: {words} (LimitRange {given.name})"


def _bounded(pod: PodAmounts, kind: str) -> Iterator[tuple[str, Resources, Resources]]:
    """Yields what an item of that type is about: path, requests and limits, without overhead (as Kubernetes)."""
    if kind == CONTAINER:
        yield from ((it.path, it.requests, it.limits) for it in pod.containers)
    elif kind == POD_TYPE:
        requests = containers_total([(it, it.requests) for it in pod.containers]) | dict(pod.pod_requests)
        limits = containers_total([(it, it.limits) for it in pod.containers]) | dict(pod.pod_limits)
        yield "spec", requests, limits


def _out_of_bounds(item: LimitRangeItem, requests: Resources, limits: Resources) -> Iterator[str]:
    found = [
        *(_too_small(item.type, name, least, requests, limits) for name, least in sorted(item.min.items())),
        *(_too_large(item.type, name, most, requests, limits) for name, most in sorted(item.max.items())),
        *(_too_far(item.type, name, most, requests, limits) for name, most in sorted(item.max_ratio_milli.items())),
    ]
    yield from filter(None, found)


def _too_small(kind: str, name: str, least: int, requests: Resources, limits: Resources) -> str:
    words = f"minimum {name} usage per {kind} is {format_amount(name, least)}"
    if name not in requests:
        return f"{words}.  No request is specified"
    if requests[name] < least:
        return f"{words}, but request is {format_amount(name, requests[name])}"
    if limits.get(name, least) < least:
        return f"{words}, but limit is {format_amount(name, limits[name])}"
    return ""


def _too_large(kind: str, name: str, most: int, requests: Resources, limits: Resources) -> str:
    words = f"maximum {name} usage per {kind} is {format_amount(name, most)}"
    if name not in limits:
        return f"{words}.  No limit is specified"
    if limits[name] > most:
        return f"{words}, but limit is {format_amount(name, limits[name])}"
    if requests.get(name, most) > most:
        return f"{words}, but request is {format_amount(name, requests[name])}"
    return ""


def _too_far(kind: str, name: str, most_milli: int, requests: Resources, limits: Resources) -> str:
    words = f"{name} max limit to request ratio per {kind} is {format_amount(CPU, most_milli)}"
    request, limit = requests.get(name, 0), limits.get(name, 0)
    if not request:
        return f"{words}, but no request is specified or request is 0"
    if not limit:
        return f"{words}, but no limit is specified or limit is 0"
    return f"{words}, but provided ratio is {limit / request:f}" if limit * 1000 > most_milli * request else ""


def _add(into: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + amount


def _sum(left: Resources, right: Resources) -> dict[str, int]:
    total = dict(left)
    _add(total, right)
    return total


def _raise_to(into: dict[str, int], amounts: Resources) -> None:
    for name, amount in amounts.items():
        into[name] = max(into.get(name, 0), amount)
