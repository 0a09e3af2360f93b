"""Who goes before whom: the priority of a gang, from its class, its pods or its boost."""

from typing import Final, NamedTuple

from fleet.quota.queue_binding import binding_of
from fleet.snapshot import Gang, Job, Snapshot
from model.fleet import Fleet
from model.kinds import PriorityClass

DEFAULT_CLASS: Final = "default"
"""The declared class of gangs that name none."""


class Priority(NamedTuple):
    """Where a gang stands among others, and whether it may evict them."""

    value: int = 0
    preempts: bool = True


def class_of(fleet: Fleet, priority_class: str) -> PriorityClass | None:
    """The declared class of a gang that names this one, or none; None when it is not declared."""
    return fleet.priority_classes.get(priority_class or DEFAULT_CLASS)


def priority_of(fleet: Fleet, snapshot: Snapshot, job: Job) -> Priority:
    """Of the class the job names; else of the declared default; else of its pods' own PriorityClass; else 0.

    As with Kueue, the class of the job wins over that of its pods, and what a class is worth later changes nothing.
    """
    declared = class_of(fleet, job.priority_class)
    if declared is not None:
        return Priority(declared.spec.value, declared.spec.preempts)
    if job.priority_class:
        return Priority()
    name = job.pod_priority_class
    return Priority(snapshot.pod_priorities.get(name, 0), name not in snapshot.meek_pod_priorities)


def boosted_priority(fleet: Fleet, gang: Gang) -> int:
    """What a gang is ordered and preempted by: its priority with its boost.

    Whoever writes the job writes the boost, so it lifts nobody above the highest class that the team may use.
    """
    if gang.priority_boost <= 0:
        return gang.effective_priority
    line = binding_of(fleet, gang.namespace, gang.queue)
    allowed = line.team.spec.priority_classes if line is not None and line.team is not None else ()
    values = [each.spec.value for name, each in fleet.priority_classes.items() if not allowed or name in allowed]
    return min(gang.effective_priority, max(gang.priority, *values)) if values else gang.effective_priority
