"""Contention at scale: one pass of the agent's own admission over thousands of gangs that compete.

CPU seconds of one pass (`*_s`), the first of its engine; nothing is drawn, so there is no seed. What has to come out of
each pass is checked.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module

from bench import farm
from bench.farm import GPUS
from fleet.actions import Action, SaveGang
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, Pin, PodSet, Snapshot
from model.fleet import Fleet
from model.index import Index
from model.loader import load
from providers.aws.catalog import package_catalog
from providers.kube.memory import settle_heap

SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 8), (4, 2), (8, 8))
"""(pods, GPUs of each)."""
TEAMS = 10
REGION = "us-east-1"
Numbers = dict[str, float]

_BUYS = """
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: any}
spec:
  instanceTypes:
    [g6.4xlarge, g6.12xlarge, g6.48xlarge, g5.4xlarge, g5.48xlarge, p5.48xlarge,
     m7i.8xlarge, m7i.48xlarge, r7i.24xlarge, c7i.24xlarge]
  limits: {nodes: 5000}
---
apiVersion: muster.dev/v1alpha1
kind: PriorityClass
metadata: {name: normal}
spec: {value: 100}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {name: a}
spec:
  namespaces: [a]
  quotas: {any: {guaranteed: {nvidia.com/gpu: 100000}}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: a}
spec: {team: a, flavors: [any]}
"""


def run() -> Numbers:
    """Seconds of each pass."""
    return {name: case() for name, case in CASES.items()}


def full_cluster_s() -> float:
    """1,000 full machines, 8,000 gangs that run and 10,000 that wait in 8 shapes, nobody of whom may evict anybody."""
    fleet, seen = _full_cluster()
    return _decided(fleet, seen, {GangState.PENDING: 10_000})


def same_again_s() -> float:
    """The same once everybody has been told why they wait, when nothing has happened but that a second has passed."""
    fleet, seen = _full_cluster()
    told = {it.gang.uid: it.gang for it in cycle.decide(fleet, seen) if isinstance(it, SaveGang)}
    rested = replace(seen, gangs={**seen.gangs, **told})
    _decided(fleet, rested, {GangState.PENDING: 0})
    return _decided(fleet, replace(rested, now_s=rested.now_s + 1), {GangState.PENDING: 0})


def _full_cluster() -> tuple[Fleet, Snapshot]:
    machines = 1_000
    share = machines * GPUS // TEAMS
    teams = {f"t{team}": share for team in range(TEAMS)}
    running = [
        farm.gang(f"runs-{number:05}", f"t{number // share}", on=[Pin("main", f"n{number // GPUS:05}", "", 1)])
        for number in range(machines * GPUS)
    ]
    waiting = list(_waiting(10_000, SHAPES, list(teams)))
    return farm.fleet(**teams), farm.snapshot(machines, [*running, *waiting], Index())


def many_queues_s() -> float:
    """10,000 machines, 10,000 gangs that wait in 2,000 queues, each with room for its own."""
    queues = {f"q{number:04}": 5 * GPUS for number in range(2_000)}
    waiting = list(_waiting(10_000, [(1, 8)], list(queues)))
    return _pass(farm.fleet(**queues), 10_000, waiting, {GangState.ADMITTED: 10_000})


def many_shapes_s() -> float:
    """5,000 machines, 10,000 gangs of 32 shapes in 10 queues: more than there is room for."""
    shapes = [(1 + number % 4, 1 + number // 4) for number in range(32)]
    teams = {f"t{team}": 5_000 * GPUS // TEAMS for team in range(TEAMS)}
    return _pass(farm.fleet(**teams), 5_000, list(_waiting(10_000, shapes, list(teams))), {})


def thousand_different_s() -> float:
    """1,000 jobs of a pod, no two alike, for all of which machines are bought."""
    fleet = load({"fleet.yaml": _BUYS.encode()})
    gangs = []
    for number in range(1_000):
        asks = {"cpu": 1_000 + 37 * number, "memory": (2 + number % 61) * 2**30 + number * 2**20}
        if number % 3 == 0:
            asks[farm.GPU] = 1 + number % 8
        gang = farm.gang(f"own-{number:04}", "a")
        gangs.append(replace(gang, pod_sets=(PodSet("main", 1, asks),)))
    catalog = package_catalog(REGION).catalog
    seen = Snapshot(farm.NOW_S, catalog=catalog, gangs={gang.uid: gang for gang in gangs}, index=Index())
    return _decided(fleet, seen, {GangState.RESERVED: 1_000})


def reclaim_s() -> float:
    """8,000 borrowers of a GPU, spread over 1,000 machines; a gang of 500 machines wants its guarantee back."""
    machines = 1_000
    large = farm.gang("large", "a", machines // 2, 8)
    spread = farm.singles("b", machines, spread=True)
    return _pass(farm.fleet(a=machines * GPUS, b=0), machines, [*spread, large], {GangState.PENDING: 1})


def one_tenant_s() -> float:
    """500 machines: 10,000 jobs of a pod wait in one queue, and one job in another."""
    jobs = _waiting(10_000, [(1, 1)], ["crowd"])
    return _pass(farm.fleet(crowd=2_000, other=2_000), 500, [*jobs, farm.gang("other", "other")], {})


def many_leave_s() -> float:
    """400 machines, 3,200 evicted gangs that have not left them yet, and 4,000 that wait for them in another queue."""
    machines, told_s = 400, farm.NOW_S - 5
    running = farm.singles("b", machines)
    leaving = [gang.moved(GangState.EVICTING, "Reclaimed", "makes room", told_s) for gang in running]
    waiting = _waiting(4_000, [(1, 1)], ["a"])
    return _pass(farm.fleet(a=machines * GPUS, b=0), machines, [*leaving, *waiting], {GangState.PENDING: 4_000})


def _waiting(count: int, shapes: Iterable[tuple[int, int]], queues: list[str]) -> Iterable[Gang]:
    """Gangs of all shapes in turn, as many in each queue."""
    shapes = list(shapes)
    for number in range(count):
        pods, gpus = shapes[number // len(queues) % len(shapes)]
        yield farm.gang(f"waits-{number:05}", queues[number % len(queues)], pods, gpus)


def _pass(fleet: Fleet, machines: int, gangs: Iterable[Gang], expected: Mapping[GangState, int]) -> float:
    return _decided(fleet, farm.snapshot(machines, gangs, Index()), expected)


def _decided(fleet: Fleet, seen: Snapshot, expected: Mapping[GangState, int]) -> float:
    import_module("fleet.scheduling.joint_purchase")  # once in the life of an agent, with numpy
    settle_heap()  # as the agent does once it has read its cluster
    began_s = time.process_time()
    actions = cycle.decide(fleet, seen)
    seconds = time.process_time() - began_s
    found = _outcome(actions)
    if any(found[state] != count for state, count in expected.items()):
        raise RuntimeError(f"expected {dict(expected)}, got {found}")
    return seconds


def _outcome(actions: Iterable[Action]) -> Counter[GangState]:
    return Counter(action.gang.state for action in actions if isinstance(action, SaveGang))


CASES = {
    "full_1000_machines_10000_waiting_s": full_cluster_s,
    "the_same_again_s": same_again_s,
    "2000_queues_10000_waiting_s": many_queues_s,
    "32_shapes_10000_waiting_s": many_shapes_s,
    "1000_different_bought_s": thousand_different_s,
    "reclaim_8000_spread_s": reclaim_s,
    "one_tenant_10000_s": one_tenant_s,
    "3200_leave_4000_wait_s": many_leave_s,
}
