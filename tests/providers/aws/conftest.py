"""Fakes of AWS for the adapter: botocore's Stubber for exact answers, moto and `FakeAws` over loopback."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from boto3.session import Session
from botocore.stub import ANY, Stubber

from fleet.snapshot import CapacityPool, LaunchRequest
from model import labels
from model.kinds import NodeTemplate, Taint
from providers.aws.clients import Clients, connect
from providers.aws.ec2 import Ec2Cloud
from providers.aws.user_data import ClusterAccess
from providers.clock import VirtualClock

CLUSTER = "default"
IMAGE = "ami-0123456789abcdef0"


def VERSION() -> str:
    return "1.34"


ACCESS = ClusterAccess(CLUSTER, "https://127.0.0.1:6443", "dGVzdA==", "10.100.0.0/16")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="session")
def session() -> Session:
    """One boto3 session: the models of the services are read once."""
    return Session(aws_access_key_id="test", aws_secret_access_key="test")


@dataclass
class Stubbed:
    """Clients whose every answer is scripted; a call that was not is an error."""

    clients: Clients
    ec2: Stubber
    ssm: Stubber
    pricing: Stubber
    cloud: Ec2Cloud
    pauses: list[float] = field(default_factory=list)

    def resolve(self, *, template: bool = True) -> None:
        """Script what a launch looks up before it asks."""
        self.ec2.add_response(
            "describe_subnets",
            {
                "Subnets": [
                    {
                        "SubnetId": f"subnet-{name}",
                        "VpcId": "vpc-1",
                        "AvailabilityZone": zone,
                        "AvailableIpAddressCount": n,
                    }
                    for name, zone, n in (("a1", "us-east-1a", 10), ("a2", "us-east-1a", 12), ("b1", "us-east-1b", 250))
                ]
            },
            {"Filters": [{"Name": f"tag:{labels.CLUSTER}", "Values": [CLUSTER]}], "MaxResults": 200},
        )
        self.ec2.add_response(
            "describe_security_groups",
            {"SecurityGroups": [{"GroupId": "sg-2"}, {"GroupId": "sg-1"}]},
            {
                "Filters": [
                    {"Name": f"tag:{labels.CLUSTER}", "Values": [CLUSTER]},
                    {"Name": "vpc-id", "Values": ["vpc-1"]},
                ],
                "MaxResults": 200,
            },
        )
        if template:
            self.template()

    def template(self) -> None:
        self.ec2.add_response(
            "create_launch_template",
            {},
            dict.fromkeys(("LaunchTemplateName", "LaunchTemplateData", "TagSpecifications"), ANY),
        )


@pytest.fixture
def stubbed(clock: VirtualClock, session: Session) -> Iterator[Stubbed]:
    nowhere = "http://127.0.0.1:1"
    clients = connect("us-east-1", endpoint_url=nowhere, pricing_endpoint_url=nowhere, session=session)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    cloud = Ec2Cloud(clients, ACCESS, clock, VERSION, sleep=sleep, rng=lambda: 1.0)
    with Stubber(clients.ec2) as ec2, Stubber(clients.ssm) as ssm, Stubber(clients.pricing) as pricing:
        yield Stubbed(clients, ec2, ssm, pricing, cloud, pauses)


@pytest.fixture
def request_for():
    def make(count: int = 2, **changes: Any) -> LaunchRequest:
        arguments: dict[str, Any] = {
            "token": "token-1",
            "count": count,
            "pool": CapacityPool("spot", "g6.xlarge", "us-east-1a"),
            "node_pool": "gpu",
            "labels": {labels.NODE_POOL: "gpu", "team": "a"},
            "taints": (Taint(key="muster.dev/unregistered", effect="NoExecute"),),
            "tags": {labels.CLUSTER: CLUSTER, labels.NODE_POOL: "gpu"},
            "template": {},
        }
        arguments |= changes
        template = {"amis": [{"id": IMAGE}]} | arguments.pop("template")
        return LaunchRequest(**arguments, template=NodeTemplate.model_validate(template))

    return make
