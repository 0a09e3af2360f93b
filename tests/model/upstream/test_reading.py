"""What manifests become: both versions the same values, the server's part left aside, amounts as integers."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.plan.changes import declared_changes
from model.kinds import NodePool, PriorityClass, Topology
from model.kinds.base import API_VERSION
from model.loader import load
from model.upstream.capacity import ResourceFlavor, pools_of
from model.upstream.cluster_queue import ClusterQueue
from model.upstream.quotas import cells
from model.upstream.selectors import LabelSelector
from tests.model.upstream.writing import FLAVOR, V1, V2, VOLCANO, fleet, manifest, quota

NEW = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: vision
  labels: {team: vision}
spec:
  cohortName: research
  queueingStrategy: StrictFIFO
  namespaceSelector:
    matchLabels: {team: vision}
  resourceGroups:
    - coveredResources: [cpu, memory, pods]
      flavors:
        - name: on-demand
          resources:
            - {name: cpu, nominalQuota: 1500m, borrowingLimit: "2"}
            - {name: memory, nominalQuota: 36Gi, lendingLimit: 1Gi}
            - {name: pods, nominalQuota: 5}
        - name: spot
          resources:
            - {name: cpu, nominalQuota: 0}
            - {name: memory, nominalQuota: 1e3}
            - {name: pods, nominalQuota: "10"}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: MayStopSearch}
  preemption:
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
    withinClusterQueue: LowerPriority
  admissionChecksStrategy:
    admissionChecks: [{name: licences}, {name: budget}]
  stopPolicy: Hold
  fairSharing: {weight: 500m}
"""
STRATEGY = "admissionChecksStrategy:\n    admissionChecks: [{name: licences}, {name: budget}]"
OLD = (
    NEW.replace("v1beta2", "v1beta1")
    .replace("cohortName", "cohort")
    .replace("MayStopSearch", "Preempt")
    .replace(STRATEGY, "admissionChecks: [licences, budget]")
)
AROUND = "---".join(
    [
        "",
        manifest("ResourceFlavor", "on-demand"),
        manifest("ResourceFlavor", "spot", "{nodeLabels: {karpenter.sh/capacity-type: spot}}"),
        manifest("AdmissionCheck", "licences", "{controllerName: example.com/licences}"),
        manifest("AdmissionCheck", "budget", "{controllerName: example.com/budget}"),
    ]
).replace("---", "---\n")


def test_a_cluster_queue_in_both_versions() -> None:
    new, old = (load({"a.yaml": (text + AROUND).encode()}) for text in (NEW, OLD))
    assert new == old
    assert declared_changes(old, new) == []
    spec = new.cluster_queues["vision"].spec
    assert (spec.cohort_name, spec.stop_policy, spec.queueing_strategy) == ("research", "Hold", "StrictFIFO")
    assert spec.fair_sharing.weight == 0.5
    assert spec.flavor_fungibility.when_can_preempt == "MayStopSearch"
    assert spec.checks_for("spot") == ("licences", "budget")
    quotas = {(cell.flavor, cell.quota.name): cell.quota for cell in cells(spec.resource_groups)}
    amounts = {key: (one.nominal_quota, one.borrowing_limit, one.lending_limit) for key, one in quotas.items()}
    assert amounts == {
        ("on-demand", "cpu"): (1500, 2000, None),
        ("on-demand", "memory"): (36 << 30, None, 1 << 30),
        ("on-demand", "pods"): (5, None, None),
        ("spot", "cpu"): (0, None, None),
        ("spot", "memory"): (1000, None, None),
        ("spot", "pods"): (10, None, None),
    }
    assert "research" not in new.cohorts  # named only: a root without quota


@pytest.mark.parametrize("version", [V1, V2])
def test_defaults(version: str) -> None:
    bare = f"apiVersion: {version}\nkind: ClusterQueue\nmetadata: {{name: q}}\n"
    for text in (manifest("ClusterQueue", "q", version=version), bare):
        spec = fleet(text).cluster_queues["q"].spec
        assert (spec.cohort_name, spec.namespace_selector, spec.resource_groups) == (None, None, ())
        assert (spec.queueing_strategy, spec.stop_policy, spec.fair_sharing.weight) == ("BestEffortFIFO", "None", 1.0)
        fungibility, preemption = spec.flavor_fungibility, spec.preemption
        assert (fungibility.when_can_borrow, fungibility.when_can_preempt) == ("MayStopSearch", "TryNextFlavor")
        assert fungibility.preference == "BorrowingOverPreemption"
        assert (preemption.within_cluster_queue, preemption.reclaim_within_cohort) == ("Never", "Never")
        assert preemption.borrow_within_cohort.policy == "Never"


ALIKE = [
    ("Cohort", f"{{parentName: p, resourceGroups: {quota(more='borrowingLimit: 1, lendingLimit: 9')}}}", "cohorts"),
    ("LocalQueue", "{clusterQueue: q, stopPolicy: HoldAndDrain}", "local_queues"),
    ("LocalQueue", "{clusterQueue: q, fairSharing: {weight: 500m}}", "local_queues"),
    ("ResourceFlavor", "{nodeLabels: {a: b}, nodeTaints: [{key: a, effect: NoExecute}]}", "resource_flavors"),
    ("AdmissionCheck", "{controllerName: a/b, parameters: {apiGroup: a, kind: B, name: c}}", "admission_checks"),
    ("Topology", "{levels: [{nodeLabel: rack}]}", "topologies"),
]


@pytest.mark.parametrize(("kind", "spec", "table"), ALIKE)
def test_kinds_that_both_versions_write_alike(kind: str, spec: str, table: str) -> None:
    namespace = "n" if kind == "LocalQueue" else ""
    around = (FLAVOR, manifest("ClusterQueue", "q"))
    old, new = (fleet(manifest(kind, "x", spec, version=version, namespace=namespace), *around) for version in (V1, V2))
    assert old == new
    assert declared_changes(old, new) == []
    assert ("n/x" if namespace else "x") in getattr(new, table)


SERVED = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  annotations: {}
  creationTimestamp: null
  deletionTimestamp: "2026-01-01T00:00:00Z"
  deletionGracePeriodSeconds: 0
  finalizers: [kueue.x-k8s.io/resource-in-use]
  generation: 3
  managedFields: [{manager: kubectl}]
  name: q
  resourceVersion: "1"
  selfLink: /x
  uid: 5b7a
spec:
  cohortName: null
  namespaceSelector: null
  preemption: {borrowWithinCohort: null}
status:
  conditions: [{type: Active, status: "True", message: null}]
"""


def test_the_part_of_the_server_is_left_aside() -> None:
    assert fleet(SERVED) == fleet(manifest("ClusterQueue", "q"))


def test_a_priority_class_and_a_topology_become_ours() -> None:
    text = f"apiVersion: {V1}\nkind: WorkloadPriorityClass\nmetadata: {{name: urgent}}\nvalue: 2147483647\n"
    found = fleet(text + "description: now\n", manifest("Topology", "t", "{levels: [{nodeLabel: rack}]}"))
    ours = {"apiVersion": API_VERSION, "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": ["rack"]}}
    assert found.topologies == {"t": Topology.model_validate(ours)}
    urgent = found.priority_classes["urgent"]
    assert isinstance(urgent, PriorityClass)
    assert (urgent.spec.value, urgent.spec.preempts, urgent.spec.description) == (2**31 - 1, True, "now")


def test_moving_a_topology_to_our_kind_changes_nothing() -> None:
    before = fleet(manifest("Topology", "t", "{levels: [{nodeLabel: rack}]}", version="kueue.x-k8s.io/v1alpha1"))
    after = fleet(manifest("Topology", "t", "{levels: [rack]}", version=API_VERSION))
    assert declared_changes(before, after) == []


def test_a_plan_shows_what_changes() -> None:
    before = fleet(FLAVOR, manifest("ClusterQueue", "q", f"{{resourceGroups: {quota()}}}"))
    after = fleet(FLAVOR, manifest("ClusterQueue", "q", f"{{resourceGroups: {quota()}, stopPolicy: Hold}}"))
    (change,) = declared_changes(before, after)
    assert (change.address, change.verb) == ("clusterqueue/q", "update")
    assert [(one.path, one.before, one.after) for one in change.fields] == [("spec.stopPolicy", None, "Hold")]
    local = manifest("LocalQueue", "l", "{clusterQueue: q}", namespace="n")
    assert [one.address for one in declared_changes(fleet(), fleet(FLAVOR, manifest("ClusterQueue", "q"), local))] == [
        "clusterqueue/q",
        "localqueue/n/l",
        "resourceflavor/f",
    ]


def test_a_volcano_queue() -> None:
    spec = "{parent: root, weight: 4, capability: {cpu: 1500m, memory: 1Gi}, guarantee: {resource: {cpu: 1}}}"
    queue = fleet(manifest("Queue", "physics", spec, version=VOLCANO)).volcano_queues["physics"]
    assert queue.spec.capability == {"cpu": 1500, "memory": 1 << 30}
    assert queue.spec.guarantee.resource == {"cpu": 1000}
    assert (queue.spec.weight, queue.spec.reclaimable, queue.spec.priority, queue.parent) == (4, True, 0, "root")
    root = fleet(manifest("Queue", "root", version=VOLCANO)).volcano_queues["root"]
    assert root.parent is None


def test_long_names() -> None:
    name = ".".join(["a" * 60] * 4)
    assert list(fleet(manifest("ResourceFlavor", name)).resource_flavors) == [name]


@pytest.mark.parametrize(
    ("weight", "value"), [("0", 0.0), ("2", 2.0), ("500m", 0.5), ('"1e-8"', 1e-8), ("0.3", 0.3), ("9E", 9e18)]
)
def test_weights(weight: str, value: float) -> None:
    cohort = fleet(manifest("Cohort", "c", f"{{fairSharing: {{weight: {weight}}}}}")).cohorts["c"]
    assert cohort.spec.fair_sharing.weight == value


def test_a_check_for_some_flavors() -> None:
    rules = {"admissionChecks": [{"name": "a", "onFlavors": ["x"]}, {"name": "b"}]}
    spec = {"admissionChecksStrategy": rules}
    queue = ClusterQueue.model_validate(
        {"apiVersion": V2, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}
    )
    assert (queue.spec.checks_for("x"), queue.spec.checks_for("y")) == (("a", "b"), ("b",))


SELECTORS = [
    ({}, {}, True),
    ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
    ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
    ({"matchLabels": {"a": "b"}}, {}, False),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}, {"a": "c"}, True),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {}, False),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {"a": "b"}, False),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}], "matchLabels": {"b": "c"}}, {"b": "d"}, False),
]


@pytest.mark.parametrize(("selector", "labels", "expected"), SELECTORS)
def test_selectors(selector: dict[str, Any], labels: dict[str, str], expected: bool) -> None:
    assert LabelSelector.model_validate(selector).matches(labels) is expected


POOLS = {
    "p5": {"instanceTypes": ["p5.48xlarge"], "template": {"labels": {"gpu": "h100"}}},
    "p4": {"instanceFamilies": ["p4d"], "template": {"labels": {"gpu": "a100"}}, "weight": 5},
    "spot": {"instanceFamilies": ["g6"], "capacityTypes": ["spot"], "weight": 5},
    "mixed": {"instanceFamilies": ["g6"], "capacityTypes": ["spot", "on-demand"]},
}
MEETINGS = [
    ({}, ["p4", "spot", "mixed", "p5"]),
    ({"gpu": "h100"}, ["p5"]),
    ({"gpu": "h100", "zone": "x"}, []),
    ({"karpenter.sh/capacity-type": "spot"}, ["spot"]),
    ({"karpenter.sh/capacity-type": "on-demand"}, ["p4", "p5"]),
    ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, ["p5"]),
    ({"beta.kubernetes.io/instance-type": "p5.48xlarge"}, ["p5"]),
    ({"muster.dev/node-pool": "mixed"}, ["mixed"]),
]


@pytest.mark.parametrize(("node_labels", "names"), MEETINGS)
def test_how_flavors_and_pools_meet(node_labels: dict[str, str], names: list[str]) -> None:
    pools = [
        NodePool.model_validate(
            {"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
        )
        for name, spec in POOLS.items()
    ]
    flavor = ResourceFlavor.model_validate(
        {"apiVersion": V1, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {"nodeLabels": node_labels}}
    )
    assert [pool.name for pool in pools_of(flavor, pools)] == names


# -- any ClusterQueue, in either spelling ------------------------------------------------------------------------------

QUANTITIES = st.sampled_from([0, 1, 7, "500m", "2", "3Gi", "1e3", 2.5])
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
MODES = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
MODES_OF_USE = ("UsageBased", "No")


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """The `spec` of a ClusterQueue as `v1beta2` writes it, with some of its fields."""
    shared = draw(st.booleans())
    limits = st.sampled_from(["borrowingLimit", None] if shared else [None])
    covered = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, unique=True))
    flavors = draw(st.lists(st.sampled_from("fgh"), min_size=1, unique=True))
    listed = []
    for flavor in flavors:
        resources = []
        for name in covered:
            limit = draw(limits)
            more = {limit: draw(QUANTITIES)} if limit else {}
            resources.append({"name": name, "nominalQuota": draw(QUANTITIES), **more})
        listed.append({"name": flavor, "resources": resources})
    spec: dict[str, Any] = {"resourceGroups": [{"coveredResources": covered, "flavors": listed}]}
    if shared:
        spec["cohortName"] = draw(st.sampled_from(["a", "b.c"]))
    optional = {
        "flavorFungibility": st.fixed_dictionaries({}, optional={"whenCanBorrow": MODES, "whenCanPreempt": MODES}),
        "preemption": st.fixed_dictionaries({"reclaimWithinCohort": st.sampled_from(["Never", "Any"])}),
        "stopPolicy": st.sampled_from(["None", "Hold", "HoldAndDrain"]),
        "fairSharing": st.fixed_dictionaries({"weight": QUANTITIES}),
        "admissionScope": st.sampled_from([{"admissionMode": f"{mode}AdmissionFairSharing"} for mode in MODES_OF_USE]),
        "namespaceSelector": st.sampled_from([{}, {"matchLabels": {"a": "b"}}]),
        "admissionChecksStrategy": st.sampled_from([{"admissionChecks": [{"name": "c"}, {"name": "d"}]}, {}]),
    }
    return spec | draw(st.fixed_dictionaries({}, optional=optional))


def older(spec: dict[str, Any]) -> dict[str, Any]:
    """The same `spec` as `v1beta1` writes it."""
    renamed = {{"cohortName": "cohort"}.get(key, key): value for key, value in spec.items()}
    if "flavorFungibility" in spec:
        words = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
        renamed["flavorFungibility"] = {
            key: words[key] if mode == "MayStopSearch" else mode for key, mode in spec["flavorFungibility"].items()
        }
    if checks := spec.get("admissionChecksStrategy", {}).get("admissionChecks"):
        del renamed["admissionChecksStrategy"]
        renamed["admissionChecks"] = [check["name"] for check in checks]
    return renamed


CHECKS = [
    {"apiVersion": V2, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": {"controllerName": "x/y"}}
    for name in "cd"
]
FLAVORS = [{"apiVersion": V2, "kind": "ResourceFlavor", "metadata": {"name": name}} for name in "fgh"]
POLICY = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "FleetPolicy",
    "metadata": {"name": "p"},
    "spec": {"admissionFairSharing": {"usageHalfLifeTime": "168h"}},
}


def _load(version: str, spec: Any) -> Any:
    queue = {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}
    text = "\n---\n".join(map(json.dumps, [queue, *CHECKS, *FLAVORS, POLICY]))
    return load({"f.yaml": text.encode()})


@settings(max_examples=60)
@given(specs())
def test_either_spelling_of_a_cluster_queue_loads_to_equal_values(spec: dict[str, Any]) -> None:
    new, old = _load(V2, spec), _load(V1, older(spec))
    assert new == old
    assert declared_changes(old, new) == []
    value = new.cluster_queues["q"]
    assert ClusterQueue.model_validate(json.loads(value.model_dump_json(by_alias=True, exclude_unset=True))) == value
