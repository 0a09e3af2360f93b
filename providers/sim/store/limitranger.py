"""The admission plug-in LimitRanger, and the defaults of LimitRanges themselves.

Source: `plugin/pkg/admission/limitranger/admission.go`, `pkg/apis/core/v1/defaults.go` (SetDefaults_LimitRangeItem). Of
several LimitRanges the first by name fills in first; an API server goes by the order of its cache, which is left open.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from providers.sim.store.amounts import amount
from providers.sim.store.errors import StoreForbidden
from providers.sim.store.objects import Obj

LIMIT_RANGES: Final = "limitranges"
_BOTH: Final = ("initContainers", "containers")
_Amounts = Mapping[str, Any]


def defaulted_limit_range(obj: Obj) -> Obj:
    """A LimitRange as it is stored: limits default to `max`, requests to the default limits and then to `min`."""
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "limits": [_item(it) for it in spec.get("limits") or ()]}}


def _item(item: Obj) -> Obj:
    if item.get("type") != "Container":
        return item
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    return {**item, **({"default": limits} if limits else {}), **({"defaultRequest": requests} if requests else {})}


class LimitRanger:
    """Gives new pods the defaults of the LimitRanges of their namespace, and refuses those out of bounds."""

    def __init__(self, held: Callable[[str], list[Obj]]) -> None:
        """`held` lists all objects of a resource."""
        self._held = held

    def _ranges(self, namespace: str) -> Iterator[tuple[str, Obj]]:
        found = [it for it in self._held(LIMIT_RANGES) if it["metadata"]["namespace"] == namespace]
        for each in sorted(found, key=lambda it: str(it["metadata"]["name"])):
            yield from ((each["metadata"]["name"], item) for item in each["spec"]["limits"])

    def mutated(self, pod: Obj) -> Obj:
        """The pod with defaults where it says nothing; a limit of its own is its request before."""
        items: dict[str, list[Obj]] = {}
        for name, item in self._ranges(pod["metadata"]["namespace"]):
            items.setdefault(name, []).append(item)
        spec = pod.get("spec")
        if not items or not isinstance(spec, dict):
            return pod
        changed = {}
        for field in _BOTH:
            if isinstance(spec.get(field), list):
                changed[field] = [_filled(it, items.values()) if isinstance(it, dict) else it for it in spec[field]]
        return {**pod, "spec": {**spec, **changed}}

    def validate(self, pod: Obj) -> None:
        """Forbidden where a container or the whole pod is out of bounds."""
        name, found = pod["metadata"]["name"], []
        for _, item in self._ranges(pod["metadata"]["namespace"]):
            found += [words for amounts in _bounded(item.get("type"), pod["spec"]) for words in _faults(item, *amounts)]
        if found:
            text = found[0] if len(found) == 1 else f"[{', '.join(dict.fromkeys(found))}]"
            raise StoreForbidden(f'pods "{name}" is forbidden: {text}', {"name": name, "kind": "pods"})


def _filled(container: Obj, ranges: Iterable[Sequence[Obj]]) -> Obj:
    resources = container.get("resources") or {}
    limits = {**(resources.get("limits") or {})}
    requests = {**limits, **(resources.get("requests") or {})}
    for items in ranges:
        given = [it for it in items if it.get("type") == "Container"]
        default = {name: value for it in given for name, value in (it.get("default") or {}).items()}
        asked = {name: value for it in given for name, value in (it.get("defaultRequest") or {}).items()}
        limits, requests = {**default, **limits}, {**asked, **requests}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _bounded(kind: Any, spec: Obj) -> Iterator[tuple[_Amounts, _Amounts]]:
    if kind == "Container":
        for field in ("containers", "initContainers"):
            for container in spec.get(field) or ():
                resources = container.get("resources") or {}
                yield resources.get("requests") or {}, resources.get("limits") or {}
    elif kind == "Pod":
        yield _whole(spec, "requests"), _whole(spec, "limits")


def _whole(spec: Obj, kind: str) -> dict[str, Fraction]:
    """The sum over a pod, as its init containers run one after the other; what is said for the whole pod counts."""
    total: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    start: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        _add(total, _read(container, kind))
    for container in spec.get("initContainers") or ():
        asked = _read(container, kind)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = sidecars
        else:
            asked = {**sidecars, **{name: value + sidecars.get(name, 0) for name, value in asked.items()}}
        start = {name: max(asked.get(name, Fraction(0)), start.get(name, Fraction(0))) for name in {*asked, *start}}
    for name, value in start.items():
        total[name] = max(total.get(name, Fraction(0)), value)
    return {**total, **_read(spec, kind)}


def _read(holder: Obj, kind: str) -> dict[str, Fraction]:
    return {name: amount(value) for name, value in ((holder.get("resources") or {}).get(kind) or {}).items()}


def _add(into: dict[str, Fraction], amounts: Mapping[str, Fraction]) -> None:
    for name, value in amounts.items():
        into[name] = into.get(name, Fraction(0)) + value


def _faults(item: Obj, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    yield from _below_min(item, requests, limits)
    yield from _above_max(item, requests, limits)
    yield from _too_far_apart(item, requests, limits)


def _below_min(item: Obj, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    kind = item["type"]
    for name, bound in (item.get("min") or {}).items():
        words = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{words}.  No request is specified"
        elif _of(requests, name) < amount(bound):
            yield f"{words}, but request is {_shown(requests[name])}"
        elif name in limits and _of(limits, name) < amount(bound):
            yield f"{words}, but limit is {_shown(limits[name])}"


def _above_max(item: Obj, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    kind = item["type"]
    for name, bound in (item.get("max") or {}).items():
        words = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{words}.  No limit is specified"
        elif _of(limits, name) > amount(bound):
            yield f"{words}, but limit is {_shown(limits[name])}"
        elif name in requests and _of(requests, name) > amount(bound):
            yield f"{words}, but request is {_shown(requests[name])}"


def _too_far_apart(item: Obj, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    kind = item["type"]
    for name, bound in (item.get("maxLimitRequestRatio") or {}).items():
        words = f"{name} max limit to request ratio per {kind} is {bound}"
        asked, limit = _of(requests, name), _of(limits, name)
        if not asked:
            yield f"{words}, but no request is specified or request is 0"
        elif not limit:
            yield f"{words}, but no limit is specified or limit is 0"
        elif limit / asked > amount(bound):
            yield f"{words}, but provided ratio is {float(limit / asked):f}"


def _of(amounts: _Amounts, name: str) -> Fraction:
    value = amounts.get(name, Fraction(0))
    return value if isinstance(value, Fraction) else amount(value)


def _shown(value: Any) -> str:
    if not isinstance(value, Fraction):
        return str(value)
    return str(value.numerator) if value.denominator == 1 else f"{value * 1000}m"
