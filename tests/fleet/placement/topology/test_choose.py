"""Order and choice on arrays against the same rules said one domain at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet.placement.topology.choose import TopologyProfile, by_led_room, by_room, fewest, ranked
from fleet.placement.topology.counts import LevelCounts

COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=9)
PROFILES = st.builds(TopologyProfile, st.booleans(), st.booleans())


def layer(slices: list[int], leads: list[int], scores: list[int]) -> LevelCounts:
    size = len(slices)
    rooms, able, liked = (np.array((values * size)[:size], np.int64) for values in (slices, leads, scores))
    return LevelCounts(
        rooms * 2 + 1, rooms, rooms * 2 + 1 - able, np.maximum(rooms - able, 0), np.minimum(able, 1), liked
    )


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-(2**59), 2**59), st.integers(0, 2)), max_size=20))
def test_ranked_is_a_stable_sort_by_all_keys(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array([row[which] for row in rows], np.int64) for which in range(3)]
    expected = sorted(range(len(rows)), key=lambda position: (*rows[position], position))
    assert ranked(np.arange(len(rows)), *keys).tolist() == expected


@given(COUNTS, COUNTS, COUNTS, PROFILES)
def test_the_order_is_score_room_loose_pods_values(
    slices: list[int], leads: list[int], scores: list[int], profile: TopologyProfile
) -> None:
    it = layer(slices, leads, scores)
    sign = -1 if profile.best_fit else 1

    def plain(domain: int) -> tuple[int, ...]:
        return (-profile.weigh * int(it.score[domain]), sign * int(it.slices[domain]), int(it.pods[domain]), domain)

    def led(domain: int) -> tuple[int, ...]:
        score = -profile.weigh * int(it.score[domain])
        return (-int(it.leads[domain]), score, sign * int(it.led_slices[domain]), int(it.led_pods[domain]), domain)

    everything = np.arange(len(it.pods))
    assert by_room(it, everything, profile).tolist() == sorted(everything.tolist(), key=plain)
    assert by_led_room(it, everything, profile).tolist() == sorted(everything.tolist(), key=led)


@given(COUNTS, COUNTS, st.integers(0, 30), PROFILES, st.booleans())
def test_the_fewest_domains(
    slices: list[int], scores: list[int], needed: int, profile: TopologyProfile, idle: bool
) -> None:
    it = layer(slices, [0], scores)
    ordered = by_room(it, np.arange(len(slices)), profile)
    found = fewest(it, ordered, it.slices[ordered], needed, profile, idle=idle)
    expected = one_at_a_time(ordered.tolist(), slices, it.score.tolist(), needed, profile)
    if expected is not None and not idle:
        expected = [entry for entry in expected if entry[1]]
    pairs = None if found is None else [*zip(*(part.tolist() for part in found), strict=True)]
    assert pairs == expected


def one_at_a_time(
    ordered: list[int], room: list[int], score: list[int], needed: int, profile: TopologyProfile
) -> list[tuple[int, int]] | None:
    taken: list[tuple[int, int]] = []
    for position, domain in enumerate(ordered):
        if not needed:
            return taken
        if room[domain] >= needed:
            closing = domain
            if profile.best_fit:
                for other in ordered[position:]:
                    if profile.weigh and score[other] != score[domain]:
                        break
                    if needed <= room[other] < room[closing]:
                        closing = other
            return [*taken, (closing, needed)]
        taken.append((domain, room[domain]))
        needed -= room[domain]
    return None if needed else taken
