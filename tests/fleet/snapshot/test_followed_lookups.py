"""Look-ups that follow what changes say what they would of the tables as they are."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.gangs.lost_machines import at_risk, boot_s
from fleet.nodeclaims.cutting import drifted_layout, drifted_layouts
from fleet.nodeclaims.drift import drifts
from fleet.nodeclaims.garbage_collection import collect
from fleet.nodeclaims.launch import launch_groups
from fleet.nodeclaims.repair import registrations
from fleet.placement.opportunity_cost import request_mix
from fleet.quota.build_tree import usages
from fleet.snapshot import Claim, Gang, GangState, Launch, Node, Pod, PodSet, Snapshot
from fleet.snapshot.lookups import (
    claim_names,
    claims_by_node,
    claims_by_pool,
    claims_whatever_runs,
    machines_held,
    node_names,
    ordinary_tenants,
    tenants,
    unclaimed,
)
from model import labels
from model.index import Index
from tests.support.fleets import NOW, P5, gang, small_fleet
from tests.support.world import World

FLEET = small_fleet()
claims = st.fixed_dictionaries(
    {
        "node": st.sampled_from(("", "n0", "n1", "node-m0")),
        "instance_id": st.sampled_from(("", "i-m0", "i-m1", "i-m2")),
        "node_pool": st.sampled_from(("h100", "h100", "gone")),
        "pool_hash": st.sampled_from(("v1-one", "v1-other")),
        "ready_at_s": st.sampled_from((0.0, NOW - 100, NOW - 50)),
        "emptied_at_s": st.sampled_from((0.0, NOW - 10)),
        "launch": st.sampled_from(("a", "b")).map(lambda group: Launch(group, 0, 2)),
        "layout": st.sampled_from(("", "all-1g.10gb")),
    }
)
nodes = st.fixed_dictionaries(
    {"ready": st.booleans(), "unschedulable": st.booleans(), "has_finalizer": st.booleans()},
    optional={"labels": st.sampled_from(({}, {labels.NODE_CLAIM: "gone"}))},
)
ordinary = st.fixed_dictionaries(
    {},
    optional={
        name: st.integers(1, 2).map(
            lambda count, name=name: tuple(
                Pod(f"{name}-{n}", "x", f"p{n}", name, "Running", {"cpu": 1}, shape=PodSet("main", 1, {"cpu": n}))
                for n in range(count)
            )
        )
        for name in ("node-m0", "node-m1", "n0", "n1")
    },
)
states = st.sampled_from((GangState.PENDING, GangState.ADMITTED, GangState.FINISHED, None))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_they_say_what_they_would_if_they_were_asked_first(data: st.DataObject) -> None:
    world = World(FLEET)
    for name in ("m0", "m1", "m2"):
        world.machine(name)
    for number in range(3):
        world.runs(gang(f"g{number}", count=2), ("m0", 1), (f"m{number}", 1), pods=False)
    tables: dict[str, Any] = {"claims": dict(world.claims), "gangs": dict(world.gangs), "nodes": dict(world.nodes)}
    tables["ordinary_pods"] = {}
    seen = world.snapshot()
    for _ in range(data.draw(st.integers(1, 5))):
        tables = {name: dict(table) for name, table in tables.items()}
        for name in data.draw(st.sets(st.sampled_from(("m0", "m1", "m2")))):
            _change(tables["claims"], name, world.claims[name], data.draw(st.none() | claims))
        for uid in data.draw(st.sets(st.sampled_from(sorted(world.gangs)))):
            state = data.draw(states)
            pins = world.gangs[data.draw(st.sampled_from(sorted(world.gangs)))].pins
            _change(tables["gangs"], uid, world.gangs[uid], None if state is None else {"state": state, "pins": pins})
        for name in data.draw(st.sets(st.sampled_from(sorted(world.nodes)))):
            _change(tables["nodes"], name, world.nodes[name], data.draw(st.none() | nodes))
            tables["ordinary_pods"][name] = data.draw(ordinary).get(name, ())
        tables["ordinary_pods"] = {name: pods for name, pods in tables["ordinary_pods"].items() if pods}
        now = replace(seen, **tables)
        assert _looked_up(now) == _looked_up(replace(now, index=Index()))


def _change(table: dict[str, Any], key: str, value: Claim | Gang | Node, change: dict[str, Any] | None) -> None:
    if change is None:
        table.pop(key, None)
    else:
        table[key] = replace(value, **change)


def _looked_up(seen: Snapshot) -> list[object]:
    return [
        claims_by_node(seen),
        dict(claims_whatever_runs(seen)),
        {pool: list(members) for pool, members in claims_by_pool(seen).items()},
        list(claims_by_pool(seen)),
        {name: [it.uid for it in gangs] for name, gangs in machines_held(seen).items()},
        {name: list(gangs) for name, gangs in tenants(seen).items()},
        list(ordinary_tenants(seen).items()),
        at_risk(seen),
        [list(found) for found in (node_names(seen), claim_names(seen))],
        list(collect(seen)),
        registrations({}, FLEET, seen),
        [it.id for it in unclaimed(seen)],
        boot_s(seen, "h100", P5.name),
        usages(FLEET, seen),
        request_mix(seen.index, FLEET, seen.gangs),
        drifts(FLEET, seen),
        launch_groups(seen),
        drifted_layouts(FLEET, seen),
    ]


def test_whatever_runs_on_a_machine_its_claim_stays_the_same_object() -> None:
    world = World(FLEET)
    for name in ("m0", "m1"):
        world.machine(name)
    seen = world.snapshot()
    before = claims_whatever_runs(seen)
    emptied = {**world.claims, "m0": replace(world.claims["m0"], emptied_at_s=NOW - 1)}
    assert claims_whatever_runs(replace(seen, claims=emptied)) is before
    layout = {**emptied, "m1": replace(emptied["m1"], layout="all-1g.10gb", emptied_at_s=NOW - 1)}
    now = claims_whatever_runs(replace(seen, claims=layout))
    assert now["m0"] is before["m0"]
    assert now["m1"] == replace(layout["m1"], emptied_at_s=0.0)


@settings(max_examples=50, deadline=None)
@given(st.fixed_dictionaries({name: st.none() | claims for name in ("m0", "m1", "m2")}))
def test_the_layout_of_one_machine_is_judged_as_among_all(changes: dict[str, dict[str, Any] | None]) -> None:
    world = World(FLEET)
    for name in changes:
        world.machine(name)
    found = dict(world.claims)
    for name, change in changes.items():
        _change(found, name, world.claims[name], change)
    seen = replace(world.snapshot(), claims=found)
    alone = {name: drifted_layout(FLEET, seen, claim) for name, claim in found.items()}
    assert {name: words for name, words in alone.items() if words} == drifted_layouts(FLEET, seen)
