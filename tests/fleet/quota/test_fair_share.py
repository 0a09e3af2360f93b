"""Fair shares: what each node is entitled to, by guarantee, weight and demand."""

import math

import pytest

from fleet.quota.fair_share import Demand, share_out
from fleet.quota.specs import UNLIMITED, QuotaCohortSpec, QuotaQueueSpec
from fleet.quota.tree import QuotaTree, charge
from fleet.scheduling import cycle
from fleet.snapshot import GangState
from model import labels
from tests.support.fleets import FleetBuilder, gang, plain_node, pod_set
from tests.support.quotas import cell_name, quotas
from tests.support.world import World

CPU = cell_name("f").resource


def tree(
    *, whole: int = 8, weights: tuple[float, float] = (1.0, 1.0), limit: int | None = None, below: str = "root"
) -> QuotaTree:
    """Two queues that are each promised 2 of `whole` + 4."""
    cohorts = [QuotaCohortSpec("root", "", quotas({"f": whole}))]
    cohorts += [QuotaCohortSpec(below, "root")] if below != "root" else []
    own = quotas({"f": (2, limit) if limit is not None else 2})
    queues = [
        QuotaQueueSpec(name, below, quotas=own, weight=weight) for name, weight in zip("ab", weights, strict=True)
    ]
    return QuotaTree(cohorts, queues)


def shares(made: QuotaTree, demand: dict[str, int]) -> dict[str, float]:
    asked: Demand = {name: {CPU: amount} for name, amount in demand.items()}
    share_out(made, asked)
    return {name: node.fair_shares[0].amount for name, node in made.queues.items()}


@pytest.mark.parametrize(
    ("made", "demand", "found"),
    [
        pytest.param(tree(), {"a": 12, "b": 12}, {"a": 6, "b": 6}, id="alike"),
        pytest.param(tree(weights=(1, 3)), {"a": 12, "b": 12}, {"a": 4, "b": 8}, id="by weight beyond the guarantee"),
        pytest.param(tree(), {"a": 3, "b": 12}, {"a": 3, "b": 9}, id="no more than it asks for"),
        pytest.param(tree(), {"b": 12}, {"a": 2, "b": 12}, id="an idle guarantee is lent, and kept"),
        pytest.param(tree(limit=1), {"a": 12, "b": 12}, {"a": 3, "b": 3}, id="no more than it may use"),
        pytest.param(tree(below="dept"), {"a": 12, "b": 12}, {"a": 6, "b": 6}, id="level by level"),
        pytest.param(tree(whole=UNLIMITED), {"a": 9, "b": 5}, {"a": 9, "b": 5}, id="all that is asked, of no bound"),
    ],
)
def test_shares(made: QuotaTree, demand: dict[str, int], found: dict[str, float]) -> None:
    assert shares(made, demand) == pytest.approx(found)


def test_the_part_that_is_used() -> None:
    made = tree()
    a = made.queues["a"]
    assert a.share_used() == 0
    shares(made, {"a": 12, "b": 12})
    charge(a, {made.cell(cell_name("f")): 3})
    assert a.share_used() == pytest.approx(0.5)


def test_without_any_share_the_part_is_infinite() -> None:
    made = QuotaTree([QuotaCohortSpec("root", "", quotas({"f": 0}))], [QuotaQueueSpec("a", "root")])
    shares(made, {"a": 4})
    charge(made.queues["a"], {made.cell(cell_name("f")): 1})
    assert made.queues["a"].share_used() == math.inf


def test_who_is_furthest_below_its_fair_share_starts_first() -> None:
    """`mem` has nine times its guarantee of memory, which is no more than its fair share: nobody else asks for it."""
    builder = FleetBuilder().flavor("box", nodeLabels={"box": "yes"})
    builder.team("org", {"box": {"memory": 28}}, namespaces=[])
    for name in ("cpu", "mem"):
        builder.team(name, {"box": {"cpu": "1500m", "memory": 1}}, namespaces=[f"ns-{name}"], parent="org")
        builder.queue(f"q-{name}", name, ["box"], fairness="GuaranteeShare", preemption={"reclaim": "Never"})
    made = World(builder.build())
    made.nodes["n"] = plain_node("n", {"cpu": 3000, "memory": 30, "pods": 10}, {"box": "yes", labels.HOSTNAME: "n"})

    def asks(name: str, team: str, cpu: int, memory: int, age_s: float) -> None:
        one = pod_set(requests={"cpu": cpu, "memory": memory})
        made.waits(gang(name, one, queue=f"q-{team}", namespace=f"ns-{team}", created_s=-age_s))

    def running() -> set[str]:
        made.apply(cycle.decide(made.fleet, made.snapshot()))
        return {it.job.name for it in made.gangs.values() if it.state is GangState.ADMITTED}

    asks("cpu-1", "cpu", 1000, 1, 9)
    asks("mem-1", "mem", 800, 9, 8)
    assert running() == {"cpu-1", "mem-1"}
    asks("cpu-2", "cpu", 700, 1, 7)
    asks("mem-2", "mem", 700, 1, 6)
    assert running() == {"cpu-1", "mem-1", "mem-2"}
