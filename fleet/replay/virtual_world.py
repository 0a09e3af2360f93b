"""A modelled cluster that work arrives in: gangs run for as long as they did, leave when told to, and lose work by it.

The pods of a gang are not played one by one: all of them are ready a moment after the start, on the nodes they are
pinned to, and gone when the gang leaves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fleet.actions import Action, LaunchMachines, TerminateMachines
from fleet.cost.lost_work import devices_of
from fleet.replay.cluster_model import POD_STARTS_S, ClusterModel
from fleet.replay.model_objects import ModelTable
from fleet.replay.submissions import SubmittedGang
from fleet.snapshot import CapacityPool, Claim, Gang, GangState, JobResult, Pod, Snapshot
from model.changed import changed
from model.fleet import Fleet

_LEAVING: Final = frozenset({GangState.PENDING, GangState.RESERVED, GangState.EVICTING})
FORGOTTEN_AFTER_S: Final = 3600.0
"""How long the cloud lists a machine that has ended (EC2: about an hour)."""
Selection = tuple[str, str, str]
"""Instance type, zone and capacity type; empty = any."""


def selects(asked: Selection, has: Selection) -> bool:
    """Returns whether all that is asked for is had."""
    return all(not one or one == other for one, other in zip(asked, has, strict=True))


@dataclass(frozen=True, slots=True)
class Shortage:
    """A `Shortage` is a time in which launches into some capacity pools bring nothing. Epoch seconds; empty = any."""

    from_s: float
    until_s: float
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""

    @property
    def selection(self) -> Selection:
        """Returns which capacity pools it is about."""
        return self.instance_type, self.zone, self.capacity_type

    def hits(self, pool: CapacityPool, now_s: float) -> bool:
        """Returns whether a launch into a capacity pool brings nothing now."""
        has = (pool.instance_type, pool.zone, pool.capacity_type)
        return self.from_s <= now_s < self.until_s and selects(self.selection, has)


@dataclass(slots=True)
class GangHistory:
    """What has become of one submitted gang. Epoch seconds."""

    work: SubmittedGang
    runs: list[tuple[float, float]] = field(default_factory=list)
    """From when until when its pods ran, each time; one that has not ended yet ends never (inf)."""
    left_s: float = 0.0
    """How long it has still to run, from its last checkpoint."""
    lost_s: float = 0.0
    """Run time that evictions have wasted."""
    evictions: int = 0
    """How often it was told to leave after it had been admitted."""
    finished_s: float | None = None

    @property
    def started_s(self) -> float | None:
        """Returns when it ran first; None = never."""
        return self.runs[0][0] if self.runs else None


@dataclass(slots=True)
class MachineHistory:
    """One machine that was bought: what it cost, and from when until when (epoch seconds; inf = it still stands)."""

    node_pool: str
    pool: CapacityPool
    gpus: int
    """GPUs or slices that it offers when it is bought."""
    usd_h: float
    from_s: float
    to_s: float = float("inf")
    whole_gpus: int = 0
    """Before any cut, or sharing."""


class VirtualWorld(ClusterModel):
    """A cluster in which submitted gangs arrive, and what becomes of them and of the machines that are bought."""

    def __init__(
        self, fleet: Fleet, snapshot: Snapshot, work: Iterable[SubmittedGang], shortages: Sequence[Shortage] = ()
    ) -> None:
        self.gang_histories: dict[str, GangHistory] = {}
        """uid -> what became of it."""
        self.machines: dict[str, MachineHistory] = {}
        """Instance id -> machine."""
        self.pending: set[str] = set()
        """uids of gangs that wait."""
        self._hidden = shortages
        self.standing: ModelTable[tuple[Pod, ...]] = ModelTable({})
        """`namespace/workload` -> the pods of its gang: one for all that are alike and on one node, as often."""
        super().__init__(fleet, snapshot)
        for each in sorted(work, key=lambda it: (it.submitted_s, it.uid)):
            self.gang_histories[each.uid] = GangHistory(each, left_s=each.run_s)
            self._arrives(each)

    def _arrives(self, work: SubmittedGang) -> None:
        self.later(work.submitted_s, lambda: self.jobs.put(work.uid, work.job()))

    def _tables_written(self) -> tuple[object, ...]:
        return self.standing.writes, *super()._tables_written()

    # -- what the deciders ask for --

    def note(self, action: Action) -> None:
        """Notes what was bought and given back, once it is."""
        if isinstance(action, LaunchMachines):
            for claim in filter(None, map(self.claims.get, action.claims)):
                if claim.instance_id and claim.instance_id not in self.machines:
                    self.machines[claim.instance_id] = self._bought(claim)
        elif isinstance(action, TerminateMachines):
            for instance_id in action.instance_ids:
                if (machine := self.machines.get(instance_id)) is not None:
                    machine.to_s = min(machine.to_s, self.now_s)

    def is_short(self, pool: CapacityPool) -> bool:
        """Returns whether a launch brings nothing: a shortage is known, or comes to be known by it."""
        return super().is_short(pool) or any(each.hits(pool, self.now_s) for each in self._hidden)

    def note_bought(self, claim: str) -> None:
        """Lets machines that are bought in the replay expire as others do."""

    def put_gang(self, uid: str, gang: Gang | None) -> None:
        """Writes one gang, with what its state does to its pods; one that has finished is removed, as its job is."""
        before = self.gangs.get(uid)
        state = gang.state if gang is not None else None
        if before is not None and before.state is GangState.ADMITTED and state in _LEAVING:
            self._leaves(before)
        done = state is GangState.FINISHED
        super().put_gang(uid, None if done else gang)
        if done:
            self.jobs.put(uid, None)
        (self.pending.add if state is GangState.PENDING else self.pending.discard)(uid)

    def _leaves(self, gang: Gang) -> None:
        """Ends a run before its time: what was done since the last checkpoint is to be done again."""
        self.standing.put(_key(gang), None)
        if (job := self.jobs.get(gang.uid)) is not None:
            self.jobs.put(gang.uid, changed(job, ready_pods=0, active_pods=0))
        history = self.gang_histories[gang.uid]
        history.evictions += 1
        if not history.runs or history.runs[-1][1] <= self.now_s:
            return
        began_s, _ = history.runs[-1]
        history.runs[-1] = began_s, self.now_s
        ran_s = self.now_s - began_s
        interval_s = history.work.checkpoint_interval_s
        kept_s = ran_s - ran_s % interval_s if interval_s else 0.0
        history.left_s -= kept_s
        history.lost_s += ran_s - kept_s

    # -- what happens by itself --

    @property
    def gang_pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """Returns `namespace/workload` -> the pods of a gang."""
        return self.standing.view

    def pods_of(self, gang: Gang) -> list[Pod]:
        """Returns no pod that could be told to go by itself: they leave with their gang."""
        return []

    def pods_made_by(self, uid: str) -> list[Pod]:
        """Returns no pod: none is made without the marks of a gang."""
        return []

    def starts(self, gang: Gang) -> None:
        """Lets all pods of a gang that was started run, once they have been made and released."""
        self.later(self.now_s + 2 * POD_STARTS_S, lambda: self._run(gang.uid, gang.admitted_at_s))

    def finishes(self, gang: Gang) -> None:
        """Does nothing: when a gang ends is settled when its pods start."""

    def _run(self, uid: str, admitted_at_s: float) -> None:
        gang, job = self.gangs.get(uid), self.jobs.get(uid)
        if gang is None or job is None or gang.state is not GangState.ADMITTED or gang.admitted_at_s != admitted_at_s:
            return
        self.standing.put(_key(gang), tuple(_pods(gang, self.now_s)))
        count = sum(pin.count for pin in gang.pins)
        self.jobs.put(uid, changed(job, ready_pods=count, active_pods=count))
        history = self.gang_histories[uid]
        history.runs.append((self.now_s, float("inf")))
        run = len(history.runs)
        self.later(self.now_s + history.left_s, lambda: self._succeed(uid, run))

    def _succeed(self, uid: str, run: int) -> None:
        history, gang, job = self.gang_histories[uid], self.gangs.get(uid), self.jobs.get(uid)
        if gang is None or job is None or len(history.runs) != run or history.runs[-1][1] <= self.now_s:
            return
        history.runs[-1] = history.runs[-1][0], self.now_s
        history.finished_s, history.left_s = self.now_s, 0.0
        self.standing.put(_key(gang), None)
        ended = {"finished_at_s": self.now_s, "ready_pods": 0, "active_pods": 0}
        self.jobs.put(uid, changed(job, result=JobResult.SUCCEEDED, **ended))

    def _bought(self, claim: Claim) -> MachineHistory:
        kind = self._seen.catalog.types.get(claim.capacity_pool.instance_type)
        offered, whole = devices_of(claim.resources), kind.gpu_count if kind else 0
        return MachineHistory(
            claim.node_pool, claim.capacity_pool, offered, claim.charged_usd_h, self.now_s, whole_gpus=whole
        )

    def _terminated(self, instance_id: str) -> None:
        super()._terminated(instance_id)
        self.later(self.now_s + FORGOTTEN_AFTER_S, lambda: self.instances.put(instance_id, None))


def _key(gang: Gang) -> str:
    return f"{gang.namespace}/{gang.workload}"


def _pods(gang: Gang, now_s: float) -> Iterable[Pod]:
    of_set: dict[str, Pod] = {}
    for number, pin in enumerate(gang.pins):
        name = f"{gang.job.name}-{pin.pod_set}-{number}"
        if (first := of_set.get(pin.pod_set)) is None:
            requests = gang.pod_set(pin.pod_set).requests
            pod = of_set[pin.pod_set] = Pod(
                f"uid-{name}", gang.namespace, name, pin.node, "Running", requests, gang.workload, pin.pod_set,
                ready=True, started_at_s=now_s,
            )  # fmt: skip
        else:
            pod = changed(first, uid=f"uid-{name}", name=name, node=pin.node)
        yield from (pod,) * pin.count
