"""The transport without a wire says what the transport with one says; the feed shows what a reflector would show."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.clock import VirtualClock
from providers.kube import errors
from providers.kube.batches import Changes, Replace
from providers.kube.config import from_url
from providers.kube.lease import KubeLease, LeaseRecord
from providers.kube.objects.jobs import BY_GROUP_KIND
from providers.kube.reading import Watched
from providers.kube.resources import PODS, ResourcePath
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import (
    WRITES,
    ApiServer,
    FaultRule,
    FaultRules,
    LoseAnswer,
    PriorityReject,
    WebhookDenies,
    WebhookFails,
)
from providers.sim.direct import ApiFaults, DirectTransport, Feed
from providers.sim.store import Store
from tests.support.batches import fold
from tests.support.merge_patch import patch_merge
from tests.support.work import install, manifest

MAPS = ResourcePath("", "v1", "configmaps", namespaced=True)
NODES = ResourcePath("", "v1", "nodes", namespaced=False)
LEASE = LeaseRecord("me", 15, 0)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "test"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def story(api: KubeTransport) -> Iterator[Callable[[], Any]]:
    """Every verb, in good days and bad."""
    stale = {**config_map("a"), "metadata": {"name": "a", "resourceVersion": "1"}}
    yield lambda: api.create(MAPS, config_map("a", x="1"), "default")
    yield lambda: api.create(MAPS, config_map("a"), "default")
    yield lambda: api.create(MAPS, config_map("a"), "nowhere")
    yield lambda: api.create(MAPS, config_map("No Name"), "default")
    yield lambda: api.create(MAPS, b"no JSON", "default")
    yield lambda: api.read(MAPS, "a", "default")
    yield lambda: api.read(MAPS, "none", "default")
    yield lambda: api.replace(MAPS, "a", stale, "default")
    yield lambda: api.replace(MAPS, "a", config_map("a", y="2"), "default")
    yield lambda: patch_merge(api, MAPS, "a", {"data": {"z": "3"}}, "default")
    yield lambda: api.patch_json(MAPS, "a", [{"op": "test", "path": "/data/z", "value": "4"}], "default")
    yield lambda: api.patch_json(MAPS, "a", [{"op": "replace", "path": "/data/z", "value": "4"}], "default")
    yield lambda: api.apply(MAPS, "a", config_map("a", z="5"), "default")
    yield lambda: api.apply(MAPS, "a", config_map("a", z="5"), "default", force=True)
    yield lambda: api.apply(MAPS, "b", config_map("b", z="5"), "default", force=True)
    yield lambda: api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    yield lambda: patch_merge(api, NODES, "n1", {"status": {"phase": "Running"}}, "", "status")
    yield lambda: api.create(PODS, pod("p"), "default")
    yield lambda: api.patch_strategic(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, "default")
    yield lambda: api.bind("p", "default", "n1")
    yield lambda: api.bind("p", "default", "n1")
    yield lambda: api.evict("p", "default", grace_s=0)
    yield lambda: api.evict("p", "default")
    yield lambda: api.delete(MAPS, "a", "default", uid="another")
    yield lambda: api.delete(MAPS, "a", "default")
    yield lambda: api.delete(MAPS, "a", "default")
    yield lambda: [[bytes(raw) for raw in page.items or ()] for page in api.list_pages(MAPS, limit=1)]
    yield lambda: [[bytes(raw) for raw in page.items or ()] for page in api.list_pages(MAPS, "default")]
    yield lambda: KubeLease(api, "l", "default").create(LEASE, now_s=0.0, timeout_s=1.0)
    yield lambda: KubeLease(api, "l", "default").read(timeout_s=1.0)
    yield lambda: api.get("/apis/nothing/v1/here")


def told(call: Callable[[], Any]) -> Any:
    try:
        answer = call()
    except errors.KubeError as error:
        return type(error), error.code, error.reason, error.causes, error.retry_after_s, str(error).partition(": ")[2]
    return msgspec.json.decode(answer) if isinstance(answer, bytes) else answer


def test_both_transports_tell_the_same_story() -> None:
    with ApiServer(Store(VirtualClock()), clock=VirtualClock()) as server:
        wired = [told(call) for call in story(KubeTransport(from_url(server.url)))]
        server.drop_connections()
    clock = VirtualClock()
    direct = [told(call) for call in story(DirectTransport(Store(clock), clock))]
    assert len(direct) == 31
    for number, (one, other) in enumerate(zip(direct, wired, strict=True)):
        assert one == other, number


def api_with(**faults: int) -> tuple[DirectTransport, Store]:
    clock = VirtualClock()
    store = Store(clock)
    return DirectTransport(store, clock, faults=ApiFaults(**faults)), store


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("conflicts", errors.Conflict), ("throttled", errors.TooManyRequests), ("errors", errors.Unreachable)],
)
def test_a_fault_strikes_one_write_and_leaves_nothing(fault: str, kind: type[Exception]) -> None:
    api, store = api_with(**{fault: 1})
    version = store.resource_version
    with pytest.raises(kind):
        api.create(MAPS, config_map("a"), "default")
    assert store.resource_version == version
    api.create(MAPS, config_map("a"), "default")


def test_the_rules_of_the_server_strike_without_a_wire_as_with_one() -> None:
    def rules() -> FaultRules:
        maps, second = frozenset({"configmaps"}), (2).__eq__
        return FaultRules(
            FaultRule(PriorityReject(4), when=lambda count: count % 5 == 0),
            FaultRule(WebhookFails("w.example.com"), verbs=WRITES, resources=maps, when=lambda count: count % 3 == 0),
            FaultRule(WebhookDenies("v.example.com", "no"), verbs=frozenset({"create"}), when=second),
        )

    with ApiServer(Store(VirtualClock()), clock=VirtualClock(), faults=rules()) as server:
        wired = [told(call) for call in story(KubeTransport(from_url(server.url)))]
        server.drop_connections()
    clock = VirtualClock()
    direct = [told(call) for call in story(DirectTransport(Store(clock), clock, rules=rules()))]
    for number, (one, other) in enumerate(zip(direct, wired, strict=True)):
        assert one == other, number
    met = {it[0] for it in direct if isinstance(it, tuple)}
    for kind in (errors.TooManyRequests, errors.Unreachable, errors.Forbidden):
        assert any(issubclass(each, kind) for each in met), kind
    assert 4.0 in {it[4] for it in direct if isinstance(it, tuple)}


def test_a_rule_that_loses_the_answer_lets_the_write_happen() -> None:
    clock = VirtualClock()
    store = Store(clock)
    api = DirectTransport(store, clock, rules=FaultRules(FaultRule(LoseAnswer(), resources=frozenset({"configmaps"}))))
    with pytest.raises(errors.Unreachable):
        api.create(MAPS, config_map("a"), "default")
    assert store.get(store.resource("configmaps"), "a", "default")


def test_a_lost_answer_is_a_write_that_has_happened() -> None:
    api, _ = api_with(lost_answers=1)
    with pytest.raises(errors.Unreachable) as caught:
        api.create(MAPS, config_map("a"), "default")
    assert caught.value.maybe_applied
    with pytest.raises(errors.AlreadyExists):
        api.create(MAPS, config_map("a"), "default")


def test_reads_are_never_struck_and_there_is_no_watch() -> None:
    api, _ = api_with(errors=5)
    assert list(api.list_pages(MAPS, "default"))
    with pytest.raises(NotImplementedError):
        api.watch(MAPS, "", 1)


def test_a_caller_may_end_everything_between_two_writes() -> None:
    class End(BaseException):
        pass

    def bell(moment: str) -> None:
        heard.append(moment)
        if ends and moment == "before":
            raise End

    heard: list[str] = []
    ends: list[bool] = []
    clock = VirtualClock()
    store = Store(clock)
    api = DirectTransport(store, clock, wrote=bell)
    api.create(MAPS, config_map("a"), "default")
    api.read(MAPS, "a", "default")
    assert heard == ["before", "after"]
    ends.append(True)
    with pytest.raises(End):
        api.delete(MAPS, "a", "default")
    assert api.read(MAPS, "a", "default")


def name_of(raw: msgspec.Raw) -> str:
    return str(msgspec.json.decode(raw)["metadata"]["name"])


WATCHED = Watched(MAPS, msgspec.json.decode, lambda obj: str(obj["metadata"]["name"]))
STEPS = st.lists(st.tuples(st.sampled_from(["put", "delete", "take"]), st.sampled_from("abc"), st.integers(0, 3)))


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_feed_folds_to_what_the_store_holds(steps: list[tuple[str, str, int]]) -> None:
    api, store = api_with()
    feed, seen = Feed(store, WATCHED), dict[str, Any]()
    for act, name, value in steps:
        if act == "put":
            api.apply(MAPS, name, config_map(name, x=str(value)), "default", force=True)
        elif act == "delete":
            told(lambda name=name: api.delete(MAPS, name, "default"))  # type: ignore[misc]
        else:
            for batch in feed.take():
                fold(seen, batch)
    for batch in feed.take():
        fold(seen, batch)
    assert seen == {obj["metadata"]["name"]: obj for obj in store.list(store.resource("ConfigMap"))}
    assert feed.take() == []


def test_a_field_selector_is_heeded_in_the_list_and_in_what_changes() -> None:
    api, store = api_with()
    feed = Feed(store, replace(WATCHED, field_selector="metadata.name=b"))
    for name in "ab":
        api.create(MAPS, config_map(name), "default")
    (first,) = feed.take()
    assert isinstance(first, Replace)
    assert list(first.objects) == ["b"]
    for name in "ab":
        api.delete(MAPS, name, "default")
    (second,) = feed.take()
    assert isinstance(second, Changes)
    assert [(delta.kind.value, delta.key) for delta in second.deltas] == [("DELETED", "b")]
    api.create(MAPS, config_map("a"), "default")
    assert feed.take() == []


def test_first_everything_then_changes() -> None:
    api, store = api_with()
    api.create(MAPS, config_map("a"), "default")
    feed = Feed(store, WATCHED)
    (first,) = feed.take()
    assert isinstance(first, Replace)
    api.create(MAPS, config_map("b"), "default")
    api.delete(MAPS, "a", "default")
    (second,) = feed.take()
    assert isinstance(second, Changes)
    assert [(delta.kind.value, delta.key) for delta in second.deltas] == [("ADDED", "b"), ("DELETED", "a")]
    assert second.resource_version == str(store.resource_version)
    store.create(store.resource("Node"), {"metadata": {"name": "n"}})
    assert feed.take() == []


def test_an_object_that_cannot_be_read_hides_no_other_and_its_end_brings_a_list() -> None:
    def decode(raw: msgspec.Raw) -> Any:
        found = msgspec.json.decode(raw)
        if found["metadata"]["name"] == "bad":
            raise ValueError("unreadable")
        return found

    api, store = api_with()
    feed = Feed(store, Watched(MAPS, decode, WATCHED.key))
    feed.take()
    for name in ("bad", "good"):
        api.create(MAPS, config_map(name), "default")
    (batch,) = feed.take()
    assert isinstance(batch, Changes)
    assert [delta.key for delta in batch.deltas] == ["good"]
    api.delete(MAPS, "bad", "default")
    (again,) = feed.take()
    assert isinstance(again, Replace)
    assert set(again.objects) == {"good"}


def test_a_kind_that_is_not_served_cannot_be_fed() -> None:
    _, store = api_with()
    with pytest.raises(LookupError):
        Feed(store, Watched(ResourcePath("x.dev", "v1", "things", namespaced=True), WATCHED.decode, WATCHED.key))


def test_an_optional_kind_may_come_and_go() -> None:
    _, store = api_with()
    kind = BY_GROUP_KIND["ray.io", "RayJob"]
    feed = Feed(store, Watched(kind.path, WATCHED.decode, WATCHED.key, optional=True))
    (none,) = feed.take()
    assert none == Replace({}, "0")
    store.create(store.resource("ConfigMap"), config_map("a"), namespace="default")
    assert feed.take() == []
    install(store, kind)
    (listed,) = feed.take()
    assert isinstance(listed, Replace)
    store.create(store.resource("RayJob"), manifest(kind, "r"))
    (seen,) = feed.take()
    assert isinstance(seen, Changes)
    assert [delta.key for delta in seen.deltas] == ["r"]
    store.delete(store.resource("CustomResourceDefinition"), str(kind.path))
    assert feed.take() == [Replace({}, "0")]
