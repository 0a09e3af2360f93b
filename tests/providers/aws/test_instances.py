from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import LaunchRequest
from fleet.snapshot.machines import CapacityPool
from providers.aws.fleet_request import outcome
from providers.aws.identity import managed_by, provider_id
from providers.ports import CloudDenied, CloudRejected

ALL = {"Filters": [{"Name": "tag:muster.dev/cluster", "Values": ["default"]}], "MaxResults": 1000}
ASKING = {"Filters": [{"Name": "tag:muster.dev/adopt", "Values": ["default/*"]}], "MaxResults": 1000}


def lists(stubbed, *pages, asking=()):
    """Answers of one listing: the machines of the cluster in pages, then those that ask for adoption."""
    for number, page in enumerate(pages):
        here, more = {"NextToken": str(number)} if number else {}, {"NextToken": str(number + 1)}
        answer = {"Reservations": page, **(more if number + 1 < len(pages) else {})}
        stubbed.ec2.add_response("describe_instances", answer, {**ALL, **here})
    stubbed.ec2.add_response("describe_instances", {"Reservations": [{"Instances": list(asking)}]}, ASKING)


def entry(instance_id, **changes):
    return {
        "InstanceId": instance_id,
        "InstanceType": "g6.xlarge",
        "State": {"Name": "running"},
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "Tags": [{"Key": "a", "Value": "b"}],
        "PrivateDnsName": "ip-10-0-0-1.ec2.internal",
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "capacity_type"),
    [
        ({}, "on-demand"),
        ({"InstanceLifecycle": "spot"}, "spot"),
        ({"InstanceLifecycle": "capacity-block"}, "reserved"),
        ({"CapacityReservationId": "cr-1"}, "reserved"),
    ],
)
def test_capacity_types(stubbed, changes, capacity_type):
    lists(stubbed, [{"Instances": [entry("i-1", **changes)]}])
    (found,) = stubbed.cloud.instances()
    assert found.capacity_type == capacity_type
    assert (found.zone, found.launched_at_s, dict(found.tags)) == ("us-east-1a", 1767225600.0, {"a": "b"})
    assert found.private_dns == "ip-10-0-0-1.ec2.internal"


@pytest.mark.parametrize(
    ("state", "reason", "ended_s"),
    [
        ("terminated", "User initiated (2026-01-01 00:10:00 GMT)", 1767226200.0),
        ("shutting-down", "Server.SpotInstanceTermination (2026-01-01 00:10:00 UTC)", 1767226200.0),
        ("terminated", "Server.SpotInstanceTermination", 0.0),
        ("terminated", "", 0.0),
        ("running", "User initiated (2026-01-01 00:10:00 GMT)", 0.0),
    ],
)
def test_when_a_machine_ended(stubbed, state, reason, ended_s):
    lists(stubbed, [{"Instances": [entry("i-1", State={"Name": state}, StateTransitionReason=reason)]}])
    (found,) = stubbed.cloud.instances()
    assert found.ended_at_s == ended_s


def test_pages_are_joined_sorted_and_a_machine_listed_twice_is_one(stubbed):
    first = [{"Instances": [entry("i-3"), entry("i-1")]}]
    second = [{"Instances": [entry("i-1", State={"Name": "shutting-down"})]}, {"Instances": [entry("i-2")]}]
    lists(stubbed, first, second)
    found = stubbed.cloud.instances()
    assert [each.id for each in found] == ["i-1", "i-2", "i-3"]
    assert found[0].state == "shutting-down"


def test_a_terminated_machine_has_hardly_anything_left(stubbed):
    bare = {key: entry("i-1")[key] for key in ("InstanceId", "InstanceType", "LaunchTime")}
    lists(stubbed, [{"Instances": [{**bare, "State": {"Name": "terminated"}}]}])
    (found,) = stubbed.cloud.instances()
    assert found.gone
    assert (found.zone, found.tags, found.private_dns) == ("", {}, "")


def test_machines_that_ask_for_adoption_are_listed_once_with_the_others(stubbed):
    tagged = [{"Key": "muster.dev/adopt", "Value": "default/h100"}]
    placed = {"Placement": {"AvailabilityZone": "us-east-1a", "GroupName": "rack"}}
    asking = [entry("i-2", Tags=tagged, **placed), entry("i-1", State={"Name": "stopping"})]
    lists(stubbed, [{"Instances": [entry("i-3"), entry("i-1")]}], asking=asking)
    found = stubbed.cloud.instances()
    assert [(each.id, each.state, each.placement_group) for each in found] == [
        ("i-1", "stopping", ""),  # what was read last counts
        ("i-2", "running", "rack"),
        ("i-3", "running", ""),
    ]
    assert found[1].tags == {"muster.dev/adopt": "default/h100"}
    stubbed.ec2.assert_no_pending_responses()


def test_half_a_listing_is_none(stubbed):
    stubbed.ec2.add_response("describe_instances", {"Reservations": [{"Instances": [entry("i-1")]}]}, ALL)
    stubbed.ec2.add_client_error("describe_instances", "UnauthorizedOperation", expected_params=ASKING)
    with pytest.raises(CloudDenied):
        stubbed.cloud.instances()


class TerminatingAccount:
    """`TerminateInstances` as EC2 does it: one bad id, and nothing of the call happens."""

    def __init__(self, stubbed, unknown=(), protected=()):
        self.calls, self.gone = 0, set()
        self._unknown, self._protected = set(unknown), set(protected)
        stubbed.ec2.deactivate()
        stubbed.clients.ec2.meta.events.register("before-call.ec2.TerminateInstances", self)

    def __call__(self, params, **_):
        self.calls += 1
        ids = {value for key, value in params["body"].items() if key.startswith("InstanceId")}
        code = ""
        if ids & self._unknown:
            code = "InvalidInstanceID.NotFound"
        elif ids & self._protected:
            code = "OperationNotPermitted"
        else:
            self.gone |= ids
        http = type("Answer", (), {"status_code": 400 if code else 200, "headers": {}})()
        return http, ({"Error": {"Code": code, "Message": ""}} if code else {"TerminatingInstances": []})


def ids(count):
    return [f"i-{number:05}" for number in range(count)]


def test_a_thousand_machines_go_in_chunks(stubbed):
    account = TerminatingAccount(stubbed)
    stubbed.cloud.terminate(ids(800) + ids(800))
    assert (account.calls, account.gone) == (2, set(ids(800)))


@pytest.mark.parametrize("unknown", [[0], [7], [0, 63], list(range(0, 64, 9)), list(range(64))])
def test_unknown_ids_cost_nobody_else(stubbed, unknown):
    every = ids(64)
    bad = {every[index] for index in unknown}
    account = TerminatingAccount(stubbed, unknown=bad)
    stubbed.cloud.terminate(every)
    assert account.gone == set(every) - bad


def test_a_protected_machine_is_told_after_the_others_have_gone(stubbed):
    every = ids(20)
    account = TerminatingAccount(stubbed, unknown=[every[3]], protected=[every[11]])
    with pytest.raises(CloudRejected, match="OperationNotPermitted"):
        stubbed.cloud.terminate(every)
    assert account.gone == set(every) - {every[3], every[11]}


def test_forbidden_is_not_tried_id_by_id(stubbed):
    stubbed.ec2.add_client_error("terminate_instances", "UnauthorizedOperation")
    with pytest.raises(CloudDenied):
        stubbed.cloud.terminate(ids(64))


def test_tags_are_sent_sorted(stubbed):
    stubbed.ec2.add_response(
        "create_tags",
        {},
        {"Resources": ["i-1"], "Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]},
    )
    stubbed.cloud.tag("i-1", {"b": "2", "a": "1"})
    stubbed.cloud.tag("i-1", {})
    stubbed.ec2.assert_no_pending_responses()


def test_only_what_is_read_is_parsed(stubbed):
    shape = stubbed.clients.ec2.meta.service_model.operation_model("DescribeInstances").output_shape
    members = shape.members["Reservations"].member.members["Instances"].member.members
    assert "NetworkInterfaces" not in members
    assert {"InstanceId", "Tags", "State"} <= set(members)


answers = st.fixed_dictionaries(
    {},
    optional={
        "Instances": st.none()
        | st.lists(
            st.fixed_dictionaries({}, optional={"InstanceIds": st.lists(st.text("abc", min_size=1), max_size=4)})
        ),
        "Errors": st.none()
        | st.lists(
            st.fixed_dictionaries({}, optional={"ErrorCode": st.text(max_size=5), "ErrorMessage": st.text(max_size=5)})
        ),
    },
)


@given(answers, st.integers(1, 9))
def test_no_answer_loses_a_machine_or_leaves_a_shortfall_unexplained(answer, count):
    request = LaunchRequest("t", count, CapacityPool("spot", "g6.xlarge", "us-east-1a"), "gpu", {}, (), {})
    got = outcome(request, answer)
    bought = {each for group in answer.get("Instances") or () for each in group.get("InstanceIds") or ()}
    assert set(got.instances) == bought
    assert len(got.instances) == len(bought)
    assert got.failures or len(bought) >= count


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({}, ""),
        ({"karpenter.sh/nodeclaim": "x"}, ""),
        (
            {"aws:autoscaling:groupName": "asg"},
            "its tag aws:autoscaling:groupName says that it belongs to an Auto Scaling group (detach it)",
        ),
    ],
)
def test_who_else_answers_for_a_machine(tags, words):
    assert managed_by(tags) == words


def test_the_node_of_a_machine():
    assert provider_id("us-east-1a", "i-1") == "aws:///us-east-1a/i-1"
