"""DescribeInstances and its kin: filters, pages and how a machine looks in the answer.

Source: EC2 API Reference DescribeInstances ("Filters"), Instance, InstanceStatus.
"""

import base64
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from providers.sim.ec2.account import Ec2Error
from providers.sim.ec2.vm import Vm

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

_VALUES: Mapping[str, Callable[[Vm], str]] = {
    "instance-id": lambda vm: vm.id,
    "instance-type": lambda vm: vm.pool.instance_type,
    "availability-zone": lambda vm: vm.pool.zone,
    "instance-state-name": lambda vm: vm.state,
    "instance-state-code": lambda vm: str(STATE_CODES[vm.state]),
    "instance-lifecycle": lambda vm: "spot" if vm.pool.capacity_type == "spot" else str(vm.spec.details["market"]),
    "private-dns-name": lambda vm: vm.private_dns,
    "private-ip-address": lambda vm: vm.address,
    "client-token": lambda vm: vm.token,
    "image-id": lambda vm: str(vm.spec.details["image_id"]),
    "subnet-id": lambda vm: str(vm.spec.details["subnet_id"]),
    "vpc-id": lambda vm: str(vm.spec.details["vpc_id"]),
    "placement-group-name": lambda vm: str(vm.spec.details["placement_group"]),
}


class Filters:
    """EC2 filters: all of them must hold, each by any of its values, with `*` and `?` as wildcards."""

    def __init__(self, filters: Iterable[Mapping[str, Any]]) -> None:
        self._tests = [self._test(str(one["Name"]), one.get("Values") or ()) for one in filters]

    def match(self, vms: Iterable[Vm]) -> list[Vm]:
        """The machines that pass, in the order given."""
        return [vm for vm in vms if all(test(vm) for test in self._tests)]

    @staticmethod
    def _test(name: str, values: Sequence[str]) -> Callable[[Vm], bool]:
        matches = matcher(values)
        if name.startswith("tag:"):
            key = name.removeprefix("tag:")
            return lambda vm: key in vm.tags and matches(vm.tags[key])
        if name == "tag-key":
            return lambda vm: any(matches(key) for key in vm.tags)
        value = _VALUES.get(name)
        if value is None:
            raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
        return lambda vm: matches(value(vm))


def matcher(values: Sequence[str]) -> Callable[[str], bool]:
    """Whether a text is one of `values`, which may have wildcards."""
    exact = frozenset(value for value in values if not set("*?") & set(value))
    patterns = [re.compile(fnmatch.translate(value.replace("[", "[[]"))) for value in values if value not in exact]
    return lambda text: text in exact or any(pattern.match(text) for pattern in patterns)


def page(vms: Sequence[Vm], params: Mapping[str, Any], *, least: int = 5) -> tuple[Sequence[Vm], str | None]:
    """The machines of one page and the token of the next, which says after which launch to go on: none is missed."""
    after = _position(params.get("NextToken"))
    rest = [vm for vm in vms if vm.ordinal > after] if after else vms
    size = params.get("MaxResults")
    if size is None:
        return rest, None
    if not least <= int(size) <= 1000:
        raise Ec2Error("InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid.")
    first = rest[: int(size)]
    return first, _token(first[-1].ordinal) if len(rest) > len(first) else None


def _token(ordinal: int) -> str:
    return base64.urlsafe_b64encode(f"after:{ordinal}".encode()).decode()


def _position(token: str | None) -> int:
    if not token:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("after:"))
    except ValueError as error:
        raise Ec2Error("InvalidNextToken", f"The token '{token}' is invalid.") from error


def reservations(vms: Iterable[Vm], account_id: str) -> list[dict[str, Any]]:
    """Machines as EC2 groups them: those of one launch, side by side, make a reservation."""
    groups: list[dict[str, Any]] = []
    last: tuple[str, float] | None = None
    for vm in vms:
        launch = (vm.fleet_id or vm.token or vm.id, vm.launched_at_s)
        if launch != last:
            groups.append({"ReservationId": f"r-{vm.id[2:]}", "OwnerId": account_id, "Groups": [], "Instances": []})
            last = launch
        groups[-1]["Instances"].append(instance(vm, account_id))
    return groups


def state(name: str) -> dict[str, Any]:
    """A state with its code."""
    return {"Code": STATE_CODES[name], "Name": name}


def _transition(vm: Vm) -> str:
    """Why it is as it is; of one that ends with the time, to the second."""
    if vm.billed_until_s is None:
        return vm.reason
    return f"{vm.reason} ({datetime.fromtimestamp(vm.billed_until_s, UTC):%Y-%m-%d %H:%M:%S} GMT)"


def instance(vm: Vm, account_id: str) -> dict[str, Any]:
    """A machine as an `Instance` of the API."""
    details: Mapping[str, Any] = vm.spec.details
    shown: dict[str, Any] = {
        "InstanceId": vm.id,
        "ImageId": details["image_id"],
        "State": state(vm.state),
        "PrivateDnsName": vm.private_dns if vm.alive else "",
        "PublicDnsName": "",
        "StateTransitionReason": _transition(vm),
        "AmiLaunchIndex": 0,
        "InstanceType": vm.pool.instance_type,
        "LaunchTime": datetime.fromtimestamp(vm.launched_at_s, UTC),
        "Placement": {"AvailabilityZone": vm.pool.zone, "GroupName": details["placement_group"], "Tenancy": "default"},
        "Monitoring": {"State": "disabled"},
        "Architecture": "x86_64",
        "ClientToken": vm.token,
        "RootDeviceName": "/dev/xvda",
        "RootDeviceType": "ebs",
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(vm.tags.items())],
    }
    if vm.alive:
        shown |= _network(vm, details)
    if details["key_name"]:
        shown["KeyName"] = details["key_name"]
    if details["instance_profile"]:
        shown["IamInstanceProfile"] = _profile(details["instance_profile"], account_id)
    if details["metadata"]:
        shown["MetadataOptions"] = {"State": "applied"} | dict(details["metadata"])
    if vm.reason:
        shown["StateReason"] = {"Code": vm.reason, "Message": vm.reason}
    return shown | _lifecycle(vm)


def _network(vm: Vm, details: Mapping[str, Any]) -> dict[str, Any]:
    groups = [{"GroupId": group} for group in details["security_groups"]]
    return {
        "PrivateIpAddress": vm.address,
        "SubnetId": details["subnet_id"],
        "VpcId": details["vpc_id"],
        "SecurityGroups": groups,
        "NetworkInterfaces": [
            {
                "NetworkInterfaceId": f"eni-{index:x}{vm.id[3:]}",
                "SubnetId": details["subnet_id"],
                "VpcId": details["vpc_id"],
                "Groups": groups,
                "InterfaceType": nic.get("InterfaceType", "interface"),
                "Attachment": {
                    "DeviceIndex": nic.get("DeviceIndex", 0),
                    "NetworkCardIndex": nic.get("NetworkCardIndex", 0),
                    "Status": "attached",
                },
            }
            for index, nic in enumerate(details["interfaces"])
        ],
    }


def _lifecycle(vm: Vm) -> dict[str, Any]:
    if vm.pool.capacity_type == "spot":
        return {"InstanceLifecycle": "spot", "SpotInstanceRequestId": f"sir-{vm.id[-8:]}"}
    if vm.pool.capacity_type == "reserved":
        market = str(vm.spec.details["market"])
        return {"CapacityReservationId": vm.pool.reservation} | ({"InstanceLifecycle": market} if market else {})
    return {}


def _profile(profile: Mapping[str, str], account_id: str) -> dict[str, str]:
    arn = profile.get("Arn") or f"arn:aws:iam::{account_id}:instance-profile/{profile.get('Name', '')}"
    return {"Arn": arn, "Id": "AIPA" + base64.b32encode(arn.encode()).decode().rstrip("=")[-17:]}


def status(vm: Vm) -> dict[str, Any]:
    """A machine as an `InstanceStatus`."""
    health = "ok" if vm.state == "running" else "initializing" if vm.state == "pending" else "not-applicable"
    return {
        "InstanceId": vm.id,
        "AvailabilityZone": vm.pool.zone,
        "InstanceState": state(vm.state),
        "InstanceStatus": {"Status": health},
        "SystemStatus": {"Status": health},
    }
