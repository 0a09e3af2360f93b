from hypothesis import given
from hypothesis import strategies as st

from providers.kube.batches import Changes, Delta, DeltaKind, Replace, Undecodable
from tests.support.batches import fold

ADDED, MODIFIED, DELETED = DeltaKind
KEYS = st.sampled_from(["default/a", "default/b", "default/c"])
DELTAS = st.lists(st.builds(Delta, kind=st.sampled_from(DeltaKind), key=KEYS, object=st.integers(0, 3)), max_size=12)


def changes(*deltas: Delta[int]) -> Changes[int]:
    return Changes(deltas, "1")


def test_deltas_in_order() -> None:
    objects = {"default/a": 1}
    touched = fold(objects, changes(Delta(ADDED, "default/b", 2), Delta(DELETED, "default/a", 1)))
    assert objects == {"default/b": 2}
    assert touched == {"default/a", "default/b"}


def test_a_replace_says_what_is_gone_and_what_changed() -> None:
    objects = {"default/a": 1, "default/b": 2, "default/c": 3}
    assert fold(objects, Replace({"default/a": 1, "default/b": 9, "default/d": 4}, "5")) == {
        "default/b",
        "default/c",
        "default/d",
    }
    assert objects == {"default/a": 1, "default/b": 9, "default/d": 4}


def test_an_object_that_cannot_be_read_is_not_gone() -> None:
    objects = {"default/a": 1, "node-1": 2, "uid-3": 3, "default/x": 4}
    unreadable = (
        Undecodable("default", "a", "uid-a", b"", "no"),
        Undecodable("", "node-1", "uid-n", b"", "no"),
        Undecodable("default", "whatever", "uid-3", b"", "no"),
        Undecodable("", "", "", b"", "not even its name"),
    )
    assert fold(objects, Replace[int]({}, "5", unreadable)) == {"default/x"}
    assert objects == {"default/a": 1, "node-1": 2, "uid-3": 3}


@given(start=st.dictionaries(KEYS, st.integers(0, 3)), deltas=DELTAS, again=st.integers(0, 12))
def test_a_repeated_tail_changes_nothing(start: dict[str, int], deltas: list[Delta[int]], again: int) -> None:
    once, twice = dict(start), dict(start)
    fold(once, changes(*deltas))
    fold(twice, changes(*deltas))
    fold(twice, changes(*deltas[again:]))
    assert once == twice
