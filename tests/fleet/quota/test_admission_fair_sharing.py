"""What local queues used lately: accounts between decisions, the order within one, and shares in the long run."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.quota.admission_fair_sharing import (
    GangAdmission,
    LocalQueueUsage,
    UsageSample,
    local_queue_weights,
    next_sample,
    usage_decay,
    usage_order_values,
)
from fleet.scheduling import cycle
from fleet.scheduling.queue_order import pending_in_order, pending_in_same_queue, usage_of_local_queues
from fleet.snapshot import Gang, GangState
from model.fleet import Fleet
from tests.fleet.quota.test_upstream import cluster_queue, group, local
from tests.fleet.quota.test_upstream import fleet as manifests
from tests.support.fleets import GPU, NOW, FleetBuilder, gang, pod_set
from tests.support.world import World

HALF_LIFE_S, SAMPLING_S = 3600.0, 300.0
SHARING = {"usageHalfLifeTime": "1h", "usageSamplingInterval": "5m"}
AHEAD = 1 - 0.5 ** (SAMPLING_S / HALF_LIFE_S)
"""The part of what it asks that an admission counts at once."""


def fleet(weights: dict[str, float] | None = None, sharing: dict[str, Any] | None = None, **queue: Any) -> Fleet:
    """Two namespaces in one queue with sixteen GPUs, on machines that stand there."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(namespaces=["a", "b"])
    builder.queue(admissionFairSharing={"namespaceWeights": weights or {}}, **queue)
    return builder.policy(admissionFairSharing=SHARING if sharing is None else sharing).build()


def yard(declared: Fleet | None = None, machines: int = 1, **used: float) -> World:
    """`used`: namespace -> GPUs it used lately."""
    world = World(declared or fleet())
    for n in range(machines):
        world.machine(f"m{n}")
    world.local_usage = {f"{namespace}/q": {GPU: amount} for namespace, amount in used.items()}
    return world


def small(name: str, namespace: str, **more: Any) -> Gang:
    return gang(name, pod_set(gpu=more.pop("gpu", 4), requests=None), namespace=namespace, **more)


def admitted(world: World) -> list[str]:
    """Names of those that one pass admits, in the order they are decided."""
    actions = cycle.decide(world.fleet, world.snapshot())
    world.apply(actions)
    saved = [action.gang for action in actions if hasattr(action, "gang")]
    return [it.job.name for it in saved if it.state is GangState.ADMITTED]


# -- the order within one decision ------------------------------------------------------------------------------------


def test_whoever_used_less_goes_first_whatever_the_priority_and_age() -> None:
    world = yard(a=6.0, b=2.0)
    world.waits(small("heavy", "a", gpu=8, priority=9, created_s=NOW - 900), small("light", "b", gpu=8))
    assert admitted(world) == ["light"]


def test_an_admission_counts_within_the_same_pass() -> None:
    """Both start at nothing: they take turns, although all of the first came before all of the second."""
    world = yard(machines=2)
    world.waits(*(small(f"a{n}", "a", created_s=NOW - 900 + n) for n in range(4)))
    world.waits(*(small(f"b{n}", "b", created_s=NOW - 100 + n) for n in range(4)))
    assert admitted(world) == ["a0", "b0", "a1", "b1"]


def test_weights_are_shares() -> None:
    world = yard(fleet({"a": 3.0}), machines=2)
    world.waits(*(small(f"{ns}{n}", ns, created_s=NOW - 900 + n) for n in range(4) for ns in "ab"))
    assert Counter(name[0] for name in admitted(world)) == {"a": 3, "b": 1}


def test_without_weight_after_all_others() -> None:
    world = yard(fleet({"a": 0.0}), b=50.0)
    world.waits(small("last", "a", gpu=8, priority=5), small("first", "b", gpu=8))
    assert admitted(world) == ["first"]


def test_a_resource_may_count_nothing() -> None:
    world = yard(fleet(sharing=SHARING | {"resourceWeights": {GPU: 0}}), a=9.0)
    world.waits(small("older", "a", gpu=8, created_s=NOW - 900), small("newer", "b", gpu=8))
    assert admitted(world) == ["older"]


@pytest.mark.parametrize("which", ["no policy", "not asked for"])
def test_use_orders_nothing_unless_both_say_so(which: str) -> None:
    """Upstream, the mode of a queue has no effect without the configuration, and the other way round."""
    declared = fleet()
    if which == "no policy":
        declared = replace(declared, policy=FleetBuilder().build().policy)
    else:
        declared = replace(declared, queues=FleetBuilder().queue().build().queues)
    world = yard(declared, a=6.0)
    world.waits(small("older", "a", gpu=8, created_s=NOW - 900), small("newer", "b", gpu=8))
    assert admitted(world) == ["older"]
    assert usage_of_local_queues(declared, world.snapshot(), world.gang("newer")) == []
    assert usage_order_values(declared, world.snapshot()) == {}


def test_what_others_left_for_is_not_taken_by_somebody_lighter() -> None:
    world = yard(a=6.0)
    promised = small("promised", "a", gpu=8, reason="WaitingForPreemptedWorkloads")
    world.waits(small("lighter", "b", gpu=8, priority=3), promised)
    assert [it.job.name for it in pending_in_order(world.fleet, world.snapshot())] == ["promised", "lighter"]
    assert admitted(world) == ["promised"]


def test_of_the_own_queue_the_heavier_local_queue_leaves_first() -> None:
    """Although the other has the lower priority (reference 3.1)."""
    world = yard(a=1.0, b=6.0)
    world.runs(small("light", "a", priority=-5), ("m0", 1))
    world.runs(small("heavy", "b", priority=-1), ("m0", 1))
    world.waits(small("comes", "a"))
    assert admitted(world) == []
    assert {name: str(world.gang(name).state) for name in ("light", "heavy")} == {
        "light": "Admitted",
        "heavy": "Evicting",
    }


def test_local_queues_of_a_cluster_queue() -> None:
    mode = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    policy = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "FleetPolicy",
        "metadata": {"name": "p"},
        "spec": {"admissionFairSharing": SHARING | {"resourceWeights": {"cpu": 0, "memory": 0}}},
    }
    queue = cluster_queue("cq", group("h100", gpu=8, cpu=100, memory=10**12), **mode)
    doors = local("one", "cq"), local("two", "cq", fairSharing={"weight": "500m"})
    world = World(manifests(queue, *doors, policy))
    world.local_usage = {"ns/one": {GPU: 5.0}, "ns/two": {GPU: 3.0}}
    world.waits(gang("first", queue="one"), gang("second", queue="two", priority=9))
    assert usage_order_values(world.fleet, world.snapshot()) == {"ns/one": 5.0, "ns/two": 6.0}
    snapshot = world.snapshot()
    assert [it.job.name for it in pending_in_same_queue(world.fleet, snapshot, world.gang("second"))] == [
        "first",
        "second",
    ]
    assert usage_of_local_queues(world.fleet, snapshot, world.gang("second")) == [("ns/one", 5.0), ("ns/two", 6.0)]
    world.apply(cycle.decide(world.fleet, snapshot))
    assert [str(world.gang(name).state) for name in ("first", "second")] == ["QuotaReserved", "Pending"]


waiting = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(waiting, st.integers(0, 2), st.integers(0, 2))
def test_people_are_told_the_order_of_the_engine(rows: Sequence[Any], a: int, b: int) -> None:
    world = yard(a=float(a), b=float(b))
    for n, (namespace, priority, age, nominated) in enumerate(rows):
        reason = "WaitingForPreemptedWorkloads" if nominated else "Queued"
        world.waits(small(f"w{n}", namespace, priority=priority, created_s=NOW - age, reason=reason))
    started = cycle.AdmissionPass.start(world.fleet, world.snapshot())
    told = [it.uid for it in started.waiting]
    started._submit()
    assert [workload.uid for workload in started.scheduler.still_waiting()] == told


# -- the accounts between decisions -----------------------------------------------------------------------------------


def running(name: str, namespace: str, at_s: float, **more: Any) -> Gang:
    facts = {"state": GangState.ADMITTED, "flavors": {"main": ("h100",)}, "quota_reserved_at_s": at_s}
    return small(name, namespace, **facts | more)


def seen(world: World, before: UsageSample, now_s: float, *gangs: Gang) -> UsageSample:
    world.gangs, world.now_s = {it.uid: it for it in gangs}, now_s
    return next_sample(world.fleet, world.snapshot(), before)


START = UsageSample(at_s=NOW)


def test_the_first_look_only_begins() -> None:
    begun = seen(yard(), UsageSample(), NOW, running("g", "a", NOW - 50), running("new", "a", NOW))
    assert begun == UsageSample(at_s=NOW, ahead=frozenset({GangAdmission("uid-new", NOW)}))


def test_an_admission_counts_ahead_once() -> None:
    world, g = yard(), running("g", "a", NOW + 10)
    once = seen(world, START, NOW + 10, g)
    assert once.used() == {"a/q": {GPU: pytest.approx(4 * AHEAD)}}
    assert seen(world, once, NOW + 20, g) is once
    again = seen(world, once, NOW + 30, replace(g, quota_reserved_at_s=NOW + 30))
    assert again.used() == {"a/q": {GPU: pytest.approx(8 * AHEAD)}}, "evicted and admitted once more"


def test_an_admission_at_the_instant_of_another_counts_too() -> None:
    world, first, second = yard(), running("g", "a", NOW + 10), running("h", "b", NOW + 10)
    once = seen(world, START, NOW + 10, first)
    assert set(seen(world, once, NOW + 10, first, second).accounts) == {"a/q", "b/q"}


def test_who_has_ended_since_counts_until_the_sample() -> None:
    world = yard()
    once = seen(world, START, NOW + 10, running("g", "a", NOW + 10))
    assert seen(world, once, NOW + 200).used() == once.used()
    assert seen(world, once, NOW + SAMPLING_S).used() == {}


def test_a_sample_takes_what_is_held_and_forgets_by_half_lives() -> None:
    world, g = yard(), running("g", "a", NOW - 50)
    one = seen(world, START, NOW + HALF_LIFE_S, g)
    assert one.used() == {"a/q": {GPU: pytest.approx(2.0)}}
    assert (one.at_s, one.ahead) == (NOW + HALF_LIFE_S, frozenset())
    two = seen(world, one, NOW + 2 * HALF_LIFE_S)
    assert two.used() == {"a/q": {GPU: pytest.approx(1.0)}}
    assert seen(world, two, NOW + 40 * HALF_LIFE_S).used() == {}, "what is nothing is kept for nobody"


def test_who_is_admitted_at_the_sample_is_in_it() -> None:
    g = running("g", "a", NOW + SAMPLING_S)
    one = seen(yard(), START, NOW + SAMPLING_S, g)
    assert one.used() == {"a/q": {GPU: pytest.approx(4 * AHEAD)}}
    assert seen(yard(), one, NOW + SAMPLING_S, g) is one


def test_pods_that_succeeded_for_good_use_nothing() -> None:
    g = running("g", "a", NOW - 50, gpu=2)
    g = replace(g, pod_sets=(replace(g.pod_sets[0], count=4),), remaining={"main": 1})
    assert seen(yard(), START, NOW + HALF_LIFE_S, g).used() == {"a/q": {GPU: pytest.approx(1.0)}}


def test_surplus_is_used_as_the_core_is() -> None:
    world = yard(machines=2)
    pods = replace(pod_set(count=3, gpu=4), core=1)
    world.runs(gang("g", pods, namespace="a"), ("m0", 2), ("m1", 1))
    held = next_sample(world.fleet, world.snapshot(), UsageSample(at_s=NOW - 600)).used()
    assert held["a/q"][GPU] == pytest.approx(12 * (1 - 0.5 ** (600 / HALF_LIFE_S)))


def test_of_queues_that_do_not_go_by_use_nothing_is_kept() -> None:
    before = UsageSample({"a/gone": LocalQueueUsage({GPU: 5.0}, NOW), "a/q": LocalQueueUsage({GPU: 5.0}, NOW)}, NOW)
    assert set(seen(yard(), before, NOW + SAMPLING_S).accounts) == {"a/q"}
    plain = replace(fleet(), queues=FleetBuilder().queue().build().queues)
    assert seen(yard(plain), before, NOW + SAMPLING_S, running("g", "a", NOW)).accounts == {}
    unremembered = replace(fleet(), policy=FleetBuilder().build().policy)
    assert seen(yard(unremembered), before, NOW + 1) == UsageSample()


def test_a_clock_that_went_back_changes_no_amount() -> None:
    before = UsageSample({"a/q": LocalQueueUsage({GPU: 5.0}, NOW)}, NOW)
    back = seen(yard(), before, NOW - 9999, running("g", "a", NOW - 50))
    assert (back.used(), back.at_s) == ({"a/q": {GPU: 5.0}}, NOW - 9999)


def test_without_memory_what_is_held_at_the_sample_counts() -> None:
    world = yard(fleet(sharing={"usageHalfLifeTime": "0s"}))
    assert usage_decay(world.fleet) is not None
    g = running("g", "a", NOW + 10)
    assert seen(world, START, NOW + 10, g).used() == {"a/q": {}}, "nothing counts ahead"
    assert seen(world, START, NOW + 300, g).used() == {"a/q": {GPU: 4.0}}
    assert local_queue_weights(world.fleet) == {}


def test_a_leader_with_older_books_finds_the_same() -> None:
    world, first, second = yard(), running("g", "a", NOW + 10), running("h", "b", NOW + 20)
    steady = seen(world, seen(world, START, NOW + 10, first), NOW + 20, first, second)
    assert seen(world, START, NOW + 20, first, second) == steady


looks = st.lists(st.tuples(st.integers(0, 400), st.sets(st.integers(0, 5))), max_size=12)


@settings(max_examples=60, deadline=None)
@given(looks)
def test_a_second_look_at_the_same_instant_sees_nothing_new(steps: list[tuple[int, set[int]]]) -> None:
    world, now, tally = yard(), NOW, START
    since: dict[int, float] = {}
    for pause_s, present in steps:
        now += pause_s
        since = {n: since.get(n, now) for n in present}
        gangs = [running(f"g{n}", "ab"[n % 2], at) for n, at in sorted(since.items())]
        tally = seen(world, tally, now, *gangs)
        assert seen(world, tally, now, *gangs) is tally
        assert all(amount > 0 for used in tally.used().values() for amount in used.values())


# -- in the long run --------------------------------------------------------------------------------------------------

STEP_S = 60.0


def shares(weights: dict[str, float], rng: random.Random, steps: int = 240) -> Counter[str]:
    """GPU steps by namespace of a queue that is always full and always wanted, without the first quarter."""
    sharing = {"usageHalfLifeTime": "20m", "usageSamplingInterval": "2m"}
    world = yard(fleet(weights, sharing), machines=2)
    ends: dict[str, int] = {}
    used: Counter[str] = Counter()
    tally, made = UsageSample(), 0
    for step in range(steps):
        world.now_s += STEP_S
        for uid in [uid for uid, end in ends.items() if end <= step]:
            del world.gangs[uid], world.jobs[uid], ends[uid]
        world.pods = {}
        for namespace in weights:
            while sum(1 for it in world.gangs.values() if (it.namespace, it.state) == (namespace, "Pending")) < 5:
                made += 1
                world.waits(small(f"{namespace}{made}", namespace, gpu=rng.choice((2, 4)), created_s=world.now_s))
        tally = next_sample(world.fleet, world.snapshot(), tally)
        world.local_usage = tally.used()
        world.apply(cycle.decide(world.fleet, world.snapshot()))
        for it in world.gangs.values():
            if it.state is GangState.ADMITTED:
                ends.setdefault(it.uid, step + rng.randint(1, 6))
                used[it.namespace] += it.pod_sets[0].requests[GPU] if step >= steps / 4 else 0
    return used


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([(1.0, 1.0), (2.0, 1.0), (1.0, 3.0)]), st.integers(0, 99))
def test_shares_of_a_full_queue_approach_the_weights(weights: tuple[float, float], seed: int) -> None:
    by_namespace = dict(zip("ab", weights, strict=True))
    used = shares(by_namespace, random.Random(seed))
    assert used["a"] / used.total() == pytest.approx(weights[0] / sum(weights), abs=0.06)
