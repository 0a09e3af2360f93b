"""Lists and the log: pages, versions, compaction."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.clock import VirtualClock
from providers.sim.store import ListQuery, PatchType, Store, StoreBadRequest, StoreExpired, StoreTimeout

Obj = dict[str, Any]


def fill(store: Store, *names: str, namespace: str = "default") -> None:
    for name in names:
        store.create(store.resource("cm"), {"metadata": {"name": name, "namespace": namespace, "labels": {"n": name}}})


def names(rows: Any) -> list[str]:
    return [row.obj["metadata"]["name"] for row in rows]


def page(store: Store, **query: Any) -> Any:
    return store.page(store.resource("cm"), ListQuery(**query))


def test_order_and_namespaces(store: Store) -> None:
    fill(store, "b", "a")
    fill(store, "c", namespace="kube-system")
    assert names(page(store).rows) == ["a", "b", "c"]
    assert names(page(store, namespace="kube-system").rows) == ["c"]
    assert names(page(store, namespace="default").rows) == ["a", "b"]
    assert names(page(store, namespace="def").rows) == []


def test_pages_are_one_consistent_picture_whatever_happens_between(store: Store) -> None:
    fill(store, "a", "b", "d", "e")
    first = page(store, limit=2)
    assert (names(first.rows), first.remaining) == (["a", "b"], 2)
    resource = store.resource("cm")
    fill(store, "c", "f")
    store.delete(resource, "d", namespace="default")
    store.patch(resource, "e", {"data": {"x": "y"}}, PatchType.MERGE, namespace="default")
    second = page(store, limit=2, token=first.token)
    assert names(second.rows) == ["d", "e"]
    assert "data" not in second.rows[1].obj
    assert second.resource_version == first.resource_version
    assert second.token == ""


def test_a_page_of_selected_rows_does_not_count_the_rest(store: Store) -> None:
    fill(store, "a", "b", "c")
    first = page(store, limit=1, label_selector="n in (a,c)")
    assert (names(first.rows), first.remaining) == (["a"], None)
    last = page(store, limit=1, label_selector="n in (a,c)", token=first.token)
    assert (names(last.rows), last.token) == (["c"], "")


def test_versions(store: Store) -> None:
    fill(store, "a")
    then = str(store.resource_version)
    fill(store, "b")
    assert names(page(store, resource_version="0").rows) == ["a", "b"]
    assert names(page(store, resource_version=then).rows) == ["a", "b"]
    assert names(page(store, resource_version=then, match="NotOlderThan").rows) == ["a", "b"]
    exact = page(store, resource_version=then, match="Exact")
    assert (names(exact.rows), str(exact.resource_version)) == (["a"], then)
    assert names(page(store, resource_version=then, limit=5).rows) == ["a"]
    with pytest.raises(StoreTimeout):
        page(store, resource_version="999999")


def test_compaction_ends_old_pages_and_exact_lists(store: Store) -> None:
    fill(store, "a", "b")
    then = str(store.resource_version)
    first = page(store, limit=1)
    fill(store, "c")
    store.compact()
    for query in ({"token": first.token}, {"resource_version": then, "match": "Exact"}):
        with pytest.raises(StoreExpired):
            page(store, **query)
    with pytest.raises(StoreExpired):
        store.changes(store.resource("cm"), int(then))
    assert names(page(store).rows) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "query",
    [
        {"match": "Exact"},
        {"resource_version": "0", "match": "Exact"},
        {"resource_version": "1", "match": "Sideways"},
        {"resource_version": "x"},
        {"resource_version": "-1"},
        {"token": "nonsense"},
        {"token": "e30="},
        {"label_selector": "a b"},
    ],
)
def test_nonsense_is_refused(store: Store, query: Any) -> None:
    with pytest.raises(StoreBadRequest):
        page(store, **query)


def test_the_log_forgets_the_oldest_and_says_so() -> None:
    store = Store(VirtualClock(), event_log_capacity=8)
    start = store.resource_version
    fill(store, *(f"n{i}" for i in range(20)))
    with pytest.raises(StoreExpired):
        store.changes(store.resource("cm"), start)
    recent = store.changes(store.resource("cm"), store.resource_version - 3)
    assert [entry.key[1] for entry in recent] == ["n17", "n18", "n19"]


def test_compaction_does_not_end_a_reader_that_missed_nothing(store: Store) -> None:
    resource = store.resource("cm")
    fill(store, "a")
    seen = store.resource_version
    store.create(store.resource("secrets"), {"metadata": {"name": "s", "namespace": "default"}})
    store.compact()
    assert not store.changes(resource, seen, established=True)
    with pytest.raises(StoreExpired):
        store.changes(resource, seen)


_writes = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=20)


@settings(deadline=None)
@given(_writes, st.integers(1, 3))
def test_any_past_can_be_listed_in_pages(writes: list[tuple[str, bool]], limit: int) -> None:
    store = Store(VirtualClock())
    resource, pictures = store.resource("cm"), {}
    for name, delete in writes:
        alive = [o["metadata"]["name"] for o in store.list(resource)]
        if delete and name in alive:
            store.delete(resource, name, namespace="default")
        elif not delete and name not in alive:
            fill(store, name)
        pictures[store.resource_version] = [o["metadata"]["name"] for o in store.list(resource)]
    for version, expected in pictures.items():
        rows: list[str] = []
        part = page(store, resource_version=str(version), match="Exact", limit=limit)
        rows += names(part.rows)
        while part.token:
            part = page(store, limit=limit, token=part.token)
            rows += names(part.rows)
        assert rows == expected
