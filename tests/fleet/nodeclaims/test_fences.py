"""One claim, machine, pool or gang whose step raises is set aside; all others are decided in the same turn."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims, RemoveNode, SaveClaim, SaveGang, TerminateMachines
from fleet.fence import Decided, DecisionFailed
from fleet.nodeclaims import adoption, adoption_checks, fixed, garbage_collection, interruption, lifecycle
from fleet.snapshot import CapacityPool, Reservation, Snapshot
from model import labels
from model.fleet import Fleet
from tests.support.fleets import NOW, P5, A, FleetBuilder, gang, instance_of, small_fleet
from tests.support.strangers import stranger
from tests.support.world import World

Decide = Callable[[Fleet, Snapshot], Sequence[Decided]]


class Fault(Exception):
    """What is injected."""


def failing(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, sick: Callable[..., bool]) -> None:
    """Makes `where.name` raise whenever it is asked about the sick one."""
    well = getattr(where, name)

    def wrapped(*values: Any, **named: Any) -> Any:
        if sick(*values):
            raise Fault
        return well(*values, **named)

    monkeypatch.setattr(where, name, wrapped)


def failures(found: Sequence[Decided]) -> list[str]:
    assert all(isinstance(it.error, Fault) for it in found if isinstance(it, DecisionFailed))
    return [it.subject for it in found if isinstance(it, DecisionFailed)]


def check(decide: Decide, fleet: Fleet, snapshot: Snapshot, sick: str, told: Callable[[Any], Any]) -> list[Any]:
    """What is decided about the others; nothing about the sick one, and nothing at all while it is set aside."""
    found = decide(fleet, snapshot)
    assert failures(found) == [sick]
    others = [told(it) for it in found if not isinstance(it, DecisionFailed)]
    aside = decide(fleet, replace(snapshot, set_aside=frozenset({sick})))
    assert [told(it) for it in aside] == others
    return others


def test_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(small_fleet())
    for name in ("m0", "m1", "m2"):
        world.machine(name, emptied_at_s=0.0)
    failing(monkeypatch, lifecycle, "instance_gone", lambda _world, claim: claim.name == "m1")
    saved = check(lifecycle.decide, world.fleet, world.snapshot(), "claim/m1", lambda it: it.claim.name)
    assert saved == ["m0", "m2"]


def test_an_orphaned_machine_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(small_fleet())
    for name in ("m0", "m1", "n0", "n1"):
        world.machine(name)
        world.instances[world.claims[name].instance_id] = instance_of(world.claims[name])
    instances = {name: world.claims[name].instance_id for name in world.claims}
    gone = {instances["n0"], instances["n1"]}
    world.instances = {key: it for key, it in world.instances.items() if key not in gone}
    world.claims = {}
    failing(monkeypatch, garbage_collection, "TerminateMachines", lambda ids, _reason: ids == (instances["m0"],))
    failing(monkeypatch, garbage_collection, "RemoveNode", lambda name: name.endswith("n0"))
    found = lifecycle.decide(world.fleet, world.snapshot())
    sick = next(name for name in world.nodes if name.endswith("n0"))
    assert failures(found) == [f"instance/{instances['m0']}", f"node/{sick}"]
    kinds = {TerminateMachines: "m1", RemoveNode: "n1"}
    assert [kinds[type(it)] for it in found if not isinstance(it, DecisionFailed)] == ["m1", "n1"]


def test_a_machine_to_adopt(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(small_fleet())
    for name in ("i-0", "i-1", "i-2"):
        stranger(world, name)
    failing(monkeypatch, adoption_checks, "capacity_pool_of", lambda instance: instance.id == "i-1")
    found = check(adoption.decide, world.fleet, world.snapshot(), "instance/i-1", lambda it: it.claims[0].adopts)
    assert found == ["i-0", "i-2"]


def test_a_gang_on_adopted_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(small_fleet())
    for n in range(3):
        world.machine(f"m{n}")
        world.claims[f"m{n}"] = replace(world.claims[f"m{n}"], adopts=f"i-{n}")
        world.runs(gang(f"g{n}", count=1), (f"m{n}", 1))
        moved = world.gang(f"g{n}")
        pins = tuple(replace(pin, claim="") for pin in moved.pins)
        world.gangs[moved.uid] = replace(moved, pins=pins)
    sick = world.gang("g1")
    failing(monkeypatch, adoption, "_pinned", lambda pins, _adopted: pins == sick.pins)
    saved = check(adoption.decide, world.fleet, world.snapshot(), f"gang/{sick.uid}", lambda it: it.gang.name)
    assert saved == ["ns/g0", "ns/g2"]
    assert all(isinstance(it, SaveGang | DecisionFailed) for it in adoption.decide(world.fleet, world.snapshot()))


def test_a_machine_of_a_block_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(small_fleet())
    for n in range(3):
        claim = world.machine(f"m{n}")
        where = CapacityPool("reserved", P5.name, A, f"cr-{n}")
        world.claims[claim.name] = replace(claim, capacity_pool=where)
    blocks = [Reservation(f"cr-{n}", P5.name, A, 1, 0, "capacity-block", terminates_s=NOW + 100) for n in range(3)]
    snapshot = replace(world.snapshot(), reservations={block.id: block for block in blocks})
    failing(monkeypatch, interruption, "last_call_s", lambda _pool, block: block.id == "cr-1")
    saved = check(interruption.decide, world.fleet, snapshot, "claim/m1", lambda it: it.claim.name)
    assert saved == ["m0", "m2"]


def test_a_fixed_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FleetBuilder()
    for name in ("a", "b", "c"):
        builder = builder.pool(name, replicas=1, instanceTypes=[P5.name])
    fleet = builder.team(quotas={}).queue(flavors=["a"]).build()
    failing(monkeypatch, fixed, "best_offering", lambda pool, _capacity: pool.name == "b")
    opened = check(fixed.decide, fleet, World(fleet).snapshot(), "pool/b", lambda it: it.claims[0].node_pool)
    assert opened == ["a", "c"]
    found = fixed.decide(fleet, World(fleet).snapshot())
    assert all(isinstance(it, OpenClaims | SaveClaim | DecisionFailed) for it in found)


def test_the_guard_against_mass_orphans_counts_those_that_are_set_aside() -> None:
    world = World(small_fleet())
    for n in range(garbage_collection.MASS_ORPHANS + 1):
        claim = world.machine(f"m{n}")
        world.instances[claim.instance_id] = replace(instance_of(claim), tags={labels.CLUSTER: "default"})
    world.claims = {}
    aside = frozenset(f"instance/{name}" for name in list(world.instances)[:3])
    found = lifecycle.decide(world.fleet, replace(world.snapshot(), set_aside=aside))
    assert [it for it in found if isinstance(it, TerminateMachines)] == []
