"""Pods that stand on nodes, filed by what other pods' constraints ask: labels, host ports, claims, anti-affinity.

And how those constraints are read from a pod.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.sim.controllers.filters.volumes import claim_keys
from providers.sim.controllers.matching import selector_matches
from providers.sim.controllers.objects import Key, Obj, being_deleted, labels_of

HostPort = tuple[str, str, int]
"""Address (`EVERYWHERE` for all), protocol, port."""
EVERYWHERE = "0.0.0.0"  # noqa: S104 - a value of the API, nothing listens
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The part of a pod on a node that constraints of other pods look at."""

    node: str
    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    spec: Obj
    claims: tuple[Key, ...]

    @classmethod
    def of(cls, pod: Obj, node: str) -> "BoundPod":
        """The view of a pod that stands, or is about to stand, on a node."""
        metadata, spec = pod["metadata"], pod["spec"]
        claims = tuple(claim_keys(pod)) if spec.get("volumes") else ()
        return cls(node, metadata.get("namespace") or "", labels_of(pod), being_deleted(pod), spec, claims)


@dataclass(slots=True)
class AntiAffinityTerm:
    """A required anti-affinity term of bound pods of one namespace, and on which nodes how many of them stand."""

    namespace: str
    term: Obj
    nodes: Counter[str] = field(default_factory=Counter)


def host_ports(spec: Obj) -> list[HostPort]:
    """The ports of the host that a pod takes: of its containers and of its side-cars."""
    containers = [container for container in spec.get("containers") or () if container.get("ports")]
    if "initContainers" in spec:
        sidecars = (one for one in spec["initContainers"] or () if one.get("restartPolicy") == "Always")
        containers += [container for container in sidecars if container.get("ports")]
    return [
        (port.get("hostIP") or EVERYWHERE, port.get("protocol") or "TCP", port["hostPort"])
        for container in containers
        for port in container["ports"]
        if port.get("hostPort")
    ]


def required_terms(spec: Obj, kind: str) -> list[Obj]:
    """The required terms of `podAffinity` or `podAntiAffinity`."""
    return ((spec.get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or []


def hard_constraints(spec: Obj) -> list[Obj]:
    """The constraints that keep a pod off a node."""
    given = spec.get("topologySpreadConstraints")
    if not given:
        return []
    return [constraint for constraint in given if constraint.get("whenUnsatisfiable") == "DoNotSchedule"]


class BoundPods:
    """All pods on nodes that are not over. The label index is made when first asked for."""

    def __init__(self) -> None:
        self._pods: dict[str, BoundPod] = {}
        self._by_label: dict[tuple[str, str], dict[str, BoundPod]] | None = None
        self._ports: dict[str, set[HostPort]] = {}
        self._claims_on: dict[str, Counter[Key]] = {}
        self._claim_users: Counter[Key] = Counter()
        self.anti_affinity: dict[str, AntiAffinityTerm] = {}
        """The required anti-affinity of the pods that stand, equal terms once."""

    def put(self, uid: str, pod: BoundPod) -> None:
        """Add a pod, or replace what was known of it."""
        self.drop(uid)
        self._pods[uid] = pod
        self._file(uid, pod, 1)

    def drop(self, uid: str) -> None:
        """Take a pod out, if it is here."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._file(uid, pod, -1)

    def selected(self, selector: Mapping[str, Any] | None) -> Iterable[BoundPod]:
        """The pods of all namespaces whose labels a LabelSelector selects."""
        if selector is None:
            return ()
        return [pod for pod in self._candidates(selector) if selector_matches(selector, pod.labels)]

    def ports_on(self, node: str) -> Collection[HostPort]:
        """The host ports taken on a node."""
        return self._ports.get(node) or ()

    def claims_on(self, node: str) -> Iterable[Key]:
        """The claims that pods on a node use."""
        return self._claims_on.get(node) or ()

    def users_of(self, claim: Key) -> int:
        """How many bound pods use a claim."""
        return self._claim_users[claim]

    # Indexes

    def _file(self, uid: str, pod: BoundPod, change: int) -> None:
        if self._by_label is not None:
            _file_labels(self._by_label, uid, pod, change)
        spec = pod.spec
        for key in pod.claims:
            _count(self._claim_users, key, change)
            there = self._claims_on.setdefault(pod.node, Counter())
            _count(there, key, change)
            if not there:
                del self._claims_on[pod.node]
        for port in host_ports(
            spec
        ):  # kube-scheduler keeps a set too: of two that hold one port, the first to go frees it
            taken = self._ports.setdefault(pod.node, set())
            taken.add(port) if change > 0 else taken.discard(port)
            if not taken:
                del self._ports[pod.node]
        if spec.get("affinity"):
            self._file_anti_affinity(pod, change)

    def _file_anti_affinity(self, pod: BoundPod, change: int) -> None:
        for term in required_terms(pod.spec, "podAntiAffinity"):
            text = json.dumps((pod.namespace, term), sort_keys=True)
            group = self.anti_affinity.setdefault(text, AntiAffinityTerm(pod.namespace, term))
            _count(group.nodes, pod.node, change)
            if not group.nodes:
                del self.anti_affinity[text]

    def _candidates(self, selector: Mapping[str, Any]) -> Iterable[BoundPod]:
        """The smallest bucket that must hold every selected pod; all pods where the selector asks for no value."""
        if self._by_label is None:
            self._by_label = {}
            for uid, pod in self._pods.items():
                _file_labels(self._by_label, uid, pod, 1)
        index = self._by_label
        choices = [[pair] for pair in (selector.get("matchLabels") or {}).items()]
        choices += [
            [(expression["key"], value) for value in dict.fromkeys(expression.get("values") or ())]
            for expression in selector.get("matchExpressions") or ()
            if expression["operator"] == "In"
        ]
        if not choices:
            return self._pods.values()
        smallest = min(choices, key=lambda pairs: sum(len(index.get(pair) or ()) for pair in pairs))
        return [pod for pair in smallest for pod in (index.get(pair) or {}).values()]


def _file_labels(index: dict[tuple[str, str], dict[str, BoundPod]], uid: str, pod: BoundPod, change: int) -> None:
    for pair in pod.labels.items():
        bucket = index.setdefault(pair, {})
        if change > 0:
            bucket[uid] = pod
        else:
            bucket.pop(uid, None)
            if not bucket:
                del index[pair]


def _count(counter: Counter[Any], key: Any, change: int) -> None:
    counter[key] += change
    if not counter[key]:
        del counter[key]
