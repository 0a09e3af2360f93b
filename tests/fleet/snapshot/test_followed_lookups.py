"""Look-ups that follow what changes say what they would of the tables as they are."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.gangs.lost_machines import boot_s
from fleet.nodeclaims.drift import drifts
from fleet.placement.opportunity_cost import request_mix
from fleet.quota.build_tree import usages
from fleet.snapshot import Claim, Gang, GangState, Snapshot
from fleet.snapshot.lookups import claims_by_node, claims_by_pool, machines_held, unclaimed
from model.index import Index
from tests.support.fleets import NOW, P5, gang, small_fleet
from tests.support.world import World

FLEET = small_fleet()
claims = st.fixed_dictionaries(
    {
        "node": st.sampled_from(("", "n0", "n1")),
        "instance_id": st.sampled_from(("", "i-m0", "i-m1", "i-m2")),
        "node_pool": st.sampled_from(("h100", "h100", "gone")),
        "pool_hash": st.sampled_from(("v1-one", "v1-other")),
        "ready_at_s": st.sampled_from((0.0, NOW - 100, NOW - 50)),
    }
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
    tables: dict[str, Any] = {"claims": dict(world.claims), "gangs": dict(world.gangs)}
    seen = world.snapshot()
    for _ in range(data.draw(st.integers(1, 5))):
        tables = {name: dict(table) for name, table in tables.items()}
        for name in data.draw(st.sets(st.sampled_from(("m0", "m1", "m2")))):
            _change(tables["claims"], name, world.claims[name], data.draw(st.none() | claims))
        for uid in data.draw(st.sets(st.sampled_from(sorted(world.gangs)))):
            state = data.draw(states)
            _change(tables["gangs"], uid, world.gangs[uid], None if state is None else {"state": state})
        now = replace(seen, **tables)
        assert _looked_up(now) == _looked_up(replace(now, index=Index()))


def _change(table: dict[str, Any], key: str, value: Claim | Gang, change: dict[str, Any] | None) -> None:
    if change is None:
        table.pop(key, None)
    else:
        table[key] = replace(value, **change)


def _looked_up(seen: Snapshot) -> list[object]:
    return [
        claims_by_node(seen),
        {pool: list(members) for pool, members in claims_by_pool(seen).items()},
        list(claims_by_pool(seen)),
        {name: [it.uid for it in gangs] for name, gangs in machines_held(seen).items()},
        [it.id for it in unclaimed(seen)],
        boot_s(seen, "h100", P5.name),
        usages(FLEET, seen),
        request_mix(seen.index, FLEET, seen.gangs),
        drifts(FLEET, seen),
    ]
