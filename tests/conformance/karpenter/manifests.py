"""Rows in the words of Kubernetes and Karpenter: pods, NodePools and their class as users would write them.

Nothing is decided here. A word that is not known declines the row by its name (`Declined`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from model import labels

Given = Mapping[str, Any]
Obj = dict[str, Any]
NAMESPACE = "default"
_NEVER_DISRUPTED: Obj = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}
_KUBERNETES_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_POD_WORDS = frozenset({"app", "arch", "instance_type", "labels", "name", "node_affinity", "node_selector", "spread"})
_MORE_POD_WORDS = frozenset(
    {"zone", "preferred_zone", "cpu_m", "memory_bytes", "preferred_node_affinity", "affinity", "anti_affinity"}
)
_POOL_WORDS = frozenset(
    {"name", "requirements", "labels", "weight", "limits", "replicas", "termination_grace_period_s", "changed"}
)
_DISRUPTION_WORDS = frozenset({"consolidation_policy", "consolidate_after", "budgets"})
_SPREAD_WORDS = frozenset({"topology_key", "max_skew", "when_unsatisfiable", "min_domains", "match", "label_selector"})
_MORE_SPREAD_WORDS = frozenset({"match_own_label", "node_affinity_policy", "node_taints_policy"})


class Declined(Exception):
    """A row says something that the translation does not know."""


def only(what: str, given: Given, known: Iterable[str]) -> None:
    """Decline words that are not known."""
    if unknown := sorted(given.keys() - set(known)):
        raise Declined(f"{what}: {', '.join(unknown)}")


# -- pods -------------------------------------------------------------------------------------------------------------


def pod_manifest(name: str, given: Given) -> Obj:
    """One pending pod. A word with a slash, or one that Kubernetes knows as a resource, is an amount it asks for."""
    resources = {word for word in given if "/" in word or word in {"ephemeral-storage", "hugepages-2Mi"}}
    only("pod", given, _POD_WORDS | _MORE_POD_WORDS | resources)
    own_affinity = {word: listed(given.get(word)) for word in ("affinity", "anti_affinity")}
    own = {**({"app": given["app"]} if "app" in given else {}), **given.get("labels", {})}
    chosen = {labels.ZONE: given.get("zone"), labels.INSTANCE_TYPE: given.get("instance_type")}
    chosen |= {labels.ARCH: given.get("arch"), **given.get("node_selector", {})}
    asked = {"cpu": f"{given.get('cpu_m', 0)}m", "memory": str(given.get("memory_bytes", 0))}
    asked |= {word: str(given[word]) for word in sorted(resources)}
    container = {"name": "c", "image": "i", "resources": {"requests": asked, "limits": _extended(asked)}}
    spec = {
        "containers": [container],
        "nodeSelector": {key: value for key, value in chosen.items() if value},
        "affinity": {
            "nodeAffinity": _node_affinity(given),
            "podAffinity": _peers(own_affinity["affinity"]),
            "podAntiAffinity": _peers(own_affinity["anti_affinity"]),
        },
        "topologySpreadConstraints": [spread_manifest(each, own) for each in listed(given.get("spread"))],
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": own}, "spec": spec}


def _extended(asked: Mapping[str, str]) -> dict[str, str]:
    return {name: amount for name, amount in asked.items() if "/" in name}


def _node_affinity(given: Given) -> Obj:
    found: Obj = {}
    if terms := list(_expressions(given.get("node_affinity", ()))):
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    liked = list(given.get("preferred_node_affinity", ()))
    if zone := given.get("preferred_zone"):
        liked.append({"key": labels.ZONE, "op": "In", "values": [zone]})
    if liked:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [_preferred(each) for each in liked]
    return found


def _preferred(given: Given) -> Obj:
    terms = list(_expressions([{name: value for name, value in given.items() if name != "weight"}]))
    return {"weight": given.get("weight", 1), "preference": {"matchExpressions": terms}}


def _peers(given: Iterable[Given]) -> Obj:
    terms = []
    for each in given:
        only("pod affinity", each, {"topology_key", "match"})
        terms.append({"topologyKey": each["topology_key"], "labelSelector": {"matchLabels": each.get("match", {})}})
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms} if terms else {}


def _expressions(given: Iterable[Given]) -> Iterator[Obj]:
    for each in given:
        only("node affinity", each, {"key", "op", "values"})
        if each["op"] not in _KUBERNETES_OPERATORS:
            raise Declined(f"node affinity: operator {each['op']}")
        yield {"key": each["key"], "operator": each["op"], "values": list(each.get("values", ()))}


def listed(given: Any) -> list[Given]:
    """One of something may stand without a list around it."""
    return [given] if isinstance(given, dict) else list(given or ())


def spread_manifest(given: Given, own: Mapping[str, str]) -> Obj:
    """A spread constraint, over pods with the pod's own labels where it does not say which."""
    only("spread", given, _SPREAD_WORDS | _MORE_SPREAD_WORDS)
    match = given.get("match")
    chosen = {key: _label_value(value) for key, value in match.items()} if isinstance(match, dict) else dict(own)
    selector: Obj | None = {"matchLabels": chosen}
    if "label_selector" in given:
        said = given["label_selector"]
        selector = None if said is None else {"matchLabels": said}
    found = {
        "topologyKey": given["topology_key"],
        "maxSkew": given["max_skew"],
        "whenUnsatisfiable": given.get("when_unsatisfiable", "DoNotSchedule"),
        "labelSelector": selector,
        "minDomains": given.get("min_domains"),
        "nodeAffinityPolicy": given.get("node_affinity_policy"),
        "nodeTaintsPolicy": given.get("node_taints_policy"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _label_value(said: str) -> str:
    """A value as an API server would take it, where a row describes one in prose."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", said).strip("-")


# -- what is declared -------------------------------------------------------------------------------------------------


def repository(
    pools: Iterable[Given], reservations: Iterable[str] = (), overlays: Iterable[Obj] = ()
) -> dict[str, bytes]:
    """The files of a fleet: NodePools of Karpenter, their class, and NodeOverlays as they are."""
    classes = (_node_class(name, reservations) for name in ("default", "other"))
    every = [*(_node_pool(number, each) for number, each in enumerate(pools)), *classes, *overlays]
    return {f"{number:03}.yaml": json.dumps(each).encode() for number, each in enumerate(every)}


def _manifest(version: str, kind: str, name: str, spec: Obj, **more: str) -> Obj:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **more}, "spec": spec}


def pool_name(number: int, given: Given) -> str:
    """The name of a pool, numbered where the row has none."""
    return str(given.get("name", f"pool-{number}"))


def _node_pool(number: int, given: Given) -> Obj:
    only("node pool", given, _POOL_WORDS | _DISRUPTION_WORDS)
    wanted = [_requirement(each) for each in given.get("requirements", ())]
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {
        "metadata": {"labels": given.get("labels", {})},
        "spec": {"requirements": wanted, "nodeClassRef": ref, "expireAfter": "Never"},
    }
    if "termination_grace_period_s" in given:
        template["spec"]["terminationGracePeriod"] = f"{given['termination_grace_period_s']}s"
    spec: Obj = {"template": template, "disruption": _disruption(given)}
    if "replicas" in given:
        spec["replicas"] = given["replicas"]
    if "weight" in given:
        spec["weight"] = given["weight"]
    if "limits" in given:
        spec["limits"] = {_LIMITS.get(key, key): _amount(key, value) for key, value in given["limits"].items()}
    found = _manifest("karpenter.sh/v1", "NodePool", pool_name(number, given), spec)
    return {**found, "spec": _merged(spec, given.get("changed", {}))}


def _merged(spec: Obj, change: Obj) -> Obj:
    """A part of a manifest with another one laid over it."""
    both = spec.keys() & change.keys()
    inner = {key: _merged(spec[key], change[key]) for key in both if isinstance(spec[key], dict)}
    return {**spec, **change, **inner}


def _disruption(given: Given) -> Obj:
    """As the pool says; a row that says nothing of it is about other things, and nothing may be disrupted."""
    if not _DISRUPTION_WORDS & given.keys():
        return _NEVER_DISRUPTED
    told = {
        "consolidationPolicy": given.get("consolidation_policy"),
        "consolidateAfter": given.get("consolidate_after"),
        "budgets": given.get("budgets"),
    }
    return {name: value for name, value in told.items() if value is not None}


_LIMITS = {"cpu_m": "cpu", "memory_bytes": "memory"}


def _amount(word: str, value: int) -> str:
    return f"{value}m" if word == "cpu_m" else str(value)


def _requirement(given: Given) -> Obj:
    only("requirement", given, {"key", "op", "values", "minValues"})
    found = {"key": given["key"], "operator": given["op"], "values": given.get("values") or None}
    return {key: value for key, value in {**found, "minValues": given.get("minValues")}.items() if value is not None}


def _node_class(name: str, reservations: Iterable[str]) -> Obj:
    tags = [{"tags": {"karpenter.sh/discovery": name}}]
    spec = {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": tags,
        "securityGroupSelectorTerms": tags,
        "capacityReservationSelectorTerms": [{"id": each} for each in reservations],
    }
    return _manifest("karpenter.k8s.aws/v1", "EC2NodeClass", name, spec)
