"""A tiny interpreter: the world after actions. Machines boot at once, jobs make pods at once, stopped pods vanish.

It knows no rules of its own, so that what it shows follows from the deciders alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet import disruption as disrupt
from fleet.actions import (
    Action,
    CloseClaim,
    CloseGang,
    Consider,
    EvictPod,
    ForgetClaim,
    LaunchMachines,
    NominatePods,
    OpenClaims,
    OpenGang,
    PatchNode,
    ReleasePod,
    RemoveNode,
    SaveClaim,
    SaveGang,
    StartJob,
    StopJob,
    TagMachine,
    TerminateMachines,
)
from fleet.deciders import DECIDERS
from fleet.disruption.pending import VALIDATE_AFTER_S
from fleet.fence import Decided, DecisionFailed
from fleet.mig.layouts import gpu_part, with_gpus
from fleet.nodeclaims.launch_outcome import settle
from fleet.snapshot import (
    NOT_READ,
    CapacityPool,
    Catalog,
    Claim,
    ClaimState,
    DaemonOverhead,
    Gang,
    GangState,
    Instance,
    InterruptionHistory,
    Job,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    LaunchRequest,
    Node,
    Outlook,
    Pin,
    Pod,
    PodBudget,
    PodVerdict,
    Resolutions,
    RolloutProgress,
    Snapshot,
)
from fleet.snapshot.gpus import GpuHolders, MeasuredUse
from fleet.snapshot.volumes import NO_VOLUMES, Volumes
from model import labels
from model.fleet import Fleet
from model.kinds import CapacityType
from model.quantity import Resources, plus
from tests.support.fleets import (
    NOW,
    P5,
    A,
    catalog,
    gang_pod,
    instance_of,
    job_of,
    node_of,
    offering,
    ready_claim,
)


def _ordinary(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if not pod.workload)


@dataclass
class World:
    """Everything there is, mutable. `fleet` is what is in force."""

    fleet: Fleet
    now_s: float = NOW
    catalog: Catalog = field(default_factory=catalog)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    resolved: Resolutions = NOT_READ
    shortages: dict[CapacityPool, float] = field(default_factory=dict)
    spent_usd: dict[str, float] = field(default_factory=dict)
    bought: frozenset[str] = frozenset()
    local_usage: dict[str, dict[str, float]] = field(default_factory=dict)
    interruptions: dict[CapacityPool, InterruptionHistory] = field(default_factory=dict)
    pod_budgets: dict[str, PodBudget] = field(default_factory=dict)
    measured: dict[tuple[str, str], Resources] = field(default_factory=dict)
    gpu_uses: dict[str, tuple[MeasuredUse, ...]] = field(default_factory=dict)
    gpu_holders: dict[str, GpuHolders] = field(default_factory=dict)
    daemon_overheads: tuple[DaemonOverhead, ...] = ()
    volumes: Volumes = NO_VOLUMES
    outlook: Outlook = field(default_factory=Outlook)
    rollout: RolloutProgress | None = None
    pod_verdicts: Mapping[str, PodVerdict] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    sold_out: set[CapacityPool] = field(default_factory=set)
    """Capacity pools that refuse every launch."""
    launches: list[LaunchRequest] = field(default_factory=list)
    brings: list[int] = field(default_factory=list)
    """How many machines the next launches bring at most; those after them bring all."""
    answers_lost: int = 0
    """So many launches will be carried out without anybody hearing of it."""
    _bought: dict[str, LaunchOutcome] = field(default_factory=dict)
    """Token -> what it bought: asking again buys nothing more."""
    _made: int = 0

    # -- putting things into it --

    def machine(
        self,
        name: str,
        pool: str = "h100",
        kind: str = P5.name,
        zone: str = A,
        capacity_type: CapacityType = "on-demand",
        *,
        node: dict[str, Any] | None = None,
        **claim: Any,
    ) -> Claim:
        """A ready machine of a pool, idle for nearly two hours; `claim` and `node` change what is written there."""
        it = offering(self.fleet, self.catalog, pool, kind, zone, capacity_type)
        made = ready_claim(it, name, **claim)
        self.claims[name] = made
        self.instances[made.instance_id] = instance_of(made)
        joined = node_of(made, it, **(node or {}))
        self.nodes[joined.name] = joined
        return made

    def waits(self, *gangs: Gang) -> None:
        """Pending gangs with their suspended jobs."""
        for gang in gangs:
            self.gangs[gang.uid] = gang
            self.jobs[gang.uid] = job_of(gang)

    def runs(self, gang: Gang, *places: tuple[str, int], flavor: str = "h100", pods: bool = True, **more: Any) -> Gang:
        """A gang of one pod set admitted onto claims (or plain nodes): `("m0", 2)` puts two pods on machine `m0`."""
        name = gang.pod_sets[0].name
        pins = tuple(
            sorted(
                Pin(name, self.claims[place].node, place, count)
                if place in self.claims
                else Pin(name, place, "", count)
                for place, count in places
            )
        )
        facts: dict[str, Any] = {
            "state": GangState.ADMITTED,
            "reason": "PodsReady",
            "flavors": {pod_set.name: (flavor,) for pod_set in gang.pod_sets},
            "pins": pins,
            "quota_reserved_at_s": self.now_s - 500,
            "admitted_at_s": self.now_s - 500,
            "pods_ready": True,
        }
        running = replace(gang, **facts | more)
        self.gangs[gang.uid] = running
        self.jobs[gang.uid] = job_of(running, suspended=False, ready_pods=sum(pin.count for pin in pins))
        for pin in pins if pods else ():
            for n in range(pin.count):
                self._add(gang_pod(running, f"{gang.job.name}-{pin.node}-{n}", name, pin.node))
            if pin.claim:
                self.claims[pin.claim] = replace(self.claims[pin.claim], emptied_at_s=0.0)
        return running

    def _add(self, pod: Pod) -> None:
        self.pods[pod.key] = pod

    def stands(self, *pods: Pod) -> None:
        """Pods as they are."""
        for pod in pods:
            self._add(pod)

    # -- looking at it --

    def snapshot(self) -> Snapshot:
        """What a decider sees."""
        active = [pod for _, pod in sorted(self.pods.items()) if pod.active]
        on_node: dict[str, tuple[Pod, ...]] = {}
        daemons: dict[str, tuple[Pod, ...]] = {}
        repelling: dict[str, tuple[Pod, ...]] = {}
        foreign: dict[str, Resources] = {}
        of_gang: dict[str, tuple[Pod, ...]] = {}
        for _, pod in sorted(self.pods.items()):
            if pod.workload:
                key = f"{pod.namespace}/{pod.workload}"
                of_gang[key] = (*of_gang.get(key, ()), pod)
        for pod in active:
            if pod.node and pod.daemon:
                daemons[pod.node] = (*daemons.get(pod.node, ()), pod)
            if pod.node and pod.constraints.anti_affinity:
                repelling[pod.node] = (*repelling.get(pod.node, ()), pod)
            if pod.node and not pod.daemon:
                on_node[pod.node] = (*on_node.get(pod.node, ()), pod)
            if pod.node and not pod.workload:
                foreign[pod.node] = plus(foreign.get(pod.node, {}), {**pod.requests, "pods": 1})
        return Snapshot(
            now_s=self.now_s,
            nodes=dict(self.nodes),
            foreign_use=foreign,
            gang_pods=of_gang,
            node_pods=on_node,
            ordinary_pods={node: own for node, them in on_node.items() if (own := _ordinary(them))},
            waiting_pods={pod.key: pod for pod in active if pod.waits},
            pod_verdicts=self.pod_verdicts,
            daemon_pods=daemons,
            volumes=self.volumes,
            repelling_pods=repelling,
            jobs=dict(self.jobs),
            gangs=dict(self.gangs),
            claims=dict(self.claims),
            instances=dict(self.instances),
            bought=self.bought,
            instances_at_s=self.now_s,
            catalog=self.catalog,
            resolved=self.resolved,
            shortages=dict(self.shortages),
            spent_usd=dict(self.spent_usd),
            local_usage=dict(self.local_usage),
            interruptions=dict(self.interruptions),
            pod_budgets=dict(self.pod_budgets),
            measured=dict(self.measured),
            gpu_uses=dict(self.gpu_uses),
            gpu_holders=dict(self.gpu_holders),
            daemon_overheads=self.daemon_overheads,
            outlook=self.outlook,
            rollout=self.rollout,
            busy=self.busy,
        )

    def gang(self, name: str) -> Gang:
        """A gang by its job's name."""
        return self.gangs[f"uid-{name}"]

    # -- what actions do to it --

    def apply(self, actions: Iterable[Decided]) -> None:
        """Fold actions in order; a decider that failed fails the test."""
        for action in actions:
            if isinstance(action, DecisionFailed):
                raise action.error
            _EFFECTS[type(action)](self, action)

    def pass_once(self, *, boot: bool = True) -> list[Action]:
        """One turn of the brain: every decider on what the ones before have made of the world.

        What is done; what is only remembered is not.
        """
        done: list[Action] = []
        for decide in DECIDERS.values():
            actions = list(decide(self.fleet, self.snapshot()))
            self.apply(actions)
            done += [action for action in actions if not isinstance(action, Consider)]
        self.shortages = {pool: until for pool, until in self.shortages.items() if until > self.now_s}
        self.remake()
        if boot:
            self.boot()
        return done

    def settle_down(self, *, rounds: int = 60, step_s: float = 5.0) -> list[Action]:
        """Passes until one asks for nothing and has nothing in mind; all actions. Fails when there is no end to it."""
        done: list[Action] = []
        for _ in range(rounds):
            actions = self.pass_once()
            if not actions and not self.outlook.proposals:
                return done
            done += actions
            self.now_s += step_s
        raise AssertionError(f"not quiet after {rounds} passes; last: {actions}")

    def disrupted(self, *, waits: bool = True) -> list[Action]:
        """What disruption asks for, nothing of it done: at once, or (`waits`) when what it has in mind has waited."""
        asked = disrupt.decide(self.fleet, self.snapshot())
        self.apply(action for action in asked if isinstance(action, Consider))
        done = [action for action in asked if not isinstance(action, Consider)]
        if done or not waits or not self.outlook.proposals:
            return done
        self.now_s += VALIDATE_AFTER_S
        return self.disrupted(waits=False)

    def remake(self) -> None:
        """Jobs that stand the loss of pods make them anew, behind the gate."""
        for uid, job in self.jobs.items():
            gang = self.gangs.get(uid)
            if gang is None or not job.restarts or job.suspended or job.result or gang.state is not GangState.ADMITTED:
                continue
            mine = [pod for pod in self.pods.values() if (pod.namespace, pod.workload) == _key(gang)]
            self.jobs[uid] = replace(job, ready_pods=sum(pod.ready for pod in mine))
            for pod_set in gang.pod_sets:
                there = sum(1 for pod in mine if pod.pod_set == pod_set.name and not pod.deleting)
                for _ in range(pod_set.count - there):
                    self._made += 1
                    self._add(gang_pod(gang, f"{gang.job.name}-{pod_set.name}-again-{self._made}", pod_set.name))

    def boot(self) -> None:
        """Machines that run become ready nodes; re-cut nodes show their new cut."""
        for claim in list(self.claims.values()):
            if claim.state is ClaimState.LAUNCHED and not self._node_behind(claim):
                self._join(claim)
            node = self.nodes.get(claim.node)
            if node and claim.layout and node.labels.get(labels.MIG_CONFIG) == claim.layout:
                done = {**node.labels, labels.MIG_CONFIG_STATE: "success"}
                cut = with_gpus(node.allocatable, gpu_part(claim.resources))
                self.nodes[node.name] = replace(node, labels=done, allocatable=cut)

    def _node_behind(self, claim: Claim) -> bool:
        return any(node.instance_id == claim.instance_id for node in self.nodes.values())

    def _join(self, claim: Claim) -> None:
        where = claim.capacity_pool
        it = offering(
            self.fleet,
            self.catalog,
            claim.node_pool,
            where.instance_type,
            where.zone,
            where.capacity_type,
            claim.layout,
        )
        node = node_of(claim, it, created_at_s=self.now_s, ready_changed_at_s=self.now_s)
        unadopted = {key: value for key, value in node.labels.items() if key != labels.NODE_CLAIM}
        self.nodes[node.name] = replace(node, labels=unadopted, taints=(*self._launched(claim).taints,))

    def _launched(self, claim: Claim) -> LaunchRequest:
        return next(it for it in reversed(self.launches) if it.tags["muster.dev/launch-group"] == claim.launch.group)

    # -- effects, one an action --

    def _open_claims(self, action: OpenClaims) -> None:
        for claim in action.claims:
            known = self.claims.get(claim.name)
            if known is not None:  # the same intent once more, after a crash
                assert (known.launch, known.capacity_pool) == (claim.launch, claim.capacity_pool), claim.name
                continue
            self._made += 1
            self.claims[claim.name] = replace(claim, uid=f"uid-{claim.name}-{self._made}")

    def _save_claim(self, action: SaveClaim) -> None:
        if action.claim.name in self.claims:
            uid, deleting = self.claims[action.claim.name].uid, self.claims[action.claim.name].deleting
            self.claims[action.claim.name] = replace(action.claim, uid=uid, deleting=deleting)

    def _close_claim(self, action: CloseClaim) -> None:
        self.claims[action.claim.name] = replace(self.claims[action.claim.name], deleting=True)

    def _start(self, action: StartJob) -> None:
        gang = self.gangs[action.gang_uid]
        self.jobs[gang.uid] = replace(self.jobs[gang.uid], suspended=False)
        for pod_set in gang.pod_sets:
            for n in range(pod_set.count):
                self._made += 1
                self._add(gang_pod(gang, f"{gang.job.name}-{pod_set.name}-{n}-{self._made}", pod_set.name))

    def _stop(self, action: StopJob) -> None:
        gang = self.gangs[action.gang_uid]
        self.jobs[gang.uid] = replace(self.jobs[gang.uid], suspended=True, ready_pods=0)
        self.pods = {k: pod for k, pod in self.pods.items() if (pod.namespace, pod.workload) != _key(gang)}

    def _release(self, action: ReleasePod) -> None:
        pod = self.pods[action.pod.key]
        assert pod.gated, f"{pod.key} is released twice"
        freed = replace(pod, gated=False, pinned_host=action.hostname, node=action.node, phase="Running", ready=True)
        self._add(freed)
        gang = next(g for g in self.gangs.values() if _key(g) == (pod.namespace, pod.workload))
        job = self.jobs[gang.uid]
        self.jobs[gang.uid] = replace(job, ready_pods=job.ready_pods + 1)

    def _launch(self, action: LaunchMachines) -> None:
        request = action.request
        self.launches.append(request)
        lot = [self.claims[name] for name in action.claims]
        outcome = self._bought.get(request.token) or self._buy(request, lot)
        if self.answers_lost:
            self.answers_lost -= 1
            outcome = LaunchOutcome((), (LaunchFailure(LaunchError.UNKNOWN, "RequestTimeout", "no answer"),))
        settlement = settle(outcome, lot, self.snapshot())
        self.shortages.update(settlement.shortages)
        self.apply(settlement.actions)

    def _buy(self, request: LaunchRequest, lot: Sequence[Claim]) -> LaunchOutcome:
        if request.pool in self.sold_out:
            failure = LaunchFailure(LaunchError.SHORTAGE, "InsufficientInstanceCapacity", "none left")
            return LaunchOutcome((), (failure,))
        most = self.brings.pop(0) if self.brings else len(lot)
        came = tuple(self._boot_instance(request, claim) for claim in lot[:most])
        short = LaunchFailure(LaunchError.SHORTAGE, "UnfulfillableCapacity", "not enough left")
        self._bought[request.token] = LaunchOutcome(came, (short,) if most < len(lot) else ())
        return self._bought[request.token]

    def _boot_instance(self, request: LaunchRequest, claim: Claim) -> str:
        self._made += 1
        made = replace(claim, instance_id=f"i-{self._made:06d}", launched_at_s=self.now_s)
        self.instances[made.instance_id] = replace(instance_of(made), tags=dict(request.tags))
        return made.instance_id

    def _terminate(self, action: TerminateMachines) -> None:
        for instance_id in action.instance_ids:
            self.instances[instance_id] = replace(self.instances[instance_id], state="terminated")
            gone = {node.name for node in self.nodes.values() if node.instance_id == instance_id}
            self.pods = {key: pod for key, pod in self.pods.items() if pod.node not in gone}

    def _tag(self, action: TagMachine) -> None:
        known = self.instances[action.instance_id]
        self.instances[known.id] = replace(known, tags={**known.tags, **action.tags})

    def _patch(self, action: PatchNode) -> None:
        node = self.nodes[action.node]
        added = {taint.key for taint in action.add_taints}
        kept = tuple(taint for taint in node.taints if taint.key not in added | set(action.remove_taints))
        self.nodes[node.name] = replace(
            node,
            labels={**node.labels, **action.labels},
            taints=(*kept, *action.add_taints),
            do_not_disrupt=action.annotations.get(labels.DO_NOT_DISRUPT, node.do_not_disrupt),
        )


def _key(gang: Gang) -> tuple[str, str]:
    return gang.namespace, gang.workload


_EFFECTS: dict[type, Callable[[World, Any], object]] = {
    OpenGang: lambda world, action: world.gangs.__setitem__(action.gang.uid, action.gang),
    SaveGang: lambda world, action: world.gangs.__setitem__(action.gang.uid, action.gang),
    CloseGang: lambda world, action: world.gangs.pop(action.gang.uid, None),
    StartJob: World._start,
    StopJob: World._stop,
    ReleasePod: World._release,
    EvictPod: lambda world, action: world.pods.pop(action.pod.key, None),
    OpenClaims: World._open_claims,
    SaveClaim: World._save_claim,
    CloseClaim: World._close_claim,
    ForgetClaim: lambda world, action: world.claims.pop(action.claim.name, None),
    LaunchMachines: World._launch,
    TagMachine: World._tag,
    TerminateMachines: World._terminate,
    PatchNode: World._patch,
    RemoveNode: lambda world, action: world.nodes.pop(action.node, None),
    Consider: lambda world, action: setattr(world, "outlook", action.outlook),
    NominatePods: lambda world, action: setattr(world, "pod_verdicts", action.verdicts),
}
