"""Which pods of a gang start first where there is a choice: k of n sub-groups, any k of unlike pods."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import GroupMember, Pod, SubGroupPolicy, Terms
from fleet.snapshot.core_sizes import Minimum, choice_of
from fleet.snapshot.sub_groups import RolePods, SubGroup, chosen, first_choice
from fleet.snapshot.works import group_job
from tests.support.fleets import pod_set


def leaf(name: str, *roles: tuple[str, int], together: int = 1) -> SubGroup:
    return SubGroup(name, tuple(RolePods(*role) for role in roles), together)


A, B, C = leaf("a", ("a", 2), together=2), leaf("b", ("b", 1)), leaf("c", ("c", 3), ("d", 1), together=3)
ANY_TWO = SubGroup("", parts=(A, B, C), least=2)
NESTED = SubGroup("", parts=(SubGroup("ab", parts=(A, B), least=1), C), least=2)
UNLIKE = SubGroup("", (RolePods("a", 2), RolePods("b", 3, 1), RolePods("c", 4)), together=4)


@pytest.mark.parametrize(
    ("group", "most", "expected"),
    [
        (ANY_TWO, {}, {"a": 2, "b": 1}),
        (ANY_TWO, {"a": 1}, {"b": 1, "c": 3}),
        (ANY_TWO, {"b": 0}, {"a": 2, "c": 3}),
        (ANY_TWO, {"b": 0, "c": 2}, {"a": 2, "c": 2, "d": 1}),
        (ANY_TWO, {"a": 0, "b": 0}, None),
        (NESTED, {}, {"a": 2, "c": 3}),
        (NESTED, {"a": 1}, {"b": 1, "c": 3}),
        (NESTED, {"c": 1}, None),
        (UNLIKE, {}, {"a": 2, "b": 2}),
        (UNLIKE, {"a": 1}, {"a": 1, "b": 3}),
        (UNLIKE, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 2}),
        (UNLIKE, {"b": 0}, None),
        (SubGroup("", (RolePods("a", 2), RolePods("b", 1)), 3, (A, B), 1), {}, {"a": 2, "b": 1}),
        (SubGroup("", (RolePods("a", 2), RolePods("b", 1)), 4, (A, B), 1), {}, None),
        (SubGroup("", (), 2, (B, leaf("e", ("e", 1)), A), 1), {}, {"b": 1, "e": 1}),
    ],
)
def test_the_first_in_order_that_can_start(
    group: SubGroup, most: Mapping[str, int], expected: Mapping[str, int] | None
) -> None:
    def possible(counts: Mapping[str, int]) -> bool:
        return all(count <= most.get(name, count) for name, count in counts.items())

    assert chosen(group, possible) == expected


def test_a_group_that_lacks_pods_wants_all_there_are() -> None:
    assert first_choice(leaf("a", ("a", 2), ("b", 1), together=5)) == {"a": 2, "b": 1}


sizes = st.integers(0, 4)
leaves = st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5)


@given(leaves, st.data())
def test_a_choice_is_whole_and_possible(found: list[tuple[int, int]], data: st.DataObject) -> None:
    """As many sub-groups are whole as are asked, none is begun, and what is taken was said to be possible."""
    parts = tuple(leaf(f"s{n}", (f"p{n}", pods), together=1 + least) for n, (pods, least) in enumerate(found))
    least = data.draw(st.integers(0, len(parts)))
    room = data.draw(st.integers(0, 12))
    asked: list[dict[str, int]] = [{}]

    def possible(counts: Mapping[str, int]) -> bool:
        asked.append(dict(counts))
        return sum(counts.values()) <= room

    counts = chosen(SubGroup("", parts=parts, least=least), possible)
    fits = sorted(part.together for part, (pods, _) in zip(parts, found, strict=True) if pods >= part.together)
    if counts is None:
        taken = sum(1 for n in range(len(fits)) if sum(fits[: n + 1]) <= room)
        assert taken < least or least > 1  # in order, not the most there could be
        return
    whole = [part for part in parts if counts.get(part.roles[0].pod_set, 0) == part.together]
    assert len(whole) == least
    assert sum(counts.values()) == sum(part.together for part in whole) <= room
    assert counts in asked


@given(st.lists(st.tuples(sizes, sizes), min_size=2, max_size=4), st.integers(1, 10), st.integers(0, 12))
def test_any_so_many_of_unlike_pods(roles: list[tuple[int, int]], together: int, room: int) -> None:
    minima = {f"p{n}": Minimum(*role) for n, role in enumerate(roles)}
    choice = choice_of("", minima, together)
    if choice is None:
        assert together >= sum(pods for pods, _ in roles)
        return
    counts = chosen(choice, lambda counts: sum(counts.values()) <= room)
    assert (counts is not None) == (together <= room)
    if counts is not None:
        assert sum(counts.values()) == together
        assert all(counts.get(name, 0) <= role.pods for name, role in minima.items())


def member(name: str, **labels: str) -> tuple[Pod, GroupMember]:
    shape = pod_set(name.partition("-")[0], count=1, labels=tuple(sorted(labels.items())))
    said = GroupMember("g", 0, shape, "q", 0.0)
    pod = Pod(f"uid-{name}", "ns", name, "", "Pending", {}, "", shape.name, gated=True, member=said, job_uid="g")
    return pod, said


def grouped(*pods: tuple[Pod, GroupMember], policies: tuple[SubGroupPolicy, ...], together: int = 1) -> Any:
    return group_job("g", [pod for pod, _ in pods], Terms("ns", "g", together, {}, policies))


STAGE = SubGroupPolicy("stages", ("stage",), size=2, least=1)


def test_pods_with_equal_labels_are_a_sub_group() -> None:
    job = grouped(*(member(f"{s}-{n}", stage=s) for s in "ab" for n in range(2)), policies=(STAGE,), together=2)
    assert {pods.name: (pods.count, pods.core) for pods in job.pod_sets} == {"a": (2, 2), "b": (2, 0)}
    assert [part.name for part in job.choice.leaves()] == ["a", "b"]
    assert not any(pods.unsupported for pods in job.pod_sets)


def test_more_pods_than_sub_groups_bring_are_taken_in_order() -> None:
    job = grouped(*(member(f"{s}-{n}", stage=s) for s in "ab" for n in range(2)), policies=(STAGE,), together=3)
    assert Counter({pods.name: pods.core or 0 for pods in job.pod_sets}) == Counter(a=2, b=1)


def test_a_role_in_two_sub_groups_is_refused() -> None:
    job = grouped(member("a-0", stage="x"), member("a-1", stage="y"), policies=(STAGE,))
    [refused] = job.pod_sets[0].unsupported
    assert refused.path == "PodGroup spec.subGroupPolicy[0].matchLabelKeys"
    assert "muster.dev/pod-set" in refused.words
