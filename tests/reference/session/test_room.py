"""Who leaves, for whom, and who does not: taking back, preempting, moving, ending."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.reference.session.decide import decide
from tests.reference.session.fair import FairLedger, FairQueue
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.values import Crew, CrewGroup, Decision, Squad
from tests.support.session import GPU, fair, job, machine, machines, pods, wrongs

RECLAIM, PREEMPT = Policy(stages=(SessionStage.RECLAIM,)), Policy(stages=(SessionStage.PREEMPT,))
MOVE = Policy(stages=(SessionStage.CONSOLIDATE,))


def gone(decision: Decision) -> list[str]:
    return sorted(eviction.pod for eviction in decision.evicted)


def four(queue: str = "b") -> list[Squad]:
    """Four running jobs of one GPU, the last the newest."""
    return [job(f"v{number}", queue, on=["n1"], created=number) for number in range(4)]


@pytest.mark.parametrize(
    ("claimant", "victims", "ledger", "evicted"),
    [
        pytest.param(job("x", gpus=1), four(), fair(a=4, b=0), ["v3-0"], id="the newest"),
        pytest.param(job("x", gpus=2), four(), fair(a=4, b=0), ["v2-0", "v3-0"], id="as many as it takes"),
        pytest.param(
            job("x"),
            [replace(job("v0", "b", on=["n1"]), lost_work=5.0), *four()[1:3], job("w", "b", on=["n1"], priority=-1)],
            fair(a=4, b=0),
            ["w-0"],
            id="the lowest priority",
        ),
        pytest.param(
            job("x"),
            [*four()[:3], replace(job("w", "b", on=["n1"], created=9), lost_work=5.0)],
            fair(a=4, b=0),
            ["v2-0"],
            id="the least lost work before the newest",
        ),
        pytest.param(
            job("x"),
            [job("v", "b", 4, at_least=2, on=["n1"] * 4)],
            fair(a=4, b=0),
            ["v-3"],
            id="surplus before the core",
        ),
        pytest.param(
            job("x", gpus=3),
            [job("v", "b", 4, at_least=2, on=["n1"] * 4)],
            fair(a=4, b=0),
            ["v-0", "v-1", "v-2", "v-3"],
            id="a gang leaves as a whole",
        ),
        pytest.param(job("x"), four(), fair(a=0, b=4), [], id="who is owed nothing takes nothing"),
        pytest.param(job("x"), four(), fair(a=4, b=4), [], id="who holds no more than its quota keeps it"),
        pytest.param(job("x", gpus=5), four(), fair(a=8, b=0), [], id="for somebody who never fits nobody leaves"),
        pytest.param(
            job("x"), [replace(squad, preemptible=False) for squad in four()], fair(a=4, b=0), [], id="firm work stays"
        ),
        pytest.param(replace(job("x"), may_evict=False), four(), fair(a=4, b=0), [], id="not yet allowed to"),
        pytest.param(job("x", count=2), four(), fair(a=1, b=0), ["v2-0", "v3-0"], id="fair share is enough"),
        pytest.param(job("x", gpus=2, preemptible=False), four(), fair(a=1, b=0), [], id="not for firm work"),
    ],
)
def test_taking_back(claimant: Squad, victims: list[Squad], ledger: SessionLedger, evicted: list[str]) -> None:
    squads = [claimant, *victims]
    decision = decide(machines(1, gpus=4), squads, ledger, RECLAIM)
    assert gone(decision) == evicted
    assert all(eviction.beneficiary == "x" and eviction.reason == "reclaim" for eviction in decision.evicted)
    assert not wrongs(machines(1, gpus=4), squads, decision)


@pytest.mark.parametrize(
    ("ran_for_s", "grace", "evicted"),
    [
        pytest.param(10.0, {"b": 60.0}, [], id="has only just started"),
        pytest.param(70.0, {"b": 60.0}, ["v-0", "v-1"], id="has run long enough"),
        pytest.param(None, {"b": 60.0}, ["v-0", "v-1"], id="nobody knows since when"),
        pytest.param(10.0, {}, ["v-0", "v-1"], id="nothing is granted"),
        pytest.param(10.0, {"top": 60.0}, [], id="granted by the queue above"),
        pytest.param(10.0, {"top": 60.0, "b": 5.0}, ["v-0", "v-1"], id="the nearest decides"),
        pytest.param(10.0, {"b": 60.0, "top": 0.0}, [], id="and be it longer"),
    ],
)
def test_min_run_time(ran_for_s: float | None, grace: dict[str, float], evicted: list[str]) -> None:
    queues = [
        FairQueue("top", quota={GPU: 2}, reclaim_min_runtime_s=grace.get("top")),
        FairQueue("a", "top", quota={GPU: 2}),
        FairQueue("b", "top", quota={GPU: 0}, reclaim_min_runtime_s=grace.get("b")),
    ]
    victim = replace(job("v", "b", 2, on=["n1", "n1"]), ran_for_s=ran_for_s)
    assert gone(decide(machines(1, gpus=2), [job("x", gpus=2), victim], FairLedger(queues), RECLAIM)) == evicted


def test_surplus_is_not_protected() -> None:
    queues = [FairQueue("a", quota={GPU: 2}), FairQueue("b", quota={GPU: 0}, reclaim_min_runtime_s=60.0)]
    victim = replace(job("v", "b", 4, at_least=2, on=["n1"] * 4), ran_for_s=1.0)
    squads = [job("x"), job("y", count=2, created=1), victim]
    assert gone(decide(machines(1, gpus=4), squads, FairLedger(queues), RECLAIM)) == ["v-3"]


@pytest.mark.parametrize(
    ("policy", "priority", "evicted"),
    [
        pytest.param(PREEMPT, 1, ["v3-0"], id="a higher priority"),
        pytest.param(PREEMPT, 0, [], id="the same priority"),
        pytest.param(replace(PREEMPT, preempts=False), 1, [], id="switched off"),
        pytest.param(replace(PREEMPT, lower_priority_only=False), 0, ["v3-0"], id="whatever the priority"),
        pytest.param(replace(PREEMPT, keep_cores=True), 1, [], id="cores are kept"),
    ],
)
def test_preempting(policy: Policy, priority: int, evicted: list[str]) -> None:
    squads = [job("x", priority=priority, created=9), *four("a")]
    assert gone(decide(machines(1, gpus=4), squads, fair(a=4), policy)) == evicted


def test_the_smaller_share_may_preempt() -> None:
    policy = replace(PREEMPT, lower_priority_only=False, smaller_share_only=True)
    squads = [job("x", created=9), job("v", count=3, at_least=1, on=["n1"] * 3), job("w", on=["n1"])]
    assert gone(decide(machines(1, gpus=4), squads, fair(a=4), policy)) == ["v-2"]


def test_work_of_other_queues_is_not_preempted() -> None:
    squads = [job("x", priority=9), *four("b")]
    assert gone(decide(machines(1, gpus=4), squads, fair(a=4, b=0), PREEMPT)) == []


@pytest.mark.parametrize(
    ("policy", "moved", "evicted"),
    [
        pytest.param(RECLAIM, {"v1-0": "n1"}, [], id="a victim that fits elsewhere moves"),
        pytest.param(replace(RECLAIM, moves=False), {}, ["v1-0"], id="unless nothing may move"),
        pytest.param(MOVE, {"v1-0": "n1"}, [], id="nobody needs to be entitled to that"),
    ],
)
def test_moving(policy: Policy, moved: dict[str, str], evicted: list[str]) -> None:
    """Two machines, each half full; the job needs a whole one."""
    squads = [job("x", gpus=2), job("v0", "b", on=["n1"]), job("v1", "b", on=["n2"], created=1)]
    decision = decide(machines(2, gpus=2), squads, fair(a=4, b=0), policy)
    assert {name: placement.node for name, placement in decision.moved.items()} == moved
    assert gone(decision) == evicted
    assert decision.nominated["x-0"].node == "n2"


def test_what_cannot_all_move_stays() -> None:
    squads = [job("x", gpus=2), job("v0", "b", on=["n1"]), job("v1", "b", 2, on=["n2", "n2"])]
    decision = decide(machines(2, gpus=2), squads, fair(a=4, b=0), MOVE)
    assert not decision.moved
    assert not decision.nominated


@pytest.mark.parametrize(
    ("stale", "running", "evicted"),
    [
        pytest.param(True, 1, ["x-0"], id="below its minimum for too long"),
        pytest.param(False, 1, [], id="not yet for too long"),
        pytest.param(True, 2, [], id="not below"),
    ],
)
def test_stale_gangs(stale: bool, running: int, evicted: list[str]) -> None:
    crew = Crew("", pods("x", 3, on=["n1"] * running), 2)
    squad = Squad("x", "a", CrewGroup("", (crew,), 1), stale=stale)
    decision = decide(machines(1, gpus=0), [squad], fair(a=4), Policy(stages=(SessionStage.STALE,)))
    assert gone(decision) == evicted


def test_a_gang_that_just_got_more_is_not_broken_at_once() -> None:
    """Its third pod was bound a moment ago; evicting the two that ran would leave that one alone."""
    given = [machine("n1", 2), machine("n2", 1)]
    squads = [job("v", "b", 3, at_least=2, on=["n1", "n1"]), job("x", gpus=2)]
    decision = decide(given, squads, fair(a=3, b=0), Policy(stages=(SessionStage.ALLOCATE, SessionStage.RECLAIM)))
    assert list(decision.bound) == ["v-2"]
    assert not wrongs(given, squads, decision)


def test_work_of_queues_nobody_knows_neither_gets_nor_gives_room() -> None:
    squads = [job("x", "a", gpus=2), job("y", "unknown", priority=9), job("v", "unknown", on=["n1"])]
    decision = decide(
        machines(1, gpus=2), squads, fair(a=2), Policy(stages=(SessionStage.RECLAIM, SessionStage.PREEMPT))
    )
    assert not decision.evicted
    assert list(decision.pending) == ["x-0", "y-0"]
    assert not decide(machines(1, gpus=2), squads[1:], fair(a=2), Policy()).evicted


def test_nobody_leaves_who_is_not_in_the_way() -> None:
    """The newest are on the other machine: both have to be considered, one kind of them stays after all."""
    victims = [job(f"v{n}", "b", on=["n1" if n < 2 else "n2"], created=n) for n in range(3)]
    given = [machine("n1", 2), machine("n2", 1)]
    assert gone(decide(given, [job("x", gpus=2), *victims], fair(a=3, b=0), RECLAIM)) == ["v0-0", "v1-0"]


def test_victims_are_found_machine_by_machine() -> None:
    """Surplus of which only the pods on one machine help: the order of the pods alone would free one on each."""
    nodes = ["n1", "n2", "n1", "n2"]
    victim = job("v", "b", 4, at_least=2, on=nodes)
    policy = replace(RECLAIM, moves=False, keep_cores=True)
    decision = decide(machines(2, gpus=2), [job("x", gpus=2), victim], fair(a=4, b=0), policy)
    assert list(decision.nominated) == ["x-0"]
    assert {int(name[-1]) % 2 for name in gone(decision)} in ({0}, {1})


@pytest.mark.parametrize(("policy", "priority"), [(RECLAIM, 0), (PREEMPT, 1)], ids=["taking back", "preempting"])
def test_a_gang_is_not_broken_where_its_surplus_on_one_machine_is_enough(policy: Policy, priority: int) -> None:
    queue = "a" if priority else "b"
    victim = job("v", queue, 4, at_least=2, on=["n1", "n2", "n1", "n2"])
    squads = [job("x", gpus=2, priority=priority), victim]
    decision = decide(machines(2, gpus=2), squads, fair(a=4, b=0), replace(policy, moves=False))
    assert len(decision.evicted) == 2
    assert not wrongs(machines(2, gpus=2), squads, decision)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_share_of_each_queue_comes_back_and_then_there_is_peace(count: int) -> None:
    """Two queues of equal quota, all of it taken by one: it keeps its half however often is decided."""
    running = [job(f"v{n}", "b", on=["n1"], created=n) for n in range(4)]
    waiting: Sequence[Squad] = [job(f"x{n}", "a", created=10 + n) for n in range(count)]
    decision = decide(machines(1, gpus=4), [*waiting, *running], fair(a=2, b=2), Policy())
    assert len(gone(decision)) == min(count, 2)
    assert len(decision.nominated) == min(count, 2)
