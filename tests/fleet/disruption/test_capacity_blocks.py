"""Machines of capacity blocks that end: work leaves before the end, replacements first, whatever the budgets say."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fleet.disruption.outcomes import Obstacle
from fleet.reasons import Reason
from fleet.snapshot import Reservation, Snapshot
from tests.support.disruption import GOES, KEEPS, NOTHING, WAITS, Row, check, declare
from tests.support.fleets import GPU, NOW, P5, A, FleetBuilder, gang
from tests.support.world import World


class BlockWorld(World):
    """A world that knows a reservation."""

    reservation: Reservation

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), reservations={self.reservation.id: self.reservation})


def blocked(minutes: float, gangs: int = 1, run: Any = None, **pool: Any) -> World:
    """Machines of a block that the cloud begins to terminate in so many minutes, gangs on the first."""
    world = BlockWorld(FleetBuilder().pool().team(quotas={"h100": {GPU: 64}}).queue().build())
    world.reservation = Reservation("cr-1", P5.name, A, 2, 0, terminates_s=NOW + minutes * 60)
    for n in range(2):
        world.machine(f"m{n}")
        where = replace(world.claims[f"m{n}"].capacity_pool, capacity_type="reserved", reservation="cr-1")
        world.claims[f"m{n}"] = replace(world.claims[f"m{n}"], capacity_pool=where, emptied_at_s=NOW)
    for n in range(gangs):
        world.runs(gang(f"g{n}", gpu=4), ("m0", 1), **(run or {}))
    declare(world, **{"capacityTypes": ["reserved", "on-demand"], **pool})
    return world


def elsewhere(world: World) -> World:
    """Of no reservation."""
    for name, claim in world.claims.items():
        world.claims[name] = replace(claim, capacity_pool=replace(claim.capacity_pool, reservation=""))
    return world


NO_BUDGET: Mapping[str, Any] = {"disruption": {"budgets": [{"nodes": 0}]}}
ROWS: list[Row] = [
    ("of no reservation", lambda: elsewhere(blocked(9)), {}, KEEPS, Obstacle.NOT_DUE, "it is of no capacity block"),
    ("of another reservation", lambda: blocked(inf), {}, KEEPS, Obstacle.NOT_DUE, "no capacity block"),
    ("open", lambda: blocked(11), {}, KEEPS, Obstacle.NOT_DUE, "capacity block cr-1 is open"),
    ("the pool leaves sooner", lambda: blocked(11, reservations={"leaveBefore": "15m"}), {"m0": 1, "m1": 0}, GOES,
     NOTHING, "capacity block cr-1 ends, and the cloud terminates its machines; 1 machine bought first"),
    ("ends", lambda: blocked(9), {"m0": 1, "m1": 0}, GOES, NOTHING, "1 machine bought first"),
    ("ends, and is idle", lambda: blocked(9, gangs=0), {"m0": 0, "m1": 0}, GOES, NOTHING, "the cloud terminates"),
    ("ends, no budget", lambda: blocked(9, **NO_BUDGET), {"m0": 1, "m1": 0}, GOES, NOTHING, "1 machine bought first"),
    ("ends, work may not move", lambda: blocked(9, run={"do_not_disrupt": "true"}), {"m1": 0}, WAITS, Obstacle.GANG,
     "terminates its machines; ns/g0 says do-not-disrupt"),
    ("ends, nothing can be bought", lambda: blocked(9, limits={"nodes": 2}), {"m1": 0}, WAITS, Obstacle.NO_PLACE,
     "beyond the limits of h100"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("block", row)


def test_the_reason_is_told() -> None:
    found = {it.claim.name: it.claim.disruption.reason for it in blocked(9, gangs=0).disrupted(waits=False)}
    assert found == dict.fromkeys(("m0", "m1"), Reason.BLOCK_ENDS)
