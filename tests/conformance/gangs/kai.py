"""Cases in KAI-Scheduler's words (kai-scheduler/KAI-Scheduler at d5bc503a) as scenes."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.snapshot import PodSet
from model.kinds import RequirementTerm
from model.quantity import canonical_amount
from tests.conformance.cases import Case
from tests.conformance.gangs.scene import GangScene, Pods
from tests.reference.session.fair import FairLedger, FairQueue
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.values import (
    Crew,
    CrewGroup,
    GpuShare,
    Neighbour,
    PodState,
    SessionMachine,
    SessionPod,
    SessionTopology,
    Squad,
    Within,
)

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
GRACE_S = 60.0
RAN_FOR_S = 60.0
MOST_CONSUMERS = 256
MEGABYTE = 1_000_000
NOWHERE = {"muster.dev/unsatisfiable": "true"}

STAGES = {
    "allocate": SessionStage.ALLOCATE,
    "consolidation": SessionStage.CONSOLIDATE,
    "reclaim": SessionStage.RECLAIM,
    "preempt": SessionStage.PREEMPT,
    "stalegangeviction": SessionStage.STALE,
}
STATES = {
    "Pending": PodState.PENDING,
    "Running": PodState.RUNNING,
    "Bound": PodState.RUNNING,
    "Binding": PodState.RUNNING,
    "Allocated": PodState.RUNNING,
    "Pipelined": PodState.NOMINATED,
    "Releasing": PodState.TERMINATING,
    "StuckInReleasing": PodState.STUCK,
    "Succeeded": PodState.SUCCEEDED,
    "Failed": PodState.FAILED,
}


CORES_BELOW = 100


def milli_cpu(asked: float) -> int:
    """What a pod asks for. Upstream wrote cores in most rows and thousandths in some; the small numbers are cores."""
    return round(asked * 1000) if asked < CORES_BELOW else round(asked)


def build(case: Case, pods: Pods, queued: frozenset[str]) -> GangScene:
    """The scene of a case with its pods as they are now."""
    claims = _KaiClaims(case)
    policy = Policy(
        stages=_stages(case["run"]["actions"]),
        spread_gpus=bool(case["run"].get("custom_scheduler_conf")),
    )
    squads = [_squad(case, group, pods, claims) for group in case["podgroups"]]
    ledger = FairLedger([_queue(queue) for queue in case["queues"]])
    machines = [_machine(case, node, claims) for node in case["nodes"]]
    return GangScene(
        machines, squads, ledger, policy, [_topology(case, entry) for entry in case.get("topologies") or ()]
    )


def _stages(actions: Sequence[str]) -> tuple[SessionStage, ...]:
    """Consolidation before reclaim is for those who might reclaim; the others get their chance after it."""
    stages = [STAGES[action] for action in actions]
    if SessionStage.RECLAIM in stages and SessionStage.CONSOLIDATE in stages:
        last = max(stages.index(stage) for stage in (SessionStage.RECLAIM, SessionStage.PREEMPT) if stage in stages)
        stages.insert(last + 1, SessionStage.CONSOLIDATE)
    return tuple(stages)


def _queue(queue: Mapping[str, Any]) -> FairQueue:
    quota: dict[str, float] = {}
    limit: dict[str, float] = {}
    weight: dict[str, float] = {}
    for name, resource, unit in (("gpu", GPU, 1), ("cpu", "cpu", 1), ("memory", "memory", MEGABYTE)):
        given = queue.get(name) or {}
        for key, where in (("quota", quota), ("limit", limit)):
            value = float(given.get(key, -1))
            where[resource] = value if value < 0 else value * unit
        weight[resource] = float(given.get("over_quota_weight", 1))
        if quota[resource] < 0:
            quota[resource] = -1.0
        if limit[resource] < 0:
            limit[resource] = -1.0
    return FairQueue(
        queue["name"],
        queue.get("parent") or "",
        quota,
        limit,
        weight,
        priority=queue.get("priority", 100),
        reclaim_min_runtime_s=queue.get("reclaim_min_runtime_s"),
    )


# -- machines ---------------------------------------------------------------------------------------------------------


def _machine(case: Case, node: Mapping[str, Any], claims: "_KaiClaims") -> SessionMachine:
    capacity = {
        "cpu": int(node["cpu"]),
        "memory": canonical_amount("memory", node["memory"]),
        "pods": int(node.get("max_pods") or 110),
        GPU: int(node.get("schedulable_whole_gpus", node["gpus"])) + claims.devices(node["name"]),
    }
    legacy = any(pod.get("legacy_mig") and pod.get("node") == node["name"] for pod in case["pods"])
    for profile, count in (node.get("mig_instances") or {}).items():
        capacity[profile] = 0 if legacy else int(count)
    labels = {HOSTNAME: node["name"], "kai.scheduler/type": node["name"], **(node.get("labels") or {})}
    return SessionMachine(node["name"], capacity, labels, gpu_memory_mib=int(node.get("gpu_memory_mib") or 0))


def _topology(case: Case, topology: Mapping[str, Any]) -> SessionTopology:
    """A domain is named by the labels of all levels down to its own: racks of different zones may share a name."""
    levels = tuple(topology["levels"])
    domains: list[dict[str, str]] = [{} for _ in levels]
    for node in case["nodes"]:
        labels, path = node.get("labels") or {}, []
        for place, level in enumerate(levels):
            if level not in labels:
                break
            path.append(labels[level])
            domains[place][node["name"]] = "/".join(path)
    return SessionTopology(topology["name"], levels, tuple(domains))


class _KaiClaims:
    """Resource claims as GPUs: the first pod of a claim asks for them, the others have to be where it is."""

    def __init__(self, case: Case) -> None:
        self._devices: dict[str, int] = {}
        for piece in case.get("resource_slices") or ():
            self._devices[piece["NodeName"]] = self._devices.get(piece["NodeName"], 0) + int(piece["Count"])
        self._claims = {claim["Name"]: claim for claim in case.get("resource_claims") or ()}
        self._users: dict[str, list[str]] = {}
        for pod in sorted(case["pods"], key=lambda entry: entry.get("state") != "Running"):
            for name in pod.get("resource_claims") or ():
                self._users.setdefault(name, []).append(pod["name"])

    def devices(self, node: str) -> int:
        return self._devices.get(node, 0)

    def of(self, pod: Mapping[str, Any]) -> tuple[int, str, bool]:
        """GPUs to ask for, the node it has to be on, and whether it can run at all."""
        gpus, node = 0, ""
        for name in pod.get("resource_claims") or ():
            claim = self._claims.get(name)
            if claim is None:
                return 0, "", False
            status = claim.get("ClaimStatus") or {}
            if self._users[name][0] == pod["name"]:
                gpus += int(claim.get("Count") or 0)
            else:
                results = ((status.get("Allocation") or {}).get("Devices") or {}).get("Results") or [{}]
                node = results[0].get("Pool", "")
            reserved = status.get("ReservedFor")
            others = int(reserved.get("other_consumers", 0)) if isinstance(reserved, dict) else 0
            if others + len(self._users[name]) > MOST_CONSUMERS:
                return 0, "", False
        return gpus, node, True


# -- squads -----------------------------------------------------------------------------------------------------------


def _squad(case: Case, group: Mapping[str, Any], pods: Pods, claims: _KaiClaims) -> Squad:
    members = [pod for pod in case["pods"] if pod["podgroup"] == group["name"]]
    crews: dict[str, list[SessionPod]] = {}
    for pod in members:
        crews.setdefault(pod.get("sub_group") or "", []).append(_pod(pod, pods, claims))
    delay, age = group.get("preemption_delay_s"), float(group.get("age_minutes") or 0) * 60
    return Squad(
        name=group["name"],
        queue=group["queue"],
        root=_root(group, crews),
        priority=int(group["priority"]),
        preemptible=bool(group["preemptible"]),
        created=int(group["creation_order"]),
        may_evict=delay is None or age >= float(delay),
        ran_for_s=_ran_for_s(members, pods),
        stale=_is_stale(case, group, [pods[pod["name"]].state for pod in members]),
        leaving=bool(group.get("being_deleted")),
    )


def _ran_for_s(members: Sequence[Mapping[str, Any]], pods: Pods) -> float | None:
    """Nothing is said of when jobs started: upstream takes it that whatever runs has done so for a minute."""
    return RAN_FOR_S if any(STATES[pods[pod["name"]].state] is PodState.RUNNING for pod in members) else None


def _is_stale(case: Case, group: Mapping[str, Any], states: Sequence[str]) -> bool:
    """Rounds have no clock: there, nobody is granted any time."""
    rounds = case["run"]["mode"] == "rounds"
    grace = float(group.get("staleness_grace_s", 0.0 if rounds else GRACE_S))
    return grace >= 0 and "Succeeded" not in states and float(group.get("stale_seconds") or 0.0) >= grace


def _root(group: Mapping[str, Any], crews: dict[str, list[SessionPod]]) -> CrewGroup:
    within = _within(group.get("topology_constraint"))
    tree = group.get("sub_groups")
    if tree:
        root = _group(tree, crews, "")
        stray = tuple(pod for name, found in crews.items() if name not in _names(tree) for pod in found)
        parts = (*root.parts, Crew("", stray, 0)) if stray else root.parts
        return CrewGroup("", parts, root.at_least, within=within or root.within)
    pods = tuple(pod for found in crews.values() for pod in found)
    return CrewGroup("", (Crew("", pods, int(group.get("min_member", 1))),), 1, within=within)


def _group(tree: Mapping[str, Any], crews: Mapping[str, list[SessionPod]], name: str) -> CrewGroup:
    parts: list[Crew | CrewGroup] = [_group(below, crews, below["name"]) for below in tree.get("groups") or ()]
    for pod_set in tree.get("pod_sets") or ():
        found = tuple(crews.get(pod_set["name"], ()))
        parts.append(
            Crew(pod_set["name"], found, int(pod_set["min_member"]), _within(pod_set.get("topology_constraint")))
        )
    at_least = tree.get("min_sub_group")
    return CrewGroup(
        name,
        tuple(parts),
        len(parts) if at_least is None else int(at_least),
        within=_within(tree.get("topology_constraint")),
    )


def _names(tree: Mapping[str, Any]) -> set[str]:
    found = {pod_set["name"] for pod_set in tree.get("pod_sets") or ()}
    for below in tree.get("groups") or ():
        found |= _names(below)
    return found


def _within(constraint: Mapping[str, Any] | None) -> Within | None:
    if not constraint:
        return None
    return Within(
        constraint["topology"], constraint.get("required_level") or "", constraint.get("preferred_level") or ""
    )


def _pod(pod: Mapping[str, Any], pods: Pods, claims: _KaiClaims) -> SessionPod:
    asked, now = pod["requests"], pods[pod["name"]]
    gpus, node, possible = claims.of(pod)
    requests = {"cpu": milli_cpu(asked.get("cpu") or 0), "memory": canonical_amount("memory", asked.get("memory") or 0)}
    requests[GPU] = int(asked.get("gpu") or 0) + gpus
    requests.update({profile: int(count) for profile, count in (asked.get("mig") or {}).items()})
    names = [*(pod.get("node_affinity_names") or ()), *([node] if node else ())]
    affinity = ((RequirementTerm(key=HOSTNAME, operator="In", values=tuple(names)),),) if names else ()
    legacy = pod.get("legacy_mig") and now.state == "Pending"
    template = PodSet(
        "pod",
        1,
        {name: amount for name, amount in requests.items() if amount},
        node_selector={} if possible and not legacy else NOWHERE,
        required_affinity=affinity,
    )
    return SessionPod(
        name=pod["name"],
        template=template,
        state=STATES[now.state],
        node=now.node,
        order=-int(pod.get("task_order_priority") or 0),
        gpu=_share(asked),
        devices=now.devices if _share(asked) else (),
        labels=pod.get("pod_labels") or {},
        neighbours=_neighbours(pod),
    )


def _share(asked: Mapping[str, Any]) -> GpuShare | None:
    devices = int(asked.get("gpu_fraction_devices") or 1)
    if asked.get("gpu_fraction"):
        return GpuShare(millionths=round(float(asked["gpu_fraction"]) * 1_000_000), devices=devices)
    if asked.get("gpu_memory_mib"):
        return GpuShare(memory_mib=int(asked["gpu_memory_mib"]), devices=devices)
    return None


def _neighbours(pod: Mapping[str, Any]) -> tuple[Neighbour, ...]:
    """Affinity terms select pods with the pod's own labels."""
    labels = {key: frozenset({value}) for key, value in (pod.get("pod_labels") or {}).items()}
    found = []
    if key := pod.get("pod_affinity_topology_key"):
        found.append(Neighbour(key, labels))
    if key := pod.get("pod_anti_affinity_topology_key"):
        found.append(Neighbour(key, labels, apart=True))
    return tuple(found)
