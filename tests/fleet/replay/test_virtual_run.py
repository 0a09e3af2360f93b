"""Work through the deciders in virtual time: what must hold whatever comes, and small runs worked out by hand."""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.replay import virtual_agent
from fleet.replay.outcome import ReplayOutcome, outcome_of
from fleet.replay.submissions import PodShape, SubmittedGang
from fleet.replay.variants import Variant
from fleet.replay.virtual_agent import VirtualAgent
from fleet.replay.virtual_run import ReplayWindow, at_home, played, replay, unqueued
from fleet.replay.virtual_world import Shortage
from model.fleet import Fleet
from tests.support.fleets import GPU, NOW, FleetBuilder, catalog

BOOT_S = 240.0
"""How long a machine takes of which nothing is known: see `boot_s`."""
BATCH_S = 1.0
"""For so long a single pod waits for others before a machine is bought for it."""
PODS_S = 10.0
"""From the start of a job until its pods are ready."""
HOUR_S = 3600.0
DAY = ReplayWindow(NOW, NOW + 24 * HOUR_S, 0.0)


def work(
    name: str,
    at_s: float = 0.0,
    run_s: float = HOUR_S,
    *,
    pods: int = 1,
    gpus: int = 8,
    queue: str = "q",
    **more: object,
) -> SubmittedGang:
    shape = PodShape(pods, {GPU: gpus})
    return replace(SubmittedGang(name, "ns", queue, NOW + at_s, run_s, (shape,)), **more)  # type: ignore[arg-type]


def fleet(*, nodes: int = 4, guaranteed: int = 999, **pool: object) -> Fleet:
    quiet = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m", "budgets": [{"nodes": "100%"}]}
    builder = FleetBuilder().pool(limits={"nodes": nodes}, disruption=quiet, **pool)
    builder = builder.team(quotas={"h100": {"guaranteed": {GPU: guaranteed}}}).queue()
    return builder.queue("low", preemption={"withinQueue": "LowerPriority"}).priority("urgent", 100).build()


def after(outcome: VirtualAgent) -> dict[str, tuple[list[tuple[float, float]], float]]:
    """Name -> its runs and what it has lost, in seconds from the beginning."""
    found = outcome.world.gang_histories.values()
    return {it.work.name: ([(a - NOW, b - NOW) for a, b in it.runs], it.lost_s) for it in found}


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_a_gang_waits_for_the_machines_that_are_bought_for_it() -> None:
    ran = after(played(fleet(), catalog(), [work("one", pods=2)], DAY))
    begin_s = BOOT_S + PODS_S
    assert ran == {"one": ([(begin_s, begin_s + HOUR_S)], 0.0)}


def test_a_gang_takes_the_machines_that_another_has_left_and_then_they_go() -> None:
    agent = played(fleet(), catalog(), [work("one"), work("two", HOUR_S + 300.0)], DAY)
    assert len(agent.world.machines) == 1
    [(began_s, ended_s)], _ = after(agent)["two"]
    assert began_s == HOUR_S + 300.0 + PODS_S
    [machine] = agent.world.machines.values()
    assert 600.0 <= machine.to_s - NOW - ended_s <= 700.0


def test_machines_take_others_as_soon_as_the_pods_that_they_were_kept_for_have_come() -> None:
    agent = played(fleet(), catalog(), [work("one", pods=2)], ReplayWindow(NOW, NOW + BOOT_S + PODS_S + 5.0, 0.0))
    assert agent.world.gang_histories
    assert [node.taints for node in agent.world.nodes.view.values()] == [(), ()]


def test_one_that_finds_no_machine_within_the_limit_waits_for_one() -> None:
    ran = after(played(fleet(nodes=1), catalog(), [work("one"), work("two", 60.0)], DAY))
    [(_, first_ends_s)], _ = ran["one"]
    [(second_begins_s, _)], _ = ran["two"]
    assert second_begins_s == first_ends_s + PODS_S


@pytest.mark.parametrize(
    ("checkpoint_s", "lost_s"), [pytest.param(None, 1800.0, id="none"), pytest.param(1000.0, 800.0, id="every 1000 s")]
)
def test_who_is_evicted_runs_again_what_it_has_not_saved(checkpoint_s: float | None, lost_s: float) -> None:
    urgent = work("urgent", BATCH_S + BOOT_S + PODS_S + 1800.0, queue="low", priority_class="urgent")
    first = work("first", queue="low", checkpoint_interval_s=checkpoint_s)
    agent = played(fleet(nodes=1, guaranteed=8), catalog(), [first, urgent], DAY)
    runs, lost = after(agent)["first"]
    assert lost == pytest.approx(lost_s)
    assert agent.world.gang_histories[first.uid].evictions == 1
    assert sum(end - begin for begin, end in runs) == pytest.approx(HOUR_S + lost_s)
    outcome = outcome_of("x", agent, DAY.begin_s, DAY.until_s)
    assert (outcome.total.evictions, outcome.total.lost_gpu_h) == (1, pytest.approx(8 * lost_s / 3600))


def test_a_shortage_that_nobody_knows_of_delays_who_needs_machines() -> None:
    short = Variant(shortages=(Shortage(0.0, 2 * HOUR_S),))
    [(began_s, _)], _ = after(played(fleet(), catalog(), [work("one")], DAY, short))["one"]
    assert 2 * HOUR_S < began_s < 3 * HOUR_S


def test_a_fixed_pool_stands_whether_anybody_comes_or_not() -> None:
    fixed = FleetBuilder().pool(replicas=2).team(quotas={"h100": {"guaranteed": {GPU: 16}}}).queue().build()
    outcome = replay("x", fixed, catalog(), [work("one", HOUR_S)], DAY)
    assert (outcome.machines, outcome.most_gpus) == (2, 16)
    assert outcome.bought_gpu_h == pytest.approx(16 * 24)
    assert outcome.total.wait_p50_s == PODS_S


def test_what_arrives_after_the_window_is_not_counted() -> None:
    outcome = replay("x", fleet(), catalog(), [work("one"), work("late", 25 * HOUR_S)], DAY)
    assert outcome.total.gangs == 1


def test_who_never_starts_has_waited_until_the_end_and_says_why() -> None:
    outcome = replay("x", fleet(guaranteed=8), catalog(), [work("big", pods=2)], DAY)
    assert (outcome.total.started, outcome.total.wait_p50_s) == (0, 24 * HOUR_S)
    assert sum(count for _, count in outcome.waiting_for) == 1


def test_deciders_that_never_come_to_rest_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_agent, "MOST_ROUNDS", 1)
    with pytest.raises(virtual_agent.NeverAtRest, match="instant"):
        played(fleet(), catalog(), [work("one")], DAY)


# -- queues and namespaces --------------------------------------------------------------------------------------------


def test_work_without_a_namespace_comes_from_that_of_its_team() -> None:
    nameless = replace(work("one"), namespace="")
    assert at_home(fleet(), nameless).namespace == "ns"
    assert at_home(fleet(), replace(nameless, queue="strange")).namespace == "strange"
    assert unqueued(fleet(), [work("one"), work("two", queue="strange")]) == ["strange"]


# -- whatever comes ---------------------------------------------------------------------------------------------------

GANGS = st.lists(
    st.builds(
        lambda at, run, pods, gpus, urgent, saves: (at, run, pods, gpus, urgent, saves),
        st.integers(0, 40_000),
        st.integers(1, 20_000),
        st.integers(1, 3),
        st.sampled_from([1, 4, 8]),
        st.booleans(),
        st.sampled_from([None, 600.0]),
    ),
    min_size=1,
    max_size=8,
)
Drawn = list[tuple[int, int, int, int, bool, float | None]]


def submitted(drawn: Drawn) -> list[SubmittedGang]:
    return [
        work(
            f"g{number}", float(at), float(run), pods=pods, gpus=gpus, queue="low", checkpoint_interval_s=saves,
            priority_class="urgent" if urgent else "",
        )
        for number, (at, run, pods, gpus, urgent, saves) in enumerate(drawn)
    ]  # fmt: skip


def of(drawn: Drawn, look_s: float = 0.0) -> VirtualAgent:
    return played(fleet(nodes=3, guaranteed=20), catalog(), submitted(drawn), replace(DAY, look_s=look_s))


def told(agent: VirtualAgent) -> ReplayOutcome:
    return outcome_of("x", agent, DAY.begin_s, DAY.until_s)


@settings(max_examples=10, deadline=None)
@given(GANGS)
def test_nobody_runs_twice_at_once_nor_for_longer_than_it_has_to(drawn: Drawn) -> None:
    for history in of(drawn).world.gang_histories.values():
        ends = [end for _, end in history.runs]
        assert all(end <= begin for end, (begin, _) in zip(ends, history.runs[1:], strict=False))
        assert all(history.work.submitted_s <= begin <= end for begin, end in history.runs)
        if history.finished_s is not None:
            assert sum(end - begin for begin, end in history.runs) == pytest.approx(history.work.run_s + history.lost_s)
            assert history.finished_s == ends[-1]


@settings(max_examples=10, deadline=None)
@given(GANGS)
def test_never_more_gpus_are_in_use_than_machines_have_nor_than_the_quota(drawn: Drawn) -> None:
    agent = of(drawn)
    changes: Counter[float] = Counter()
    for history in agent.world.gang_histories.values():
        for begin, end in history.runs:
            changes[begin] += history.work.gpus
            changes[end] -= history.work.gpus
    in_use = 0
    for at_s in sorted(changes):
        in_use += changes[at_s]
        machines = [it for it in agent.world.machines.values() if it.from_s <= at_s < it.to_s]
        assert in_use <= min(20, sum(it.gpus for it in machines)) or at_s == inf
        assert len(machines) <= 3


@settings(max_examples=4, deadline=None)
@given(GANGS, st.sampled_from([0.0, 60.0]))
def test_the_same_is_the_same_whenever_it_is_replayed(drawn: Drawn, look_s: float) -> None:
    assert told(of(drawn, look_s)) == told(of(drawn, look_s))


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(GANGS)
def test_asking_only_where_something_has_changed_finds_what_asking_everybody_does(drawn: Drawn) -> None:
    """All deciders are asked about everything every minute, and nobody starts, ends or leaves at another time."""
    lazy = after(of(drawn))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(virtual_agent, "EVERYTHING_S", 60.0)
        assert after(of(drawn)) == lazy
