"""A machine, gang or pool that makes a method fail is set aside by name; all others are decided in the same pass."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet import disruption as disrupt
from fleet.actions import OpenClaims, SaveClaim
from fleet.disruption import (
    capacity_blocks,
    consolidation,
    context,
    drift,
    emptiness,
    expiry,
    preference,
    rebalance,
    replacement,
    rollout,
    simulation,
)
from fleet.fence import EVERYBODY, Decided, DecisionFailed, told_apart
from fleet.nodeclaims import drift as judged
from fleet.placement.plan import Recut
from fleet.snapshot import Claim, Gang, Reservation, Snapshot
from model.kinds import NodePool
from tests.support.fleets import GPU, NOW, P5, P5S, A, FleetBuilder, gang
from tests.support.world import World

OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}


class Sick(RuntimeError):
    """What a subject does to whoever looks at it."""


def sick(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, about: str) -> None:
    """Make a function raise where it is given what is called `about`."""
    well = getattr(where, name)

    def looks(*given: Any, **more: Any) -> Any:
        if any(about in _names(it) for it in (*given, *more.values())):
            raise Sick(about)
        return well(*given, **more)

    monkeypatch.setattr(where, name, looks)


def _names(it: Any) -> Sequence[str]:
    if isinstance(it, Recut):
        return [it.claim]
    return [it.name] if isinstance(it, Claim | Gang | NodePool) else ()


def machines(disruption: dict[str, Any] | None = None, gpu: int = 0, **pool: Any) -> World:
    """Three machines, each with a gang that asks so many GPUs; 0 = with none."""
    kinds = [P5.name, P5S.name]
    base = FleetBuilder().pool(instanceTypes=kinds, capacityTypes=["spot", "on-demand"])
    world = World(base.team(quotas={"h100": {GPU: 64}}).queue().build())
    for n in range(3):
        world.machine(f"m{n}", ready_at_s=NOW - 7200)
        if gpu:
            world.runs(gang(f"g{n}", gpu=gpu, last_checkpoint_s=NOW), (f"m{n}", 1), admitted_at_s=NOW - 600)
    spec = {
        "instanceTypes": kinds,
        "capacityTypes": ["spot", "on-demand"],
        "disruption": {**OPEN, **(disruption or {})},
    }
    world.fleet = FleetBuilder().pool(**{**spec, **pool}).team(quotas={"h100": {GPU: 64}}).queue().build()
    return world


def advised(world: World) -> World:
    world.claims = {name: replace(claim, advised_at_s=NOW - 5) for name, claim in world.claims.items()}
    return world


def of_another_kind(world: World) -> World:
    """Machines of one kind are judged once."""
    world.claims["m1"] = replace(world.claims["m1"], pool_hash=f"{world.claims['m1'].pool_hash}0")
    return world


QUIET = {"consolidateAfter": "Never"}
DRIFTED = {"template": {"labels": {"a": "b"}}}
CASES: list[tuple[str, Callable[[], World], Any, str]] = [
    ("emptiness", machines, emptiness, "spared"),
    ("drift, judged", lambda: of_another_kind(machines(gpu=1, **DRIFTED)), judged, "_drift_of"),
    ("drift, idle", lambda: machines(QUIET, **DRIFTED), drift, "spared"),
    ("drift, replaced", lambda: machines(gpu=1, **DRIFTED), replacement, "immovable"),
    ("drift, fixed", lambda: machines(gpu=1, **DRIFTED, replicas=3, capacityTypes=["on-demand"]), drift, "keeps"),
    ("rebalance", lambda: advised(machines({**QUIET, "onRebalance": "Replace"}, gpu=1)), rebalance, "spared"),
    ("expiry", lambda: machines(QUIET, template={"expireAfter": "1h"}), expiry, "expires_at_s"),
    ("consolidation", lambda: machines(gpu=1), consolidation, "_settles_s"),
    ("consolidation, tried", lambda: machines(gpu=1), consolidation, "keeps"),
]


def acted(decided: Sequence[Decided]) -> set[str]:
    """Machines told to go, replaced or proposed."""
    actions, _ = told_apart(decided)
    found = {it.claim.name for it in actions if isinstance(it, SaveClaim)}
    found |= {name for it in actions if isinstance(it, OpenClaims) for claim in it.claims for name in claim.replaces}
    considered = (it.outlook for it in actions if not isinstance(it, SaveClaim | OpenClaims))
    return found | {name for outlook in considered for it in outlook.proposals for name in it.claims}


def failed(decided: Sequence[Decided]) -> list[str]:
    return [it.subject for it in decided if isinstance(it, DecisionFailed)]


@pytest.mark.parametrize(("scene", "where", "name"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_machine_that_makes_a_method_fail_is_named_and_the_others_are_decided(
    monkeypatch: pytest.MonkeyPatch, scene: Callable[[], World], where: Any, name: str
) -> None:
    world = scene()
    assert acted(disrupt.decide(world.fleet, world.snapshot())) == {"m0", "m1", "m2"}
    sick(monkeypatch, where, name, "m1")
    decided = disrupt.decide(world.fleet, world.snapshot())
    assert failed(decided) == ["claim/m1"]
    assert acted(decided) == {"m0", "m2"}


def test_machines_of_capacity_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = machines()
    block = Reservation("cr", P5.name, A, 3, 0, kind="capacity-block", terminates_s=NOW + 5 * 60)
    for name, claim in world.claims.items():
        world.claims[name] = replace(claim, capacity_pool=replace(claim.capacity_pool, reservation="cr"))
    before = replace(world.snapshot(), reservations={"cr": block})
    sick(monkeypatch, capacity_blocks, "reservation_of", "m1")
    decided = disrupt.decide(world.fleet, before)
    assert failed(decided) == ["claim/m1"]
    assert acted(decided) == {"m0", "m2"}


def test_the_way_back_to_what_a_pool_prefers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine a pass is replaced: the first that can be looked at."""
    world = machines({**QUIET, "returnToPreferred": {"after": "1h"}}, gpu=8)
    assert acted(disrupt.decide(world.fleet, world.snapshot())) == {"m0"}
    sick(monkeypatch, preference, "minimum_stay", "m0")
    decided = disrupt.decide(world.fleet, world.snapshot())
    assert (failed(decided), acted(decided)) == (["claim/m0"], {"m1"})


def test_a_gang_that_cannot_be_placed_is_named_and_keeps_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    world = machines(gpu=1, **DRIFTED)
    sick(monkeypatch, simulation.SchedulingSimulation, "_place", "ns/g1")
    decided = disrupt.decide(world.fleet, world.snapshot())
    assert failed(decided) == ["gang/uid-g1"]
    assert acted(decided) == {"m0", "m2"}


def test_a_pool_whose_budgets_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FleetBuilder().pool("a", disruption=OPEN).pool("b", disruption=OPEN)
    world = World(builder.team(quotas={}).build())
    world.machine("m0", "a")
    world.machine("m1", "b")
    sick(monkeypatch, context, "allowed", "a")
    decided = disrupt.decide(world.fleet, world.snapshot())
    assert failed(decided) == ["pool/a"]
    assert acted(decided) == {"m1"}


def test_what_is_nobodys_in_particular_stops_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: Any) -> None:
        raise Sick("all of it")

    world = machines()
    monkeypatch.setattr(disrupt, "frozen", fails)
    assert failed(disrupt.decide(world.fleet, world.snapshot())) == [EVERYBODY]


def aside(world: World, *subjects: str) -> Snapshot:
    return replace(world.snapshot(), set_aside=frozenset(subjects))


@pytest.mark.parametrize(
    ("subject", "acts"),
    [
        ("claim/m1", {"m0", "m2"}),
        ("gang/uid-g1", {"m0", "m2"}),
        ("pool/h100", set()),
        ("pool/other", {"m0", "m1", "m2"}),
        ("node/node-m1", {"m0", "m1", "m2"}),
    ],
)
def test_what_was_set_aside_is_left_alone(subject: str, acts: set[str]) -> None:
    world = machines(gpu=1, **DRIFTED)
    assert acted(disrupt.decide(world.fleet, aside(world, subject))) == acts


def test_a_machine_that_was_set_aside_still_counts() -> None:
    """A third of three machines may go."""
    world = machines({"budgets": [{"nodes": "33%"}]})
    assert acted(disrupt.decide(world.fleet, aside(world, "claim/m0"))) == {"m1"}


# -- the roll-out of layouts ------------------------------------------------------------------------------------------


def cut() -> World:
    """Two machines cut to `small`, of a pool that now wants `large`."""

    def fleet(layout: str) -> Any:
        builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
        builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
        return builder.pool(replicas=2, sharing={"mig": {"layouts": [layout]}}).team(quotas={}).build()

    world = World(fleet("small"))
    world.machine("m0")
    world.machine("m1")
    world.fleet = fleet("large")
    return world


@pytest.mark.parametrize("name", ["_cut_to", "_if_stale"])
def test_a_machine_that_cannot_be_cut_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    world = cut()
    sick(monkeypatch, rollout, name, "m0")
    decided = rollout.decide(world.fleet, world.snapshot())
    assert (failed(decided), acted(decided)) == (["claim/m0"], {"m1"})
    assert acted(rollout.decide(world.fleet, aside(world, "claim/m1"))) == set()
