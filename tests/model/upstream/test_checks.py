"""What must hold between manifests and beside our own kinds."""

import pytest

from model.kinds.base import API_VERSION
from model.problem import Code
from tests.model.upstream.writing import FLAVOR, V1, V2, VOLCANO, fleet, manifest, problems, quota

H100 = manifest("ResourceFlavor", "h100")
CQ = manifest("ClusterQueue", "q", f"{{cohortName: c, resourceGroups: {quota()}}}")


def ours(kind: str, name: str, spec: str = "{}") -> str:
    return manifest(kind, name, spec, version=API_VERSION)


POOL = ours("NodePool", "p", "{instanceTypes: [p5.48xlarge], replicas: 0, template: {labels: {gpu: h100}}}")
TEAM = ours("Team", "t", "{namespaces: [n]}")
QUEUE = ours("Queue", "ml", "{team: t, flavors: [p]}")
FENCED = (
    POOL,
    ours("Team", "t", "{namespaces: [n], quotas: {p: {guaranteed: {cpu: 1}}}, hardFence: true}"),
    QUEUE,
)
LOCAL = manifest("LocalQueue", "l", "{clusterQueue: q}", namespace="n")

CASES = [
    # references
    ((manifest("ClusterQueue", "q", f"{{resourceGroups: {quota(flavor='h10')}}}"), H100), "f.yaml:4",
     Code.DANGLING_REFERENCE, "spec.resourceGroups[0].flavors[0].name",
     "there is no ResourceFlavor or Flavor or NodePool 'h10'", "did you mean 'h100'?"),
    ((manifest("Cohort", "c", f"{{resourceGroups: {quota(flavor='gg')}}}"), FLAVOR, POOL), "f.yaml:4",
     Code.DANGLING_REFERENCE,
     "spec.resourceGroups[0].flavors[0].name", "'gg'", "declared: 'f', 'p'"),
    ((FLAVOR, CQ, manifest("LocalQueue", "l", "{clusterQueue: qq}", namespace="n")), "f.yaml:14",
     Code.DANGLING_REFERENCE, "spec.clusterQueue", "there is no ClusterQueue 'qq'", "declared: 'q'"),
    ((manifest("ResourceFlavor", "f", "{nodeLabels: {a: b}, topologyName: t}"),), "f.yaml:4", Code.DANGLING_REFERENCE,
     "spec.topologyName", "there is no Topology 't'", "declared: nothing"),
    ((manifest("ClusterQueue", "q", "{admissionChecks: [a]}", version=V1),), "f.yaml:4", Code.DANGLING_REFERENCE,
     "spec.admissionChecks[0]", "there is no AdmissionCheck 'a'", ""),
    ((manifest("ClusterQueue", "q", "{admissionChecksStrategy: {admissionChecks: [{name: a}]}}"),), "f.yaml:4",
     Code.DANGLING_REFERENCE, "spec.admissionChecksStrategy.admissionChecks[0].name", "no AdmissionCheck 'a'", ""),
    ((manifest("Queue", "a", "{parent: b}", version=VOLCANO),), "f.yaml:4", Code.DANGLING_REFERENCE,
     "spec.parent", "there is no VolcanoQueue 'b'", ""),
    # cycles
    ((manifest("Cohort", "b", "{parentName: a}"), manifest("Cohort", "a", "{parentName: b}")), "f.yaml:9", Code.CYCLE,
     "spec.parentName", "a -> b -> a", ""),
    ((manifest("Cohort", "a", "{parentName: a}"),), "f.yaml:4", Code.CYCLE, "spec.parentName", "a -> a", ""),
    ((manifest("Queue", "a", "{parent: a}", version=VOLCANO),), "f.yaml:4", Code.CYCLE, "spec.parent", "a -> a", ""),
    # fences
    ((*FENCED, FLAVOR, CQ, LOCAL), "f.yaml:9", Code.INVALID_VALUE, "spec.hardFence",
     "jobs in the namespaces of team 't' may use the LocalQueue 'l' (f.yaml:28) as well, whose quota", "fence only"),
    ((*FENCED, manifest("Queue", "v", version=VOLCANO)), "f.yaml:9", Code.INVALID_VALUE, "spec.hardFence",
     "may use the Volcano queue 'v' (f.yaml:18) as well", "fence only"),
    # names
    ((FLAVOR, CQ, CQ.replace(V2, V1).replace("cohortName", "cohort")), "f.yaml:13", Code.DUPLICATE_NAME,
     "metadata.name", "ClusterQueue 'q' is declared twice; the other one is at f.yaml:8", ""),
    ((LOCAL, LOCAL, CQ, FLAVOR), "f.yaml:8", Code.DUPLICATE_NAME, "metadata.name", "LocalQueue 'n/l' is declared", ""),
    ((POOL, TEAM, QUEUE, manifest("ClusterQueue", "ml")), "f.yaml:18", Code.DUPLICATE_NAME, "metadata.name",
     "the Queue at f.yaml:13 is already called 'ml': queues are the leaves of one tree", ""),
    ((manifest("ClusterQueue", "a"), manifest("Queue", "a", version=VOLCANO)), "f.yaml:8", Code.DUPLICATE_NAME,
     "metadata.name", "the ClusterQueue at f.yaml:3 is already called 'a'", ""),
    ((TEAM, manifest("Cohort", "t")), "f.yaml:8", Code.DUPLICATE_NAME, "metadata.name", "the Team at f.yaml:3", ""),
    ((ours("Flavor", "f", "{nodeLabels: {a: b}}"), FLAVOR), "f.yaml:8", Code.DUPLICATE_NAME, "metadata.name",
     "the Flavor at f.yaml:3", ""),
    ((ours("Topology", "t", "{levels: [a]}"), manifest("Topology", "t", "{levels: [{nodeLabel: a}]}")), "f.yaml:8",
     Code.DUPLICATE_NAME, "metadata.name", "Topology 't' is declared twice", ""),
    ((ours("PriorityClass", "a", "{value: 1}"),
      f"apiVersion: {V2}\nkind: WorkloadPriorityClass\nmetadata: {{name: a}}\nvalue: 1\n"), "f.yaml:8",
     Code.DUPLICATE_NAME, "metadata.name", "PriorityClass 'a' is declared twice", ""),
    ((POOL, TEAM, QUEUE, FLAVOR, CQ, LOCAL.replace("name: l,", "name: ml,")), "f.yaml:28", Code.DUPLICATE_NAME,
     "metadata.name", "jobs in 'n' that name 'ml' could mean the Queue at f.yaml:13 as well", "rename"),
    # flavors and pools
    ((POOL, manifest("ResourceFlavor", "p", "{nodeLabels: {gpu: a100}}")), "f.yaml:8", Code.AMBIGUOUS_FLAVOR,
     "metadata.name", "named like the pool 'p', whose machines do not all carry its nodeLabels", "add the labels"),
    # warnings
    ((FLAVOR, manifest("AdmissionCheck", "a", "{controllerName: x/y}"), manifest("ClusterQueue", "q",
      f"{{resourceGroups: {quota()}, admissionChecksStrategy: {{admissionChecks: [{{name: a, onFlavors: [g]}}]}}}}")),
     "f.yaml:14", Code.UNUSED, "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]", "no flavor 'g'", "'f'"),
    ((POOL.replace("replicas: 0, ", ""), CQ, manifest("ResourceFlavor", "f", "{nodeLabels: {gpu: a100}}")), "f.yaml:3",
     Code.UNUSED, "metadata.name", "no queue has a flavor that includes this pool", ""),
]  # fmt: skip


@pytest.mark.parametrize(("documents", "place", "code", "path", "message", "hint"), CASES)
def test_one_problem(documents: tuple[str, ...], place: str, code: Code, path: str, message: str, hint: str) -> None:
    (problem,) = problems(*documents)
    assert (problem.place.rpartition(":")[0], problem.code, problem.path) == (place, code, path)
    assert problem.severity == ("warning" if code is Code.UNUSED else "error")
    assert message in problem.message
    assert hint in problem.hint


GOOD = [
    (CQ, FLAVOR),
    (CQ, FLAVOR, LOCAL, LOCAL.replace("namespace: n", "namespace: m")),
    (CQ.replace("cohortName: c", "cohortName: t"), FLAVOR, TEAM),
    (manifest("Cohort", "c", "{parentName: t}"), TEAM),
    (manifest("Cohort", "c", "{parentName: nobody}"),),
    (manifest("ClusterQueue", "q", f"{{resourceGroups: {quota(flavor='p')}}}"), POOL.replace("replicas: 0, ", "")),
    (manifest("Cohort", "c", f"{{resourceGroups: {quota(flavor='o')}}}"), ours("Flavor", "o", "{nodeLabels: {a: b}}")),
    (manifest("ResourceFlavor", "p", "{nodeLabels: {gpu: h100}}"), POOL),
    (CQ, manifest("ResourceFlavor", "f", "{nodeLabels: {gpu: h100}}"), POOL.replace("replicas: 0, ", "")),
    (manifest("ResourceFlavor", "f", "{nodeLabels: {a: b}, topologyName: t}"), ours("Topology", "t", "{levels: [a]}")),
    (ours("NodePool", "p", "{instanceTypes: [p5.48xlarge], placement: {topology: t}}"),
     manifest("Topology", "t", "{levels: [{nodeLabel: a}]}")),
    (manifest("Queue", "a", version=VOLCANO), manifest("Queue", "b", "{parent: a}", version=VOLCANO)),
    (CQ, FLAVOR.replace("{}", "{nodeLabels: {gpu: a100}}"), POOL.replace("replicas: 0, ", ""),
     manifest("Queue", "anywhere", version=VOLCANO)),
    (manifest("Queue", "root", version=VOLCANO), manifest("Queue", "default", version=VOLCANO)),
    (POOL, TEAM, QUEUE, FLAVOR, CQ, LOCAL.replace("name: l,", "name: ml,").replace("namespace: n", "namespace: other")),
    (manifest("Cohort", "x"), manifest("ClusterQueue", "x")),
]  # fmt: skip


@pytest.mark.parametrize("documents", GOOD)
def test_no_problem(documents: tuple[str, ...]) -> None:
    assert problems(*documents) == []
    assert fleet(*documents)


def test_a_broken_target_is_not_also_missing() -> None:
    old = manifest("ClusterQueue", "q", "{cohortName: c}", version=V1)
    topology = manifest("Topology", "t", "{levels: []}")
    flavor = manifest("ResourceFlavor", "f", "{nodeLabels: {a: b}, topologyName: t}")
    assert [problem.code for problem in problems(old, LOCAL, topology, flavor)] == [
        Code.UNKNOWN_KEY,
        Code.INVALID_VALUE,
    ]


def test_a_malformed_pool_says_so_once() -> None:
    pool = ours("NodePool", "p", "{requirements: [{key: a, operator: In}]}")
    namesake = manifest("ResourceFlavor", "p", "{nodeLabels: {gpu: h100}}")
    assert [problem.code for problem in problems(pool, FLAVOR, CQ, namesake)] == [Code.IMPOSSIBLE_REQUIREMENT]
