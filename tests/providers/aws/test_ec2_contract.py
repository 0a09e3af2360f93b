"""The adapter against an EC2 that answers over HTTP: plain moto (never refuses) and `FakeAws` (does)."""

import base64
import json
from dataclasses import replace
from itertools import count

import pytest
from moto.server import ThreadedMotoServer
from structlog.testing import capture_logs

from fleet.snapshot import CapacityPool, LaunchError
from model import labels
from providers.aws.clients import connect, connect_queue
from providers.aws.ec2 import Ec2Cloud
from providers.aws.queue import SqsNotices
from providers.aws.retry import Caller
from providers.ports import CloudRejected, CloudUnreachable
from providers.sim.ec2 import FakeAws, PoolFilter, Quota, RegionMarket
from tests.providers.aws.conftest import ACCESS, CLUSTER, VERSION

POOL = CapacityPool("spot", "g6.xlarge", "us-east-1a")


_CLUSTERS = count()


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def moto_cloud(moto, clock, session):
    """A cloud with a cluster of its own in the shared moto, with tagged subnets in two zones."""
    ec2 = session.client("ec2", region_name="us-east-1", endpoint_url=moto)
    cluster = f"moto-{next(_CLUSTERS)}"

    def tagged(kind):
        return [{"ResourceType": kind, "Tags": [{"Key": labels.CLUSTER, "Value": cluster}]}]

    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    for index, zone in enumerate(("us-east-1a", "us-east-1b")):
        ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"10.0.{index}.0/24", AvailabilityZone=zone, TagSpecifications=tagged("subnet")
        )
    ec2.create_security_group(
        GroupName=cluster, Description="nodes", VpcId=vpc, TagSpecifications=tagged("security-group")
    )
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    clients = connect("us-east-1", endpoint_url=moto, session=session)
    cloud = Ec2Cloud(clients, replace(ACCESS, name=cluster), clock, VERSION, sleep=clock.advance)
    return (
        cloud,
        ec2,
        {"template": {"amis": [{"id": image}]}, "tags": {labels.CLUSTER: cluster, labels.NODE_POOL: "gpu"}},
    )


def test_moto_launch_describe_tag_and_terminate(moto_cloud, request_for):
    cloud, ec2, mine = moto_cloud
    mine["template"] |= {"userData": "echo born"}
    request = request_for(count=3, pool=replace(POOL, capacity_type="on-demand"), **mine)
    got = cloud.launch(request)
    assert len(got.instances) == 3
    assert got.failures == ()
    listed = cloud.instances()
    assert [each.id for each in listed] == sorted(got.instances)
    for each in listed:
        assert (each.instance_type, each.zone, each.capacity_type) == ("g6.xlarge", "us-east-1a", "on-demand")
        assert each.state in {"pending", "running"}
        assert each.tags.items() >= {**mine["tags"], "muster.dev/launch-token": "token-1"}.items()
        assert each.private_dns
    cloud.tag(got.instances[0], {"muster.dev/node-claim": "claim-1", labels.NODE_POOL: "other"})
    tagged = {each.id: each.tags for each in cloud.instances()}[got.instances[0]]
    assert (tagged["muster.dev/node-claim"], tagged[labels.NODE_POOL]) == ("claim-1", "other")
    cloud.terminate([*got.instances, "i-0123456789abcdef0"])
    cloud.terminate(got.instances)
    assert all(each.gone for each in cloud.instances())
    by_cluster = {"Name": f"tag:{labels.CLUSTER}", "Values": [mine["tags"][labels.CLUSTER]]}
    (template,) = ec2.describe_launch_templates(Filters=[by_cluster])["LaunchTemplates"]
    data = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])
    user_data = data["LaunchTemplateVersions"][0]["LaunchTemplateData"]["UserData"]
    assert b"echo born" in base64.b64decode(user_data)


def test_moto_lists_what_asks_for_adoption(moto_cloud):
    cloud, ec2, mine = moto_cloud
    image, cluster = mine["template"]["amis"][0]["id"], mine["tags"][labels.CLUSTER]
    ran = ec2.run_instances(ImageId=image, InstanceType="g6.xlarge", MinCount=3, MaxCount=3)["Instances"]
    asking, other, _ = (each["InstanceId"] for each in ran)
    cloud.tag(asking, {labels.ADOPT: f"{cluster}/gpu"})
    cloud.tag(other, {labels.ADOPT: f"{cluster}0/gpu"})
    assert [each.id for each in cloud.instances()] == [asking]
    cloud.tag(asking, mine["tags"])
    ec2.delete_tags(Resources=[asking], Tags=[{"Key": labels.ADOPT}])
    assert [each.id for each in cloud.instances()] == [asking]


def test_moto_spot_and_efa(moto_cloud, request_for):
    cloud, _, mine = moto_cloud
    pool = CapacityPool("spot", "p5.48xlarge", "us-east-1b")
    got = cloud.launch(request_for(count=1, pool=pool, fabric_interfaces=32, token="efa", **mine))
    assert len(got.instances) == 1
    (instance,) = cloud.instances()
    assert (instance.capacity_type, instance.zone) == ("spot", "us-east-1b")


def test_moto_refresh_keeps_what_it_cannot_read(moto_cloud):
    cloud, _, _ = moto_cloud
    before = cloud.catalog()
    after = cloud.refresh()
    assert after is cloud.catalog()
    assert set(after.types) >= set(before.types)
    assert {offer.zone for offer in after.offers} == {"us-east-1a", "us-east-1b"}
    # moto's spot prices are of 2006, and a fake of EC2 has no price list: both are said, not believed.
    assert after.price_source == "on-demand: package prices of 2026-07-20; spot: estimated at 0.40 x on-demand"
    assert cloud._current().left_out["p5e.48xlarge"]


@pytest.fixture
def market():
    return RegionMarket()


@pytest.fixture
def aws(market, clock):
    with FakeAws(market, clock, cluster=CLUSTER) as fake:
        yield fake


@pytest.fixture
def cloud(aws, clock, session):
    return Ec2Cloud(
        connect("us-east-1", endpoint_url=aws.url, session=session),
        ACCESS,
        clock,
        VERSION,
        sleep=clock.advance,
        rng=lambda: 0.5,
    )


@pytest.fixture
def parameter():
    return "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"


@pytest.fixture
def wanted(request_for, parameter):
    def make(**changes):
        template = {"amis": [{"ssmParameter": parameter}]} | changes.pop("template", {})
        return request_for(**changes, template=template)

    return make


def running(aws):
    return sorted(each.instance_id for each in aws.instances() if each.state in {"pending", "running"})


def test_buys_and_the_machine_hears_what_it_must(aws, cloud, wanted):
    got = cloud.launch(wanted(count=3))
    assert (len(got.instances), got.failures) == (3, ())
    assert running(aws) == sorted(got.instances)
    machine = aws.instances()[0]
    assert "--node-labels=muster.dev/node-pool=gpu,team=a" in machine.user_data
    assert "--register-with-taints=muster.dev/unregistered=:NoExecute" in machine.user_data
    assert machine.tags[labels.CLUSTER] == CLUSTER
    assert (machine.zone, machine.capacity_type) == ("us-east-1a", "spot")


def test_all_or_nothing(aws, market, cloud, wanted):
    market.set_capacity(POOL, 3)
    got = cloud.launch(wanted(count=4))
    assert got.instances == ()
    assert {failure.error for failure in got.failures} == {LaunchError.SHORTAGE}
    assert running(aws) == []
    assert len(cloud.launch(wanted(count=3, token="token-2")).instances) == 3


def test_an_api_that_ignores_the_minimum_is_reported_as_a_shortfall(aws, market, cloud, wanted):
    market.set_capacity(POOL, 2)
    market.set_lying(PoolFilter.only(POOL))
    got = cloud.launch(wanted(count=4))
    assert len(got.instances) == 2
    assert {failure.error for failure in got.failures} == {LaunchError.SHORTAGE}
    assert running(aws) == sorted(got.instances)


def test_the_same_token_never_buys_twice(aws, cloud, wanted):
    first = cloud.launch(wanted())
    assert cloud.launch(wanted()).instances == first.instances
    assert running(aws) == sorted(first.instances)


def test_a_lost_answer_then_the_same_token_finds_the_machines(aws, cloud, wanted):
    cloud.launch(wanted(token="warm-up"))
    before = set(running(aws))
    aws.market.faults.lost_answers = 1
    lost = cloud.launch(wanted())
    assert lost.instances == ()
    assert [failure.error for failure in lost.failures] == [LaunchError.UNKNOWN]
    found = cloud.launch(wanted())
    assert len(found.instances) == 2
    assert set(running(aws)) == before | set(found.instances)


def test_another_process_finds_them_too(aws, cloud, clock, session, wanted):
    """Its plan is gone with the process: EC2 refuses the token with other parameters, and the tag leads on."""
    aws.market.faults.lost_answers = 1
    assert cloud.launch(wanted()).instances == ()
    successor = Ec2Cloud(
        connect("us-east-1", endpoint_url=aws.url, session=session), ACCESS, clock, VERSION, sleep=clock.advance
    )
    found = successor.launch(wanted(template={"userData": "echo changed"}))
    assert sorted(found.instances) == running(aws)
    assert len(found.instances) == 2
    assert found.failures == ()


def test_throttling_passes(aws, cloud, wanted):
    aws.market.faults.throttled_calls = 3
    assert len(cloud.launch(wanted()).instances) == 2


def test_quota(aws, market, cloud, wanted):
    market.set_quota(Quota.of(POOL), 4)
    got = cloud.launch(wanted(count=50))
    assert got.instances == ()
    assert {failure.error for failure in got.failures} == {LaunchError.QUOTA}


def test_giving_back(aws, cloud, clock, wanted):
    got = cloud.launch(wanted(count=5))
    unknown = [f"i-{number:017x}" for number in range(3)]
    cloud.terminate([unknown[0], *got.instances[:2], unknown[1], *got.instances[2:], unknown[2]])
    cloud.terminate(got.instances)
    cloud.terminate([])
    assert running(aws) == []
    assert all(each.gone for each in cloud.instances())


def test_only_this_cluster_is_listed(aws, clock, cloud, wanted):
    mine = cloud.launch(wanted())
    theirs = cloud.launch(wanted(token="other", tags={labels.CLUSTER: "other"}))
    assert theirs.instances
    assert [each.id for each in cloud.instances()] == sorted(mine.instances)


def test_tagging_an_unknown_instance_is_refused(cloud):
    with pytest.raises(CloudRejected):
        cloud.tag("i-0123456789abcdef0", {"a": "b"})


def test_a_burst_of_launches_is_never_refused_for_its_rate(aws, cloud, wanted):
    """More launches than the service's bucket of mutating calls holds."""
    for number in range(70):
        got = cloud.launch(wanted(count=1, token=f"burst-{number}"))
        assert len(got.instances) == 1


def test_the_instance_bucket_counts_only_what_was_launched(aws, market, cloud, wanted):
    """Pool after pool is tried in one pass; refusals must not use up the allowance of the last."""
    market.set_capacity(POOL, 0)
    for number in range(20):
        got = cloud.launch(wanted(count=700, token=f"short-{number}"))
        assert {failure.error for failure in got.failures} == {LaunchError.SHORTAGE}


def test_refresh_reads_the_market(aws, cloud):
    known = cloud.catalog()
    assert "estimated" in known.price_source
    read = cloud.refresh()
    assert read is cloud.catalog()
    spot = [offer for offer in read.offers if offer.capacity_type == "spot"]
    assert {offer.zone for offer in read.offers} <= {f"us-east-1{letter}" for letter in "abcdef"}
    assert len(spot) > 1000
    assert list(read.offers) == sorted(
        read.offers, key=lambda offer: (offer.instance_type.name, offer.zone, offer.capacity_type)
    )


def test_a_cloud_out_of_reach_leaves_the_package(clock, session):
    """Offline, the catalogue is that of the package, and says how old it is."""
    clients = connect("us-east-1", endpoint_url="http://127.0.0.1:1", session=session)
    offline = Ec2Cloud(clients, ACCESS, clock, VERSION, sleep=clock.advance, rng=lambda: 0.0)
    known = offline.catalog()
    with capture_logs() as logs:
        assert offline.refresh() == known
    assert {entry["part"] for entry in logs} == {
        "zones",
        "instance types",
        "spot prices",
        "subnets",
        "launch templates",
    }
    assert known.priced_at_s < clock.now()
    with pytest.raises(CloudUnreachable):
        offline.instances()
    with pytest.raises(CloudUnreachable):
        offline.terminate(["i-0123456789abcdef0"])


def test_prices_are_read_where_there_is_a_price_list(stubbed):
    """The Pricing API alone answers: its prices replace the package's, all else stays."""
    text = json.dumps(
        {
            "product": {"attributes": {"instanceType": "g6.xlarge"}},
            "terms": {"OnDemand": {"o": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": "9.5"}}}}}},
        }
    )
    for prices in ([text], []):
        stubbed.pricing.add_response("get_products", {"PriceList": prices})
    catalog = stubbed.cloud.refresh()
    assert {(o.instance_type.name, o.price_usd_h) for o in catalog.offers if o.capacity_type == "on-demand"} == {
        ("g6.xlarge", 9.5)
    }
    assert catalog.price_source.startswith("on-demand: Pricing API")
    assert "no on-demand price" in stubbed.cloud._current().left_out["p5.48xlarge"]


def test_interruption_reaches_the_queue_and_leaves_it(aws, clock, cloud, session, wanted):
    client = connect_queue("us-east-1", endpoint_url=aws.url, session=session)
    notices = SqsNotices(client, aws.queue_url, Caller(clock, sleep=clock.advance), clock)
    (instance_id, _) = cloud.launch(wanted()).instances
    aws.step(clock.now())
    aws.interrupt(instance_id)
    got = [notice for notice in notices.receive(0.0) if notice.instance_ids == (instance_id,)]
    assert "spot_interrupted" in {notice.kind for notice in got}
    notices.acknowledge(got)
    assert notices.unparsable == 0
    assert notices.receive(0.0) == []
