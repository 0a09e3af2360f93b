"""What the outcome of a launch means: all machines of a group, or none."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import SaveClaim, TerminateMachines
from fleet.nodeclaims.launch_outcome import LaunchSettlement, settle
from fleet.reasons import Reason
from fleet.snapshot import Claim, Launch, LaunchError, LaunchFailure, LaunchOutcome, Reach
from tests.support.fleets import NOW, P5, A, B, capacity_pool, claim_of, offering, small_fleet
from tests.support.world import World


def group(*lots: int) -> World:
    """A launch group of lots with so many claims each; the first lot in zone a, the others in zone b."""
    world = World(small_fleet())
    for lot, count in enumerate(lots):
        it = offering(world.fleet, world.catalog, "h100", P5.name, B if lot else A, "on-demand")
        for n in range(count):
            launch = Launch("group", lot, sum(lots))
            world.claims[f"c{lot}{n}"] = claim_of(it, f"c{lot}{n}", launch=launch)
    return world


def lot_of(world: World, lot: int = 0) -> list[Claim]:
    return [claim for _, claim in sorted(world.claims.items()) if claim.launch.lot == lot]


def failure(error: LaunchError, code: str = "X") -> LaunchFailure:
    return LaunchFailure(error, code, "")


def settled(world: World, instances: tuple[str, ...], *errors: LaunchError, lot: int = 0) -> LaunchSettlement:
    return settle(LaunchOutcome(instances, tuple(map(failure, errors))), lot_of(world, lot), world.snapshot())


def saved(it: LaunchSettlement) -> dict[str, Claim]:
    return {action.claim.name: action.claim for action in it.actions if isinstance(action, SaveClaim)}


def returned(it: LaunchSettlement) -> list[str]:
    return [i for action in it.actions if isinstance(action, TerminateMachines) for i in action.instance_ids]


SHORT, QUOTA, WRONG, LATER, UNKNOWN = LaunchError


def test_all_came() -> None:
    it = settled(group(3), ("i-3", "i-1", "i-2"))
    assert {name: claim.instance_id for name, claim in saved(it).items()} == {"c00": "i-1", "c01": "i-2", "c02": "i-3"}
    assert all(claim.launched_at_s == NOW for claim in saved(it).values())
    assert (returned(it), it.shortages, it.ask_again) == ([], {}, False)


def test_the_same_answer_twice_binds_the_same() -> None:
    world = group(2)
    first = settled(world, ("i-2", "i-1"))
    world.apply(first.actions)
    again = settled(world, ("i-1", "i-2"))
    assert {n: c.instance_id for n, c in saved(again).items()} == {n: c.instance_id for n, c in saved(first).items()}


def test_surplus_goes_back() -> None:
    it = settled(group(2), ("i-1", "i-2", "i-3"), SHORT)
    assert returned(it) == ["i-3"]
    assert len(saved(it)) == 2
    assert not it.shortages


@pytest.mark.parametrize("came", [("i-1",), ()])
def test_fewer_than_all_is_none(came: tuple[str, ...]) -> None:
    it = settled(group(2), came, SHORT)
    assert returned(it) == list(came)
    assert {name: claim.disruption.reason for name, claim in saved(it).items() if claim.disruption} == {
        "c00": "InsufficientCapacityError",
        "c01": "InsufficientCapacityError",
    }
    assert not any(claim.instance_id for claim in saved(it).values())
    assert it.shortages == {capacity_pool(zone=A): NOW + 180}
    assert saved(it)["c00"].disruption == saved(it)["c01"].disruption
    disruption = saved(it)["c00"].disruption
    assert disruption
    assert disruption.message == f"{len(came)} of 2 machines of {P5.name}:on-demand:{A}: X"


def test_fewer_without_any_error_is_a_shortage_too() -> None:
    it = settled(group(2), ("i-1",))
    assert it.shortages == {capacity_pool(zone=A): NOW + 180}
    assert returned(it) == ["i-1"]


def test_a_shortfall_of_one_lot_gives_up_the_whole_group() -> None:
    world = group(2, 1)
    world.apply(settled(world, ("i-1", "i-2")).actions)
    world.claims["other"] = replace(world.claims["c00"], name="other", launch=Launch("else", 0, 1))
    it = settled(world, (), SHORT, lot=1)
    assert sorted(saved(it)) == ["c00", "c01", "c10"]
    assert saved(it)["c00"].instance_id == "i-1", "what was bought is still known, so that it is terminated"
    assert it.shortages == {capacity_pool(zone=B): NOW + 180}


def test_claims_that_are_being_deleted_are_not_written() -> None:
    world = group(2)
    world.claims["c01"] = replace(world.claims["c01"], deleting=True)
    assert list(saved(settled(world, (), SHORT))) == ["c00"]


@pytest.mark.parametrize(
    ("errors", "pause_s"),
    [((SHORT,), 180), ((QUOTA,), 600), ((WRONG,), 600), ((SHORT, QUOTA), 600), ((UNKNOWN, SHORT), 180)],
)
def test_how_long_a_capacity_pool_is_avoided(errors: tuple[LaunchError, ...], pause_s: float) -> None:
    assert settled(group(1), (), *errors).shortages == {capacity_pool(zone=A): NOW + pause_s}


def test_a_capacity_type_nobody_may_have_is_out_altogether() -> None:
    world = group(1)
    refused = LaunchFailure(WRONG, "X", "", Reach.CAPACITY_TYPE)
    it = settle(LaunchOutcome((), (refused,)), lot_of(world), world.snapshot())
    assert {pool.capacity_type for pool in it.shortages} == {"on-demand"}
    assert it.shortages.keys() == {o.pool_key for o in world.catalog.offers if o.capacity_type == "on-demand"}


def test_a_zone_without_a_free_address_is_out_altogether() -> None:
    """Every other type would ask the same subnets, a call each."""
    world = group(1)
    refused = LaunchFailure(SHORT, "InsufficientFreeAddressesInSubnet", "", Reach.SUBNET)
    it = settle(LaunchOutcome((), (refused,)), lot_of(world), world.snapshot())
    assert it.shortages.keys() == {o.pool_key for o in world.catalog.offers if o.zone == A}


@pytest.mark.parametrize("errors", [(), (UNKNOWN,), (LATER,), (LATER, UNKNOWN)])
def test_when_nothing_is_known_the_same_launch_is_asked_again(errors: tuple[LaunchError, ...]) -> None:
    it = settled(group(2), (), *errors)
    assert (it.actions, it.shortages, it.ask_again) == ((), {}, True)


def test_a_late_error_with_some_machines_is_a_shortfall_all_the_same() -> None:
    it = settled(group(2), ("i-1",), LATER)
    assert returned(it) == ["i-1"]
    assert it.shortages[capacity_pool(zone=A)] > NOW


@given(st.integers(1, 4), st.integers(0, 6), st.lists(st.sampled_from(list(LaunchError)), max_size=3))
def test_no_machine_is_ever_forgotten(asked: int, came: int, errors: Any) -> None:
    """Every instance is bound to exactly one claim or given back; never both, never k of N."""
    instances = tuple(f"i-{n}" for n in range(came))
    it = settled(group(asked), instances, *errors)
    bound = [claim.instance_id for claim in saved(it).values() if claim.instance_id]
    assert sorted([*bound, *returned(it)]) == sorted(instances)
    assert len(bound) in {0, asked}
    assert it.ask_again is not bool(it.actions)


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([LaunchError.MISCONFIGURED], Reason.LAUNCH_REFUSED),
        ([LaunchError.MISCONFIGURED, LaunchError.SHORTAGE], Reason.LAUNCH_FAILED),
        ([LaunchError.SHORTAGE], Reason.LAUNCH_FAILED),
        ([LaunchError.QUOTA], Reason.LAUNCH_FAILED),
    ],
)
def test_a_refusal_is_told_apart_from_a_shortage(errors: list[LaunchError], reason: Reason) -> None:
    world = group(1)
    outcome = LaunchOutcome((), tuple(LaunchFailure(error, "Code", "words") for error in errors))
    disruption = saved(settle(outcome, lot_of(world), world.snapshot()))["c00"].disruption
    assert disruption is not None
    assert disruption.reason == reason


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LaunchError.MISCONFIGURED, "PG.Unknown (The Placement Group 'x' is unknown.)"),
        (LaunchError.SHORTAGE, "PG.Unknown"),
    ],
)
def test_what_only_a_person_can_mend_is_told_in_the_clouds_words(error: LaunchError, told: str) -> None:
    world = group(1)
    outcome = LaunchOutcome((), (LaunchFailure(error, "PG.Unknown", "The Placement Group 'x' is unknown."),))
    disruption = saved(settle(outcome, lot_of(world), world.snapshot()))["c00"].disruption
    assert disruption is not None
    assert disruption.message == f"0 of 1 machine of {P5.name}:on-demand:{A}: {told}"
