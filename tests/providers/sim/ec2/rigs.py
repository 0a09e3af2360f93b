"""A small catalogue, launch requests, clients, and the rig in which a cloud is tested."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.catalog import InstanceOffer, InstanceType
from fleet.snapshot import CapacityPool, Catalog, LaunchRequest, Notice
from model.kinds import CapacityType, NodeTemplate, Taint
from model.kinds.aws import AmiTerm
from model.labels import CLUSTER
from providers.clock import VirtualClock
from providers.ports import Cloud, Notices
from providers.sim.ec2 import Account, FakeAws, RegionMarket

REGION = "us-east-1"
NOW_S = 1_795_000_000.0
IMAGE = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
PRICES = {"p5.48xlarge": 55.04, "g6.xlarge": 0.8048, "g6.2xlarge": 0.9776, "m5.large": 0.096}
VCPUS = {"p5.48xlarge": 192, "g6.xlarge": 4, "g6.2xlarge": 8, "m5.large": 2}
ZONES = ("us-east-1a", "us-east-1b")


def pool(
    capacity_type: CapacityType = "on-demand", instance_type: str = "g6.xlarge", zone: str = "us-east-1a"
) -> CapacityPool:
    return CapacityPool(capacity_type, instance_type, zone)


def small_catalog() -> Catalog:
    types = {name: InstanceType(name, {"cpu": VCPUS[name] * 1000}, {"cpu": VCPUS[name] * 1000}, {}) for name in PRICES}
    capacity_types: tuple[CapacityType, ...] = ("on-demand", "spot")
    offers = [
        InstanceOffer(types[name], zone, capacity_type, PRICES[name])
        for name, zone, capacity_type in itertools.product(sorted(PRICES), ZONES, capacity_types)
    ]
    return Catalog(REGION, types, tuple(offers), NOW_S, "test")


def launch_request(
    token: str, count: int = 1, wanted: CapacityPool | None = None, *, cluster: str = "default"
) -> LaunchRequest:
    return LaunchRequest(
        token=token,
        count=count,
        pool=wanted or pool(),
        node_pool="gpu",
        labels={"muster.dev/node-pool": "gpu"},
        taints=(Taint(key="muster.dev/unregistered", effect="NoExecute"),),
        tags={CLUSTER: cluster, "muster.dev/launch-group": token},
        template=NodeTemplate(amis=(AmiTerm(ssm_parameter=IMAGE),)),
    )


@dataclass(frozen=True)
class CloudRig:
    """A cloud with its market, account and time. `lapse` lets the visibility time-out of received messages pass."""

    kind: str
    cloud: Cloud
    notices: Notices
    account: Account
    clock: VirtualClock
    lapse: Callable[[], None]

    @property
    def market(self) -> RegionMarket:
        return self.account.market

    def wait(self, seconds: float) -> None:
        """Let time pass, with all that is due in it."""
        self.clock.advance(seconds)
        self.account.step(self.clock.now())

    def drain(self) -> list[Notice]:
        """All notices there are, acknowledged."""
        drained: list[Notice] = []
        while received := self.notices.receive(0):
            drained += received
            self.notices.acknowledge(received)
        return drained


@functools.cache
def aws_session() -> Any:
    """One session for all tests: reading the service models anew for each client costs half a second."""
    import boto3

    return boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)


def aws_client(service: str, fake: FakeAws) -> Any:
    """A boto3 client of `fake` that asks once and never waits long."""
    from botocore.config import Config

    config = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 1})
    return aws_session().client(service, endpoint_url=fake.url, config=config)


def ec2_rig(fake: FakeAws, clock: VirtualClock) -> CloudRig:
    """The agent's own adapter on the fake; received messages become visible again at once."""
    from providers.aws.clients import Clients
    from providers.aws.ec2 import Ec2Cloud
    from providers.aws.queue import SqsNotices
    from providers.aws.retry import Caller
    from providers.aws.user_data import ClusterAccess

    def no_pause(_seconds: float) -> None:
        """Virtual time stands still, so that it is the test that moves it."""

    clients = Clients(REGION, aws_client("ec2", fake), aws_client("ssm", fake), None, aws_client("iam", fake))
    cloud = Ec2Cloud(clients, ClusterAccess("default"), clock, lambda: "1.34", sleep=no_pause, rng=lambda: 0.5)
    caller = Caller(clock, sleep=no_pause, rng=lambda: 0.5)
    notices = SqsNotices(aws_client("sqs", fake), fake.queue_url, caller, clock, visibility_s=0)
    return CloudRig("ec2", cloud, notices, fake.account, clock, lambda: None)
