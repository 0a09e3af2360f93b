"""Worlds in which queues fight for few machines come to rest: no two gangs evict each other in turns.

Two or three queues, of one team or of several, and machines for a part of what waits. Whoever is told to leave has left
by the next pass, bought machines are ready then, and nothing else happens.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, SaveGang
from fleet.gangs.transitions import released
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, PodSet
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, amounts, gang
from tests.support.world import World

PASSES = 40
QUEUES = ("q0", "q1", "q2")
policies = st.fixed_dictionaries(
    {
        "withinQueue": st.sampled_from(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaim": st.sampled_from(("Never", "LowerPriority", "Any", "Any")),
        "whileBorrowing": st.sampled_from(("Never", "LowerPriority")),
    }
)
fairness = st.sampled_from(("None", "DominantShare", "GuaranteeShare"))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A pool of at most four machines; quota that is larger than that, smaller, or none; gangs that run, and others."""
    builder = FleetBuilder()
    builder.pool("h100", instanceTypes=[P5.name, P5S.name], limits={"nodes": draw(st.integers(1, 4))})
    builder.team("org", quotas={"h100": {"guaranteed": {GPU: draw(st.sampled_from((0, 8)))}}}, namespaces=[])
    teams = ("a", "b")[: draw(st.integers(1, 2))]
    for team in teams:
        quota = {"guaranteed": {GPU: draw(st.sampled_from((0, 4, 8, 16, 32)))}}
        weight = draw(st.sampled_from((1.0, 1.0, 2.0)))
        builder.team(team, {"h100": quota}, parent="org", namespaces=[team], weight=weight)
    team_of = {name: draw(st.sampled_from(teams)) for name in QUEUES[: draw(st.integers(2, 3))]}
    for name, team in team_of.items():
        builder.queue(name, team, ["h100"], fairness=draw(fairness), preemption=draw(policies))
    world = World(builder.build())
    for n in range(draw(st.integers(0, 3))):
        world.machine(f"m{n}")
    for generation in range(2):
        count = draw(st.integers(1, 4))
        world.waits(*[draw(gangs(10 * generation + n, team_of)) for n in range(count)])
        if not generation:
            _turn(world, boots=draw(st.booleans()))
    return world


@st.composite
def gangs(draw: st.DrawFn, number: int, team_of: dict[str, str]) -> Gang:
    queue = draw(st.sampled_from(sorted(team_of)))
    pods = PodSet("main", draw(st.integers(1, 3)), {**amounts(), GPU: draw(st.sampled_from((1, 2, 4, 8)))})
    more: dict[str, Any] = {
        "priority": draw(st.sampled_from((0, 0, 1))),
        "created_s": NOW - 900 + draw(st.integers(0, 3)),
    }
    return gang(f"g{number}", pods, queue=queue, namespace=team_of[queue], **more)


def _turn(world: World, *, boots: bool) -> list[Action]:
    """One pass; then everybody has left who was told to, and (`boots`) what was bought is there."""
    actions = cycle.decide(world.fleet, world.snapshot())
    world.apply(actions)
    for uid, it in list(world.gangs.items()):
        if it.state is GangState.EVICTING:
            world.gangs[uid] = released(it, world.jobs[uid], it.reason, it.message, world.now_s)
    for name, claim in list(world.claims.items()) if boots else ():
        if not claim.ready_at_s:
            where = claim.capacity_pool
            del world.claims[name]
            world.machine(name, claim.node_pool, where.instance_type, where.zone, where.capacity_type)
    for uid, it in list(world.gangs.items()) if boots else ():
        if it.state is GangState.RESERVED:
            pins = tuple(replace(pin, node=world.claims[pin.claim].node) for pin in it.pins)
            world.gangs[uid] = replace(it, state=GangState.ADMITTED, pins=pins, admitted_at_s=world.now_s)
    world.now_s += 1
    return list(actions)


def _evicted(before: dict[str, Gang], actions: list[Action]) -> list[tuple[str, str]]:
    """(victim, for whom) of a pass, by name."""
    told = [it.gang for it in actions if isinstance(it, SaveGang)]
    return [
        (it.name, it.eviction.message.split()[3])
        for it in told
        if it.eviction is not None and it.eviction != before[it.uid].eviction
    ]


@settings(max_examples=300, deadline=None)
@given(worlds(), st.booleans())
def test_no_two_gangs_evict_each_other_in_turns(world: World, boots: bool) -> None:
    """Where shares and priorities contradict each other, three may do so for a while: the right to evict rests then."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(PASSES):
        before = dict(world.gangs)
        actions = _turn(world, boots=boots)
        assert not [it.message for it in world.gangs.values() if "until  has" in it.message]
        for victim, preemptor in _evicted(before, actions):
            others = {it.name: it.pins for it in before.values() if it.name not in {victim, preemptor}}
            assert seen.get((preemptor, victim)) != others, f"{victim} and {preemptor}"
            seen[victim, preemptor] = others
        if not actions:
            return
    raise AssertionError(f"it does not come to rest: {list(seen)}")


@pytest.mark.parametrize("boots", [False, True])
def test_two_queues_of_one_team_keep_what_fair_shares_gave_them(*, boots: bool) -> None:
    """The team is within its guarantee, so either queue had what the other held for its own."""
    builder = FleetBuilder().pool("h100", instanceTypes=[P5.name], limits={"nodes": 2})
    builder.team("t", {"h100": {"guaranteed": {GPU: 32}}}, namespaces=["t"])
    for name in ("one", "other"):
        builder.queue(name, "t", ["h100"], fairness="DominantShare")
    world = World(builder.build())
    large, small = PodSet("main", 2, {**amounts(), GPU: 8}), PodSet("main", 1, {**amounts(), GPU: 4})
    world.waits(gang("large", large, queue="one", namespace="t"))
    _turn(world, boots=boots)
    world.waits(gang("small", small, queue="other", namespace="t"))
    states = []
    for _ in range(4):
        _turn(world, boots=boots)
        states.append([world.gang(name).flavors != {} for name in ("large", "small")])
    assert states[-2:] == [[False, True]] * 2
    assert world.gang("large").evictions == 1


def test_a_victim_does_not_come_back_to_what_the_next_of_the_queue_waits_for() -> None:
    """Two gangs of one queue have evicted one each: the second must not lose to the victim what it waited for."""
    builder = FleetBuilder().pool("h100", instanceTypes=[P5.name], limits={"nodes": 2})
    builder.team("t", {"h100": {"guaranteed": {GPU: 12}}}, namespaces=["t"])
    for name in ("low", "high"):
        builder.queue(name, "t", ["h100"], preemption={"withinQueue": "LowerPriority"})
    world = World(builder.build())
    for name in ("m0", "m1"):
        world.machine(name)
    four, eight = ({**amounts(), GPU: number} for number in (4, 8))
    world.waits(gang("first", PodSet("main", 1, four), queue="low", namespace="t", created_s=NOW - 900))
    world.waits(gang("second", PodSet("main", 1, eight), queue="low", namespace="t", created_s=NOW - 800))
    _turn(world, boots=True)
    high = {"queue": "high", "namespace": "t", "priority": 1}
    world.waits(*[gang(name, PodSet("main", 1, dict(size)), **high) for name, size in (("a", eight), ("b", four))])
    for _ in range(4):
        _turn(world, boots=True)
    assert {it.job.name: it.evictions for it in world.gangs.values()} == {"first": 1, "second": 1, "a": 0, "b": 0}
    assert [world.gang(name).state for name in ("a", "b")] == ["Admitted", "Admitted"]
