"""Gangs that hold GPUs and do nothing with them: when that is said of them, and when their queue has them stopped.

Readings that are missing or old are no idleness: what is said stays as it was, and nobody is stopped.
"""

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, NamedTuple

from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason, some_of
from fleet.snapshot import Gang, GangState, IdleGpus, Pod, Snapshot
from fleet.snapshot.gpus import FRESH_S, MeasuredUse
from fleet.snapshot.lookups import claims_by_pool
from fleet.snapshot.seats import pods_of
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds.base import format_duration
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE

UNREAD_AFTER_S: Final = 900.0
"""What has stood for longer than this is in the readings, where there are any."""
LEAST_READINGS: Final = 3
"""In a row, without a gap, that have to find a GPU idle."""


class _HeldGpus(NamedTuple):
    """What readings say of the GPUs and slices of a gang."""

    asked: int
    told: int
    """Of how many there are readings now."""
    idle: int
    """How many have done nothing for as long as is borne."""
    since_s: float
    """Since when all of these have done nothing."""


def idle_gpus(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> IdleGpus | None:
    """Returns what is to be said of the GPUs that a running gang holds idle; None where it uses them.

    What is said stays while there are no readings of all of them.
    """
    after_s = _policy(fleet, gang)[0]
    if after_s == inf:
        return None
    if not snapshot.gpu_uses or (snapshot.now_s - gang.admitted_at_s < after_s and not gang.idle):
        return gang.idle
    held = _held(snapshot, gang, after_s)
    if held.told < held.asked:
        return gang.idle
    return IdleGpus(held.since_s, held.idle, held.asked, after_s) if held.idle else None


def idle_too_long(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> tuple[Reason, str] | None:
    """Returns why a running gang is stopped whose queue does not bear idle GPUs: all of them are, by fresh readings."""
    after_s, action = _policy(fleet, gang)
    if action != "Stop" or not snapshot.gpu_uses or snapshot.now_s - gang.admitted_at_s < after_s:
        return None
    held = _held(snapshot, gang, after_s)
    if not held.asked or held.idle < held.asked:
        return None
    said = IdleGpus(held.since_s, held.idle, held.asked, after_s)
    return Reason.IDLE_GPUS, f"it {idle_words(said)}, and queue {gang.queue!r} stops who does"


def idle_words(idle: IdleGpus) -> str:
    """Returns what is said of a gang with idle GPUs, as the rest of a sentence."""
    several = f"any of its {idle.of} GPUs or slices" if idle.of > 1 else "its GPU or slice"
    what = several if idle.idle == idle.of else f"{idle.idle} of its {idle.of} GPUs or slices"
    return f"has done nothing with {what} for {format_duration(idle.after_s)} or longer"


def missing_readings(fleet: Fleet, snapshot: Snapshot) -> str:
    """Returns what does not happen though it is declared, as nothing is read of GPUs that are held; empty = all does.

    Judged by what was read, not by settings: no exporter may be asked, none may be there, or none tells of pods.
    """
    cut, stop = _by_readings(fleet.index, fleet)
    old_s = snapshot.now_s - UNREAD_AFTER_S
    claims = (it for pool in sorted(cut) for it in claims_by_pool(snapshot).get(pool, ()))
    machines = [it.name for it in claims if 0 < it.ready_at_s < old_s and it.node not in snapshot.gpu_holders]
    gangs = [it.name for it in snapshot.gangs.values() if it.queue in stop and _is_unread(snapshot, it, old_s)]
    told = [f"idle GPUs of {some_of(machines)} are not cut (recutIdleGpus)"] if machines else []
    told += [f"{some_of(sorted(gangs))} would not be stopped (idleGpus)"] if gangs else []
    return f"{'; '.join(told)}: no dcgm-exporter has told of their GPUs lately" if told else ""


@derived()
def _by_readings(_index: Index, fleet: Fleet) -> tuple[frozenset[str], frozenset[str]]:
    """Returns pools and queues that do by readings what else is not done."""
    pools = {name: pool.spec.sharing.mig for name, pool in fleet.node_pools.items()}
    cut = frozenset(name for name, mig in pools.items() if mig is not None and mig.recut_idle_gpus)
    return cut, frozenset(name for name, it in fleet.queues.items() if it.spec.idle_gpus.action == "Stop")


def _is_unread(snapshot: Snapshot, gang: Gang, old_s: float) -> bool:
    if not (gang.state is GangState.ADMITTED and 0 < gang.admitted_at_s < old_s):
        return False
    pods = [pod for pod in pods_of(snapshot, gang) if pod.active and _gpus(pod)]
    return bool(pods) and not any(pod.key in snapshot.gpu_uses for pod in pods)


def _policy(fleet: Fleet, gang: Gang) -> tuple[float, str]:
    binding = binding_of(fleet, gang.namespace, gang.queue)
    return (binding.idle_after_s, binding.idle_action) if binding is not None else (inf, "Warn")


def _held(snapshot: Snapshot, gang: Gang, after_s: float) -> _HeldGpus:
    asked, told, idle, latest_s = 0, 0, 0, 0.0
    for pod in pods_of(snapshot, gang):
        wants = _gpus(pod)
        if not wants or not pod.active:
            continue
        uses = [it for it in snapshot.gpu_uses.get(pod.key, ()) if it.last.node == pod.node]
        fresh = [it for it in uses if snapshot.now_s - it.until_s <= FRESH_S]
        long = list(_idle_since(fresh, max(pod.started_at_s, gang.admitted_at_s), after_s))[:wants]
        asked, told, idle = asked + wants, told + min(wants, len(fresh)), idle + len(long)
        latest_s = max(latest_s, *long, 0.0)
    return _HeldGpus(asked, told, idle, float(int(latest_s)))


def _idle_since(uses: Iterable[MeasuredUse], began_s: float, after_s: float) -> Iterator[float]:
    """Yields since when devices have done nothing, of those that have long enough; before `began_s` nothing counts."""
    for it in uses:
        if it.idle_from_s is not None and it.idle_readings >= LEAST_READINGS:
            from_s = max(it.idle_from_s, began_s)
            if it.until_s - from_s >= after_s:  # what has not been read yet does not count
                yield from_s


def _gpus(pod: Pod) -> int:
    """How many GPUs, slices or shares a pod asks for."""
    return sum(
        amount
        for name, amount in pod.requests.items()
        if name in (GPU_RESOURCE, SHARED_GPU_RESOURCE) or name.startswith(MIG_RESOURCE_PREFIX)
    )
