"""Queues after Volcano: weights, what is deserved flat and in a tree, dominant shares, and several of these at once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.reference.session.decide import decide
from tests.reference.session.deserving import DeservingLedger
from tests.reference.session.dominance import DominanceLedger
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.together import Together
from tests.reference.session.values import Decision, Squad
from tests.reference.session.weighted import LedgerRules, ShareQueue, WeightedLedger
from tests.support.session import GPU, job, machines

RESOURCES = ("cpu", "memory", GPU)
ALLOCATE, RECLAIM = Policy(stages=(SessionStage.ALLOCATE,)), Policy(stages=(SessionStage.RECLAIM,))
GATED = Policy(stages=(SessionStage.ENQUEUE, SessionStage.ALLOCATE))


def weighted(**weights: int) -> WeightedLedger:
    return WeightedLedger(
        [ShareQueue(name, weight=weight) for name, weight in weights.items()], RESOURCES, LedgerRules()
    )


def deserving(*queues: ShareQueue, tree: bool = False, levels: int = 0) -> DeservingLedger:
    return DeservingLedger(queues, RESOURCES, LedgerRules(), tree=tree, levels=levels)


def due(name: str, gpus: float, parent: str = "", **more: float) -> ShareQueue:
    return ShareQueue(name, parent, deserved={GPU: gpus} if gpus else {}, **more)  # type: ignore[arg-type]


def of_queues(decision: Decision, squads: Sequence[Squad]) -> dict[str, int]:
    """GPUs bound or nominated, by queue."""
    queues = {squad.name: squad.queue for squad in squads}
    found: dict[str, int] = {}
    for name in (*decision.bound, *decision.nominated):
        queue = queues[name.rsplit("-", 1)[0]]
        found[queue] = found.get(queue, 0) + 1
    return found


def each(queue: str, count: int, *, running: bool = False) -> list[Squad]:
    return [job(f"{queue}{n}", queue, on=["n1"] if running else [], created=n) for n in range(count)]


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        pytest.param(weighted(a=1, b=2), {"a": 2, "b": 4}, id="by weight"),
        pytest.param(weighted(a=1), {"a": 6}, id="nobody else asks"),
        pytest.param(
            WeightedLedger([ShareQueue("a", open=False), ShareQueue("b")], RESOURCES, LedgerRules()),
            {"b": 3},
            id="a closed queue still asks",
        ),
        pytest.param(deserving(due("a", 1), due("b", 5)), {"a": 1, "b": 5}, id="by what is deserved"),
        pytest.param(
            deserving(due("a", 1), replace(due("b", 5), capability={GPU: 2})),
            {"a": 4, "b": 2},
            id="up to the capability",
        ),
        pytest.param(
            deserving(replace(due("a", 3), guarantee={GPU: 3}), due("b", 3)), {"a": 3, "b": 3}, id="guarantees"
        ),
        pytest.param(
            deserving(due("root", 0), due("top", 3, "root"), due("a", 3, "top"), due("b", 3, "root"), tree=True),
            {"a": 3, "b": 3},
            id="leaves of a tree",
        ),
        pytest.param(
            deserving(due("root", 0), due("a", 3, "root"), due("b", 3, "a"), tree=True), {}, id="work in an inner queue"
        ),
    ],
)
def test_six_gpus_for_twelve_jobs(ledger: SessionLedger, expected: dict[str, int]) -> None:
    squads = [squad for squad in (*each("a", 6), *each("b", 6)) if squad.queue in ledger.parents]
    assert of_queues(decide(machines(1, gpus=6), squads, ledger, ALLOCATE), squads) == expected


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        pytest.param(weighted(a=1, b=1), {"a": 2}, id="half of it"),
        pytest.param(weighted(a=1, b=3), {"a": 1}, id="a quarter"),
        pytest.param(deserving(due("a", 3), due("b", 1)), {"a": 3}, id="as much as is deserved"),
        pytest.param(deserving(due("a", 3), due("b", 4)), {}, id="the other deserves all it has"),
        pytest.param(deserving(due("a", 0), due("b", 1)), {}, id="nothing is deserved"),
        pytest.param(
            deserving(due("a", 4), replace(due("b", 0), guarantee={GPU: 3})), {"a": 1}, id="the guarantee is kept"
        ),
        pytest.param(deserving(due("a", 4), replace(due("b", 0), reclaimable=False)), {}, id="not from that queue"),
        pytest.param(
            deserving(
                due("root", 0), due("top", 2, "root"), due("a", 0, "top"), due("b", 0, "root"), tree=True, levels=1
            ),
            {"a": 2},
            id="what the queue above deserves",
        ),
        pytest.param(
            deserving(due("root", 0), due("top", 2, "root"), due("a", 0, "top"), due("b", 0, "root"), tree=True),
            {},
            id="if it is looked at",
        ),
    ],
)
def test_taking_back_four_gpus(ledger: SessionLedger, expected: dict[str, int]) -> None:
    squads = [*each("a", 4), *each("b", 4, running=True)]
    decision = decide(machines(1, gpus=4), squads, ledger, RECLAIM)
    assert of_queues(decision, squads) == expected
    assert len(decision.evicted) == sum(expected.values())


@pytest.mark.parametrize(
    ("ledger", "queued"),
    [
        pytest.param(weighted(a=1), ["x0", "x1"], id="weights"),
        pytest.param(deserving(due("a", 1)), ["x0", "x1"], id="what is deserved does not matter"),
        pytest.param(deserving(ShareQueue("a", capability={GPU: 3})), ["x0"], id="the most does"),
        pytest.param(deserving(ShareQueue("a", open=False)), [], id="closed"),
        pytest.param(
            deserving(ShareQueue("a", capability={GPU: 4}), replace(due("b", 0), guarantee={GPU: 1})),
            ["x0"],
            id="less what is guaranteed to others",
        ),
    ],
)
def test_the_gate(ledger: SessionLedger, queued: list[str]) -> None:
    """Two gangs with a floor of two GPUs each; the machine has four."""
    squads = [replace(job(f"x{n}", count=2, created=n), queued=False, floor={GPU: 2}) for n in range(2)]
    decision = decide(machines(1, gpus=4), squads, ledger, GATED)
    assert list(decision.queued) == queued
    assert len(decision.bound) == 2 * len(queued)


def test_dominant_shares_order_queues_by_their_place_in_the_tree() -> None:
    """Two queues below one node get together what the third gets."""
    queues = [
        ShareQueue("a", path=("root", "one"), weights=(1, 1)),
        ShareQueue("b", path=("root", "two", "b"), weights=(1, 1, 1)),
        ShareQueue("c", path=("root", "two", "c"), weights=(1, 1, 1)),
    ]
    squads = [job(f"{name}", name, 8, at_least=1) for name in "abc"]
    ledger = DominanceLedger(queues, RESOURCES, squads)
    found = of_queues(decide(machines(1, gpus=8), squads, ledger, ALLOCATE), squads)
    assert found == {"a": 4, "b": 2, "c": 2}


def test_several_ledgers_have_to_agree() -> None:
    queues = [due("a", 4), due("b", 2)]
    both: list[SessionLedger] = [
        DeservingLedger(queues, RESOURCES, LedgerRules()),
        WeightedLedger([ShareQueue("a"), ShareQueue("b")], RESOURCES, LedgerRules()),
    ]
    squads = [*each("a", 6), *each("b", 6)]
    together = Together(RESOURCES, {"a": "", "b": ""}, both)
    assert of_queues(decide(machines(1, gpus=6), squads, together, ALLOCATE), squads) == {"a": 3, "b": 3}


def test_without_ledgers_everything_is_allowed_and_the_older_queue_goes_first() -> None:
    squads = [*each("a", 3), *each("b", 3)]
    together = Together(RESOURCES, {"b": "", "a": ""}, [])
    found = decide(machines(1, gpus=4), squads, together, ALLOCATE)
    assert of_queues(found, squads) == {"b": 3, "a": 1}
