"""What a gang must satisfy before quota is even looked at: a table of rules, first refusal wins."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from fleet.gangs.transitions import deactivated
from fleet.quota.queue_binding import QueueBinding, binding_of, known_queues
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang, Snapshot
from model.fleet import Fleet
from model.kinds import Team

PODS_MAX: Final = 150_000
"""Pods of a cluster at most (Kubernetes, "Considerations for large clusters"); no gang has more."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server puts on every namespace."""


class _Candidate(NamedTuple):
    fleet: Fleet
    snapshot: Snapshot
    gang: Gang
    line: QueueBinding

    @property
    def team(self) -> Team | None:
        """Whose quota the line uses; None for a ClusterQueue."""
        return self.line.team


def prefilter(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Refusal | None:
    """The first rule that keeps the gang from being considered now; None when it may be."""
    if (refusal := deactivated(gang)) is not None:
        return refusal
    line = binding_of(fleet, gang.namespace, gang.queue)
    if line is None:
        known = _listed(known_queues(fleet, gang.namespace))
        return Refusal(Reason.QUEUE_NOT_FOUND, f"queue {gang.queue!r} is not declared; declared: {known}")
    case = _Candidate(fleet, snapshot, gang, line)
    return next((refusal for rule in _RULES if (refusal := rule(case))), None)


def may_take_more(fleet: Fleet, snapshot: Snapshot, gang: Gang, line: QueueBinding) -> bool:
    """Whether a gang that runs may have further pods: its queue goes on, and its team has money left."""
    case = _Candidate(fleet, snapshot, gang, line)
    return gang.active and not any(rule(case) for rule in (_not_stopped, _budget))


def _namespace(case: _Candidate) -> Refusal | None:
    if case.team is None:
        return _selected(case)
    allowed = case.team.spec.namespaces
    if case.gang.namespace in allowed:
        return None
    return Refusal(
        Reason.NAMESPACE_NOT_ALLOWED,
        f"namespace {case.gang.namespace!r} may not use queue {case.gang.queue!r}: "
        f"team {case.team.name!r} has {_listed(allowed)}",
    )


def _selected(case: _Candidate) -> Refusal | None:
    """A ClusterQueue takes work of the namespaces it selects by their labels."""
    name = case.gang.namespace
    labels = case.snapshot.namespaces.get(name, {NAMESPACE_LABEL: name})
    if case.line.namespaces is not None and case.line.namespaces.matches(labels):
        return None
    message = f"namespace {name!r} is not selected by ClusterQueue {case.line.name!r} (namespaceSelector)"
    return Refusal(Reason.NAMESPACE_NOT_ALLOWED, message)


def _priority_exists(case: _Candidate) -> Refusal | None:
    wanted = case.gang.priority_class
    if not wanted or wanted in case.fleet.priority_classes:
        return None
    known = _listed(case.fleet.priority_classes)
    return Refusal(Reason.PRIORITY_NOT_FOUND, f"priority class {wanted!r} is not declared; declared: {known}")


def _priority_allowed(case: _Candidate) -> Refusal | None:
    wanted, allowed = case.gang.priority_class, case.team.spec.priority_classes if case.team else ()
    if case.team is None or not wanted or not allowed or wanted in allowed:
        return None
    message = f"team {case.team.name!r} may not use priority class {wanted!r}, only {_listed(allowed)}"
    return Refusal(Reason.PRIORITY_NOT_ALLOWED, message)


def _not_stopped(case: _Candidate) -> Refusal | None:
    policy = case.line.stop_policy
    if policy == "None":
        return None
    return Refusal(Reason.QUEUE_STOPPED, f"queue {case.line.name!r} is stopped ({policy})")


def _budget(case: _Candidate) -> Refusal | None:
    budget = case.team.spec.budget if case.team else None
    if case.team is None or budget is None:
        return None
    if case.snapshot.spent_usd.get(case.team.name, 0.0) < budget.usd_per_month:
        return None
    message = f"team {case.team.name!r} has used up its {budget.usd_per_month:.2f} USD of this month"
    return Refusal(Reason.BUDGET_EXHAUSTED, message)


def _few_enough(case: _Candidate) -> Refusal | None:
    """What asks for more is a slip of the keyboard, or hostile: it is told so before anything is computed for it."""
    pods = sum(pod_set.count for pod_set in case.gang.pod_sets)
    if pods <= PODS_MAX:
        return None
    return Refusal(Reason.TOO_MANY_PODS, f"it asks for {pods} pods; a cluster runs {PODS_MAX} at most")


def _back_off(case: _Candidate) -> Refusal | None:
    left_s = case.gang.requeue_at_s - case.snapshot.now_s
    if left_s <= 0:
        return None
    return Refusal(Reason.BACK_OFF, "waits out the pause after its last eviction", case.gang.requeue_at_s)


def _stands_still(case: _Candidate) -> Refusal | None:
    """A job that somebody started past the queue has pods behind no gate: they go before it is considered."""
    job = case.snapshot.jobs.get(case.gang.uid)
    if job is None or (job.suspended and not job.active_pods):
        return None
    return Refusal(Reason.QUEUED, "its job was started without admission, and is suspended first")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


_RULES: tuple[Callable[[_Candidate], Refusal | None], ...] = (
    _few_enough,
    _namespace,
    _priority_exists,
    _priority_allowed,
    _not_stopped,
    _budget,
    _back_off,
    _stands_still,
)
