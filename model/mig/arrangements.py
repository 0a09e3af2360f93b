"""Every way to cut one GPU, for planners that compare them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from model.mig.geometry import MigModel, Profile


def every_layout(model: MigModel, names: tuple[str, ...] | None = None) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every non-empty set of (profile, start) that may coexist, of the profiles `names` (default all), each once."""
    profiles = [model.profiles[name] for name in (names if names is not None else tuple(model.profiles))]
    slots = [(profile, start) for profile in profiles for start in profile.starts]
    yield from _grow(model, slots, (), 0)


def _grow(
    model: MigModel, slots: list[tuple[Profile, int]], chosen: tuple[tuple[Profile, int], ...], occupied: int
) -> Iterator[tuple[tuple[str, int], ...]]:
    for index, (profile, start) in enumerate(slots):
        mask = ((1 << profile.size) - 1) << start
        grown = (*chosen, (profile, start))
        if occupied & mask or not _within_limits(model, grown):
            continue
        yield tuple((one.name, at) for one, at in grown)
        yield from _grow(model, slots[index + 1 :], grown, occupied | mask)


def _within_limits(model: MigModel, chosen: tuple[tuple[Profile, int], ...]) -> bool:
    profile = chosen[-1][0]
    if sum(other is profile for other, _ in chosen) > profile.most:
        return False
    return all(sum(other.media[index] for other, _ in chosen) <= model.media[index] for index in range(3))


def best_multisets(model: MigModel, names: tuple[str, ...] | None = None) -> tuple[Mapping[str, int], ...]:
    """The sets of instances to which no further instance can be added in any arrangement, sorted by name.

    Enough for a planner: every other set is part of one of these (12 for the plain profiles of an A100 or H100).
    """
    counters = {tuple(sorted(Counter(name for name, _ in layout).items())) for layout in every_layout(model, names)}
    as_maps = [dict(items) for items in sorted(counters)]

    def contained(small: dict[str, int], large: dict[str, int]) -> bool:
        return small is not large and all(large.get(name, 0) >= count for name, count in small.items())

    return tuple(one for one in as_maps if not any(contained(one, other) for other in as_maps))
