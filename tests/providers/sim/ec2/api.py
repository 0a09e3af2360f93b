"""An EC2 client of a fake with what is needed to launch from it."""

import base64
from typing import Any

from providers.sim.ec2 import FakeAws
from tests.providers.sim.ec2.rigs import IMAGE, aws_client

TEMPLATE = "muster/test"


class Api:
    """An EC2 client with a launch template to launch from."""

    def __init__(self, fake: FakeAws) -> None:
        self.fake = fake
        self.ec2 = aws_client("ec2", fake)
        self.image = aws_client("ssm", fake).get_parameter(Name=IMAGE)["Parameter"]["Value"]
        tagged = [{"Name": "tag:muster.dev/cluster", "Values": ["default"]}]
        subnets = self.ec2.describe_subnets(Filters=tagged)["Subnets"]
        self.subnets = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}
        (self.group,) = self.ec2.describe_security_groups(Filters=tagged)["SecurityGroups"]
        self.template()

    def template(self, name: str = TEMPLATE, **data: Any) -> None:
        defaults = {
            "ImageId": self.image,
            "UserData": base64.b64encode(b"hello").decode(),
            "SecurityGroupIds": [self.group["GroupId"]],
            "IamInstanceProfile": {"Name": "nodes"},
            "MetadataOptions": {"HttpTokens": "required"},
        }
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=defaults | data)

    def override(self, instance_type: str = "g6.xlarge", zone: str = "us-east-1a", **more: Any) -> dict[str, Any]:
        return {"InstanceType": instance_type, "AvailabilityZone": zone, "SubnetId": self.subnets[zone]} | more

    def arguments(self, count: int, *overrides: dict[str, Any], **more: Any) -> dict[str, Any]:
        config = {
            "LaunchTemplateSpecification": {"LaunchTemplateName": more.pop("template", TEMPLATE), "Version": "$Latest"},
            "Overrides": list(overrides) or [self.override()],
        }
        capacity = {"TotalTargetCapacity": count, "DefaultTargetCapacityType": more.pop("capacity_type", "on-demand")}
        return {"Type": "instant", "LaunchTemplateConfigs": [config], "TargetCapacitySpecification": capacity} | more

    def fleet(self, count: int, *overrides: dict[str, Any], **more: Any) -> Any:
        return self.ec2.create_fleet(**self.arguments(count, *overrides, **more))

    def described(self, **arguments: Any) -> list[dict[str, Any]]:
        answer = self.ec2.describe_instances(**arguments)
        return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
