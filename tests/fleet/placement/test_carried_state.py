"""What is handed on from pass to pass is what would be set up anew, whatever has changed in between."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.deciders import DECIDERS
from fleet.fence import DecisionFailed
from fleet.gangs.lifecycle import decide as gangs_decide
from fleet.gangs.replacement import pods_to_replace
from fleet.nodeclaims.drift import drifted_claims
from fleet.nodeclaims.lifecycle import decide as claims_decide
from fleet.placement.carried_state import CarriedState
from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.placement.free_capacity import free_capacity
from fleet.quota.ledger import QuotaLedger
from fleet.scheduling import cycle
from fleet.scheduling.carried_ledger import CarriedLedger, standing_parts
from fleet.scheduling.queue_order import made_room_for
from fleet.scheduling.workloads import Workloads
from fleet.snapshot import Gang, GangState, Pod, Snapshot
from fleet.snapshot.claims import NodeDisruption
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints
from fleet.snapshot.elastic_parts import parts
from fleet.snapshot.lookups import holders
from fleet.snapshot.seats import seated
from model import labels
from model.index import Index
from tests.fleet.scheduling.test_cycle_properties import gangs, worlds
from tests.support.fleets import GPU, NOW, gang, small_fleet
from tests.support.world import World

APART = PodConstraints(anti_affinity=(PodAffinityTerm(labels.HOSTNAME, (), frozenset({"x"})),))


def _node_fails(world: World, name: str) -> None:
    world.nodes[name] = replace(world.nodes[name], ready=not world.nodes[name].ready)


def _node_goes(world: World, name: str) -> None:
    del world.nodes[name]


def _is_labelled(world: World, name: str) -> None:
    node = world.nodes[name]
    world.nodes[name] = replace(node, labels={**node.labels, "x": f"{len(node.labels)}"})


def _claim_leaves(world: World, name: str) -> None:
    claim = world.claims.get(world.nodes[name].labels.get(labels.NODE_CLAIM, ""))
    if claim is not None:
        told = None if claim.disruption else NodeDisruption("Drifted", "it has drifted", NOW)
        world.claims[claim.name] = replace(claim, disruption=told)


def _drifts(world: World, name: str) -> None:
    claim = world.claims.get(world.nodes[name].labels.get(labels.NODE_CLAIM, ""))
    if claim is not None:
        world.claims[claim.name] = replace(claim, pool_hash="v1-other")


def _is_kept(world: World, name: str) -> None:
    claim = world.claims.get(world.nodes[name].labels.get(labels.NODE_CLAIM, ""))
    if claim is not None:
        world.claims[claim.name] = replace(claim, replaces=("gone",), gang=min(world.gangs, default=""))


def _somebody_comes(world: World, name: str) -> None:
    number = len(world.pods)
    apart = {} if number % 2 else {"constraints": APART}
    world.stands(Pod(f"u{number}", "x", f"p{number}", name, "Running", {GPU: 1, "cpu": 1}, **apart))  # type: ignore[arg-type]


def _all_go(world: World, name: str) -> None:
    world.pods = {key: pod for key, pod in world.pods.items() if pod.node != name}


CHANGES = (_node_fails, _node_goes, _is_labelled, _claim_leaves, _drifts, _is_kept, _somebody_comes, _all_go)


def _gang_ends(world: World, data: st.DataObject) -> None:
    if world.gangs:
        uid = data.draw(st.sampled_from(sorted(world.gangs)))
        world.gangs.pop(uid)
        world.jobs.pop(uid, None)


def _gang_comes(world: World, data: st.DataObject) -> None:
    world.waits(data.draw(gangs(len(world.gangs) + 100, 1)))


def _decided(world: World, data: st.DataObject) -> None:
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    world.apply(claims_decide(world.fleet, world.snapshot()))
    world.apply(it for it in gangs_decide(world.fleet, world.snapshot()) if not isinstance(it, DecisionFailed))
    world.boot()


def _time_passes(world: World, data: st.DataObject) -> None:
    world.now_s += data.draw(st.sampled_from((1.0, 60.0, 1000.0)))


def _node_changes(world: World, data: st.DataObject) -> None:
    if world.nodes:
        data.draw(st.sampled_from(CHANGES))(world, data.draw(st.sampled_from(sorted(world.nodes))))


STEPS = (_gang_ends, _gang_comes, _decided, _decided, _time_passes, _node_changes, _node_changes, _node_changes)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(worlds(), st.data())
def test_passes_that_hand_on_decide_as_those_that_do_not(world: World, data: st.DataObject) -> None:
    index, before = Index(), world.snapshot()
    for _ in range(data.draw(st.integers(2, 6))):
        seen = _keeping(before, replace(world.snapshot(), index=index))
        alone = replace(seen, index=Index())
        assert cycle.decide(world.fleet, seen) == cycle.decide(world.fleet, alone)
        handed_on: Any = index.take((CarriedState, ""))
        if handed_on is not None:
            assert _shown(world, seen, handed_on) == _shown(world, alone, CarriedState.empty(world.fleet, alone))
            index.hand_on((CarriedState, ""), handed_on)
        quota: Any = index.take(CarriedLedger)
        if quota is not None:
            quota.take_back()
            assert _charged(world, seen, quota) == _charged(world, alone, CarriedLedger.empty(world.fleet, alone))
            index.hand_on(CarriedLedger, quota)
        before = seen
        for _ in range(data.draw(st.integers(1, 4))):
            data.draw(st.sampled_from(STEPS))(world, data)


def _charged(world: World, seen: Snapshot, carried: CarriedLedger) -> Any:
    """What each queue and cohort uses, and all that is known of who holds it."""
    ledger, lost = QuotaLedger(carried.tree), pods_to_replace(world.fleet, seen)
    workloads = Workloads(world.fleet, seen, made_room_for(seen))
    carried.settle(ledger, workloads, standing_parts(seen, lost), lost)
    named, nodes = carried.tree.cells, (*carried.tree.cohorts.values(), *carried.tree.queues.values())
    used = {node.name: {named[cell]: it for cell, it in enumerate(node.usage) if it} for node in nodes}
    held = {
        uid: (
            *(it.workload, it.queue.name, it.given, it.reserved_at_s, it.ends_at_s, it.leaving, it.protected, it.place),
            {named[cell]: amount for cell, amount in it.usage.items()},
        )
        for uid, it in ledger.holders.items()
    }
    kept = {(owner, named[cell]): amount for (owner, cell), amount in ledger.kept.items() if amount}
    return used, list(held.items()), list(ledger.leaving), kept


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(worlds(), st.data())
def test_deciders_that_follow_what_changes_decide_as_if_they_were_asked_first(
    world: World, data: st.DataObject
) -> None:
    index, before = Index(), world.snapshot()
    for _ in range(data.draw(st.integers(2, 6))):
        seen = _keeping(before, replace(world.snapshot(), index=index))
        for decide in DECIDERS.values():
            assert list(decide(world.fleet, seen)) == list(decide(world.fleet, replace(seen, index=Index())))
        before = seen
        for _ in range(data.draw(st.integers(1, 4))):
            data.draw(st.sampled_from(STEPS))(world, data)


def _keeping(before: Snapshot, now: Snapshot) -> Snapshot:
    """What is equal stays the same object, as it does in the agent."""

    def kept(table: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        found = {key: old[key] if key in old and old[key] == value else value for key, value in table.items()}
        return old if found.keys() == old.keys() and all(old[key] is found[key] for key in found) else found

    names = ("nodes", "claims", "gangs", "foreign_use", "ordinary_pods", "node_pods", "repelling_pods")
    tables: dict[str, Any] = {name: kept(getattr(now, name), getattr(before, name)) for name in names}
    return replace(now, **tables)


def _shown(world: World, snapshot: Snapshot, carried: CarriedState) -> list[object]:
    """All that others see of it."""
    held = {part.uid: part for it in holders(snapshot) for part in parts(seated(snapshot, it))}
    carried.update(snapshot, held, drifted_claims(world.fleet, snapshot))
    state = carried.state
    slots = [
        (
            *(name, slot.name, slot.node, slot.claim, slot.labels, slot.taints, slot.pool, slot.only_for, slot.empty),
            *(slot.closes_s, slot.leaving, sorted((key, value) for key, value in slot.free.items() if value)),
        )
        for name, slot in state.slots.items()
    ]
    room = free_capacity(state, "any", {GPU: 1}).among()
    counts = state.neighbours.counts("all", labels.ZONE, lambda _kind: True, lambda _place: True)
    flavors = {name: nodes_of_flavor(world.fleet, name) for name in ("h100", "mig")}
    offered = {name: set(carried.offered(name, nodes)) for name, nodes in flavors.items() if nodes is not None}
    repelling = [(kind.namespace, kind.labels) for kind in state.neighbours.repelling()]
    by_claim = {name: slot.name for name, slot in carried.by_claim.items()}
    domains = counts.pods, counts.places, counts.fewest()
    rooms = {zone: pods for zone, pods in room.totals(labels.ZONE).items() if pods}
    return [slots, room.room, rooms, domains, offered, sorted(map(str, repelling)), by_claim]


def test_a_pass_that_fails_hands_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(small_fleet())
    world.machine("m0")
    world.waits(gang("g", count=1))
    snapshot = world.snapshot()
    cycle.decide(world.fleet, snapshot)

    def broken(_self: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(cycle.AdmissionPass, "_submit", broken)
        assert all(isinstance(it, DecisionFailed) for it in cycle.decide(world.fleet, snapshot))
    assert snapshot.index.take((CarriedState, "")) is None


def test_a_gang_set_aside_is_put_again_once_it_is_not() -> None:
    world = World(small_fleet())
    world.machine("m0")
    running: Gang = world.runs(gang("r", count=1, gpu=8), ("m0", 1))
    world.waits(gang("g", count=1, gpu=8))
    seen = world.snapshot()
    aside = replace(seen, set_aside=frozenset({f"gang/{running.uid}"}))
    asked = [cycle.decide(world.fleet, it, may_buy=False) for it in (seen, aside, seen)]
    assert asked[0] == asked[1] == asked[2]
    assert not any(getattr(it, "gang", running).state is GangState.ADMITTED for it in asked[0] if it is not None)
