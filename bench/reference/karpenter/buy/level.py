"""Fewest pods first, for many equal pods at once: the claims fill like communicating vessels."""

import numpy as np

from bench.reference.karpenter.buy.rows import Ints


def leveled(pods: Ints, room: Ints, count: int) -> Ints:
    """How many of `count` equal pods each claim gets.

    `pods` are those it has, `room` those it could still take. The same as `count` times giving one to the claim with
    the fewest pods among those with room, the first among equals.
    """
    if count == 1:
        return _single(pods, room)
    if int(room.sum()) <= count:
        return room
    level = _level(pods, room, count)
    given = np.clip(level - pods, 0, room)
    rest = count - int(given.sum())
    if rest:
        at_level = np.flatnonzero((pods + given == level) & (given < room))[:rest]
        given[at_level] += 1
    return given


def _single(pods: Ints, room: Ints) -> Ints:
    given = np.zeros_like(room)
    masked = np.where(room > 0, pods, np.iinfo(np.int64).max)
    first = int(masked.argmin())
    given[first] = room[first] > 0
    return given


def _level(pods: Ints, room: Ints, count: int) -> int:
    """The highest level up to which all can be filled with at most `count` pods."""
    open_ = room > 0
    floor = int(pods[open_].min())
    start = pods[open_] - floor
    wide = int(start.max()) + count + 1
    end = np.minimum(start + room[open_], wide)
    steps = np.bincount(start, minlength=wide + 1) - np.bincount(end, minlength=wide + 1)
    taken = np.cumsum(np.cumsum(steps))
    return floor + int(np.searchsorted(taken, count, side="right"))
