"""Elastic surplus: pods of a gang beyond its core. They join singly where room is left, and leave before all others.

The core starts together or not at all. Surplus never has anybody evicted, has the lowest priority there is, and costs
nothing but itself when it goes: so it goes first, and a gang that needs the room does not wait for it to end.

Source: Volcano `minAvailable`/`minMember` (`pkg/scheduler/plugins/gang`: only what is beyond it may be taken singly);
KAI elastic pod groups. Here surplus is last in line for everybody, not only behind gangs of higher priority: what is
free is better used by a whole gang.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleet.actions import Action, SaveGang
from fleet.gangs.holding import ended
from fleet.gangs.transitions import moved_on
from fleet.quota.queue_binding import QueueBinding
from fleet.quota.workload import Workload
from fleet.snapshot import Gang, GangState, Hold, Job, Numbering, Pin, Pod, PodSet, Snapshot
from fleet.snapshot.elastic_parts import (
    _PART,
    _singly,
    _without,
    core_of,
    is_one_slice,
    pods_in,
    surplus_priority,
    together,
)
from fleet.snapshot.seats import active_pods, place_of
from fleet.snapshot.sub_groups import SubGroup, chosen, filled
from model.index import followed_each
from model.plain_text import counted


def growing(snapshot: Snapshot) -> Sequence[Gang]:
    """Returns the running gangs, by uid, whose jobs ask for more pods than they were admitted with."""
    return tuple(_growing(snapshot.index, snapshot.gangs, snapshot.jobs).values())


@followed_each(tables=2)
def _growing(gang: Gang, job: Job | None) -> Gang | None:
    return gang if job is not None and _may_grow(gang, job) else None


def _may_grow(gang: Gang, job: Job) -> bool:
    if not _settled(gang, job):
        return False
    held = {pods.name: pods.count for pods in gang.pod_sets}
    return any(asked.core is not None and asked.count > held.get(asked.name, asked.count) for asked in job.pod_sets)


def _settled(gang: Gang, job: Job) -> bool:
    resting = gang.state is GangState.ADMITTED and not gang.leaving and not gang.replacing_since_s
    return resting and job.hold is Hold.PODS


_MOST_TURNS: Final = 64
"""Pods of a gang that have a turn of their own in a pass; the others join after them, a set at a time."""


def joining(snapshot: Snapshot, gang: Gang, line: QueueBinding) -> Iterator[Workload]:
    """Yields the pods that could join a running gang as workloads (`surplus_priority`), bound to the gang's flavors.

    Pods of a sub-group that is not there yet join together, as many as make it whole, before all that join singly.
    Each of these is a workload of its own, so that gangs of several queues grow side by side (Volcano
    `actions/allocate`: beyond `minAvailable` a task is taken, and the queues are compared again). The next is of the
    set that has least for what it needs (KAI `plugins/subgrouporder`).
    """
    found = {pods.name: pods for pods in missing(snapshot, gang, snapshot.jobs[gang.uid])}
    whole_groups = tuple(_sub_groups(gang, found))
    single = [(pods,) for pods in _turns(gang, found)]
    for number, pod_sets in enumerate((*whole_groups, *single)):
        given = gang.flavors.get(pod_sets[0].name)
        yield Workload(
            f"{gang.uid}{_PART}{number:03}/{pod_sets[0].name}",
            f"{gang.name} (surplus)",
            line.name,
            surplus_priority(gang),
            gang.created_at_s,
            pod_sets,
            preempts=False,
            buys=False,
            allowed_flavors=frozenset(given) if given else None,
        )


def _turns(gang: Gang, found: Mapping[str, PodSet]) -> Iterator[PodSet]:
    """Yields the missing pods one by one, each of the set that has least beside those before it.

    Those that have to choose a domain that they share join together.
    """
    yield from (pods for pods in found.values() if pods.required_topology)
    found = {name: pods for name, pods in found.items() if not pods.required_topology}
    held = Counter({pods.name: pods.count for pods in gang.pod_sets})
    left = Counter({name: pods.count for name, pods in found.items()})
    for _ in range(min(_MOST_TURNS, left.total())):
        parts = _filled(gang, held)
        name = min((name for name in left if left[name]), key=lambda name: (parts[name], name))
        yield replace(found[name], count=1)
        held[name] += 1
        left[name] -= 1
    yield from (replace(found[name], count=count) for name, count in left.items() if count)


def _filled(gang: Gang, held: Mapping[str, int]) -> Mapping[str, tuple[float, ...]]:
    """Returns pod set -> how much of what it needs it has, after what the sub-groups above it have."""
    alone = {pods.name: (held[pods.name] / max(1, core_of(pods).count),) for pods in gang.pod_sets}
    return {**alone, **(filled(gang.choice, held) if gang.choice is not None else {})}


def _sub_groups(gang: Gang, joining: dict[str, PodSet]) -> Iterator[tuple[PodSet, ...]]:
    """Yields the missing pods of sub-groups that are not whole, a sub-group at a time, and takes their sets away."""
    leaves = gang.choice.leaves() if gang.choice is not None and gang.choice.parts else ()
    held = {pods.name: pods.count for pods in gang.pod_sets}
    for leaf in leaves:
        here = {role.pod_set: held.get(role.pod_set, 0) for role in leaf.roles}
        lacks = leaf.together - sum(here.values())
        if leaf.together > 1 and lacks > 0:
            own = [joining.pop(name) for name in here if name in joining]
            if several := _lacking(replace(leaf, together=lacks), here, own):
                yield several


def _lacking(leaf: SubGroup, here: Mapping[str, int], own: Iterable[PodSet]) -> tuple[PodSet, ...]:
    """Returns the pods that make a sub-group whole beside those that are here; none where there are too few."""
    counts = chosen(leaf, lambda _counts: True, here) or here
    more = (replace(it, count=counts.get(it.name, 0) - here[it.name], min_count=None) for it in own)
    return tuple(pods for pods in more if pods.count)


def missing(snapshot: Snapshot, gang: Gang, job: Job) -> Iterator[PodSet]:
    """Yields the pods that the job asks for beyond those the gang was admitted with, as pod sets.

    Only jobs whose pods are held one by one take pods singly, and only in sets that are one slice or have none of
    several pods. Where pods have to share a domain, with those of their set or of its group, it is the domain of those
    that run; the first of them choose one. What a set only prefers keeps nobody from joining.
    """
    held = {pods.name: pods for pods in gang.pod_sets}
    for asked in job.pod_sets:
        has = held.get(asked.name)
        if has is not None and _grows(asked, has) and (where := _domain(snapshot, gang, asked)) is not None:
            yield _single(replace(asked, count=asked.count - has.count), where)


def _single(asked: PodSet, where: Mapping[str, str]) -> PodSet:
    """Returns pods of a set as they join singly, on nodes with these labels."""
    return replace(
        asked,
        min_count=1,
        core=None,
        required_topology=_still_shared(asked, where),
        preferred_topology="",
        any_topology=bool(asked.wishes or asked.required_topology),
        slices=(),
        group="",
        node_selector={**asked.node_selector, **where},
    )


def _still_shared(asked: PodSet, where: Mapping[str, str]) -> str:
    """Returns the label of the domain that pods of a set have to share and that is not chosen yet; empty if none is."""
    if is_one_slice(asked):
        return "" if asked.slices[0].level in where else asked.slices[0].level
    return "" if where else asked.required_topology


def _grows(asked: PodSet, has: PodSet) -> bool:
    """Returns whether pods may join a set singly: it is elastic, asks for more of them, and is otherwise the same."""
    sliced = not is_one_slice(asked) and any(layer.size > 1 for layer in asked.slices)
    if asked.core is None or asked.count <= has.count or sliced:
        return False
    return replace(asked, count=has.count, core=has.core) == has


def _domain(snapshot: Snapshot, gang: Gang, pods: PodSet) -> dict[str, str] | None:
    """Returns the labels that nodes for further pods must carry, none where nobody runs; None where it is not known."""
    own = [pin for pin in gang.pins if pin.pod_set == pods.name]
    shared = [(pods.required_topology, _pins_together(gang, pods))]
    shared += [(pods.slices[0].level, own)] if is_one_slice(pods) else []
    found: dict[str, str] = {}
    for label, pins in shared:
        nodes = (snapshot.nodes.get(pin.node) for pin in pins) if label else ()
        values = {node.labels.get(label, "") for node in nodes if node is not None} - {""}
        if len(values) > 1 or (label and pins and not values):
            return None
        if values:
            found[label] = values.pop()
    return found


def _pins_together(gang: Gang, pods: PodSet) -> list[Pin]:
    """Returns the pins of a set and of those that it shares a domain with."""
    names = {it.name for it in gang.pod_sets if pods.group and it.group == pods.group} | {pods.name}
    return [pin for pin in gang.pins if pin.pod_set in names]


def grown(gang: Gang, before: Gang, name: str, pins: Iterable[Pin], flavors: tuple[str, ...], now_s: float) -> Gang:
    """Returns the gang with the pods of a set that have joined; `before`: as it was when the pass began."""
    more = sum(pin.count for pin in pins)
    pod_sets = tuple(replace(p, count=p.count + more) if p.name == name else p for p in gang.pod_sets)
    joined = gang.pod_set(name).count + more - before.pod_set(name).count
    message = f"{joined} pod{'s' if joined > 1 else ''} of {name} joined beyond its minimum"
    return moved_on(
        gang,
        message,
        now_s,
        pod_sets=pod_sets,
        pins=together((*gang.pins, *pins)),
        flavors={**gang.flavors, name: flavors},
    )


def dismissed(gang: Gang, seats: Iterable[Pin], message: str, now_s: float) -> Gang:
    """Returns the gang with the pods on these seats told to leave."""
    return moved_on(gang, message, now_s, leaving=together((*gang.leaving, *seats)))


def departures(snapshot: Snapshot, gang: Gang) -> Iterator[Action]:
    """Ends the pods on seats that are given up, and takes the seats that are empty by now from the gang."""
    if not gang.leaving:
        return
    seats, here = _by_place(together(gang.pins)), _pods_by_place(snapshot, gang)
    empty: list[Pin] = []
    for place, leaving in sorted(_by_place(gang.leaving).items()):
        pods, kept = here.get(place, ()), seats[place] - leaving
        for pod in _beyond(kept, pods):
            yield from ended(snapshot, pod)
        vacated = leaving - max(0, len(pods) - kept)
        if vacated > 0:
            pin = next(pin for pin in gang.leaving if (pin.pod_set, pin.node) == place)
            empty.append(replace(pin, count=vacated))
    if empty:
        yield SaveGang(_smaller(gang, empty, snapshot.now_s))


def _by_place(pins: Iterable[Pin]) -> Counter[tuple[str, str]]:
    """Returns (pod set, node) -> number of pods."""
    return Counter({(pin.pod_set, pin.node): pin.count for pin in pins})


def _pods_by_place(snapshot: Snapshot, gang: Gang) -> Mapping[tuple[str, str], Sequence[Pod]]:
    """Returns (pod set, node) -> active pods that stand there or were released to it."""
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in active_pods(snapshot, gang):
        found.setdefault((pod.pod_set, place_of(snapshot, gang, pod)), []).append(pod)
    return found


def _beyond(kept: int, pods: Iterable[Pod]) -> Sequence[Pod]:
    """Returns the pods, of lowest priority and last by name, that have to end so that no more than `kept` stay."""
    staying = sorted((pod for pod in pods if not pod.deleting), key=lambda pod: (-pod.priority, pod.name, pod.uid))
    return staying[max(0, kept) :]


def scaled_down(snapshot: Snapshot, gang: Gang, job: Job) -> Gang | None:
    """Returns the gang of a StatefulSet without the seats that its lower replicas leave empty; None where none are.

    A seat, with its quota, is given back once its pod is gone: others would find it taken before.
    """
    if job.numbering is None or (spare := pods_in(gang.pod_sets) - max(1, _kept(job, job.numbering))) <= 0:
        return None
    here = _pods_by_place(snapshot, gang)
    standing = [replace(pin, count=len(here.get((pin.pod_set, pin.node), ()))) for pin in gang.pins if pin.node]
    kept = {pods.name for pods in job.pod_sets} if job.numbering.claims else set()  # each number has a seat of its own
    free = (pin for pin in _singly(_without(gang.pins, _singly(standing))) if pin.pod_set not in kept)
    empty = sorted(free, key=lambda pin: (bool(pin.node), pin))
    why = "left, as fewer replicas are asked for"
    return _smaller(gang, empty[:spare], snapshot.now_s, why) if empty else None


def _kept(job: Job, numbering: Numbering) -> int:
    return pods_in(job.pod_sets) + numbering.going


def _smaller(gang: Gang, empty: list[Pin], now_s: float, why: str = "beyond its minimum left") -> Gang:
    gone = Counter[str]()
    for pin in empty:
        gone[pin.pod_set] += pin.count
    single = _singly(empty)
    return moved_on(
        gang,
        f"{counted(len(single), 'pod')} {why}",
        now_s,
        pod_sets=tuple(replace(pods, count=pods.count - gone[pods.name]) for pods in gang.pod_sets),
        pins=_without(gang.pins, single),
        leaving=_without(gang.leaving, single),
    )
