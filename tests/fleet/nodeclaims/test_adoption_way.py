"""The way into a pool and every way in which it can be broken off; what belongs to nobody; what ran there before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, CloseClaim, ForgetClaim, OpenClaims, PatchNode, SaveClaim, TagMachine
from fleet.actions import TerminateMachines as Terminate
from fleet.nodeclaims import adoption, lifecycle
from fleet.nodeclaims.garbage_collection import MASS_ORPHANS, orphaned
from fleet.nodeclaims.launch import own_tags
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, GangState, Pin
from model import labels
from model.kinds import Taint
from tests.support.disruption import drift_of
from tests.support.fleets import (
    NOW,
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

Against = Callable[[World], object]


def world_of(**pool: Any) -> World:
    return World(small_fleet(**pool))


def adopted(world: World) -> list[Claim]:
    found = adoption.decide(world.fleet, world.snapshot())
    return [claim for action in found if isinstance(action, OpenClaims) for claim in action.claims]


def refused(world: World) -> dict[str, str]:
    return {name: str(it.reason) for name, it in adoption.refusals(world.fleet, world.snapshot()).items()}


def ended(done: list[Action]) -> list[str]:
    return [name for action in done if isinstance(action, Terminate) for name in action.instance_ids]


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
    assert drift_of(world.fleet, world.snapshot(), claim).words == ""
    world.fleet = small_fleet(zones=[B])
    assert f"{labels.ZONE}={A}" in drift_of(world.fleet, world.snapshot(), claim).words


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
    assert (refusal.reason, "permission to tag machines" in refusal.message) == (Reason.NOT_TAGGED, True)


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


EVENTS: dict[str, Against] = {
    "to this pool": lambda world: retag(world, to="default/h100"),
    "to another pool": lambda world: retag(world, to="default/spare"),
    "to another cluster": to_other_cluster,
    "to none": retag,
    "claim deleted": lambda world: world.claims.update(
        {name: replace(claim, deleting=True) for name, claim in world.claims.items()}
    ),
    "claim lost": lambda world: world.claims.clear(),
    "cordoned": lambda world: world.nodes.update(
        {name: replace(node, unschedulable=not node.unschedulable) for name, node in world.nodes.items()}
    ),
    "an hour": lambda world: setattr(world, "now_s", world.now_s + 3600),
    "a pass": lambda world: world.pass_once(boot=False),
}


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=12))
def test_whatever_happens_one_claim_answers_and_nothing_goes_that_was_not_ours(story: list[str]) -> None:
    fleet = FleetBuilder().pool(disruption={"consolidateAfter": "30s"}).pool("spare").team().queue().build()
    world = World(fleet)
    stranger(world)
    for event in (each for word in story for each in (word, "a pass")):
        before = world.instances["i-1"]
        claims = dict(world.claims)
        EVENTS[event](world)
        assert len(world.claims) <= 1
        if before.gone or not world.instances["i-1"].gone:
            continue
        assert before.tags[labels.CLUSTER] == "default", "only what was taken over is ever terminated"
        claimed = any(claim.deleting for claim in claims.values())
        assert claimed or labels.ADOPT not in before.tags, "and what asks, only by its claim"
    world.settle_down()
    assert all(claim.ready_at_s for claim in world.claims.values())


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


def test_machines_that_this_agent_has_bought_are_its_own_however_many_are_orphans() -> None:
    """A loop of launches left two hundred machines, and the guard then refused to give them back."""
    world = world_of(limits={"nodes": 0})
    for n in range(MASS_ORPHANS + 1):
        world.machine(f"m{n}")
    world.claims.clear()
    assert ended(world.pass_once()) == []
    world.bought = frozenset(["i-m0", "i-m3"])
    assert ended(world.pass_once()) == ["i-m0", "i-m3"]


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
    world.settle_down()
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
