"""Kinds `schedule` and `schedule_twice`: whole worlds, one cycle (or a few) of the scheduler."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.quota.admission_cycle import CycleResult
from fleet.quota.entries import CycleEntry, EntryOutcome, requeues_immediately
from fleet.quota.ledger import NO_PLACEMENT, AdmittedWorkload, QuotaLedger, SecondPassWorkload
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.tree import QuotaTree
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason
from model.kinds import RequirementTerm
from model.requirements import Requirements
from tests.conformance.cases import Case, Runner
from tests.conformance.kueue import second_pass, world
from tests.conformance.kueue.ground import Nodes, checks_of
from tests.conformance.kueue.topology import gates_of, shown
from tests.conformance.kueue.usage import LocalUsage
from tests.support.quotas import inadmissible


@dataclass(slots=True)
class KueueScene:
    """A case's world while it is played."""

    case: Case
    scheduler: AdmissionScheduler
    nodes: Nodes | None = None
    names: dict[str, str] = field(default_factory=dict)
    """uid -> workload name."""
    pending: dict[str, str] = field(default_factory=dict)
    """Workload -> reason it waits."""
    usage: LocalUsage | None = None
    unseated: dict[str, SecondPassWorkload] = field(default_factory=dict)
    """uid -> holder that needs a place."""
    entries: dict[str, Case] = field(default_factory=dict)
    """uid -> the workload as the case writes it."""

    @classmethod
    def of(cls, case: Case) -> "KueueScene":
        """Queues, holders and waiting workloads of the case."""
        specs = [world.queue_spec(cq) for cq in case["cluster_queues"]]
        tree = QuotaTree([world.cohort_spec(cohort) for cohort in case.get("cohorts", ())], specs)
        nodes = Nodes.of(case)
        flavors = {flavor["name"]: world.flavor_spec(flavor) for flavor in case["flavors"]}
        if nodes is not None:
            flavors = {name: replace(spec, levels=nodes.levels.get(name, ())) for name, spec in flavors.items()}
        queues = {spec.name: spec for spec in specs}
        scheduler = AdmissionScheduler(
            QuotaLedger(tree, nodes or NO_PLACEMENT), queues, flavors, world.rules_of(case["config"])
        )
        scene = cls(case, scheduler, nodes, usage=LocalUsage.of(case))
        scene._count(())
        for entry in sorted(case["workloads"], key=lambda entry: not entry.get("admission")):
            scene._add(entry)
        scene._find_unseated()
        return scene

    def _add(self, entry: Case) -> None:
        name = world.workload_name(entry)
        uid = entry.get("uid") or name
        self.names[uid] = name
        self.entries[uid] = entry
        if entry.get("admission"):
            if entry["admission"]["cluster_queue"] in self.scheduler.queues:
                self._settle(entry)
            return
        queue = self._queue_of(entry)
        if queue is not None and queue in self.scheduler.queues:
            asks = self._workload(entry, queue)
            replaced = self.scheduler.ledger.holders.get(asks.replaces)
            scaled = gates_of(self.case).get("ElasticJobsViaWorkloadSlicesWithTAS", False)
            if self.nodes is not None and replaced is not None and scaled:
                self.nodes.scale(asks, replaced)
            self.scheduler.submit(asks)

    def _workload(self, entry: Case, queue: str) -> Workload:
        gates = gates_of(self.case)
        offered = {name for group in self.scheduler.queues[queue].groups for name in group.flavors}
        implied = self.nodes is not None and bool(offered) and offered <= set(self.nodes.levels)
        requeuing = world.requeuing_of(self.case)
        found = world.workload(entry, queue, implied=implied, gates=gates, requeuing=requeuing)
        if found.replaces:
            named = (uid for uid, name in self.names.items() if found.replaces in {name, name.split("/")[-1]})
            found = replace(found, replaces=next(named, ""))
        if rules := self.case.get("resource_transformations"):
            pod_sets = (replace(pods, requests=world.transformed(pods.requests, rules)) for pods in found.pod_sets)
            found = replace(found, pod_sets=tuple(pod_sets))
        return found

    def _settle(self, entry: Case) -> None:
        gates = gates_of(self.case)
        holder = world.holder(self.scheduler.ledger.tree, entry, gates=gates)
        holder.workload = self._workload(entry, holder.queue.name)
        if self.nodes is not None:
            holder.place = self.nodes.placed(holder, entry["admission"]["pod_sets"])
        self.scheduler.settle(holder)

    def _queue_of(self, entry: Case) -> str | None:
        for local in self.case["local_queues"]:
            if (local["namespace"], local["name"]) == (entry.get("namespace"), entry.get("queue")):
                return str(local["cluster_queue"])
        return None

    def cycle(self) -> CycleResult:
        """One cycle; a head whose namespace its queue does not select goes aside unseen."""
        welcome: list[Workload] = []
        for head in self.scheduler.heads():
            if self._inactive(head.queue):
                self.scheduler.pending[head.queue].put_back(head, again=True)
            elif not self._selects(head.queue, head.name.split("/")[0]):
                self._misconfigured(head, EntryOutcome.NAMESPACE_MISMATCH)
            elif self._above_limits(head):
                self._misconfigured(head, EntryOutcome.GENERIC)
            elif second_pass.checks_failed(self.entries[head.uid]):
                self._aside(head, EntryOutcome.GENERIC, "PendingEvaluation")
            else:
                welcome.append(head)
        result = self.scheduler.decide(welcome, [*self.unseated.values()])
        if self.case.get("status_write_error"):
            self._fail(result)
        for entry in result.waiting:
            self.pending[entry.workload.name] = reason_of(entry)
        for holder in result.admitted:
            self.pending.pop(holder.workload.name, None)
        for holder in (*result.placed, *result.lost):
            del self.unseated[holder.workload.uid]
        self._count(result.admitted)
        return result

    def _fail(self, result: CycleResult) -> None:
        """Nothing that was decided could be written: heads are where they were, holders are looked at again."""
        for holder in result.admitted:
            self.scheduler.ledger.remove(holder.workload.uid)
            self.scheduler.pending[holder.workload.queue].put_back(holder.workload, again=True)
        self.pending |= {holder.workload.name: second_pass.FAILED for holder in result.lost}
        result.admitted, result.lost, result.evictions = [], [], []

    def _find_unseated(self) -> None:
        gates = gates_of(self.case)
        for uid, entry in sorted(self.entries.items()):
            holder = self.scheduler.ledger.holders.get(uid)
            if self.nodes is None or holder is None or holder.leaving:
                continue
            lost = second_pass.lost_node(entry, gates)
            if lost or second_pass.awaits_place(entry):
                self.nodes.reseat(holder, lost, movable=second_pass.movable(entry, gates))
                self.unseated[uid] = SecondPassWorkload(holder, bool(lost))

    def _count(self, admitted: Iterable[AdmittedWorkload]) -> None:
        if self.usage is not None:
            self.usage.count(admitted)
            self.scheduler.local_usage = self.usage.values()

    def _misconfigured(self, head: Workload, outcome: EntryOutcome) -> None:
        self._aside(head, outcome, "Misconfigured")

    def _aside(self, head: Workload, outcome: EntryOutcome, reason: str) -> None:
        strict = self.scheduler.queues[head.queue].strict
        self.scheduler.pending[head.queue].put_back(
            head, again=requeues_immediately(outcome, strict=strict, untried=False)
        )
        self.pending[head.name] = reason

    def _above_limits(self, head: Workload) -> bool:
        """Whether some container asks more than its limit."""
        entry = self.entries[head.uid]
        containers = [c for pods in entry["pod_sets"] for c in pods.get("containers", ())]
        return any(
            amount > container.get("limits", {}).get(resource, amount)
            for container in containers
            for resource, amount in container.get("requests", {}).items()
        )

    def _inactive(self, queue: str) -> bool:
        declared = self.scheduler.flavors
        return any(name not in declared for group in self.scheduler.queues[queue].groups for name in group.flavors)

    def _selects(self, queue: str, namespace: str) -> bool:
        selector = next(cq.get("namespace_selector") for cq in self.case["cluster_queues"] if cq["name"] == queue)
        if selector is None:
            return False
        labels = next((ns.get("labels", {}) for ns in self.case["namespaces"] if ns["name"] == namespace), {})
        terms = tuple(
            RequirementTerm(key=e["key"], operator=e["operator"], values=tuple(e.get("values") or ()))
            for e in selector.get("matchExpressions") or ()
        )
        wanted = selector.get("matchLabels") or {}
        return all(labels.get(k) == v for k, v in wanted.items()) and (
            not terms or Requirements.from_terms(terms).matches(labels)
        )

    def _pods(self, holder: AdmittedWorkload, given: PodSetAssignment) -> dict[str, Any]:
        found = {"count": given.count, "flavors": dict(given.flavors), "name": given.name, "usage": dict(given.amounts)}
        places: Any = holder.place or ()
        shows = [shown(place) for place in places if place.pod_set == given.name and place.domains]
        late = self._delayed(holder, given)
        waits = {"delayed_topology": "Ready" if shows else "Pending"} if late else {}
        return found | ({"topology": shows[0]} if shows else {}) | waits

    def _delayed(self, holder: AdmittedWorkload, given: PodSetAssignment) -> bool:
        """Whether its place is decided only after the reservation."""
        if self.nodes is None:
            return False
        if given.name in second_pass.delayed(self.entries[holder.workload.uid]):
            return True
        pairs = {(holder.queue.name, flavor) for flavor in given.flavors.values() if flavor in self.nodes.levels}
        return not self.entries[holder.workload.uid].get("admission") and bool(pairs & self.nodes.delayed)

    def evicted(self, result: CycleResult) -> list[Any]:
        """Preemptions as cases write them."""
        found = [
            {"workload": victim.holder.workload.name, "reason": victim.reason.value, "preemptor_uid": preemptor.uid}
            for victim, preemptor in result.evictions
            if not victim.holder.leaving
        ]
        return sorted(found, key=lambda item: item["workload"])

    def lines(self, *, aside: bool) -> dict[str, list[str]]:
        """Who waits, by queue."""
        found = {}
        for name, line in self.scheduler.pending.items():
            waiting = inadmissible(line) if aside else line.active()
            if waiting:
                found[name] = sorted(workload.name for workload in waiting)
        return found

    def admission(self, holder: AdmittedWorkload) -> Any:
        """A holder as cases write an admission; worlds with nodes, and replayed ones, do not say whether it starts."""
        found = {"cluster_queue": holder.queue.name, "pod_sets": [self._pods(holder, given) for given in holder.given]}
        if "nodes" in self.case or self.case["id"].startswith("replay"):
            return found
        (queue,) = [cq for cq in self.case["cluster_queues"] if cq["name"] == holder.queue.name]
        checks = checks_of(queue, {flavor for given in holder.given for flavor in given.flavors.values()})
        return found | {"admitted": second_pass.starts_at_once(self.entries[holder.workload.uid], checks)}

    def reservations(self, admitted: Iterable[AdmittedWorkload]) -> dict[str, Any]:
        """Who reserved quota now; in worlds with nodes also who came for a place, whatever became of it."""
        came = [
            holder
            for uid, holder in self.scheduler.ledger.holders.items()
            if "nodes" in self.case and second_pass.comes_again(self.entries[uid])
        ]
        return {holder.workload.name: self.admission(holder) for holder in (*admitted, *came)}


def reason_of(entry: CycleEntry) -> str:
    """Kueue's word for why a head waits."""
    if entry.second_pass is not None:
        return second_pass.FAILED
    if entry.outcome is EntryOutcome.GATED:
        return "AdmissionGated"
    if entry.outcome is EntryOutcome.PENDING_PREEMPTION:
        return Reason.WAITING_FOR_PREEMPTED.value
    if entry.outcome is EntryOutcome.NO_FIT:
        return (entry.assignment.no_fit_reason or Reason.WAITING_FOR_QUOTA).value
    return Reason.WAITING_FOR_QUOTA.value


def _schedule(case: Case) -> Any:
    scene = KueueScene.of(case)
    kept = sorted(h.workload.name for h in scene.scheduler.ledger.holders.values())
    preempted: list[Any] = []
    admitted: list[AdmittedWorkload] = []
    lost: list[Any] = []
    skipped: dict[str, int] = {}
    recomputed: dict[str, dict[str, int]] = {}
    for _ in range(case.get("cycles") or 1):
        result = scene.cycle()
        preempted += scene.evicted(result)
        admitted += result.admitted
        lost += [{"reason": Reason.NODE_FAILURE.value, "workload": holder.workload.name} for holder in result.lost]
        for queue, count in result.skipped_preemptions.items():
            skipped[queue] = skipped.get(queue, 0) + count
        for queue, how in result.recomputed.items():
            recomputed.setdefault(queue, {})[how] = recomputed.get(queue, {}).get(how, 0) + 1
    got: dict[str, Any] = {
        "new_reservations": scene.reservations(admitted),
        "kept_reservations": kept,
        "preempted": preempted,
        "evicted": sorted(lost, key=lambda item: item["workload"]),
        "left_active": scene.lines(aside=False),
        "left_inadmissible": scene.lines(aside=True),
        "pending": [{"reason": r, "workload": w} for w, r in sorted(scene.pending.items())],
    }
    asked = case.get("expect") or {}
    # These two were read from counters, and only where a row is about them: it names the queues it read.
    got["skipped_preemptions"] = {queue: skipped.get(queue, 0) for queue in asked.get("skipped_preemptions") or ()}
    got["target_recomputations"] = {
        queue: recomputed.get(queue, {}) for queue in asked.get("target_recomputations") or ()
    }
    return {key: got[key] for key in asked or got}


def _schedule_twice(case: Case) -> Any:
    scene = KueueScene.of(case)
    first = scene.cycle()
    ledger = scene.scheduler.ledger
    after_first = {
        "preempted": scene.evicted(first),
        "reserved": sorted(h.workload.name for h in ledger.holders.values()),
    }
    for uid, name in scene.names.items():
        if name in case["delete_between"] and uid in ledger.holders:
            scene.scheduler.vacate(uid)
    scene.cycle()
    reserved = {}
    for holder in ledger.holders.values():
        admission = scene.admission(holder)
        admission.pop("admitted", None)
        reserved[holder.workload.name] = admission
    return {"after_first_cycle": after_first, "reservations_after_second_cycle": reserved}


RUNNERS: dict[str, Runner] = {"schedule": _schedule, "schedule_twice": _schedule_twice}
