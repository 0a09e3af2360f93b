"""Adoption as tables: what may be adopted and what stands against it, and every way in which it can be broken off."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import Action, CloseClaim, ForgetClaim, OpenClaims, PatchNode, SaveClaim, TagMachine
from fleet.actions import TerminateMachines as Terminate
from fleet.capacity import adoption, lifecycle
from fleet.capacity.disrupt.drift import drift_of
from fleet.capacity.launch import own_tags
from fleet.capacity.orphans import MASS_ORPHANS, orphaned
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, GangState, Pin
from model import labels
from model.kinds import Taint
from tests.support.fleets import (
    GPU,
    NOW,
    P4,
    A,
    B,
    FleetBuilder,
    amounts,
    foreign_pod,
    gang,
    gang_pod,
    job_of,
    small_fleet,
)
from tests.support.strangers import stranger
from tests.support.world import World

CUT = [{"profiles": {"1g.10gb": 7}}]


def world_of(**pool: Any) -> World:
    return World(small_fleet(**pool))


def adopted(world: World) -> list[Claim]:
    found = adoption.decide(world.fleet, world.snapshot())
    return [claim for action in found if isinstance(action, OpenClaims) for claim in action.claims]


def refused(world: World) -> dict[str, str]:
    return {name: str(it.reason) for name, it in adoption.refusals(world.fleet, world.snapshot()).items()}


def ended(done: list[Action]) -> list[str]:
    return [name for action in done if isinstance(action, Terminate) for name in action.instance_ids]


def test_what_the_claim_says() -> None:
    world = world_of()
    stranger(world)
    [claim] = adopted(world)
    assert (claim.name, claim.adopts, claim.instance_id, claim.state) == (
        "adopted-i-1",
        "i-1",
        "i-1",
        ClaimState.LAUNCHED,
    )
    assert (claim.node_pool, claim.price_usd_h, claim.pool_hash, claim.gang) == ("h100", 98.0, "", "")
    assert claim.resources[GPU] == 8
    assert refused(world) == {}


# -- what may be adopted ----------------------------------------------------------------------------------------------

Against = Callable[[World], object]


def at(**node: Any) -> Against:
    return lambda world: stranger(world, node=node)


def asking(value: str = "default/h100", **facts: Any) -> Against:
    return lambda world: stranger(world, asks=value, **facts)


def with_machines(count: int) -> Against:
    def put(world: World) -> None:
        stranger(world)
        for n in range(count):
            world.machine(f"m{n}")

    return put


def tags(**said: str) -> Against:
    return asking(tags={key.replace("__", "/").replace("_", "-"): text for key, text in said.items()})


def without_node(world: World) -> None:
    stranger(world)
    world.nodes.clear()


def claimed_node(world: World) -> None:
    world.machine("m0", node={"name": "other"})
    stranger(world, node={"labels": {labels.NODE_CLAIM: "m0"}})


def leaving_soon(world: World) -> None:
    """Its claim was deleted by force, and is still there to go."""
    stranger(world)
    it = world.machine("m0")
    world.claims = {"adopted-i-1": replace(it, name="adopted-i-1", deleting=True, instance_id="i-0")}


def unpriced(world: World) -> None:
    stranger(world)
    world.catalog = replace(world.catalog, offers=tuple(o for o in world.catalog.offers if o.zone != A))


def unknown_type(world: World) -> None:
    stranger(world)
    world.instances["i-1"] = replace(world.instances["i-1"], instance_type="x9.huge")


@pytest.mark.parametrize(
    ("pool", "put", "reason", "words"),
    [
        ({}, asking("default/nope"), Reason.POOL_NOT_FOUND, "node pool nope is not declared"),
        ({}, asking("default/"), Reason.ADOPTION_TAG, "has to be default/<node pool>"),
        ({}, asking("h100"), Reason.ADOPTION_TAG, "'h100'"),
        ({}, asking("other/h100"), Reason.ADOPTION_TAG, "'other/h100'"),
        ({}, asking("default/h100/x"), Reason.POOL_NOT_FOUND, "h100/x"),
        ({}, tags(muster_dev="no matter"), None, ""),
        ({}, asking(tags={labels.CLUSTER: "other"}), Reason.MANAGED_ELSEWHERE, "belongs to cluster other"),
        ({}, asking(tags={"aws:autoscaling:groupName": "asg"}), Reason.MANAGED_ELSEWHERE, "Auto Scaling"),
        ({}, asking(tags={"karpenter.sh/nodeclaim": "x"}), Reason.MANAGED_ELSEWHERE, "Karpenter"),
        ({}, claimed_node, Reason.MANAGED_ELSEWHERE, "NodeClaim m0"),
        ({}, leaving_soon, Reason.MANAGED_ELSEWHERE, "NodeClaim adopted-i-1"),
        ({}, at(labels={labels.NODE_CLAIM: "long-gone"}), None, ""),
        ({}, without_node, Reason.NOT_JOINED, f"providerID aws:///{A}/i-1"),
        ({}, at(ready=False), Reason.NODE_NOT_READY, "not ready"),
        ({}, at(deleting=True), Reason.NODE_NOT_READY, "being deleted"),
        ({}, at(unschedulable=True), Reason.NODE_NOT_READY, "uncordon"),
        ({}, at(allocatable=amounts(4)), Reason.NODE_NOT_READY, "4 nvidia.com/gpu, promised 8"),
        ({}, unknown_type, Reason.NO_OFFER, "x9.huge"),
        ({}, unpriced, Reason.NO_OFFER, "not on sale"),
        ({"zones": [B]}, lambda w: stranger(w, zone=B), None, ""),
        ({"capacityTypes": ["spot", "on-demand"]}, asking(capacity_type="spot"), None, ""),
        ({"template": {"labels": {"rack": "r1"}}}, at(labels={"rack": "r2"}), Reason.NOT_OF_POOL, "rack=r2"),
        ({"template": {"labels": {"rack": "r1"}}}, at(labels={"rack": "r1"}), None, ""),
        ({"placement": {"group": "pg"}}, asking(), Reason.NOT_OF_POOL, "placement group pg"),
        ({"placement": {"group": "pg"}}, asking(placement_group="pg"), None, ""),
        ({"placement": {"efa": True}}, at(allocatable=amounts(8)), Reason.NODE_NOT_READY, "efa"),
        ({"limits": {"nodes": 1}}, with_machines(0), None, ""),
        ({"limits": {"nodes": 1}}, with_machines(1), Reason.POOL_LIMIT, "limits of node pool h100"),
        ({"limits": {"usdPerHour": 97.0}}, asking(), Reason.POOL_LIMIT, "limits"),
        ({"limits": {"resources": {GPU: 15}}}, with_machines(1), Reason.POOL_LIMIT, "limits"),
        ({"replicas": 2}, with_machines(1), None, ""),
        ({"replicas": 1}, with_machines(1), Reason.POOL_LIMIT, "has its 1 replicas"),
        ({"sharing": {"timeSlicing": {"replicas": 4}}}, at(allocatable=amounts(8)), Reason.NODE_NOT_READY, "32"),
    ],
)
def test_what_stands_against_it(pool: dict[str, Any], put: Against, reason: Reason | None, words: str) -> None:
    world = world_of(**pool)
    put(world)
    told = adoption.refusals(world.fleet, world.snapshot())
    assert [str(it.reason) for it in told.values()] == ([str(reason)] if reason else [])
    assert len(adopted(world)) == (reason is None)
    assert all(words in it.message for it in told.values())
    done = list(lifecycle.decide(world.fleet, world.snapshot()))
    assert "i-1" not in ended(done), "what asks is never terminated"


@pytest.mark.parametrize("state", ["pending", "stopping", "stopped"])
def test_one_that_does_not_run_waits(state: str) -> None:
    world = world_of()
    stranger(world)
    world.instances["i-1"] = replace(world.instances["i-1"], state=state)
    assert (adopted(world), refused(world)) == ([], {"i-1": "NodeNotJoined"})


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_one_that_is_gone_is_not_spoken_of(state: str) -> None:
    world = world_of()
    stranger(world)
    world.instances["i-1"] = replace(world.instances["i-1"], state=state)
    assert (adopted(world), refused(world)) == ([], {})


def test_of_another_type_zone_or_capacity_type_it_is_not_the_pools() -> None:
    builder = FleetBuilder().pool(zones=[A]).pool("a100", instanceTypes=[P4.name], capacityTypes=["spot", "on-demand"])
    world = World(builder.team().queue().build())
    stranger(world, "i-1", like="a100", kind=P4.name)
    stranger(world, "i-2", "default/h100", like="a100", kind=P4.name, zone=B)
    stranger(world, "i-3", "default/a100", like="a100", kind=P4.name, capacity_type="spot")
    told = adoption.refusals(world.fleet, world.snapshot())
    assert {name: it.message.partition(" does")[0] for name, it in told.items()} == {
        "i-1": f"{labels.INSTANCE_TYPE}={P4.name}",
        "i-2": f"{labels.INSTANCE_TYPE}={P4.name}",
    }
    assert [claim.capacity_pool.capacity_type for claim in adopted(world)] == ["spot"]


def test_limits_hold_for_all_that_are_adopted_at_once_and_what_is_under_way() -> None:
    world = world_of(limits={"nodes": 3})
    world.machine("m0", ready_at_s=0.0, registered_at_s=0.0)
    for n in (3, 1, 2):
        stranger(world, f"i-{n}")
    assert [claim.adopts for claim in adopted(world)] == ["i-1", "i-2"]
    assert refused(world) == {"i-3": "PoolLimitReached"}


def test_a_fixed_pool_adopts_what_it_lacks_and_buys_the_rest() -> None:
    world = world_of(replicas=2)
    for n in (1, 2, 3):
        stranger(world, f"i-{n}")
    world.settle_down()
    assert sorted(world.claims) == ["adopted-i-1", "adopted-i-2"]
    assert not world.launches
    assert refused(world) == {"i-3": "PoolLimitReached"}
    world.fleet = small_fleet(replicas=4)
    world.settle_down()
    assert len(world.claims) == 4
    assert sum(request.count for request in world.launches) == 1


@pytest.mark.parametrize(("standing", "expected"), [("", None), ("lay", "NodeNotReady")])
def test_in_a_pool_that_cuts_gpus_it_must_be_cut_already(standing: str, expected: str | None) -> None:
    fleet = FleetBuilder().layout("lay", h100_80gb=CUT).pool(sharing={"mig": {"layouts": ["lay"]}}).team().queue()
    world = World(fleet.build())
    _, joined = stranger(world)
    if standing:
        bare = {key: text for key, text in joined.labels.items() if key != labels.MIG_CONFIG}
        world.nodes[joined.name] = replace(joined, labels=bare)
    assert refused(world) == ({"i-1": expected} if expected else {})
    assert [bool(claim.layout) for claim in adopted(world)] == ([] if expected else [True])


def test_what_is_in_hand_is_left_for_the_next_pass() -> None:
    world = world_of()
    stranger(world)
    for subject in ("claim/adopted-i-1", "instance/i-1", "node/node-i-1"):
        world.busy = frozenset({subject})
        assert adopted(world) == []
    world.busy = frozenset({"claim/other"})
    assert len(adopted(world)) == 1


@given(st.lists(st.sampled_from(["i-1", "i-2", "i-3", "i-4"]), unique=True, min_size=1), st.integers(0, 4))
def test_the_order_of_a_listing_changes_nothing(names: list[str], most: int) -> None:
    world = world_of(limits={"nodes": most})
    for name in names:
        stranger(world, name)
    assert [claim.adopts for claim in adopted(world)] == sorted(names)[:most]
    assert sorted(refused(world)) == sorted(names)[most:]


# -- the way in -------------------------------------------------------------------------------------------------------


def test_step_by_step() -> None:
    world = world_of(template={"taints": [{"key": "gpu", "effect": "NoSchedule"}], "annotations": {"a": "b"}})
    stranger(world, node={"taints": (Taint(key="muster.dev/disrupted", effect="NoSchedule"),)})

    def step() -> list[type]:
        return [type(action) for action in world.pass_once()]

    assert step() == [OpenClaims]
    assert not world.instances["i-1"].tags.get(labels.CLUSTER), "intent first"
    assert step() == [TagMachine]
    assert world.instances["i-1"].tags == {
        labels.ADOPT: "default/h100",
        labels.CLUSTER: "default",
        labels.NODE_POOL: "h100",
        "muster.dev/launch-group": "adopted-i-1",
    }
    assert step() == [PatchNode, SaveClaim]
    node = world.nodes["node-i-1"]
    assert (node.labels[labels.NODE_CLAIM], node.labels[labels.NODE_POOL]) == ("adopted-i-1", "h100")
    assert [taint.key for taint in node.taints] == ["gpu"]
    assert step() == [SaveClaim]
    assert world.claims["adopted-i-1"].state is ClaimState.READY
    assert step() == []


def test_start_up_taints_are_not_written_on_what_has_started() -> None:
    world = world_of(
        template={
            "amiFamily": "Custom",
            "amis": [{"id": "ami-1"}],
            "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
        }
    )
    stranger(world)
    for _ in range(4):
        world.pass_once()
    assert world.claims["adopted-i-1"].state is ClaimState.READY


def test_taking_the_tag_away_or_changing_it_afterwards_changes_nothing() -> None:
    world = world_of(disruption={"consolidateAfter": "Never"})
    stranger(world)
    world.settle_down()
    for said in ({}, {labels.ADOPT: "other/x"}):
        kept = {key: text for key, text in world.instances["i-1"].tags.items() if key != labels.ADOPT}
        world.instances["i-1"] = replace(world.instances["i-1"], tags=kept | said)
        world.now_s += 3600
        assert world.settle_down() == []
        assert refused(world) == {}


def test_how_it_was_born_is_not_judged_but_what_the_pool_requires_is() -> None:
    world = world_of()
    stranger(world)
    world.settle_down()
    claim = world.claims["adopted-i-1"]
    world.fleet = small_fleet(template={"userData": "echo other"})
    assert drift_of(world.fleet, world.snapshot(), claim) == ""
    world.fleet = small_fleet(zones=[B])
    assert f"{labels.ZONE}={A}" in drift_of(world.fleet, world.snapshot(), claim)


# -- broken off -------------------------------------------------------------------------------------------------------


def under_way(**facts: Any) -> World:
    """The claim is written, and nothing else."""
    world = world_of()
    stranger(world, **facts)
    world.pass_once()
    assert list(world.claims) == ["adopted-i-1"]
    return world


def retag(world: World, **said: str) -> None:
    kept = {key: text for key, text in world.instances["i-1"].tags.items() if key != labels.ADOPT}
    world.instances["i-1"] = replace(world.instances["i-1"], tags=kept | ({labels.ADOPT: said["to"]} if said else {}))


def to_other_cluster(world: World) -> None:
    retag(world, to="other/h100")


def untagged_and_unlisted(world: World) -> None:
    del world.instances["i-1"]
    world.now_s += 61


def vanished(world: World) -> None:
    world.instances["i-1"] = replace(world.instances["i-1"], state="terminated")


def pool_removed(world: World) -> None:
    world.fleet = FleetBuilder().pool("other").team(quotas={}).queue(flavors=["other"]).build()


def given_up(world: World) -> None:
    world.claims["adopted-i-1"] = replace(world.claims["adopted-i-1"], deleting=True)
    retag(world)


@pytest.mark.parametrize("happens", [to_other_cluster, untagged_and_unlisted, vanished, pool_removed, given_up])
def test_before_the_tags_the_machine_is_left_as_it_was(happens: Against) -> None:
    world = under_way()
    before = world.nodes["node-i-1"]
    happens(world)
    done = world.settle_down()
    assert {type(action) for action in done} <= {SaveClaim, CloseClaim, ForgetClaim}
    assert world.claims == {}
    assert world.nodes["node-i-1"] == before
    assert all(labels.CLUSTER not in it.tags for it in world.instances.values())


def test_to_another_pool_it_goes_by_a_new_claim() -> None:
    world = World(FleetBuilder().pool().pool("spare").team().queue().build())
    stranger(world)
    world.pass_once()
    retag(world, to="default/spare")
    assert ended(world.settle_down()) == []
    assert [(claim.adopts, claim.node_pool) for claim in world.claims.values()] == [("i-1", "spare")]


def test_missing_from_one_listing_it_is_waited_for() -> None:
    world = under_way()
    found = world.instances.pop("i-1")
    world.now_s += 30
    assert world.pass_once() == []
    world.instances["i-1"] = found
    world.settle_down()
    assert world.claims["adopted-i-1"].ready_at_s


def test_tags_under_way_are_not_written_twice_nor_the_claim_forgotten_meanwhile() -> None:
    world = under_way()
    world.busy = frozenset({"instance/i-1"})
    assert list(lifecycle.decide(world.fleet, world.snapshot())) == []
    given_up(world)
    assert list(lifecycle.decide(world.fleet, world.snapshot())) == []


def test_tags_that_cannot_be_written_are_told_of_and_hold_everything_up() -> None:
    world = under_way()
    for _ in range(100):
        world.now_s += 60
        done = lifecycle.decide(world.fleet, world.snapshot())
        assert [type(action) for action in done] == [TagMachine]
    [refusal] = adoption.refusals(world.fleet, world.snapshot()).values()
    assert (refusal.reason, "ec2:CreateTags" in refusal.message) == (Reason.NOT_TAGGED, True)


def test_once_tagged_a_deleted_claim_takes_its_machine_with_it() -> None:
    world = under_way()
    world.pass_once()
    given_up(world)
    assert ended(world.settle_down()) == ["i-1"]
    assert world.claims == {}


def test_two_agents_write_one_claim() -> None:
    world = world_of()
    stranger(world)
    first, second = adopted(world), adopted(world)
    world.apply([OpenClaims(tuple(first)), OpenClaims(tuple(second))])
    assert len(world.claims) == 1
    other = World(FleetBuilder().pool().pool("spare").team().queue().build())
    stranger(other, asks="default/spare")
    assert [claim.name for claim in adopted(other)] == [claim.name for claim in first], "whatever the tag says by then"


# -- what belongs to nobody -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["default/h100", "default/nope", "other/h100", "nonsense"])
def test_what_asks_is_no_orphan_whatever_it_says(said: str) -> None:
    world = world_of(limits={"nodes": 0})
    stranger(world, asks=said, tags={labels.CLUSTER: "default"})
    assert orphaned(world.snapshot()) == []
    retag(world)
    assert [it.id for it in orphaned(world.snapshot())] == ["i-1"]


def test_a_machine_that_lost_its_claim_can_be_adopted_back() -> None:
    world = world_of(disruption={"consolidateAfter": "Never"})
    claim = world.machine("m0")
    world.claims.clear()
    known = world.instances[claim.instance_id]
    world.instances[known.id] = replace(known, tags={**known.tags, labels.ADOPT: "default/h100"})
    assert ended(world.settle_down()) == []
    back = world.claims[f"adopted-{known.id}"]
    assert back.state is ClaimState.READY
    assert world.instances[known.id].tags["muster.dev/launch-group"] == back.launch.group
    retag_known = {key: text for key, text in world.instances[known.id].tags.items() if key != labels.ADOPT}
    world.instances[known.id] = replace(known, tags=retag_known)
    assert world.settle_down() == []


def test_a_claim_that_names_a_machine_answers_for_it_whatever_its_group_tag_says() -> None:
    world = under_way(tags={labels.CLUSTER: "default", "muster.dev/launch-group": "of-long-ago"})
    retag(world)
    assert orphaned(world.snapshot()) == []


def test_those_that_ask_do_not_hide_a_mass_of_orphans() -> None:
    world = world_of(limits={"nodes": 0})
    for n in range(MASS_ORPHANS + 1):
        world.machine(f"m{n}")
        stranger(world, f"i-{n}")
        stranger(world, f"i-x{n}")
    world.claims.clear()
    assert len(orphaned(world.snapshot())) == MASS_ORPHANS + 1
    assert ended(world.pass_once()) == []


# -- what runs there already ------------------------------------------------------------------------------------------


def test_foreign_pods_count_as_used_and_keep_the_machine() -> None:
    world = world_of(disruption={"consolidateAfter": "30s"})
    stranger(world)
    pod = foreign_pod("theirs", "node-i-1", amounts(6))
    world.stands(pod)
    world.settle_down()
    world.now_s += 3600
    assert world.settle_down() == []
    world.waits(gang("g", gpu=4))
    world.settle_down()
    assert [pin.node for pin in world.gang("g").pins] != ["node-i-1"], "two GPUs are free there, not eight"
    world.waits(gang("h", gpu=2))
    world.settle_down()
    assert [pin.claim for pin in world.gang("h").pins] == ["adopted-i-1"]


def test_when_they_have_gone_it_is_given_back_like_any_other() -> None:
    world = world_of(disruption={"consolidateAfter": "30s"})
    stranger(world)
    pod = foreign_pod("theirs", "node-i-1")
    world.stands(pod)
    world.settle_down()
    world.pods.clear()
    world.now_s += 3600
    assert ended(world.settle_down()) == ["i-1"]
    assert (world.claims, world.nodes) == ({}, {})


def test_no_gang_is_placed_on_it_before_it_is_ready() -> None:
    world = under_way()
    world.stands(foreign_pod("theirs", "node-i-1", amounts(6)))
    world.waits(gang("g"))
    world.settle_down()
    assert all(pin.claim != "adopted-i-1" for pin in world.gang("g").pins)


def test_gangs_of_ours_that_stood_there_are_its_tenants() -> None:
    world = world_of(disruption={"consolidateAfter": "30s"})
    stranger(world)
    running = gang("g")
    pins = (Pin("main", "node-i-1", "", 1),)
    world.jobs[running.uid] = replace(job_of(running, suspended=False), ready_pods=1)
    world.gangs[running.uid] = replace(
        running, state=GangState.ADMITTED, pins=pins, flavors={"main": ("h100",)}, admitted_at_s=NOW, pods_ready=True
    )
    world.stands(gang_pod(running, "g-0", node="node-i-1"))
    world.settle_down()
    assert world.gang("g").pins == (Pin("main", "node-i-1", "adopted-i-1", 1),)
    assert world.gang("g").state is GangState.ADMITTED
    assert world.claims["adopted-i-1"].emptied_at_s == 0.0


def test_the_tags_are_those_of_a_machine_that_was_bought() -> None:
    world = world_of()
    stranger(world)
    [claim] = adopted(world)
    world.fleet = small_fleet(replicas=1)
    world.instances.clear()
    world.nodes.clear()
    world.settle_down()
    assert set(world.launches[0].tags) == set(own_tags(claim, "default"))
