"""Splits a gang into parts: its core, which starts together or not at all, and each pod beyond it as another part."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from fleet.snapshot import Gang, Pin, PodSet

PRIORITY: Final = -(2**40)
"""Of the surplus of gangs of priority 0: below every class and boost."""


def surplus_priority(gang: Gang) -> int:
    """Returns the priority of a gang's surplus: below all that waits, and among surplus in the order of the classes.

    A boost does not count, which whoever writes the job gives it.
    """
    return PRIORITY + gang.priority


PREEMPTABLE: Final = "volcano.sh/preemptable"
"""Volcano's label of pods that says whether they may be evicted for others; pods that may not belong to the core first.
"""
_PART: Final = "+"
"""Between a gang's uid and what names a part of it; in no uid."""


def core_of(pods: PodSet) -> PodSet:
    """Returns the part of a pod set that starts together."""
    if pods.core is None or pods.core >= pods.count:
        return fitted(pods)
    return replace(fitted(replace(pods, count=pods.core)), core=None)


def is_one_slice(pods: PodSet) -> bool:
    """Returns whether all pods of a set, and those that may join it, are one slice: they share one domain."""
    return len(pods.slices) == 1 and pods.slices[0].size > 1 and pods.count <= pods.slices[0].size


def fitted(pods: PodSet) -> PodSet:
    """Returns an elastic set that is one slice as one slice of the pods that it has."""
    if pods.core is None or not is_one_slice(pods):
        return pods
    return replace(pods, slices=(replace(pods.slices[0], size=max(1, pods.count)),))


def pods_in(pod_sets: Iterable[PodSet]) -> int:
    """Returns the number of pods in all of the sets."""
    return sum(pods.count for pods in pod_sets)


def cores(pod_sets: Iterable[PodSet]) -> tuple[PodSet, ...]:
    """Returns the parts of its pod sets that a gang needs to start; without those that have no core."""
    return tuple([core for pods in pod_sets if (core := core_of(pods)).count])


def startable(gang: Gang) -> tuple[PodSet, ...]:
    """Returns the pods that a waiting gang starts with; where it has a choice, all sets, some without pods."""
    return cores(gang.needed) if gang.choice is None else tuple(core_of(pods) for pods in gang.needed)


def whole(uid: str) -> str:
    """Returns the uid of the gang that a part belongs to."""
    return uid.partition(_PART)[0]


def parts(gang: Gang) -> Iterator[Gang]:
    """Yields a gang as quota is charged: its core under its own uid, and each surplus pod as a gang of its own.

    A pod that leaves already is a part with `leaving` set. While lost pods get other places, the gang is one part.
    """
    whole_now = gang.remaining or gang.replacing_since_s
    surplus = [pin for pods in gang.pod_sets for pin in _surplus(gang, pods)] if not whole_now else []
    if not surplus:
        yield gang
        return
    yield replace(gang, pod_sets=cores(gang.pod_sets), pins=_without(gang.pins, surplus), leaving=())
    for group in sub_groups_beyond(gang):
        own = [pin for pin in surplus if pin.pod_set in group]
        surplus = [pin for pin in surplus if pin.pod_set not in group]
        if own:
            yield _sub_group_part(gang, own)
    leaving = Counter({(pin.pod_set, pin.node, pin.claim): pin.count for pin in gang.leaving})
    seen: Counter[Pin] = Counter()
    for pin in surplus:
        seen[pin] += 1
        goes = seen[pin] <= leaving[pin.pod_set, pin.node, pin.claim]
        yield replace(
            gang,
            uid=f"{gang.uid}{_PART}{pin.pod_set}/{pin.node or pin.claim}/{seen[pin]}",
            priority=surplus_priority(gang),
            priority_boost=0,
            preempts=False,
            pod_sets=(replace(gang.pod_set(pin.pod_set), count=1, core=None),),
            pins=(pin,),
            leaving=(pin,) if goes else (),
        )


def sub_groups_beyond(gang: Gang) -> list[frozenset[str]]:
    """Returns the pod sets of each sub-group beyond those that the gang started with, where several pods make it whole.

    Its pods join and leave together.
    """
    core = {pods.name for pods in gang.pod_sets if pods.core != 0}
    if gang.choice is None or not gang.choice.parts:
        return []
    found = (frozenset(role.pod_set for role in leaf.roles) for leaf in gang.choice.leaves() if leaf.together > 1)
    return [names for names in found if not names & core]


def _sub_group_part(gang: Gang, seats: Sequence[Pin]) -> Gang:
    counts = Counter(pin.pod_set for pin in seats)
    first = seats[0]
    return replace(
        gang,
        uid=f"{gang.uid}{_PART}{first.pod_set}/{first.node or first.claim}/0",
        priority=surplus_priority(gang),
        priority_boost=0,
        preempts=False,
        pod_sets=tuple(replace(gang.pod_set(name), count=count, core=None) for name, count in sorted(counts.items())),
        pins=together(seats),
        leaving=together(pin for pin in gang.leaving if pin.pod_set in counts),
    )


def _surplus(gang: Gang, pods: PodSet) -> list[Pin]:
    """Returns the seats of a set beyond its core: what leaves already, then where the fewest of its pods are."""
    if pods.core is None or pods.core >= pods.count:
        return []
    own = [pin for pin in gang.pins if pin.pod_set == pods.name]
    going = [pin for pin in gang.leaving if pin.pod_set == pods.name]
    others = sorted(_without(own, _singly(going)), key=lambda pin: (pin.count, pin.node, pin.claim))
    spare = sum(pin.count for pin in own) - pods.core
    return [*_singly(going), *_singly(others)][: max(0, spare)]


def _singly(pins: Iterable[Pin]) -> list[Pin]:
    return [replace(pin, count=1) for pin in pins for _ in range(pin.count)]


def _without(pins: Iterable[Pin], gone: Iterable[Pin]) -> tuple[Pin, ...]:
    less = Counter((pin.pod_set, pin.node, pin.claim) for pin in gone)
    left = []
    for pin in pins:
        place = (pin.pod_set, pin.node, pin.claim)
        taken = min(pin.count, less[place])
        less[place] -= taken
        if taken < pin.count:
            left.append(replace(pin, count=pin.count - taken))
    return tuple(left)


def together(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    """Returns the pins in order, merged where pod set, node and claim are the same."""
    counts = Counter[tuple[str, str, str]]()
    for pin in pins:
        counts[pin.pod_set, pin.node, pin.claim] += pin.count
    return tuple(Pin(*place, count) for place, count in sorted(counts.items()))
