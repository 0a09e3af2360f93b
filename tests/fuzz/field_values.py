"""What may stand in each field of each kind: the values that made-up fleets are written with, and changed to.

`VALUES` has an entry for every field that can move a machine or a gang; `UNDRAWN` says why the others have none. A
field that is in neither fails a test: a new field is drawn, or it is said why not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, get_args

from model.kinds import KINDS
from model.kinds.base import Spec
from tests.agent.scenes import G5, G6, P4DE, P5, A, B, C, D

GPU = "nvidia.com/gpu"
TYPES = (P5, P4DE, G6, G5)
CPU_TYPES = ("c6i.xlarge", "m6i.xlarge")
ZONES = (A, B, C, D)
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")
SLICES = tuple(f"nvidia.com/mig-{profile}" for profile in PROFILES)


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The names of what is declared: what references may point at."""

    pools: Sequence[str] = ()
    layouts: Sequence[str] = ()
    teams: Sequence[str] = ()
    queues: Sequence[str] = ()
    priorities: Sequence[str] = ()
    topologies: Sequence[str] = ()
    flavors: Sequence[str] = ()


Draw = Callable[[Random, DeclaredNames], Any]


def one(*values: Any) -> Draw:
    return lambda rng, _names: rng.choice(values)


def some(*values: Any, most: int = 3) -> Draw:
    return lambda rng, _names: rng.sample(values, rng.randint(1, min(most, len(values))))


def named(table: str, *others: Any) -> Draw:
    return lambda rng, names: rng.choice([*getattr(names, table), *others] or ["nobody"])


def several(table: str) -> Draw:
    def draw(rng: Random, names: DeclaredNames) -> Any:
        known = list(getattr(names, table))
        return rng.sample(known, rng.randint(1, len(known))) if known else []

    return draw


def _amounts(rng: Random, _names: DeclaredNames) -> Mapping[str, Any]:
    """Whole GPUs, at times slices or processors as well."""
    found: dict[str, Any] = {GPU: rng.choice((0, 1, 4, 8, 16, 32))}
    if rng.random() < 0.3:
        found[rng.choice(SLICES)] = rng.choice((0, 8, 28, 56))
    if rng.random() < 0.2:
        found["cpu"] = rng.choice((0, 8, 64, 256))
    return {name: str(amount) for name, amount in found.items()}


def _layouts(rng: Random, names: DeclaredNames) -> Any:
    return rng.sample(list(names.layouts), rng.randint(1, len(names.layouts))) if names.layouts else ["none"]


LABEL_MAPS = one({}, {"x": "y"}, {"x": "z"}, {"rack": "r1", "x": "y"})
SOON = one("0s", "30s", "60s", "5m", "20m", "Never")
SHORT = one("1m", "10m", "1h", "24h")

DEVICES = {"example.com/fpga": "2"}
"""What overlays promise, and a device plugin keeps."""
STARTUP_TAINT = "boot"
"""The key of what something on a node takes away once it is ready."""
PLACED: Mapping[str, Draw] = {
    "NodePool.template.startupTaints.key": one(STARTUP_TAINT),
    "NodePool.template.startupTaints.effect": one("NoSchedule", "NoExecute"),
}
"""Fields that are drawn otherwise than others of their class."""
VALUES: Mapping[tuple[str, str], Draw] = {
    # NodePool
    ("NodePoolSpec", "instanceTypes"): some(*TYPES),
    ("NodePoolSpec", "instanceFamilies"): one([], ["p5"], ["g5", "g6"], ["p4de", "p5"], ["c6i", "m6i"]),
    ("NodePoolSpec", "zones"): some(*ZONES),
    ("NodePoolSpec", "capacityTypes"): one(
        ["on-demand"], ["on-demand"], ["spot"], ["spot", "on-demand"], ["on-demand", "spot"], ["reserved", "on-demand"]
    ),
    ("NodePoolSpec", "weight"): one(0, 1, 50, 100),
    ("NodePoolSpec", "replicas"): one(0, 1, 2, 3),
    ("NodePoolSpec", "serves"): one(["Gangs"], ["Gangs", "Pods"], ["Pods"]),
    ("ReservationTerm", "id"): one("cr-0abc", ""),
    ("ReservationTerm", "tags"): one({"team": "x"}, {"team": "*"}),
    ("ReservationTerm", "owner"): one("", "123456789012"),
    ("ReservationTerm", "type"): one("default", "capacity-block"),
    ("ReservationTerm", "match"): one("open", "targeted"),
    ("Reservations", "leaveBefore"): one("1m", "10m", "1h"),
    ("GpuSelector", "models"): some("h100", "a100", "l4", "a10g"),
    ("GpuSelector", "minCount"): one(1, 4, 8),
    ("GpuSelector", "maxCount"): one(1, 4, 8, 16),
    ("GpuSelector", "minMemoryMiB"): one(1, 24_000, 40_000, 81_000),
    ("RequirementTerm", "key"): one(
        "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family"
    ),
    ("RequirementTerm", "operator"): one("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("RequirementTerm", "values"): one([A], [B, C], [P5], [G5, G6], ["p5"], ["4"]),
    ("RequirementTerm", "minValues"): one(1, 2),
    ("Limits", "resources"): one({GPU: "0"}, {GPU: "8"}, {GPU: "24"}, {"cpu": "400"}, {}),
    ("Limits", "nodes"): one(0, 1, 2, 4, 8),
    ("Limits", "usdPerHour"): one(1, 20, 60, 150),
    ("MigSharing", "layouts"): _layouts,
    ("LayoutRollout", "budget"): one(0, 1, 2, "50%", "100%"),
    ("LayoutRollout", "deadline"): one("0s", "10m", "24h"),
    ("LayoutRollout", "order"): one("leastLostWork"),
    ("LayoutRollout", "failures"): one(1, 3),
    ("ReplicaSharing", "replicas"): one(2, 4),
    ("ReplicaSharing", "renameByDefault"): one(True, False),
    ("ReplicaSharing", "failRequestsGreaterThanOne"): one(True, False),
    ("PlacementSpec", "group"): one("", "near"),
    ("PlacementSpec", "strategy"): one("cluster", "partition", "spread"),
    ("PlacementSpec", "efa"): one(True, False),
    ("PlacementSpec", "topology"): named("topologies"),
    # what machines are born with
    ("NodeTemplate", "labels"): LABEL_MAPS,
    ("NodeTemplate", "annotations"): one({}, {"a": "b"}, {"karpenter.sh/do-not-disrupt": "true"}),
    ("NodeTemplate", "images"): one("Follow", "ProposeChange"),
    ("NodeTemplate", "amiFamily"): one("AL2023", "Bottlerocket"),
    ("NodeTemplate", "userData"): one("", "#!/bin/bash\necho hi", "#!/bin/bash\necho ho"),
    ("NodeTemplate", "role"): one("", "nodes", "others"),
    ("NodeTemplate", "instanceProfile"): one("", "nodes"),
    ("NodeTemplate", "associatePublicIPAddress"): one(True, False),
    ("NodeTemplate", "instanceStorePolicy"): one("RAID0"),
    ("NodeTemplate", "detailedMonitoring"): one(True, False),
    ("NodeTemplate", "tags"): one({}, {"owner": "x"}, {"owner": "y"}),
    ("NodeTemplate", "expireAfter"): one("Never", "24h", "72h", "2h", "40m"),
    ("NodeTemplate", "terminationGracePeriod"): one("0s", "30s", "10m", "Never"),
    ("Taint", "key"): one("k", "l"),
    ("Taint", "value"): one("", "v"),
    ("Taint", "effect"): one("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("AmiTerm", "alias"): one("al2023@latest", "bottlerocket@latest", "al2023@v20250505"),
    ("AmiTerm", "id"): one("ami-0abc", "ami-0abd"),
    ("AmiTerm", "ssmParameter"): one("", "/images/newest"),
    ("AmiTerm", "tags"): one({}, {"image": "x"}),
    ("AmiTerm", "name"): one("", "gpu-*"),
    ("AmiTerm", "owner"): one("", "self"),
    ("SubnetTerm", "tags"): one({"net": "a"}, {"net": "*"}),
    ("SubnetTerm", "id"): one("subnet-1", "subnet-2"),
    ("SecurityGroupTerm", "tags"): one({"net": "a"}, {"net": "*"}),
    ("SecurityGroupTerm", "id"): one("sg-1", "sg-2"),
    ("SecurityGroupTerm", "name"): one("", "nodes"),
    ("Kubelet", "clusterDNS"): one([], ["10.0.0.10"]),
    ("Kubelet", "maxPods"): one(1, 4, 110),
    ("Kubelet", "podsPerCore"): one(0, 1, 10),
    ("Kubelet", "systemReserved"): one({}, {"cpu": "1"}, {"memory": "8Gi"}),
    ("Kubelet", "kubeReserved"): one({}, {"cpu": "1"}, {"memory": "900Gi"}),
    ("Kubelet", "evictionHard"): one({}, {"memory.available": "5%"}),
    ("Kubelet", "evictionSoft"): one({}, {"memory.available": "10%"}),
    ("Kubelet", "evictionSoftGracePeriod"): one({}, {"memory.available": "1m"}),
    ("Kubelet", "evictionMaxPodGracePeriod"): one(0, 60),
    ("Kubelet", "imageGCHighThresholdPercent"): one(85, 90),
    ("Kubelet", "imageGCLowThresholdPercent"): one(50, 80),
    ("Kubelet", "cpuCFSQuota"): one(True, False),
    ("BlockDeviceMapping", "deviceName"): one("/dev/xvda", "/dev/xvdb"),
    ("BlockDeviceMapping", "rootVolume"): one(True, False),
    ("Ebs", "volumeSize"): one("20Gi", "100Gi", "2Ti"),
    ("Ebs", "volumeType"): one("gp3", "io2"),
    ("Ebs", "iops"): one(3000, 6000),
    ("Ebs", "throughput"): one(125, 500),
    ("Ebs", "encrypted"): one(True, False),
    ("Ebs", "kmsKeyID"): one("", "alias/disks"),
    ("Ebs", "snapshotID"): one("", "snap-1"),
    ("Ebs", "volumeInitializationRate"): one(100, 300),
    ("Ebs", "deleteOnTermination"): one(True, False),
    ("MetadataOptions", "httpEndpoint"): one("enabled", "disabled"),
    ("MetadataOptions", "httpProtocolIPv6"): one("enabled", "disabled"),
    ("MetadataOptions", "httpPutResponseHopLimit"): one(1, 2),
    ("MetadataOptions", "httpTokens"): one("required", "optional"),
    ("DisruptionSpec", "consolidationPolicy"): one("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
    ("DisruptionSpec", "consolidationThreshold"): one(1, 2, 10),
    ("DisruptionSpec", "spotToSpot"): one(True, False),
    ("DisruptionSpec", "consolidateAfter"): SOON,
    ("DisruptionSpec", "onRebalance"): one("Ignore", "Replace"),
    ("Budget", "nodes"): one(0, 1, 2, "0%", "10%", "50%", "100%"),
    ("Budget", "reasons"): some("Empty", "Underutilized", "Drifted", "Expired", "Rebalanced"),
    ("Budget", "schedule"): one("* * * * *", "0 0 1 1 *", "*/10 * * * *"),
    ("Budget", "duration"): one("1m", "5m", "1h"),
    ("Return", "after"): one("0s", "1m", "10m", "1h"),
    ("Repair", "condition"): one("Ready", "KernelReady"),
    ("Repair", "statuses"): one(["False"], ["False", "Unknown"], ["True"]),
    ("Repair", "after"): one("1m", "10m"),
    # NodeOverlay
    ("NodeOverlaySpec", "price"): one("", "0.5", "10", "200"),
    ("NodeOverlaySpec", "priceAdjustment"): one("", "+50%", "-50%", "+10", "-1.5"),
    ("NodeOverlaySpec", "capacity"): one({}, DEVICES),
    ("NodeOverlaySpec", "weight"): one(0, 10),
    # MigLayout, Flavor, Topology
    ("DeviceGroup", "devices"): one("all", [0, 1, 2, 3], [4, 5, 6, 7]),
    ("DeviceGroup", "profiles"): one({"1g.10gb": 7}, {"3g.40gb": 2}, {"7g.80gb": 1}, {"2g.20gb": 3}, {}),
    ("FlavorSpec", "nodePools"): several("pools"),
    ("FlavorSpec", "nodeLabels"): LABEL_MAPS,
    ("FlavorSpec", "topology"): named("topologies"),
    ("Toleration", "key"): one("", "k", "l"),
    ("Toleration", "operator"): one("Exists", "Equal"),
    ("Toleration", "value"): one("", "v"),
    ("Toleration", "effect"): one("", "NoSchedule", "NoExecute"),
    ("Toleration", "tolerationSeconds"): one(0, 30),
    ("TopologySpec", "levels"): one(
        ["topology.kubernetes.io/zone"], ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    ),
    # Team, Queue, PriorityClass
    ("TeamSpec", "parent"): named("teams"),
    ("TeamSpec", "namespaces"): named("teams"),
    ("TeamSpec", "weight"): one(0.5, 1.0, 3.0),
    ("TeamSpec", "priorityClasses"): several("priorities"),
    ("TeamSpec", "defaultQueue"): named("queues"),
    ("TeamSpec", "ordinaryPodsQueue"): named("queues"),
    ("TeamSpec", "manageJobsWithoutQueueName"): one(True, False),
    ("TeamSpec", "hardFence"): one(True, False),
    ("TeamBudget", "usdPerMonth"): one(0.01, 1e6),
    ("FlavorQuota", "guaranteed"): _amounts,
    ("FlavorQuota", "borrowingLimit"): one({GPU: "0"}, {GPU: "8"}, {}),
    ("FlavorQuota", "lendingLimit"): one({GPU: "0"}, {GPU: "8"}, {}),
    ("QueueSpec", "team"): named("teams"),
    ("QueueSpec", "flavors"): several("flavors"),
    ("QueueSpec", "order"): one("BestEffortFIFO", "StrictFIFO"),
    ("QueueSpec", "fairness"): one("None", "DominantShare"),
    ("QueueSpec", "protectedRunTime"): one("0s", "1m", "1h"),
    ("QueueSpec", "reserveAfter"): one("0s", "1m", "Never"),
    ("QueueSpec", "admissionChecks"): one([], ["nobody"]),
    ("QueueSpec", "onNodeFailure"): one("Replace", "Evict"),
    ("IdleGpuPolicy", "after"): one("5m", "1h", "Never"),
    ("IdleGpuPolicy", "action"): one("Warn", "Stop"),
    ("QueueSpec", "stopPolicy"): one("None", "Hold", "HoldAndDrain"),
    ("QueueFairSharing", "namespaceWeights"): one({}, {"t": 0}, {"t": 2.0, "u": 0.5}),
    ("PreemptionPolicy", "moveOthers"): one(True, False),
    ("PreemptionPolicy", "withinQueue"): one("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    ("PreemptionPolicy", "reclaim"): one("Never", "LowerPriority", "Any"),
    ("PreemptionPolicy", "whileBorrowing"): one("Never", "LowerPriority"),
    ("PodsReady", "startTimeout"): one("5m", "30m", "1h"),
    ("PodsReady", "recoveryTimeout"): one("1m", "5m"),
    ("PodsReady", "backoffBase"): one("10s", "60s"),
    ("PodsReady", "backoffMax"): one("1m", "1h"),
    ("PodsReady", "backoffLimit"): one(0, 1, 5),
    ("PriorityClassSpec", "value"): one(-5, 0, 50, 100, 1000),
    ("PriorityClassSpec", "preempts"): one(True, False),
    ("PriorityClassSpec", "preemptible"): one(True, False),
    # FleetPolicy
    ("FreezeWindow", "schedule"): one("* * * * *", "0 0 1 1 *", "*/20 * * * *"),
    ("FreezeWindow", "duration"): one("1m", "10m", "1h"),
    ("FreezeWindow", "blocks"): one(["Disruption"]),
    ("FreezeWindow", "timeZone"): one("UTC", "Europe/Berlin", "America/New_York"),
    ("AllowWindow", "schedule"): one("* * * * *", "*/20 * * * *"),
    ("AllowWindow", "duration"): one("1m", "10m", "1h"),
    ("AllowWindow", "allows"): one(["Disruption"]),
    ("AllowWindow", "timeZone"): one("UTC", "Asia/Kolkata"),
    ("FleetPolicySpec", "purchases"): one("Optimal", "Greedy"),
    ("FleetPolicySpec", "usdPerHourPerMachine"): one(0, 0.02, 0.5, 10),
    ("AdmissionFairSharing", "usageHalfLifeTime"): one("0s", "1m", "1h"),
    ("AdmissionFairSharing", "usageSamplingInterval"): one("30s", "5m"),
    ("AdmissionFairSharing", "resourceWeights"): one({}, {GPU: 1.0, "cpu": 0.0}),
}
"""(Class of the specification, field as it is written) -> a value, which need not be valid beside the others."""

UNDRAWN: Mapping[tuple[str, str], str] = {
    ("MigSharing", "recutIdleGpus"): "no readings are drawn, without which it moves nothing",
    ("DraSharing", "dynamicMig"): "no work that is drawn claims devices",
    ("DraSharing", "consumableShares"): "the same",
    ("GuardRails", "*"): "they stop revisions, and move nothing; made-up fleets have none",
    ("NodePoolSpec", "deletion"): "a rail: it stops revisions that do not confirm it",
    ("TeamSpec", "deletion"): "a rail: it stops revisions that do not confirm it",
    ("DailyRails", "*"): "the same, over a day",
    ("Signatures", "*"): "who signed does not move anything",
    ("ApprovalPolicy", "*"): "people stop revisions, and move nothing",
    ("ApprovalTolerance", "*"): "the same",
    ("OwnerRule", "*"): "the same",
    ("PlanCheck", "*"): "it stops revisions, and moves nothing",
    ("PlanCheckTest", "*"): "the same",
    ("NotificationSink", "*"): "addresses stand in the agent's environment, and move nothing",
    ("PoolRollout", "*"): "it names pools, which made-up policies do not know; see tests/fleet/disruption",
    ("FreezeWindow", "name"): "a word for people",
    ("AllowWindow", "name"): "a word for people",
    ("PriorityClassSpec", "description"): "a word for people",
    ("ClusterSpec", "*"): "it tells what is read, and when; made-up fleets are read whole",
    ("FleetPolicySpec", "allowUnknown"): "silences findings, and moves nothing",
}

_LOW = {"memory.available": "10%"}
ELEMENTS: Mapping[str, Draw] = {
    "ReservationTerm": one({"tags": {"team": "x"}}),
    "RequirementTerm": one(
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [A, C]},
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [B]},
        {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": [G5]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ),
    "Taint": one({"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoExecute"}),
    "AmiTerm": one({"alias": "al2023@latest"}, {"id": "ami-0abc"}),
    "SubnetTerm": one({"id": "subnet-1"}),
    "SecurityGroupTerm": one({"id": "sg-1"}),
    "BlockDeviceMapping": one(
        {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}},
        {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "snapshotID": "snap-1"}},
    ),
    "Budget": one({"nodes": "100%"}, {"nodes": 1}, {"nodes": "0%", "schedule": "*/10 * * * *", "duration": "5m"}),
    "Repair": one({"condition": "Ready", "after": "5m"}),
    "Toleration": one({"key": "k", "operator": "Exists"}),
    "FreezeWindow": one({"name": "w", "schedule": "*/20 * * * *", "duration": "10m", "blocks": ["Disruption"]}),
    "AllowWindow": one({"name": "w", "schedule": "*/20 * * * *", "duration": "10m", "allows": ["Disruption"]}),
    "AdmissionFairSharing": one({"usageHalfLifeTime": "1h"}),
    "DeviceGroup": one({"devices": "all", "profiles": {"1g.10gb": 7}}),
    "FlavorQuota": lambda rng, names: {"guaranteed": _amounts(rng, names)},
    "TeamBudget": one({"usdPerMonth": 1e6}),
    "Kubelet": one({}, {"evictionSoft": _LOW, "evictionSoftGracePeriod": {"memory.available": "1m"}}),
}  # fmt: skip
"""Class of a specification that has fields without a default, or may be repeated -> one to begin with."""


ALONGSIDE: Mapping[str, tuple[str, Any]] = {
    "ReservationTerm": ("capacityTypes", ["reserved", "on-demand"]),
    "DisruptionSpec.consolidationThreshold": ("disruption.consolidationPolicy", "Balanced"),
    "Return.after": ("capacityTypes", ["spot", "on-demand"]),
    "FlavorSpec.nodeLabels": ("nodePools", []),
}
"""Class, or class and field -> the field of the same declaration that has to be so beside it."""
STAYS = frozenset({("FreezeWindow", "blocks"), ("AllowWindow", "allows")})
"""Fields that are not taken away: a window without it holds revisions back as well, and nothing could be compared."""
ONE_WAY = frozenset({"ReservationTerm", "AmiTerm", "SubnetTerm", "SecurityGroupTerm"})
"""Classes of which one field is given, mostly, and not the others."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field of a kind by the names on the way to it."""

    kind: str
    path: tuple[str, ...]
    owner: str
    """The class it is a field of."""

    def __str__(self) -> str:
        return f"{self.kind}.{'.'.join(self.path)}"


def parts(annotation: Any) -> list[type[Spec]]:
    """The specifications that an annotation is made of."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [found for inner in get_args(annotation) for found in parts(inner)]


def written(field: str, cls: type[Spec]) -> str:
    return cls.model_fields[field].alias or field


def fields_of(kind: str, cls: type[Spec], path: tuple[str, ...] = ()) -> Iterator[FieldPath]:
    """Every field that holds a value, however deep."""
    for name, info in cls.model_fields.items():
        here = (*path, written(name, cls))
        inner = parts(info.annotation)
        for part in inner:
            yield from fields_of(kind, part, here)
        if not inner:
            yield FieldPath(kind, here, cls.__name__)


def all_fields() -> list[FieldPath]:
    """The fields of all kinds."""
    return [
        found
        for kind in KINDS
        for part in parts(kind.model_fields["spec"].annotation)
        for found in fields_of(kind.__name__, part)
    ]


def value_of(rng: Random, names: DeclaredNames, field: FieldPath) -> Any:
    """A value for a field."""
    draw = PLACED.get(str(field)) or VALUES[field.owner, field.path[-1]]
    return draw(rng, names)


def undrawn(field: FieldPath) -> bool:
    """Whether a field is left alone on purpose."""
    return (field.owner, "*") in UNDRAWN or (field.owner, field.path[-1]) in UNDRAWN


DRAWN: Sequence[FieldPath] = [field for field in all_fields() if not undrawn(field)]
