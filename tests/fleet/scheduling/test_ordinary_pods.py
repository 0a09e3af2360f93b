"""Pods of no gang in a pass: for whom machines are looked for, what is bought, and when the agent stops believing."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, NominatePods, OpenClaims
from fleet.catalog import InstanceOffer
from fleet.fence import told_apart
from fleet.scheduling.cycle import decide
from fleet.scheduling.ordinary_pods import BELIEVED_S, NOT_BELIEVED_S
from fleet.snapshot import Pod, PodSet, PodVerdict
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, UnsupportedConstraint
from model import labels
from model.upstream.selectors import LabelSelectorRequirement
from tests.support.fleets import NOW, P5, P5S, A, FleetBuilder, amounts, catalog, gang, job_of, machine, pod_set
from tests.support.world import World


def waiting(name: str, gpu: int = 1, shape: PodSet | None = None, **more: Any) -> Pod:
    """A pod that kube-scheduler has found no place for, for a minute."""
    asked = shape or pod_set(gpu=gpu)
    facts: dict[str, Any] = {"shape": replace(asked, namespace="ns"), "controlled": True, "waits_since_s": NOW - 60}
    return replace(Pod(f"uid-{name}", "ns", name, "", "Pending", asked.requests), **facts | more)


def world_of(*pods: Pod, **pool: Any) -> World:
    fleet = FleetBuilder().pool(**{"serves": ["Gangs", "Pods"]} | pool).team().queue().build()
    world = World(fleet)
    world.pods = {pod.key: pod for pod in pods}
    return world


def run(world: World) -> list[Action]:
    actions, failed = told_apart(decide(world.fleet, world.snapshot()))
    assert failed == []
    return actions


def verdicts(world: World) -> dict[str, PodVerdict]:
    [told] = [action for action in run(world) if isinstance(action, NominatePods)]
    return dict(told.verdicts)


def bought(world: World) -> int:
    return sum(len(action.claims) for action in run(world) if isinstance(action, OpenClaims))


def test_what_is_bought_is_nobodys_and_comes_by_halves() -> None:
    world = world_of(*(waiting(f"p{n}", gpu=8) for n in range(5)))
    claims = [claim for action in run(world) if isinstance(action, OpenClaims) for claim in action.claims]
    assert {claim.gang for claim in claims} == {""}
    assert {claim.purpose.split(";")[0] for claim in claims} == {"for 1 pod like ns/p0"}
    assert sorted(claim.launch.size for claim in claims) == [1, 1, 3, 3, 3]
    assert len({claim.launch.group for claim in claims}) == 3
    assert {found.claim for found in verdicts(world).values()} == {claim.name for claim in claims}


@pytest.mark.parametrize(("gpus", "together"), [(3, True), (4, False)])
@pytest.mark.parametrize("leader", ["a", "z"])
def test_one_machine_for_a_leader_and_those_who_follow_it(leader: str, gpus: int, *, together: bool) -> None:
    """Eight GPUs hold one and two times three, not two times four; a machine with one GPU would do for the leader."""
    leading = LabelSelectorRequirement(key="app", operator="In", values=("leader",))
    near = PodAffinityTerm(labels.HOSTNAME, (leading,), frozenset({"ns"}))
    follows = replace(pod_set(gpu=gpus), constraints=PodConstraints(affinity=(near,)))
    leads = replace(pod_set(gpu=1), labels=(("app", "leader"),))
    pods = waiting(leader, shape=leads), *(waiting(f"p{n}", shape=follows) for n in range(2))
    world = world_of(*pods, instanceTypes=[P5.name, P5S.name], zones=[A])
    told = verdicts(world)
    assert told[f"uid-{leader}"].claim
    assert [told[f"uid-p{n}"].claim for n in range(2)] == [told[f"uid-{leader}"].claim if together else ""] * 2
    assert bought(world) == 1


@pytest.mark.parametrize(
    ("leaders", "followers", "machines"),
    [
        pytest.param(2, 6, 1, id="one machine for all"),
        pytest.param(2, 10, 2, id="a leader on each of two"),
        pytest.param(3, 21, 3, id="three full machines"),
    ],
)
def test_machines_for_several_leaders_and_those_who_follow_them(leaders: int, followers: int, machines: int) -> None:
    leading = LabelSelectorRequirement(key="app", operator="In", values=("leader",))
    near = PodAffinityTerm(labels.HOSTNAME, (leading,), frozenset({"ns"}))
    follows = replace(pod_set(gpu=1), constraints=PodConstraints(affinity=(near,)))
    leads = replace(pod_set(gpu=1), labels=(("app", "leader"),))
    pods = [waiting(f"l{n}", shape=leads) for n in range(leaders)]
    world = world_of(*pods, *(waiting(f"p{n}", shape=follows) for n in range(followers)), instanceTypes=[P5.name])
    told = verdicts(world)
    on = {told[f"uid-l{n}"].claim for n in range(leaders)}
    assert "" not in on
    assert {told[f"uid-p{n}"].claim for n in range(followers)} <= on
    assert bought(world) == machines


def test_as_many_leaders_as_machines_may_be_bought_for_get_one() -> None:
    leading = LabelSelectorRequirement(key="app", operator="In", values=("leader",))
    near = PodAffinityTerm(labels.HOSTNAME, (leading,), frozenset({"ns"}))
    follows = replace(pod_set(gpu=1), constraints=PodConstraints(affinity=(near,)))
    leads = replace(pod_set(gpu=1), labels=(("app", "leader"),), constraints=PodConstraints(anti_affinity=(near,)))
    pods = *(waiting(f"l{n}", shape=leads) for n in range(3)), waiting("p", shape=follows)
    world = world_of(*pods, instanceTypes=[P5.name], limits={"nodes": 2})
    told = verdicts(world)
    on = [told[f"uid-l{n}"].claim for n in range(3)]
    assert (len({*on} - {""}), on.count("")) == (2, 1)
    assert told["uid-p"].claim in on
    assert bought(world) == 2


@pytest.mark.parametrize(
    ("queue", "spent_usd", "reason"),
    [
        pytest.param({"stopPolicy": "Hold"}, 0.0, "QueueStopped", id="its queue is stopped"),
        pytest.param({}, 500.0, "BudgetExhausted", id="its team's month is spent"),
        pytest.param({}, 499.0, "", id="neither"),
    ],
)
def test_pods_on_the_quota_of_a_queue_wait_where_it_takes_no_more_work(
    queue: dict[str, Any], spent_usd: float, reason: str
) -> None:
    fleet = FleetBuilder().pool(serves=["Gangs", "Pods"]).queue(**queue)
    world = World(fleet.team(ordinaryPodsQueue="q", budget={"usdPerMonth": 500}).build())
    world.pods = {pod.key: pod for pod in [waiting("p")]}
    world.spent_usd = {"t": spent_usd}
    [verdict] = verdicts(world).values()
    assert (verdict.reason, bought(world)) == (reason, 0 if reason else 1)


@pytest.mark.parametrize(
    ("pods", "policy", "machines"),
    [
        pytest.param(7, {}, 1, id="of equal price one machine instead of seven"),
        pytest.param(6, {}, 6, id="six are cheaper than the large one"),
        pytest.param(6, {"usdPerHourPerMachine": 3}, 1, id="not with what machines cost beside"),
        pytest.param(6, {"usdPerHourPerMachine": 3, "purchases": "Greedy"}, 1, id="nor without the solver"),
    ],
)
def test_what_a_machine_costs_beside_its_price_decides(pods: int, policy: dict[str, Any], machines: int) -> None:
    """A `p5.48xlarge` costs as much as seven `p5.4xlarge` with a GPU each."""
    sold = [P5.name, P5S.name]
    fleet = FleetBuilder().policy(**policy).pool(serves=["Gangs", "Pods"], instanceTypes=sold, zones=[A])
    world = World(fleet.team().queue().build())
    world.pods = {pod.key: pod for pod in (waiting(f"p{n}") for n in range(pods))}
    assert bought(world) == machines


def test_pods_with_room_beside_others_of_the_pass_are_bought_for_with_them() -> None:
    """Three pods get the large machine, one the small one, the least have room there; the huge one holds all."""
    sizes = ((16, 0.7), (32, 1.5), (42, 2.1))
    sold = [InstanceOffer(machine(f"k{cpu}.large", cpu=cpu), A, "on-demand", usd_h) for cpu, usd_h in sizes]
    pools = {"serves": ["Gangs", "Pods"], "instanceTypes": [it.instance_type.name for it in sold], "zones": [A]}
    world = World(FleetBuilder().pool(**pools).team().queue().build(), catalog=catalog(sold))
    asked = {"large": (3, "9", "9Gi"), "one": (1, "9", "8Gi"), "least": (3, "1", "1Gi")}
    pods = [
        waiting(f"{name}{number}", shape=replace(pod_set(), requests=amounts(cpu=cpu, memory=memory)))
        for name, (count, cpu, memory) in asked.items()
        for number in range(count)
    ]
    world.pods = {pod.key: pod for pod in pods}
    actions = run(world)
    [claim] = [claim for action in actions if isinstance(action, OpenClaims) for claim in action.claims]
    [told] = [action for action in actions if isinstance(action, NominatePods)]
    assert claim.capacity_pool.instance_type == "k42.large"
    assert {found.claim for found in told.verdicts.values()} == {claim.name}
    assert len(told.verdicts) == len(pods)


def test_a_purchase_is_told_in_prices_whatever_machines_cost_beside() -> None:
    told = []
    for beside_usd_h in (0, 3):
        pools = {"serves": ["Gangs", "Pods"], "instanceTypes": [P5.name, P5S.name], "zones": [A]}
        fleet = FleetBuilder().policy(usdPerHourPerMachine=beside_usd_h).pool(**pools).team().queue().build()
        world = World(fleet)
        world.pods = {pod.key: pod for pod in (waiting(f"p{n}") for n in range(6))}
        [tally] = [action.tally for action in run(world) if isinstance(action, OpenClaims) and action.tally is not None]
        told.append(tally)
    cheap, few = told
    assert (cheap.cost_usd_h, few.cost_usd_h) == (84.0, 98.0)
    assert (cheap.beside_usd_h, few.beside_usd_h) == (0.0, 3.0)
    assert cheap.karpenter_usd_h == few.karpenter_usd_h
    assert few.bound_usd_h <= 84.0 + 1e-9


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"node": "n"}, id="it stands"),
        pytest.param({"deleting": True}, id="it goes"),
        pytest.param({"gated": True}, id="it is held"),
        pytest.param({"workload": "w"}, id="it is of a gang"),
        pytest.param({"waits_since_s": 0.0}, id="kube-scheduler has not said so"),
        pytest.param({"owner_job": "uid-unknown"}, id="its job is not known yet"),
        pytest.param({"owner_job": "uid-g"}, id="its job is in a queue"),
    ],
)
def test_for_whom_no_machine_is_looked_for(change: dict[str, Any]) -> None:
    world = world_of(waiting("p", **change))
    world.jobs["uid-g"] = job_of(gang("g"))
    assert [action for action in run(world) if isinstance(action, NominatePods | OpenClaims)] == []


def test_a_pod_of_a_job_without_a_queue_gets_one() -> None:
    world = world_of(waiting("p", owner_job="uid-g"))
    world.jobs["uid-g"] = replace(job_of(gang("g")), queue="")
    assert bought(world) == 1


def test_nothing_is_bought_while_more_pods_may_come() -> None:
    world = world_of(waiting("old"), waiting("new", waits_since_s=NOW - 0.5))
    world.pod_verdicts = {"uid-old": PodVerdict(reason="NoMatchingOffer")}
    assert {found.reason for found in verdicts(world).values()} == {"Batching"}
    world.now_s += 2
    assert bought(world) == 1


def test_as_many_as_the_limit_allows_get_machines() -> None:
    world = world_of(*(waiting(f"p{n}", gpu=8) for n in range(5)), limits={"nodes": 3})
    found = verdicts(world)
    assert sum(it.nominated for it in found.values()) == 3
    assert {it.reason for it in found.values() if not it.nominated} == {"PoolLimitReached"}


def test_room_on_the_way_is_kept_for_them_before_gangs() -> None:
    world = world_of(waiting("p", gpu=8), limits={"nodes": 1})
    world.apply(run(world))
    world.waits(gang("g"))
    assert [action for action in run(world) if isinstance(action, OpenClaims)] == []
    assert verdicts_now(world)["uid-p"].claim in world.claims


def verdicts_now(world: World) -> dict[str, PodVerdict]:
    world.apply(action for action in run(world) if isinstance(action, NominatePods))
    return dict(world.pod_verdicts)


def test_what_is_not_supported_is_refused_by_name() -> None:
    asked = replace(pod_set(gpu=1), unsupported=(UnsupportedConstraint("spec.resourceClaims[0]", "remove it"),))
    [found] = verdicts(world_of(waiting("p", shape=asked))).values()
    assert (found.reason, found.message) == (
        "UnsupportedConstraint",
        "spec.resourceClaims[0] is not supported: remove it",
    )


def test_kube_scheduler_is_believed_where_it_does_not_bind() -> None:
    world = world_of(waiting("p"))
    world.machine("m0")
    assert verdicts_now(world)["uid-p"].node == "node-m0"
    world.now_s += BELIEVED_S
    assert verdicts_now(world)["uid-p"].reason == "NotBound"
    assert bought(world) == 0
    world.now_s += NOT_BELIEVED_S
    assert verdicts_now(world)["uid-p"].node == "node-m0"
    world.now_s += BELIEVED_S
    assert verdicts_now(world)["uid-p"].reason == "NotBound"
    world.now_s += NOT_BELIEVED_S
    assert verdicts_now(world)["uid-p"].reason == "NotBound", "twice as long now"
    world.now_s += NOT_BELIEVED_S
    assert verdicts_now(world)["uid-p"].node == "node-m0"


def test_a_gang_whose_pools_serve_pods_alone_is_told_so() -> None:
    world = world_of(serves=["Pods"])
    world.waits(gang("g"))
    world.apply(run(world))
    assert "h100 does not serve gangs (spec.serves)" in world.gang("g").message


def test_no_machine_is_cut_anew_for_them() -> None:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    sharing = {"mig": {"layouts": ["small", "large"]}}
    world = World(builder.pool(limits={"nodes": 1}, sharing=sharing, serves=["Pods", "Gangs"]).team().queue().build())
    world.machine("m0")
    asked = pod_set(requests={**amounts(), labels.MIG_RESOURCE_PREFIX + "3g.40gb": 1})
    world.pods = {"ns/p": waiting("p", shape=asked)}
    [found] = verdicts(world).values()
    assert not found.nominated


def test_nothing_is_remembered_once_nobody_waits() -> None:
    world = world_of(waiting("p"))
    assert verdicts_now(world)
    world.pods.clear()
    assert verdicts_now(world) == {}
