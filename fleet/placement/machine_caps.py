"""Reduces what pods ask of others to what a linear programme knows: caps of each machine, and domains that are kept.

- What bounds the pods of one machine (host ports, anti-affinity and even spread by host) is a resource: every machine
  has some of it, and pods take some.
- What counts pods by larger domains (zones, racks, kinds of machines), and what volumes ask, holds as long as every pod
  stays in its domain. Pods that ask nothing, and that others count, stay in theirs as well.
- Equal pods that have to share a machine are one large pod (`gathers`).

The rest is in no such programme, and its pods stay where placement has put them (`stays`): affinity by host to other
pods, pods that keep others away by host but not each other, and pods that claim devices which not all are alike.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from fleet.placement.domains import EVERYWHERE, ITSELF, EqualPods, Place
from fleet.placement.neighbours import Neighbours
from fleet.placement.pod_filter import PodFilter, pod_filter
from fleet.placement.spread_filter import counts_for
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import PodAffinityTerm, PodHostPort, TopologySpreadConstraint
from fleet.snapshot.devices import DeviceClaim
from model.labels import HOSTNAME, ZONE, normalize
from model.quantity import Resources

_MANY: Final = 1 << 10
"""More pods than a machine holds."""
_OF_HOST: Final = frozenset({ITSELF, HOSTNAME, EVERYWHERE})
DomainLabel = tuple[str, str | None]
"""A node label with its value on some machine; None = it has none."""
_Amount = tuple[int, Callable[[EqualPods], int]]
"""What a machine has of a cap, and what a pod of a class takes."""


@dataclass(frozen=True, slots=True)
class _Cap:
    """A `_Cap` is an amount that every machine has, and how much of it one pod of a class takes."""

    name: str
    most: int
    takes: Callable[[EqualPods], int]


@dataclass(frozen=True, slots=True)
class MachineCaps:
    """`MachineCaps` are the constraints of some classes of pods as resources of machines, and as labels to keep."""

    neighbours: Neighbours
    _caps: Sequence[_Cap] = ()
    _keys: Mapping[EqualPods, tuple[str, ...]] = field(default_factory=dict)
    _staying: frozenset[EqualPods] = frozenset()
    _gathering: Mapping[EqualPods, Hashable] = field(default_factory=dict)
    _taken: dict[EqualPods, Resources] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        neighbours: Neighbours,
        pod_sets: Iterable[PodSet],
        *,
        standing: bool = False,
        picky: Container[tuple[DeviceClaim, ...]] | None = None,
    ) -> "MachineCaps":
        """Returns those of pod sets that may go elsewhere; `standing`: onto machines on which others stand, too.

        `picky`: claims of which amounts do not say all that they ask of a machine; None = any.
        """
        sets = {neighbours.kind_of(pods): pods for pods in pod_sets}
        rules = {kind: found for kind, pods in sets.items() if (found := pod_filter(neighbours, pods)) is not None}
        if not rules:
            return cls(neighbours)
        gathering, torn = _gathering(neighbours, list(sets))
        claiming = {kind for kind in sets if (it := kind.constraints.devices) and (picky is None or it in picky)}
        staying = torn | _one_sided(neighbours, list(sets)) | claiming
        moving = [kind for kind in sets if kind not in staying]
        caps = tuple(_caps(neighbours, moving, standing=standing))
        keys = _keys(neighbours, list(sets), rules)
        return cls(neighbours, caps, keys, staying, {kind: gathering[kind] for kind in moving if kind in gathering})

    @property
    def capacity(self) -> Resources:
        """Returns what an empty machine has of every cap."""
        return {cap.name: cap.most for cap in self._caps}

    def taken(self, pods: PodSet) -> Resources:
        """Returns what one pod takes of the caps."""
        return self._taken_by(self.neighbours.kind_of(pods)) if self._caps else {}

    def _taken_by(self, kind: EqualPods) -> Resources:
        if kind not in self._taken:
            self._taken[kind] = {cap.name: amount for cap in self._caps if (amount := cap.takes(kind))}
        return self._taken[kind]

    def keys(self, pods: PodSet) -> tuple[str, ...]:
        """Returns the labels whose values the machines of these pods have to keep, sorted."""
        return self._keys.get(self.neighbours.kind_of(pods), ()) if self._keys else ()

    def stays(self, pods: PodSet) -> bool:
        """Returns whether what pods ask, or what others ask of them, does not reduce to caps and domains."""
        return bool(self._staying) and self.neighbours.kind_of(pods) in self._staying

    @property
    def some_gather(self) -> bool:
        """Returns whether any of the pods have to share a machine with others."""
        return bool(self._gathering)

    def gathers(self, pods: PodSet) -> Hashable | None:
        """Returns what is equal for all pods that have to share one machine with these; None where they need not."""
        return self._gathering.get(self.neighbours.kind_of(pods)) if self._gathering else None

    def left(self) -> Mapping[Place, Resources]:
        """Returns what is left of the caps on every place where pods take any; below 0 where they take too much."""
        used: dict[Place, Counter[str]] = {}
        for kind, where in self.neighbours.standing() if self._caps else ():
            takes = self._taken_by(kind)
            for place, count in where.items() if takes else ():
                used.setdefault(place, Counter()).update({name: amount * count for name, amount in takes.items()})
        return {place: self._less(them) for place, them in used.items()}

    def _less(self, used: Mapping[str, int]) -> Resources:
        return {cap.name: cap.most - used.get(cap.name, 0) for cap in self._caps}


def domains_on(labels: Mapping[str, str], keys: Iterable[str]) -> tuple[DomainLabel, ...]:
    """Returns the domain of each label that a machine to buy with these labels will be in."""
    return tuple((key, labels.get(key, labels.get(normalize(key)))) for key in keys)


def is_in(labels: Mapping[str, str], domains: frozenset[DomainLabel]) -> bool:
    """Returns whether a machine with these labels is in all of the domains."""
    return not domains or frozenset(domains_on(labels, (key for key, _ in domains))) == domains


# -- what does not reduce ---------------------------------------------------------------------------------------------


def _gathering(
    neighbours: Neighbours, kinds: Sequence[EqualPods]
) -> tuple[dict[EqualPods, Hashable], frozenset[EqualPods]]:
    """Returns the classes that share a machine among themselves, with what is equal for those of one machine.

    And the classes that look for others on their machine, with those they look for.
    """
    groups: dict[tuple[PodAffinityTerm, ...], list[EqualPods]] = {}
    for kind in kinds:
        if any(term.topology_key == HOSTNAME for term in kind.constraints.affinity):
            groups.setdefault(kind.constraints.affinity, []).append(kind)
    torn = set[EqualPods]()
    for terms, group in groups.items():
        company = {it for it in kinds if all(neighbours.means(term, it) for term in terms)}
        torn |= company.union(group) if company != set(group) else frozenset()
    together = {kind: terms for terms, group in groups.items() for kind in group}
    return {kind: terms for kind, terms in together.items() if kind not in torn}, frozenset(torn)


def _one_sided(neighbours: Neighbours, kinds: Sequence[EqualPods]) -> frozenset[EqualPods]:
    """Returns the classes that keep other ones off their machine, but not their own pods."""
    return frozenset(
        kind
        for kind in kinds
        for term in _apart_by_host(kind)
        if not neighbours.means(term, kind) and any(neighbours.means(term, it) for it in kinds)
    )


def _apart_by_host(kind: EqualPods) -> Iterator[PodAffinityTerm]:
    return (term for term in kind.constraints.anti_affinity if term.topology_key == HOSTNAME)


# -- what one machine may hold ----------------------------------------------------------------------------------------


def _caps(neighbours: Neighbours, moving: Sequence[EqualPods], *, standing: bool) -> Iterator[_Cap]:
    found = [*_of_ports(moving), *_of_spread(moving), *_of_distance(neighbours, moving, standing=standing)]
    for number, (most, takes) in enumerate(found):
        yield _Cap(f"on one machine/{number:05d}", most, takes)


def _of_ports(moving: Sequence[EqualPods]) -> Iterator[_Amount]:
    """A port of the node is there once."""
    for port in dict.fromkeys(port for kind in moving for port in kind.constraints.host_ports):
        yield 1, partial(_uses, port)


def _of_spread(moving: Sequence[EqualPods]) -> Iterator[_Amount]:
    """As many as a host may have while another has none."""
    asked = dict.fromkeys(
        (kind.namespace, each)
        for kind in moving
        for each in kind.constraints.spread
        if each.hard and each.topology_key == HOSTNAME
    )
    for namespace, each in asked:
        if any(counts_for(each.selector, kind, namespace) for kind in moving):
            yield each.max_skew, partial(_is_counted, each, namespace)


def _of_distance(neighbours: Neighbours, moving: Sequence[EqualPods], *, standing: bool) -> Iterator[_Amount]:
    """A machine holds one pod with a term that means its own kind, or any number of others that the term means."""
    asking = (*moving, *neighbours.repelling()) if standing else moving
    for term in dict.fromkeys(term for kind in asking for term in _apart_by_host(kind)):
        meant = [kind for kind in moving if neighbours.means(term, kind)]
        if meant:
            whole = 1 if all(term in kind.constraints.anti_affinity for kind in meant) else _MANY
            yield whole, partial(_weight, neighbours, term, whole, 1)
        elif standing:  # only pods that stand are meant: where they do, none with the term may come
            yield _MANY, partial(_weight, neighbours, term, 1, _MANY)


def _uses(port: PodHostPort, kind: EqualPods) -> int:
    return int(any(port.clashes(other) for other in kind.constraints.host_ports))


def _is_counted(each: TopologySpreadConstraint, namespace: str, kind: EqualPods) -> int:
    return int(counts_for(each.selector, kind, namespace))


def _weight(neighbours: Neighbours, term: PodAffinityTerm, asking: int, meant: int, kind: EqualPods) -> int:
    if term in kind.constraints.anti_affinity:
        return asking
    return meant if neighbours.means(term, kind) else 0


# -- the domains that pods stay in ------------------------------------------------------------------------------------


def _keys(
    neighbours: Neighbours, kinds: Sequence[EqualPods], rules: Mapping[EqualPods, PodFilter]
) -> dict[EqualPods, tuple[str, ...]]:
    """Returns for each class the labels by which somebody counts it, machines aside, or its volumes are bound."""
    of_volumes = _of_volumes(neighbours, kinds)
    counting = {kind: list(_counting(neighbours, kind)) for kind in kinds if kind.constraints.required}
    counted = [it for asked in counting.values() for it in asked]
    found: dict[EqualPods, tuple[str, ...]] = {}
    for kind in kinds:
        own = {key for key, _ in counting.get(kind, ())}
        own |= rules[kind].keys if kind in rules else frozenset()
        own |= {key for key, means in counted if key not in own and means(kind)}
        own |= of_volumes if _mounts(kind) else frozenset()
        if keys := tuple(sorted(own - _OF_HOST)):
            found[kind] = keys
    return found


def _mounts(kind: EqualPods) -> bool:
    return kind.constraints.mounts


def _counting(neighbours: Neighbours, kind: EqualPods) -> Iterator[tuple[str, Callable[[EqualPods], int]]]:
    """Yields the label of each constraint of a class, and whom it counts."""
    asked = kind.constraints
    for term in (*asked.affinity, *asked.anti_affinity):
        if term.topology_key not in _OF_HOST:
            yield term.topology_key, partial(neighbours.means, term)
    for each in asked.spread:
        if each.hard and each.topology_key not in _OF_HOST:
            yield each.topology_key, partial(_is_counted, each, kind.namespace)


def _of_volumes(neighbours: Neighbours, kinds: Iterable[EqualPods]) -> frozenset[str]:
    """Returns the labels that say where volumes are or can be made; none where nobody mounts any."""
    if not any(map(_mounts, kinds)):
        return frozenset()
    known = neighbours.volumes
    reached = chain((it.reaches for it in known.volumes.values()), (it.allowed for it in known.classes.values()))
    terms = chain.from_iterable(chain.from_iterable(reached))
    return frozenset({ZONE, *(asked.key for asked in terms)})
