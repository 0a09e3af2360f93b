"""What notices lead to."""

from dataclasses import replace

import pytest

from fleet.actions import SaveClaim
from fleet.nodeclaims.interruption import MARGIN_S, RULES, InterruptionResponse, respond
from fleet.snapshot import Claim, NodeDisruption, Notice, NoticeKind
from model.kinds import NEVER
from providers.kube.objects.instants import format_instant, parse_instant
from tests.support.fleets import NOW, capacity_pool, small_fleet
from tests.support.world import World

SENT = NOW - 20
ANNOUNCED = {NoticeKind.SPOT_INTERRUPTED, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED}
"""What is told two minutes before."""


def answer(
    world: World, *kinds: NoticeKind, instances: tuple[str, ...] = ("i-m0",), at_s: float = SENT
) -> InterruptionResponse:
    due = [at_s + 120 if kind in ANNOUNCED else NEVER for kind in kinds]
    notices = [Notice(f"n{i}", kind, instances, at_s, due[i], "EC2") for i, kind in enumerate(kinds)]
    return respond(notices, world.snapshot())


def claims(it: InterruptionResponse) -> list[Claim]:
    return [action.claim for action in it.actions if isinstance(action, SaveClaim)]


def one() -> World:
    world = World(small_fleet())
    world.machine("m0")
    return world


K = NoticeKind


@pytest.mark.parametrize(
    ("kind", "deadline_s", "short"),
    [
        (K.SPOT_INTERRUPTED, SENT + 105, True),
        (K.CAPACITY_RESERVATION_INTERRUPTED, SENT + 105, True),
        (K.SCHEDULED_CHANGE, NEVER, False),
        (K.INSTANCE_STOPPED, SENT, False),
        (K.INSTANCE_TERMINATED, SENT, False),
        (K.INSTANCE_STATUS, SENT, False),
        (K.SYSTEM_STATUS, SENT, False),
        (K.EVENT_STATUS, NEVER, False),
        (K.REBALANCE_RECOMMENDATION, None, False),
        (K.NO_OP, None, False),
    ],
)
def test_rules(kind: NoticeKind, deadline_s: float | None, short: bool) -> None:
    found = answer(one(), kind)
    if deadline_s is None:
        assert found.actions == ()
    else:
        [claim] = claims(found)
        assert claim.disruption
        assert (claim.disruption.reason, claim.disruption.deadline_s) == ("Interrupted", deadline_s)
        assert claim.disruption.message == RULES[kind].words.format(source="EC2")
    assert found.shortages == ({capacity_pool(): NOW + 180} if short else {})


def test_every_kind_has_a_rule() -> None:
    assert set(RULES) == set(NoticeKind)


def test_a_repeat_changes_nothing() -> None:
    world = one()
    world.apply(answer(world, K.SPOT_INTERRUPTED).actions)
    assert answer(world, K.SPOT_INTERRUPTED).actions == ()


def test_a_repeat_changes_nothing_although_the_deadline_was_rounded_when_it_was_written() -> None:
    world = one()
    at_s = SENT + 0.1999998
    world.apply(answer(world, K.SPOT_INTERRUPTED, at_s=at_s).actions)
    kept = world.claims["m0"]
    assert kept.disruption
    rounded = replace(kept.disruption, deadline_s=parse_instant(format_instant(kept.disruption.deadline_s + 4e-7)))
    world.claims["m0"] = replace(kept, disruption=rounded)
    assert answer(world, K.SPOT_INTERRUPTED, at_s=at_s).actions == ()


def test_the_earliest_deadline_of_several_counts() -> None:
    [claim] = claims(answer(one(), K.SCHEDULED_CHANGE, K.SPOT_INTERRUPTED))
    assert claim.disruption
    assert claim.disruption.deadline_s == SENT + 105
    [claim] = claims(answer(one(), K.SPOT_INTERRUPTED, K.SCHEDULED_CHANGE))
    assert claim.disruption
    assert claim.disruption.deadline_s == SENT + 105


def test_a_machine_that_leaves_at_leisure_gets_the_deadline() -> None:
    """The cloud does not wait for a drain that has no deadline of its own."""
    world = one()
    slow = NodeDisruption("Drifted", "x", NOW - 99, NEVER)
    world.claims["m0"] = replace(world.claims["m0"], deleting=True, disruption=slow)
    [claim] = claims(answer(world, K.SPOT_INTERRUPTED))
    assert claim.disruption
    assert (claim.disruption.reason, claim.disruption.deadline_s) == ("Drifted", SENT + 105)


def test_several_machines_in_one_notice_and_strangers() -> None:
    world = one()
    world.machine("m1")
    found = answer(world, K.SPOT_INTERRUPTED, instances=("i-m1", "i-stranger", "i-m0"))
    assert [claim.name for claim in claims(found)] == ["m0", "m1"]


@pytest.mark.parametrize(
    ("kind", "due_s", "deadline_s"),
    [
        pytest.param(K.SCHEDULED_CHANGE, SENT + 86400, SENT + 86400 - MARGIN_S, id="maintenance tomorrow"),
        pytest.param(K.EVENT_STATUS, SENT + 3600, SENT + 3600 - MARGIN_S, id="a reboot in an hour"),
        pytest.param(K.SCHEDULED_CHANGE, SENT - 60, NEVER, id="announced after it had begun"),
        pytest.param(K.SPOT_INTERRUPTED, SENT + 120, SENT + 105, id="two minutes, less a margin"),
        pytest.param(K.INSTANCE_STOPPED, SENT + 60, SENT, id="it is happening"),
    ],
)
def test_the_deadline_is_what_the_cloud_says(kind: NoticeKind, due_s: float, deadline_s: float) -> None:
    [claim] = claims(respond([Notice("n", kind, ("i-m0",), SENT, due_s)], one().snapshot()))
    assert claim.disruption
    assert claim.disruption.deadline_s == deadline_s


@pytest.mark.parametrize(("says", "advised"), [("Replace", True), ("Ignore", False)])
def test_advice_is_written_down_where_the_pool_acts_on_it(says: str, advised: bool) -> None:
    world = World(small_fleet(disruption={"onRebalance": says}))
    world.machine("m0")
    advice = [Notice("n", K.REBALANCE_RECOMMENDATION, ("i-m0",), SENT)]
    found = respond(advice, world.snapshot(), world.fleet.node_pools)
    assert [(claim.advised_at_s, claim.disruption) for claim in claims(found)] == ([(NOW, None)] if advised else [])
    assert found.shortages == {}
    world.apply(found.actions)
    world.now_s += 60
    assert respond(advice, world.snapshot(), world.fleet.node_pools).actions == (), "once"
    assert respond(advice, world.snapshot()).actions == ()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("AWS Health", "AWS Health announces maintenance"),
        ("", "the cloud announces maintenance"),
    ],
)
def test_the_message_names_who_says_so(source: str, message: str) -> None:
    notice = Notice("n", K.SCHEDULED_CHANGE, ("i-m0",), SENT)
    [claim] = claims(respond([replace(notice, source=source) if source else notice], one().snapshot()))
    assert claim.disruption
    assert claim.disruption.message == message
