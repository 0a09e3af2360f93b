"""The adapter against the embedded API server: verbs that mean what they say, and a mirror that is right in the end."""

import random
import threading
from collections.abc import Iterator

import msgspec
import pytest

from providers.clock import SystemClock, VirtualClock
from providers.kube import errors
from providers.kube.batches import Batch
from providers.kube.config import from_kubeconfig, from_url
from providers.kube.elector import ElectionTiming, Elector, FencingToken
from providers.kube.lease import KubeLease
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector, Timing
from providers.kube.resources import PODS, ResourcePath
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import (
    ApiServer,
    Compact,
    CutWatch,
    Effect,
    FaultRule,
    FaultRules,
    GoneStatus,
    LoseAnswer,
    Refuse,
)
from providers.sim.store import Store
from tests.providers.kube.electing import ElectionCandidate, ElectionWorld, SkewedClock
from tests.support.api_faults import every
from tests.support.api_faults import rate as share
from tests.support.batches import fold
from tests.support.merge_patch import patch_merge

MAPS = ResourcePath("", "v1", "configmaps", namespaced=True)
NODES = ResourcePath("", "v1", "nodes", namespaced=False)
SPEC = {"containers": [{"name": "main", "image": "test"}]}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(Store(VirtualClock()), faults=FaultRules()) as running:
        yield running
        running.drop_connections()  # idle connections would hold up the end


@pytest.fixture
def transport(server: ApiServer) -> KubeTransport:
    return KubeTransport(from_url(server.url))


def read(body: bytes) -> dict:
    return msgspec.json.decode(body)


def config_map(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


# -- verbs ------------------------------------------------------------------------------------------------------------


def test_the_life_of_an_object(transport: KubeTransport) -> None:
    made = read(transport.create(MAPS, config_map("a", x="1"), "default"))
    with pytest.raises(errors.AlreadyExists):
        transport.create(MAPS, config_map("a"), "default")
    merged = read(patch_merge(transport, MAPS, "a", {"data": {"y": "2"}}, "default"))
    assert merged["data"] == {"x": "1", "y": "2"}
    with pytest.raises(errors.Conflict):
        transport.replace(MAPS, "a", made | {"data": {}}, "default")
    assert read(transport.replace(MAPS, "a", merged | {"data": {"z": "3"}}, "default"))["data"] == {"z": "3"}
    swap = [{"op": "test", "path": "/data/z", "value": "3"}, {"op": "replace", "path": "/data/z", "value": "4"}]
    assert read(transport.patch_json(MAPS, "a", swap, "default"))["data"] == {"z": "4"}
    with pytest.raises(errors.Invalid):
        transport.patch_json(MAPS, "a", swap, "default")
    with pytest.raises(errors.Conflict):
        transport.delete(MAPS, "a", "default", uid="another")
    transport.delete(MAPS, "a", "default", uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        transport.read(MAPS, "a", "default")


def test_apply_owns_its_fields_only(transport: KubeTransport) -> None:
    transport.create(MAPS, config_map("a", theirs="1"), "default")
    applied = read(transport.apply(MAPS, "a", config_map("a", ours="2"), "default"))
    assert applied["data"] == {"theirs": "1", "ours": "2"}
    patch_merge(transport, MAPS, "a", {"data": {"ours": "3"}}, "default")
    assert read(transport.apply(MAPS, "a", config_map("a"), "default"))["data"]["theirs"] == "1"


def test_pods_are_bound_evicted_and_their_status_set(transport: KubeTransport) -> None:
    transport.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC}
    uid = read(transport.create(PODS, pod, "default"))["metadata"]["uid"]
    transport.bind("p", "default", "n1", uid=uid)
    with pytest.raises(errors.Conflict):
        transport.bind("p", "default", "n2")
    patch_merge(transport, PODS, "p", {"status": {"phase": "Running"}}, "default", "status")
    found = read(transport.read(PODS, "p", "default"))
    assert (found["spec"]["nodeName"], found["status"]["phase"]) == ("n1", "Running")
    transport.evict("p", "default", uid=uid, grace_s=30)
    assert read(transport.read(PODS, "p", "default"))["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_disruption_budget_holds_an_eviction(transport: KubeTransport) -> None:
    budgets = ResourcePath("policy", "v1", "poddisruptionbudgets", namespaced=True)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": SPEC}
    transport.create(PODS, pod, "default")
    patch_merge(transport, PODS, "p", {"status": {"phase": "Running"}}, "default", "status")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}},
    }
    transport.create(budgets, budget, "default")
    with pytest.raises(errors.TooManyRequests) as held:
        transport.evict("p", "default")
    assert held.value.disruption_budget


def test_pages_and_selectors(transport: KubeTransport) -> None:
    for number in range(7):
        obj = config_map(f"m{number}")
        obj["metadata"]["labels"] = {"odd": str(number % 2)}
        transport.create(MAPS, obj, "default")
    pages = list(transport.list_pages(MAPS, "default", label_selector="odd=1", limit=2))
    assert [[read(raw)["metadata"]["name"] for raw in page.items or ()] for page in pages] == [["m1", "m3"], ["m5"]]


def test_a_kubeconfig_of_the_server(server: ApiServer, tmp_path) -> None:
    transport = KubeTransport(from_kubeconfig(server.kubeconfig(tmp_path / "config")))
    assert read(transport.get("/version"))["major"]


# -- the mirror -------------------------------------------------------------------------------------------------------


class Item(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    version: str = msgspec.field(name="resourceVersion")


class Map(msgspec.Struct, frozen=True):
    metadata: Item


def key(found: Map) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"


class FoldedView:
    """A reflector's view, folded as it comes."""

    def __init__(self, url: str, timing: Timing) -> None:
        self.objects: dict[str, Map] = {}
        self.troubles: list[Exception] = []
        self.changed = threading.Condition()
        self.reflector = Reflector(
            KubeTransport(from_url(url)),
            Watched(MAPS, msgspec.json.Decoder(Map).decode, key),
            self.take,
            clock=SystemClock(),
            rng=random.Random(3),
            timing=timing,
            on_trouble=lambda error, _: self.troubles.append(error),
            wait=self.pause,
        )
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.paused = threading.Event()

    def pause(self, gap_s: float) -> None:
        self.paused.set()
        self.may_go_on.wait(20)

    def take(self, batch: Batch[Map]) -> None:
        with self.changed:
            fold(self.objects, batch)
            self.changed.notify_all()

    def wait_for(self, name: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: name in self.objects, 20), f"{name} never came: {self.troubles[-3:]}"


def truth(store: Store) -> dict[str, str]:
    found = (item["metadata"] for item in store.list(store.resource("configmaps")))
    return {f"{meta['namespace']}/{meta['name']}": meta["resourceVersion"] for meta in found}


def write_at_random(store: Store, rng: random.Random, count: int) -> None:
    maps = store.resource("configmaps")
    for number in range(count):
        name = f"m{rng.randrange(12)}"
        there = f"default/{name}" in truth(store)
        if not there:
            store.create(maps, config_map(name, n=str(number)), namespace="default")
        elif rng.random() < 0.3:
            store.delete(maps, name, namespace="default")
        else:
            found = dict(store.get(maps, name, "default"))
            store.update(maps, found | {"data": {"n": str(number)}}, namespace="default", name=name)


@pytest.mark.parametrize(
    "effects",
    [
        pytest.param([], id="fair"),
        pytest.param([CutWatch(2)], id="short-watches"),
        pytest.param([CutWatch(3, "mid-line")], id="cut-mid-line"),
        pytest.param([CutWatch(1), Compact()], id="compacted"),
        pytest.param([CutWatch(1), Compact(), GoneStatus()], id="compacted-410-status"),
        pytest.param([Refuse(500), Refuse(429), CutWatch(2, "mid-line"), LoseAnswer(), Compact()], id="everything"),
    ],
)
def test_the_mirror_is_right_in_the_end(server: ApiServer, effects: list[Effect]) -> None:
    store, rng = server.store, random.Random(7)
    for effect in effects:
        where = frozenset({"watch"}) if isinstance(effect, CutWatch | GoneStatus) else frozenset({"watch", "list"})
        server.faults.add(FaultRule(effect, verbs=where, when=share(0.5, random.Random(len(where)))))
    write_at_random(store, rng, 30)
    mirror = FoldedView(server.url, Timing(page_limit=3))
    mirror.reflector.start()
    try:
        for round_number in range(5):
            write_at_random(store, rng, 40)
            if round_number == 2:
                server.drop_connections()
        server.faults.clear()
        store.create(store.resource("configmaps"), config_map("the-end"), namespace="default")
        mirror.wait_for("default/the-end")
        assert {name: found.metadata.version for name, found in mirror.objects.items()} == truth(store)
    finally:
        assert mirror.reflector.stop(10)


def test_a_watch_that_falls_silent_is_left(server: ApiServer) -> None:
    silent = server.faults.add(
        FaultRule(CutWatch(1, "silence"), verbs=frozenset({"watch"}), when=lambda count: count == 1)
    )
    mirror = FoldedView(server.url, Timing(watch_s=1, grace_s=0.2))
    mirror.reflector.start()
    try:
        assert mirror.reflector.synced.wait(10)
        maps = server.store.resource("configmaps")
        server.store.create(maps, config_map("a"), namespace="default")
        mirror.wait_for("default/a")
        server.store.create(maps, config_map("b"), namespace="default")
        mirror.wait_for("default/b")
        assert silent.hits == 1
    finally:
        assert mirror.reflector.stop(10)


def test_a_server_that_restarts_with_another_history() -> None:
    """The port comes back with a younger store: versions of the old one mean nothing there."""
    old, young = Store(VirtualClock()), Store(VirtualClock())
    maps = old.resource("configmaps")
    for number in range(20):
        old.create(maps, config_map(f"old{number}"), namespace="default")
    young.create(maps, config_map("new"), namespace="default")
    server = ApiServer(old).start()
    mirror, port = FoldedView(server.url, Timing()), int(server.url.rpartition(":")[2])
    mirror.reflector.start()
    try:
        assert mirror.reflector.synced.wait(10)
        old.create(maps, config_map("live"), namespace="default")
        mirror.wait_for("default/live")  # the watch is open
        mirror.may_go_on.clear()
        server.drop_connections()
        assert mirror.paused.wait(10)
        server.stop()
        with ApiServer(young, port=port) as successor:
            mirror.may_go_on.set()
            mirror.wait_for("default/new")
            assert {name: found.metadata.version for name, found in mirror.objects.items()} == truth(young)
            assert mirror.reflector.stop(10)
            successor.drop_connections()
    finally:
        mirror.may_go_on.set()
        mirror.reflector.stop(10)


# -- the election -----------------------------------------------------------------------------------------------------


def candidate(url: str, name: str, world: ElectionWorld) -> ElectionCandidate:
    lease = KubeLease(KubeTransport(from_url(url)), "agent", "muster-system")
    return ElectionCandidate(world, lease, name, ElectionTiming(), SkewedClock(world))  # type: ignore[arg-type]


def test_terms_pass_through_a_real_lease(server: ApiServer) -> None:
    world = ElectionWorld(now_s=1_800_000_000.0)
    ada, bob = candidate(server.url, "ada", world), candidate(server.url, "bob", world)
    ada.step()
    bob.step()
    uid = server.store.get(server.store.resource("leases"), "agent", "muster-system")["metadata"]["uid"]
    assert (ada.started, bob.started) == ([FencingToken(0, uid)], [])
    for _ in range(20):
        world.now_s += 2.0
        ada.step()
        bob.step()
    assert (ada.lost, bob.started) == ([], [])
    ada.elector.release()
    bob.step()
    assert bob.started == [FencingToken(1, uid)]
    world.now_s += 10.0
    ada.step()
    world.now_s += 16.0
    ada.step()
    assert ada.started[-1] == FencingToken(2, uid)
    bob.step()
    assert bob.lost == ["not renewed in time"]


def test_a_lost_answer_to_a_renewal_is_survived(server: ApiServer) -> None:
    world = ElectionWorld(now_s=1_800_000_000.0)
    ada = candidate(server.url, "ada", world)
    ada.step()
    server.faults.add(FaultRule(LoseAnswer(), resources=frozenset({"leases.coordination.k8s.io"}), when=every(4)))
    for _ in range(100):
        world.now_s += 2.0
        ada.step()
    assert (len(ada.started), ada.lost) == (1, [])


def test_two_processes_race_for_a_new_lease(server: ApiServer) -> None:
    electors, started = [], []
    barrier = threading.Barrier(4)
    for name in ("a", "b", "c", "d"):
        lease = KubeLease(KubeTransport(from_url(server.url)), "agent", "muster-system")
        electors.append(
            Elector(lease, name, started.append, lambda _: None, clock=SystemClock(), rng=random.Random(name))
        )

    def race(elector: Elector) -> None:
        barrier.wait(10)
        elector.step()

    threads = [threading.Thread(target=race, args=(elector,)) for elector in electors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(started) == 1
    assert sum(elector.leading() for elector in electors) == 1
