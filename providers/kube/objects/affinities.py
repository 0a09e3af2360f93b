"""`core/v1` Affinity and topologySpreadConstraints -> what a pod asks of nodes and of other pods.

What kube-scheduler could not read is left out, so that nothing raises here, and told (`UnsupportedConstraint`).
Equal texts are read once: of 100,000 pods those that have such fields have a few hundred different ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from fleet.snapshot.constraints import (
    UNCONSTRAINED,
    PodAffinityTerm,
    PodConstraints,
    PodLabels,
    PodSelector,
    PreferredNodes,
    PreferredPods,
    TopologySpreadConstraint,
    UnsupportedConstraint,
)
from model.kinds import RequirementTerm
from model.labels import HOSTNAME
from providers.kube.objects.label_selectors import WireLabelRequirement, WireSelector, pod_selector, with_label_keys
from providers.kube.objects.node_terms import WireNodeTerm, conjunction_of
from providers.kube.objects.shapes import Wire

S = TypeVar("S")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class WirePodTerm(Wire, frozen=True, forbid_unknown_fields=True):
    """A `PodAffinityTerm`."""

    topology_key: str = ""
    label_selector: WireSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: WireSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WireWeightedPodTerm(Wire, frozen=True, forbid_unknown_fields=True):
    """A `WeightedPodAffinityTerm`."""

    weight: int
    pod_affinity_term: WirePodTerm


class WirePodAffinity(Wire, frozen=True, forbid_unknown_fields=True):
    """A `PodAffinity` or `PodAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: list[WirePodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WireWeightedPodTerm] | None = None


class WirePreferredNodes(Wire, frozen=True, forbid_unknown_fields=True):
    """A `PreferredSchedulingTerm`."""

    weight: int
    preference: WireNodeTerm


class _NodeSelector(Wire, frozen=True, forbid_unknown_fields=True):
    node_selector_terms: list[WireNodeTerm] | None = None


class WireNodeAffinity(Wire, frozen=True, forbid_unknown_fields=True):
    """A `NodeAffinity`."""

    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[WirePreferredNodes] | None = None


class WireAffinity(Wire, frozen=True, forbid_unknown_fields=True):
    """An `Affinity`."""

    node_affinity: WireNodeAffinity | None = None
    pod_affinity: WirePodAffinity | None = None
    pod_anti_affinity: WirePodAffinity | None = None


class WireSpread(Wire, frozen=True, forbid_unknown_fields=True):
    """A `TopologySpreadConstraint`."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: WireSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


_STRUCTS: Final = (
    *(WireLabelRequirement, WireSelector, WirePodTerm, WireWeightedPodTerm, WirePodAffinity, WirePreferredNodes),
    *(_NodeSelector, WireNodeAffinity, WireAffinity, WireSpread, WireNodeTerm),
)
_KNOWN: Final = frozenset(name for struct in _STRUCTS for name in struct.__struct_encode_fields__)


class AffinityAndSpread(NamedTuple):
    """An `AffinityAndSpread` is what those fields of a pod ask, and what of them could not be read."""

    required_nodes: tuple[tuple[RequirementTerm, ...], ...] = ()
    constraints: PodConstraints = UNCONSTRAINED
    """Without ports and volumes."""
    unsupported: tuple[UnsupportedConstraint, ...] = ()


ANYWHERE: Final = AffinityAndSpread()
NOWHERE: Final = (RequirementTerm(key=HOSTNAME, operator="DoesNotExist"),)
"""Stands for node affinity that no node meets."""
_KEYS: Final = b"abelKeys"
"""Part of the names of the fields that look at the pod's own labels."""
_LONGEST: Final = 256
"""Most characters of a path, or of words that quote what somebody wrote."""
_LONG: Final = 1 << 16
"""Bytes of fields that are read anew each time, rather than that thousands of them are kept."""
_NO_LATE: Final[frozenset[str]] = frozenset()


def affinity_and_spread(
    namespace: str,
    affinity: bytes,
    spread: bytes,
    labels: PodLabels,
    late: frozenset[str] = _NO_LATE,
) -> AffinityAndSpread:
    """What a pod with these labels asks by its `affinity` and `topologySpreadConstraints` (JSON, empty = absent).

    `late` are label keys, or their domains, that the controller of a job sets when it makes pods: a selector that looks
    at one that `labels` do not have says something that cannot be known yet, and is told.
    """
    if not affinity and not spread:
        return ANYWHERE
    looks = bool(late) or _KEYS in affinity or _KEYS in spread
    read = _read_together if len(affinity) + len(spread) < _LONG else _read_together.__wrapped__
    return read(namespace, affinity, spread, labels if looks else (), late)


@lru_cache(maxsize=4096)
def _read_together(
    namespace: str, affinity: bytes, spread: bytes, labels: PodLabels, late: frozenset[str]
) -> AffinityAndSpread:
    reading = _Reading(namespace, dict(labels), late)
    asked = reading.decoded(affinity, WireAffinity, "spec.affinity") if affinity else None
    asked = asked or WireAffinity()
    spreads = reading.decoded(spread, list[WireSpread], "spec.topologySpreadConstraints") if spread else None
    nodes, near, far = asked.node_affinity, asked.pod_affinity, asked.pod_anti_affinity
    required = reading.required_nodes(nodes)
    constraints = PodConstraints(
        affinity=reading.required_pods(near, "spec.affinity.podAffinity"),
        anti_affinity=reading.required_pods(far, "spec.affinity.podAntiAffinity"),
        spread=reading.spread(spreads or ()),
        preferred_nodes=reading.preferred_nodes(nodes),
        preferred_pods=(
            *reading.preferred_pods(near, "spec.affinity.podAffinity", 1),
            *reading.preferred_pods(far, "spec.affinity.podAntiAffinity", -1),
        ),
    )
    return AffinityAndSpread(required, constraints, tuple(reading.unsupported))


class _Reading:
    """Reads the fields of one pod, and collects what cannot be read."""

    def __init__(self, namespace: str, labels: Mapping[str, str], late: frozenset[str]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.late = late
        self.unsupported: list[UnsupportedConstraint] = []

    def decoded(self, text: bytes, kind: type[S], path: str) -> S | None:
        """The value of that type; without the fields that are not known, which are told."""
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError as error:
            words, _, where = str(error).partition(" - at `$")
            self._tell(path + where.rstrip("`"), words)
        try:
            return msgspec.convert(_pruned(msgspec.json.decode(text)), kind)
        except msgspec.ValidationError:
            return None

    def required_nodes(self, found: WireNodeAffinity | None) -> tuple[tuple[RequirementTerm, ...], ...]:
        """The alternatives. A term that is empty or malformed matches no node (kube-scheduler)."""
        required = found.required_during_scheduling_ignored_during_execution if found else None
        if required is None:
            return ()
        path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
        terms = (self._node_term(term, f"{path}[{n}]") for n, term in enumerate(required.node_selector_terms or ()))
        return tuple(term for term in terms if term) or (NOWHERE,)

    def preferred_nodes(self, found: WireNodeAffinity | None) -> tuple[PreferredNodes, ...]:
        """The preferences; an empty one counts for nothing (`core/v1` PreferredSchedulingTerm)."""
        preferred = found.preferred_during_scheduling_ignored_during_execution if found else None
        path = f"spec.affinity.nodeAffinity.{PREFERRED}"
        read = [
            (one.weight, self._node_term(one.preference, f"{path}[{n}].preference"))
            for n, one in enumerate(preferred or ())
        ]
        return tuple(PreferredNodes(weight, terms) for weight, terms in read if terms)

    def required_pods(self, found: WirePodAffinity | None, path: str) -> tuple[PodAffinityTerm, ...]:
        """The terms that must hold."""
        terms = found.required_during_scheduling_ignored_during_execution if found else None
        return tuple(self._pod_term(term, f"{path}.{REQUIRED}[{n}]") for n, term in enumerate(terms or ()))

    def preferred_pods(self, found: WirePodAffinity | None, path: str, sign: int) -> Iterable[PreferredPods]:
        """The terms that count for or against (`sign`) a place."""
        terms = found.preferred_during_scheduling_ignored_during_execution if found else None
        for n, one in enumerate(terms or ()):
            term = self._pod_term(one.pod_affinity_term, f"{path}.{PREFERRED}[{n}].podAffinityTerm")
            yield PreferredPods(sign * one.weight, term)

    def spread(self, found: Sequence[WireSpread]) -> tuple[TopologySpreadConstraint, ...]:
        """The constraints, with the defaults of `core/v1`."""
        return tuple(self._spread(one, f"spec.topologySpreadConstraints[{n}]") for n, one in enumerate(found))

    def _spread(self, found: WireSpread, path: str) -> TopologySpreadConstraint:
        self._check_topology_key(found.topology_key, path)
        if found.max_skew < 1:
            self._tell(f"{path}.maxSkew", "is 1 at least")
        for name, value, known in (
            ("whenUnsatisfiable", found.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway")),
            ("nodeAffinityPolicy", found.node_affinity_policy or "Honor", ("Honor", "Ignore")),
            ("nodeTaintsPolicy", found.node_taints_policy or "Ignore", ("Honor", "Ignore")),
        ):
            if value not in known:
                self._tell(f"{path}.{name}", f"{value!r} is neither {' nor '.join(known)}")
        return TopologySpreadConstraint(
            topology_key=found.topology_key,
            max_skew=found.max_skew,
            selector=self._selector(found.label_selector, path, found.match_label_keys, None),
            hard=found.when_unsatisfiable != "ScheduleAnyway",
            min_domains=found.min_domains or 1,
            honors_affinity=found.node_affinity_policy != "Ignore",
            honors_taints=found.node_taints_policy == "Honor",
        )

    def _node_term(self, term: WireNodeTerm, path: str) -> tuple[RequirementTerm, ...]:
        try:
            return conjunction_of(term)
        except ValueError as error:
            self._tell(path, str(error))
            return ()

    def _pod_term(self, term: WirePodTerm, path: str) -> PodAffinityTerm:
        """The pod's own namespace stands for none given (`core/v1`)."""
        self._check_topology_key(term.topology_key, path)
        own = not term.namespaces and term.namespace_selector is None
        whose = term.namespace_selector
        return PodAffinityTerm(
            topology_key=term.topology_key,
            selector=self._selector(term.label_selector, path, term.match_label_keys, term.mismatch_label_keys),
            namespaces=frozenset((self.namespace,)) if own else frozenset(term.namespaces or ()),
            namespace_selector=None if whose is None else self._read(whose, f"{path}.namespaceSelector"),
        )

    def _selector(
        self, found: WireSelector | None, path: str, alike: Sequence[str] | None, unlike: Sequence[str] | None
    ) -> PodSelector | None:
        """The selector with the pod's own labels merged in. One that is not there selects none, whatever the keys."""
        if found is None:
            if alike or unlike:
                self._tell(f"{path}.labelSelector", "is needed beside label keys; without it no pod is selected")
            return None
        self._check_known(found.keys, f"{path}.labelSelector")
        self._check_known(alike or (), f"{path}.matchLabelKeys")
        self._check_known(unlike or (), f"{path}.mismatchLabelKeys")
        selector = self._read(found, f"{path}.labelSelector")
        if selector is None:
            return None
        try:
            return with_label_keys(with_label_keys(selector, alike, "In", self.labels), unlike, "NotIn", self.labels)
        except ValueError:
            self._tell(f"{path}.matchLabelKeys", "names a label of the pod that no API server would take")
            return None

    def _read(self, found: WireSelector, path: str) -> PodSelector | None:
        try:
            return pod_selector(found)
        except ValueError:
            self._tell(path, "is not a label selector that an API server would take")
            return None

    def _check_topology_key(self, key: str, path: str) -> None:
        if not key:
            self._tell(f"{path}.topologyKey", "is needed: the node label whose values are the domains")

    def _check_known(self, keys: Iterable[str], path: str) -> None:
        for key in keys:
            if key not in self.labels and (key in self.late or key.partition("/")[0] in self.late):
                self._tell(path, f"label {key} is set only when the pods are made; select by labels of the template")

    def _tell(self, path: str, words: str) -> None:
        self.unsupported.append(UnsupportedConstraint(path[:_LONGEST], words[:_LONGEST]))


def _pruned(value: Any, *, whole: bool = False) -> Any:
    """The JSON without fields that are not known; below `matchLabels` every key is one."""
    if isinstance(value, dict):
        return {k: _pruned(v, whole=k == "matchLabels") for k, v in value.items() if whole or k in _KNOWN}
    return [_pruned(each) for each in value] if isinstance(value, list) else value
