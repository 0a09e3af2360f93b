"""Adoption as a table: what may be adopted, and what stands against it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, OpenClaims
from fleet.actions import TerminateMachines as Terminate
from fleet.nodeclaims import adoption, lifecycle
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState
from model import labels
from providers.aws.identity import managed_by
from tests.support.fleets import (
    GPU,
    P4,
    A,
    B,
    FleetBuilder,
    amounts,
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


SCALED = managed_by({"aws:autoscaling:groupName": "asg"})


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
        (
            {},
            asking(
                tags={"aws:autoscaling:groupName": "asg"}, managed_by=managed_by({"aws:autoscaling:groupName": "asg"})
            ),
            Reason.MANAGED_ELSEWHERE,
            "Auto Scaling",
        ),
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


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["i-1", "i-2", "i-3", "i-4"]), unique=True, min_size=1), st.integers(0, 4))
def test_the_order_of_a_listing_changes_nothing(names: list[str], most: int) -> None:
    world = world_of(limits={"nodes": most})
    for name in names:
        stranger(world, name)
    assert [claim.adopts for claim in adopted(world)] == sorted(names)[:most]
    assert sorted(refused(world)) == sorted(names)[most:]
