"""Many launches at once: within EC2's limits none is refused, and one that is refused is nobody else's trouble."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

import pytest

from fleet.snapshot import LaunchError, LaunchOutcome, LaunchRequest
from providers.aws.buckets import RateLimitGroup
from providers.aws.clients import Clients
from providers.aws.ec2 import Ec2Cloud
from providers.aws.retry import Caller
from providers.aws.user_data import ClusterAccess
from providers.clock import VirtualClock
from providers.ports import CloudThrottled
from providers.sim.ec2 import FakeAws, RegionMarket
from providers.sim.ec2.limits import STRICTER
from tests.providers.sim.ec2.rigs import NOW_S, REGION, ZONES, aws_client, launch_request, pool, small_catalog

HANDS = 16
SHAPES = [(name, zone) for name in ("p5.48xlarge", "g6.xlarge", "g6.2xlarge", "m5.large") for zone in ZONES]


@pytest.fixture
def fake() -> Iterator[FakeAws]:
    with FakeAws(RegionMarket.from_catalog(small_catalog(), buckets=STRICTER), VirtualClock(NOW_S)) as running:
        yield running


class Sleeper:
    """Pauses that move no clock, as time is short for everybody, and are written down."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._lock = Lock()

    def __call__(self, seconds: float) -> None:
        with self._lock:
            self.pauses.append(seconds)


def cloud_on(fake: FakeAws, sleep: Sleeper) -> Ec2Cloud:
    clients = Clients(REGION, aws_client("ec2", fake), aws_client("ssm", fake), None, aws_client("iam", fake))
    return Ec2Cloud(clients, ClusterAccess("default"), VirtualClock(NOW_S), lambda: "1.34", sleep=sleep)


def requests(count: int, machines: int) -> list[LaunchRequest]:
    """Launches of as many node pools, over all shapes."""
    made = []
    for number in range(count):
        kind, zone = SHAPES[number % len(SHAPES)]
        request = launch_request(f"token-{number}", machines, pool("on-demand", kind, zone))
        made.append(
            replace(request, node_pool=f"pool-{number % 20}", labels={"muster.dev/node-pool": f"p{number % 20}"})
        )
    return made


def launched(cloud: Ec2Cloud, wanted: list[LaunchRequest]) -> list[LaunchOutcome]:
    with ThreadPoolExecutor(HANDS) as hands:
        return list(hands.map(cloud.launch, wanted))


def test_a_thousand_machines_of_twenty_shapes_are_twenty_calls_and_none_is_refused(fake: FakeAws) -> None:
    sleep = Sleeper()
    outcomes = launched(cloud_on(fake, sleep), requests(20, 50))
    assert sum(len(outcome.instances) for outcome in outcomes) == 1000
    assert (fake.account.calls["CreateFleet"], fake.account.throttled.total(), sleep.pauses) == (20, 0, [])


def test_once_one_was_refused_the_next_ones_wait_instead(fake: FakeAws) -> None:
    """Nobody says that the machines of fleets are counted; where they are, one launch finds out for all."""
    cloud = cloud_on(fake, Sleeper())
    launched(cloud, requests(20, 50))
    refused = cloud.launch(launch_request("more", 40))
    asked = fake.account.throttled.total()
    waits = [cloud.launch(launch_request(f"more-{number}", 40)) for number in range(5)]
    assert {failure.error for outcome in (refused, *waits) for failure in outcome.failures} == {LaunchError.THROTTLED}
    assert asked > 0
    assert fake.account.throttled.total() == asked, "the adapter knows that they would have to wait, and says so"


def test_one_refused_call_is_asked_again_and_no_other(fake: FakeAws) -> None:
    sleep = Sleeper()
    cloud = cloud_on(fake, sleep)
    wanted = requests(10, 5)
    for request in wanted:  # templates, subnets and the image are known from here on
        cloud.launch(replace(request, token=f"warm-{request.token}"))
    before = fake.account.calls["CreateFleet"]
    fake.market.faults.throttled_calls = 1
    outcomes = launched(cloud, wanted)
    assert all(len(outcome.instances) == 5 and not outcome.failures for outcome in outcomes)
    assert fake.account.calls["CreateFleet"] - before == len(wanted) + 1
    assert fake.account.throttled["CreateFleet"] == 1


class _RefusedOnce:
    """Every caller is refused once, all at the same instant."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self._lock = Lock()

    def __call__(self, who: int) -> str:
        with self._lock:
            self.calls[who] += 1
            first = self.calls[who] == 1
        if first:
            raise _throttled()
        return "done"


def _throttled() -> Exception:
    from botocore.exceptions import ClientError

    answer: Any = {"Error": {"Code": "RequestLimitExceeded"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
    return ClientError(answer, "CreateFleet")


def test_calls_refused_together_come_again_apart() -> None:
    """Each has a pause of its own, drawn anew, so that they do not meet again at the same instant."""
    sleep, refused = Sleeper(), _RefusedOnce()
    caller = Caller(VirtualClock(NOW_S), sleep=sleep, max_wait_s=1000.0)
    with ThreadPoolExecutor(HANDS) as hands:
        done = list(hands.map(lambda who: caller.once(RateLimitGroup.MUTATE, lambda: refused(who)), range(HANDS)))
    assert done == ["done"] * HANDS
    assert set(refused.calls.values()) == {2}
    assert len(set(sleep.pauses)) >= HANDS, "jitter is drawn for each call, and tokens come one after the other"


def test_a_call_that_would_wait_too_long_says_so_and_takes_no_token() -> None:
    caller = Caller(VirtualClock(NOW_S), sleep=Sleeper(), max_wait_s=1.0)
    caller.pace(RateLimitGroup.TERMINATED_INSTANCES, 1000)
    with pytest.raises(CloudThrottled):
        caller.pace(RateLimitGroup.TERMINATED_INSTANCES, 40)
    caller.unused(RateLimitGroup.TERMINATED_INSTANCES, 40)
    caller.pace(RateLimitGroup.TERMINATED_INSTANCES, 40)
