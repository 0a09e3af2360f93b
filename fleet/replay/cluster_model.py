"""A model of cluster and cloud in which all goes well: what actions make of it, and what follows by itself.

It decides nothing. Launches bring what they ask for unless a shortage is known, machines join after as long as others
of their kind have taken, pods become ready soon after their release, and a gang ends when it has said that it will.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

from fleet.gangs.lost_machines import ready_at_s
from fleet.mig.layouts import REASSERT, gpu_part, with_gpus
from fleet.replay.model_objects import ModelTable, born_node, claimable, fewer, less, observed_machines, summed, vacancy
from fleet.scheduling.queue_order import ends_at_s
from fleet.snapshot import (
    NO_QUOTAS,
    CapacityPool,
    Claim,
    ClaimState,
    Gang,
    GangState,
    Hold,
    Instance,
    Job,
    JobResult,
    Node,
    Pod,
    Snapshot,
)
from fleet.snapshot.affinity import UNREGISTERED, is_ephemeral
from fleet.snapshot.pod_index import PodIndex
from fleet.snapshot.resource_quotas import recounted
from fleet.snapshot.works import PLAIN, has_started
from model import labels
from model.changed import changed
from model.fleet import Fleet
from model.index import Index
from model.kinds import NodeTemplate

POD_STARTS_S: Final = 5.0
"""From the release of a pod until it is ready, and from the start of a job until it has pods."""
TERMINATION_S: Final = 60.0
"""From the order to end a machine until it is known to be terminated: that takes EC2 half a minute, and a listing."""
RECUT_S: Final = 60.0
"""Until the GPUs of a node have another MIG layout."""
NO_RUN_TIMES: Final = MappingProxyType[str, float]({})
_TABLES: Final = ("nodes", "jobs", "gangs", "claims", "instances")
_OF_PODS: Final = ("job_pods", "node_pods", "repelling_pods", "ordinary_pods", "waiting_pods")


class ClusterModel:
    """The state of a modelled cluster at `now_s`, and the events that are still to come."""

    def __init__(
        self, fleet: Fleet, snapshot: Snapshot, before: Fleet | None = None, run_s: Mapping[str, float] = NO_RUN_TIMES
    ) -> None:
        """`before`: whose templates machines on their way have. `run_s`: uid -> its run from admission on (s)."""
        self.fleet = fleet
        self._run_s = run_s
        self._born = {
            claim.name: pool.spec.template
            for claim in snapshot.claims.values()
            if (pool := (before or fleet).node_pools.get(claim.node_pool)) is not None
        }
        self.now_s = snapshot.now_s
        self.nodes: ModelTable[Node] = ModelTable(snapshot.nodes)
        self.gangs: ModelTable[Gang] = ModelTable(snapshot.gangs)
        self.claims: ModelTable[Claim] = ModelTable(snapshot.claims)
        self.jobs: ModelTable[Job] = ModelTable(snapshot.jobs)
        self.instances: ModelTable[Instance] = ModelTable(observed_machines(snapshot))
        self._tables: Mapping[str, ModelTable[Any]] = {name: getattr(self, name) for name in _TABLES}
        self.shortages, self.outlook, self.pod_verdicts = snapshot.shortages, snapshot.outlook, snapshot.pod_verdicts
        self.bought: frozenset[str] = frozenset()
        """Claims opened in the model, which do not expire in it."""
        self.made = count(1)
        """Numbers for what the model makes: instances, pods."""
        self._index = Index()
        none, self._quotas = frozenset[str](), NO_QUOTAS  # their status counts the pods that are there at first
        self._seen = replace(snapshot, busy=none, set_aside=none, layouts=None, hard_fences=None, index=self._index)
        self._seen_of: tuple[object, object] = None, None  # what was written when it was last looked at
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._pods: dict[str, Pod] = {}
        self._pod_writes = 0
        self._pod_index = PodIndex()
        self._uids = {f"{gang.namespace}/{gang.workload}": uid for uid, gang in snapshot.gangs.items()}
        self._node_names: dict[str, str] = {}
        for node in snapshot.nodes.values():
            self._know(node)
        tables = (*snapshot.job_pods.values(), *snapshot.gang_pods.values(), *snapshot.node_pods.values())
        for pod in (*(pod for pods in tables for pod in pods), *snapshot.waiting_pods.values()):
            if pod.key not in self._pods:
                self.put_pod(pod.key, pod)
        self._quotas = snapshot.namespace_quotas
        self._pod_index.settle()
        self._daemon_use = less(snapshot.foreign_use, self._pod_index.foreign_use)
        self._foresee()

    # -- looking at it --

    def snapshot(self, aside: frozenset[str] = frozenset()) -> Snapshot:
        """Returns what a decider sees that leaves these subjects `aside`."""
        if (written := (self._tables_written(), self._rest_written())) != self._seen_of:
            if written[1] != self._seen_of[1]:  # seldom, where pods are not played one by one
                self._seen = self._with_all_but_tables()
            self._seen, self._seen_of = self._look(), written
        return changed(self._seen, set_aside=aside) if aside else self._seen

    def _tables_written(self) -> tuple[object, ...]:
        return self.now_s, *[table.writes for table in self._tables.values()]

    def _rest_written(self) -> tuple[object, ...]:  # by identity: what was seen keeps them
        return self._pod_writes, *map(id, (self.shortages, self.outlook, self.pod_verdicts, self.bought))

    def _look(self) -> Snapshot:
        seen: dict[str, Any] = {name: table.view for name, table in self._tables.items()}
        seen["devices"] = claimable(self._index, self.fleet, self._seen, seen["claims"])
        return changed(self._seen, now_s=self.now_s, instances_at_s=self.now_s, gang_pods=self.gang_pods, **seen)

    def _with_all_but_tables(self) -> Snapshot:
        (pods := self._pod_index).settle()
        there = {name: getattr(pods, name) for name in _OF_PODS}
        there |= {"foreign_use": summed(self._index, self._daemon_use, pods.foreign_use), "outlook": self.outlook}
        there |= {"shortages": self.shortages, "pod_verdicts": self.pod_verdicts, "never_expire": self.bought}
        return changed(self._seen, namespace_quotas=self._quotas, **there)

    @property
    def gang_pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """Returns `namespace/workload` -> the pods of a gang that still exist."""
        self._pod_index.settle()
        return self._pod_index.gang_pods

    def pods_of(self, gang: Gang) -> list[Pod]:
        """Returns the pods of a gang that still exist."""
        self._pod_index.settle()
        return list(self._pod_index.gang_pods.get(f"{gang.namespace}/{gang.workload}", ()))

    def pods_made_by(self, uid: str) -> list[Pod]:
        """Returns the pods that a job, or one that it has made, has made without the marks of a gang."""
        own = {uid, *(made for made, job in self.jobs.view.items() if job.owner_uid == uid)}
        return [pod for pod in self._pods.values() if pod.owner_job in own and not pod.workload]

    def pods_on(self, node: str) -> list[Pod]:
        """Returns the pods on a node that have not ended, without those of DaemonSets."""
        self._pod_index.settle()
        return list(self._pod_index.node_pods.get(node, ()))

    @property
    def waiting_pods(self) -> Mapping[str, Pod]:
        """Returns the pods of no gang, by key, that have no place yet."""
        self._pod_index.settle()
        return self._pod_index.waiting_pods

    def binds(self, key: str, node: str) -> None:
        """Lets kube-scheduler bind a pod of no gang to a node, where it is ready after a while."""
        pod = self._pods.get(key)
        if pod is not None and self.nodes.get(node) is not None:
            self.put_pod(key, replace(pod, node=node, waits_since_s=0.0))
            self.becomes_ready(key)

    def pod(self, key: str) -> Pod | None:
        """Returns one pod by `namespace/name`."""
        return self._pods.get(key)

    def note_bought(self, claim: str) -> None:
        """Notes that a claim was opened in the model."""
        self.bought |= {claim}

    def is_short(self, pool: CapacityPool) -> bool:
        """Returns whether a launch into a capacity pool brings nothing now."""
        return self.shortages.get(pool, 0.0) > self.now_s

    def new_instance_id(self) -> str:
        """Returns an id that no machine has, not even one that an earlier run on a model has made."""
        return next(name for number in self.made if self.instances.get(name := f"i-{number:012d}") is None)

    # -- changing it --

    def put_gang(self, uid: str, gang: Gang | None) -> None:
        """Writes one gang; None removes it."""
        self.gangs.put(uid, gang)
        if gang is not None:
            self._uids[f"{gang.namespace}/{gang.workload}"] = uid

    def put_node(self, name: str, node: Node | None) -> None:
        """Writes one node; None removes it."""
        self.nodes.put(name, node)
        if node is not None:
            self._know(node)

    def _know(self, node: Node) -> None:
        self._node_names[node.instance_id] = node.name
        self._node_names[node.labels.get(labels.HOSTNAME, node.name)] = node.name

    def node_of(self, instance_or_host: str) -> Node | None:
        """Returns the node behind an instance id, or with a value of the label `kubernetes.io/hostname`."""
        return self.nodes.get(self._node_names.get(instance_or_host, ""))

    def put_pod(self, key: str, pod: Pod | None) -> None:
        """Writes one pod; None removes it."""
        before = self._pods.get(key)
        self._pod_writes += 1
        self._pod_index.change(key, before, pod)
        self._quotas = recounted(self._quotas, before, pod, self._job_of)
        if pod is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod

    def later(self, at_s: float, event: Callable[[], None]) -> None:
        """Lets something happen at an instant, which may have passed."""
        heappush(self._events, (max(at_s, self.now_s), next(self._order), event))

    @property
    def next_s(self) -> float:
        """Returns when something happens by itself next; inf = nothing will."""
        return self._events[0][0] if self._events else inf

    def advance(self, to_s: float, *, to_the_mean: bool = False) -> None:
        """Lets all happen that does until `to_s`; then it is so late, or as late as things happened in the mean."""
        from_s, after_s = self.now_s, list[float]()
        while self._events and self._events[0][0] <= to_s:
            at_s, _, event = heappop(self._events)
            self.now_s = max(self.now_s, at_s)
            after_s.append(self.now_s - from_s)
            event()
        self.now_s = from_s + fmean(after_s) if to_the_mean and after_s else to_s
        if self.shortages and min(self.shortages.values()) <= self.now_s:
            self.shortages = {pool: until for pool, until in self.shortages.items() if until > self.now_s}

    # -- what happens by itself --

    def _foresee(self) -> None:
        """Lets what is under way in the observed world come to its end."""
        snapshot = self.snapshot()
        for claim in snapshot.claims.values():
            if claim.state in {ClaimState.LAUNCHED, ClaimState.REGISTERED}:
                self.joins(claim.name, ready_at_s(snapshot, claim))
            elif claim.state is ClaimState.READY and claim.recut_at_s > claim.ready_at_s:
                self.recuts(claim.node, self.now_s + RECUT_S)
        for machine in snapshot.instances.values():
            if machine.ending:
                self.ended(machine.id, self.now_s + TERMINATION_S)
        for pod in list(self._pods.values()):
            if pod.deleting:
                self.ends(pod.key, pod.deletion_at_s)
            elif pod.active and not pod.gated and not pod.ready and (pod.node or not pod.ordinary):
                self.becomes_ready(pod.key)
        for gang in snapshot.gangs.values():
            if gang.state is GangState.ADMITTED:
                self.finishes(gang)
                self.starts(gang)

    def joins(self, claim: str, at_s: float) -> None:
        """Lets the machine of a claim become a ready node."""
        self.later(at_s, lambda: self._join(claim))

    def _join(self, name: str) -> None:
        claim = self.claims.get(name)
        machine = self.instances.get(claim.instance_id) if claim else None
        if claim is None or machine is None or machine.gone:
            return
        known = self.node_of(machine.id)
        pool = self.fleet.node_pools.get(claim.node_pool)
        template = self._born.get(name) or (pool.spec.template if pool else NodeTemplate())
        passing = {taint.key for taint in claim.startup_taints_by(template)}
        if known is not None:
            kept = tuple(taint for taint in known.taints if taint.key not in passing and not is_ephemeral(taint))
            has = {**known.allocatable, **claim.resources}
            self.put_node(known.name, replace(known, ready=True, allocatable=has, taints=kept))
        else:
            born = born_node(self._seen.catalog, claim, machine, (*template.taints, UNREGISTERED), self.now_s)
            self.put_node(born.name, born)

    def recuts(self, node: str, at_s: float) -> None:
        """Lets a node offer the GPUs of the layout that its label names."""
        self.later(at_s, lambda: self._recut(node))

    def _recut(self, name: str) -> None:
        node, claim = self.nodes.get(name), self._claim_on(name)
        if node is not None and node.labels.get(labels.MIG_CONFIG) == REASSERT:
            self.put_node(name, replace(node, labels={**node.labels, labels.MIG_CONFIG_STATE: "failed"}))
        if node is None or claim is None or node.labels.get(labels.MIG_CONFIG) != claim.layout:
            return
        done, offered = {**node.labels, labels.MIG_CONFIG_STATE: "success"}, gpu_part(claim.resources)
        self.put_node(name, replace(node, labels=done, allocatable=with_gpus(node.allocatable, offered)))

    def _claim_on(self, node: str) -> Claim | None:
        """Returns the claim whose machine a node is; it is asked of young machines, whose claims come last."""
        return next((it for it in reversed([*self.claims.view.values()]) if it.node == node), None)

    def shares(self, name: str) -> None:
        """Lets a node offer its GPUs as the configuration that its label names says: as its claim promises."""
        node, claim = self.nodes.get(name), self._claim_on(name)
        if node is not None and claim is not None:
            self.put_node(name, replace(node, allocatable=with_gpus(node.allocatable, gpu_part(claim.resources))))

    def starts(self, gang: Gang) -> None:
        """Lets a job that was started, and has no pods yet, make them: behind the gate."""
        run = next(self.made)
        self.later(self.now_s + POD_STARTS_S, lambda: self._start(gang, run))

    def _start(self, gang: Gang, run: int) -> None:
        job = self.jobs.get(gang.uid)
        if job is None or job.suspended or job.result or job.hold is Hold.PODS or self.pods_of(gang):
            return
        for pod_set in gang.pod_sets:
            for number in range(pod_set.count):
                name = f"{gang.job.name}-{pod_set.name}-{number}-{run}"
                pod = Pod(
                    f"uid-{name}", gang.namespace, name, "", "Pending", pod_set.requests, gang.workload, pod_set.name,
                    gated=True, labels=pod_set.labels, constraints=pod_set.constraints,
                )  # fmt: skip
                self.put_pod(pod.key, pod)
        self._count_pods(gang)

    def becomes_ready(self, key: str) -> None:
        """Lets a pod run and be ready."""
        self.later(self.now_s + POD_STARTS_S, lambda: self._ready(key))

    def _ready(self, key: str) -> None:
        if (pod := self._pods.get(key)) is None or pod.gated or pod.ready or not pod.active or pod.deleting:
            return
        node = self.node_of(pod.pinned_host)
        place = pod.node or (node.name if node else pod.pinned_host)
        self.put_pod(key, replace(pod, node=place, phase="Running", ready=True, started_at_s=self.now_s))
        if (gang := self._gang_of(pod)) is not None:
            self._count_pods(gang)
            self.finishes(gang)
            self._make_next(pod, self.jobs.get(gang.uid))

    def _make_next(self, ready: Pod, job: Job | None) -> None:
        """Makes the next pod of a StatefulSet that makes each when the one before it is ready."""
        one_by_one = job is not None and job.numbering is not None and job.numbering.one_by_one
        if job is not None and one_by_one and (missing := self._vacancy(job, ready)):
            self._make_again(replace(ready, pod_set=missing))

    def _vacancy(self, job: Job, pod: Pod) -> str:
        """Returns the pod set of which a StatefulSet lacks a pod, that of `pod` before others; empty where of none."""
        self._pod_index.settle()
        return vacancy(job, self._pod_index.job_pods.get(job.ref.uid, ()), pod.pod_set)

    def _count_pods(self, gang: Gang) -> None:
        """Lets a job say how many pods it has: those that were told to go count no more (Job `status.active`)."""
        if (job := self.jobs.get(gang.uid)) is not None:
            pods = [pod for pod in self.pods_of(gang) if pod.active and not pod.deleting]
            ready = sum(pod.ready for pod in pods)
            if (ready, len(pods)) != (job.ready_pods, job.active_pods):
                self.jobs.put(gang.uid, replace(job, ready_pods=ready, active_pods=len(pods)))

    def _gang_of(self, pod: Pod) -> Gang | None:
        return self.gangs.get(self._uids.get(f"{pod.namespace}/{pod.workload}", "")) if pod.workload else None

    def _job_of(self, pod: Pod) -> Job | None:
        gang = self._gang_of(pod)
        return self.jobs.get(gang.uid if gang else pod.job_uid)

    def finishes(self, gang: Gang) -> None:
        """Lets a gang that runs succeed when its estimate says; one that has said nothing, or too little, runs on.

        Its pods have started a little after it was admitted, and end as much later.
        """
        said_s = ends_at_s(gang, self.now_s - 2 * POD_STARTS_S) if gang.expected_run_s is not None else inf
        end_s = gang.admitted_at_s + self._run_s[gang.uid] if gang.uid in self._run_s else said_s
        if end_s < inf:
            self.later(end_s, lambda: self._finish(gang.uid, gang.admitted_at_s))

    def _finish(self, uid: str, admitted_at_s: float) -> None:
        gang, job = self.gangs.get(uid), self.jobs.get(uid)
        if gang is None or job is None or job.suspended or gang.state is not GangState.ADMITTED:
            return
        if gang.admitted_at_s != admitted_at_s or not gang.pods_ready:
            return
        for pod in self.pods_of(gang):
            self.put_pod(pod.key, replace(pod, phase="Succeeded", ready=False))
        ended = {"result": JobResult.SUCCEEDED, "finished_at_s": self.now_s, "ready_pods": 0, "active_pods": 0}
        self.jobs.put(uid, replace(job, **ended))  # type: ignore[arg-type]

    def ended(self, instance_id: str, at_s: float) -> None:
        """Lets a machine that is being terminated be terminated."""
        self.later(at_s, lambda: self._terminated(instance_id))

    def _terminated(self, instance_id: str) -> None:
        known = self.instances.get(instance_id)
        if known is not None:
            self.instances.put(instance_id, replace(known, state="terminated"))

    def ends(self, key: str, at_s: float) -> None:
        """Lets a pod that was told to go be gone; whoever owns it may make it anew, behind the gate."""
        self.later(at_s, lambda: self._end(key))

    def _end(self, key: str) -> None:
        if (pod := self._pods.get(key)) is None:
            return
        self.put_pod(key, None)
        gang, job = self._gang_of(pod), self._job_of(pod)
        if pod.ordinary and pod.controlled and not self._suspended(pod.owner_job):
            self._make_again(pod)
        if job is None:
            return
        if self._made_anew(pod, gang, job):
            self._make_again(pod)
        if gang is not None:
            self._count_pods(gang)
        self._look_at_held(self.jobs.get(job.ref.uid) or job)

    def _suspended(self, uid: str) -> bool:
        job = self.jobs.get(uid)
        return job is not None and (job.suspended or self._suspended(job.owner_uid))

    def _made_anew(self, pod: Pod, gang: Gang | None, job: Job) -> bool:
        if job.result or job.deleting:
            return False
        if job.ref.kind in PLAIN:
            return pod.controlled
        if job.hold is Hold.PODS:
            return job.numbering is None or self._vacancy(job, pod) == pod.pod_set
        running = gang is not None and gang.state is GangState.ADMITTED and not job.suspended
        return running and bool(job.restarts.get(pod.pod_set))

    def _make_again(self, pod: Pod) -> None:
        name = f"{pod.name}-{next(self.made)}"
        held = bool(pod.job_uid)
        fresh = replace(
            pod, uid=f"uid-{name}", name=name, node="", phase="Pending", gated=not pod.ordinary, pinned_host="",
            ready=False, deleting=False, deletion_at_s=0.0, started_at_s=0.0, workload="" if held else pod.workload,
            waits_since_s=self.now_s if pod.ordinary else 0.0,
        )  # fmt: skip
        self.put_pod(fresh.key, fresh)

    def _look_at_held(self, job: Job) -> None:
        """Lets a job whose pods are held one by one say whether it has started; a plain group ends with its pods."""
        if job.hold is not Hold.PODS:
            return
        self._pod_index.settle()
        pods = self._pod_index.job_pods.get(job.ref.uid, ())
        known = replace(job, suspended=not any(map(has_started, pods)), numbering=fewer(job, pods))
        self.jobs.put(job.ref.uid, known if pods or job.ref.kind not in PLAIN else None)

    def released(self, pod: Pod) -> None:
        """Writes a pod that has just been let onto its node."""
        self.put_pod(pod.key, pod)
        if pod.job_uid and (job := self.jobs.get(pod.job_uid)) is not None:
            self._look_at_held(job)
        self.becomes_ready(pod.key)
