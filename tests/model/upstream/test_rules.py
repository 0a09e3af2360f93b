"""The rules of Kueue's and Volcano's validation, each with the place of the problem."""

import pytest

from model.problem import Code
from tests.model.upstream.writing import FLAVOR, V1, V2, VOLCANO, manifest, problems, quota

GPU, TWO = "nvidia.com/gpu", "coveredResources: [cpu, memory]"
CQ, COHORT, RF = "ClusterQueue", "Cohort", "ResourceFlavor"


def groups(text: str, rest: str = "") -> str:
    return f"{{resourceGroups: [{text}]{rest}}}"


def group(resources: str, *flavors: str) -> str:
    return f"{{coveredResources: [{resources}], flavors: [{', '.join(flavors)}]}}"


def flavor(name: str, *resources: str) -> str:
    cells = ", ".join(f"{{name: {resource}, nominalQuota: 1}}" for resource in resources)
    return f"{{name: {name}, resources: [{cells}]}}"


def many(count: int, text: str) -> str:
    return "[" + ", ".join(text.replace("#", str(number)) for number in range(count)) + "]"


R0 = "spec.resourceGroups[0]"
CELL = f"{R0}.flavors[0].resources[0]"
QUOTA_RULES = [
    (groups(group("cpu, memory", flavor("f", "memory", "cpu"))), f"{CELL}.name", "must be 'cpu': a flavor lists"),
    (groups(group("cpu, memory", flavor("f", "cpu"))), f"{R0}.flavors[0].resources", "the group covers 2 resources"),
    (groups(group("cpu", flavor("f", "cpu", "memory"))), f"{R0}.flavors[0].resources", "covers 1 resource, flavor 'f'"),
    (groups(group("cpu", flavor("f", "cpu"), flavor("f", "cpu"))), f"{R0}.flavors[1].name", "a flavor belongs to one"),
    (
        groups(f"{group('cpu', flavor('f', 'cpu'))}, {group('memory', flavor('f', 'memory'))}"),
        "spec.resourceGroups[1].flavors[0].name",
        "'f' is already listed",
    ),
    (
        groups(f"{group('cpu', flavor('f', 'cpu'))}, {group('cpu', flavor('g', 'cpu'))}"),
        "spec.resourceGroups[1].coveredResources[0]",
        "'cpu' is already covered",
    ),
    (groups(group("cpu, cpu", flavor("f", "cpu", "cpu"))), f"{R0}.coveredResources[1]", "'cpu' is already covered"),
    (groups(group("", flavor("f", "cpu"))), f"{R0}.coveredResources", "needs at least 1 item"),
    (groups(group("cpu")), f"{R0}.flavors", "needs at least 1 item"),
    (groups(group("a b", flavor("f", "cpu"))), f"{R0}.coveredResources[0]", "is not a label key"),
    (groups("{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu}]}]}"), CELL, "'nominalQuota' is"),
    (f"{{resourceGroups: {quota('-1')}}}", f"{CELL}.nominalQuota", "-1 is negative"),
    (f"{{resourceGroups: {quota('lots')}}}", f"{CELL}.nominalQuota", "'lots' is not a quantity"),
    (f"{{resourceGroups: {quota('true')}}}", f"{CELL}.nominalQuota", "is a truth value"),
    (f"{{resourceGroups: {quota(more='borrowLimit: 1')}}}", f"{CELL}.borrowLimit", "unknown key 'borrowLimit'"),
    (f"{{resourceGroups: {quota(more='borrowingLimit: 1')}}}", f"{CELL}.borrowingLimit", "a limit needs a "),
    (f"{{resourceGroups: {quota(more='lendingLimit: 1')}}}", f"{CELL}.lendingLimit", "a limit needs a "),
    (
        groups(", ".join(group(f"r{n}", flavor(f"f{n}", f"r{n}")) for n in range(17))),
        "spec.resourceGroups",
        "at most 16 items",
    ),
    (
        groups(group("cpu", many(65, flavor("f#", "cpu")).strip("[]"))),
        f"{R0}.flavors",
        "at most 64 items",
    ),
    (
        groups(", ".join(group(f"r{n}", many(64, flavor(f"f{n}-#", f"r{n}")).strip("[]")) for n in range(5))),
        "spec.resourceGroups",
        "list 320 flavors, at most 256",
    ),
    (groups(group(many(65, "r#").strip("[]"), flavor("f", "cpu"))), f"{R0}.coveredResources", "at most 64 items"),
    ("{fairSharing: {weight: -1}}", "spec.fairSharing.weight", "a weight is 0 or more than 1e-9"),
    ("{fairSharing: {weight: 1n}}", "spec.fairSharing.weight", "a weight is 0 or more than 1e-9"),
    ("{fairSharing: {weight: heavy}}", "spec.fairSharing.weight", "'heavy' is not a quantity"),
]  # fmt: skip


@pytest.mark.parametrize("kind", [CQ, COHORT])
@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize(("spec", "path", "message"), QUOTA_RULES)
def test_quotas(kind: str, version: str, spec: str, path: str, message: str) -> None:
    (problem,) = problems(manifest(kind, "x", spec, version=version))
    assert (problem.path, problem.line) == (path, 4)
    assert message in problem.message


LIMITED = f"resourceGroups: {quota(more='borrowingLimit: 0, lendingLimit: 9')}"
CASES = [
    # (kind, version, spec, column, path, message, code)
    (CQ, V2, f"{{{LIMITED}}}", 150, f"{CELL}.borrowingLimit", "needs a cohortName", Code.INVALID_VALUE),
    (CQ, V1, f"{{{LIMITED}}}", 150, f"{CELL}.borrowingLimit", "needs a cohort:", Code.INVALID_VALUE),
    (COHORT, V2, f"{{{LIMITED}}}", 150, f"{CELL}.borrowingLimit", "needs a parentName", Code.INVALID_VALUE),
    (CQ, V2, f"{{{LIMITED}, cohortName: c}}", 167, f"{CELL}.lendingLimit", "more than the nominal", Code.INVALID_VALUE),
    (CQ, V1, f"{{{LIMITED}, cohort: c}}", 167, f"{CELL}.lendingLimit", "more than the nominal", Code.INVALID_VALUE),
    (CQ, V2, "{flavorFungibility: {preference: PreemptionOverBorrowing}}", 40, "spec.flavorFungibility.preference",
     "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor", Code.INVALID_VALUE),
    (CQ, V2, "{flavorFungibility: {whenCanPreempt: TryNextFlavor, preference: BorrowingOverPreemption}}", 71,
     "spec.flavorFungibility.preference", "needs whenCanBorrow", Code.INVALID_VALUE),
    (CQ, V1, "{flavorFungibility: {whenCanBorrow: Borrow, preference: BorrowingOverPreemption}}", 63,
     "spec.flavorFungibility.preference", "needs whenCanBorrow", Code.INVALID_VALUE),
    (CQ, V2, "{flavorFungibility: {whenCanBorrow: Borrow}}", 43, "spec.flavorFungibility.whenCanBorrow",
     "must be 'MayStopSearch' or 'TryNextFlavor'", Code.INVALID_VALUE),
    (CQ, V1, "{flavorFungibility: {whenCanBorrow: Preempt}}", 43, "spec.flavorFungibility.whenCanBorrow",
     "must be 'Borrow', 'MayStopSearch' or 'TryNextFlavor'", Code.INVALID_VALUE),
    (CQ, V2, "{preemption: {borrowWithinCohort: {policy: LowerPriority}}}", 50,
     "spec.preemption.borrowWithinCohort.policy", "must be Never while reclaimWithinCohort", Code.INVALID_VALUE),
    (CQ, V2, "{preemption: {reclaimWithinCohort: Anyone}}", 42, "spec.preemption.reclaimWithinCohort",
     "must be 'Never', 'LowerPriority' or 'Any'", Code.INVALID_VALUE),
    (CQ, V2, "{queueingStrategy: FIFO}", 26, "spec.queueingStrategy", "must be 'BestEffortFIFO'", Code.INVALID_VALUE),
    (CQ, V2, "{stopPolicy: Drain}", 20, "spec.stopPolicy", "must be 'None', 'Hold'", Code.INVALID_VALUE),
    (CQ, V2, "{cohort: c}", 8, "spec.cohort", "unknown key 'cohort'", Code.UNKNOWN_KEY),
    (CQ, V1, "{cohortName: c}", 8, "spec.cohortName", "unknown key 'cohortName'", Code.UNKNOWN_KEY),
    (CQ, V2, "{cohortName: My_Cohort}", 20, "spec.cohortName", "a name is at most 253", Code.INVALID_VALUE),
    (CQ, V2, "{admissionChecks: [a]}", 8, "spec.admissionChecks", "unknown key", Code.UNKNOWN_KEY),
    (CQ, V1, "{admissionChecks: [a], admissionChecksStrategy: {admissionChecks: [{name: a}]}}", 25,
     "spec.admissionChecks", "give one of admissionChecks and admissionChecksStrategy", Code.INVALID_VALUE),
    (CQ, V1, "{admissionChecks: [a, a]}", 29, "spec.admissionChecks[1]", "'a' is listed twice", Code.INVALID_VALUE),
    (CQ, V2, "{admissionChecksStrategy: {admissionChecks: [{name: a}, {name: a}]}}", 70,
     "spec.admissionChecksStrategy.admissionChecks[1].name", "'a' is listed twice", Code.INVALID_VALUE),
    (CQ, V2, f"{{admissionChecksStrategy: {{admissionChecks: {many(65, '{name: a#}')}}}}}", 51,
     "spec.admissionChecksStrategy.admissionChecks", "at most 64 items", Code.INVALID_VALUE),
    (CQ, V2, "{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}", 47,
     "spec.namespaceSelector.matchExpressions[0]", "In needs at least one value", Code.INVALID_VALUE),
    (CQ, V2, "{namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}", 82,
     "spec.namespaceSelector.matchExpressions[0].values", "Exists takes no values", Code.INVALID_VALUE),
    (CQ, V2, "{admissionScope: {admissionMode: Other}}", 40, "spec.admissionScope.admissionMode",
     "must be 'UsageBasedAdmissionFairSharing' or 'NoAdmissionFairSharing'", Code.INVALID_VALUE),
    (CQ, V2, "{admissionScope: {}}", 24, "spec.admissionScope", "'admissionMode' is required", Code.MISSING_KEY),
    ("LocalQueue", V2, "{clusterQueue: q}", 11, "metadata", "the key 'namespace' is required", Code.MISSING_KEY),
    (RF, V2, "{topologyName: t}", 22, "spec.topologyName", "needs at least one of nodeLabels", Code.INVALID_VALUE),
    (RF, V2, f"{{nodeLabels: {{{many(9, 'a#: b').strip('[]')}}}}}", 20, "spec.nodeLabels", "at most 8",
     Code.INVALID_VALUE),
    (RF, V2, f"{{nodeTaints: {many(9, '{key: a#, effect: NoSchedule}')}}}", 20, "spec.nodeTaints", "at most 8",
     Code.INVALID_VALUE),
    (RF, V2, f"{{tolerations: {many(9, '{key: a#}')}}}", 21, "spec.tolerations", "at most 8", Code.INVALID_VALUE),
    (RF, V2, "{nodeTaints: [{key: a}]}", 21, "spec.nodeTaints[0]", "the key 'effect' is required", Code.MISSING_KEY),
    (RF, V2, "{tolerations: [{operator: Equal, value: b}]}", 33, "spec.tolerations[0].operator", "must be Exists",
     Code.INVALID_VALUE),
    (RF, V2, "{tolerations: [{key: a, operator: Exists, value: b}]}", 56, "spec.tolerations[0].value",
     "must be empty", Code.INVALID_VALUE),
    (RF, V2, "{tolerations: [{key: a, tolerationSeconds: 5}]}", 50, "spec.tolerations[0].tolerationSeconds",
     "needs the effect NoExecute", Code.INVALID_VALUE),
    ("Topology", V2, "{levels: []}", 16, "spec.levels", "needs at least 1 item", Code.INVALID_VALUE),
    ("Topology", V1, f"{{levels: {many(17, '{nodeLabel: a#}')}}}", 16, "spec.levels", "at most 16", Code.INVALID_VALUE),
    ("Topology", V2, "{levels: [{nodeLabel: kubernetes.io/hostname}, {nodeLabel: rack}]}", 17, "spec.levels[0]",
     "must be the last level", Code.INVALID_VALUE),
    ("Topology", V2, "{levels: [{nodeLabel: rack}, {nodeLabel: rack}]}", 36, "spec.levels[1]", "listed twice",
     Code.INVALID_VALUE),
    ("AdmissionCheck", V2, "{controllerName: ''}", 24, "spec.controllerName", "must not be empty", Code.INVALID_VALUE),
    ("Queue", VOLCANO, "{weight: 0}", 16, "spec.weight", "must be at least 1", Code.INVALID_VALUE),
    ("Queue", VOLCANO, "{weight: 65536}", 16, "spec.weight", "must be at most 65535", Code.INVALID_VALUE),
    ("Queue", VOLCANO, "{reclaimable: yes}", 21, "spec.reclaimable", "must be true or false", Code.INVALID_VALUE),
    ("Queue", VOLCANO, "{deserved: {cpu: 2}, capability: {cpu: 1}}", 24, "spec.deserved.cpu",
     "is more than the capability of 'cpu'", Code.INVALID_VALUE),
    ("Queue", VOLCANO, "{guarantee: {resource: {cpu: 2}}, capability: {cpu: 1}}", 36, "spec.guarantee.resource.cpu",
     "is more than the capability", Code.INVALID_VALUE),
    ("Queue", VOLCANO, "{capability: {cpu: much}}", 26, "spec.capability.cpu", "is not a quantity", Code.INVALID_VALUE),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "version", "spec", "column", "path", "message", "code"), CASES)
def test_rules(kind: str, version: str, spec: str, column: int, path: str, message: str, code: Code) -> None:
    found = problems(FLAVOR, manifest(kind, "x", spec, version=version))
    assert [(one.path, one.code) for one in found] == [(path, code)]
    assert message in found[0].message
    line = 8 if kind == "LocalQueue" else 9
    assert str(found[0]).startswith(f"f.yaml:{line}:{column}: {path}: ")


REFUSED = "remove it"
UNSUPPORTED = [
    (CQ, V2, "{concurrentAdmissionPolicy: {migration: {}}}", "spec.concurrentAdmissionPolicy", REFUSED),
    (CQ, V1, "{concurrentAdmissionPolicy: {}}", "spec.concurrentAdmissionPolicy", REFUSED),
    (CQ, V2, "{}\nmetadata: {name: x, namespace: y}", "metadata.namespace", REFUSED),
    (CQ, V2, "{}\nmetadata: {name: x, ownerReferences: []}", "metadata.ownerReferences", REFUSED),
    (CQ, V2, "{}\nmetadata: {name: x, generateName: x-}", "metadata.generateName", "write metadata.name"),
    (RF, V2, "{nodeTaints: [{key: a, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}]}",
     "spec.nodeTaints[0].timeAdded", REFUSED),
    ("AdmissionCheck", V1, "{controllerName: a.b/c, retryDelayMinutes: 15}", "spec.retryDelayMinutes", REFUSED),
    ("AdmissionCheck", V2, "{controllerName: kueue.x-k8s.io/multikueue}", "spec.controllerName", "one agent"),
    ("AdmissionCheck", V2, "{controllerName: kueue.x-k8s.io/provisioning-request}", "spec.controllerName", "bought"),
    ("AdmissionCheck", V2, "{controllerName: kueue.x-k8s.io/other}", "spec.controllerName", "remove the check"),
    ("Queue", VOLCANO, "{affinity: {nodeGroupAffinity: {}}}", "spec.affinity", REFUSED),
    ("Queue", VOLCANO, "{type: normal}", "spec.type", REFUSED),
    ("Queue", VOLCANO, "{extendClusters: []}", "spec.extendClusters", REFUSED),
    ("Queue", VOLCANO, "{dequeueStrategy: fifo}", "spec.dequeueStrategy", REFUSED),
    ("Queue", VOLCANO, "{}\nmetadata: {name: x, annotations: {volcano.sh/hierarchy: root/a}}",
     'metadata.annotations["volcano.sh/hierarchy"]', "spec.parent"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "version", "spec", "path", "hint"), UNSUPPORTED)
def test_what_has_no_effect_is_refused_by_name(kind: str, version: str, spec: str, path: str, hint: str) -> None:
    text = manifest(kind, "x", spec, version=version)
    if "\nmetadata" in spec:
        text = text.replace("metadata: {name: x}\n", "", 1)
    (problem,) = problems(text)
    assert (problem.path, problem.code, problem.severity) == (path, Code.UNSUPPORTED, "error")
    assert "not supported" in problem.message or "part of Kueue itself" in problem.message
    assert hint in problem.hint
    assert problem.line >= 3


KINDS = [("MultiKueueConfig", V2), ("MultiKueueCluster", V1), ("ProvisioningRequestConfig", V2), ("Workload", V2)]


@pytest.mark.parametrize(("kind", "version"), [*KINDS, ("PodGroup", VOLCANO)])
def test_kinds_without_behaviour_are_refused_by_name(kind: str, version: str) -> None:
    (problem,) = problems(manifest(kind, "x", version=version))
    assert (problem.place, problem.code) == ("f.yaml:2:7", Code.UNSUPPORTED)
    assert problem.message == f"{version.partition('/')[0]} {kind} is not supported"
    assert problem.hint
