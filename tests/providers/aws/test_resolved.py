"""From a pool's names to a machine and back: launched, listed, resolved, judged; then the names mean other things."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from boto3.session import Session
from structlog.testing import capture_logs

from fleet.nodeclaims.drift_facts import Drift
from fleet.nodeclaims.launch import launch_configurations, launch_request
from fleet.snapshot import Claim, Resolutions, Snapshot
from model import labels
from model.fleet import Fleet
from providers.aws.clients import connect
from providers.aws.ec2 import Ec2Cloud
from providers.clock import VirtualClock
from providers.ports import CloudThrottled
from providers.sim.ec2 import FakeAws, RegionMarket
from tests.providers.aws.conftest import ACCESS, CLUSTER, VERSION
from tests.support.disruption import drift_of
from tests.support.fleets import A, FleetBuilder, claim_of, offering

OURS = [{"Key": labels.CLUSTER, "Value": CLUSTER}]
NOTHING = ("", "")


@dataclass
class ResolvedStage:
    """An account, a cloud on it, and the machine of one pool."""

    cloud: Ec2Cloud
    ec2: Any
    ssm: Any
    clock: VirtualClock
    images: list[str]
    """Of x86_64 and of AWS, oldest first."""
    fleet: Fleet
    claim: Claim

    def launch(self, template: dict[str, Any], kind: str = "g6.xlarge", **spec: Any) -> None:
        """Buy a machine as the agent would."""
        self.fleet = FleetBuilder().pool("gpu", instanceTypes=[kind], template=template, **spec).build()
        catalog = self.cloud.catalog()
        claim = claim_of(offering(self.fleet, catalog, "gpu", kind, A, "on-demand"), "c0")
        outcome = self.cloud.launch(launch_request(self.fleet, self.seen(), [claim]))
        assert not outcome.failures, outcome
        self.claim = replace(claim, instance_id=outcome.instances[0], launched_at_s=self.clock.now())

    def seen(self, resolved: Resolutions | None = None, **more: Any) -> Snapshot:
        found = {} if resolved is None else {"resolved": resolved}
        return Snapshot(self.clock.now(), CLUSTER, catalog=self.cloud.catalog(), **found, **more)

    def judged(self, later_s: float = 1.0) -> Drift:
        """How the machine differs from its pool after a while."""
        self.clock.advance(later_s)
        asked = launch_configurations(self.fleet, self.cloud.catalog().types, {"c0": self.claim})
        resolved = Resolutions(self.clock.now(), self.cloud.resolve(asked))
        instances = {machine.id: machine for machine in self.cloud.instances()}
        return drift_of(self.fleet, self.seen(resolved, instances=instances), self.claim)


@pytest.fixture
def stage(clock: VirtualClock, session: Session) -> Iterator[ResolvedStage]:
    with FakeAws(RegionMarket(), clock, cluster=CLUSTER) as aws:
        ec2, ssm = (
            session.client(name, region_name="us-east-1", endpoint_url=aws.url)  # type: ignore[call-overload]
            for name in ("ec2", "ssm")
        )
        clients = connect("us-east-1", endpoint_url=aws.url, session=session)
        cloud = Ec2Cloud(clients, ACCESS, clock, VERSION, sleep=clock.advance, rng=lambda: 0.5)
        found = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "architecture", "Values": ["x86_64"]}])
        images = sorted(image["ImageId"] for image in found["Images"])[:3]
        yield ResolvedStage(cloud, ec2, ssm, clock, images, Fleet(), None)  # type: ignore[arg-type]


def own_image(stage: ResolvedStage, name: str) -> str:
    """A copy of an image, tagged; a later one has to come first by name, as moto's stamps are of a second."""
    image = stage.ec2.copy_image(SourceImageId=stage.images[0], SourceRegion="us-east-1", Name=name)["ImageId"]
    stage.ec2.create_tags(Resources=[image], Tags=[{"Key": "team", "Value": "ml"}])
    return str(image)


def parameter(stage: ResolvedStage, image: str) -> None:
    stage.ssm.put_parameter(Name="/team/image", Value=image, Type="String", Overwrite=True)


def more_groups(stage: ResolvedStage) -> None:
    vpc = stage.ec2.describe_subnets(Filters=_ours())["Subnets"][0]["VpcId"]
    tags = [{"ResourceType": "security-group", "Tags": OURS}]
    stage.ec2.create_security_group(GroupName="more", Description="more", VpcId=vpc, TagSpecifications=tags)


def _ours() -> list[dict[str, Any]]:
    return [{"Name": f"tag:{labels.CLUSTER}", "Values": [CLUSTER]}]


def fewer_subnets(stage: ResolvedStage, keep: int = 1) -> None:
    """The machine's own is not selected any more; `keep` of the others are."""
    (machine,) = stage.cloud.instances()
    others = [each["SubnetId"] for each in stage.ec2.describe_subnets(Filters=_ours())["Subnets"]]
    stage.ec2.delete_tags(Resources=[machine.subnet, *sorted({*others} - {machine.subnet})[keep:]], Tags=OURS)


def no_groups(stage: ResolvedStage) -> None:
    found = stage.ec2.describe_security_groups(Filters=_ours())["SecurityGroups"]
    stage.ec2.delete_tags(Resources=[group["GroupId"] for group in found], Tags=OURS)


BIRTHS: list[tuple[str, Callable[[ResolvedStage], dict[str, Any]], dict[str, Any]]] = [
    ("the image of the alias", lambda stage: {}, {}),
    ("a pinned alias", lambda stage: {"amis": [{"alias": "bottlerocket@v1.20.3"}]}, {}),
    ("an image by id", lambda stage: {"amis": [{"id": stage.images[1]}]}, {}),
    ("one of several by id", lambda stage: {"amis": [{"id": image} for image in stage.images]}, {}),
    ("a search", lambda stage: {"amis": [{"name": "amazon-eks-node-al2023-*", "owner": "602401143452"}]}, {}),
    ("a public address", lambda stage: {"associatePublicIPAddress": True}, {}),
    ("EFA on every card", lambda stage: {}, {"kind": "p5.48xlarge", "placement": {"efa": True}}),
    ("a processor of another kind", lambda stage: {}, {"kind": "g5g.xlarge"}),
    (
        "network by id",
        lambda stage: {
            "subnets": [
                {"id": each["SubnetId"]} for each in stage.ec2.describe_subnets(Filters=_ours())["Subnets"][:2]
            ],
            "securityGroups": [{"name": f"{CLUSTER}-nodes"}],
        },
        {},
    ),
]


@pytest.mark.parametrize(("template", "spec"), [it[1:] for it in BIRTHS], ids=[it[0] for it in BIRTHS])
def test_a_machine_we_have_just_launched_does_not_differ(
    stage: ResolvedStage, template: Callable[[ResolvedStage], dict[str, Any]], spec: dict[str, Any]
) -> None:
    stage.launch(template(stage), **spec)
    (machine,) = stage.cloud.instances()
    assert machine.image
    assert machine.subnet
    assert machine.security_groups
    assert [stage.judged(), stage.judged(400), stage.judged(4000)] == [NOTHING] * 3
    resolved = stage.cloud.resolve(launch_configurations(stage.fleet, stage.cloud.catalog().types, {"c0": stage.claim}))
    (answer,) = resolved.values()
    assert list(answer.images.values()) == [machine.image]
    assert answer.subnets[machine.subnet] == machine.security_groups


def test_a_parameter_that_is_written_anew(stage: ResolvedStage) -> None:
    parameter(stage, stage.images[0])
    stage.launch({"amis": [{"ssmParameter": "/team/image"}]})
    parameter(stage, stage.images[1])
    assert stage.judged() == NOTHING, "believed for an hour, by launches as well"
    words = f"its image is {stage.images[0]}, node pool gpu now gets {stage.images[1]}"
    assert stage.judged(3600) == ("AMIDrift", words)
    parameter(stage, stage.images[0])
    assert stage.judged(3601) == NOTHING


@pytest.mark.parametrize("term", [{"tags": {"team": "ml"}}, {"name": "?-image"}], ids=["by tag", "by name"])
def test_a_newer_image_of_a_search(stage: ResolvedStage, term: dict[str, Any]) -> None:
    older = own_image(stage, "b-image")
    stage.launch({"amis": [term]})
    newer = own_image(stage, "a-image")
    words = f"its image is {older}, node pool gpu now gets {newer}"
    assert [stage.judged(), stage.judged(301)] == [NOTHING, ("AMIDrift", words)]
    stage.ec2.deregister_image(ImageId=newer)
    assert stage.judged(301) == NOTHING
    stage.ec2.deregister_image(ImageId=older)
    with capture_logs() as logs:
        assert stage.judged(301) == NOTHING, "that no image is left is an error and no reason to replace a fleet"
    assert [log["log_level"] for log in logs if log["event"] == "not resolved"] == ["warning"]


def test_groups_and_subnets_that_are_selected_by_tag(stage: ResolvedStage) -> None:
    stage.launch({})
    more_groups(stage)
    assert stage.judged() == NOTHING
    assert stage.judged(61).reason == "SecurityGroupDrift"
    no_groups(stage)
    assert stage.judged(61) == NOTHING, "no group at all is an error"
    fewer_subnets(stage)
    assert stage.judged(61).reason == "SubnetDrift"
    fewer_subnets(stage, keep=0)
    assert stage.judged(61) == NOTHING, "no subnet at all is an error"


@pytest.mark.parametrize("what", ["subnets", "security_groups", "resolve"])
def test_what_cannot_be_read_is_not_known(stage: ResolvedStage, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The rest of it is judged all the same."""
    parameter(stage, stage.images[0])
    stage.launch({"amis": [{"ssmParameter": "/team/image"}]})
    resolver = stage.cloud._resolver

    def refused(*_arguments: object) -> None:
        raise CloudThrottled("RequestLimitExceeded")

    monkeypatch.setattr(resolver._images if what == "resolve" else resolver._network, what, refused)
    assert stage.judged(3601) == NOTHING
    more_groups(stage)
    parameter(stage, stage.images[1])
    expected = "SecurityGroupDrift" if what == "resolve" else "AMIDrift"
    assert stage.judged(3601).reason == expected
