"""Neighbours are the pods that stand where, in classes of equal pods; what-ifs change and undo them like what is free.

Nothing is counted before some pod asks for it, and then by the domains that it names (`fleet.placement.domains`).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol

from fleet.catalog import InstanceType
from fleet.placement.device_allocator import DevicesThere
from fleet.placement.domains import DomainCounts, EqualPods, Place, add
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, PodLabels
from fleet.snapshot.volumes import NO_VOLUMES, Volumes


class PodLike(Protocol):
    """A `PodLike` is a pod or a pod set, as far as others ask about it."""

    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def labels(self) -> PodLabels: ...  # noqa: D102
    @property
    def constraints(self) -> PodConstraints: ...  # noqa: D102


Standing = Callable[[], Iterable[tuple[PodLike, Place, bool]]]
"""Yields pods, where each stands, and whether it is being deleted."""
PodsPut = tuple[PodLike, Place, int, bool]
"""Pods, where they came, how many (less than 0: went), and whether they are being deleted."""
MOST_UNREAD: Final = 65_536
"""Changes that are only noted while nobody asks; beyond, they are summed up."""


def nobody() -> Iterable[tuple[PodLike, Place, bool]]:
    """Nobody stands anywhere."""
    return ()


class Neighbours:
    """Counts who stands where. What stood there from the beginning is only looked through when it is asked for."""

    def __init__(
        self,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        volumes: Volumes = NO_VOLUMES,
        standing: Standing = nobody,
        repelling: Standing = nobody,
        held: Callable[[], Iterable[PodsPut]] = tuple,
        *,
        repel: bool = True,
        devices: DevicesThere | None = None,
        types: Mapping[str, InstanceType] | None = None,
    ) -> None:
        """`standing` are all pods of the beginning, `repelling` those of them with required anti-affinity.

        `held` yields the pods of gangs that stood there from the beginning, who are in neither; `repel`: whether some
        of those have required anti-affinity. `types` are machines that can be bought, by name.
        """
        self.volumes = volumes
        self.devices = devices or DevicesThere()
        self.types = types or {}
        self._namespaces = namespaces or {}
        self._beginning = {True: repelling, False: standing}
        self._where: dict[EqualPods, dict[Place, int]] = {}
        self._kinds: dict[Hashable, EqualPods] = {}
        self._known: dict[tuple[str, int, int, bool], tuple[PodLike, EqualPods]] = {}
        self._counts: dict[Hashable, DomainCounts] = {}
        self._held: Callable[[], Iterable[PodsPut]] | None = held
        self._repel = repel
        """Whether some of those put there so far repel others."""
        self._calm: bool | None = None
        """Whether nobody of the beginning does; None = not asked yet."""
        self._unread: list[PodsPut] = []
        """What has changed as long as nobody has asked anything."""
        self._slots: Mapping[str, Place] = {}
        self._places: dict[Place, None] = {}
        """Those that are no slots."""
        self._repelling: dict[EqualPods, None] = {}
        self._mounting: dict[EqualPods, None] = {}
        self._claiming: dict[EqualPods, None] = {}

    # -- what changes -------------------------------------------------------------------------------------------------

    def put(self, pods: PodLike, place: Place, count: int, *, leaving: bool = False) -> None:
        """Puts so many pods on a place, or takes them off (less than 0)."""
        if self._held is None:
            self._put(self.kind_of(pods, leaving=leaving), place, count)
            return
        self._unread.append((pods, place, count, leaving))
        self._repel = self._repel or bool(pods.constraints.anti_affinity)
        if len(self._unread) > MOST_UNREAD:
            self._read()

    def _read(self) -> None:
        """Sums up what has only been noted; from now on everything is counted as it comes."""
        held, self._held = self._held, None
        unread, self._unread = self._unread, []
        for pods, place, count, leaving in chain(held() if held is not None else (), unread):
            self.put(pods, place, count, leaving=leaving)

    def _put(self, kind: EqualPods, place: Place, count: int) -> None:
        where = self._where.get(kind)
        if where is None:
            where = self._where[kind] = {}
            if kind.constraints.anti_affinity:
                self._repelling[kind] = None
            if kind.constraints.mounts:
                self._mounting[kind] = None
            if kind.constraints.devices:
                self._claiming[kind] = None
        add(where, place, count)
        for counts in self._counts.values():
            counts.note(kind, place, count)

    def watch(self, slots: Mapping[str, Place]) -> None:
        """Takes the slots of a cluster state for places, whichever they are; `note_slot` tells of each change."""
        self._slots = slots

    def note_slot(self, slot: Place, sign: int) -> None:
        """Notes that a slot has come (1), or is gone (-1)."""
        for counts in self._counts.values():
            counts.note_place(slot, sign)

    def add_place(self, place: Place) -> None:
        """Notes a place that has come and is no slot."""
        self._places[place] = None
        self.note_slot(place, 1)

    def drop_place(self, place: Place) -> None:
        """Notes that such a place is gone."""
        del self._places[place]
        self.note_slot(place, -1)

    def forget_counts(self) -> None:
        """Lets nothing follow what changes any more: what is asked for next is counted anew."""
        self._counts.clear()

    def kind_of(self, pods: PodLike, *, leaving: bool = False) -> EqualPods:
        """Returns the class of a pod, or of the pods of a set."""
        asked = pods.namespace, id(pods.labels), id(pods.constraints), leaving
        known = self._known.get(asked)
        if known is None:  # to compare what they ask is dear; the pod is kept, so that an identity is not taken over
            same = pods.namespace, pods.labels, pods.constraints, leaving
            if same not in self._kinds:
                self._kinds[same] = EqualPods(pods.namespace, dict(pods.labels), pods.constraints, leaving)
            known = self._known[asked] = pods, self._kinds[same]
        return known[1]

    # -- what is asked ------------------------------------------------------------------------------------------------

    def counts(
        self,
        asked: Hashable,
        key: str,
        means: Callable[[EqualPods], bool],
        includes: Callable[[Place], bool] | None = None,
    ) -> DomainCounts:
        """Returns the pods in each domain of a label; `asked` is equal for those that mean the same."""
        found = self._counts.get((asked, key))
        if found is None:
            self._begin(repelling=False)
            found = DomainCounts(key, means, includes)
            for place in chain(self._places, self._slots.values()):
                found.note_place(place, 1)
            for kind, where in self._where.items():
                for place, count in where.items():
                    found.note(kind, place, count)
            self._counts[asked, key] = found
        return found

    def standing(self) -> Iterable[tuple[EqualPods, Mapping[Place, int]]]:
        """Yields every class of pods, with how many of them stand where."""
        self._begin(repelling=False)
        return self._where.items()

    def mounting(self, place: Place) -> Sequence[tuple[EqualPods, int]]:
        """Returns the classes of pods on a place that mount volumes, with how many of each."""
        return self._counted_on(place, self._mounting)

    def claiming(self, place: Place) -> Sequence[tuple[EqualPods, int]]:
        """Returns the classes of pods on a place that claim devices, with how many of each."""
        return self._counted_on(place, self._claiming)

    def _counted_on(self, place: Place, kinds: Iterable[EqualPods]) -> Sequence[tuple[EqualPods, int]]:
        self._begin(repelling=False)
        return [(kind, count) for kind in kinds if (count := self._where[kind].get(place, 0)) > 0]

    def repelling(self) -> Sequence[EqualPods]:
        """Returns the classes of pods with required anti-affinity that stand anywhere now."""
        if self._held is not None and not self._repel:
            if self._calm is None:
                self._calm = not any(True for _ in self._beginning[True]())
            if self._calm:
                return ()  # as nearly always: nothing has to be summed up for it
        self._begin(repelling=True)
        return tuple(kind for kind in self._repelling if self._where[kind])

    def _begin(self, *, repelling: bool) -> None:
        """Looks through who stood there from the beginning; those who repel others are few and asked for first."""
        if self._held is not None:
            self._read()
        known: Any = self._beginning.pop(True, None)
        for pods, place, leaving in known() if known else ():
            self.put(pods, place, 1, leaving=leaving)
        if not repelling and (everybody := self._beginning.pop(False, None)) is not None:
            for pods, place, leaving in everybody():
                if not pods.constraints.anti_affinity:
                    self.put(pods, place, 1, leaving=leaving)

    def means(self, term: PodAffinityTerm, kind: EqualPods) -> bool:
        """Returns whether a term is about pods of this class."""
        return term.means(kind.namespace, kind.labels, self._namespaces)
