"""The line of one queue: order, the sticky head, shapes set aside, retries."""

from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.quota.pending_queue import PendingQueue
from fleet.quota.workload import NEVER_CREATED_S, Workload
from fleet.snapshot import PodSet
from tests.support.quotas import asks, inadmissible


def line(*workloads: Workload, strict: bool = False) -> PendingQueue:
    made = PendingQueue(strict)
    for workload in workloads:
        made.push(workload)
    return made


def drained(pending: PendingQueue) -> list[str]:
    found = []
    while (workload := pending.pop()) is not None:
        found.append(workload.name)
    return found


ORDERED = (
    asks("high", "q", 1, priority=2, at_s=9.0),
    asks("never-created", "q", 1, priority=1, at_s=NEVER_CREATED_S),
    asks("requeued", "q", 1, priority=1, at_s=9.0, queued_at_s=0.5),
    asks("old", "q", 1, priority=1, at_s=1.0),
    asks("same-a", "q", 1, priority=1, at_s=2.0),
    asks("same-b", "q", 1, priority=1, at_s=2.0),
    asks("low", "q", 1, priority=0, at_s=0.0),
)


@pytest.mark.parametrize("backwards", [False, True], ids=["pushed in order", "pushed backwards"])
def test_order(*, backwards: bool) -> None:
    """Priority, place in time, uid."""
    made = line(*(reversed(ORDERED) if backwards else ORDERED))
    names = [workload.name for workload in ORDERED]
    assert [workload.name for workload in made.in_order()] == names == [workload.name for workload in made.active()]
    assert len(made) == len(names)
    assert drained(made) == names


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=4))
def test_equal_ones_come_in_order_however_they_came(pushed: list[int], again: list[int]) -> None:
    """So it is for the first of them that is looked at, put back and looked at again."""
    every = [asks(f"w{number:02}", "q", 1, at_s=float(number // 2)) for number in range(12)]
    made = line(*(every[number] for number in pushed))
    for number in again:
        made.forget(every[number].uid)
        made.push(every[number])
    if (first := made.pop()) is not None:
        made.put_back(first, again=True)
    assert drained(made) == [workload.name for workload in every]


def test_the_sticky_one_comes_first() -> None:
    made = line(*ORDERED)
    made.sticky = "low"
    assert made.in_order()[0].name == "low"
    head = made.pop()
    assert head is not None
    assert head.name == "low"
    made.put_back(head, again=True)
    made.push(asks("newer-and-higher", "q", 1, priority=99))
    assert [workload.name for workload in (made.pop(), made.pop()) if workload] == ["low", "newer-and-higher"]


def test_who_leaves_is_not_sticky_any_more() -> None:
    made = line(*ORDERED)
    made.sticky = "low"
    made.forget("low")
    assert (made.sticky, "low" in drained(made)) == ("", False)
    made.forget("low")


def test_who_left_is_not_popped_and_who_came_back_is_once() -> None:
    made = line(asks("a", "q", 1), asks("b", "q", 1))
    made.forget("a")
    made.push(asks("a", "q", 1))
    made.push(asks("a", "q", 1))
    assert drained(made) == ["a", "b"]


def small(name: str, **more: float) -> Workload:
    return asks(name, "q", 1, at_s=float(ord(name[-1])), **more)


def large(name: str, **more: str) -> Workload:
    return asks(name, "q", 9, at_s=float(ord(name[-1])), **more)


def test_a_shape_that_was_given_up_is_set_aside_with_all_that_come() -> None:
    made = line(large("a"), large("b"), small("c"))
    head = made.pop()
    assert head is not None
    made.set_aside(head.shape)
    made.put_back(head, again=False)
    made.push(large("d"))
    assert [workload.name for workload in made.active()] == ["c"]
    assert [workload.name for workload in inadmissible(made)] == ["a", "b", "d"]
    assert [workload.name for workload in made.in_order()] == ["a", "b", "c", "d"]
    assert drained(made) == ["c"]
    made.requeues.count += 1
    assert drained(made) == ["a", "b", "d"]


def test_one_put_aside_takes_no_others_with_it() -> None:
    made = line(large("a"), large("b"))
    head = made.pop()
    assert head is not None
    made.put_back(head, again=False)
    assert drained(made) == ["b"]


def test_a_retry_while_the_head_is_out_counts_for_it() -> None:
    """Something changed since it was popped: what was found for it holds no more."""
    made = line(large("a"), large("b"))
    head = made.pop()
    assert head is not None
    made.requeues.count += 1
    made.set_aside(head.shape)
    made.put_back(head, again=False)
    assert drained(made) == ["a", "b"]


def test_a_retry_before_the_pop_does_not() -> None:
    made = line(large("a"))
    made.requeues.count += 1
    head = made.pop()
    assert head is not None
    made.put_back(head, again=False)
    assert drained(made) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({}, {"at_s": 9.0}, True, id="age is no part of it"),
        pytest.param({}, {"local_queue": "x"}, True, id="nor the local queue"),
        pytest.param({}, {"priority": 1}, False, id="priority is"),
        pytest.param({}, {"may_evict": False}, False, id="and what it may do"),
        pytest.param({}, {"allowed_flavors": frozenset("f")}, False, id="and where it may go"),
    ],
)
def test_what_makes_a_shape(one: dict[str, object], other: dict[str, object], same: bool) -> None:
    assert (asks("a", "q", 1, **one).shape == asks("b", "q", 1, **other).shape) is same


def test_pod_sets_make_a_shape() -> None:
    plain = PodSet("main", 1, {"cpu": 1, "mem": 2})
    shapes = [
        asks("w", "q", [pods]).shape
        for pods in (
            plain,
            PodSet("main", 2, {"cpu": 1, "mem": 2}),
            PodSet("main", 1, {"cpu": 1, "mem": 3}),
            PodSet("main", 1, {"cpu": 1, "mem": 2}, node_selector={"a": "b"}),
            PodSet("main", 1, {"cpu": 1, "mem": 2}, min_count=1),
            PodSet("main", 1, {"cpu": 1, "mem": 2}, required_topology="rack"),
        )
    ]
    assert len(set(shapes)) == len(shapes)
    assert asks("w", "q", [PodSet("main", 1, {"mem": 2, "cpu": 1})]).shape == shapes[0]


# -- usage order ------------------------------------------------------------------------------------------------------


def by_usage(kept: dict[str, float], *workloads: Workload) -> PendingQueue:
    made = PendingQueue(usage=lambda workload: kept[workload.local_queue])
    for workload in workloads:
        made.push(workload)
    return made


def test_usage_comes_before_everything_and_is_asked_at_each_pop() -> None:
    kept = {"light": 1.0, "heavy": 5.0}
    made = by_usage(
        kept,
        asks("heavy-high", "q", 1, priority=9, local_queue="heavy"),
        asks("light-low", "q", 1, priority=1, local_queue="light"),
        asks("light-high", "q", 1, priority=2, local_queue="light"),
        asks("light-sticky", "q", 1, priority=0, local_queue="light"),
    )
    made.sticky = "light-sticky"
    assert [workload.name for workload in made.in_order()] == ["light-sticky", "light-high", "light-low", "heavy-high"]
    head = made.pop()
    assert head is not None
    assert head.name == "light-sticky"
    kept["light"] = 9.0
    assert drained(made) == ["heavy-high", "light-high", "light-low"]


def test_shapes_are_set_aside_in_usage_order_too() -> None:
    made = by_usage({"": 0.0}, large("a"), large("b"), small("c"))
    head = made.pop()
    assert head is not None
    made.set_aside(head.shape)
    made.put_back(head, again=False)
    assert drained(made) == ["c"]
    assert [workload.name for workload in inadmissible(made)] == ["a", "b"]


def test_what_others_were_evicted_for_goes_before_lighter_local_queues() -> None:
    made = by_usage(
        {"light": 1.0, "heavy": 5.0},
        asks("light", "q", 1, priority=9, local_queue="light"),
        asks("promised", "q", 1, local_queue="heavy", nominated=True),
    )
    assert [workload.name for workload in made.in_order()] == ["promised", "light"]
    assert drained(made) == ["promised", "light"]


def test_a_local_queue_that_arrives_while_its_shape_is_set_aside_is_taken_up_with_it() -> None:
    made = by_usage({"a": 0.0, "b": 0.0}, large("y", local_queue="a"))
    head = made.pop()
    assert head is not None
    made.set_aside(head.shape)
    made.put_back(head, again=False)
    made.push(large("x", local_queue="b"))
    assert made.pop() is None
    made.requeues.count += 1
    assert drained(made) == ["x", "y"]


# -- whatever happens -------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(("push", "push", "pop", "back", "aside", "hopeless", "retry", "forget")), st.integers(0, 5)
    ),
    max_size=30,
)


USAGE = {"0": 3.0, "1": 1.0, "2": 3.0, "3": 0.0}


@settings(max_examples=300)
@given(steps, st.booleans())
def test_nobody_is_lost_and_nobody_is_there_twice(actions: list[tuple[str, int]], ordered: bool) -> None:
    made, out, inside = by_usage(USAGE) if ordered else PendingQueue(), None, set()
    for action, number in actions:
        local = str((number + 1) % 4)
        workload = asks(f"w{number}", "q", number % 2 + 1, priority=number % 3, local_queue=local)
        if action == "push" and workload.uid not in inside and (out is None or out.uid != workload.uid):
            made.push(workload)
            inside.add(workload.uid)
        elif action == "pop" and out is None:
            first = [workload.uid for workload in deepcopy(made).active()[:1]]
            out = made.pop()
            assert [out.uid] == first if out else not first
            inside -= {out.uid} if out else set()
        elif action in {"back", "aside", "hopeless"} and out is not None:
            if action == "hopeless":
                made.set_aside(out.shape)
            made.put_back(out, again=action == "back")
            inside.add(out.uid)
            out = None
        elif action == "retry":
            made.requeues.count += 1
        elif action == "forget":
            made.forget(workload.uid)
            inside.discard(workload.uid)
        assert sorted(w.uid for w in made.in_order()) == sorted(inside)
        assert {w.uid for w in (*made.active(), *inadmissible(made))} == inside
    made.requeues.count += 1
    assert set(drained(made)) == inside
