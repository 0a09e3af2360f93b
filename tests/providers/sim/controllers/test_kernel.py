import threading

import pytest

from providers.clock import SystemClock, VirtualClock
from providers.sim.controllers import KubeletOptions, SimulationOptions, assemble
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Obj, key_of, with_condition
from providers.sim.controllers.runtime import Reconciler, WorkQueue
from providers.sim.kernel import Kernel, KernelThread, Restless, VirtualDriver
from providers.sim.store import PatchType, Store, StoreConflict, StoreForbidden, StoreNotFound
from tests.providers.sim.controllers.world import ControllerWorld, pod_template


class Every:
    """Works at fixed instants and notes when."""

    def __init__(self, name: str, period_s: float) -> None:
        self.name, self.period_s, self.at, self.due = name, period_s, [], 0.0

    def step(self, now: float) -> float | None:
        if now >= self.due:
            self.at.append(now)
            self.due = now + self.period_s
        return self.due


class Scribe:
    """Answers every new config map by another one, up to a limit."""

    name = "scribe"

    def __init__(self, store: Store, limit: int) -> None:
        self.store, self.limit = store, limit

    def step(self, now: float) -> float | None:
        count = len(self.store.list(self.store.resource("ConfigMap")))
        if 0 < count < self.limit:
            write(self.store, f"c{count}")
        return None


def write(store: Store, name: str) -> Obj:
    return store.create(store.resource("ConfigMap"), {"metadata": {"name": name}}, namespace="default")


def at_zero() -> tuple[VirtualClock, Store]:
    clock = VirtualClock(0.0)
    return clock, Store(clock)


class TestKernel:
    def test_runs_until_nobody_writes(self) -> None:
        clock, store = at_zero()
        kernel = Kernel(store, clock, [Scribe(store, 7)])
        assert kernel.run_until_quiet() is None
        write(store, "c0")
        kernel.run_until_quiet()
        assert len(store.list(store.resource("ConfigMap"))) == 7

    def test_the_next_wake_is_the_earliest(self) -> None:
        clock, store = at_zero()
        kernel = Kernel(store, clock, [Every("a", 7), Every("b", 3), Scribe(store, 0)])
        assert kernel.run_until_quiet(0.0) == 3
        assert kernel.next_wake() == 3

    def test_controllers_that_never_rest_are_named(self) -> None:
        clock, store = at_zero()
        kernel = Kernel(store, clock, [Every("fine", 5), Every("busy", 0)], max_rounds=50)
        with pytest.raises(Restless, match="busy"):
            kernel.run_until_quiet()


class TestMoves:
    def test_what_is_no_store_event_wakes_everybody_once_more(self) -> None:
        clock, store = at_zero()
        moves = [0]

        class MoveReader:
            name, seen = "reader", 0

            def step(self, _now: float) -> None:
                self.seen = moves[0]

        class MoveMaker:
            name = "mover"

            def step(self, _now: float) -> None:
                moves[0] = 3

        reader = MoveReader()
        Kernel(store, clock, [reader, MoveMaker()], moves=lambda: moves[0]).run_until_quiet()
        assert reader.seen == 3


class TestLateControllers:
    def test_one_that_lags_acts_so_much_after_it_got_work(self) -> None:
        clock, store = at_zero()
        kernel = Kernel(store, clock, [Scribe(store, 3)])
        driver, delays = VirtualDriver(kernel, clock), iter([2.0, 0.5, 9.0])
        driver.settle()
        kernel.lag("scribe", lambda: next(delays))
        write(store, "c0")
        driver.advance(1.9)
        assert len(store.list(store.resource("ConfigMap"))) == 1
        driver.advance(2.0)
        assert len(store.list(store.resource("ConfigMap"))) == 2
        driver.advance(2.5)
        assert len(store.list(store.resource("ConfigMap"))) == 3

    def test_one_that_lags_is_woken_by_its_own_timers_late(self) -> None:
        clock, store = at_zero()
        every = Every("every", 3)
        kernel = Kernel(store, clock, [every])
        driver = VirtualDriver(kernel, clock)
        driver.settle()
        kernel.lag("every", lambda: 1.0)
        driver.advance(12)
        assert every.at == [0, 4, 8, 12]
        kernel.lag("every", None)
        driver.advance(17)
        assert every.at == [0, 4, 8, 12, 15]

    def test_one_that_stands_still_does_nothing_and_then_everything(self) -> None:
        clock, store = at_zero()
        every = Every("every", 3)
        kernel = Kernel(store, clock, [every, Scribe(store, 2)])
        driver = VirtualDriver(kernel, clock)
        driver.settle()
        kernel.stand_still("scribe", 10)
        kernel.stand_still("every", 5)
        write(store, "c0")
        driver.advance(9)
        assert every.at == [0, 5, 8]
        assert len(store.list(store.resource("ConfigMap"))) == 1
        driver.advance(10)
        assert len(store.list(store.resource("ConfigMap"))) == 2

    def test_an_unknown_controller_is_refused(self) -> None:
        clock, store = at_zero()
        with pytest.raises(KeyError):
            Kernel(store, clock, []).lag("nobody", None)
        with pytest.raises(KeyError):
            Kernel(store, clock, []).stand_still("nobody", 1)


class TestVirtualTime:
    def test_stops_at_every_wake_and_ends_where_told(self) -> None:
        clock, store = at_zero()
        a, b = Every("a", 7), Every("b", 10)
        VirtualDriver(Kernel(store, clock, [a, b]), clock).advance(25.0)
        assert a.at == [0, 7, 14, 21]
        assert b.at == [0, 10, 20]
        assert clock.now() == 25

    def test_until(self) -> None:
        clock, store = at_zero()
        a = Every("a", 7)
        driver = VirtualDriver(Kernel(store, clock, [a]), clock)
        assert driver.advance_until(lambda: len(a.at) == 3, within_s=100)
        assert clock.now() == 14
        assert not driver.advance_until(lambda: False, within_s=10)
        assert clock.now() == 24

    def test_the_same_world_twice_is_the_same_to_the_letter(self) -> None:
        def run() -> list[Obj]:
            world = ControllerWorld()
            for i in range(3):
                world.ready_node(f"n{i}")
            for i in range(5):
                world.job(
                    f"j{i}", completions=3, parallelism=2, template=pod_template(notes={"run-seconds": str(7 + i)})
                )
            world.pass_s(40)
            world.delete("Node", "n1")
            world.pass_s(200)
            return [obj for kind in ("Node", "Pod", "Job") for obj in world.all(kind)]

        assert run() == run()


class TestRealTime:
    def test_a_thread_follows_store_events_and_timers(self) -> None:
        clock = SystemClock()
        store = Store(clock)
        options = SimulationOptions(kubelet=KubeletOptions(start_delay_s=0.01))
        sim = assemble(store, clock, options=options)
        done = threading.Event()

        def watch(event: object) -> None:
            if event.object.get("status", {}).get("phase") == "Succeeded":  # type: ignore[attr-defined]
                done.set()

        store.subscribe(watch, resource=store.resource("Pod"))
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [ready]}
        with KernelThread(sim.kernel, store):
            store.create(store.resource("Node"), {"metadata": {"name": "n"}, "status": status})
            template = pod_template(notes={"run-seconds": "0.01"})
            store.create(
                store.resource("Pod"),
                {"metadata": {**template["metadata"], "name": "p"}, "spec": template["spec"]},
                namespace="default",
            )
            assert done.wait(10)

    def test_a_defect_is_reported_and_the_thread_goes_on(self) -> None:
        class BrokenOnce:
            name, failed, healed = "broken", False, threading.Event()

            def step(self, now: float) -> float | None:
                if not self.failed:
                    self.failed = True
                    raise ValueError("once")
                self.healed.set()
                return None

        store, errors, controller = Store(SystemClock()), [], BrokenOnce()
        with KernelThread(Kernel(store, SystemClock(), [controller]), store, on_error=errors.append) as thread:
            thread.wake()
            assert controller.healed.wait(10)
        assert [str(error) for error in errors] == ["once"]

    def test_a_defect_in_one_controller_does_not_hold_up_the_others(self) -> None:
        class BrokenForGood:
            name = "broken"

            def step(self, now: float) -> float | None:
                raise ConnectionError("the cloud does not answer")

        store, errors = Store(SystemClock()), []
        done = threading.Event()
        store.subscribe(lambda event: done.set() if event.object["metadata"]["name"] == "c2" else None)
        with KernelThread(
            Kernel(store, SystemClock(), [BrokenForGood(), Scribe(store, 3)]), store, on_error=errors.append
        ):
            write(store, "c0")
            assert done.wait(10)
        assert errors
        with pytest.raises(ConnectionError):
            Kernel(store, SystemClock(), [BrokenForGood()]).run_until_quiet()

    def test_clients_that_write_at_the_same_time_lose_nothing(self) -> None:
        """Many conflicts between the controllers and two busy clients: every job still ends counted right."""
        clock, jobs = SystemClock(), 30
        store = Store(clock)
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"cpu": "400", "pods": "1000"}, "conditions": [ready]}
        store.create(store.resource("Node"), {"metadata": {"name": "n"}, "status": status})
        sim = assemble(store, clock, options=SimulationOptions(kubelet=KubeletOptions(start_delay_s=0.0)))
        over, ended, errors = threading.Event(), set(), []

        def watch(event: object) -> None:
            obj = event.object  # type: ignore[attr-defined]
            if any(c["type"] == "Complete" and c["status"] == "True" for c in obj["status"].get("conditions", ())):
                ended.add(obj["metadata"]["name"])
                if len(ended) == jobs:
                    over.set()

        def scribble(kind: str) -> None:
            resource = store.resource(kind)
            for count in range(20):
                for obj in store.list(resource):
                    try:
                        note = {"metadata": {"annotations": {"scribble": str(count)}}}
                        store.patch(resource, obj["metadata"]["name"], note, PatchType.MERGE, namespace="default")
                    except StoreNotFound:
                        continue

        store.subscribe(watch, resource=store.resource("Job"))
        clients = [threading.Thread(target=scribble, args=(kind,)) for kind in ("Pod", "Job")]
        with sim.in_real_time(on_error=errors.append):
            for i in range(jobs):
                spec = {
                    "completions": 6,
                    "parallelism": 3,
                    "completionMode": "Indexed",
                    "template": pod_template(notes={"run-seconds": "0.02"}),
                }
                store.create(store.resource("Job"), {"metadata": {"name": f"j{i}"}, "spec": spec}, namespace="default")
                if i == 5:
                    [client.start() for client in clients]
            assert over.wait(30)
            [client.join(30) for client in clients]
        assert errors == []
        for job in store.list(store.resource("Job")):
            assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (6, 0)

    def test_stopping_twice_or_unstarted_is_fine(self) -> None:
        store = Store(SystemClock())
        thread = KernelThread(Kernel(store, SystemClock(), []), store)
        thread.stop()
        with KernelThread(Kernel(store, SystemClock(), []), store) as running:
            running.stop()


class TestQueue:
    def test_each_key_once_in_order(self) -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("b", "a", "b"):
            queue.add(key)
        assert queue.next_at(5.0) == 5.0
        assert queue.take(5.0) == ["b", "a"]
        assert queue.take(5.0) == []
        assert queue.next_at(5.0) is None

    def test_a_later_wish_replaces_an_earlier_one(self) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.at("a", 10)
        queue.at("a", 20)
        queue.at("b", 15)
        assert queue.next_at(0) == 15
        assert queue.take(12) == []
        assert queue.take(20) == ["b", "a"]
        queue.at("a", 30)
        queue.at("a", None)
        assert queue.next_at(0) is None

    def test_an_earlier_wish_replaces_a_later_one(self) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.at("a", 20)
        queue.at("a", 10)
        assert queue.take(10) == ["a"]
        assert queue.take(30) == []


class Failing(Reconciler[str]):
    name = "failing"

    def __init__(self, cluster: MirroredCluster, errors: list[BaseException | None]) -> None:
        super().__init__(cluster)
        self.errors, self.seen = errors, []
        self._queue.add("a")
        self._queue.add("b")

    def reconcile(self, key: str, now: float) -> float | None:
        self.seen.append((key, now))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return None


class TestReconciler:
    @pytest.mark.parametrize(
        ("error", "wake", "seen"),
        [
            (StoreConflict("stale"), 0.0, ["a", "b", "a"]),
            (StoreNotFound("gone"), None, ["a", "b"]),
            (StoreForbidden("no"), 5.0, ["a", "b"]),
        ],
    )
    def test_refusals_decide_what_happens_next(self, error: Exception, wake: float | None, seen: list[str]) -> None:
        _, store = at_zero()
        controller = Failing(MirroredCluster(store), [error])
        assert controller.step(0.0) == wake
        controller.step(0.0)
        assert [key for key, _ in controller.seen] == seen

    def test_refusals_are_tried_again_ever_later(self) -> None:
        clock, store = at_zero()
        controller = Failing(MirroredCluster(store), [None, *[StoreForbidden("no")] * 4])
        controller._queue.add("a")
        VirtualDriver(Kernel(store, clock, [controller]), clock).advance(100)
        assert [now for key, now in controller.seen if key == "b"] == [0, 5, 15, 35, 75]

    def test_a_defect_neither_loses_nor_holds_up_a_key(self) -> None:
        _, store = at_zero()
        controller = Failing(MirroredCluster(store), [ValueError("bug")])
        with pytest.raises(ValueError, match="bug"):
            controller.step(0.0)
        assert controller.step(0.0) == 5.0
        controller.step(5.0)
        assert controller.seen == [("a", 0.0), ("b", 0.0), ("a", 5.0)]


class TestMirror:
    def test_reads_its_own_writes_and_files_them(self) -> None:
        _, store = at_zero()
        write(store, "before")
        cluster = MirroredCluster(store)
        maps = cluster.mirror("ConfigMap")
        changes: list[tuple[str, str]] = []
        maps.watch(
            lambda old, new: changes.append(
                (old["metadata"]["name"] if old else "", new["metadata"]["name"] if new else "")
            )
        )
        maps.index("label", lambda obj: (obj["metadata"].get("labels") or {}).values())
        made = maps.create({"metadata": {"name": "a", "namespace": "default", "labels": {"x": "1"}}})
        cluster.sync()
        assert maps.get(key_of(made)) == made
        assert maps.by("label", "1") == [made]
        moved = maps.update_metadata(made, labels={"x": "2"})
        cluster.sync()
        assert (maps.by("label", "1"), maps.by("label", "2")) == ([], [moved])
        with pytest.raises(StoreConflict):
            maps.update_metadata(made, labels={"x": "3"})
        maps.delete(moved)
        cluster.sync()
        assert maps.by("label", "2") == []
        assert [obj["metadata"]["name"] for obj in maps] == ["before"]
        assert changes == [("", "before"), ("", "a"), ("a", "a"), ("a", "")]

    def test_a_mirror_asked_for_late_agrees_with_the_store(self) -> None:
        _, store = at_zero()
        cluster = MirroredCluster(store)
        made = write(store, "a")
        store.delete(store.resource("ConfigMap"), "a", namespace="default")
        again = write(store, "a")
        maps = cluster.mirror("ConfigMap")
        cluster.sync()
        assert made["metadata"]["uid"] != again["metadata"]["uid"]
        assert list(maps) == [again]

    def test_old_news_is_ignored(self) -> None:
        """A list may be ahead of the events still in the queue."""
        _, store = at_zero()
        first = write(store, "a")
        maps = MirroredCluster(store).mirror("ConfigMap")
        again = maps.update_metadata(first, labels={"x": "1"})
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in (first, again)]
        maps.apply("MODIFIED", again, versions[1])
        maps.apply("ADDED", first, versions[0])
        maps.apply("DELETED", first, versions[0])
        assert list(maps) == [again]


def test_conditions_keep_their_time_until_the_status_changes() -> None:
    first = with_condition([], 10, "Ready", "False", "Booting")
    second = with_condition(first, 20, "Ready", "False", "StillBooting")
    third = with_condition(second, 30, "Ready", "True")
    times = [c[0]["lastTransitionTime"][-3:-1] for c in (first, second, third)]
    assert times == ["10", "10", "30"]
    assert second[0]["reason"] == "StillBooting"
    assert with_condition(third, 40, "Ready", "True") == third
