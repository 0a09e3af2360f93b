"""One decision on 500 given machines of 8 GPUs: filling them, big gangs, reclaim, proving that something cannot be."""

import time
from collections.abc import Sequence

from fleet.snapshot import PodSet
from tests.reference.session.decide import decide
from tests.reference.session.fair import FairLedger, FairQueue
from tests.reference.session.floor import GPU
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.values import Crew, CrewGroup, Decision, PodState, SessionMachine, SessionPod, Squad

NODES, GPUS = 500, 8
CAPACITY = {"cpu": 32_000, "memory": 256 << 30, "pods": 110, GPU: GPUS}
ALL = Policy()


def _machines() -> list[SessionMachine]:
    return [SessionMachine(f"node-{number:04}", CAPACITY) for number in range(NODES)]


def _template(gpus: int) -> PodSet:
    return PodSet("worker", 1, {"cpu": 100, "memory": 1 << 30, GPU: gpus})


ONE, EIGHT = _template(1), _template(8)


def _squad(name: str, queue: str, pods: Sequence[SessionPod], created: int) -> Squad:
    return Squad(name, queue, CrewGroup("", (Crew("", tuple(pods), len(pods)),), 1), created=created)


def _singles(queue: str, count: int, *, running: bool, after: int = 0) -> list[Squad]:
    """One-GPU jobs; running ones are spread so that neighbours in age are on different machines."""
    found = []
    for number in range(count):
        state, node = (PodState.RUNNING, f"node-{number % NODES:04}") if running else (PodState.PENDING, "")
        name = f"{queue}-{number:04}"
        found.append(_squad(name, queue, [SessionPod(f"{name}-0", ONE, state, node)], after + number))
    return found


def _gang(queue: str, name: str, size: int, template: PodSet, created: int = 100_000) -> Squad:
    return _squad(name, queue, [SessionPod(f"{name}-{number:03}", template) for number in range(size)], created)


def _queues(quota_a: float, quota_b: float) -> list[FairQueue]:
    return [
        FairQueue("a", quota={GPU: quota_a}, weight={GPU: 0}),
        FairQueue("b", quota={GPU: quota_b}, weight={GPU: 0}),
    ]


def _timed(squads: Sequence[Squad], queues: Sequence[FairQueue], policy: Policy = ALL) -> tuple[float, Decision]:
    """CPU milliseconds, input in hand."""
    machines, ledger = _machines(), FairLedger(queues)
    began = time.process_time()
    decision = decide(machines, squads, ledger, policy)
    return (time.process_time() - began) * 1000, decision


def measure() -> dict[str, float]:
    """CPU milliseconds for each decision, and how many pods came of it, so that a wrong answer shows."""
    found: dict[str, float] = {}
    total = NODES * GPUS
    fill_ms, decision = _timed(_singles("a", total, running=False), _queues(total, 0))
    found.update(fill_4000_ms=fill_ms, fill_4000_bound=len(decision.bound))

    gang_ms, decision = _timed([_gang("a", "big", 512, ONE)], _queues(total, 0))
    found.update(gang_512_ms=gang_ms, gang_512_bound=len(decision.bound))

    running = _singles("a", total, running=True)
    big_ms, decision = _timed([*running, _gang("b", "big", 250, EIGHT)], _queues(2_000, 2_000))
    found.update(reclaim_250x8_ms=big_ms, reclaim_250x8_evicted=len(decision.evicted))

    short = [*running, _gang("b", "short", 10, EIGHT)]
    all_ms, decision = _timed(short, _queues(total - 79, 79))
    found.update(unschedulable_10x8_with_reading_ms=all_ms, unschedulable_10x8_evicted=len(decision.evicted))
    only = Policy(stages=(SessionStage.RECLAIM,))
    read_ms = min(_timed(running, _queues(total - 79, 79), only)[0] for _ in range(3))
    proof_ms = min(_timed(short, _queues(total - 79, 79), only)[0] for _ in range(3))
    found["unschedulable_10x8_ms"] = max(0.0, proof_ms - read_ms)

    waiting = _singles("b", total, running=False, after=total)
    each_ms, decision = _timed([*running, *waiting], _queues(0, total))
    found.update(reclaim_4000_singly_ms=each_ms, reclaim_4000_singly_evicted=len(decision.evicted))
    found["nothing_to_do_ms"] = _timed(running, _queues(total, 0))[0]
    return found


run = measure
