"""What a gang that waits is told of machines: only of those that it may have, and the last pass goes before."""

import pytest

from fleet.explain.tried_machines import TriedOutcome, tried_machines
from fleet.reasons import Reason
from tests.support.fleets import GPU, FleetBuilder, gang
from tests.support.world import World


@pytest.mark.parametrize(
    ("pool", "reason", "free", "outcomes"),
    [
        ("h100", Reason.WAITING_FOR_QUOTA, 1, {}),
        ("h100", Reason.POOL_LIMIT, 0, {TriedOutcome.LIMIT}),  # something else than GPUs is missing there
        ("other", Reason.WAITING_FOR_QUOTA, 0, {TriedOutcome.LIMIT}),
    ],
)
def test_room_is_counted_where_a_gang_may_stand(
    pool: str, reason: Reason, free: int, outcomes: set[TriedOutcome]
) -> None:
    """Free GPUs of another flavor's machines had its offers left out, and nobody learned what was against them."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).pool("other").team(quotas={"h100": {GPU: 8}, "other": {GPU: 8}})
    world = World(builder.queue().queue("o", flavors=("other",)).build())
    world.machine("m0", pool=pool)
    world.waits(gang("w", reason=reason))
    tried = tried_machines(world.fleet, world.snapshot(), world.gang("w"))
    assert (tried.standing, tried.free_pods) == (1, free)
    assert {it.outcome for it in tried.offers} == set(outcomes)
