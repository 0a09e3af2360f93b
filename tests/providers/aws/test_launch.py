import base64
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from botocore.stub import ANY

from fleet.snapshot import CapacityPool, LaunchError, Reach
from model import labels
from providers.aws import fleet_request
from providers.aws.fleet_request import FleetPlan, client_token, failure_of, fleet_arguments, outcome
from providers.aws.launch_template import LaunchTemplates, TemplateParams, template_data, template_name
from providers.aws.retry import Caller
from tests.providers.aws.conftest import CLUSTER, IMAGE

FLEET = dict.fromkeys(
    ("Type", "ClientToken", "LaunchTemplateConfigs", "TargetCapacitySpecification", "TagSpecifications"), ANY
)
SPOT = {**FLEET, "SpotOptions": ANY}


def bought(*ids):
    return {"FleetId": "fleet-1", "Instances": [{"InstanceIds": [each]} for each in ids]}


def refused(code, message="told so"):
    return {"FleetId": "fleet-1", "Errors": [{"ErrorCode": code, "ErrorMessage": message}]}


def test_one_request_of_the_right_shape(request_for):
    request = request_for(count=4)
    plan = FleetPlan(request, "muster/abc", "subnet-1")
    tags = [
        {"Key": "muster.dev/cluster", "Value": CLUSTER},
        {"Key": "muster.dev/launch-token", "Value": "token-1"},
        {"Key": "muster.dev/node-pool", "Value": "gpu"},
    ]
    assert fleet_arguments(plan) == {
        "Type": "instant",
        "ClientToken": "token-1",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "muster/abc", "Version": "$Default"},
                "Overrides": [{"InstanceType": "g6.xlarge", "SubnetId": "subnet-1", "AvailabilityZone": "us-east-1a"}],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 4, "DefaultTargetCapacityType": "spot"},
        "SpotOptions": {
            "SingleInstanceType": True,
            "SingleAvailabilityZone": True,
            "MinTargetCapacity": 4,
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance", "volume")],
    }
    on_demand = request_for(count=4, pool=CapacityPool("on-demand", "g6.xlarge", "us-east-1a"))
    options = fleet_arguments(FleetPlan(on_demand, "muster/abc", "subnet-1"))
    assert "SpotOptions" not in options
    assert options["OnDemandOptions"] == {
        "SingleInstanceType": True,
        "SingleAvailabilityZone": True,
        "MinTargetCapacity": 4,
        "AllocationStrategy": "lowest-price",
    }


def test_tokens_fit_and_attempts_differ():
    assert client_token("abc") == "abc"
    assert len(client_token("x" * 65)) == 64
    assert client_token("abc", 2) != client_token("abc", 3) != client_token("abc")
    assert client_token("abc", 2) == client_token("abc", 2)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("InsufficientInstanceCapacity", LaunchError.SHORTAGE),
        ("UnfulfillableCapacity", LaunchError.SHORTAGE),
        ("InsufficientFreeAddressesInSubnet", LaunchError.SHORTAGE),
        ("ReservationCapacityExceeded", LaunchError.SHORTAGE),
        ("SpotMaxPriceTooLow", LaunchError.SHORTAGE),
        ("InsufficientSomethingNew", LaunchError.SHORTAGE),
        ("MaxSpotInstanceCountExceeded", LaunchError.QUOTA),
        ("VcpuLimitExceeded", LaunchError.QUOTA),
        ("MaxFleetCountExceeded", LaunchError.QUOTA),
        ("SomethingNewLimitExceeded", LaunchError.QUOTA),
        ("Unsupported", LaunchError.MISCONFIGURED),
        ("InvalidAMIID.NotFound", LaunchError.MISCONFIGURED),
        ("UnauthorizedOperation", LaunchError.MISCONFIGURED),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", LaunchError.MISCONFIGURED),
        ("InvalidParameterValue", LaunchError.MISCONFIGURED),
        ("", LaunchError.MISCONFIGURED),
        ("RequestLimitExceeded", LaunchError.THROTTLED),
        ("InternalError", LaunchError.UNKNOWN),
        ("IdempotentParameterMismatch", LaunchError.UNKNOWN),
    ],
)
def test_what_a_code_means(code, error):
    failure = failure_of(code, "why")
    assert (failure.error, failure.code, failure.message) == (error, code, "why")


def test_instances_are_read_before_errors_and_none_is_lost(request_for):
    answer = {
        "Instances": [{"InstanceIds": ["i-2", "i-1"]}, {"InstanceIds": ["i-3"]}, {}, {"InstanceIds": ["i-1"]}],
        "Errors": [
            {"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": "b"},
            {"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": "b"},
        ],
    }
    got = outcome(request_for(count=5), answer)
    assert got.instances == ("i-1", "i-2", "i-3")
    assert [failure.error for failure in got.failures] == [LaunchError.SHORTAGE]


def test_a_shortfall_without_a_reason_gets_one(request_for):
    got = outcome(request_for(count=3), bought("i-1"))
    assert [(failure.error, failure.code) for failure in got.failures] == [(LaunchError.SHORTAGE, "Shortfall")]
    assert outcome(request_for(count=1), {"Instances": None, "Errors": None}).failures


def test_more_than_asked_is_kept(request_for):
    assert outcome(request_for(count=1), bought("i-1", "i-2")).instances == ("i-1", "i-2")


def test_launch_resolves_and_buys(stubbed, request_for):
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    got = stubbed.cloud.launch(request_for())
    assert (got.instances, got.failures) == (("i-1", "i-2"), ())
    stubbed.ec2.assert_no_pending_responses()


def capture(stubbed):
    """What is sent to `CreateFleet`, in order."""
    sent = []
    stubbed.clients.ec2.meta.events.register(
        "provide-client-params.ec2.CreateFleet", lambda params, **_: sent.append(params)
    )
    return sent


def test_the_emptiest_subnet_of_the_zone_is_used_and_launches_on_the_way_count(stubbed, request_for):
    sent = capture(stubbed)
    stubbed.resolve()
    for token in ("t-1", "t-2", "t-3"):
        stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2", "i-3"), SPOT)
        stubbed.cloud.launch(request_for(count=3, token=token))
    subnets = [each["LaunchTemplateConfigs"][0]["Overrides"][0]["SubnetId"] for each in sent]
    assert subnets == ["subnet-a2", "subnet-a1", "subnet-a2"]


def test_a_full_subnet_gives_way_to_another_of_its_zone(stubbed, request_for):
    sent = capture(stubbed)
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", refused("InsufficientFreeAddressesInSubnet"), SPOT)
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for(token="t-1")).instances == ("i-1", "i-2")
    subnets = [each["LaunchTemplateConfigs"][0]["Overrides"][0]["SubnetId"] for each in sent]
    assert subnets == ["subnet-a2", "subnet-a1"]
    assert len({each["ClientToken"] for each in sent}) == 2


@pytest.mark.parametrize("count", [11, 2])
def test_where_no_subnet_of_the_zone_has_room_it_is_short(stubbed, request_for, count):
    """The other one has ten addresses left, which is known to be too few, or turns out to be."""
    sent = capture(stubbed)
    stubbed.resolve()
    for _ in range(1 if count > 10 else 2):
        stubbed.ec2.add_response("create_fleet", refused("InsufficientFreeAddressesInSubnet"), SPOT)
    [failure] = stubbed.cloud.launch(request_for(token="t-1", count=count)).failures
    assert (failure.error, failure.reach) == (LaunchError.SHORTAGE, Reach.SUBNET)
    assert len(sent) == (1 if count > 10 else 2)


def test_a_token_is_asked_again_with_the_very_same_parameters(stubbed, request_for, clock):
    sent = capture(stubbed)
    stubbed.resolve()
    stubbed.ec2.add_client_error("create_fleet", "InternalError", http_status_code=500)
    first = stubbed.cloud.launch(request_for())
    assert [failure.error for failure in first.failures] == [LaunchError.UNKNOWN]
    clock.advance(3600.0)  # subnets would be read again and look otherwise
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for()).instances == ("i-1", "i-2")
    assert sent[0] == sent[1]


@pytest.mark.parametrize("error", [ReadTimeoutError(endpoint_url="x"), ConnectTimeoutError(endpoint_url="x")])
def test_a_lost_answer_is_unknown_and_not_asked_again_here(stubbed, request_for, error):
    stubbed.resolve()
    calls = []

    def lose(**_):
        calls.append(1)
        raise error

    stubbed.clients.ec2.meta.events.register_first("provide-client-params.ec2.CreateFleet", lose)
    got = stubbed.cloud.launch(request_for())
    assert (got.instances, [failure.error for failure in got.failures]) == ((), [LaunchError.UNKNOWN])
    assert len(calls) == 1


def test_throttling_is_waited_out_and_then_told(stubbed, request_for):
    stubbed.resolve()
    for _ in range(3):
        stubbed.ec2.add_client_error("create_fleet", "RequestLimitExceeded", http_status_code=503)
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for()).instances == ("i-1", "i-2")
    assert stubbed.pauses
    for _ in range(4):
        stubbed.ec2.add_client_error("create_fleet", "RequestLimitExceeded", http_status_code=503)
    got = stubbed.cloud.launch(request_for())
    assert [failure.error for failure in got.failures] == [LaunchError.THROTTLED]


GONE = "InvalidLaunchTemplateName.NotFoundException"


def test_a_vanished_template_is_made_again_and_an_unspent_token_used_again(stubbed, request_for):
    sent = capture(stubbed)
    stubbed.resolve()
    stubbed.ec2.add_client_error("create_fleet", GONE)
    stubbed.template()
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for()).instances == ("i-1", "i-2")
    assert [each["ClientToken"] for each in sent] == ["token-1", "token-1"]


def test_a_spent_token_is_followed_by_the_next_attempt_and_that_is_remembered(stubbed, request_for):
    sent = capture(stubbed)
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", refused(GONE), SPOT)
    stubbed.template()
    stubbed.ec2.add_client_error("create_fleet", "InternalError", http_status_code=500)
    assert stubbed.cloud.launch(request_for()).failures[0].error is LaunchError.UNKNOWN
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for()).instances == ("i-1", "i-2")
    second = client_token("token-1", 2)
    assert [each["ClientToken"] for each in sent] == ["token-1", second, second]


def test_a_fleet_that_was_throttled_inside_is_not_asked_for_with_its_token_again(stubbed, request_for):
    sent = capture(stubbed)
    stubbed.resolve()
    for _ in range(2):
        stubbed.ec2.add_response("create_fleet", refused("RequestLimitExceeded"), SPOT)
    got = stubbed.cloud.launch(request_for())
    assert [failure.error for failure in got.failures] == [LaunchError.THROTTLED]
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for()).instances == ("i-1", "i-2")
    assert [each["ClientToken"] for each in sent] == [client_token("token-1", attempt) for attempt in (1, 2, 3)]


def test_a_template_that_stays_away_is_a_failure(stubbed, request_for):
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", refused(GONE), SPOT)
    stubbed.template()
    stubbed.ec2.add_response("create_fleet", refused(GONE), SPOT)
    got = stubbed.cloud.launch(request_for())
    assert [(failure.error, failure.code) for failure in got.failures] == [(LaunchError.MISCONFIGURED, GONE)]


def test_a_template_that_exists_already_is_the_one(stubbed, request_for):
    stubbed.resolve(template=False)
    stubbed.ec2.add_client_error("create_launch_template", "InvalidLaunchTemplateName.AlreadyExistsException")
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request_for()).instances == ("i-1", "i-2")


def test_a_replaced_image_is_looked_up_again(stubbed, request_for):
    parameter = "/aws/service/eks/image"
    request = request_for(template={"amis": [{"ssmParameter": parameter}]})
    stubbed.ssm.add_response("get_parameter", {"Parameter": {"Value": "ami-1"}}, {"Name": parameter})
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", refused("InvalidAMIID.NotFound"), SPOT)
    stubbed.ssm.add_response("get_parameter", {"Parameter": {"Value": "ami-2"}}, {"Name": parameter})
    stubbed.template()
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    assert stubbed.cloud.launch(request).instances == ("i-1", "i-2")


def instance(instance_id, state="running"):
    return {
        "InstanceId": instance_id,
        "InstanceType": "g6.xlarge",
        "State": {"Name": state},
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "InstanceLifecycle": "spot",
    }


@pytest.mark.parametrize(
    ("found", "error"),
    [(("i-1", "i-2"), []), (("i-1",), [LaunchError.UNKNOWN]), ((), [LaunchError.UNKNOWN])],
)
def test_a_token_of_an_earlier_process_leads_to_what_it_bought(stubbed, request_for, found, error):
    stubbed.resolve()
    stubbed.ec2.add_client_error("create_fleet", "IdempotentParameterMismatch")
    stubbed.ec2.add_response(
        "describe_instances",
        {"Reservations": [{"Instances": [*map(instance, found), instance("i-0", "terminated")]}]},
        {
            "Filters": [
                {"Name": "tag:muster.dev/cluster", "Values": [CLUSTER]},
                {"Name": "tag:muster.dev/launch-token", "Values": ["token-1"]},
            ],
            "MaxResults": 1000,
        },
    )
    got = stubbed.cloud.launch(request_for())
    assert (got.instances, [failure.error for failure in got.failures]) == (found, error)


def test_no_subnet_in_the_zone(stubbed, request_for):
    stubbed.resolve()
    got = stubbed.cloud.launch(request_for(pool=CapacityPool("spot", "g6.xlarge", "us-east-1f")))
    assert got.failures[0].error is LaunchError.MISCONFIGURED
    assert "no subnet in us-east-1f" in got.failures[0].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": CapacityPool("reserved", "p5.48xlarge", "us-east-1a")}, "none is named"),
        ({"template": {"userData": "#" * 20_000}}, "EC2 accepts 16384"),
        ({"labels": {"a b": "c"}}, "is not a label"),
    ],
)
def test_requests_that_can_never_work_cost_no_call(stubbed, request_for, changes, message):
    got = stubbed.cloud.launch(request_for(**changes))
    assert (got.instances, [failure.error for failure in got.failures]) == ((), [LaunchError.MISCONFIGURED])
    assert message in got.failures[0].message


def test_no_credentials_is_for_an_operator(stubbed, request_for):
    stubbed.ec2.add_client_error("describe_subnets", "UnauthorizedOperation", http_status_code=403)
    got = stubbed.cloud.launch(request_for())
    assert [(f.error, f.code) for f in got.failures] == [(LaunchError.MISCONFIGURED, "UnauthorizedOperation")]


PARAMS = TemplateParams(IMAGE, ("sg-1", "sg-2"), "hello", instance_profile="nodes")


def test_what_a_machine_is_born_with():
    data = template_data(PARAMS)
    assert base64.b64decode(data.pop("UserData")) == b"hello"
    assert data == {
        "ImageId": IMAGE,
        "IamInstanceProfile": {"Name": "nodes"},
        "SecurityGroupIds": ["sg-1", "sg-2"],
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "HttpProtocolIpv6": "disabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"VolumeSize": 20, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True},
            }
        ],
    }


@pytest.mark.parametrize(
    ("count", "card", "cards", "kinds"),
    [
        (1, 0, [0], ["efa"]),
        (4, 0, [0, 1, 2, 3], ["efa", "efa-only", "efa-only", "efa-only"]),
        (2, 1, [0, 1, 2], ["interface", "efa-only", "efa-only"]),
    ],
)
def test_efa_on_every_card(count, card, cards, kinds):
    data = template_data(
        TemplateParams(IMAGE, ("sg-1",), "", placement_group="group", efa_interfaces=count, efa_card=card)
    )
    interfaces = data["NetworkInterfaces"]
    assert [each["NetworkCardIndex"] for each in interfaces] == cards
    assert [each["InterfaceType"] for each in interfaces] == kinds
    assert [each["DeviceIndex"] for each in interfaces] == [0] + [1] * (len(cards) - 1)
    assert "SecurityGroupIds" not in data
    assert data["Placement"] == {"GroupName": "group"}


def test_names_follow_content_and_cluster():
    data = template_data(PARAMS)
    name = template_name("a", data)
    assert name.startswith("muster/")
    assert name == template_name("a", dict(reversed(data.items())))
    assert name != template_name("b", data)
    assert name != template_name("a", {**data, "ImageId": "ami-2"})


def test_b300_boots_from_a_card_without_efa(stubbed, request_for):
    templates = []
    stubbed.clients.ec2.meta.events.register(
        "provide-client-params.ec2.CreateLaunchTemplate", lambda params, **_: templates.append(params)
    )
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    pool = CapacityPool("spot", "p6-b300.48xlarge", "us-east-1a")
    stubbed.cloud.launch(request_for(pool=pool, fabric_interfaces=16))
    interfaces = templates[0]["LaunchTemplateData"]["NetworkInterfaces"]
    assert [each["NetworkCardIndex"] for each in interfaces] == list(range(17))
    assert interfaces[0]["InterfaceType"] == "interface"


def test_idle_templates_are_swept_and_used_ones_kept(stubbed, request_for, clock):
    sent = capture(stubbed)
    stubbed.resolve()
    stubbed.ec2.add_response("create_fleet", bought("i-1", "i-2"), SPOT)
    stubbed.cloud.launch(request_for())
    name = sent[0]["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["LaunchTemplateName"]
    listing = {"LaunchTemplates": [{"LaunchTemplateName": each} for each in (name, "muster/old", "theirs")]}
    ask = {"Filters": [{"Name": f"tag:{labels.CLUSTER}", "Values": [CLUSTER]}], "MaxResults": 200}
    templates = LaunchTemplates(Caller(clock, sleep=clock.advance), stubbed.clients.ec2, CLUSTER, clock)
    params = TemplateParams(IMAGE, ("sg-1",), "x")
    stubbed.template()
    templates.ensure(params)
    stubbed.ec2.add_response("describe_launch_templates", listing, ask)
    templates.sweep()  # names of an earlier process count as used when first seen
    clock.advance(3000.0)
    templates.ensure(params)
    clock.advance(1000.0)
    stubbed.ec2.add_response("describe_launch_templates", listing, ask)
    for old in sorted((name, "muster/old")):
        stubbed.ec2.add_response("delete_launch_template", {}, {"LaunchTemplateName": old})
    templates.sweep()
    stubbed.ec2.assert_no_pending_responses()


def test_a_template_that_cannot_be_deleted_is_left_for_the_next_time(stubbed, clock):
    templates = LaunchTemplates(Caller(clock, sleep=clock.advance), stubbed.clients.ec2, CLUSTER, clock)
    ask = {"Filters": ANY, "MaxResults": 200}
    for errors in ((), ("UnauthorizedOperation",), ("InvalidLaunchTemplateName.NotFoundException",), ()):
        names = ["muster/old"] if errors or not clock.now() > 1_800_010_000 else []
        listing = {"LaunchTemplates": [{"LaunchTemplateName": name} for name in names]}
        stubbed.ec2.add_response("describe_launch_templates", listing, ask)
        for code in errors:
            stubbed.ec2.add_client_error("delete_launch_template", code)
        templates.sweep()
        clock.advance(4000.0)
    stubbed.ec2.assert_no_pending_responses()


def test_machines_are_counted_once_a_launch_was_refused_for_the_rate(stubbed, request_for, clock):
    """EC2 documents no limit for the machines of fleets: until it shows one, thousands come at once."""
    stubbed.resolve()
    for first in (0, 1000):
        ids = (f"i-{first + number:04}" for number in range(1000))
        stubbed.ec2.add_response("create_fleet", bought(*ids), SPOT)
        assert len(stubbed.cloud.launch(request_for(count=1000, token=f"t-{first}")).instances) == 1000
    for _ in range(4):
        stubbed.ec2.add_client_error("create_fleet", "RequestLimitExceeded", http_status_code=503)
    assert stubbed.cloud.launch(request_for(count=500, token="t-2")).failures[0].error is LaunchError.THROTTLED
    waits = stubbed.cloud.launch(request_for(count=500, token="t-2"))  # nothing is asked: it would have to wait
    assert [failure.error for failure in waits.failures] == [LaunchError.THROTTLED]
    clock.advance(250.0)
    stubbed.ec2.add_response("create_fleet", bought(*(f"i-{number:04}" for number in range(500))), SPOT)
    assert len(stubbed.cloud.launch(request_for(count=500, token="t-2")).instances) == 500


def test_every_code_of_the_table_is_judged():
    assert set(fleet_request._ERRORS.values()) == set(LaunchError)
