"""Domains are what constraints count pods by: the values of a node label, and the pods that somebody means in each.

kube-scheduler counts them anew for each pod. Here a count is kept as long as the cluster state lives, and follows it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from fleet.snapshot.constraints import PodConstraints
from fleet.snapshot.devices import MachineDevices
from model.kinds import Taint
from model.labels import HOSTNAME, normalize

D = TypeVar("D")
Domain = object
"""Value of a node label; a machine that has not joined is its own domain of `kubernetes.io/hostname`."""


class Place(Protocol):
    """A `Place` is what pods stand on: a slot, or a node that takes no more of them."""

    node: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    devices: MachineDevices | None
    """Those that it will have, where it has not joined; what a node has is observed."""


@dataclass(eq=False, slots=True)
class ClosedNode:
    """A `ClosedNode` takes no pod more (cordoned, not ready, leaving); what stands there still counts."""

    node: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    devices: MachineDevices | None = None


@dataclass(eq=False, slots=True)
class EqualPods:
    """`EqualPods` are all pods that are the same to selectors and ask the same (`Neighbours` make one of each)."""

    namespace: str
    labels: Mapping[str, str]
    constraints: PodConstraints
    leaving: bool = False
    """Whether they are being deleted: such pods no longer count where pods are spread evenly."""


ITSELF: Final = ""
"""The label, so to speak, by which every place is a domain of its own."""
EVERYWHERE: Final = "*"
"""The label, so to speak, by which all places are one domain."""


def domain_of(place: Place, key: str) -> Domain:
    """Returns the domain of a node label in which a place is; None where it has no such label."""
    if key == ITSELF:
        return place
    value = place.labels.get(key)
    if value is None and not place.node:
        return place if key == HOSTNAME else place.labels.get(normalize(key))
    return value


@dataclass(eq=False, slots=True)
class DomainCounts:
    """`DomainCounts` are the pods that somebody means in each domain of one node label."""

    key: str
    means: Callable[[EqualPods], bool]
    includes: Callable[[Place], bool] | None = None
    """Which places count at all; None = all. Only then are domains without such pods listed as well."""
    pods: dict[Domain, int] = field(default_factory=dict)
    """Domain -> pods, none of them 0."""
    places: dict[Domain, int] = field(default_factory=dict)
    """Domain -> places in it that count, where `includes` is given."""
    least: int | None = None
    """The fewest pods in any of the places' domains; None = to be counted."""
    _meant: dict[EqualPods, bool] = field(default_factory=dict)
    _included: dict[Place, bool] = field(default_factory=dict)

    def at(self, place: Place) -> int:
        """Returns how many stand in the domain of a place; 0 where it is in none."""
        return self.pods.get(domain_of(place, self.key), 0)

    def fewest(self) -> int:
        """Returns the fewest pods in any domain in which a place counts; 0 where there is none."""
        if self.least is None:
            self.least = min((self.pods.get(domain, 0) for domain in self.places), default=0)
        return self.least

    def note(self, kind: EqualPods, place: Place, count: int) -> None:
        """Counts pods that come to a place, or go (less than 0)."""
        meant = self._meant.get(kind)
        if meant is None:
            meant = self._meant[kind] = self.means(kind)
        if meant and self._counted(place) and (domain := domain_of(place, self.key)) is not None:
            add(self.pods, domain, count)
            self.least = None

    def note_place(self, place: Place, count: int) -> None:
        """Counts a place that comes (1) or goes (-1)."""
        if self.includes is not None and self._counted(place) and (domain := domain_of(place, self.key)) is not None:
            add(self.places, domain, count)
            self.least = None

    def _counted(self, place: Place) -> bool:
        if self.includes is None:
            return True
        counted = self._included.get(place)
        if counted is None:
            counted = self._included[place] = self.includes(place)
        return counted


def add(counts: dict[D, int], domain: D, count: int) -> None:
    """Adds to a count, and forgets it where nothing is left."""
    total = counts.get(domain, 0) + count
    if total:
        counts[domain] = total
    else:
        counts.pop(domain, None)


class NodeObstacle(NamedTuple):
    """A `NodeObstacle` is a constraint for which a place will not do."""

    field: str
    """Of the pod template; empty where it is not the pod's own."""
    words: str
    """What kube-scheduler says of such nodes."""


Check = Callable[[Place], NodeObstacle | None]
Checks = Iterator[tuple[str, Check]]
"""Each with the node label by whose domains it counts pods: `EVERYWHERE` where their domain does not matter."""
