"""The IAM policy allows the calls the adapter makes, on the cluster's own things; the queue gets what it can read."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.nodeclaims.launch import own_tags
from fleet.snapshot import CapacityPool, Claim, Launch
from model import labels
from providers.aws import interruption
from providers.aws.profiles import profile_name

ROOT = Path(__file__).resolve().parents[2]
AWS = ROOT / "deploy" / "aws"

# boto3 method -> actions it needs (Service Authorization Reference).
ACTIONS: dict[str, set[str]] = {
    "add_role_to_instance_profile": {"iam:AddRoleToInstanceProfile", "iam:PassRole"},
    "create_fleet": {"ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"},
    "create_instance_profile": {"iam:CreateInstanceProfile", "iam:TagInstanceProfile"},
    "create_launch_template": {"ec2:CreateLaunchTemplate", "ec2:CreateTags"},
    "create_tags": {"ec2:CreateTags"},
    "delete_launch_template": {"ec2:DeleteLaunchTemplate"},
    "delete_message_batch": {"sqs:DeleteMessage"},
    "describe_capacity_reservations": {"ec2:DescribeCapacityReservations"},
    "describe_images": {"ec2:DescribeImages"},
    "describe_instance_status": {"ec2:DescribeInstanceStatus"},
    "describe_instance_type_offerings": {"ec2:DescribeInstanceTypeOfferings"},
    "describe_instance_types": {"ec2:DescribeInstanceTypes"},
    "describe_instances": {"ec2:DescribeInstances"},
    "describe_launch_templates": {"ec2:DescribeLaunchTemplates"},
    "describe_security_groups": {"ec2:DescribeSecurityGroups"},
    "describe_spot_price_history": {"ec2:DescribeSpotPriceHistory"},
    "describe_subnets": {"ec2:DescribeSubnets"},
    "get_instance_profile": {"iam:GetInstanceProfile"},
    "get_parameter": {"ssm:GetParameter"},
    "get_products": {"pricing:GetProducts"},
    "receive_message": {"sqs:ReceiveMessage"},
    "terminate_instances": {"ec2:TerminateInstances"},
}
_CALL = re.compile(
    r"(add|create|describe|terminate|delete|get|receive|send|run|modify|attach|change|list|put)_"
    r"(fleet|instance|launch_template|tag|message|product|parameter|queue|subnet|security|spot|placement|capacity|image|volume|role)\w*"
)


def claim_named(name: str) -> Claim:
    pool = CapacityPool("on-demand", "p5.48xlarge", "us-east-1a")
    return Claim(
        name,
        uid="u",
        node_pool="p",
        pool_hash="h",
        capacity_pool=pool,
        price_usd_h=1.0,
        launch=Launch("g", 0, 1),
        created_at_s=0.0,
        resources={},
    )


def policy() -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = json.loads((AWS / "iam-policy.json").read_text("utf-8"))["Statement"]
    return statements


def actions_of(statement: dict[str, Any]) -> set[str]:
    named = statement["Action"]
    return {named} if isinstance(named, str) else set(named)


def called() -> set[str]:
    """Names of boto3 methods in the adapter: attributes of a client, or their names as text for the pager."""
    found: set[str] = set()
    for path in (ROOT / "providers" / "aws").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = (
                node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else ""
            )
            if isinstance(name, str) and _CALL.fullmatch(name):
                found.add(name)
    return found


def test_the_table_is_what_the_adapter_calls() -> None:
    assert called() == set(ACTIONS)


def test_the_policy_is_the_table() -> None:
    assert set().union(*map(actions_of, policy())) == set().union(*ACTIONS.values())


def test_nothing_is_denied_open_or_named_twice() -> None:
    assert {statement["Effect"] for statement in policy()} == {"Allow"}
    names = [statement["Sid"] for statement in policy()]
    assert len(set(names)) == len(names)
    assert not any("*" in action for statement in policy() for action in actions_of(statement))


@pytest.mark.parametrize("action", ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"])
def test_only_its_own_machines_are_given_back(action: str) -> None:
    for statement in policy():
        if action in actions_of(statement):
            assert statement["Condition"]["StringEquals"] == {"aws:ResourceTag/muster.dev/cluster": "CLUSTER_NAME"}


def test_of_other_machines_only_those_that_ask_get_the_tags_of_an_adopted_one() -> None:
    """Nobody else's machine can be taken over, and no tag written on it but those that say whose it is from now on."""
    (statement,) = [one for one in policy() if one["Sid"] == "TagWhatIsToBeAdopted"]
    assert statement["Condition"] == {
        "StringLike": {f"aws:ResourceTag/{labels.ADOPT}": "CLUSTER_NAME/*"},
        "StringEquals": {f"aws:RequestTag/{labels.CLUSTER}": "CLUSTER_NAME"},
        "StringEqualsIfExists": {f"aws:ResourceTag/{labels.CLUSTER}": "CLUSTER_NAME"},
        "ForAllValues:StringEquals": {"aws:TagKeys": sorted(WRITTEN_TAGS)},
        "Null": {"aws:TagKeys": "false"},
    }


WRITTEN_TAGS = own_tags(claim_named("c"), "CLUSTER_NAME").keys()
"""Every tag that is written on a machine which runs."""


def statement(name: str) -> dict[str, Any]:
    (found,) = [one for one in policy() if one["Sid"] == name]
    return found


def test_on_its_own_machines_only_the_tags_it_writes_may_be_changed_and_never_to_another_cluster() -> None:
    """`ForAllValues` also holds where there are no keys at all, hence `Null`."""
    assert statement("TagOwnInstances")["Condition"] == {
        "StringEquals": {f"aws:ResourceTag/{labels.CLUSTER}": "CLUSTER_NAME"},
        "StringEqualsIfExists": {f"aws:RequestTag/{labels.CLUSTER}": "CLUSTER_NAME"},
        "ForAllValues:StringEquals": {"aws:TagKeys": sorted(WRITTEN_TAGS)},
        "Null": {"aws:TagKeys": "false"},
    }


def test_every_right_to_tag_what_exists_names_the_keys() -> None:
    for one in policy():
        if "ec2:CreateTags" in actions_of(one) and "ec2:CreateAction" not in one["Condition"]["StringEquals"]:
            assert set(one["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]) == set(WRITTEN_TAGS)


def test_instance_profiles_are_its_own_by_name_and_by_tag() -> None:
    """As Karpenter's published policy has it; the name says cluster, region and role (`profile_name`)."""
    profiles = [one for one in policy() if any("InstanceProfile" in action for action in actions_of(one))]
    assert {one["Resource"] for one in profiles} == {"arn:aws:iam::ACCOUNT_ID:instance-profile/muster_CLUSTER_NAME_*"}
    assert profile_name("CLUSTER_NAME", "REGION", "r").startswith("muster_CLUSTER_NAME_")
    tag = f"aws:ResourceTag/{labels.CLUSTER}"
    for one in profiles:
        condition = one.get("Condition", {})
        if actions_of(one) == {"iam:GetInstanceProfile"}:
            continue
        if "iam:CreateInstanceProfile" in actions_of(one):
            assert condition["StringEquals"] == {f"aws:RequestTag/{labels.CLUSTER}": "CLUSTER_NAME"}
            assert condition["StringEqualsIfExists"] == {tag: "CLUSTER_NAME"}
            assert condition["ForAllValues:StringEquals"] == {"aws:TagKeys": labels.CLUSTER}
        else:
            assert condition["StringEquals"] == {tag: "CLUSTER_NAME"}


def test_what_is_created_carries_the_tag() -> None:
    for statement in policy():
        resources = [statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"]
        creates = actions_of(statement) & {"ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"}
        if creates and any(
            name in resource for resource in resources for name in (":instance/", ":fleet/", ":volume/")
        ):
            assert statement["Condition"]["StringEquals"]["aws:RequestTag/muster.dev/cluster"] == "CLUSTER_NAME"


def test_only_looking_is_allowed_on_everything() -> None:
    for statement in policy():
        if statement["Resource"] == "*":
            assert all(re.match(r"\w+:(Describe|GetProducts)", action) for action in actions_of(statement))


def test_roles_are_passed_to_machines_only() -> None:
    (statement,) = [one for one in policy() if "iam:PassRole" in actions_of(one)]
    assert statement["Condition"]["StringEquals"]["iam:PassedToService"] == "ec2.amazonaws.com"
    assert statement["Resource"].endswith(":role/NODE_ROLE_NAME")


class _Loader(yaml.SafeLoader):
    """CloudFormation's short tags as their arguments."""


_Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_scalar(node))


def test_the_queue_gets_every_message_the_agent_can_read() -> None:
    template = yaml.load((AWS / "interruption-queue.yaml").read_text("utf-8"), Loader=_Loader)
    rules = {
        name: part["Properties"] for name, part in template["Resources"].items() if part["Type"] == "AWS::Events::Rule"
    }
    patterns = {
        (source, kind)
        for rule in rules.values()
        for source in rule["EventPattern"]["source"]
        for kind in rule["EventPattern"]["detail-type"]
    }
    assert patterns == {(source, kind) for _, source, kind in interruption._READERS}
    sends, _ = template["Resources"]["InterruptionQueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert sorted(sends["Condition"]["ArnEquals"]["aws:SourceArn"]) == sorted(f"{name}.Arn" for name in rules)
    assert all(rule["Targets"][0]["Arn"] == "InterruptionQueue.Arn" for rule in rules.values())
