"""What must not just go with a revision: declarations that want that confirmed, and the quota of running gangs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fleet.mig.layouts import is_gpu_resource
from fleet.quota.build_tree import usages
from fleet.quota.queue_binding import binding_of
from fleet.quota.specs import FlavorResource
from fleet.snapshot import Gang, GangState, Snapshot
from fleet.snapshot.elastic_parts import parts
from model.fleet import Fleet
from model.kinds import NodePool, Team

TRAILER: Final = "Muster-Confirm-Deletion"
SHOWN: Final = 3
"""Gangs, and declarations, that a sentence names; the others are counted."""


def unconfirmed_deletions(before: Fleet, after: Fleet, confirmed: frozenset[str]) -> str:
    """Returns which pools and teams go although they want that confirmed, and how it is; empty = none does.

    What counts is `deletion` as it is in force before. A renamed declaration is one that goes. `confirmed` has the
    addresses (`nodepool/h100`) that the commit names.
    """
    pools = (f"nodepool/{name}" for name, pool in before.node_pools.items() if _is_guarded(pool, after.node_pools))
    teams = (f"team/{name}" for name, team in before.teams.items() if _is_guarded(team, after.teams))
    left = sorted({*pools, *teams} - confirmed)
    if not left:
        return ""
    ways = f"set deletion: Delete in an earlier revision, or write {TRAILER}: {left[0]} into the commit"
    each = ", a line for each" if len(left) > 1 else ""
    return f"it deletes {_first(left)}, which want that confirmed (deletion: Confirm): {ways}{each}"


def _is_guarded(declared: NodePool | Team, after: Collection[str]) -> bool:
    return declared.spec.deletion == "Confirm" and declared.name not in after


@dataclass(frozen=True, slots=True)
class UncountedGang:
    """A gang that runs, and that no quota counts."""

    gang: Gang
    why: str

    def __str__(self) -> str:
        return f"{self.gang.name} ({self.why})"


def outside_quota(fleet: Fleet, snapshot: Snapshot) -> tuple[UncountedGang, ...]:
    """Returns the running gangs, by name, whose queue or flavor is not declared: nothing counts what they hold."""
    found = ((gang, _undeclared(fleet, gang)) for gang in _running(snapshot))
    return tuple(UncountedGang(gang, why) for gang, why in found if why)


def _undeclared(fleet: Fleet, gang: Gang) -> str:
    if binding_of(fleet, gang.namespace, gang.queue) is None:
        return f"queue {gang.queue!r} is not declared"
    flavors = sorted({name for names in gang.flavors.values() for name in names})
    missing = [name for name in flavors if name not in fleet.flavors and name not in fleet.resource_flavors]
    return f"flavor {missing[0]!r} is not declared" if missing else ""


def quota_withdrawn(before: Fleet, after: Fleet, snapshot: Snapshot) -> str:
    """Returns which running gangs a revision leaves outside any quota, and how to go about it; empty = none.

    A gang counts whose queue goes, or whose last quota, or quota of GPUs: what it holds would be free for others to
    promise. One whose queue is drained in the same revision is stopped, and not meant.
    """
    found = tuple(_stranded(before, after, snapshot))
    if not found:
        return ""
    queues = sorted({it.gang.queue for it in found})
    way = "set `stopPolicy: HoldAndDrain` there in an earlier revision, or `Hold` and wait until they have ended"
    what = f"it leaves {len(found)} running gangs outside any quota: {_first(list(map(str, found)))}"
    return f"{what}; stop {'queue' if len(queues) == 1 else 'queues'} {_first(queues)} first: {way}"


def _stranded(before: Fleet, after: Fleet, snapshot: Snapshot) -> Iterator[UncountedGang]:
    held, kept = usages(before, snapshot), usages(after, snapshot)
    for gang in _running(snapshot):
        was, now = (_counted(gang, usage) for usage in (held, kept))
        lost = sorted(was - now, key=lambda it: (not is_gpu_resource(it.resource), it))
        if not lost or (now and not is_gpu_resource(lost[0].resource)):
            continue
        binding = binding_of(after, gang.namespace, gang.queue)
        if binding is None:
            yield UncountedGang(gang, f"queue {gang.queue!r} goes")
        elif binding.stop_policy != "HoldAndDrain":
            yield UncountedGang(gang, f"no quota counts {lost[0].resource} of {lost[0].flavor} any more")


def _counted(gang: Gang, usage: Mapping[str, Mapping[FlavorResource, int]]) -> set[FlavorResource]:
    cells = (usage.get(part.uid, {}).items() for part in parts(gang))
    return {named for part in cells for named, amount in part if amount}


def _running(snapshot: Snapshot) -> Sequence[Gang]:
    admitted = (gang for gang in snapshot.gangs.values() if gang.state is GangState.ADMITTED)
    return sorted(admitted, key=lambda it: (it.name, it.uid))


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
