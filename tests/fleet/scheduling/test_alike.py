"""What is asked once for all gangs that are alike is what each would be told, however many they are."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import OpenClaims, SaveGang
from fleet.fence import Decided
from fleet.placement import place
from fleet.quota.entries import CycleEntry
from fleet.quota.ledger import QuotaLedger
from fleet.quota.nomination import Nominator
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.workload import Workload
from fleet.scheduling import cycle
from fleet.scheduling.placement_backend import ClusterBackend
from fleet.snapshot import Gang, GangState, PodSet
from model.labels import ZONE
from tests.fleet.scheduling.test_cycle_properties import SMALL, gangs, policies, start_who_can, worlds
from tests.support.fleets import GPU, NOW, P5, P5S, A, B, FleetBuilder, amounts, gang
from tests.support.world import World


def _by_itself(patched: pytest.MonkeyPatch) -> None:
    """Let every gang be asked about by itself."""
    patched.setattr(ClusterBackend, "alike", lambda *_given: None)
    patched.setattr(place, "bought_alike", lambda *_given, **_named: None)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(worlds(), st.data())
def test_alike_gangs_are_told_what_each_would_be(world: World, data: st.DataObject) -> None:
    """Some of those who run leave, and twins of who waits wait as well."""
    running = sorted(uid for uid, it in world.gangs.items() if it.state is GangState.ADMITTED)
    for uid in data.draw(st.sets(st.sampled_from(running))) if running else ():
        going = world.gangs[uid].moved(GangState.EVICTING, "Reclaimed", "makes room", NOW - 5)
        world.gangs[uid] = going
    shapes = [data.draw(gangs(100 + number, 1)) for number in range(data.draw(st.integers(1, 2)))]
    for number in range(data.draw(st.integers(2, 6))):
        twin, name = data.draw(st.sampled_from(shapes)), f"twin-{number}"
        world.waits(replace(twin, uid=f"uid-{name}", workload=name, job=replace(twin.job, name=name)))
    together = cycle.decide(world.fleet, world.snapshot())
    with pytest.MonkeyPatch.context() as patched:
        _by_itself(patched)
        assert cycle.decide(world.fleet, world.snapshot()) == together


def _by_whole_cycles(patched: pytest.MonkeyPatch) -> None:
    """Let every head be nominated and decided by itself."""
    patched.setattr(AdmissionScheduler, "_admit_alike", lambda *_given: None)


@st.composite
def crowds(draw: st.DrawFn) -> World:
    """Up to three queues in a tree, and gangs of few kinds, for which there are room, quota and limits for some."""
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.pool("h100", instanceTypes=[P5.name, P5S.name], limits={"nodes": draw(st.integers(0, 9))})
    builder.pool("mig", limits={"nodes": draw(st.integers(0, 2))}, sharing={"mig": {"layouts": ["small"]}})
    builder.team("org", quotas={"h100": {"guaranteed": {GPU: draw(st.sampled_from((0, 8, 40)))}}}, namespaces=[])
    teams = draw(st.sampled_from((("a",), ("a", "b"), ("a", "b", "c"))))
    for team in teams:
        own = {"guaranteed": {GPU: draw(st.sampled_from((4, 16, 40)))}}
        order, pools = draw(st.sampled_from(("BestEffortFIFO", "StrictFIFO"))), draw(st.permutations(["h100", "mig"]))
        builder.team(team, {"h100": own, "mig": {"cpu": "999"}}, parent="org", namespaces=[f"{team}1", f"{team}2"])
        used = draw(st.sampled_from(({}, {"admissionFairSharing": {}})))
        builder.queue(f"q{team}", team, pools, order=order, preemption=draw(policies), **used)
    world = World(builder.policy(admissionFairSharing={"usageHalfLifeTime": "1h"}).build())
    world.local_usage = {f"{team}{n}/q{team}": {GPU: draw(st.sampled_from((0.0, 9.0)))} for team in teams for n in "12"}
    for number in range(draw(st.integers(0, 3))):
        world.machine(f"m{number}", draw(st.sampled_from(("h100", "h100", "mig"))), zone=draw(st.sampled_from((A, B))))
    kinds = [_kind(draw, teams) for _ in range(draw(st.integers(1, 3)))]
    world.waits(*[_one_of(kinds, draw, number) for number in range(draw(st.integers(0, 4)))])
    start_who_can(world)
    running = sorted(uid for uid, it in world.gangs.items() if it.state is GangState.ADMITTED)
    for uid in running[: draw(st.sampled_from((0, 0, 1, 2)))]:
        world.gangs[uid] = world.gangs[uid].moved(GangState.EVICTING, "Reclaimed", "makes room", NOW - 5)
    world.waits(*[_one_of(kinds, draw, 10 + number) for number in range(draw(st.integers(4, 16)))])
    return world


def _kind(draw: st.DrawFn, teams: Sequence[str]) -> Gang:
    team, resource = draw(st.sampled_from(teams)), draw(st.sampled_from((GPU,) * 5 + (SMALL,)))
    asked = {**amounts(), resource: draw(st.sampled_from((1, 1, 2, 4))) if resource == GPU else 1}
    zone = draw(st.sampled_from(("",) * 5 + (ZONE,)))
    pods = PodSet("s", draw(st.sampled_from((1, 1, 1, 2))), asked, required_topology=zone)
    namespace = f"{team}{draw(st.integers(1, 2))}"
    return gang("kind", pods, queue=f"q{team}", namespace=namespace, priority=draw(st.integers(0, 1)))


def _one_of(kinds: Sequence[Gang], draw: st.DrawFn, number: int) -> Gang:
    kind, name = draw(st.sampled_from(kinds)), f"g{number:02}"
    return replace(kind, uid=f"uid-{name}", workload=name, job=replace(kind.job, name=name))


@settings(max_examples=150, deadline=None)
@given(crowds())
def test_heads_are_admitted_as_whole_cycles_would(world: World) -> None:
    """With the same flavors, places and purchases, to the letter."""
    at_once = cycle.decide(world.fleet, world.snapshot())
    with pytest.MonkeyPatch.context() as patched:
        _by_whole_cycles(patched)
        assert cycle.decide(world.fleet, world.snapshot()) == at_once


@st.composite
def many_queues(draw: st.DrawFn) -> World:
    """Queues that lend to each other, and single pods of few kinds in all of them."""
    builder = FleetBuilder().pool("h100", instanceTypes=[P5.name, P5S.name], limits={"nodes": draw(_LIMITS)})
    builder.team("org", quotas={"h100": {"guaranteed": {GPU: draw(st.sampled_from((0, 16)))}}}, namespaces=[])
    teams = "abcd"[: draw(st.integers(2, 4))]
    for team in teams:
        own = {"guaranteed": {GPU: draw(st.sampled_from((8, 40, 800))), "cpu": "9k", "memory": "9Ti"}}
        builder.team(team, {"h100": own}, parent="org", namespaces=[team])
        builder.queue(f"q{team}", team, ["h100"], preemption=draw(policies))
    world = World(builder.build())
    for number in range(draw(st.integers(0, 8))):
        world.machine(f"m{number}", zone=draw(st.sampled_from((A, B))))
    kinds = draw(st.lists(st.sampled_from((1, 1, 2, 4, 8)), min_size=1, max_size=3))
    for number in range(draw(st.integers(12, 40))):
        team, count = draw(st.sampled_from(teams)), draw(st.sampled_from((1,) * 12 + (2,)))
        asked = gang(f"g{number:02}", count=count, gpu=draw(st.sampled_from(kinds)), queue=f"q{team}", namespace=team)
        world.waits(replace(asked, priority=draw(st.sampled_from((0, 0, 0, 1)))))
    return world


_LIMITS = st.sampled_from((0, 3, 12, 99))


@settings(max_examples=100, deadline=None)
@given(many_queues())
def test_heads_of_several_queues_are_admitted_as_whole_cycles_would(world: World) -> None:
    at_once = cycle.decide(world.fleet, world.snapshot())
    with pytest.MonkeyPatch.context() as patched:
        _by_whole_cycles(patched)
        assert cycle.decide(world.fleet, world.snapshot()) == at_once


def test_of_the_heads_of_several_queues_one_of_each_shape_is_nominated(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the first that buys, in each of them."""
    nominated = _nominated(monkeypatch)
    builder = FleetBuilder().pool("h100", limits={"nodes": 99}).team("org", quotas={"h100": {GPU: 0}}, namespaces=[])
    for team in "abc":
        builder.team(team, {"h100": {GPU: 800}}, parent="org", namespaces=[team]).queue(f"q{team}", team, ["h100"])
    world = World(builder.build())
    for number in range(30):
        team = "abc"[number % 3]
        world.waits(gang(f"g{number:02}", count=1, gpu=8, queue=f"q{team}", namespace=team))
    at_once = cycle.decide(world.fleet, world.snapshot())
    assert nominated == ["uid-g00", "uid-g01", "uid-g02"]
    assert len(_bought(at_once)) == 30


@pytest.mark.parametrize("limit", [0, 1, 2, 50])
@pytest.mark.parametrize("guaranteed", [16, 24, 800])
def test_of_heads_alike_one_is_nominated(monkeypatch: pytest.MonkeyPatch, limit: int, guaranteed: int) -> None:
    """So are the first that buys, for whom others might move instead, and the first to whom quota or limits say no."""
    nominated = _nominated(monkeypatch)
    fleet = FleetBuilder().pool("h100", limits={"nodes": limit})
    fleet.team(quotas={"h100": {GPU: guaranteed, "cpu": "9k", "memory": "9Ti"}}).queue()
    world = World(fleet.build())
    world.machine("m0")
    world.waits(*[gang(f"g{number:02}", count=1, gpu=4) for number in range(12)])
    at_once = cycle.decide(world.fleet, world.snapshot())
    saved = {it.gang.uid: it.gang.state for it in at_once if isinstance(it, SaveGang)}
    waiting = [uid for uid, state in saved.items() if state is GangState.PENDING]
    bought = [uid for uid, state in saved.items() if state is GangState.RESERVED]
    assert nominated == ["uid-g00", *sorted(bought)[:1], *sorted(waiting)[:1]]
    assert len(saved) - len(waiting) == min(12, guaranteed // 4, 2 * max(1, limit))
    _by_whole_cycles(monkeypatch)
    assert cycle.decide(world.fleet, world.snapshot()) == at_once


def _nominated(patched: pytest.MonkeyPatch) -> list[str]:
    """The uids of those who are nominated from now on."""
    nominated: list[str] = []
    nominate = Nominator.nominate

    def counted(self: Nominator, workload: Workload) -> CycleEntry:
        nominated.append(workload.uid)
        return nominate(self, workload)

    patched.setattr(Nominator, "nominate", counted)
    return nominated


def _one_pool(limit: int) -> World:
    fleet = FleetBuilder().pool("h100", limits={"nodes": limit}).team(quotas={"h100": {GPU: 800}}).queue()
    return World(fleet.build())


def _bought(decided: Iterable[Decided]) -> list[tuple[str, str]]:
    opened = (it for it in decided if isinstance(it, OpenClaims))
    return [(claim.capacity_pool.instance_type, claim.capacity_pool.zone) for it in opened for claim in it.claims]


@pytest.mark.parametrize("limit", [2, 5, 50])
def test_a_limit_that_is_reached_meanwhile_is_seen(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    world = _one_pool(limit)
    world.waits(*[gang(f"g{number}", count=1, gpu=8) for number in range(8)])
    together = cycle.decide(world.fleet, world.snapshot())
    _by_itself(monkeypatch)
    assert cycle.decide(world.fleet, world.snapshot()) == together
    assert len(_bought(together)) == min(limit, 8)


def _who_leave_and_wait(count: int) -> World:
    """So many machines, eight gangs that leave on each, and as many that wait for them."""
    world = _one_pool(0)
    for machine in range(count):
        world.machine(f"m{machine}")
        for number in range(8):
            name = f"r{machine}-{number}"
            going = world.runs(gang(name, count=1, gpu=1), (f"m{machine}", 1), pods=False)
            world.gangs[going.uid] = going.moved(GangState.EVICTING, "Reclaimed", "makes room", NOW - 5)
    world.waits(*[gang(f"w{number}", count=1, gpu=1) for number in range(8 * count)])
    return world


def test_who_leave_are_lifted_a_few_times_however_many_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lifted: list[str] = []
    lift = QuotaLedger.lift

    def counted(self: QuotaLedger, holder: Any) -> None:
        lifted.append(holder.workload.uid)
        lift(self, holder)

    monkeypatch.setattr(QuotaLedger, "lift", counted)
    found = {}
    for count in (2, 8):
        lifted.clear()
        world = _who_leave_and_wait(count)
        saved = [it.gang for it in cycle.decide(world.fleet, world.snapshot()) if isinstance(it, SaveGang)]
        assert {it.state for it in saved} == {GangState.PENDING}
        assert len(saved) == 8 * count
        found[count] = len(lifted) / (8 * count)
    assert found[8] == found[2] <= 4
