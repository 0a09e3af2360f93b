"""Beliefs of one table: assumed, confirmed, rejected, expired, and what the watch brings meanwhile."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tables import ASSUMED_AT_MOST_S, MirrorTable
from providers.kube.batches import Changes, Delta, DeltaKind, Replace, Undecodable
from tests.support.batches import fold

NOW = 1000.0


def listed(version: int = 1, **objects: str) -> Replace[str]:
    return Replace(objects, str(version))


def changed(version: int, key: str, value: str, kind: str = "MODIFIED") -> Changes[str]:
    return Changes((Delta(DeltaKind(kind), key, value),), str(version))


def table(**objects: str) -> MirrorTable[str]:
    made: MirrorTable[str] = MirrorTable()
    made.observe(listed(1, **objects))
    return made


Step = Callable[[MirrorTable[str]], None]
CASES: dict[str, tuple[list[Step], str | None]] = {
    "an assumption is believed at once": ([lambda t: t.assume("a", "new", NOW)], "new"),
    "and not shaken by an older event": (
        [lambda t: t.assume("a", "new", NOW), lambda t: t.observe(changed(2, "a", "old"))],
        "new",
    ),
    "the answer's value counts more than the guess": (
        [lambda t: t.assume("a", "guess", NOW), lambda t: t.confirm("a", "5", "answer")],
        "answer",
    ),
    "the echo after the answer ends it": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.confirm("a", "5", "new"),
            lambda t: t.observe(changed(5, "a", "echo")),
            lambda t: t.observe(changed(6, "a", "later")),
        ],
        "later",
    ),
    "an event before the echo does not": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.confirm("a", "5", "new"),
            lambda t: t.observe(changed(4, "a", "older")),
        ],
        "new",
    ),
    "the echo before the answer is remembered": (
        [
            lambda t: t.assume("a", "guess", NOW),
            lambda t: t.observe(changed(5, "a", "echo")),
            lambda t: t.confirm("a", "5", "answer"),
        ],
        "echo",
    ),
    "the watch having passed it on another object is as good": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.confirm("a", "5", "new"),
            lambda t: t.observe(changed(5, "a", "echo")),
            lambda t: t.observe(changed(9, "b", "other")),
        ],
        "echo",
    ),
    "a rejection brings back what the API shows": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.observe(changed(3, "a", "theirs")),
            lambda t: t.reject("a"),
        ],
        "theirs",
    ),
    "a rejected deletion brings the object back": (
        [lambda t: t.assume("a", None, NOW), lambda t: t.reject("a")],
        "first",
    ),
    "what nobody confirms is believed only so long": (
        [lambda t: t.assume("a", "new", NOW), lambda t: t.expire(NOW + ASSUMED_AT_MOST_S)],
        "first",
    ),
    "and not less": (
        [lambda t: t.assume("a", "new", NOW), lambda t: t.expire(NOW + ASSUMED_AT_MOST_S - 0.1)],
        "new",
    ),
    "a confirmed one whose echo never comes expires as well": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.confirm("a", "5", "new"),
            lambda t: t.expire(NOW + ASSUMED_AT_MOST_S),
        ],
        "first",
    ),
    "a second assumption keeps what lies under the first": (
        [lambda t: t.assume("a", "one", NOW), lambda t: t.assume("a", "two", NOW), lambda t: t.reject("a")],
        "first",
    ),
    "assumed gone": ([lambda t: t.assume("a", None, NOW)], None),
    "gone, and its echo": (
        [
            lambda t: t.assume("a", None, NOW),
            lambda t: t.confirm("a", "5"),
            lambda t: t.observe(changed(5, "a", "first", "DELETED")),
        ],
        None,
    ),
    "made anew by somebody after the deletion": (
        [
            lambda t: t.assume("a", None, NOW),
            lambda t: t.confirm("a", "5"),
            lambda t: t.observe(changed(5, "a", "first", "DELETED")),
            lambda t: t.observe(changed(6, "a", "second", "ADDED")),
        ],
        "second",
    ),
    "a list while an assumption stands is what lies under it": (
        [lambda t: t.assume("a", "new", NOW), lambda t: t.observe(listed(4, a="listed")), lambda t: t.reject("a")],
        "listed",
    ),
    "a list that has passed the write ends it": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.confirm("a", "5", "new"),
            lambda t: t.observe(listed(8, a="listed")),
        ],
        "listed",
    ),
    "a list without the object that was assumed gone": (
        [lambda t: t.assume("a", None, NOW), lambda t: t.observe(listed(4)), lambda t: t.reject("a")],
        None,
    ),
    "a list without an object that an action is creating": (
        [lambda t: t.observe(listed(4)), lambda t: t.assume("a", "new", NOW), lambda t: t.observe(listed(5))],
        "new",
    ),
    "an answer without a version waits for its time to run out": (
        [
            lambda t: t.assume("a", "new", NOW),
            lambda t: t.confirm("a", "", "new"),
            lambda t: t.observe(changed(99, "b", "other")),
        ],
        "new",
    ),
    "what the API shows ends it, where one can tell": (
        [
            lambda t: t.assume("a", "going", NOW, lambda seen: seen in (None, "gone soon")),
            lambda t: t.observe(changed(2, "a", "gone soon")),
        ],
        "gone soon",
    ),
    "what it shows of before does not": (
        [
            lambda t: t.assume("a", "going", NOW, lambda seen: seen in (None, "gone soon")),
            lambda t: t.observe(changed(2, "a", "older")),
        ],
        "going",
    ),
    "nor does it last for ever": (
        [
            lambda t: t.assume("a", "going", NOW, lambda seen: seen is None),
            lambda t: t.expire(NOW + ASSUMED_AT_MOST_S),
        ],
        "first",
    ),
    "an answer to nothing assumed changes nothing": ([lambda t: t.confirm("a", "5", "answer")], "first"),
}


@pytest.mark.parametrize("name", CASES)
def test_beliefs(name: str) -> None:
    steps, expected = CASES[name]
    held = table(a="first")
    for step in steps:
        step(held)
    assert held.current.get("a") == expected
    assert held.view.get("a") == expected


def test_an_object_that_cannot_be_read_keeps_its_last_good_state() -> None:
    held = table(a="first", b="second")
    held.observe(Replace({}, "2", (Undecodable("", "a", "", b"{}", "broken"),)))
    assert held.current == {"a": "first"}


def test_synced_by_a_list_and_not_by_changes() -> None:
    held: MirrorTable[str] = MirrorTable()
    held.observe(changed(1, "a", "x"))
    assert not held.synced
    held.observe(listed(2))
    assert held.synced


def test_a_view_stays_what_it_was() -> None:
    held = table(a="first")
    view = held.view
    held.observe(changed(2, "a", "first"))
    assert held.view is view, "nothing changed"
    held.observe(changed(3, "a", "second"))
    assert (view["a"], held.view["a"]) == ("first", "second")


keys, values = st.sampled_from("abc"), st.sampled_from(["1", "2", "3"])
events = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), keys, values, st.sampled_from(["ADDED", "MODIFIED", "DELETED"])),
        st.tuples(st.just("list"), st.dictionaries(keys, values)),
        st.tuples(st.just("assume"), keys, st.one_of(st.none(), values)),
        st.tuples(st.just("confirm"), keys, st.integers(0, 12), values),
        st.tuples(st.just("reject"), keys),
        st.tuples(st.just("expire")),
    ),
    max_size=25,
)


@given(events)
def test_once_all_assumptions_are_over_the_table_is_what_the_watch_said(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    changes: dict[str, str] = {}

    def hear(key: str, before: str | None, after: str | None) -> None:
        assert changes.get(key) == before, "a listener hears of every change, in order"
        if after is None:
            changes.pop(key, None)
        else:
            changes[key] = after

    held: MirrorTable[str] = MirrorTable(hear)
    watched: dict[str, str] = {}
    for version, step in enumerate(steps, 1):
        match step:
            case "observe", key, value, kind:
                batch = changed(version, key, value, kind)
                fold(watched, batch)
                held.observe(batch)
            case "list", objects:
                fold(watched, listed(version, **objects))
                held.observe(listed(version, **objects))
            case "assume", key, value:
                held.assume(key, value, NOW + version)
            case "confirm", key, at, value:
                held.confirm(key, str(at) if at else "", value)
            case "reject", key:
                held.reject(key)
            case _:
                held.expire(NOW + version + 10)
        assert held.current == changes
    held.expire(float("inf"))
    assert held.current == watched
