"""What people change of a job while its gang runs: what comes of it, in words.

A gang that runs is what it was admitted as, in the queue that it was admitted in: its Workload says so, and cannot be
changed. What its job says meanwhile counts when it starts anew. It is not undone, and not silent.
"""

from collections.abc import Iterator

from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Hold, Job
from model.fleet import Fleet
from model.plain_text import counted

_AFTER = "that counts once it is stopped (suspend it, or delete its pods' job) and starts anew"


def changed_since(fleet: Fleet, gang: Gang, job: Job | None) -> Iterator[str]:
    """Yields what a running gang's job says otherwise than it was admitted with, a sentence each."""
    if job is None or gang.state is not GangState.ADMITTED or job.deleting or job.result:
        return
    if job.managed and job.queue != gang.queue:
        yield f"its job names queue {job.queue!r}; it runs and counts in queue {gang.queue!r}: {_AFTER}"
    if not job.managed:
        yield f"its job names no queue any more; it runs on in queue {gang.queue!r} until it ends or is stopped"
    if binding_of(fleet, gang.namespace, gang.queue) is None:
        yield f"its Workload names queue {gang.queue!r}, which is not declared: no quota counts it"
    if job.priority_class != gang.priority_class:
        names = job.priority_class or "none", gang.priority_class or "none"
        yield f"its job names priority class {names[0]}; it runs with that of its Workload, {names[1]}: {_AFTER}"
    yield from _resized(gang, job)


def _resized(gang: Gang, job: Job) -> Iterator[str]:
    """Yields what comes of another number of pods, or another template, where that is not the kind's to follow."""
    if job.hold is Hold.PODS or any(pods.core is not None for pods in gang.pod_sets):
        return  # elastic and numbered gangs follow their jobs
    held = {pods.name: pods for pods in gang.pod_sets}
    for wanted in job.pod_sets:
        has = held.get(wanted.name)
        if has is None or has.requests != wanted.requests:
            yield f"pods of {wanted.name} ask for something else than it was admitted with: {_AFTER}"
        elif wanted.count > has.count and wanted.min_count is None:
            more = wanted.count - has.count
            yield (
                f"its job asks for {counted(wanted.count, 'pod')} of {wanted.name}, it was admitted with {has.count}: "
                f"the {more} more have no place and wait behind their gate; {_AFTER}"
            )
        elif wanted.count < has.count and wanted.name not in job.remaining:
            yield (
                f"its job asks for {counted(wanted.count, 'pod')} of {wanted.name}, it was admitted with {has.count}: "
                "those that go count as lost, and unless they are made anew in time it leaves "
                f"({Reason.PODS_READY_TIMEOUT}) and starts again with {wanted.count}"
            )
