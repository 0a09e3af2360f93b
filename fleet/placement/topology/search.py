"""One search for all pod sets of a workload, group by group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fleet.placement.topology import standing
from fleet.placement.topology.ground import Ground
from fleet.placement.topology.values import Ask, Broken, Outcome, Placement, Refusal, RefusalKind, Scaled
from fleet.placement.topology.views import Range
from fleet.placement.topology.wish import Wish, wish_of
from fleet.snapshot import PodSet

_Found = tuple[Placement, ...] | Refusal


class Search:
    """What earlier pod sets take is held while later ones are placed, and released at the end.

    `hold(placement, sign)` adds (1) or takes off (-1) pods that even a search on empty hosts has to see.
    """

    def __init__(self, grounds: Mapping[str, Ground], hold: Callable[[Placement, int], None], *, empty: bool) -> None:
        self._grounds = grounds
        self._hold = hold
        self._empty = empty
        self._assumed: list[Placement] = []
        self._held = 0
        """The first so many of `_assumed` are held; the others follow when somebody searches again."""

    def find(self, asks: Sequence[Ask]) -> Outcome:
        """Placements in the order of `asks` up to the first group that finds no place."""
        try:
            return self._outcome(asks)
        finally:
            while self._held:
                self._held -= 1
                self._hold(self._assumed[self._held], -1)

    def _outcome(self, asks: Sequence[Ask]) -> Outcome:
        placed: dict[str, Placement] = {}
        refusal = None
        for group in _groups(asks):
            running = any(isinstance(ask.standing, Broken) for ask in group)
            found = self._repaired(group) if running else self._placed(group)
            if isinstance(found, Refusal):
                refusal = found
                break
            placed |= {placement.pod_set: placement for placement in found}
        return Outcome(tuple(placed[ask.pod_set.name] for ask in asks if ask.pod_set.name in placed), refusal)

    def _search(self, ask: Ask, wish: Wish, leader: PodSet | None = None, within: Range | None = None) -> _Found:
        for placement in self._assumed[self._held :]:
            self._hold(placement, 1)
            self._held += 1
        ground = self._grounds[ask.flavor]
        empty = self._empty and not isinstance(ask.standing, Broken)
        return ground.search(ask, wish, leader, empty=empty, within=within)

    # -- sets that start ----------------------------------------------------------------------------------------------

    def _placed(self, group: Sequence[Ask]) -> _Found:
        workers, leader = group[0], group[1] if len(group) > 1 else None
        if leader is not None and leader.pod_set.count > workers.pod_set.count:
            workers, leader = leader, workers
        if len(group) > 2 or (leader is not None and leader.pod_set.count != 1):
            counts = ", ".join(f"{ask.pod_set.name} has {ask.pod_set.count}" for ask in group)
            return Refusal(RefusalKind.INVALID_GROUP, workers.pod_set.name, counts)
        wish = wish_of(self._grounds[workers.flavor].tree, workers.pod_set)
        if isinstance(wish, Refusal):
            return wish
        if (found := self._scaled(workers, leader, wish)) is not None:
            return found
        found = self._search(workers, wish.with_leader() if leader else wish, leader.pod_set if leader else None)
        if not isinstance(found, Refusal):
            self._assumed += found
        return found

    # -- sets that grow or shrink -------------------------------------------------------------------------------------

    def _scaled(self, workers: Ask, leader: Ask | None, wish: Wish) -> _Found | None:
        """The places they have, more or fewer of them; None when everything has to be placed anew."""
        before, leads = _before(workers), _before(leader) if leader else None
        leads = standing.shortened(leads, 1) if leads else None
        ground, size = self._grounds[workers.flavor], wish.cut.size
        if before is None or any(standing.gone(ground, it) for it in (before, leads) if it):
            return None
        if before.count % size or wish.count % size:
            return None
        if wish.count > before.count:
            return self._grown(workers, leader, wish, before, leads)
        if leader is not None and leads is None:
            return None
        kept = standing.shortened(before, wish.count)
        found = (kept,) if leads is None else (kept, leads)
        self._assumed += found
        return found

    def _grown(
        self, workers: Ask, leader: Ask | None, wish: Wish, before: Placement, leads: Placement | None
    ) -> _Found:
        """Only the difference is placed, and a leader without a place; a required domain is the present one."""
        self._assumed += [before] if leads is None else [before, leads]
        anew = leader.pod_set if leader is not None and leads is None else None
        more = replace(wish, count=wish.count - before.count, leaders=int(anew is not None))
        ground = self._grounds[workers.flavor]
        found = self._search(workers, more, anew, standing.domain_of(ground, before, wish))
        if isinstance(found, Refusal):
            return found
        self._assumed += found
        total = standing.merged(ground, found[0], before)
        return (total, *found[1:]) if leads is None else (total, leads)

    # -- sets that lost a host ----------------------------------------------------------------------------------------

    def _repaired(self, group: Sequence[Ask]) -> _Found:
        """Each set for itself: the places that are left, and others for the pods that lost theirs."""
        placed: list[Placement] = []
        for ask in group:
            found = self._mended(ask, ask.standing) if isinstance(ask.standing, Broken) else self._placed([ask])
            if isinstance(found, Refusal):
                return found
            placed += found
        return tuple(placed)

    def _mended(self, ask: Ask, broken: Broken) -> _Found:
        kept, lost = standing.without(broken.placement, broken.host)
        if not broken.movable or not lost:
            return (broken.placement,)
        ground = self._grounds[ask.flavor]
        if gone := standing.gone(ground, kept):
            return Refusal(RefusalKind.STALE, ask.pod_set.name, gone)
        wish = wish_of(ground.tree, ask.pod_set)
        if isinstance(wish, Refusal):
            return wish
        wish, within = standing.repair(ground, ask.pod_set, kept, lost, wish)
        found = self._search(ask, wish, within=within)
        if isinstance(found, Refusal):
            return found
        self._assumed += found
        return (standing.merged(ground, found[0], kept),)


def _before(ask: Ask) -> Placement | None:
    return ask.standing.placement if isinstance(ask.standing, Scaled) else None


def _groups(asks: Sequence[Ask]) -> list[list[Ask]]:
    """Sets of one group and flavor together, in the order of their first member."""
    groups: dict[tuple[str, str, int], list[Ask]] = {}
    for number, ask in enumerate(asks):
        group = ask.pod_set.group
        groups.setdefault((ask.flavor, group, -1) if group else (ask.flavor, "", number), []).append(ask)
    return list(groups.values())
