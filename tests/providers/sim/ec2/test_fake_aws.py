"""The EC2 API of the fake, asked as any AWS client would."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from providers.clock import SystemClock, VirtualClock
from providers.sim.ec2 import (
    EC2_BUCKETS,
    FakeAws,
    HeldReservation,
    MachineTimings,
    PoolFilter,
    RegionMarket,
    SpotProcess,
)
from providers.sim.ec2.site import vcpus
from tests.providers.sim.ec2.api import TEMPLATE, Api
from tests.providers.sim.ec2.rigs import NOW_S, PRICES, REGION, aws_client, pool, small_catalog


@pytest.fixture
def api(fake: FakeAws) -> Api:
    return Api(fake)


def launched(answer: Any) -> dict[tuple[str, str], int]:
    return {
        (entry["InstanceType"], entry["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"]): len(
            entry["InstanceIds"]
        )
        for entry in answer["Instances"]
    }


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


# CreateFleet


def test_all_of_a_group_come_in_one_entry(api: Api) -> None:
    answer = api.fleet(3, OnDemandOptions={"MinTargetCapacity": 3, "SingleInstanceType": True})
    assert answer["Errors"] == []
    (entry,) = answer["Instances"]
    assert (entry["InstanceType"], entry["Lifecycle"], len(entry["InstanceIds"])) == ("g6.xlarge", "on-demand", 3)


def test_the_cheapest_override_is_filled_first_and_the_rest_goes_on(api: Api) -> None:
    api.fake.market.set_capacity(pool(), 2)
    answer = api.fleet(5, api.override("g6.2xlarge"), api.override())
    assert launched(answer) == {("g6.xlarge", "us-east-1a"): 2, ("g6.2xlarge", "us-east-1a"): 3}
    assert [
        (error["ErrorCode"], error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"])
        for error in answer["Errors"]
    ] == [("InsufficientInstanceCapacity", "g6.xlarge")]


def test_priorities_decide_where_asked_to(api: Api) -> None:
    overrides = [api.override("g6.xlarge", Priority=2.0), api.override("g6.2xlarge", Priority=1.0)]
    answer = api.fleet(2, *overrides, OnDemandOptions={"AllocationStrategy": "prioritized"})
    assert launched(answer) == {("g6.2xlarge", "us-east-1a"): 2}


def test_one_zone_takes_all_or_none(api: Api) -> None:
    for zone, machines in (("us-east-1a", 3), ("us-east-1b", 4)):
        api.fake.market.set_capacity(pool(zone=zone), machines)
    overrides = [api.override(), api.override(zone="us-east-1b")]
    whole = {"MinTargetCapacity": 4, "SingleAvailabilityZone": True, "SingleInstanceType": True}
    assert launched(api.fleet(4, *overrides, OnDemandOptions=whole)) == {("g6.xlarge", "us-east-1b"): 4}
    again = api.fleet(4, *overrides, OnDemandOptions=whole)
    assert again["Instances"] == []
    assert {error["ErrorCode"] for error in again["Errors"]} == {"InsufficientInstanceCapacity"}
    assert len(api.fake.ledger()) == 4


def test_spot_and_on_demand_in_one_fleet(api: Api) -> None:
    arguments = api.arguments(5, api.override())
    arguments["TargetCapacitySpecification"] |= {"SpotTargetCapacity": 2}
    answer = api.ec2.create_fleet(**arguments)
    assert sorted((e["Lifecycle"], len(e["InstanceIds"])) for e in answer["Instances"]) == [
        ("on-demand", 3),
        ("spot", 2),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"OnDemandOptions": {"MinTargetCapacity": 2}}, "InvalidParameterCombination"),
        ({"OnDemandOptions": {"MinTargetCapacity": 3, "SingleInstanceType": True}}, "InvalidParameterValue"),
        ({"Type": "maintain"}, "UnsupportedOperation"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"TargetCapacitySpecification": {"TotalTargetCapacity": 0}}, "InvalidTargetCapacitySpecification"),
        (
            {"TargetCapacitySpecification": {"TotalTargetCapacity": 1, "SpotTargetCapacity": 2}},
            "InvalidTargetCapacitySpecification",
        ),
        ({"template": "muster/none"}, "InvalidLaunchTemplateName.NotFoundException"),
        ({"SpotOptions": {"AllocationStrategy": "diversified"}, "capacity_type": "spot"}, "UnsupportedOperation"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_a_fleet_request_that_is_wrong_is_refused_and_buys_nothing(
    api: Api, change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ClientError) as error:
        api.fleet(2, **change)
    assert code(error) == expected
    assert list(api.fake.ledger()) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({"InstanceType": "g6.xlarge", "AvailabilityZone": "us-east-1e"}, "Unsupported"),
        ({"InstanceType": "z9.huge", "AvailabilityZone": "us-east-1a"}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-east-1a", "ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"AvailabilityZone": "us-east-1a", "Placement": {"GroupName": "none"}}, "InvalidPlacementGroup.Unknown"),
    ],
)
def test_an_override_that_cannot_work_is_an_entry_among_the_errors(
    api: Api, override: dict[str, Any], expected: str
) -> None:
    zone = override["AvailabilityZone"]
    given = {"InstanceType": "g6.xlarge", "SubnetId": api.subnets[zone]} | override
    answer = api.fleet(1, given)
    assert (answer["Instances"], [error["ErrorCode"] for error in answer["Errors"]]) == ([], [expected])


def test_a_spot_price_above_the_limit_is_refused(api: Api) -> None:
    answer = api.fleet(1, api.override(MaxPrice="0.001"), capacity_type="spot")
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["SpotMaxPriceTooLow"]


def test_the_same_token_and_parameters_give_the_same_fleet(api: Api) -> None:
    first = api.fleet(2, ClientToken="t")
    second = api.fleet(2, ClientToken="t")
    assert (first["FleetId"], first["Instances"]) == (second["FleetId"], second["Instances"])
    with pytest.raises(ClientError) as error:
        api.fleet(3, ClientToken="t")
    assert code(error) == "IdempotentParameterMismatch"
    assert len(api.fake.ledger()) == 2


def test_a_token_is_forgotten_after_a_day(api: Api, clock: VirtualClock) -> None:
    first = api.fleet(1, ClientToken="t")
    clock.advance(86_401)
    assert api.fleet(1, ClientToken="t")["FleetId"] != first["FleetId"]


def test_a_broken_connection_after_the_launch(api: Api) -> None:
    api.fake.market.faults.lost_answers = 1
    with pytest.raises(ConnectionClosedError):
        api.fleet(2, ClientToken="t")
    assert len(api.fleet(2, ClientToken="t")["Instances"][0]["InstanceIds"]) == 2
    assert len(api.fake.ledger()) == 2


def test_fleets_can_be_looked_up_and_deleted_with_their_machines(api: Api) -> None:
    tags = [{"ResourceType": "fleet", "Tags": [{"Key": "a", "Value": "b"}]}]
    fleet_id = api.fleet(2, TagSpecifications=tags)["FleetId"]
    (described,) = api.ec2.describe_fleets(FleetIds=[fleet_id])["Fleets"]
    assert (described["Type"], described["FulfilledCapacity"], described["Tags"]) == ("instant", 2.0, tags[0]["Tags"])
    assert len(api.ec2.describe_fleet_instances(FleetId=fleet_id)["ActiveInstances"]) == 2
    with pytest.raises(ClientError):
        api.ec2.delete_fleets(FleetIds=[fleet_id], TerminateInstances=False)
    api.ec2.delete_fleets(FleetIds=[fleet_id], TerminateInstances=True)
    assert api.ec2.describe_fleet_instances(FleetId=fleet_id)["ActiveInstances"] == []


# RunInstances


def test_run_instances_takes_what_there_is_between_min_and_max(api: Api) -> None:
    api.fake.market.set_capacity(pool(), 3)
    template = {"LaunchTemplateName": TEMPLATE}
    arguments = {"InstanceType": "g6.xlarge", "SubnetId": api.subnets["us-east-1a"], "LaunchTemplate": template}
    answer = api.ec2.run_instances(MinCount=2, MaxCount=5, ClientToken="r", **arguments)
    assert len(answer["Instances"]) == 3
    assert (
        api.ec2.run_instances(MinCount=2, MaxCount=5, ClientToken="r", **arguments)["ReservationId"]
        == answer["ReservationId"]
    )
    with pytest.raises(ClientError) as error:
        api.ec2.run_instances(MinCount=1, MaxCount=1, **arguments)
    assert code(error) == "InsufficientInstanceCapacity"
    market_options = {"MarketType": "spot"}
    (spot,) = api.ec2.run_instances(MinCount=1, MaxCount=1, InstanceMarketOptions=market_options, **arguments)[
        "Instances"
    ]
    assert spot["InstanceLifecycle"] == "spot"


@pytest.mark.parametrize("action", ["start_instances", "stop_instances", "reboot_instances"])
def test_what_the_market_would_not_see_is_refused(api: Api, action: str) -> None:
    with pytest.raises(ClientError) as error:
        getattr(api.ec2, action)(InstanceIds=["i-00000000000000000"])
    assert code(error) == "UnsupportedOperation"


# DescribeInstances and friends


def test_a_machine_shows_what_it_was_made_of(api: Api) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "node"}]}]
    answer = api.fleet(1, capacity_type="spot", TagSpecifications=tags, ClientToken="t")
    (instance,) = api.described()
    assert instance["InstanceId"] == answer["Instances"][0]["InstanceIds"][0]
    assert instance["LaunchTime"] == datetime.fromtimestamp(NOW_S, UTC)
    assert instance["IamInstanceProfile"]["Arn"].endswith(":instance-profile/nodes")
    assert instance["SecurityGroups"][0]["GroupId"] == api.group["GroupId"]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert (instance["ImageId"], instance["InstanceLifecycle"], instance["ClientToken"]) == (api.image, "spot", "t")
    assert instance["State"] == {"Code": 0, "Name": "pending"}
    tags_shown = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags_shown == {"Name": "node", "aws:ec2:fleet-id": answer["FleetId"]}
    (machine,) = api.fake.instances()
    assert machine.user_data == "hello"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tag:group": ["a"]}, 2),
        ({"tag:group": ["a", "b"]}, 3),
        ({"tag:group": ["?"]}, 3),
        ({"tag:group": ["[a]"]}, 0),
        ({"tag-key": ["gro*"]}, 3),
        ({"tag:none": ["*"]}, 0),
        ({"instance-state-name": ["running"]}, 0),
        ({"instance-state-name": ["pending", "running"]}, 3),
        ({"instance-lifecycle": ["spot"]}, 1),
        ({"instance-type": ["g6.*"], "availability-zone": ["us-east-1b"]}, 1),
        ({"client-token": ["a"]}, 2),
    ],
)
def test_filters(api: Api, filters: dict[str, list[str]], expected: int) -> None:
    def tags(group: str) -> list[dict[str, Any]]:
        return [{"ResourceType": "instance", "Tags": [{"Key": "group", "Value": group}]}]

    api.fleet(2, ClientToken="a", TagSpecifications=tags("a"))
    api.fleet(1, api.override(zone="us-east-1b"), capacity_type="spot", TagSpecifications=tags("b"))
    found = api.described(Filters=[{"Name": name, "Values": values} for name, values in filters.items()])
    assert len(found) == expected


def test_pages_miss_nothing_even_when_machines_vanish_between_them(api: Api, clock: VirtualClock) -> None:
    ids = [i for entry in api.fleet(20)["Instances"] for i in entry["InstanceIds"]]
    first = api.ec2.describe_instances(MaxResults=5)
    api.ec2.terminate_instances(InstanceIds=ids[:7])
    clock.advance(4000)
    seen, token = [], first["NextToken"]
    while token:
        page = api.ec2.describe_instances(MaxResults=5, NextToken=token)
        seen += [i["InstanceId"] for r in page["Reservations"] for i in r["Instances"]]
        token = page.get("NextToken")
    assert seen == ids[7:]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"MaxResults": 2}, "InvalidParameterValue"),
        ({"MaxResults": 5, "NextToken": "garbage"}, "InvalidNextToken"),
        ({"MaxResults": 5, "InstanceIds": ["i-00000000000000000"]}, "InvalidParameterCombination"),
        ({"InstanceIds": ["i-00000000000000000"]}, "InvalidInstanceID.NotFound"),
        ({"Filters": [{"Name": "colour", "Values": ["red"]}]}, "InvalidParameterValue"),
    ],
)
def test_a_question_that_is_wrong(api: Api, arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ClientError) as error:
        api.ec2.describe_instances(**arguments)
    assert code(error) == expected


def test_status_is_of_running_machines_unless_all_are_asked_for(api: Api, clock: VirtualClock) -> None:
    api.fleet(2)
    assert api.ec2.describe_instance_status()["InstanceStatuses"] == []
    assert len(api.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]) == 2
    clock.advance(10)
    statuses = api.ec2.describe_instance_status()["InstanceStatuses"]
    assert [status["InstanceStatus"]["Status"] for status in statuses] == ["ok", "ok"]


def test_ending_is_all_or_nothing_and_says_what_was_before(api: Api) -> None:
    ids = api.fleet(2)["Instances"][0]["InstanceIds"]
    with pytest.raises(ClientError) as error:
        api.ec2.terminate_instances(InstanceIds=[*ids, "i-00000000000000000"])
    assert code(error) == "InvalidInstanceID.NotFound"
    assert {machine.state for machine in api.fake.instances()} == {"pending"}
    changes = api.ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]
    assert [(c["PreviousState"]["Name"], c["CurrentState"]["Name"]) for c in changes] == [
        ("pending", "shutting-down")
    ] * 2


def test_tags_of_machines_and_of_other_things(api: Api) -> None:
    (machine,) = api.fleet(1)["Instances"][0]["InstanceIds"]
    subnet = api.subnets["us-east-1a"]
    api.ec2.create_tags(Resources=[machine, subnet], Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    api.ec2.delete_tags(Resources=[machine], Tags=[{"Key": "a"}, {"Key": "b", "Value": "other"}])
    (instance,) = api.described()
    assert {tag["Key"] for tag in instance["Tags"]} == {"b", "aws:ec2:fleet-id"}
    found = api.ec2.describe_subnets(Filters=[{"Name": "tag:a", "Values": ["1"]}])["Subnets"]
    assert [one["SubnetId"] for one in found] == [subnet]


def test_free_addresses_go_down_and_up_again(api: Api, clock: VirtualClock) -> None:
    subnet = api.subnets["us-east-1a"]

    def free() -> int:
        return int(api.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"])

    before = free()
    ids = api.fleet(4)["Instances"][0]["InstanceIds"]
    assert free() == before - 4
    api.ec2.terminate_instances(InstanceIds=ids)
    clock.advance(20)
    api.fake.step(clock.now())
    assert free() == before


# Prices, reservations, groups, limits


def test_spot_prices_now_and_back_in_time(api: Api) -> None:
    now = datetime.fromtimestamp(NOW_S, UTC)
    (row,) = api.ec2.describe_spot_price_history(
        InstanceTypes=["g6.xlarge"], AvailabilityZone="us-east-1a", ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"]
    assert float(row["SpotPrice"]) == api.fake.market.price_usd_h(pool("spot"), NOW_S)
    assert 0 <= (now - row["Timestamp"]).total_seconds() < 3600
    history = api.ec2.describe_spot_price_history(
        InstanceTypes=["g6.xlarge"],
        AvailabilityZone="us-east-1a",
        StartTime=datetime.fromtimestamp(NOW_S - 86_400, UTC),
    )["SpotPriceHistory"]
    assert len(history) == 25
    assert history[0] == row
    assert [entry["Timestamp"] for entry in history] == sorted((e["Timestamp"] for e in history), reverse=True)
    assert api.ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"] == []


def test_spot_price_pages_cover_everything_once(api: Api) -> None:
    pages = api.ec2.get_paginator("describe_spot_price_history").paginate(PaginationConfig={"PageSize": 7})
    rows = [(row["InstanceType"], row["AvailabilityZone"]) for page in pages for row in page["SpotPriceHistory"]]
    assert len(rows) == len(set(rows)) > 7
    assert {name for name, _ in rows} == set(PRICES)


def test_a_capacity_reservation_can_be_launched_into_until_it_is_full(api: Api) -> None:
    api.fake.account.reserve(HeldReservation("cr-1", "p5.48xlarge", "us-east-1a", 2))
    (reservation,) = api.ec2.describe_capacity_reservations()["CapacityReservations"]
    assert (reservation["TotalInstanceCount"], reservation["AvailableInstanceCount"]) == (2, 2)
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation["CapacityReservationId"]}}
    api.template("muster/reserved", CapacityReservationSpecification=target)
    answer = api.fleet(3, api.override("p5.48xlarge"), template="muster/reserved")
    assert len(answer["Instances"][0]["InstanceIds"]) == 2
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["ReservationCapacityExceeded"]
    assert {one["CapacityReservationId"] for one in api.described()} == {reservation["CapacityReservationId"]}
    assert api.ec2.describe_capacity_reservations()["CapacityReservations"][0]["AvailableInstanceCount"] == 0


def test_placement_groups(api: Api, clock: VirtualClock) -> None:
    api.ec2.create_placement_group(GroupName="pg", Strategy="cluster")
    with pytest.raises(ClientError) as error:
        api.ec2.create_placement_group(GroupName="pg", Strategy="cluster")
    assert code(error) == "InvalidPlacementGroup.Duplicate"
    api.template("muster/pg", Placement={"GroupName": "pg"})
    ids = api.fleet(1, template="muster/pg")["Instances"][0]["InstanceIds"]
    assert api.described()[0]["Placement"]["GroupName"] == "pg"
    with pytest.raises(ClientError) as error:
        api.ec2.delete_placement_group(GroupName="pg")
    assert code(error) == "InvalidPlacementGroup.InUse"
    api.ec2.terminate_instances(InstanceIds=ids)
    api.ec2.delete_placement_group(GroupName="pg")
    with pytest.raises(ClientError) as error:
        api.ec2.describe_placement_groups(GroupNames=["pg"])
    assert code(error) == "InvalidPlacementGroup.Unknown"


def test_request_limits_are_those_of_ec2(clock: VirtualClock) -> None:
    market = RegionMarket.from_catalog(small_catalog(), buckets=EC2_BUCKETS)
    with FakeAws(market, clock, region=REGION) as fake:
        api = Api(fake)
        for _ in range(49):
            api.fleet(1)
        with pytest.raises(ClientError) as error:
            api.fleet(1)
        assert code(error) == "RequestLimitExceeded"
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        clock.advance(1)
        for _ in range(5):
            api.fleet(1)
        with pytest.raises(ClientError):
            api.fleet(1)


# The queue, several accounts, real time


def test_messages_are_eventbridge_events(api: Api) -> None:
    sqs = aws_client("sqs", api.fake)
    (machine,) = api.fleet(1, capacity_type="spot")["Instances"][0]["InstanceIds"]
    api.fake.interrupt(machine)
    (message,) = sqs.receive_message(QueueUrl=api.fake.queue_url, MaxNumberOfMessages=10)["Messages"]
    body = json.loads(message["Body"])
    assert (body["version"], body["source"], body["region"]) == ("0", "aws.ec2", REGION)
    assert body["detail-type"] == "EC2 Spot Instance Interruption Warning"
    assert body["detail"] == {"instance-id": machine, "instance-action": "terminate"}
    assert body["time"] == datetime.fromtimestamp(NOW_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_two_fakes_know_nothing_of_each_other(clock: VirtualClock, market: RegionMarket) -> None:
    with FakeAws(market, clock) as one, FakeAws(market, clock) as other:
        first, second = Api(one), Api(other)
        first.fleet(2)
        assert second.described() == []
        assert not set(first.subnets.values()) & set(second.subnets.values())
        assert one.account.account_id != other.account.account_id
        assert aws_client("sts", one).get_caller_identity()["Account"] == one.account.account_id


def test_a_stopped_fake_hangs_up(market: RegionMarket, clock: VirtualClock) -> None:
    fake = FakeAws(market, clock).start()
    ec2 = aws_client("ec2", fake)
    ec2.describe_subnets()
    fake.stop()
    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        ec2.describe_subnets()


def test_in_real_time_machines_start_and_end_by_themselves() -> None:
    clock = SystemClock()
    timings = MachineTimings(pending_s=0.05, stopping_s=0.05)
    with FakeAws(RegionMarket(PRICES), clock, timings=timings) as fake:
        sqs = aws_client("sqs", fake)
        (machine,) = Api(fake).fleet(1, capacity_type="spot")["Instances"][0]["InstanceIds"]
        fake.interrupt(machine, notice_s=0.2)
        details: list[str] = []
        while "terminated" not in details:
            answer = sqs.receive_message(QueueUrl=fake.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=10)
            assert answer.get("Messages"), "nothing happened in ten seconds"
            bodies = [json.loads(message["Body"])["detail"] for message in answer["Messages"]]
            details += [body.get("state", body.get("instance-action")) for body in bodies]
        assert details == ["terminate", "shutting-down", "terminated"]


def test_a_pool_that_shrinks_takes_its_newest_spot_machines_back(api: Api) -> None:
    ids = api.fleet(4, capacity_type="spot")["Instances"][0]["InstanceIds"]
    api.fake.market.set_capacity(pool("spot"), 1)
    assert api.fake.account.reclaim(pool("spot")) == ids[1:]
    assert api.fake.account.reclaim(pool("spot")) == []


def test_spot_machines_are_interrupted_at_the_rate_of_the_market(clock: VirtualClock) -> None:
    market = RegionMarket(PRICES, spot=SpotProcess(interruptions_per_h=1.0))
    with FakeAws(market, clock) as fake:
        Api(fake).fleet(200, capacity_type="spot")
        clock.advance(3600)
        fake.step(clock.now())
        warned = sum(entry.reason == "Server.SpotInstanceTermination" for entry in fake.ledger())
    assert 60 < warned < 180


def test_vcpus_are_known_for_every_type() -> None:
    known = vcpus()
    assert (known["p5.48xlarge"], known["g6.xlarge"], known["m5.large"]) == (192, 4, 2)
    assert len(known) > 1000


def test_a_shortage_in_one_zone_is_not_one_in_another(api: Api) -> None:
    api.fake.market.set_shortage(PoolFilter(zone="us-east-1a"))
    assert launched(api.fleet(2, api.override(), api.override(zone="us-east-1b"))) == {("g6.xlarge", "us-east-1b"): 2}


@pytest.mark.parametrize(("strategy", "codes"), [("cluster", ["InvalidParameterCombination"]), ("spread", [])])
def test_a_cluster_group_is_of_one_zone(api: Api, strategy: str, codes: list[str]) -> None:
    api.ec2.create_placement_group(GroupName="pg", Strategy=strategy)
    api.template("muster/pg", Placement={"GroupName": "pg"})
    assert api.fleet(1, api.override(zone="us-east-1a"), template="muster/pg")["Instances"]
    answer = api.fleet(1, api.override(zone="us-east-1b"), template="muster/pg")
    assert [error["ErrorCode"] for error in answer.get("Errors", ())] == codes
