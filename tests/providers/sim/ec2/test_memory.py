"""What only the cloud without a wire has, and that it means the same as the adapter it stands in for."""

import subprocess
import sys

import pytest

from providers.clock import VirtualClock
from providers.ports import CloudThrottled
from providers.sim.ec2 import EC2_BUCKETS, MemoryCloud, RegionMarket
from providers.sim.ec2.memory import ERRORS
from tests.providers.sim.ec2.rigs import launch_request, small_catalog


def test_errors_mean_what_the_adapter_says_they_mean() -> None:
    from providers.aws.fleet_request import failure_of

    assert {code: failure_of(code, "").error for code in ERRORS} == dict(ERRORS)


def test_request_limits_hold_here_too(clock: VirtualClock) -> None:
    cloud = MemoryCloud(RegionMarket.from_catalog(small_catalog(), buckets=EC2_BUCKETS), small_catalog(), clock)
    for _ in range(50):  # of two calls each
        cloud.instances()
    with pytest.raises(CloudThrottled):
        cloud.instances()
    clock.advance(1)
    assert list(cloud.instances()) == []


def test_the_same_story_has_the_same_ids(market: RegionMarket, clock: VirtualClock) -> None:
    def launched() -> tuple[str, ...]:
        cloud = MemoryCloud(RegionMarket.from_catalog(small_catalog()), small_catalog(), VirtualClock(0))
        return cloud.launch(launch_request("a", 5)).instances

    assert launched() == launched()


def test_it_needs_neither_boto3_nor_moto() -> None:
    program = "import sys, providers.sim.ec2.memory; print(sorted({'boto3', 'botocore', 'moto'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_it_says_when_a_hidden_notice_shows_again_and_counts_what_changes(clock: VirtualClock) -> None:
    cloud = MemoryCloud(RegionMarket.from_catalog(small_catalog()), small_catalog(), clock, visibility_s=30.0)
    (machine,) = cloud.launch(launch_request("a", 1)).instances
    clock.advance(60)
    cloud.step(clock.now())
    assert cloud.next_notice_at() is None
    versions = [cloud.version]
    for change in (lambda: cloud.tag(machine, {"a": "b"}), lambda: cloud.schedule_change(machine)):
        change()
        versions.append(cloud.version)
    assert sorted(set(versions)) == versions
    heard = cloud.receive(0.0)
    assert [it.instance_ids for it in heard] == [(machine,)]
    assert cloud.next_notice_at() == clock.now() + 30.0
    cloud.acknowledge(heard)
    assert cloud.next_notice_at() is None
