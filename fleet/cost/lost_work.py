"""Lost work: what interrupting a running gang wastes, in device time and machine cost since its last checkpoint."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from fleet.cost.weights import MachineWeights, machine_weights
from fleet.mig.layouts import gpu_part
from fleet.snapshot import Claim, Gang, Snapshot
from model.index import derived_each, followed_each
from model.quantity import Resources


def lost_work_s(gang: Gang, now_s: float) -> float:
    """Returns device seconds since the gang's last checkpoint, as far as its job says when that was: an order.

    Victims, and those who move to make room, are put in order by it. Somebody of them has to go, so a job that says
    nothing loses nothing: staying silent must protect nobody. In a price (`lost_work_usd`), where nobody has to go, it
    loses all since its start.
    """
    if not loses_more_with_time(gang):
        return 0.0
    lost_s = max(0.0, now_s - lost_since_s(gang, now_s))
    return lost_s * devices(gang) if lost_s else 0.0


def loses_more_with_time(gang: Gang) -> bool:
    """Returns whether a gang has started, and its job says anything of checkpoints."""
    return bool(gang.admitted_at_s) and (gang.last_checkpoint_s is not None or bool(gang.checkpoint_interval_s))


def devices(gang: Gang) -> int:
    """Returns how many GPUs or GPU slices the gang holds; at least one, so that work without GPUs is not free."""
    return max(1, sum(devices_of(pods.requests) * pods.count for pods in gang.pod_sets))


def devices_of(requests: Resources) -> int:
    """Returns how many GPUs or GPU slices a pod asks for, or a machine offers."""
    return sum(gpu_part(requests).values())


PAYBACK_S: Final = 4 * 3600.0
"""What a move saves in this time (s) has to exceed the cost of the work it loses. The one number that trades savings
for disruption: in consolidation, in returns to preferred capacity, and in plans for many machines
(`docs/kinds/node-pool.md`)."""


RESTART_S: Final = 300.0
"""What a gang that is moved wastes beside the work since its last checkpoint (s of its machines): it stops, its images
are pulled elsewhere, and it reads its checkpoint."""


def lost_since_s(gang: Gang, now_s: float) -> float:
    """Returns from when on work would be lost (epoch s): the last checkpoint, or the start.

    A job states when its last checkpoint was (`muster.dev/last-checkpoint-time`; one in the future counts as now), or
    how often it makes one (`muster.dev/checkpoint-interval`, counted from its start). None loses more than it has run.
    """
    if gang.last_checkpoint_s is not None:
        return max(gang.admitted_at_s, min(gang.last_checkpoint_s, now_s))
    if gang.checkpoint_interval_s:
        return now_s - max(0.0, now_s - gang.admitted_at_s) % gang.checkpoint_interval_s
    return gang.admitted_at_s


def lost_device_s(gang: Gang, now_s: float) -> float:
    """Returns the device seconds that an interruption now wastes, all since the start for who says nothing."""
    if not gang.admitted_at_s or gang.ordinary:
        return 0.0
    return max(0.0, now_s - lost_since_s(gang, now_s)) * devices(gang)


def lost_work_usd(gang: Gang, snapshot: Snapshot) -> float:
    """Returns the cost (USD) of the machine time that an interruption now would waste; ordinary pods lose nothing.

    A price, to be weighed against a saving: see `lost_work_s` for how that differs from an order.
    """
    return work_losses_usd(snapshot)(gang)


def work_losses_usd(snapshot: Snapshot) -> Callable[[Gang], float]:
    """Returns `lost_work_usd` of the gangs of a snapshot, for who asks of hundreds."""
    now_s, machines_usd_h = snapshot.now_s, _machines_usd_h(snapshot)

    def lost_usd(gang: Gang) -> float:
        if not gang.admitted_at_s or gang.ordinary:
            return 0.0
        return max(0.0, now_s - lost_since_s(gang, now_s)) / 3600 * machines_usd_h(gang)

    return lost_usd


def move_usd(gang: Gang, snapshot: Snapshot) -> float:
    """Returns what it costs (USD) to stop a running gang and start it elsewhere: the work it loses, and `RESTART_S`."""
    return lost_work_usd(gang, snapshot) + RESTART_S / 3600 * _machines_usd_h(snapshot)(gang)


def _machines_usd_h(snapshot: Snapshot) -> Callable[[Gang], float]:
    """Returns the function that says what a gang's parts of its machines cost (USD an hour)."""
    index, gangs, charged = snapshot.index, snapshot.gangs, _charged(snapshot.index, snapshot.claims)

    def usd_h(gang: Gang) -> float:
        known = gangs.get(gang.uid) is gang
        return _together_usd_h(index, charged, gangs, gang.uid) if known else _sum_usd_h(charged, gang)

    return usd_h


class _MachineCharge(NamedTuple):
    """What a machine's users are charged (USD an hour), and which part of it a pod is."""

    usd_h: float
    weights: MachineWeights


@followed_each()
def _charged(claim: Claim) -> _MachineCharge:
    """Returns what a machine costs, and whom; another mapping only where that changes."""
    return _MachineCharge(claim.charged_usd_h, _weights(tuple(claim.resources.items())))


@lru_cache(maxsize=1024)
def _weights(resources: tuple[tuple[str, int], ...]) -> MachineWeights:
    """Returns the weights of all machines that offer this, as one object."""
    return machine_weights(dict(resources), None, None)


def _sum_usd_h(charged: Mapping[str, _MachineCharge], gang: Gang) -> float:
    """Returns what a gang's pods are of their machines: of one that it shares, the others' work is not its own."""
    parts: dict[str, float] = {}
    of_pod: dict[tuple[int, str], float] = {}
    for pin in gang.pins:
        if (machine := charged.get(pin.claim)) is None:
            continue
        kind = id(machine.weights), pin.pod_set
        if (part := of_pod.get(kind)) is None:
            part = of_pod[kind] = machine.weights.part_of(gang.pod_set(pin.pod_set).requests)
        parts[pin.claim] = parts.get(pin.claim, 0.0) + part * pin.count
    return sum([charged[claim].usd_h * min(1.0, part) for claim, part in parts.items()])


_together_usd_h = derived_each(_sum_usd_h)
