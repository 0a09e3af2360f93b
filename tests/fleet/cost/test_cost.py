"""Who pays: shares, and an identity that is exact whatever the world; and what an interruption would waste."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cost.allocation import Bill, allocate
from fleet.cost.lost_work import devices, lost_since_s, lost_work_s, lost_work_usd
from fleet.cost.machine_use import IDLE
from fleet.cost.uses import CostTerms, uses
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import PodSet
from model import labels
from tests.support.fleets import GPU, M7, NOW, FleetBuilder, foreign_pod, gang
from tests.support.world import World

HOUR = 3600.0
TERMS = CostTerms(payer_of)


def world() -> World:
    builder = FleetBuilder().pool().pool("cpu", instanceTypes=[M7.name])
    for team in ("a", "b"):
        builder.team(team, {"h100": {GPU: 99}, "cpu": {"cpu": "99"}}, namespaces=[team]).queue(f"q{team}", team)
    made = World(builder.build())
    made.machine("m0")
    return made


def of(team: str, gpu: int, name: str = "", **more: Any) -> Any:
    return gang(name or f"{team}{gpu}", gpu=gpu, queue=f"q{team}", namespace=team, **more)


def whole_bill(made: World, seconds: float = HOUR, terms: CostTerms = TERMS) -> Bill:
    seen = made.snapshot()
    return allocate(seen.index, uses(made.fleet, seen, terms), seconds)


def bill(made: World, seconds: float = HOUR, terms: CostTerms = TERMS) -> dict[str, float]:
    found = whole_bill(made, seconds, terms)
    assert sum(found.by_team.values()) == found.total
    return {team: amount / 1e6 for team, amount in found.by_team.items()}


def test_what_nobody_takes_is_idle() -> None:
    assert bill(world()) == {IDLE: 98.0}


def test_gpus_are_what_a_machine_is_shared_by() -> None:
    made = world()
    made.runs(of("a", 4), ("m0", 1))
    made.runs(of("b", 2), ("m0", 1))
    assert bill(made) == {"a": 49.0, "b": 24.5, IDLE: 24.5}
    assert bill(made, 1800) == {"a": 24.5, "b": 12.25, IDLE: 12.25}


@pytest.mark.parametrize(("namespace", "queue", "pays"), [("a", "qb", "a"), ("nobodys", "qb", "b"), ("a", "gone", "a")])
def test_a_queue_that_was_written_into_a_workload_puts_it_on_nobody_elses_bill(
    namespace: str, queue: str, pays: str
) -> None:
    """Whoever may edit a namespace may patch its Workloads: another team paid for what that one ran."""
    made = world()
    made.runs(gang("w", gpu=8, queue=queue, namespace=namespace), ("m0", 1))
    assert bill(made) == {pays: 98.0}


def test_several_gangs_of_a_team_pay_together() -> None:
    made = world()
    made.runs(of("a", 4, "x"), ("m0", 1))
    made.runs(of("a", 4, "y"), ("m0", 1))
    assert bill(made) == {"a": 98.0}


def test_pods_of_no_gang_are_paid_for_by_the_team_of_their_namespace() -> None:
    made = world()
    made.runs(of("a", 2), ("m0", 1))
    for namespace in ("b", "nobody"):
        shape = PodSet("pods", 1, {GPU: 1}, namespace=namespace)
        pod = replace(foreign_pod(f"p{namespace}", "node-m0", {GPU: 1}), namespace=namespace, shape=shape)
        made.stands(pod)
    assert bill(made) == {"a": 24.5, "b": 12.25, IDLE: 61.25}


def test_cpus_where_there_is_no_gpu() -> None:
    made = world()
    made.machine("c0", "cpu", M7.name)
    made.runs(gang("g", PodSet("main", 1, {"cpu": 7000}), queue="qa", namespace="a"), ("c0", 1), flavor="cpu")
    assert bill(made) == {"a": 0.4, IDLE: 98.4}


def test_slices_count_by_number() -> None:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    made = World(builder.pool(sharing={"mig": {"layouts": ["small"]}}).team().queue().build())
    made.machine("m0")
    made.runs(gang("g", PodSet("main", 14, {labels.MIG_RESOURCE_PREFIX + "1g.10gb": 1})), ("m0", 14))
    assert bill(made) == {"t": 24.5, IDLE: 73.5}


def test_a_machine_that_is_over_full_costs_what_it_costs() -> None:
    """Two gangs pinned to more than there is (a machine that shrank): they share the price."""
    made = world()
    made.runs(of("a", 8), ("m0", 1))
    made.runs(of("b", 8), ("m0", 1))
    assert bill(made) == {"a": 49.0, "b": 49.0}


@pytest.mark.parametrize(("namespace", "pays"), [("a", "a"), ("nobodys", IDLE)])
def test_work_in_a_queue_that_is_not_declared_is_paid_by_the_team_of_its_namespace(namespace: str, pays: str) -> None:
    """A queue that was removed, or that somebody has written into the Workload by hand."""
    made = world()
    made.runs(of("a", 8), ("m0", 1))
    made.gangs["uid-a8"] = replace(made.gang("a8"), queue="gone", namespace=namespace)
    assert bill(made) == {pays: 98.0}


@pytest.mark.parametrize(
    ("claim", "state", "pays"),
    [
        ({}, "running", True),
        ({"ready_at_s": 0.0, "registered_at_s": 0.0}, "pending", True),
        ({"deleting": True}, "running", True),
        ({"launched_at_s": 0.0, "registered_at_s": 0.0, "ready_at_s": 0.0}, "running", False),
        ({}, "shutting-down", False),
        ({}, "terminated", False),
    ],
)
def test_what_bills(claim: dict[str, Any], state: Any, pays: bool) -> None:
    made = world()
    made.claims["m0"] = replace(made.claims["m0"], **claim)
    made.instances["i-m0"] = replace(made.instances["i-m0"], state=state)
    assert bool(bill(made)) is pays


def test_bills_add_up() -> None:
    left, right = Bill(5, {"a": 2, IDLE: 3}), Bill(7, {"b": 4, IDLE: 3})
    assert left.plus(right) == Bill(12, {"a": 2, "b": 4, IDLE: 6})
    assert Bill().plus(left) == left


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_teams_and_the_idle_rest_are_the_bill(data: st.DataObject) -> None:
    made = world()
    for n in range(data.draw(st.integers(0, 3))):
        made.machine(f"x{n}", price_usd_h=data.draw(st.floats(0, 300, allow_nan=False)))
    for n in range(data.draw(st.integers(0, 5))):
        team = data.draw(st.sampled_from("ab"))
        places = data.draw(st.lists(st.sampled_from(sorted(made.claims)), min_size=1, max_size=3, unique=True))
        it = of(team, data.draw(st.integers(1, 8)), f"g{n}", count=len(places))
        made.runs(it, *[(place, data.draw(st.integers(1, 2))) for place in places], pods=False)
    seconds = data.draw(st.floats(0, 1e5, allow_nan=False))
    used = uses(made.fleet, made.snapshot(), TERMS)
    own_s = data.draw(st.dictionaries(st.sampled_from(sorted(used)), st.floats(0, 1e5)))
    found = allocate(made.snapshot().index, used, seconds, [(used[key], lasted_s) for key, lasted_s in own_s.items()])
    assert found.total == sum(found.by_team.values())
    times = ((it.price_usd_h, own_s.get(it.instance_id, seconds)) for it in made.claims.values())
    each = (round(usd_h * 1_000_000 * lasted_s / HOUR) for usd_h, lasted_s in times)
    assert found.total == sum(each)
    assert all(amount >= 0 for amount in found.by_team.values())


def test_a_gang_takes_at_most_a_whole_machine() -> None:
    made = world()
    made.runs(of("a", 8, count=2), ("m0", 2), pods=False)
    assert bill(made) == {"a": 98.0}


# -- lost work --------------------------------------------------------------------------------------------------------

STARTED = NOW - 5 * HOUR


@pytest.mark.parametrize(
    ("checkpoint_s", "interval_s", "since_s"),
    [
        pytest.param(None, None, STARTED, id="nothing known: all of it"),
        pytest.param(NOW - HOUR, None, NOW - HOUR, id="since the checkpoint"),
        pytest.param(NOW - HOUR, 60.0, NOW - HOUR, id="what is known beats what is promised"),
        pytest.param(None, 2 * HOUR, NOW - HOUR, id="two whole intervals of its five hours"),
        pytest.param(None, 99 * HOUR, STARTED, id="no more than it has run"),
        pytest.param(STARTED - HOUR, None, STARTED, id="a checkpoint of an earlier run"),
        pytest.param(NOW + HOUR, None, NOW, id="a clock that runs ahead"),
    ],
)
def test_since_when_work_is_lost(checkpoint_s: float | None, interval_s: float | None, since_s: float) -> None:
    it = gang("g", admitted_at_s=STARTED, last_checkpoint_s=checkpoint_s, checkpoint_interval_s=interval_s)
    assert lost_since_s(it, NOW) == since_s
    said = checkpoint_s is not None or interval_s is not None
    assert lost_work_s(it, NOW) == ((NOW - since_s) * devices(it) if said else 0.0), "whose silence protects nobody"


def test_silence_loses_nothing_in_an_order_and_all_in_a_price() -> None:
    """Somebody has to make room, and must not be spared for saying nothing; nobody has to be stopped for a saving."""
    made = world()
    made.machine("m1")
    silent = made.runs(of("a", 8), ("m0", 1), admitted_at_s=STARTED)
    saying = made.runs(of("b", 8, checkpoint_interval_s=2 * HOUR), ("m1", 1), admitted_at_s=STARTED)
    assert lost_work_s(silent, NOW) < lost_work_s(saying, NOW) == HOUR * 8
    seen = made.snapshot()
    assert (lost_work_usd(silent, seen), lost_work_usd(saying, seen)) == pytest.approx((5 * 98.0, 98.0))


def test_lost_work_is_the_price_of_all_its_machines() -> None:
    made = world()
    made.machine("m1")
    it = made.runs(of("a", 8, count=2), ("m0", 1), ("m1", 1), admitted_at_s=NOW - 2 * HOUR)
    assert lost_work_usd(it, made.snapshot()) == pytest.approx(2 * 2 * 98.0)
    assert lost_work_usd(replace(it, last_checkpoint_s=NOW), made.snapshot()) == 0
    assert lost_work_usd(gang("new"), made.snapshot()) == 0


@pytest.mark.parametrize(("gpus", "count", "part"), [(1, 1, 1 / 8), (2, 3, 6 / 8), (8, 1, 1.0)])
def test_of_a_machine_that_it_shares_a_gang_loses_its_part(gpus: int, count: int, part: float) -> None:
    """Each of 56 gangs on the slices of one machine would have lost all of it."""
    made = world()
    it = made.runs(of("a", gpus, count=count), ("m0", count), admitted_at_s=NOW - 2 * HOUR)
    assert lost_work_usd(it, made.snapshot()) == pytest.approx(2 * 98.0 * part)
