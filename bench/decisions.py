"""One turn of the brain on 10,000 machines and 100,000 pods with nothing to do, and where its time goes.

The brain, mirror, deciders and watchers are the agent's own; only the workers, the clock and the API are not.
"""

import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from agent.accounts import Accounts, Bookkeeper
from agent.announce_sync import SyncAnnouncer
from agent.brain import Brain
from agent.failures import Failures
from agent.inbox import InstancesListed, NamesResolved, Observed, Priced, Pushed, ReservationsListed
from agent.metrics import Metrics
from agent.mirror import Mirror
from agent.publish import Publisher, ReportWriter
from agent.sources import WATCHED
from agent.sync import Sync
from agent.tables import MirrorTable
from bench import cluster
from fleet.actions import Action, SaveGang
from fleet.deciders import DECIDERS, Decider
from fleet.nodeclaims.launch import launch_configurations
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.snapshot import GangState, Resolutions
from model.fleet import Fleet
from providers.aws.catalog import package_catalog
from providers.clock import VirtualClock
from providers.kube.batches import Changes, Delta, DeltaKind, Replace
from providers.kube.memory import settle_heap

TURNS, CHANGES = 15, 100
"""Turns measured; pods that change before each of them."""
_TABLES = {"Node": "nodes", "Pod": "pods", "Job": "jobs.batch", "Workload": "gangs", "NodeClaim": "claims"}


class _Idle:
    """Workers that only count what they are asked to do."""

    def __init__(self) -> None:
        self.asked: list[Action] = []

    def submit(self, action: Action) -> None:
        self.asked.append(action)


class _Nobody(Executor):
    """An executor that never runs anything: what is published is prepared but not sent."""

    def submit(self, *_args: Any, **_kwargs: Any) -> "Future[Any]":
        return Future()


class DecisionWorld:
    """A brain that knows the cluster."""

    def __init__(self, size: cluster.ClusterSize = cluster.FULL) -> None:
        self.clock = VirtualClock(1_800_000_000.0)
        self.workers = _Idle()
        self.mirror, self.sync = Mirror("bench"), Sync()
        reports = ReportWriter(None, _Nobody(), self.clock, "bench", "muster-system")  # type: ignore[arg-type]
        publisher = Publisher(reports, self.sync, Failures(), ("", "", ""), self.clock, SyncAnnouncer())
        self.watchers = [Metrics(), Bookkeeper(Accounts(), lambda _text: None, self.clock.monotonic), publisher]
        self.brain = Brain(self.mirror, self.sync, self.workers, self.clock, watchers=self.watchers)
        now = self.clock.now()
        self.pods = self._fill(now, size)
        self.brain.hear(InstancesListed(cluster.instances(now, size), now))
        self.brain.hear(ReservationsListed((), now))
        self.brain.hear(Priced(package_catalog(cluster.REGION).catalog))
        self.brain.hear(Pushed("main@sha1:0", {n: text.encode() for n, text in cluster.FLEET.items()}))
        self._version = 10_000_000
        self.brain.turn()
        fleet, asked = self.sync.fleet, self.mirror.snapshot(now, frozenset())
        found = launch_configurations(fleet, asked.catalog.types, asked.claims) if fleet else ()
        answers = {birth.pool_hash: cluster.resolved(birth.kinds) for birth in found}
        self.brain.hear(NamesResolved(Resolutions(now, answers)))

    def _fill(self, now_s: float, size: cluster.ClusterSize) -> list[Any]:
        tables: dict[str, dict[str, Any]] = {table: {} for table in WATCHED}
        count = 0

        def put(kind: str, body: dict[str, Any]) -> dict[str, Any]:
            nonlocal count
            count += 1
            body["metadata"] |= {"uid": f"uid-{count}", "resourceVersion": str(count)}
            watched = WATCHED[_TABLES[kind]]
            value = watched.decode(msgspec.Raw(json.dumps(body).encode()))
            tables[_TABLES[kind]][watched.key(value)] = value
            return body

        cluster.fill(put, now_s, size)
        for table, objects in tables.items():
            self.brain.hear(Observed(table, Replace(objects, "1")))
        return list(tables["pods"].values())

    def churn(self, number: int) -> None:
        """Some pods of no gang change (a probe, say) and are heard of again: one of a gang would be a decision."""
        others = [pod for pod in self.pods if not pod.workload]
        first = number * CHANGES % len(others)
        self._version += CHANGES
        deltas = tuple(Delta(DeltaKind.MODIFIED, pod.key, _copy(pod)) for pod in others[first : first + CHANGES])
        self.brain.hear(Observed("pods", Changes(deltas, str(self._version))))


def _copy(pod: Any) -> Any:
    return replace(pod, ready=not pod.ready)


def run() -> dict[str, float]:
    """Milliseconds of a turn, with its watchers (once a second) and without, and of each decider alone."""
    world = DecisionWorld()
    world.brain.turn()
    settle_heap()
    if world.workers.asked or world.sync.fleet is None:
        raise RuntimeError(f"the cluster should be at rest: {world.sync.state.message} {world.workers.asked[:3]}")
    results = {"turn_ms": _turns(world, 0.0), "turn_with_watchers_ms": _turns(world, 1.0)}
    results |= deciders_ms(world)
    results["snapshot_ms"] = _median_ms(lambda: _snapshot(world))
    results |= {f"{what}_ms": _changed_ms(world, change) for what, change in _CHANGED.items()}
    results |= {f"{count}_waiting_ms": _waiting_ms(world, count) for count in (1, 20)}
    for watcher in world.watchers:
        results[f"{type(watcher).__name__.lower()}_ms"] = _median_ms(partial(_told, world, watcher))
    if world.workers.asked:
        raise RuntimeError(f"nothing was to be done, but {world.workers.asked[:3]}")
    return results


def deciders_ms(world: DecisionWorld) -> dict[str, float]:
    """Milliseconds of each decider alone, by its name."""
    fleet = world.sync.fleet
    if fleet is None:
        raise RuntimeError("no fleet is in force")
    return {
        f"{name.replace('-', '_')}_ms": _median_ms(partial(_decide, decide, fleet, world))
        for name, decide in DECIDERS.items()
    }


def _snapshot(world: DecisionWorld) -> Any:
    return world.mirror.snapshot(world.clock.now(), frozenset())


def _decide(decide: Decider, fleet: Fleet, world: DecisionWorld) -> object:
    return decide(fleet, _snapshot(world))


def _told(world: DecisionWorld, watcher: Any) -> None:
    world.clock.advance(1.0)
    watcher.turned(world.sync.fleet, _snapshot(world))


def _add_pod(world: DecisionWorld, number: int) -> None:
    """One more pod of a Deployment runs."""
    pod = next(pod for pod in world.pods if not pod.workload and pod.namespace == "serving")
    more = replace(pod, name=f"{pod.name}-{number}", uid=f"{pod.uid}-{number}")
    world.brain.hear(Observed("pods", Changes((Delta(DeltaKind.ADDED, more.key, more),), "0")))


_CHANGED: dict[str, Callable[[DecisionWorld, int], None]] = {
    "turn_node_changed": lambda world, number: _touch(world.mirror.nodes, "created_at_s", number),
    "turn_claim_changed": lambda world, number: _touch(world.mirror.claims, "price_usd_h", number),
    "turn_gang_changed": lambda world, number: _touch(world.mirror.gangs, "evictions", number),
    "turn_pod_added": _add_pod,
}
"""One object of the kind is another, or came, before each turn."""


def _touch(table: MirrorTable[Any], name: str, number: int) -> None:
    key = next(iter(table.current))
    value = table.current[key]
    table.observe(Changes((Delta(DeltaKind.MODIFIED, key, replace(value, **{name: number})),), "0"))


def _changed_ms(world: DecisionWorld, change: Callable[[DecisionWorld, int], None]) -> float:
    taken = []
    for number in range(1, 8):
        change(world, number)
        began = time.process_time()
        world.brain.turn()
        taken.append(time.process_time() - began)
    return 1000 * statistics.median(taken)


def _waiting_ms(world: DecisionWorld, count: int) -> float:
    """The admission cycle with gangs that have quota and nowhere to go: the pool is at its limit."""
    fleet, snapshot = world.sync.fleet, _snapshot(world)
    assert fleet is not None
    running = next(iter(snapshot.gangs.values()))
    waiting = {
        f"waiting-{number}": replace(
            running,
            uid=f"waiting-{number}",
            workload=f"waiting-{number}",
            state=GangState.PENDING,
            pins=(),
            flavors={},
            pod_sets=(replace(running.pod_sets[0], count=1 + number),),
        )
        for number in range(count)
    }
    crowded = replace(snapshot, gangs={**snapshot.gangs, **waiting})
    decided = cycle.decide(fleet, crowded)
    reasons = {action.gang.reason for action in decided if isinstance(action, SaveGang)}
    if reasons != {Reason.POOL_LIMIT}:
        raise RuntimeError(f"the gangs should wait for the pool's limit: {decided[:2]}")
    return _median_ms(lambda: cycle.decide(fleet, crowded))


def _turns(world: DecisionWorld, step_s: float) -> float:
    taken = []
    for number in range(TURNS):
        world.churn(number)
        world.clock.advance(step_s)
        began = time.process_time()
        world.brain.turn()
        taken.append(time.process_time() - began)
    return 1000 * statistics.median(taken)


def _median_ms(work: Callable[[], Any]) -> float:
    taken = []
    for _ in range(5):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return 1000 * statistics.median(taken)


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:44} {value:12,.1f}")
