"""Some 600 machines bought in one pass: subnets run full, launches are refused for the rate, and nothing is lost."""

from collections import Counter
from pathlib import Path

import pytest

from bench import drill
from bench.capacity import recorded
from bench.cloud import adapter
from providers.clock import VirtualClock
from providers.sim.ec2 import FakeAws, RegionMarket
from providers.sim.ec2.limits import EC2_BUCKETS, Bucket

FOLDER = Path(__file__).parents[1] / "data" / "karpenter_recorded"
A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


@pytest.mark.parametrize(
    ("left", "buckets"),
    [
        pytest.param({}, EC2_BUCKETS, id="room for all"),
        pytest.param({A: 100, B: 50}, EC2_BUCKETS, id="subnets run full"),
        pytest.param({}, EC2_BUCKETS | {"CreateFleet:machines": Bucket(400, 20)}, id="machines of fleets are counted"),
    ],
)
def test_nothing_is_lost(left: dict[str, int], buckets: dict[str, Bucket]) -> None:
    known = recorded.recorded("singles-1000", FOLDER)
    catalog, clock = known.catalog(), VirtualClock(drill.recorded.NOW_S)
    purchase = drill.drill_of(known.problems[0], known, catalog)
    with FakeAws(RegionMarket.from_catalog(catalog, buckets=buckets), clock) as fake:
        drill.leave_addresses(fake, left)
        cloud = adapter(fake, clock)
        drill.bought(purchase, lambda requests: list(map(cloud.launch, requests)), clock.now, clock.advance)
        assert drill.lost(fake, purchase.claims.values()) == 0
        throttled = fake.account.throttled.total()
    where = Counter(claim.capacity_pool.zone for claim in purchase.claims.values())
    assert all(where[zone] <= addresses for zone, addresses in left.items())
    assert bool(purchase.reasons[drill.NO_ADDRESSES]) == bool(left)
    assert bool(throttled) == ("CreateFleet:machines" in buckets)
    assert {it.claim for it in purchase.verdicts.values()} <= set(purchase.claims)
    assert not purchase.given_back
