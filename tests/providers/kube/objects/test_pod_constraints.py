"""What templates and pods ask of other pods, of ports and of volumes, as the API writes it and as it is read."""

import json
from typing import Any

import msgspec
import pytest

from fleet.snapshot import Pod, PodSet
from fleet.snapshot.constraints import (
    UNCONSTRAINED,
    EphemeralClaim,
    PodAffinityTerm,
    PodConstraints,
    PodHostPort,
    PreferredNodes,
    PreferredPods,
    TopologySpreadConstraint,
)
from model.kinds import RequirementTerm
from model.upstream.selectors import LabelSelectorRequirement
from providers.kube.objects import DECODERS, decode_pod
from providers.kube.objects.pod_templates import shape_of_pod
from tests.support.work import SPECS, pod

Obj = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
LABELS = {"app": "web", "tier": "front"}
WEB = {"matchLabels": {"app": "web"}}
EQUAL = {"key": "app", "operator": "In", "values": ["web"]}


def is_in(key: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator="In", values=values)


def not_in(key: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator="NotIn", values=values)


def templated(spec: Obj, labels: Obj | None = None, annotations: Obj | None = None) -> PodSet:
    """The pod set of a Job of namespace `n`."""
    template = {
        "metadata": {"labels": LABELS if labels is None else labels, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }
    body = {"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {"template": template}}
    (pod_set,) = DECODERS["batch", "Job"](msgspec.json.encode(body)).pod_sets
    return pod_set


def standing(spec: Obj, labels: Obj | None = None) -> Pod:
    """The same as a pod of namespace `n`."""
    body = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": LABELS if labels is None else labels},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }
    return decode_pod(msgspec.json.encode(body))


def near(**term: Any) -> Obj:
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": HOST, **term}]}}}


def spread(**constraint: Any) -> Obj:
    given = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **constraint}
    return {"topologySpreadConstraints": [given]}


def port(host: int | None = None, number: int = 80, **more: Any) -> Obj:
    return {"containerPort": number, **({} if host is None else {"hostPort": host}), **more}


def asking(resource: str) -> Obj:
    return {"containers": [{"name": "main", "resources": {"limits": {resource: "1"}}}]}


def mounted(*volumes: Obj) -> Obj:
    return {"volumes": [{"name": f"v{n}", **volume} for n, volume in enumerate(volumes)]}


def one_near(**facts: Any) -> PodConstraints:
    term = PodAffinityTerm(HOST, **{"selector": (is_in("app", "web"),), "namespaces": frozenset({"n"}), **facts})
    return PodConstraints(affinity=(term,))


def one_spread(**facts: Any) -> PodConstraints:
    return PodConstraints(spread=(TopologySpreadConstraint(ZONE, 1, **{"selector": (is_in("app", "web"),), **facts}),))


ASKED = [
    pytest.param({}, UNCONSTRAINED, id="nothing"),
    pytest.param(near(labelSelector=WEB), one_near(), id="its own namespace, where none is given"),
    pytest.param(
        near(labelSelector=WEB, namespaces=["a", "b"]), one_near(namespaces=frozenset("ab")), id="namespaces by name"
    ),
    pytest.param(
        near(labelSelector=WEB, namespaces=["a"], namespaceSelector={"matchLabels": {"team": "x"}}),
        one_near(namespaces=frozenset("a"), namespace_selector=(is_in("team", "x"),)),
        id="namespaces by label, too",
    ),
    pytest.param(
        near(labelSelector=WEB, namespaceSelector={}),
        one_near(namespaces=frozenset(), namespace_selector=()),
        id="every namespace",
    ),
    pytest.param(near(), one_near(selector=None), id="no selector selects none"),
    pytest.param(near(labelSelector={}), one_near(selector=()), id="an empty one selects all"),
    pytest.param(
        near(labelSelector={**WEB, "matchExpressions": [EQUAL, EQUAL]}),
        one_near(),
        id="a requirement given three times",
    ),
    pytest.param(
        near(labelSelector=WEB, matchLabelKeys=["tier", "lacking"], mismatchLabelKeys=["app"]),
        one_near(selector=(is_in("app", "web"), is_in("tier", "front"), not_in("app", "web"))),
        id="label keys take the pod's own values",
    ),
    pytest.param(
        near(
            labelSelector={"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]},
            matchLabelKeys=["tier"],
        ),
        one_near(selector=(is_in("tier", "front"),)),
        id="label keys that admission has merged already",
    ),
    pytest.param(
        {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": WEB}]}}},
        PodConstraints(anti_affinity=(PodAffinityTerm(ZONE, (is_in("app", "web"),), frozenset({"n"})),)),
        id="anti-affinity",
    ),
    pytest.param(
        {
            "affinity": {
                "podAffinity": {PREFERRED: [{"weight": 3, "podAffinityTerm": {"topologyKey": ZONE}}]},
                "podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": {"topologyKey": HOST}}]},
                "nodeAffinity": {
                    PREFERRED: [
                        {"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
                        {"weight": 9, "preference": {}},
                    ]
                },
            }
        },
        PodConstraints(
            preferred_nodes=(PreferredNodes(7, (RequirementTerm(key="disk", operator="Exists"),)),),
            preferred_pods=(
                PreferredPods(3, PodAffinityTerm(ZONE, None, frozenset({"n"}))),
                PreferredPods(-5, PodAffinityTerm(HOST, None, frozenset({"n"}))),
            ),
        ),
        id="preferences",
    ),
    pytest.param(spread(labelSelector=WEB), one_spread(), id="spread"),
    pytest.param(
        spread(
            labelSelector=WEB,
            whenUnsatisfiable="ScheduleAnyway",
            minDomains=3,
            nodeAffinityPolicy="Ignore",
            nodeTaintsPolicy="Honor",
            matchLabelKeys=["tier"],
        ),
        one_spread(
            selector=(is_in("app", "web"), is_in("tier", "front")),
            hard=False,
            min_domains=3,
            honors_affinity=False,
            honors_taints=True,
        ),
        id="spread with all it may say",
    ),
    pytest.param(
        {"containers": [{"ports": [port(8080), port(53, protocol="UDP", hostIP="10.0.0.1"), port()]}]},
        PodConstraints(host_ports=(PodHostPort(53, "UDP", "10.0.0.1"), PodHostPort(8080))),
        id="host ports",
    ),
    pytest.param(
        {"containers": [{"ports": [port(8080, hostIP="0.0.0.0")]}, {"ports": [port(8080)]}, {"ports": None}]},
        PodConstraints(host_ports=(PodHostPort(8080),)),
        id="one port for all addresses, twice",
    ),
    pytest.param(
        {"hostNetwork": True, "containers": [{"ports": [port(number=9000)]}]},
        PodConstraints(host_ports=(PodHostPort(9000),)),
        id="on the host's network every port is one of the node",
    ),
    pytest.param(
        {"initContainers": [{"ports": [port(1)]}, {"restartPolicy": "Always", "ports": [port(2)]}]},
        PodConstraints(host_ports=(PodHostPort(2),)),
        id="ports of sidecars count, those of other init containers do not",
    ),
    pytest.param(
        mounted(
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "gp3"}}}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"emptyDir": {}},
        ),
        PodConstraints(claims=("data",), ephemeral=(EphemeralClaim("v2", "gp3"), EphemeralClaim("v3", ""))),
        id="claims",
    ),
    pytest.param({"affinity": None, "topologySpreadConstraints": None, "volumes": None}, UNCONSTRAINED, id="nulls"),
]


@pytest.mark.parametrize(("spec", "expected"), ASKED)
def test_constraints_are_read_alike_from_templates_and_pods(spec: Obj, expected: PodConstraints) -> None:
    pod_set = templated(spec)
    assert (pod_set.constraints, pod_set.unsupported) == (expected, ())
    assert standing(spec).constraints == expected


def test_equal_pods_share_their_constraints() -> None:
    asked = near(labelSelector=WEB) | spread(labelSelector=WEB)
    assert standing(asked).constraints is standing(asked, {"other": "label"}).constraints
    assert standing({}).constraints is UNCONSTRAINED


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (asking("volcano.sh/vgpu-memory"), "spec.containers[].resources[volcano.sh/vgpu-memory]"),
        (asking("volcano.sh/gpu-number"), "spec.containers[].resources[volcano.sh/gpu-number]"),
        (asking("nvidia.com/gpumem"), "spec.containers[].resources[nvidia.com/gpumem]"),
        ({"schedulingGates": [{"name": "muster.dev/placement"}, {"name": "a/b"}]}, "spec.schedulingGates[1]"),
        ({"nodeName": "n1"}, "spec.nodeName"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "spec.schedulingGroup"),
        ({"overhead": {"cpu": "1"}}, "spec.overhead"),
        ({"placementHint": "x"}, "spec.placementHint"),
        (mounted({"emptyDir": {}}, {"awsElasticBlockStore": {}}), "spec.volumes[1].awsElasticBlockStore"),
        (mounted({"quantumDisk": {}}), "spec.volumes[0].quantumDisk"),
        (
            mounted({"ephemeral": {"volumeClaimTemplate": {"spec": {"selector": {}}}}}),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.selector",
        ),
        ({"affinity": {"galaxyAffinity": {}}}, "spec.affinity"),
        (near(farness=3), f"spec.affinity.podAffinity.{REQUIRED}[0]"),
        (
            near(labelSelector={"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}),
            f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector",
        ),
        (near(labelSelector={"matchLabels": {"a b": ""}}), f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector"),
        (
            near(labelSelector=WEB, matchLabelKeys=["batch.kubernetes.io/job-completion-index"]),
            f"spec.affinity.podAffinity.{REQUIRED}[0].matchLabelKeys",
        ),
        (
            near(labelSelector={"matchLabels": {"muster.dev/workload": "w"}}),
            f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector",
        ),
        (near(matchLabelKeys=["app"]), f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector"),
        (near(topologyKey=""), f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey"),
        (spread(topologyKey=""), "spec.topologySpreadConstraints[0].topologyKey"),
        (spread(maxSkew=0), "spec.topologySpreadConstraints[0].maxSkew"),
        (spread(nodeTaintsPolicy="Perhaps"), "spec.topologySpreadConstraints[0].nodeTaintsPolicy"),
        (spread(whenUnsatisfiable="Shrug"), "spec.topologySpreadConstraints[0].whenUnsatisfiable"),
    ],
)
def test_what_is_not_honoured_is_refused_by_its_path(spec: Obj, path: str) -> None:
    (found,) = templated(spec).unsupported
    assert found.path == path
    assert found.words
    standing(spec)  # nothing raises for a pod that stands


@pytest.mark.parametrize("note", ["gpu-fraction", "gpu-fraction-num-devices", "gpu-memory"])
def test_parts_of_a_gpu_by_annotation_are_refused_by_their_names(note: str) -> None:
    asked = {"metadata": {"annotations": {note: "0.5"}}, "spec": asking("cpu")}
    [found] = shape_of_pod(json.dumps(asked).encode(), "n").unsupported
    assert found.path == f"metadata.annotations[{note}]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("priority", 3), ("schedulerName", "volcano"), ("securityContext", {"runAsUser": 1}), ("hostPID", True)),
        *(("futureField", None), ("futureField", False), ("resourceClaims", []), ("schedulingGates", None)),
        ("volumes", [{"name": "v", "configMap": {"name": "c"}}, {"name": "w", "hostPath": {"path": "/"}}]),
    ],
)
def test_what_decides_about_no_place_changes_nothing(name: str, value: Any) -> None:
    assert templated({name: value}) == templated({})


# -- node affinity ----------------------------------------------------------------------------------------------------


def on_nodes(*terms: Obj) -> Obj:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def labelled(key: str, operator: str, *values: str) -> Obj:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NOWHERE = ((RequirementTerm(key=HOST, operator="DoesNotExist"),),)
GOOD = labelled("disk", "In", "ssd")


@pytest.mark.parametrize(
    ("term", "refused"),
    [
        ({}, False),
        (labelled("disk", "Like", "s"), True),
        (labelled("disk", "Gte", "3"), True),
        (labelled("cores", "Gt", "many"), True),
        (labelled("cores", "Gt", "-3"), True),
        (labelled("cores", "Gt", "3", "4"), True),
        (labelled("cores", "Lt"), True),
        (labelled("disk", "In"), True),
        (labelled("disk", "Exists", "x"), True),
        (labelled("dis k", "Exists"), True),
        ({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchFields": [{"key": "spec.unschedulable", "operator": "In", "values": ["false"]}]}, True),
    ],
)
def test_a_malformed_term_matches_no_node_and_is_refused(term: Obj, refused: bool) -> None:
    """Source: `component-helpers/scheduling/corev1/nodeaffinity`; the API server takes no such pod."""
    alone, beside = templated(on_nodes(term)), templated(on_nodes(term, GOOD))
    assert alone.required_affinity == NOWHERE
    assert beside.required_affinity == ((RequirementTerm(key="disk", operator="In", values=("ssd",)),),)
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
    assert [it.path for it in alone.unsupported] == ([path] if refused else [])


def test_a_field_is_the_nodes_name() -> None:
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    found = templated(on_nodes({**GOOD, **field}))
    assert found.required_affinity == (
        (
            RequirementTerm(key="disk", operator="In", values=("ssd",)),
            RequirementTerm(key="metadata.name", operator="In", values=("n1",)),
        ),
    )
    assert not found.unsupported


# -- labels -----------------------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_template_without_what_a_start_adds() -> None:
    started = {**LABELS, "muster.dev/workload": "job-j", "muster.dev/pod-set": "main"}
    assert templated({}, started) == templated({})
    assert templated({}).labels == (("app", "web"), ("tier", "front"))


def read(kind: tuple[str, str], spec: Obj, **metadata: Any) -> tuple[PodSet, ...]:
    meta = {"name": "j", "namespace": "n", "uid": "u", **metadata}
    return DECODERS[kind](msgspec.json.encode({"metadata": meta, "spec": spec})).pod_sets


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (("jobset.x-k8s.io", "JobSet"), ("jobset.sigs.k8s.io/jobset-name", "j")),
        (("jobset.x-k8s.io", "JobSet"), ("jobset.sigs.k8s.io/replicatedjob-name", "driver")),
        (("kubeflow.org", "PyTorchJob"), ("training.kubeflow.org/replica-type", "master")),
        (("kubeflow.org", "MPIJob"), ("training.kubeflow.org/job-role", "launcher")),
        (("ray.io", "RayCluster"), ("ray.io/cluster", "j")),
        (("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), ("leaderworkerset.sigs.k8s.io/name", "j")),
        (("batch.volcano.sh", "Job"), ("volcano.sh/job-name", "j")),
    ],
)
def test_labels_of_the_jobs_controller_are_known_where_they_can_be(
    kind: tuple[str, str], label: tuple[str, str]
) -> None:
    assert label in read(kind, SPECS[kind])[0].labels


def test_pods_of_a_job_set_that_keep_apart_by_its_name() -> None:
    apart = {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": {}}]}}}
    (term,) = apart["affinity"]["podAntiAffinity"][REQUIRED]

    def job_set(key: str) -> PodSet:
        term["matchLabelKeys"] = [key]
        jobs = [{"name": "a", "template": {"spec": {"template": {"spec": {**pod()["spec"], **apart}}}}}]
        return read(("jobset.x-k8s.io", "JobSet"), {"replicatedJobs": jobs})[0]

    known, late = job_set("jobset.sigs.k8s.io/jobset-name"), job_set("jobset.sigs.k8s.io/job-key")
    assert known.constraints.anti_affinity[0].selector == (is_in("jobset.sigs.k8s.io/jobset-name", "j"),)
    assert not known.unsupported
    assert [it.path for it in late.unsupported] == [f"spec.affinity.podAntiAffinity.{REQUIRED}[0].matchLabelKeys"]


@pytest.mark.parametrize(
    ("kind", "spec", "metadata", "path"),
    [
        (
            ("jobset.x-k8s.io", "JobSet"),
            {},
            {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}},
            "metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]",
        ),
        (("jobset.x-k8s.io", "JobSet"), {"volumeClaimPolicies": [{}]}, {}, "spec.volumeClaimPolicies"),
        (
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
            {},
            {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}},
            "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]",
        ),
        (("batch.volcano.sh", "Job"), {"volumes": [{"mountPath": "/x"}]}, {}, "spec.volumes[0]"),
        (("batch.volcano.sh", "Job"), {"networkTopology": {"mode": "hard"}}, {}, "spec.networkTopology"),
    ],
)
def test_what_a_job_asks_beside_its_templates_is_refused(
    kind: tuple[str, str], spec: Obj, metadata: Obj, path: str
) -> None:
    for pod_set in read(kind, {**SPECS[kind], **spec}, **metadata):
        assert [it.path for it in pod_set.unsupported] == [path]


def test_a_template_full_of_nonsense_tells_a_bounded_part_of_it() -> None:
    volumes = [{"awsElasticBlockStore": {}} for _ in range(1000)]
    long = {"x" * 100_000: 1}
    found = templated({**mounted(*volumes), **long, "affinity": {"y" * 100_000: {}}})
    assert len(found.unsupported) <= 16
    assert all(len(it.path) + len(it.words) < 1000 for it in found.unsupported)


@pytest.mark.parametrize("broken", ["x", 3, [1], {"podAffinity": 3}, {"podAffinity": {REQUIRED: [3]}}])
def test_affinity_that_is_none_hides_no_pod(broken: Any) -> None:
    assert standing({"affinity": broken}).constraints == UNCONSTRAINED
    (found,) = templated({"affinity": broken}).unsupported
    assert found.path.startswith("spec.affinity")
