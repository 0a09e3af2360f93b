"""Karpenter's manifests: what pools they become, what is refused and where it says so."""

from typing import Any

import pytest

from fleet.plan.changes import declared_changes
from model.fleet import Fleet
from model.kinds import NEVER, NodePool
from model.kinds.aws import AmiTerm, BlockDeviceMapping, MetadataOptions, SecurityGroupTerm, SubnetTerm
from model.kinds.base import API_VERSION
from model.kinds.kubelet import Kubelet
from model.loader import inspect
from model.problem import Code, Problem
from model.upstream.capacity import carried_labels
from tests.model.upstream.writing import fleet, manifest, problems

V1, OLD = "karpenter.sh/v1", "karpenter.sh/v1beta1"
AWS, OLD_AWS = "karpenter.k8s.aws/v1", "karpenter.k8s.aws/v1beta1"
ANYWHERE = "subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{name: nodes}]"
PLAIN = f"{ANYWHERE}, role: nodes, amiSelectorTerms: [{{alias: al2023@latest}}]"


def pool_text(claims: str = "", spec: str = "", *, requirements: str = "[]", metadata: str = "") -> str:
    """A NodePool of v1 in four lines; `claims` and `spec` begin with a comma where they are not empty."""
    reference = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}"
    meta = f"metadata: {metadata}, " if metadata else ""
    template = f"template: {{{meta}spec: {{{reference}, requirements: {requirements}{claims}}}}}"
    return manifest("NodePool", "p", f"{{{template}{spec}}}", version=V1)


def old_text(claims: str = "", spec: str = "", *, requirements: str = "[]") -> str:
    template = f"template: {{spec: {{nodeClassRef: {{name: c}}, requirements: {requirements}{claims}}}}}"
    return manifest("NodePool", "p", f"{{{template}{spec}}}", version=OLD)


def class_text(spec: str = PLAIN, more: str = "", *, version: str = AWS) -> str:
    return manifest("EC2NodeClass", "c", f"{{{spec}{more}}}", version=version)


def the_pool(pool: str = "", node_class: str = "") -> NodePool:
    return fleet(pool or pool_text(), node_class or class_text()).node_pools["p"]


def found(path: str, pool: NodePool) -> Any:
    value: Any = pool.spec
    for step in path.split("."):
        value = getattr(value, step)
    return value


ON = "karpenter.sh/capacity-type"
POOLS = [
    ("", "", "disruption.consolidate_after", 0.0),
    ("", "", "disruption.consolidation_policy", "WhenEmptyOrUnderutilized"),
    ("", "", "template.expire_after", 720 * 3600.0),
    ("", "", "template.termination_grace_period", NEVER),
    ("", "", "weight", 0),
    ("", "", "replicas", None),
    (", expireAfter: Never", "", "template.expire_after", NEVER),
    (", expireAfter: 1h30m", "", "template.expire_after", 5400.0),
    (", terminationGracePeriod: 48h", "", "template.termination_grace_period", 172_800.0),
    ("", ", weight: 7", "weight", 7),
    ("", ", replicas: 3, limits: {nodes: 4}", "replicas", 3),
    ("", ", limits: {nodes: 4}", "limits.nodes", 4),
    ("", ", limits: {cpu: 1500m, memory: 1Gi}", "limits.resources", {"cpu": 1500, "memory": 1 << 30}),
    ("", ", disruption: {consolidateAfter: Never}", "disruption.consolidate_after", NEVER),
    ("", ", disruption: {consolidationPolicy: Balanced}", "disruption.consolidation_policy", "Balanced"),
]


@pytest.mark.parametrize(("claims", "spec", "path", "value"), POOLS)
def test_a_pool(claims: str, spec: str, path: str, value: Any) -> None:
    assert found(path, the_pool(pool_text(claims, spec))) == value


def test_labels_taints_and_requirements() -> None:
    terms = "[{key: a, operator: In, values: [x, y], minValues: 2}, {key: b, operator: Gt, values: ['7']}]"
    taints = ", taints: [{key: gpu, value: v, effect: NoSchedule}], startupTaints: [{key: s, effect: NoExecute}]"
    pool = the_pool(pool_text(taints, requirements=terms, metadata="{labels: {team: t}}"))
    assert [(term.key, term.operator, term.values, term.min_values) for term in pool.spec.requirements] == [
        ("a", "In", ("x", "y"), 2),
        ("b", "Gt", ("7",), None),
    ]
    template = pool.spec.template
    assert template.labels == {"team": "t", "karpenter.sh/nodepool": "p", "karpenter.k8s.aws/ec2nodeclass": "c"}
    assert [(one.key, one.value, one.effect) for one in template.taints] == [("gpu", "v", "NoSchedule")]
    assert [(one.key, one.effect) for one in template.startup_taints] == [("s", "NoExecute")]
    assert carried_labels(pool)["karpenter.sh/nodepool"] == "p"


def test_empty_values_stay() -> None:
    pool = the_pool(pool_text(metadata="{labels: {team: ''}}"), class_text(PLAIN, ", tags: {cost: ''}"))
    assert (pool.spec.template.labels["team"], pool.spec.template.tags) == ("", {"cost": ""})


@pytest.mark.parametrize(
    ("terms", "types"),
    [
        ("[]", ("spot", "on-demand")),
        (f"[{{key: {ON}, operator: In, values: [on-demand]}}]", ("on-demand",)),
        (f"[{{key: {ON}, operator: In, values: [on-demand, spot]}}]", ("spot", "on-demand")),
        (f"[{{key: {ON}, operator: NotIn, values: [spot]}}]", ("on-demand",)),
        (f"[{{key: {ON}, operator: In, values: [reserved, spot]}}]", ("spot",)),
    ],
)
def test_capacity_types_in_upstreams_order(terms: str, types: tuple[str, ...]) -> None:
    assert the_pool(pool_text(requirements=terms)).spec.capacity_types == types


def test_reservations() -> None:
    terms = "capacityReservationSelectorTerms: [{id: cr-1}, {tags: {a: '*'}, ownerID: '012345678901'}, "
    terms += "{instanceMatchCriteria: open}]"
    pool = the_pool("", class_text(PLAIN, f", {terms}"))
    assert pool.spec.capacity_types == ("reserved", "spot", "on-demand")
    assert [one.model_dump(exclude_unset=True) for one in pool.spec.reservations.select] == [
        {"id": "cr-1"},
        {"tags": {"a": "*"}, "owner": "012345678901"},
        {"match": "open"},
    ]
    spot = pool_text(requirements=f"[{{key: {ON}, operator: In, values: [spot]}}]")
    assert the_pool(spot, class_text(PLAIN, f", {terms}")).spec.reservations.select == ()


VOLUNTARY = ("Empty", "Underutilized", "Drifted")


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ("", [("10%", VOLUNTARY, "", None)]),
        ("[]", []),
        ("[{nodes: '5'}]", [(5, VOLUNTARY, "", None)]),
        ("[{nodes: 0, reasons: [Drifted]}, {nodes: 20%}]", [(0, ("Drifted",), "", None), ("20%", VOLUNTARY, "", None)]),
        ("[{nodes: 1, schedule: '@daily', duration: 10m}]", [(1, VOLUNTARY, "@daily", 600.0)]),
    ],
)
def test_budgets_do_not_hold_back_what_has_expired(budgets: str, expected: list[Any]) -> None:
    said = f", disruption: {{budgets: {budgets}}}" if budgets else ""
    pool = the_pool(pool_text(spec=said))
    got = [(one.nodes, one.reasons, one.schedule, one.duration) for one in pool.spec.disruption.budgets]
    assert got == expected


def test_a_class_in_full() -> None:
    more = """, userData: "#!/bin/sh", instanceStorePolicy: RAID0, detailedMonitoring: true, tags: {a: b},
      associatePublicIPAddress: true, placementGroupSelector: {name: rack},
      kubelet: {maxPods: 58, podsPerCore: 4, systemReserved: {cpu: 100m}, evictionHard: {memory.available: 5%}},
      metadataOptions: {httpPutResponseHopLimit: 2, httpTokens: optional},
      blockDeviceMappings: [{deviceName: /dev/xvda, rootVolume: true, ebs: {volumeSize: 100G, snapshotID: snap-1,
        volumeInitializationRate: 200, kmsKeyID: k, iops: 3000, throughput: 125, volumeType: gp3}}]"""
    pool = the_pool("", class_text(PLAIN, more))
    template = pool.spec.template
    assert (template.amis, template.family) == ((AmiTerm(alias="al2023@latest"),), "AL2023")
    assert (template.subnets, template.security_groups) == (
        (SubnetTerm(id="subnet-1"),),
        (SecurityGroupTerm(name="nodes"),),
    )
    assert (template.role, template.instance_profile, template.user_data) == ("nodes", "", "#!/bin/sh")
    assert (template.instance_store_policy, template.detailed_monitoring, template.tags) == ("RAID0", True, {"a": "b"})
    assert (template.associate_public_ip_address, pool.spec.placement.group) == (True, "rack")
    assert template.kubelet == Kubelet(
        max_pods=58, pods_per_core=4, system_reserved={"cpu": "100m"}, eviction_hard={"memory.available": "5%"}
    )
    assert template.metadata_options == MetadataOptions(http_put_response_hop_limit=2, http_tokens="optional")
    [disk] = template.block_device_mappings
    assert (disk.root_volume, disk.ebs.volume_size, disk.ebs.kms_key_id) == (True, 94, "k")


def test_what_is_unset_is_as_our_own_pools_have_it() -> None:
    ours = f"{{subnets: [{{id: subnet-1}}], securityGroups: [{{name: nodes}}], role: nodes, labels: {LABELS}}}"
    budgets = "budgets: [{nodes: 10%, reasons: [Empty, Underutilized, Drifted]}]"
    disruption = f"{{consolidateAfter: 0s, {budgets}}}"
    served = "capacityTypes: [spot, on-demand], serves: [Gangs, Pods], placement: {efa: Requested}"
    spec = f"{{{served}, template: {ours}, disruption: {disruption}}}"
    assert fleet(manifest("NodePool", "p", spec, version=API_VERSION)).node_pools["p"].spec == the_pool().spec


LABELS = "{karpenter.sh/nodepool: p, karpenter.k8s.aws/ec2nodeclass: c}"

V1BETA1 = [
    ("", "", "disruption.consolidation_policy", "WhenEmptyOrUnderutilized"),
    ("", "", "disruption.consolidate_after", 0.0),
    ("", "", "template.expire_after", 720 * 3600.0),
    ("", "", "template.termination_grace_period", NEVER),
    ("", ", disruption: {expireAfter: 24h}", "template.expire_after", 86_400.0),
    ("", ", disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}", "disruption.consolidate_after", 30.0),
    (
        "",
        ", disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}",
        "disruption.consolidate_after",
        NEVER,
    ),
    (
        "",
        ", disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 0s}",
        "disruption.consolidation_policy",
        "WhenEmpty",
    ),
    (", kubelet: {maxPods: 20}", "", "template.kubelet.max_pods", 20),
    ("", ", limits: {cpu: 1}", "limits.resources", {"cpu": 1000}),
]


@pytest.mark.parametrize(("claims", "spec", "path", "value"), V1BETA1)
def test_a_pool_of_v1beta1(claims: str, spec: str, path: str, value: Any) -> None:
    assert found(path, the_pool(old_text(claims, spec))) == value


CLASSES = [
    ("amiFamily: AL2023", "", "amis", (AmiTerm(alias="al2023@latest"),)),
    ("amiFamily: AL2023", "", "family", "AL2023"),
    ("amiFamily: Bottlerocket", "", "amis", (AmiTerm(alias="bottlerocket@latest"),)),
    ("amiFamily: AL2, amiSelectorTerms: [{name: x, owner: self}]", "", "family", "AL2"),
    ("amiFamily: AL2, amiSelectorTerms: [{name: x, owner: self}]", "", "amis", (AmiTerm(name="x", owner="self"),)),
    ("amiFamily: Custom, amiSelectorTerms: [{id: ami-1}, {id: ami-2}]", "", "family", "Custom"),
    ("amiFamily: Ubuntu, amiSelectorTerms: [{id: ami-1}]", "", "family", "AL2"),
    ("amiFamily: AL2023", "", "metadata_options.http_put_response_hop_limit", 2),
    (
        "amiFamily: AL2023",
        ", metadataOptions: {httpPutResponseHopLimit: 1}",
        "metadata_options.http_put_response_hop_limit",
        1,
    ),
]


@pytest.mark.parametrize(("family", "more", "path", "value"), CLASSES)
def test_a_class_of_v1beta1(family: str, more: str, path: str, value: Any) -> None:
    text = class_text(f"{ANYWHERE}, role: nodes, {family}", more, version=OLD_AWS)
    for pool in (pool_text(), old_text()):
        assert found(f"template.{path}", the_pool(pool, text)) == value


def test_ubuntu_keeps_its_root_disk() -> None:
    text = class_text(f"{ANYWHERE}, role: r, amiFamily: Ubuntu, amiSelectorTerms: [{{id: ami-1}}]", version=OLD_AWS)
    [disk] = the_pool("", text).spec.template.block_device_mappings
    assert isinstance(disk, BlockDeviceMapping)
    assert (disk.device_name, disk.root_volume, disk.ebs.volume_size) == ("/dev/sda1", True, 20)


def test_the_pools_kubelet_goes_before_the_classes() -> None:
    said = the_pool(old_text(", kubelet: {maxPods: 5}"), class_text(PLAIN, ", kubelet: {maxPods: 9}"))
    assert said.spec.template.kubelet.max_pods == 5


def problem_of(*documents: str) -> Problem:
    errors = [one for one in problems(*documents) if one.severity == "error"]
    assert len(errors) == 1, errors
    return errors[0]


IN = "spec.template.spec"
BUDGET = "spec.disruption.budgets[0]"
TWICE = "[{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]"
NEVER_FIRES = ", disruption: {budgets: [{nodes: 1, schedule: '* * *', duration: 1h}]}"
BAD, NOT_HERE, CANNOT_BE, NO_TIME = (
    Code.INVALID_VALUE,
    Code.UNSUPPORTED,
    Code.IMPOSSIBLE_REQUIREMENT,
    Code.INVALID_SCHEDULE,
)
OF_AZURE = pool_text().replace("karpenter.k8s.aws,", "karpenter.azure.com,")
REFUSED = [
    (pool_text(", kubelet: {maxPods: 1}"), f"{IN}.kubelet", NOT_HERE, "in the EC2NodeClass"),
    (pool_text(", resources: {}"), f"{IN}.resources", NOT_HERE, "remove it"),
    (pool_text(", foo: 1"), f"{IN}.foo", Code.UNKNOWN_KEY, ""),
    (pool_text(spec=", replicas: 1, weight: 2"), "spec.weight", BAD, ""),
    (pool_text(spec=", replicas: 1, limits: {cpu: 2}"), "spec.limits.cpu", BAD, ""),
    (pool_text(spec=", weight: 0"), "spec.weight", BAD, ""),
    (pool_text(spec=", disruption: {consolidateAfter: 1d}"), "spec.disruption.consolidateAfter", BAD, ""),
    (pool_text(spec=", disruption: {budgets: [{nodes: 101%}]}"), f"{BUDGET}.nodes", BAD, ""),
    (pool_text(spec=", disruption: {budgets: [{nodes: 1, reasons: [Expired]}]}"), f"{BUDGET}.reasons[0]", BAD, ""),
    (pool_text(spec=NEVER_FIRES), f"{BUDGET}.schedule", NO_TIME, ""),
    (pool_text(requirements="[{key: a, operator: In}]"), f"{IN}.requirements[0]", CANNOT_BE, ""),
    (pool_text(requirements=f"[{{key: {ON}, operator: In, values: [x]}}]"), f"{IN}.requirements[0]", CANNOT_BE, ""),
    (pool_text(", taints: [{key: a, effect: NoSchedule, timeAdded: x}]"), f"{IN}.taints[0].timeAdded", NOT_HERE, ""),
    (pool_text(f", taints: {TWICE}"), f"{IN}.taints[1]", BAD, ""),
    (OF_AZURE, f"{IN}.nodeClassRef.group", NOT_HERE, "karpenter.k8s.aws"),
    (pool_text().replace("name: c}", "name: d}"), f"{IN}.nodeClassRef.name", Code.DANGLING_REFERENCE, "c"),
    (old_text(spec=", disruption: {consolidateAfter: 1m}"), "spec.disruption.consolidateAfter", BAD, ""),
    (old_text(spec=", disruption: {consolidationPolicy: WhenEmpty}"), "spec.disruption", BAD, ""),
    (old_text(", expireAfter: 1h"), f"{IN}.expireAfter", Code.UNKNOWN_KEY, ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "code", "hint"), REFUSED, ids=[f"{row[1]}-{row[2]}" for row in REFUSED])
def test_what_is_refused_of_a_pool(text: str, path: str, code: Code, hint: str) -> None:
    problem = problem_of(text, class_text())
    assert (problem.path, problem.code, problem.line) == (path, code, 4)
    assert hint in problem.hint


RESERVED = "capacityReservationSelectorTerms"
EBS = "spec.blockDeviceMappings[0].ebs"
REFUSED_CLASSES = [
    (f", {RESERVED}: [{{ownerID: '012345678901'}}]", f"spec.{RESERVED}[0]", BAD, ""),
    (", networkInterfaces: []", "spec.networkInterfaces", NOT_HERE, "placement.efa"),
    (", context: x", "spec.context", NOT_HERE, "remove it"),
    (", ipPrefixCount: 1", "spec.ipPrefixCount", NOT_HERE, "CNI"),
    (", cpuOptions: {}", "spec.cpuOptions", NOT_HERE, ""),
    (", placementGroupSelector: {id: pg-1}", "spec.placementGroupSelector.id", NOT_HERE, "name"),
    (", usrData: x", "spec.usrData", Code.UNKNOWN_KEY, "did you mean 'userData'?"),
    (", instanceProfile: x", "spec", BAD, ""),
    (", tags: {karpenter.sh/nodepool: x}", 'spec.tags["karpenter.sh/nodepool"]', BAD, ""),
    (", amiFamily: Bottlerocket", "spec.amiSelectorTerms", BAD, ""),
    (", amiFamily: Windows2022", "spec.amiFamily", NOT_HERE, "Linux"),
    (", kubelet: {systemReserved: {gpu: 1}}", "spec.kubelet.systemReserved", BAD, ""),
    (", kubelet: {evictionSoft: {memory.available: 5%}}", "spec.kubelet", BAD, ""),
    (", kubelet: {imageGCHighThresholdPercent: 1, imageGCLowThresholdPercent: 2}", "spec.kubelet", BAD, ""),
    (", blockDeviceMappings: [{deviceName: a, ebs: {}}]", EBS, BAD, ""),
    (", blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: x}}]", f"{EBS}.volumeSize", BAD, ""),
    (", metadataOptions: {httpTokens: maybe}", "spec.metadataOptions.httpTokens", BAD, ""),
]  # fmt: skip


@pytest.mark.parametrize(("more", "path", "code", "hint"), REFUSED_CLASSES, ids=[row[0] for row in REFUSED_CLASSES])
def test_what_is_refused_of_a_class(more: str, path: str, code: Code, hint: str) -> None:
    problem = problem_of(pool_text(), class_text(PLAIN, more))
    assert (problem.path, problem.code) == (path, code)
    assert problem.line == 9
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("terms", "path"),
    [
        ("[]", "spec.amiSelectorTerms"),
        ("[{id: ami-1}]", "spec.amiSelectorTerms"),
        ("[{alias: al2023}]", "spec.amiSelectorTerms[0].alias"),
        ("[{alias: windows2022@latest}]", "spec.amiSelectorTerms[0].alias"),
        ("[{alias: al2023@latest}, {id: ami-1}]", "spec.amiSelectorTerms"),
        ("[{alias: al2023@latest, id: ami-1}]", "spec.amiSelectorTerms[0]"),
        ("[{owner: self}]", "spec.amiSelectorTerms[0]"),
        ("[{tags: {a: ''}}]", "spec.amiSelectorTerms[0].tags"),
    ],
)
def test_terms_that_find_nothing(terms: str, path: str) -> None:
    text = class_text(f"{ANYWHERE}, role: r, amiSelectorTerms: {terms}")
    assert problem_of(pool_text(), text).path == path


def test_user_data_of_bottlerocket_is_toml() -> None:
    spec = f"{ANYWHERE}, role: r, userData: 'a = ', amiSelectorTerms: [{{alias: bottlerocket@latest}}]"
    problem = problem_of(pool_text(), class_text(spec))
    assert (problem.path, problem.code) == ("spec.userData", Code.INVALID_VALUE)


def test_a_name_of_two_pools() -> None:
    ours = manifest("NodePool", "p", version=API_VERSION)
    problem = problem_of(pool_text(), class_text(), ours)
    assert (problem.code, problem.path) == (Code.DUPLICATE_NAME, "metadata.name")
    twice = problem_of(pool_text(), old_text(), class_text())
    assert "NodePool 'p' is declared twice" in twice.message


def test_a_broken_class_is_not_missed_too() -> None:
    assert problem_of(pool_text(), class_text(PLAIN, ", foo: 1")).path == "spec.foo"


def test_a_flavor_may_name_a_pool_of_karpenter() -> None:
    flavor = manifest("Flavor", "f", "{nodePools: [p]}", version=API_VERSION)
    assert fleet(pool_text(), class_text(), flavor).flavors["f"].spec.node_pools == ("p",)
    broken = problems(pool_text(", foo: 1"), class_text(), flavor)
    assert [one.path for one in broken] == [f"{IN}.foo"]


@pytest.mark.parametrize("text", [pool_text().replace("name: p}", f"name: {'p' * 64}}}"), class_text()])
def test_names_become_labels(text: str) -> None:
    broken = text.replace("{name: c}", f"{{name: {'c' * 64}}}")
    assert [one.path for one in problems(broken) if one.code == BAD] == ["metadata.name"]


def test_a_class_for_nobody() -> None:
    [warning] = problems(class_text())
    assert (warning.code, warning.severity) == (Code.UNUSED, "warning")


def test_what_a_server_wrote_is_left_aside() -> None:
    served = f"""
apiVersion: {V1}
kind: NodePool
metadata:
  name: p
  annotations: {{karpenter.sh/nodepool-hash: "1"}}
  creationTimestamp: "2025-01-01T00:00:00Z"
  finalizers: [karpenter.sh/termination]
  generation: 2
  resourceVersion: "1"
  uid: a
spec:
  template:
    metadata: {{}}
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}}
      requirements: []
      terminationGracePeriod: null
      taints: null
status: {{resources: {{cpu: 1}}, conditions: []}}
"""
    loaded: Fleet = fleet(served, class_text())
    assert loaded.node_pools["p"].spec == the_pool().spec


def test_moving_to_our_own_kind_is_no_change() -> None:
    found = "subnets: [{id: subnet-1}], securityGroups: [{name: nodes}], amis: [{alias: al2023@latest}]"
    ours = f"{{{found}, role: nodes, labels: {LABELS}}}"
    budgets = "budgets: [{nodes: 10%, reasons: [Empty, Underutilized, Drifted]}]"
    disruption = f"{{consolidateAfter: 0s, {budgets}}}"
    served = "capacityTypes: [spot, on-demand], serves: [Gangs, Pods], placement: {efa: Requested}"
    spec = f"{{{served}, template: {ours}, disruption: {disruption}}}"
    before = fleet(pool_text(), class_text())
    assert declared_changes(before, fleet(manifest("NodePool", "p", spec, version=API_VERSION))) == []


OVERLAY = "karpenter.sh/v1alpha1"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("{requirements: [], price: '1', priceAdjustment: '+1'}", "spec.priceAdjustment"),
        ("{requirements: [], price: '-1'}", "spec.price"),
        ("{requirements: [], priceAdjustment: '10%'}", "spec.priceAdjustment"),
        ("{requirements: [], priceAdjustment: '-101%'}", "spec.priceAdjustment"),
        ("{requirements: [], capacity: {cpu: 1}}", "spec.capacity"),
        ("{requirements: [], weight: 10001}", "spec.weight"),
        ("{requirements: [{key: a, operator: In}]}", "spec.requirements[0]"),
        ("{requirements: [{key: a, operator: Exists, minValues: 1}]}", "spec.requirements[0].minValues"),
        ("{price: '1'}", "spec"),
    ],
)
def test_what_is_refused_of_an_overlay(spec: str, path: str) -> None:
    for version in (OVERLAY, API_VERSION):
        assert problem_of(manifest("NodeOverlay", "o", spec, version=version)).path == path


def test_an_overlay_becomes_ours() -> None:
    spec = "{requirements: [{key: a, operator: In, values: [x]}], price: '1.50', capacity: {a/b: 2}, weight: 3}"
    theirs, ours = (fleet(manifest("NodeOverlay", "o", spec, version=version)) for version in (OVERLAY, API_VERSION))
    assert theirs == ours
    assert ours.node_overlays["o"].spec.capacity == {"a/b": 2}
    numbers = fleet(manifest("NodeOverlay", "o", spec.replace("'1.50'", "1.5"), version=API_VERSION))
    assert numbers.node_overlays["o"].spec.price == "1.5"


def on(key: str, *values: str) -> str:
    return f"requirements: [{{key: {key}, operator: In, values: [{', '.join(values)}]}}]"


@pytest.mark.parametrize(
    ("one", "other", "severity"),
    [
        (on("a", "x") + ", price: '1'", on("a", "x") + ", priceAdjustment: '+1'", "error"),
        (on("a", "x") + ", price: '1'", on("a", "x", "y") + ", price: '1'", "warning"),
        (on("a", "x") + ", price: '1'", on("b", "x") + ", price: '2'", "warning"),
        (on("a", "x") + ", price: '1'", on("a", "y") + ", price: '2'", None),
        (on("a", "x") + ", price: '1'", on("a", "x") + ", price: '2', weight: 1", None),
        (on("a", "x") + ", price: '1'", on("a", "x") + ", capacity: {r/s: 1}", None),
        (on("a", "x") + ", capacity: {r/s: 2}", on("a", "x") + ", capacity: {r/s: 1}", "error"),
        (on("a", "x") + ", capacity: {r/t: 2}", on("a", "x") + ", capacity: {r/s: 1}", None),
    ],
)
def test_overlays_in_conflict(one: str, other: str, severity: str | None) -> None:
    texts = (manifest("NodeOverlay", name, f"{{{spec}}}", version=OVERLAY) for name, spec in (("a", one), ("b", other)))
    seen = inspect({"f.yaml": "---\n".join(texts).encode()}).problems
    assert [(each.severity, each.code, each.line) for each in seen] == (
        [(severity, Code.OVERLAYS_IN_CONFLICT, 4)] if severity else []
    )
