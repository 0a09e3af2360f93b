"""Room that CapacityBuffers keep: on which machines it counts, who goes before it, and what becomes of machines."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.fence import DecisionFailed
from fleet.nodeclaims import capacity_buffers, lifecycle
from fleet.nodeclaims.capacity_buffers import BufferRoom, buffer_rooms
from fleet.plan import make_plan
from fleet.snapshot import Pod, PodVerdict
from model.fleet import Fleet
from model.kinds import Taint
from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate
from tests.support.disruption import opened, told
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, amounts, foreign_pod, gang, pod_set
from tests.support.world import World

OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}]}
PODS = ["Gangs", "Pods"]


def template(gpus: int, **spec: Any) -> CorePodTemplate:
    body = {"spec": {"containers": [{"resources": {"limits": {GPU: gpus}}}], **spec}}
    meta = {"name": "s", "namespace": "ns"}
    return CorePodTemplate.model_validate(
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": body}
    )


def buffered(fleet: Fleet, replicas: int = 1, gpus: int = 4, **spec: Any) -> Fleet:
    """The fleet with a buffer of so many pods."""
    made = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"podTemplateRef": {"name": "s"}, "replicas": replicas},
    }
    buffer = CapacityBuffer.model_validate(made)
    return replace(fleet, capacity_buffers={"ns/b": buffer}, pod_templates={"ns/s": template(gpus, **spec)})


def fleet_of(**pool: Any) -> Fleet:
    """One pool that serves pods."""
    spec = {"disruption": OPEN, "serves": PODS, **pool}
    return FleetBuilder().pool(**spec).team(quotas={"h100": {GPU: 64}}).queue().build()


def world_of(machines: int = 1, replicas: int = 1, gpus: int = 4, **pool: Any) -> World:
    """Idle machines of a pool that serves pods, and a buffer."""
    world = World(buffered(fleet_of(**pool), replicas, gpus))
    for n in range(machines):
        world.machine(f"m{n}")
    return world


def room(world: World) -> BufferRoom:
    [found] = buffer_rooms(world.fleet, world.snapshot())
    return found


def counts(world: World) -> tuple[int, int, int]:
    found = room(world)
    return found.ready, found.coming, found.missing


def hosts(world: World) -> dict[str, int]:
    return {pin.claim: pin.count for it in room(world).tenants for pin in it.pins}


def ordinary(name: str, node: str = "", gpus: int = 4, **more: Any) -> Pod:
    """A pod of a Deployment: on a node, or one that kube-scheduler finds no place for."""
    shape = pod_set(name, 1, requests=amounts(gpus), namespace="other")
    facts = {"controlled": True, "shape": shape, "started_at_s": NOW - 600, **more}
    made = foreign_pod(name, node, shape.requests, **facts)
    return made if node else replace(made, phase="Pending", waits_since_s=NOW - 60)


# -- where it counts ---------------------------------------------------------------------------------------------------


def beside_a_gang(world: World) -> None:
    world.runs(gang("g", gpu=4), ("m1", 1))


def beside_a_pod(world: World) -> None:
    world.stands(ordinary("p", "node-m1"))


def drifted(world: World) -> None:
    world.fleet = buffered(fleet_of(template={"labels": {"a": "b"}}))
    if "m1" in world.claims:
        world.machine("m1")


def tainted(world: World) -> None:
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], taints=(Taint(key="k", effect="NoSchedule"),))


def promised(world: World) -> None:
    world.stands(ordinary("p", gpus=8))
    world.pod_verdicts = {"uid-p": PodVerdict("m0", "node-m0", since_s=NOW)}


def leaves(world: World) -> None:
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], unschedulable=True)


@pytest.mark.parametrize(
    ("change", "on"),
    [
        (lambda _: None, {"m0": 1}),
        (beside_a_gang, {"m1": 1}),
        (beside_a_pod, {"m1": 1}),
        (drifted, {"m1": 1}),
        (tainted, {"m1": 1}),
        (promised, {"m1": 1}),
        (leaves, {"m1": 1}),
    ],
)
def test_on_which_machine_the_room_is(change: Any, on: dict[str, int]) -> None:
    """Beside work before an idle machine, which then may go; never where something real is to come."""
    world = world_of(2)
    change(world)
    assert hosts(world) == on


def test_room_on_machines_of_pools_that_serve_gangs_alone_does_not_count() -> None:
    """Else an idle machine of theirs would be kept for pods that no machine of theirs is bought for."""
    assert counts(world_of(serves=["Gangs"])) == (0, 0, 1)


def test_a_machine_that_comes_has_room_before_another_is_bought() -> None:
    world = world_of(0)
    world.pass_once(boot=False)
    assert counts(world) == (0, 1, 0)
    assert [it for it in world.pass_once(boot=False) if isinstance(it, OpenClaims)] == []


def test_templates_choose_machines_by_selector_and_tolerations() -> None:
    world = world_of(1)
    world.fleet = buffered(world.fleet, nodeSelector={"color": "red"})
    assert counts(world) == (0, 0, 1)
    tainted(world)
    world.fleet = buffered(world.fleet, tolerations=[{"key": "k", "operator": "Exists"}])
    assert counts(world) == (1, 0, 0)


# -- who goes before it ------------------------------------------------------------------------------------------------


def bought(actions: list[Action]) -> list[str]:
    return [claim.purpose for it in actions if isinstance(it, OpenClaims) for claim in it.claims]


def test_what_is_missing_is_bought_and_says_for_what() -> None:
    [purpose] = bought(world_of(0, replicas=2).pass_once(boot=False))
    assert purpose.startswith("for 2 x replicas of CapacityBuffer ns/b")


def test_it_is_bought_for_after_gangs_and_pods_within_the_limit() -> None:
    world = world_of(0, gpus=8, limits={"nodes": 2})
    world.waits(gang("g", gpu=8))
    world.stands(ordinary("p", gpus=8))
    purposes = bought(world.pass_once(boot=False))
    assert len(purposes) == 2
    assert not any("CapacityBuffer" in it for it in purposes)


def test_a_gang_takes_the_room_and_it_is_bought_anew() -> None:
    world = world_of(1, gpus=8)
    assert bought(world.pass_once(boot=False)) == []
    world.waits(gang("g", gpu=8))
    assert len(bought(world.pass_once(boot=False))) == 1
    assert {pin.claim for pin in world.gang("g").pins} == {"m0"}


def test_room_that_is_taken_in_the_instant_in_which_it_was_bought_is_bought_by_another_name() -> None:
    """Found by made-up fleets: the second purchase had the name of the first, and the agent turned in a circle."""
    world = world_of(0, gpus=8)
    world.pass_once(boot=False)
    [first] = world.claims
    world.waits(gang("g", gpu=8))
    world.pass_once(boot=False)
    assert {pin.claim for pin in world.gang("g").pins} == {first}
    assert len(world.claims) == 2
    assert not any(isinstance(it, OpenClaims) for it in world.pass_once(boot=False))


# -- what becomes of machines ------------------------------------------------------------------------------------------


def test_only_the_machine_with_the_room_stays_where_all_are_idle() -> None:
    world = world_of(3)
    world.pass_once()
    world.now_s += 3600
    world.settle_down()
    assert list(world.claims) == ["m0"]
    assert world.claims["m0"].emptied_at_s == 0, "it counts as idle from when nobody needs it"
    world.fleet = replace(world.fleet, capacity_buffers={})
    world.pass_once()
    assert world.claims["m0"].emptied_at_s == world.now_s


def test_machines_are_merged_where_the_room_is_found_elsewhere() -> None:
    world = world_of(2, gpus=4)
    for n in range(2):
        world.stands(ordinary(f"p{n}", f"node-m{n}", gpus=2))
        world.claims[f"m{n}"] = replace(world.claims[f"m{n}"], emptied_at_s=0.0)
    assert len(told(world.disrupted())) == 1
    full = world_of(2, gpus=6)
    for n in range(2):
        full.stands(ordinary(f"p{n}", f"node-m{n}", gpus=2))
        full.claims[f"m{n}"] = replace(full.claims[f"m{n}"], emptied_at_s=0.0)
    assert told(full.disrupted()) == {}, "two pods and the room do not fit on one machine"


def test_a_cheaper_machine_for_the_room_comes_first() -> None:
    world = world_of(1, gpus=1, instanceTypes=[P5.name, P5S.name])
    world.claims["m0"] = replace(world.claims["m0"], emptied_at_s=0.0)
    assert [(kind, replaces) for kind, _, replaces in opened(world.disrupted())] == [(P5S.name, ("m0",))]
    world.settle_down()
    for _ in range(4):
        world.now_s += 120
        world.settle_down()
    assert [it.capacity_pool.instance_type for it in world.claims.values()] == [P5S.name]
    assert counts(world) == (1, 0, 0)


def test_a_drifted_machine_with_room_is_replaced_before_it_goes() -> None:
    world = world_of(1)
    drifted(world)
    actions = world.pass_once(boot=False)
    assert [replaces for _, _, replaces in opened(actions)] == [("m0",)]
    assert not any(isinstance(it, SaveClaim) and it.claim.disruption for it in actions)
    world.settle_down()
    world.now_s += 120
    world.settle_down()
    assert (len(world.claims), "m0" in world.claims, counts(world)) == (1, False, (1, 0, 0))


def test_a_plan_tells_what_a_buffer_buys_and_what_it_costs() -> None:
    world = world_of(0, replicas=2)
    bare = replace(world.fleet, capacity_buffers={}, pod_templates={})
    plan = make_plan(bare, world.fleet, world.snapshot(), base_revision="base")
    assert [it.address for it in plan.declared] == ["capacitybuffer/ns/b", "podtemplate/ns/s"]
    [machine] = plan.machines
    assert machine.verb == "create"
    assert "CapacityBuffer ns/b" in machine.reason
    assert plan.then is not None
    assert plan.then.usd_h == 98
    world.settle_down()
    back = make_plan(world.fleet, bare, world.snapshot(), base_revision="base")
    assert [it.verb for it in back.machines] == ["delete"]
    assert back.then is not None
    assert back.then.usd_h == 0
    assert plan.plan_id != back.plan_id


@pytest.mark.parametrize("sick", ["place_most", "build_cluster_state"])
def test_a_buffer_that_makes_the_search_fail_stops_nobody_and_costs_no_machine(
    sick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machines stay: given back as idle they would be bought anew for as long as it fails."""
    world = world_of(machines=2)
    world.machine("leaves", node={"ready": False, "ready_changed_at_s": NOW - 9000})

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of the search")

    monkeypatch.setattr(capacity_buffers, sick, fails)
    decided = lifecycle.decide(world.fleet, world.snapshot())
    [failed] = [it for it in decided if isinstance(it, DecisionFailed)]
    assert (failed.subject, str(failed.error)) == ("buffer/ns/b", "of the search")
    saved = {it.claim.name: it.claim for it in decided if isinstance(it, SaveClaim)}
    assert saved["leaves"].disruption is not None, "others are decided as ever"
    assert all(saved[name].emptied_at_s == 0.0 for name in ("m0", "m1") if name in saved)
    aside = replace(world.snapshot(), set_aside=frozenset({"buffer/ns/b"}))
    assert not any(isinstance(it, DecisionFailed) for it in lifecycle.decide(world.fleet, aside))
