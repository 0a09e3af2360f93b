"""ResourceQuotas of namespaces in a pass: who is let in, who waits and why, and who leaves for whom."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims, SaveGang
from fleet.fence import told_apart
from fleet.quota import namespace_room
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, Hold, NamespaceQuota, NamespaceQuotas, QuotaScope, Snapshot
from fleet.snapshot.limit_ranges import ContainerAmounts, PodAmounts
from tests.support.fleets import FleetBuilder, gang, gang_pod, pod_set
from tests.support.world import World

GPUS = "requests.nvidia.com/gpu"


def yard(**queue: Any) -> World:
    builder = FleetBuilder().pool().team().queue(**queue)
    return World(builder.team("u", namespaces=["other"]).queue("r", team="u").priority("high", 100).build())


def quotas(*found: NamespaceQuota, default_class: str = "") -> NamespaceQuotas:
    by_namespace: dict[str, tuple[NamespaceQuota, ...]] = {}
    for it in found:
        by_namespace[it.namespace] = (*by_namespace.get(it.namespace, ()), it)
    return NamespaceQuotas(by_namespace, default_class)


def quota(hard: int, used: int = 0, name: str = "gpus", *scopes: QuotaScope, **more: int) -> NamespaceQuota:
    return NamespaceQuota("ns", name, {GPUS: hard, **more}, {GPUS: used}, scopes)


def decided(world: World, found: NamespaceQuotas, **changes: Any) -> dict[str, Gang]:
    """What a pass makes of the gangs."""
    snapshot = replace(world.snapshot(), namespace_quotas=found, **changes)
    actions, failed = told_apart(cycle.decide(world.fleet, snapshot))
    assert not failed
    world.apply(actions)
    return {it.job.name: it for it in world.gangs.values()}


def told(world: World, found: NamespaceQuotas) -> dict[str, tuple[str, str]]:
    return {name: (str(it.state), str(it.reason)) for name, it in decided(world, found).items()}


IN = ("QuotaReserved", "Buying")
OUT = ("Pending", "ResourceQuotaExceeded")


def test_a_gang_that_a_quota_would_refuse_waits_and_buys_nothing() -> None:
    world = yard()
    world.waits(gang("a", count=2))
    found = decided(world, quotas(quota(20, used=8)))
    assert not world.claims
    assert (found["a"].state, found["a"].reason) == (GangState.PENDING, Reason.RESOURCE_QUOTA)
    assert found["a"].message == (
        "ResourceQuota gpus of namespace ns has no room for its pods: they ask 16 requests.nvidia.com/gpu, 8 of 20 used"
    )
    assert decided(world, quotas(quota(20, used=4)))["a"].state is GangState.RESERVED
    assert len(world.claims) == 2


def test_those_of_a_pass_share_what_is_left_and_whoever_cannot_run_takes_nothing_of_it() -> None:
    """The one that no machine could hold is first in the queue, as in Volcano's row of its plugin."""
    world = yard()
    cannot = gang("first", pod_set(gpu=8, node_selector={"no": "where"}))
    world.waits(cannot, gang("a", created_s=1.0), gang("b", created_s=2.0), gang("c", queue="r", namespace="other"))
    found = told(world, quotas(quota(8)))
    assert found.pop("first")[0] == "Pending"
    assert found == {"a": IN, "b": OUT, "c": IN}


def test_what_was_let_in_before_and_is_still_to_be_created_counts() -> None:
    world = yard()
    world.waits(gang("a"))
    assert told(world, quotas(quota(8))) == {"a": IN}
    world.waits(gang("b"))
    found = decided(world, quotas(quota(8)))
    assert found["b"].message.endswith("8 of 8 used, 8 of that by pods still to be created")


def test_a_running_gang_counts_once() -> None:
    """Its pods are in the status already."""
    world = yard()
    world.machine("m0")
    world.machine("m1")
    world.runs(gang("a"), ("m0", 1))
    world.waits(gang("b"))
    assert told(world, quotas(quota(16, used=8)))["b"] == ("Admitted", "Admitted")


def test_a_gang_of_higher_priority_has_another_of_its_namespace_evicted_for_its_room() -> None:
    """Or a hard fence, which is full by then, would keep it out for good."""
    world = yard(preemption={"withinQueue": "LowerPriority"})
    world.machine("m0")
    world.machine("m1")
    world.runs(gang("a"), ("m0", 1))
    world.waits(gang("b", priority=100, priority_class="high"))
    found = decided(world, quotas(quota(8, used=8)))
    assert found["a"].state is GangState.EVICTING
    assert found["b"].reason == Reason.WAITING_FOR_PREEMPTED


def test_nobody_is_evicted_for_a_gang_that_others_than_gangs_keep_out() -> None:
    world = yard(preemption={"withinQueue": "LowerPriority"})
    world.machine("m0")
    world.runs(gang("a", queue="q", gpu=4), ("m0", 1))
    world.waits(gang("b", priority=100, priority_class="high"))
    found = decided(world, quotas(quota(16, used=16)))
    assert (found["a"].state, found["b"].reason) == (GangState.ADMITTED, Reason.RESOURCE_QUOTA)


def test_pods_that_are_there_already_are_not_charged_again() -> None:
    """Of a job whose pods are held one by one, gated pods count from their creation."""
    world = yard()
    held = gang("a", count=2)
    world.waits(held)
    world.jobs[held.uid] = replace(world.jobs[held.uid], hold=Hold.PODS)
    pods = tuple(replace(gang_pod(held, f"a-{n}"), gated=True, workload="", job_uid=held.uid) for n in range(2))
    full = quotas(quota(16, used=16))
    snapshot = replace(world.snapshot(), namespace_quotas=full, job_pods={held.uid: pods})
    assert any(isinstance(it, OpenClaims) for it in cycle.decide(world.fleet, snapshot))
    one = replace(snapshot, job_pods={held.uid: pods[:1]}, namespace_quotas=quotas(quota(16, used=8)))
    assert any(isinstance(it, OpenClaims) for it in cycle.decide(world.fleet, one))
    none_left = replace(one, namespace_quotas=quotas(quota(16, used=12)))
    (saved,) = cycle.decide(world.fleet, none_left)
    assert isinstance(saved, SaveGang)
    assert "they ask 8 requests.nvidia.com/gpu, 12 of 16 used" in saved.gang.message


GPUS_AT_8 = f"ResourceQuota gpus of namespace ns bounds {GPUS} at 8, and it asks 16: ask less, or have it raised"
NEVER: Mapping[str, tuple[NamespaceQuota, str]] = {
    "more than there ever is": (
        quota(8),
        GPUS_AT_8,
    ),
    "no pods at all": (
        quota(99, 0, "gpus", pods=1),
        "ResourceQuota gpus of namespace ns bounds pods at 1, and it asks 2: ask less, or have it raised",
    ),
    "a scope that nobody knows": (
        quota(8, 0, "gpus", QuotaScope("Phase")),
        f"{GPUS_AT_8} (its scope Phase is not known here, and taken to hold)",
    ),
    "what each container must say": (
        NamespaceQuota("ns", "cpus", {"limits.cpu": 99_000}),
        "ResourceQuota cpus of namespace ns: pods of 'main' must specify limits.cpu for: spec.containers[0]",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_is_never_let_in_is_refused_before_anything_is_looked_for(name: str) -> None:
    found, words = NEVER[name]
    world = yard()
    said = PodAmounts((ContainerAmounts("spec.containers[0]", {"cpu": 1000}, {}),), {}, {}, {})
    world.waits(gang("a", pod_set(count=2, gpu=8, amounts=said)))
    it = decided(world, quotas(found))["a"]
    assert (it.reason, it.message) == (Reason.RESOURCE_QUOTA, words)


def test_a_quota_that_counts_other_pods_keeps_nobody_out() -> None:
    world = yard()
    world.waits(gang("a"))
    urgent = QuotaScope("PriorityClass", "In", ("urgent",))
    assert told(world, quotas(quota(0, 0, "gpus", urgent)))["a"] == IN
    world = yard()
    world.waits(gang("a"))
    assert told(world, quotas(quota(0, 0, "gpus", urgent), default_class="urgent"))["a"] == OUT


def test_one_that_cannot_be_reckoned_with_is_set_aside_and_stops_nobody() -> None:
    class UnreadableAmounts(dict[str, int]):
        def items(self) -> Any:
            raise ValueError("broken")

    world = yard()
    world.waits(gang("a"))
    told(world, quotas(quota(99)))
    sick = world.gang("a")
    world.waits(gang("b"))
    job = world.jobs[sick.uid]
    world.jobs[sick.uid] = replace(job, pod_sets=(replace(job.pod_sets[0], requests=UnreadableAmounts({"x/y": 1})),))
    snapshot: Snapshot = replace(world.snapshot(), namespace_quotas=quotas(quota(99)))
    actions, failed = told_apart(cycle.decide(world.fleet, snapshot))
    assert [it.subject for it in failed] == [f"gang/{sick.uid}"]
    assert [it.gang.job.name for it in actions if isinstance(it, SaveGang)] == ["b"]


def test_what_gangs_of_a_kind_take_is_summed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in later passes, while the quotas bound what they bound, whatever is used of them."""
    world, summed, sums = yard(), [0], namespace_room._summed

    def counted(*asked: Any) -> Any:
        summed[0] += 1
        return sums(*asked)

    monkeypatch.setattr(namespace_room, "_summed", counted)
    world.waits(*[gang(f"g{number:02}", count=1 + number % 2) for number in range(20)])
    snapshot = replace(world.snapshot(), namespace_quotas=quotas(quota(1)))
    cycle.decide(world.fleet, snapshot)
    assert summed == [2]
    cycle.decide(world.fleet, replace(snapshot, namespace_quotas=quotas(quota(1, used=1))))
    assert summed == [2]
    cycle.decide(world.fleet, replace(snapshot, namespace_quotas=quotas(quota(9))))
    assert summed == [4]


def test_kinds_are_forgotten_beyond_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_room, "KINDS_MOST", 2)
    world = yard()
    world.waits(*[gang(f"g{gpus}", count=1, gpu=gpus) for gpus in range(1, 8)])
    assert {it.reason for it in decided(world, quotas(quota(0))).values()} == {Reason.RESOURCE_QUOTA}


def test_counts_of_a_kind_are_forgotten_beyond_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_room, "COUNTS_MOST", 2)
    world = yard()
    world.waits(*[gang(f"g{count}", count=count) for count in range(1, 8)])
    assert {it.reason for it in decided(world, quotas(quota(0))).values()} == {Reason.RESOURCE_QUOTA}
