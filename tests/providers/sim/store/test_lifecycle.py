"""How objects end: finalizers, grace, propagation, garbage, namespaces."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.clock import VirtualClock
from providers.sim.store import PatchType, Store, StoreConflict, StoreEvent, StoreForbidden, StoreInvalid, StoreNotFound

Obj = dict[str, Any]


def names(store: Store, kind: str, namespace: str = "") -> list[str]:
    return [obj["metadata"]["name"] for obj in store.list(store.resource(kind), namespace)]


def finalized(obj: Obj, *finalizers: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": list(finalizers)}}


def test_finalizers_hold_an_object_until_the_last_is_gone(store: Store, config: Any, events: list[StoreEvent]) -> None:
    resource = store.resource("cm")
    store.create(resource, finalized(config(), "x.test/a", "x.test/b"))
    marked = store.delete(resource, "cm", namespace="default")
    assert marked["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:00Z"
    assert store.delete(resource, "cm", namespace="default") is marked
    for rest in (["x.test/b"], []):
        store.patch(resource, "cm", {"metadata": {"finalizers": rest}}, PatchType.MERGE, namespace="default")
    assert names(store, "cm") == []
    assert [e.type for e in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_nothing_new_may_hold_what_is_being_deleted(store: Store, config: Any) -> None:
    resource = store.resource("cm")
    store.create(resource, finalized(config(), "x.test/a"))
    store.delete(resource, "cm", namespace="default")
    more = {"metadata": {"finalizers": ["x.test/a", "x.test/b"]}}
    with pytest.raises(StoreInvalid, match="no new finalizers"):
        store.patch(resource, "cm", more, PatchType.MERGE, namespace="default")
    alive = {"metadata": {"deletionTimestamp": None}}
    after = store.patch(resource, "cm", alive, PatchType.MERGE, namespace="default")
    assert "deletionTimestamp" in after["metadata"]


def test_delete_preconditions(store: Store, config: Any) -> None:
    resource = store.resource("cm")
    held = store.create(resource, config())
    with pytest.raises(StoreConflict, match="UID"):
        store.delete(resource, "cm", namespace="default", uid="other")
    with pytest.raises(StoreConflict):
        store.delete(resource, "cm", namespace="default", resource_version="1")
    meta = held["metadata"]
    store.delete(resource, "cm", namespace="default", uid=meta["uid"], resource_version=meta["resourceVersion"])
    with pytest.raises(StoreNotFound):
        store.delete(resource, "cm", namespace="default")


def bound(store: Store, pod: Any, **spec: Any) -> Obj:
    made = store.create(store.resource("pods"), pod(**spec))
    store.bind(made["metadata"]["name"], "default", "n1")
    return made


@pytest.mark.parametrize(
    ("asked", "spec", "period"),
    [(None, {}, 30), (5, {}, 5), (None, {"terminationGracePeriodSeconds": 120}, 120), (-1, {}, 1)],
)
def test_a_running_pod_gets_its_grace(
    store: Store, clock: VirtualClock, pod: Any, asked: int | None, spec: Obj, period: int
) -> None:
    bound(store, pod, **spec)
    resource = store.resource("pods")
    marked = store.delete(resource, "p", namespace="default", grace_period_s=asked)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == period
    assert marked["metadata"]["generation"] == 2
    clock.advance(1)
    assert store.delete(resource, "p", namespace="default", grace_period_s=asked) is marked
    store.delete(resource, "p", namespace="default", grace_period_s=0)
    assert names(store, "pods") == []


def test_a_second_deletion_may_only_be_quicker(store: Store, clock: VirtualClock, pod: Any) -> None:
    bound(store, pod)
    resource = store.resource("pods")
    store.delete(resource, "p", namespace="default")
    clock.advance(2)
    quicker = store.delete(resource, "p", namespace="default", grace_period_s=10)
    assert quicker["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:10Z"
    assert store.delete(resource, "p", namespace="default", grace_period_s=60) is quicker


@pytest.mark.parametrize("status", [None, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_a_pod_that_runs_nowhere_goes_at_once(store: Store, pod: Any, status: Obj | None) -> None:
    resource = store.resource("pods")
    store.create(resource, pod())
    if status:
        store.bind("p", "default", "n1")
        store.patch(resource, "p", {"status": status}, PatchType.MERGE, namespace="default", subresource="status")
    store.delete(resource, "p", namespace="default")
    assert names(store, "pods") == []


def family(store: Store, job: Any, pod: Any, reference: Any, *, block: bool = False) -> Obj:
    owner = store.create(store.resource("jobs"), job())
    child = pod()
    child["metadata"]["ownerReferences"] = [reference(owner, block=block)]
    store.create(store.resource("pods"), child)
    return owner


@pytest.mark.parametrize(
    ("propagation", "left"),
    [("Background", []), ("Foreground", []), ("Orphan", ["p"]), (None, ["p"])],
)
def test_propagation_of_a_job(
    store: Store, job: Any, pod: Any, reference: Any, propagation: Any, left: list[str]
) -> None:
    family(store, job, pod, reference)
    store.delete(store.resource("jobs"), "j", namespace="default", propagation=propagation)
    assert names(store, "jobs") == []
    assert names(store, "pods") == left
    for held in store.list(store.resource("pods")):
        assert "ownerReferences" not in held["metadata"]


def test_other_kinds_take_their_dependants_along_unless_told(store: Store, config: Any, reference: Any) -> None:
    resource = store.resource("cm")
    owner = store.create(resource, config("owner"))
    child = config("child")
    child["metadata"]["ownerReferences"] = [reference(owner)]
    store.create(resource, child)
    store.delete(resource, "owner", namespace="default")
    assert names(store, "cm") == []


def test_foreground_waits_for_dependants_that_block(store: Store, job: Any, pod: Any, reference: Any) -> None:
    family(store, job, pod, reference, block=True)
    store.bind("p", "default", "n1")
    marked = store.delete(store.resource("jobs"), "j", namespace="default", propagation="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in store.get(store.resource("pods"), "p", "default")["metadata"]
    assert names(store, "jobs") == ["j"]
    store.delete(store.resource("pods"), "p", namespace="default", grace_period_s=0)
    assert names(store, "jobs") == []


def test_garbage_is_collected_down_the_line(store: Store, config: Any, reference: Any) -> None:
    resource = store.resource("cm")
    owner = store.create(resource, config("a"))
    for name in ("b", "c", "d"):
        child = config(name)
        child["metadata"]["ownerReferences"] = [reference(owner)]
        owner = store.create(resource, child)
    store.delete(resource, "a", namespace="default")
    assert names(store, "cm") == []


def test_one_owner_left_is_enough(store: Store, config: Any, reference: Any) -> None:
    resource = store.resource("cm")
    a, b = store.create(resource, config("a")), store.create(resource, config("b"))
    child = config("child")
    child["metadata"]["ownerReferences"] = [reference(a), {**reference(b), "controller": False}]
    store.create(resource, child)
    store.delete(resource, "a", namespace="default")
    left = store.get(resource, "child", "default")["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in left] == ["b"]
    store.delete(resource, "b", namespace="default")
    assert names(store, "cm") == []


def test_an_owner_that_never_was_makes_an_orphan_from_birth(
    store: Store, config: Any, events: list[StoreEvent]
) -> None:
    child = config()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "gone"}
    child["metadata"]["ownerReferences"] = [owner]
    store.create(store.resource("cm"), child)
    assert [event.type for event in events] == ["ADDED", "DELETED"]
    keeper = Store(VirtualClock(), collect_garbage="never")
    keeper.create(keeper.resource("cm"), child)
    assert names(keeper, "cm") == ["cm"]


def test_a_namespace_goes_when_it_is_empty_and_takes_nothing_in_until_then(store: Store, config: Any, pod: Any) -> None:
    spaces = store.resource("ns")
    store.create(spaces, {"metadata": {"name": "team"}})
    store.create(store.resource("cm"), config(namespace="team"))
    store.create(store.resource("cm"), finalized(config("held", namespace="team"), "x.test/a"))
    marked = store.delete(spaces, "team")
    assert marked["status"]["phase"] == "Terminating"
    assert names(store, "cm", "team") == ["held"]
    with pytest.raises(StoreForbidden, match="being terminated") as refused:
        store.create(store.resource("cm"), config("new", namespace="team"))
    assert refused.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    free = {"metadata": {"finalizers": None}}
    store.patch(store.resource("cm"), "held", free, PatchType.MERGE, namespace="team")
    assert "team" not in names(store, "ns")
    store.create(spaces, {"metadata": {"name": "team"}})
    store.create(store.resource("cm"), config("new", namespace="team"))


_OPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "orphan", "foreground", "release"]),
        st.integers(0, 5),
        st.lists(st.integers(0, 5), max_size=2, unique=True),
        st.booleans(),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=150)
@given(_OPS)
def test_no_garbage_is_ever_left(operations: list[tuple[str, int, list[int], bool]]) -> None:
    """After any write, whatever has owners has a living one, and what waits for dependants has some."""
    store = Store(VirtualClock())
    resource = store.resource("cm")
    for what, number, parents, held in operations:
        alive = {obj["metadata"]["name"]: obj for obj in store.list(resource)}
        name = f"c{number}"
        if what == "create" and name not in alive:
            owners = [alive[f"c{p}"] for p in parents if f"c{p}" in alive]
            meta: Obj = {"name": name, "finalizers": ["x.test/hold"] if held else []}
            meta["ownerReferences"] = [{**_reference(o), "blockOwnerDeletion": held} for o in owners]
            store.create(resource, {"metadata": meta}, namespace="default")
        elif what == "release" and name in alive:
            kept = [f for f in alive[name]["metadata"].get("finalizers") or [] if f != "x.test/hold"]
            patch = {"metadata": {"finalizers": kept}}
            store.patch(resource, name, patch, PatchType.MERGE, namespace="default")
        elif what in ("delete", "orphan", "foreground") and name in alive:
            policy: Any = {"delete": "Background", "orphan": "Orphan", "foreground": "Foreground"}[what]
            store.delete(resource, name, namespace="default", propagation=policy)
        _check_no_garbage(store)


def _reference(owner: Obj) -> Obj:
    meta = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}


def _check_no_garbage(store: Store) -> None:
    objects = {obj["metadata"]["uid"]: obj["metadata"] for obj in store.list(store.resource("cm"))}
    for meta in objects.values():
        owners = meta.get("ownerReferences") or []
        assert not owners or "deletionTimestamp" in meta or any(o["uid"] in objects for o in owners)
        assert "deletionTimestamp" not in meta or meta.get("finalizers")
        if "foregroundDeletion" in (meta.get("finalizers") or []):
            blocking = [m for m in objects.values() for o in m.get("ownerReferences") or [] if o["uid"] == meta["uid"]]
            assert blocking
