"""Buys by greedy heuristics that need no solver: Karpenter's order, each class by itself, value for money."""

from collections.abc import Iterator
from dataclasses import replace
from operator import le

import numpy as np

from fleet.optimize.master import PatternMix
from fleet.optimize.packing import Bools, Floats, Ints, PackingInstance, best_fills
from fleet.optimize.presolve import dominated_kinds
from fleet.optimize.purchase.mix import ResidualLimits, empty, joined, on_cheapest_kinds, trimmed

_FIRST = 64
"""Groups of claims that arrays have room for at first; the room doubles as needed."""
_CLOSED = -1.0
"""Marks a kind that a claim can no longer become, in place of the free amount."""
_FREE = 1e-9
"""USD an hour that stands for the price of machines that cost nothing."""
_AT_ONCE = 2_000
"""Kinds times classes that are filled again at once, which costs little more than one kind."""

# -- Karpenter's order, the baseline ----------------------------------------------------------------------------------


def provisioning_order(part: PackingInstance) -> PatternMix:
    """Returns what Karpenter would buy: pods one by one in its order, a whole class at a time.

    Karpenter sorts pods by CPU and memory, largest first, and gives each to the claim with the fewest pods that still
    has *any* kind of machine that would hold it; a new claim is opened when there is none. Only in the end the cheapest
    kind is chosen (`provisioning/scheduling/scheduler.go`, `nodeclaim.go`). Existing machines come before all claims,
    in order of name. Limits may leave pods without a place.
    """
    placed, missing = _on_existing(part)
    large = part.only(_roomiest(part))  # if no kind of these holds a pod, no other does
    if not len(large.price):
        return placed
    claims = _InFlightClaims(large)
    for row in np.flatnonzero((missing > 0) & large.fits.any(axis=1)).tolist():
        claims.serve(row, int(missing[row]))
    return joined(placed, on_cheapest_kinds(part, claims.pods(), claims.count, ~part.open))


def _on_existing(part: PackingInstance) -> tuple[PatternMix, Ints]:
    """Returns what first fit puts on existing machines, and [C] pods of each class that find no room there."""
    if not part.open.any():
        return empty(part), part.demand.copy()
    stands = np.flatnonzero(part.open)
    kinds = np.repeat(stands, part.most[stands].astype(np.int64))
    free, missing = part.capacity[kinds], part.demand.copy()
    pods = np.zeros((len(kinds), len(part.demand)), dtype=np.int64)
    for row in range(len(missing)) if len(kinds) else ():
        asked = part.requests[row]
        asks = asked > 0
        each = np.floor(free[:, asks] / asked[asks]).min(axis=1, initial=float(missing[row])) * part.fits[row, kinds]
        before = np.cumsum(each) - each
        pods[:, row] = np.clip(missing[row] - before, 0, each)
        free -= pods[:, row, None] * asked
        missing[row] -= pods[:, row].sum()
    busy = pods.any(axis=1)
    patterns, machines = np.unique(np.column_stack([kinds, pods])[busy], axis=0, return_counts=True)
    return PatternMix(patterns[:, 0], patterns[:, 1:], machines.astype(np.int64)), missing


def _roomiest(part: PackingInstance) -> Bools:
    """Returns [K] whether no other kind for sale holds as much of everything for as many classes, at any price."""
    if (count := len(part.price)) <= 1:
        return ~part.open
    everywhere = replace(
        part, price=np.where(part.open, np.inf, 0.0), most=np.where(part.open, 0.0, np.inf),
        usage=np.zeros((0, count)), limits=np.zeros(0),
    )  # fmt: skip
    return ~part.open & ~dominated_kinds(everywhere)


class _InFlightClaims:
    """`_InFlightClaims` are groups of equal claims in the order they were opened, while pods are given to them.

    For equal pods "fewest first" means to level the claims: the level is found by bisection, so the work grows with
    classes and distinct claims, not with pods.

    For each kind that the claims of a group may still become, the free amounts are kept. Most groups are full for most
    classes: what is free on the roomiest of their kinds says so, and only the others are looked into. What claims took
    are linked lists: a group knows its last entry, every entry the one before.
    """

    def __init__(self, part: PackingInstance) -> None:
        self._part = part
        kinds, resources = part.capacity.shape
        self._groups = 0
        self._count, self._size, self._last = (np.zeros(_FIRST, dtype=np.int64) for _ in range(3))
        self._free = np.zeros((resources, _FIRST, kinds))
        self._most = np.zeros((resources, _FIRST))
        self._entries: list[tuple[int, int, int]] = []

    @property
    def count(self) -> Ints:
        """Returns [G] claims in each group."""
        return self._count[: self._groups]

    def pods(self) -> Ints:
        """Returns [G, C] pods on each claim."""
        found = np.zeros((self._groups, len(self._part.demand)), dtype=np.int64)
        for line, entry in enumerate(self._last[: self._groups].tolist()):
            while entry >= 0:
                entry, row, taken = self._entries[entry]  # noqa: PLW2901
                found[line, row] += taken
        return found

    def serve(self, row: int, missing: int) -> None:
        """Places all missing pods of a class: on the open claims, then on new ones."""
        if rest := missing - self._place_on_open(row, missing):
            self._open(row, rest)

    def _place_on_open(self, row: int, missing: int) -> int:
        """Places pods on the open claims. Returns how many found a place."""
        groups, room = self._room(row, missing)
        if not len(groups):
            return 0
        taken, split = _levelled(self._size[groups], self._count[groups], room, missing)
        if split is not None:
            place, ones = split
            self._split(int(groups[place]), ones)
            groups = np.concatenate([groups[: place + 1], groups[place:] + 1])
            taken = np.insert(taken, place, taken[place] + 1)
        groups, taken = groups[taken > 0], taken[taken > 0]
        self._grow(groups, row, taken)
        return int(taken @ self._count[groups])

    def _room(self, row: int, missing: int) -> tuple[Ints, Ints]:
        """Returns the groups with room for the class, and how many pods one claim takes on its roomiest kind."""
        asked = self._part.requests[row]
        hopeful = (self._most[:, : self._groups] >= asked[:, None]).all(axis=0)
        groups = np.flatnonzero(hopeful)
        if not len(groups):
            return groups, groups
        free = self._free[:, groups]
        times = np.where((free[0] >= 0) & self._part.fits[row], float(missing), 0.0)
        for resource in np.flatnonzero(asked).tolist():
            times = np.minimum(times, np.floor(free[resource] / asked[resource]))
        room = times.max(axis=1).astype(np.int64)
        return groups[room > 0], room[room > 0]

    def _split(self, group: int, ones: int) -> None:
        """Moves `ones` claims of a group into a group of their own before it."""
        self._reserve(1)
        here, there = slice(group, self._groups), slice(group + 1, self._groups + 1)
        for column in (self._count, self._size, self._last):
            column[there] = column[here]
        for table in (self._free, self._most):
            table[:, there] = table[:, here]
        self._groups += 1
        self._count[group] = ones
        self._count[group + 1] -= ones

    def _open(self, row: int, missing: int) -> None:
        """Opens claims for pods, each filled completely before the next one."""
        most = int(self._part.holds[row].max())
        sizes = [(most, missing // most), (missing % most, 1)]
        pods, count = np.array([it for it in sizes if all(it)], dtype=np.int64).reshape(-1, 2).T
        self._reserve(len(pods))
        fresh = np.arange(self._groups, self._groups + len(pods))
        self._count[fresh], self._size[fresh], self._last[fresh] = count, 0, -1
        self._free[:, fresh] = self._part.capacity.T[:, None]
        self._groups += len(pods)
        self._grow(fresh, row, pods)

    def _grow(self, groups: Ints, row: int, taken: Ints) -> None:
        """Adds `taken` pods of the class to each claim of these groups."""
        free = self._free[:, groups] - (taken * self._part.requests[row][:, None])[:, :, None]
        free[:, (free < 0).any(axis=0) | ~self._part.fits[row]] = _CLOSED
        self._free[:, groups], self._most[:, groups] = free, free.max(axis=2)
        self._size[groups] += taken
        first = len(self._entries)
        self._entries += zip(self._last[groups].tolist(), [row] * len(groups), taken.tolist(), strict=True)
        self._last[groups] = np.arange(first, len(self._entries))

    def _reserve(self, more: int) -> None:
        """Makes room in the arrays for so many more groups."""
        there = len(self._count)
        if self._groups + more <= there:
            return
        self._count, self._size, self._last = (np.pad(it, (0, there)) for it in (self._count, self._size, self._last))
        self._free = np.pad(self._free, ((0, 0), (0, there), (0, 0)))
        self._most = np.pad(self._most, ((0, 0), (0, there)))


def _levelled(pods: Ints, count: Ints, room: Ints, missing: int) -> tuple[Ints, tuple[int, int] | None]:
    """Returns the pods that each claim takes if each goes to the claim with the fewest; with `(g, n)` or None.

    `(g, n)`: n claims of group g take one more.
    """
    if int(room @ count) <= missing:
        return room, None
    if missing == 1:
        least = int(pods.argmin())
        alone = count[least] == 1
        return (np.arange(len(pods)) == least).astype(np.int64) * alone, None if alone else (least, 1)
    low, high = 0, int((pods + room).max())
    while low < high:  # the highest level that the pods reach everywhere
        level = (low + high + 1) // 2
        if int(np.minimum(room, np.maximum(level - pods, 0)) @ count) <= missing:
            low = level
        else:
            high = level - 1
    taken = np.minimum(room, np.maximum(low - pods, 0))
    rest = missing - int(taken @ count)
    for group in np.flatnonzero((taken < room) & (pods <= low)).tolist():
        if rest < count[group]:
            return taken, (group, rest) if rest else None
        taken[group] += 1
        rest -= int(count[group])
    return taken, None


# -- each class on the kind that is cheapest for it -------------------------------------------------------------------


def by_choice(part: PackingInstance) -> PatternMix:
    """Returns each class on the kind that is cheapest for it alone, first fit, as far as the limits allow.

    Existing machines are filled first. One machine is filled at a time, the largest shares of it first, and as many are
    bought as there are pods for: a step for each pattern, so that thousands of classes take a fraction of a second.
    """
    placed, missing = _on_existing(part)
    alone = part.price_alone
    chosen = np.where((missing > 0) & np.isfinite(alone.min(axis=1)), alone.argmin(axis=1), -1)
    found = [
        it for kind in np.unique(chosen[chosen >= 0]).tolist() for it in _packed(part, kind, chosen == kind, missing)
    ]
    if not found:
        return placed
    rows, pods, machines = zip(*found, strict=True)
    patterns = np.zeros((len(found), len(missing)), dtype=np.int64)
    patterns[np.repeat(np.arange(len(found)), [len(it) for it in rows]), np.concatenate(rows)] = np.concatenate(pods)
    return joined(placed, on_cheapest_kinds(part, patterns, np.array(machines, dtype=np.int64), ~part.open))


def _packed(part: PackingInstance, kind: int, own: Bools, missing: Ints) -> Iterator[tuple[Ints, Ints, int]]:
    """Yields (classes, pods of each, machines) until every class in `own` [C] is packed on machines of the kind."""
    share = (part.requests / np.maximum(part.capacity[kind], 1.0)).max(axis=1)
    classes = np.argsort(-share, kind="stable")
    classes = classes[own[classes]]
    while len(classes):  # classes that are done are removed once they are half of all
        queue, done = _FirstFitQueue(part.requests[classes].T.copy(), missing[classes]), 0
        while 2 * done < len(classes):
            places, pods = queue.fill_one(part.capacity[kind])
            machines, gone = queue.taken(places, pods)
            done += gone
            yield classes[places], np.array(pods), machines
        missing[classes] = queue.left
        classes = classes[missing[classes] > 0]


class _FirstFitQueue:
    """A `_FirstFitQueue` holds classes that wait for machines, the largest share of a machine first."""

    def __init__(self, requests: Floats, left: Ints) -> None:
        self.left = left
        """[N] pods that wait."""
        self._requests = requests  # [R, N], infinite once no pod is left
        self._first = 0
        self._least: list[list[float]] = np.minimum.accumulate(requests[:, ::-1], axis=1)[:, ::-1].T.tolist()

    def fill_one(self, capacity: Floats) -> tuple[list[int], list[int]]:
        """Fills one machine by first fit. Returns the places of the classes it takes, and the pods of each."""
        rest: list[float] = capacity.tolist()
        place, places, pods = self._first, list[int](), list[int]()
        while place < len(self._least) and all(map(le, self._least[place], rest)):
            fits = np.logical_and.reduce(self._requests[:, place:] <= np.array(rest)[:, None], axis=0)
            step = int(fits.argmax())
            if not fits[step]:
                break
            place += step
            request = self._requests[:, place].tolist()
            most = [free // amount for free, amount in zip(rest, request, strict=True) if amount]
            count = int(min([int(self.left[place]), *most]))
            rest = [free - count * amount for free, amount in zip(rest, request, strict=True)]
            places.append(place)
            pods.append(count)
            place += 1
        return places, pods

    def taken(self, places: list[int], pods: list[int]) -> tuple[int, int]:
        """Takes as many such machines as there are pods for. Returns how many, and how many classes are done."""
        machines = min(int(self.left[place]) // count for place, count in zip(places, pods, strict=True))
        gone = 0
        for place, count in zip(places, pods, strict=True):
            self.left[place] -= machines * count
            if not self.left[place]:
                self._requests[:, place] = np.inf
                gone += 1
        while self._first < len(self.left) and not self.left[self._first]:
            self._first += 1
        return machines, gone


# -- by value for money -----------------------------------------------------------------------------------------------


def by_value(part: PackingInstance, worth: Floats, begun: PatternMix | None = None) -> PatternMix:
    """Buys the machine whose pods are worth most for its price, until every pod has a place or limits are reached.

    `worth` [C] of a pod: the duals of a linear programme, or the cheapest way to hold it by itself. `begun` is bought
    already.
    """
    demand, residual = part.demand.copy(), ResidualLimits(part)
    bought: list[tuple[int, Ints, int]] = []
    if begun is not None:
        bought += zip(begun.kinds.tolist(), begun.pods, begun.machines.tolist(), strict=True)
        demand = np.maximum(demand - begun.placed, 0)
        for kind, _, count in bought:
            residual.buy(kind, count)
    fills = _BestFills(part, np.maximum(worth, _FREE), demand)
    while demand.any():
        chosen = fills.best(demand, residual)
        if chosen is None:
            break
        kind, pods = chosen
        held = pods > 0
        count = int(min((demand[held] // pods[held]).min(), residual.machines(kind)))
        residual.buy(kind, count)
        demand -= pods * count
        bought.append((kind, pods, count))
    if not bought:
        return empty(part)
    kinds, patterns, machines = zip(*bought, strict=True)
    mix = PatternMix(np.array(kinds, dtype=np.int64), np.array(patterns), np.array(machines, dtype=np.int64))
    return trimmed(part, mix)


def worths_alone(part: PackingInstance) -> Iterator[Floats]:
    """Yields [C] the worth of a pod, without a solver: its share of its cheapest machine, by two measures."""
    shares = part.requests[:, None] / np.maximum(part.capacity, 1.0)[None]
    by_share = np.where(part.fits & ~part.open, shares.max(axis=2) * part.price, np.inf)
    for measure in (part.price_alone, by_share):
        least = measure.min(axis=1)
        yield np.where(np.isfinite(least), least, 1.0)  # any worth will do for what fits on existing machines alone


class _BestFills:
    """`_BestFills` keeps the best filled machine of each kind.

    A purchase uses up pods of some patterns. Their kinds are filled again only when the old score, which they will
    hardly reach again, is above that of all others. Classes that have no pods left are dropped from time to time, as
    thousands that all differ are bought for one by one.
    """

    def __init__(self, part: PackingInstance, worth: Floats, demand: Ints) -> None:
        self._part, self._worth = part, worth
        self._classes: Ints = np.arange(len(worth))
        """Those that are not dropped, by their number in the part that was given."""
        self._pods: Ints = np.zeros((len(part.price), len(worth)), dtype=np.int64)
        self._score: Floats = np.zeros(len(part.price))
        self._spoilt = np.zeros(len(part.price), dtype=bool)
        """Kinds that were filled with pods of a class dropped since."""
        self._at_once = max(1, _AT_ONCE // len(worth))
        self._fill(np.arange(len(part.price)), demand)

    def best(self, demand: Ints, residual: ResidualLimits) -> tuple[int, Ints] | None:
        """Returns the kind and the pods worth most for the price; None when nothing fits or may be bought."""
        left = self._left(demand)
        while True:
            score: Floats = np.where(residual.every(), self._score, 0.0) if self._part.bounded else self._score
            possible: Bools = np.logical_and.reduce(self._pods <= left, axis=1) & ~self._spoilt
            top = int(np.where(possible, score, 0.0).argmax())
            least = score[top] if possible[top] else 0.0
            hopeful = np.flatnonzero(~possible & (score > least))
            if not len(hopeful):
                return (top, self._in_all(self._pods[top], len(demand))) if least > 0 else None
            self._fill(hopeful[np.argsort(-score[hopeful], kind="stable")[: self._at_once]], left)

    def _left(self, demand: Ints) -> Ints:
        """Returns the demand of the classes that are not dropped, after dropping those without, if they are many."""
        left = demand[self._classes]
        kept = left > 0
        if 4 * kept.sum() > 3 * len(kept) or not kept.any():
            return left
        self._spoilt |= (self._pods[:, ~kept] > 0).any(axis=1)
        self._part, self._worth = self._part.with_demand(left), self._worth[kept]
        self._classes, self._pods = self._classes[kept], self._pods[:, kept]
        return left[kept]

    def _in_all(self, pods: Ints, classes: int) -> Ints:
        found: Ints = np.zeros(classes, dtype=np.int64)
        found[self._classes] = pods
        return found

    def _fill(self, which: Ints, demand: Ints) -> None:
        """Fills these kinds again, and keeps the best machine of each."""
        kinds, pods = best_fills(self._part, which, self._worth, demand)
        score = pods @ self._worth / np.maximum(self._part.price[kinds], _FREE)
        at = np.lexsort((-score, kinds))
        at = at[np.unique(kinds[at], return_index=True)[1]]  # the best of each kind
        self._pods[kinds[at]], self._score[kinds[at]] = pods[at], score[at]
        self._spoilt[kinds[at]] = False
