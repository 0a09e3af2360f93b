"""Filters places by what pods ask of other pods and of host ports, as kube-scheduler does.

Sources: the plugins InterPodAffinity, PodTopologySpread and NodePorts (`pkg/scheduler/framework/plugins`, 1.36). What a
place is by itself (labels, taints, what is free) is judged elsewhere (`Need.accepts`, `NodeSlot.room_for`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.placement.device_filter import device_check
from fleet.placement.domains import EVERYWHERE, ITSELF, Check, Checks, EqualPods, NodeObstacle, Place, domain_of
from fleet.placement.neighbours import Neighbours
from fleet.placement.spread_filter import EvenSpread
from fleet.placement.volume_filter import volume_checks
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import PodAffinityTerm, selected
from model.labels import HOSTNAME, NORMALIZED, ZONE

NO_AFFINITY = NodeObstacle("spec.affinity.podAffinity", "didn't match pod affinity rules")
NO_ANTI_AFFINITY = NodeObstacle("spec.affinity.podAntiAffinity", "didn't match pod anti-affinity rules")
REPELLED = NodeObstacle("", "didn't satisfy existing pods anti-affinity rules")
PORT_TAKEN = NodeObstacle("spec.containers[].ports[].hostPort", "didn't have free ports for the requested pod ports")


@dataclass(frozen=True, slots=True)
class PodFilter:
    """A `PodFilter` answers for one class of pods, always as the cluster state is now."""

    pod_set: PodSet
    checks: tuple[tuple[str, Check], ...]

    def obstacle(self, place: Place) -> NodeObstacle | None:
        """Returns the first constraint for which one pod more may not stand on a place; None where it may."""
        for _, check in self.checks:
            if (found := check(place)) is not None:
                return found
        return None

    @property
    def by_host(self) -> "PodFilter":
        """Returns the part of it that counts pods by machine."""
        return PodFilter(self.pod_set, tuple(it for it in self.checks if it[0] in _OF_HOST))

    @property
    def beyond_hosts(self) -> "PodFilter":
        """Returns the part of it that does not: it is the same for all new machines of a kind."""
        return PodFilter(self.pod_set, tuple(it for it in self.checks if it[0] not in _OF_HOST))

    @property
    def keys(self) -> frozenset[str]:
        """Returns the labels by whose domains it counts pods, so to speak those of single machines among them."""
        return frozenset(key for key, _ in self.checks)

    @property
    def keys_beyond_hosts(self) -> tuple[str, ...]:
        """Returns the labels by whose domains it counts pods, the zone among them, without those of single machines."""
        return tuple(sorted((self.keys | {ZONE}) - _OF_HOST - {EVERYWHERE}))

    @property
    def spreads(self) -> bool:
        """Returns whether pods have to be spread evenly over domains larger than a machine."""
        return any(key not in _OF_HOST for key in self._evenly_over)

    @property
    def spreads_evenly(self) -> bool:
        """Returns whether pods have to be spread evenly over domains of whatever size."""
        return bool(self._evenly_over)

    @property
    def _evenly_over(self) -> tuple[str, ...]:
        """Returns the labels over whose domains they have to be even; a constraint that does not count them is none."""
        own = dict(self.pod_set.labels)
        hard = (it for it in self.pod_set.constraints.spread if it.hard)
        return tuple(it.topology_key for it in hard if it.selector and selected(it.selector, own))

    @property
    def spreads_over_zones(self) -> bool:
        """Returns whether pods have to stand in several zones, or may have to."""
        constraints = self.pod_set.constraints
        hard = (it.topology_key for it in constraints.spread if it.hard)
        return not _OF_ZONE.isdisjoint((*hard, *(it.topology_key for it in constraints.anti_affinity)))


_OF_HOST = frozenset({ITSELF, HOSTNAME})
_OF_ZONE = frozenset({ZONE, *(name for name, meant in NORMALIZED.items() if meant == ZONE)})


def pod_filter(neighbours: Neighbours, pod_set: PodSet) -> PodFilter | None:
    """Returns the filter for the pods of a set; None where nothing of this kind forbids them any place."""
    repel, asks = neighbours.repelling(), pod_set.constraints.required
    if not (repel or asks):
        return None
    kind = neighbours.kind_of(pod_set)
    repelling = _repelled_by(neighbours, kind, repel)
    if not asks and not repelling:
        return None
    return PodFilter(pod_set, tuple(_checks(neighbours, pod_set, kind, repelling)))


def company(neighbours: Neighbours, pod_set: PodSet) -> int:
    """Returns how many pods stand anywhere that the pods of a set have to be near, by all of their terms."""
    terms = pod_set.constraints.affinity

    def means(other: EqualPods) -> bool:
        return all(neighbours.means(term, other) for term in terms)

    return sum(neighbours.counts(("affinity", terms), ITSELF, means).pods.values())


def _checks(
    neighbours: Neighbours, pod_set: PodSet, kind: EqualPods, repelling: Sequence[tuple[EqualPods, PodAffinityTerm]]
) -> Checks:
    """Yields the checks in kube-scheduler's order."""
    constraints = pod_set.constraints
    if constraints.host_ports:
        yield ITSELF, _free_ports(neighbours, kind)
    yield from volume_checks(neighbours, kind)
    hard = tuple(constraint for constraint in constraints.spread if constraint.hard)
    for constraint in hard:
        yield constraint.topology_key, EvenSpread.of(neighbours, pod_set, kind, constraint, hard).obstacle
    if constraints.devices:
        yield ITSELF, device_check(neighbours, kind)
    if constraints.affinity:
        yield _finest(constraints.affinity), _affinity(neighbours, kind)
    for term in constraints.anti_affinity:
        yield term.topology_key, _anti_affinity(neighbours, term)
    for other, term in repelling:
        yield term.topology_key, _repelled(neighbours, other, term)


def _finest(terms: Sequence[PodAffinityTerm]) -> str:
    """Returns the label whose domains are the smallest, of those that terms name."""
    keys = [term.topology_key for term in terms]
    return HOSTNAME if HOSTNAME in keys else keys[0]


def _free_ports(neighbours: Neighbours, kind: EqualPods) -> Check:
    ports = kind.constraints.host_ports

    def clashes(other: EqualPods) -> bool:
        return any(mine.clashes(theirs) for mine in ports for theirs in other.constraints.host_ports)

    taken = neighbours.counts(("ports", ports), ITSELF, clashes)
    return lambda place: PORT_TAKEN if taken.at(place) else None


def _affinity(neighbours: Neighbours, kind: EqualPods) -> Check:
    """Company in the domain of every term. The first of a series that wants to be with itself may begin anywhere."""
    terms = kind.constraints.affinity
    keys = tuple(dict.fromkeys(term.topology_key for term in terms))

    def means(other: EqualPods) -> bool:
        return all(neighbours.means(term, other) for term in terms)

    wanted = [neighbours.counts(("affinity", terms), key, means) for key in keys]
    begins = means(kind)

    def check(place: Place) -> NodeObstacle | None:
        if any(domain_of(place, key) is None for key in keys):
            return NO_AFFINITY
        if all(counts.at(place) for counts in wanted):
            return None
        return None if begins and not any(counts.pods for counts in wanted) else NO_AFFINITY

    return check


def _anti_affinity(neighbours: Neighbours, term: PodAffinityTerm) -> Check:
    counts = neighbours.counts(("term", term), term.topology_key, lambda other: neighbours.means(term, other))
    return lambda place: NO_ANTI_AFFINITY if counts.at(place) else None


def _repelled_by(
    neighbours: Neighbours, kind: EqualPods, repelling: Iterable[EqualPods]
) -> list[tuple[EqualPods, PodAffinityTerm]]:
    """Returns the classes of pods that do not want this one near, with the terms that say so; itself is left out."""
    others = (other for other in repelling if other is not kind)
    return [(it, term) for it in others for term in it.constraints.anti_affinity if neighbours.means(term, kind)]


def _repelled(neighbours: Neighbours, other: EqualPods, term: PodAffinityTerm) -> Check:
    """Pods that stand keep away whom they do not want, whoever came first."""
    counts = neighbours.counts(("those", other, term), term.topology_key, lambda it: it is other)
    return lambda place: REPELLED if counts.at(place) else None
