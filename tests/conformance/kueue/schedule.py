"""Kinds `schedule` and `schedule_twice`: whole worlds, one cycle (or a few) of the scheduler."""

from dataclasses import dataclass, field, replace
from typing import Any

from fleet.admission.quota.entries import Entry, Outcome, looks_again
from fleet.admission.quota.ground import NOWHERE
from fleet.admission.quota.run import CycleResult
from fleet.admission.quota.scheduler import Scheduler
from fleet.admission.quota.tree import QuotaTree
from fleet.admission.quota.workload import Books, Given, Holder, Workload
from fleet.reasons import Reason
from model.kinds import RequirementTerm
from model.requirements import Requirements
from tests.conformance.cases import Case, Runner
from tests.conformance.kueue import world
from tests.conformance.kueue.ground import Nodes
from tests.conformance.kueue.topology import shown


@dataclass(slots=True)
class Scene:
    """A case's world while it is played."""

    case: Case
    scheduler: Scheduler
    nodes: Nodes | None = None
    names: dict[str, str] = field(default_factory=dict)
    """uid -> workload name."""
    pending: dict[str, str] = field(default_factory=dict)
    """Workload -> reason it waits."""

    @classmethod
    def of(cls, case: Case) -> "Scene":
        """Queues, holders and waiting workloads of the case."""
        specs = [world.queue_spec(cq) for cq in case["cluster_queues"]]
        tree = QuotaTree([world.cohort_spec(cohort) for cohort in case.get("cohorts", ())], specs)
        nodes = Nodes.of(case)
        flavors = {flavor["name"]: world.flavor_spec(flavor) for flavor in case["flavors"]}
        if nodes is not None:
            flavors = {name: replace(spec, levels=nodes.levels.get(name, ())) for name, spec in flavors.items()}
        queues = {spec.name: spec for spec in specs}
        scheduler = Scheduler(Books(tree, nodes or NOWHERE), queues, flavors, world.rules_of(case["config"]))
        scene = cls(case, scheduler, nodes)
        for entry in case["workloads"]:
            scene._add(entry)
        return scene

    def _add(self, entry: Case) -> None:
        name = world.workload_name(entry)
        uid = entry.get("uid") or name
        self.names[uid] = name
        if entry.get("admission"):
            if entry["admission"]["cluster_queue"] in self.scheduler.queues:
                self._settle(entry)
            return
        queue = self._queue_of(entry)
        if queue is not None and queue in self.scheduler.queues:
            self.scheduler.submit(self._workload(entry, queue))

    def _workload(self, entry: Case, queue: str) -> Workload:
        gates = self.case["config"].get("feature_gates", {})
        offered = {name for group in self.scheduler.queues[queue].groups for name in group.flavors}
        implied = self.nodes is not None and bool(offered) and offered <= set(self.nodes.levels)
        found = world.workload(entry, queue, implied=implied, gates=gates)
        if rules := self.case.get("resource_transformations"):
            pod_sets = (replace(pods, requests=world.transformed(pods.requests, rules)) for pods in found.pod_sets)
            found = replace(found, pod_sets=tuple(pod_sets))
        return found

    def _settle(self, entry: Case) -> None:
        gates = self.case["config"].get("feature_gates", {})
        holder = world.holder(self.scheduler.books.tree, entry, gates=gates)
        holder.workload = self._workload(entry, holder.queue.name)
        if self.nodes is not None:
            holder.place = self.nodes.standing(holder, entry["admission"]["pod_sets"])
        self.scheduler.settle(holder)

    def _queue_of(self, entry: Case) -> str | None:
        for local in self.case["local_queues"]:
            if (local["namespace"], local["name"]) == (entry["namespace"], entry["queue"]):
                return str(local["cluster_queue"])
        return None

    def cycle(self) -> CycleResult:
        """One cycle; a head whose namespace its queue does not select goes aside unseen."""
        welcome = []
        for head in self.scheduler.heads():
            if self._inactive(head.queue):
                self.scheduler.pending[head.queue].put_back(head, again=True)
            elif not self._selects(head.queue, head.name.split("/")[0]):
                self._misconfigured(head, Outcome.NAMESPACE_MISMATCH)
            elif self._above_limits(head.name):
                self._misconfigured(head, Outcome.GENERIC)
            else:
                welcome.append(head)
        result = self.scheduler.decide(welcome)
        for entry in result.waiting:
            self.pending[entry.workload.name] = reason_of(entry)
        return result

    def _misconfigured(self, head: Workload, outcome: Outcome) -> None:
        strict = self.scheduler.queues[head.queue].strict
        self.scheduler.pending[head.queue].put_back(head, again=looks_again(outcome, strict=strict, untried=False))
        self.pending[head.name] = "Misconfigured"

    def _above_limits(self, name: str) -> bool:
        """Whether some container asks more than its limit."""
        (entry,) = [entry for entry in self.case["workloads"] if world.workload_name(entry) == name]
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

    def _pods(self, holder: Holder, given: Given) -> dict[str, Any]:
        found = {"count": given.count, "flavors": dict(given.flavors), "name": given.name, "usage": dict(given.amounts)}
        places: Any = holder.place or ()
        shows = [shown(place) for place in places if place.pod_set == given.name and place.domains]
        return found | ({"topology": shows[0]} if shows else {})

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
            waiting = line.aside() if aside else line.active()
            if waiting:
                found[name] = sorted(workload.name for workload in waiting)
        return found

    def admission(self, holder: Holder) -> Any:
        """A holder as cases write an admission."""
        checks = self.scheduler.queues[holder.queue.name].checked
        found = {"cluster_queue": holder.queue.name, "pod_sets": [self._pods(holder, given) for given in holder.given]}
        return found if self.case["id"].startswith("replay") else found | {"admitted": not checks}


def reason_of(entry: Entry) -> str:
    """Kueue's word for why a head waits."""
    if entry.outcome is Outcome.PENDING_PREEMPTION:
        return Reason.WAITING_FOR_PREEMPTED.value
    if entry.outcome is Outcome.NO_FIT:
        return (entry.assignment.problem or Reason.WAITING_FOR_QUOTA).value
    return Reason.WAITING_FOR_QUOTA.value


def _schedule(case: Case) -> Any:
    scene = Scene.of(case)
    kept = sorted(h.workload.name for h in scene.scheduler.books.holders.values())
    preempted: list[Any] = []
    admitted: dict[str, Any] = {}
    skipped = dict.fromkeys(case["expect"].get("skipped_preemptions", {}), 0)
    recomputed: dict[str, dict[str, int]] = {}
    for _ in range(case.get("cycles", 1)):
        result = scene.cycle()
        preempted += scene.evicted(result)
        admitted |= {holder.workload.name: scene.admission(holder) for holder in result.admitted}
        for queue, count in result.skipped_preemptions.items():
            skipped[queue] = skipped.get(queue, 0) + count
        for queue, how in result.recomputed.items():
            recomputed.setdefault(queue, {})[how] = recomputed.get(queue, {}).get(how, 0) + 1
    got = {
        "new_reservations": admitted,
        "kept_reservations": kept,
        "preempted": preempted,
        "evicted": [],
        "left_active": scene.lines(aside=False),
        "left_inadmissible": scene.lines(aside=True),
        "pending": [{"reason": r, "workload": w} for w, r in sorted(scene.pending.items())],
        "skipped_preemptions": skipped,
        "target_recomputations": recomputed,
    }
    return {key: got[key] for key in case["expect"]}


def _schedule_twice(case: Case) -> Any:
    scene = Scene.of(case)
    first = scene.cycle()
    books = scene.scheduler.books
    after_first = {
        "preempted": scene.evicted(first),
        "reserved": sorted(h.workload.name for h in books.holders.values()),
    }
    for uid, name in scene.names.items():
        if name in case["delete_between"] and uid in books.holders:
            scene.scheduler.vacate(uid)
    scene.cycle()
    reserved = {}
    for holder in books.holders.values():
        admission = scene.admission(holder)
        del admission["admitted"]
        reserved[holder.workload.name] = admission
    return {"after_first_cycle": after_first, "reservations_after_second_cycle": reserved}


RUNNERS: dict[str, Runner] = {"schedule": _schedule, "schedule_twice": _schedule_twice}
