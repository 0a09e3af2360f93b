"""Nothing that kube-scheduler filters by is overlooked: another value of any one field is seen, or refused by name.

Every field has values that mean different things, whatever the other fields say; where they would not, the draw is
left out.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.snapshot import Pod, PodSet
from fleet.snapshot.device_claims import NO_CLAIMS, pods_with_claims
from providers.kube.objects import DECODERS, decode_pod
from providers.kube.objects.affinities import (
    WireAffinity,
    WireNodeAffinity,
    WirePodAffinity,
    WirePodTerm,
    WirePreferredNodes,
    WireSpread,
    WireWeightedPodTerm,
)
from providers.kube.objects.node_terms import WireNodeTerm
from providers.kube.objects.refused_fields import KNOWN
from providers.kube.objects.shapes import Wire
from tests.providers.kube.objects.values import unhurried

SCHEMAS = Path(__file__).parents[4] / "providers/sim/store/published.json.gz"
Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB, FEW = (
    {"matchLabels": {"app": "web"}},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
)
SELECTORS = (None, {}, WEB, FEW, {"matchLabels": {"app": "db"}})
KEYS = ((), ("tier",), ("tier", "zone"))


def on_node(operator: str, *values: str) -> Obj:
    return {"matchExpressions": [{"key": "cores", "operator": operator, "values": list(values)}]}


def term_fields(name: str, *, weighted: bool = False) -> Iterator[tuple[str, tuple[Any, ...]]]:
    yield f"{name}.topologyKey", ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    yield f"{name}.labelSelector", SELECTORS
    yield f"{name}.namespaces", ((), ("a",), ("a", "b"))
    yield f"{name}.namespaceSelector", (None, {}, {"matchLabels": {"team": "x"}})
    yield f"{name}.matchLabelKeys", KEYS
    yield f"{name}.mismatchLabelKeys", KEYS
    if weighted:
        yield f"{name}.weight", (1, 50)


SPREAD: Mapping[str, tuple[Any, ...]] = {
    "spread.topologyKey": ("kubernetes.io/hostname", "topology.kubernetes.io/zone"),
    "spread.maxSkew": (1, 2),
    "spread.whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "spread.labelSelector": SELECTORS,
    "spread.minDomains": (None, 2, 3),
    "spread.nodeAffinityPolicy": (None, "Ignore"),
    "spread.nodeTaintsPolicy": (None, "Honor"),
    "spread.matchLabelKeys": KEYS,
}
NEAR, FAR = dict(term_fields("near")), dict(term_fields("far"))
LIKED, DISLIKED = dict(term_fields("liked", weighted=True)), dict(term_fields("disliked", weighted=True))
STANDING: Mapping[str, tuple[Any, ...]] = {
    **NEAR,
    **FAR,
    **LIKED,
    **DISLIKED,
    **SPREAD,
    "labels.app": ("web", "db"),
    "labels.more": (None, "x"),
    "port.hostPort": (None, 80, 81),
    "port.protocol": ("TCP", "UDP"),
    "port.hostIP": ("", "10.0.0.1"),
    "port.sidecar": (None, 90, 91),
    "port.ofHost": (False, True),
    "requests.cpu": ("1", "2"),
    "requests.ofSidecar": ("1", "2"),
    "requests.ofInit": ("8Gi", "9Gi"),
    "limits.gpu": ("1", "2"),
    "volume.claim": ("", "data", "other"),
    "volume.ephemeral": (None, "", "gp3"),
}
"""Fields of a pod that others see while it stands."""
ADMITTED: Mapping[str, tuple[Any, ...]] = {"overhead.cpu": ("1", "2")}
"""And what admission has added."""
WAITING: Mapping[str, tuple[Any, ...]] = {
    "nodeSelector": ({}, {"a": "b"}, {"a": "c"}),
    "nodes.term": (
        *(on_node("In", "1"), on_node("In", "1", "2"), on_node("NotIn", "1"), on_node("Exists")),
        *(on_node("DoesNotExist"), on_node("Gt", "1"), on_node("Lt", "1")),
    ),
    "nodes.field": (None, "n1", "n2"),
    "nodes.other": (None, on_node("In", "5"), on_node("Exists", "5"), on_node("Like", "5"), on_node("Gt", "x")),
    "nodes.weight": (1, 50),
    "nodes.liked": (on_node("In", "1"), on_node("Exists")),
    "tolerations": ((), ({"key": "a", "operator": "Exists"},), ({"key": "a", "value": "b", "effect": "NoExecute"},)),
    "resourceClaims": ((), ({"name": "gpu"},)),
    "schedulingGates": ((), ({"name": "a/b"},)),
    "volume.attached": ((), ("awsElasticBlockStore",), ("gcePersistentDisk",)),
}
"""And of one that waits."""
TEMPLATE: Mapping[str, tuple[Any, ...]] = {
    "runtimeClassName": ("kata", "gvisor"),
    "nodeName": ("", "n1"),
    "unknown": (None, 3),
    "spread.whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway", "Perhaps"),
    "spread.nodeAffinityPolicy": (None, "Ignore", "Perhaps"),
    "spread.nodeTaintsPolicy": (None, "Honor", "Perhaps"),
}
"""And of a template, which nobody has validated yet."""


def selecting(chosen: Obj, name: str, *fields: str) -> Obj:
    found = {field: chosen[f"{name}.{field}"] for field in ("topologyKey", "labelSelector", "matchLabelKeys", *fields)}
    return {key: value for key, value in found.items() if value is not None}


def pod_term(chosen: Obj, name: str) -> Obj:
    return selecting(chosen, name, "namespaces", "namespaceSelector", "mismatchLabelKeys")


def liked(chosen: Obj, name: str) -> list[Obj]:
    return [{"weight": chosen[f"{name}.weight"], "podAffinityTerm": pod_term(chosen, name)}]


def affinity(chosen: Obj) -> Obj:
    found: Obj = {
        "podAffinity": {REQUIRED: [pod_term(chosen, "near")], PREFERRED: liked(chosen, "liked")},
        "podAntiAffinity": {REQUIRED: [pod_term(chosen, "far")], PREFERRED: liked(chosen, "disliked")},
    }
    if "nodes.term" in chosen:
        named = [{"key": "metadata.name", "operator": "In", "values": [it]} for it in [chosen["nodes.field"]] if it]
        terms = [{**chosen["nodes.term"], "matchFields": named}, *filter(None, [chosen["nodes.other"]])]
        wished = [{"weight": chosen["nodes.weight"], "preference": chosen["nodes.liked"]}]
        found["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: wished}
    return found


def containers(chosen: Obj) -> Obj:
    taken = {"containerPort": 70, **{key: chosen[f"port.{key}"] for key in ("hostPort", "protocol", "hostIP")}}
    beside = {"containerPort": 60, "hostPort": chosen["port.sidecar"]}
    asked = {"requests": {"cpu": chosen["requests.cpu"]}, "limits": {"nvidia.com/gpu": chosen["limits.gpu"]}}
    sidecar = {"requests": {"cpu": chosen["requests.ofSidecar"]}}
    first = {"requests": {"memory": chosen["requests.ofInit"]}}
    return {
        "containers": [{"name": "c", "resources": asked, "ports": [taken]}],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": sidecar, "ports": [beside]},
            {"name": "i", "resources": first, "ports": [{"containerPort": 7, "hostPort": 7}]},
        ],
        "hostNetwork": chosen["port.ofHost"],
    }


def volumes(chosen: Obj) -> list[Obj]:
    found: list[Obj] = [{"name": "tmp", "emptyDir": {}}]
    if claim := chosen["volume.claim"]:
        found.append({"name": "d", "persistentVolumeClaim": {"claimName": claim}})
    if (storage := chosen["volume.ephemeral"]) is not None:
        asked = {"storageClassName": storage} if storage else {}
        found.append({"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}})
    return [*found, *({"name": "a", source: {}} for source in chosen.get("volume.attached", ()))]


def built(chosen: Obj) -> Obj:
    """The pod template of a choice, a value for each field."""
    spread = selecting(chosen, "spread", *(name.partition(".")[2] for name in SPREAD))
    labels = {"app": chosen["labels.app"], "tier": "front", "zone": "z", "more": chosen["labels.more"]}
    plain = {name: chosen[name] for name in chosen if "." not in name}
    return {
        "metadata": {"labels": {key: value for key, value in labels.items() if value}},
        "spec": {
            **plain,
            **containers(chosen),
            "affinity": affinity(chosen),
            "topologySpreadConstraints": [spread],
            "volumes": volumes(chosen),
            **({"overhead": {"cpu": chosen["overhead.cpu"]}} if "overhead.cpu" in chosen else {}),
        },
    }


def means_nothing(name: str, chosen: Obj) -> bool:
    """Whether a field says nothing beside the others: label keys without a selector, the address of no port."""
    owner, _, field = name.partition(".")
    if field in {"matchLabelKeys", "mismatchLabelKeys"}:
        return chosen[f"{owner}.labelSelector"] is None
    if field in {"protocol", "hostIP"}:
        return chosen["port.hostPort"] is None and not chosen["port.ofHost"]
    return field == "ofHost" and None not in (chosen["port.hostPort"], chosen["port.sidecar"])


def changes(*tables: Mapping[str, tuple[Any, ...]]) -> st.SearchStrategy[tuple[str, Obj, Obj]]:
    """A field, a template, and the same with another value there."""
    fields = {name: values for table in tables for name, values in table.items()}

    @st.composite
    def draw_change(draw: st.DrawFn) -> tuple[str, Obj, Obj]:
        chosen = {name: draw(st.sampled_from(values)) for name, values in fields.items()}
        name = draw(st.sampled_from(sorted(fields)))
        other = draw(st.sampled_from([value for value in fields[name] if value != chosen[name]]))
        changed = {**chosen, name: other}
        assume(not means_nothing(name, chosen) and not means_nothing(name, changed))
        return name, built(chosen), built(changed)

    return draw_change()


def templated(template: Obj) -> PodSet:
    """As deciders see it: what pods claim has been looked up, here among no claims at all."""
    body = {"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {"template": template}}
    return pods_with_claims(DECODERS["batch", "Job"](msgspec.json.encode(body)).pod_sets[0], NO_CLAIMS)


def stored(template: Obj, **labels: str) -> Pod:
    metadata = {"name": "p", "namespace": "n", "uid": "u", "labels": {**template["metadata"]["labels"], **labels}}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": template["spec"]}))


@unhurried
@given(change=changes(STANDING, WAITING, TEMPLATE))
def test_a_template_with_another_value_is_another_pod_set(change: tuple[str, Obj, Obj]) -> None:
    name, before, after = change
    assert templated(before) != templated(after), name


@unhurried
@given(change=changes(STANDING, WAITING, ADMITTED))
def test_a_pod_of_a_group_with_another_value_asks_for_something_else(change: tuple[str, Obj, Obj]) -> None:
    name, before, after = change
    group = {"muster.dev/queue": "q", "muster.dev/pod-group-name": "g"}
    one, other = stored(before, **group).member, stored(after, **group).member
    assert one is not None
    assert other is not None
    assert replace(one.shape, name="") != replace(other.shape, name=""), name


@unhurried
@given(change=changes(STANDING, ADMITTED))
def test_a_pod_that_stands_with_another_value_is_seen_otherwise(change: tuple[str, Obj, Obj]) -> None:
    name, before, after = change
    assert stored(before) != stored(after), name


@unhurried
@given(change=changes(STANDING, WAITING))
def test_a_pod_asks_what_its_template_does(change: tuple[str, Obj, Obj]) -> None:
    """So that pods that stand count for those of the same template that are to come."""
    template = change[1]
    pod_set, pod = templated(template), stored(template)
    assert (pod_set.constraints, pod_set.requests, pod_set.labels) == (pod.constraints, pod.requests, pod.labels)


FIELDS = {**STANDING, **WAITING, **TEMPLATE}
PLAIN = {name: values[0] for name, values in FIELDS.items()}
SPEAKING = {name: WEB for name in FIELDS if name.endswith(".labelSelector")} | {"port.hostPort": 80}


@pytest.mark.parametrize("name", FIELDS)
def test_every_value_of_a_field_is_told_from_every_other(name: str) -> None:
    chosen = [{**PLAIN, **SPEAKING, name: value} for value in FIELDS[name]]
    found = [templated(built(each)) for each in chosen]
    assert all(one != other for one, other in combinations(found, 2))


def published(kind: str) -> set[str]:
    """The fields of a type of `core/v1`, by the schema that Kubernetes publishes."""
    schemas = json.loads(gzip.decompress(SCHEMAS.read_bytes()))["definitions"]
    return set(schemas[f"io.k8s.api.core.v1.{kind}"]["properties"])


def test_every_field_of_a_pod_is_known() -> None:
    """A field of a later Kubernetes is refused until somebody has looked at it."""
    assert published("PodSpec") == KNOWN


@pytest.mark.parametrize("source", sorted(published("Volume") - {"name"}))
def test_every_kind_of_volume_is_known(source: str) -> None:
    template = built(PLAIN)
    template["spec"]["volumes"] = [{"name": "v", source: {}}]
    assert not any("not known" in refused.words for refused in templated(template).unsupported)


STRUCTS: Mapping[str, type[Wire]] = {
    "Affinity": WireAffinity,
    "NodeAffinity": WireNodeAffinity,
    "NodeSelectorTerm": WireNodeTerm,
    "PreferredSchedulingTerm": WirePreferredNodes,
    "PodAffinity": WirePodAffinity,
    "PodAntiAffinity": WirePodAffinity,
    "PodAffinityTerm": WirePodTerm,
    "WeightedPodAffinityTerm": WireWeightedPodTerm,
    "TopologySpreadConstraint": WireSpread,
}


@pytest.mark.parametrize("kind", STRUCTS)
def test_every_field_of_affinity_and_spread_is_read(kind: str) -> None:
    assert set(STRUCTS[kind].__struct_encode_fields__) == published(kind)
