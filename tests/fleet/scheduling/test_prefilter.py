"""A loop of launches is cut short; what no rule of the prefilter may forget."""

from dataclasses import replace

import pytest

from fleet.reasons import Reason
from fleet.scheduling.prefilter import LAUNCHES_MOST, LAUNCHES_WITHIN_S, immovable, prefilter
from fleet.snapshot import Eviction, Launch, NodeDisruption
from fleet.snapshot.constraints import UnsupportedConstraint
from model.kinds import NEVER
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World


@pytest.mark.parametrize(
    ("launches", "age_s", "facts", "refused"),
    [
        pytest.param(LAUNCHES_MOST, 10.0, {}, True, id="as often as that within a minute"),
        pytest.param(LAUNCHES_MOST - 1, 10.0, {}, False, id="less often"),
        pytest.param(LAUNCHES_MOST, LAUNCHES_WITHIN_S, {}, False, id="longer ago"),
        pytest.param(LAUNCHES_MOST, 10.0, {"launched_at_s": 0.0}, False, id="the cloud had none"),
        pytest.param(LAUNCHES_MOST, 10.0, {"replaces": ("old",)}, False, id="bought to move it"),
        pytest.param(LAUNCHES_MOST, 10.0, {"gang": "uid-other"}, False, id="for another gang"),
    ],
)
def test_a_gang_whose_machines_vanish_as_they_are_bought_pauses(
    launches: int, age_s: float, facts: dict[str, object], refused: bool
) -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.waits(gang("g"))
    told = NodeDisruption("InstanceTerminated", "x", NOW, NEVER)
    for n in range(launches):
        stamps = {"launched_at_s": NOW - age_s, **facts}
        made = world.machine(f"m{n}", **{"gang": "uid-g", "launch": Launch(f"group{n}", 0, 2), **stamps})
        world.claims[made.name] = replace(made, disruption=told, deleting=True)
        more = replace(made, name=f"{made.name}-too")  # of the same launch
        world.claims[more.name] = more
    refusal = prefilter(world.fleet, world.snapshot(), world.gang("g"))
    assert (refusal is not None) is refused
    if refusal is not None:
        assert (refusal.reason, refusal.retry_at_s) == (Reason.BACK_OFF, NOW - age_s + LAUNCHES_WITHIN_S)


@pytest.mark.parametrize(
    ("reason", "since_s", "refused"),
    [
        pytest.param(Reason.UNDERUTILIZED, NOW - 1, False, id="only moved"),
        pytest.param(Reason.UNDERUTILIZED, NOW - 3600, True, id="moved long ago"),
        pytest.param(Reason.NODE_FAILURE, NOW - 1, True, id="stopped for another reason"),
    ],
)
def test_a_gang_that_was_only_moved_starts_again_though_its_team_has_spent_its_month(
    reason: Reason, since_s: float, *, refused: bool
) -> None:
    """It was stopped a second before the budget was used up, because it could start again at that moment."""
    world = World(FleetBuilder().pool().team(budget={"usdPerMonth": 5}).queue().build())
    world.spent_usd = {"t": 5.01}
    world.waits(replace(gang("g"), eviction=Eviction(reason, "moved", since_s), since_s=since_s))
    refusal = prefilter(world.fleet, world.snapshot(), world.gang("g"))
    assert (refusal is not None and refusal.reason is Reason.BUDGET_EXHAUSTED) is refused


def test_a_limit_that_cannot_be_read_keeps_a_job_waiting_and_a_running_one_where_it_is() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    scrawl = UnsupportedConstraint("metadata.annotations[muster.dev/max-run-time]", "'2 hours' is not a duration")
    world.waits(gang("w"))
    world.machine("m")
    world.runs(gang("r"), ("m", 1))
    assert prefilter(world.fleet, world.snapshot(), world.gang("w")) is None
    assert immovable(world.fleet, world.snapshot(), world.gang("r")) == ""
    world.jobs = {uid: replace(it, unread=(scrawl,)) for uid, it in world.jobs.items()}
    refusal = prefilter(world.fleet, world.snapshot(), world.gang("w"))
    assert refusal is not None
    assert (refusal.reason, "max-run-time], which cannot be read: '2 hours'" in refusal.message) == (
        Reason.UNSUPPORTED,
        True,
    )
    assert "could not start again" in immovable(world.fleet, world.snapshot(), world.gang("r"))
