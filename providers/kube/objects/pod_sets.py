"""`PodSet` <-> an entry of a Workload's `podSets`, in Kueue's spelling where Kueue has one (`workload_types.go`)."""

from collections.abc import Iterable
from functools import lru_cache
from sys import intern

from fleet.snapshot import PodSet, Slice
from fleet.snapshot.constraints import PodLabels, UnsupportedConstraint
from model.kinds import RequirementTerm
from model.quantity import Resources, canonical_resources, format_amount
from providers.kube.objects.constraint_objects import StoredConstraints, constraint_fields, constraints_from
from providers.kube.objects.node_terms import requirement_of
from providers.kube.objects.pod_templates import WireToleration, toleration_object, tolerations_of
from providers.kube.objects.shapes import EMPTY, JsonObject, Wire, set_fields


class _Requirement(Wire, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _Layer(Wire, frozen=True):
    topology: str
    size: int


class _TopologyRequest(Wire, frozen=True):
    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    pod_set_group_name: str = ""
    pod_set_slice_required_topology: str = ""
    pod_set_slice_size: int = 0
    podset_slice_required_topology_constraints: list[_Layer] | None = None


class _Unsupported(Wire, frozen=True):
    path: str
    message: str = ""


class WirePodSet(StoredConstraints, frozen=True, kw_only=True):
    """One entry of `podSets`."""

    name: str
    count: int
    min_count: int | None = None
    core: int | None = None
    part_of: str = ""
    requests: dict[str, str | int] | None = None
    node_selector: dict[str, str] | None = None
    required_affinity: list[list[_Requirement]] | None = None
    tolerations: list[WireToleration] | None = None
    labels: dict[str, str] | None = None
    runtime_class_name: str = ""
    unsupported: list[_Unsupported] | None = None
    forbidden: list[str] | None = None
    topology_request: _TopologyRequest = _TopologyRequest()


def pod_set_object(pod_set: PodSet) -> JsonObject:
    """A pod set as the Workload holds it."""
    counts = {"name": pod_set.name, "count": pod_set.count, "minCount": pod_set.min_count, "core": pod_set.core}
    return {key: value for key, value in counts.items() if value is not None} | set_fields(
        requests=amounts_object(pod_set.requests),
        nodeSelector=dict(pod_set.node_selector),
        requiredAffinity=[[_requirement_object(term) for term in terms] for terms in pod_set.required_affinity],
        tolerations=[toleration_object(toleration) for toleration in pod_set.tolerations],
        labels=dict(pod_set.labels),
        **constraint_fields(pod_set.constraints),
        runtimeClassName=pod_set.runtime_class,
        unsupported=[{"path": it.path, "message": it.words} for it in pod_set.unsupported],
        forbidden=list(pod_set.forbidden),
        topologyRequest=_topology_object(pod_set),
        partOf=pod_set.part_of,
    )


def pod_set_from(found: WirePodSet, namespace: str) -> PodSet:
    """The pod set an entry of a Workload of that namespace holds."""
    topology = found.topology_request
    return PodSet(
        name=found.name,
        count=found.count,
        requests=_amounts(tuple((found.requests or {}).items())),
        node_selector=found.node_selector or EMPTY,
        required_affinity=tuple(_conjunction(terms) for terms in found.required_affinity or ()),
        tolerations=tolerations_of(found.tolerations),
        namespace=intern(namespace),
        labels=pod_labels(tuple((found.labels or {}).items())),
        constraints=constraints_from(found, namespace),
        runtime_class=found.runtime_class_name,
        unsupported=tuple(UnsupportedConstraint(it.path, it.message) for it in found.unsupported or ()),
        forbidden=tuple(found.forbidden or ()),
        required_topology=topology.required,
        preferred_topology=topology.preferred,
        any_topology=topology.unconstrained,
        slices=_slices(topology),
        group=topology.pod_set_group_name,
        min_count=found.min_count,
        core=found.core,
        part_of=found.part_of,
    )


def amounts_object(amounts: Resources) -> dict[str, str]:
    """Quantities as Kubernetes writes them, sorted by resource."""
    return {name: format_amount(name, amount) for name, amount in sorted(amounts.items())}


@lru_cache(maxsize=4096)
def _amounts(items: tuple[tuple[str, str | int], ...]) -> Resources:
    return canonical_resources(dict(items))


@lru_cache(maxsize=4096)
def pod_labels(items: tuple[tuple[str, str], ...]) -> PodLabels:
    """Returns labels as they are kept, in order; those of equal pods, or jobs, are one value."""
    return tuple(sorted((intern(key), intern(text)) for key, text in items))


def _requirement_object(term: RequirementTerm) -> JsonObject:
    return {"key": term.key, "operator": term.operator} | set_fields(values=list(term.values))


def _conjunction(found: Iterable[_Requirement]) -> tuple[RequirementTerm, ...]:
    return tuple(requirement_of(one.key, one.operator, tuple(one.values or ())) for one in found)


def _topology_object(pod_set: PodSet) -> JsonObject:
    """One layer of slices has fields of its own, several are a list."""
    layers = pod_set.slices
    one = layers[0] if len(layers) == 1 else Slice("", 0)
    return set_fields(
        required=pod_set.required_topology,
        preferred=pod_set.preferred_topology,
        unconstrained=pod_set.any_topology,
        podSetGroupName=pod_set.group,
        podSetSliceRequiredTopology=one.level,
        podSetSliceSize=one.size,
        podsetSliceRequiredTopologyConstraints=[
            {"topology": layer.level, "size": layer.size} for layer in layers if len(layers) > 1
        ],
    )


def _slices(found: _TopologyRequest) -> tuple[Slice, ...]:
    layers = found.podset_slice_required_topology_constraints
    if layers:
        return tuple(Slice(layer.topology, layer.size) for layer in layers)
    if found.pod_set_slice_required_topology:
        return (Slice(found.pod_set_slice_required_topology, found.pod_set_slice_size),)
    return ()
