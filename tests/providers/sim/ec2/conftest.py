"""One market and one time for each test, and a rig for each cloud that must behave alike."""

from collections.abc import Iterator

import pytest

from providers.clock import VirtualClock
from providers.sim.ec2 import FakeAws, MemoryCloud, RegionMarket
from tests.providers.sim.ec2.rigs import NOW_S, REGION, CloudRig, ec2_rig, small_catalog


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW_S)


@pytest.fixture
def market() -> RegionMarket:
    return RegionMarket.from_catalog(small_catalog())


@pytest.fixture
def memory(market: RegionMarket, clock: VirtualClock) -> MemoryCloud:
    return MemoryCloud(market, small_catalog(), clock)


@pytest.fixture
def fake(market: RegionMarket, clock: VirtualClock) -> Iterator[FakeAws]:
    with FakeAws(market, clock, region=REGION) as running:
        yield running


@pytest.fixture(params=["memory", "ec2"])
def rig(request: pytest.FixtureRequest, clock: VirtualClock) -> CloudRig:
    if request.param == "memory":
        memory: MemoryCloud = request.getfixturevalue("memory")
        return CloudRig("memory", memory, memory, memory.account, clock, lambda: clock.advance(30))
    fake: FakeAws = request.getfixturevalue("fake")
    return ec2_rig(fake, clock)
