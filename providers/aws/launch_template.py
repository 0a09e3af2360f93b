"""Launch templates named by a hash of all they say, so that creating one twice is creating it once."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import structlog

from model import labels
from model.kinds import NodeTemplate
from model.kinds.aws import BlockDeviceMapping
from providers.aws.ami_families import AMI_FAMILIES
from providers.aws.buckets import RateLimitGroup
from providers.aws.errors import code_of
from providers.aws.retry import Caller, pages
from providers.clock import Clock
from providers.ports import CloudError, CloudRejected

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

PREFIX = "muster/"
IDLE_S = 3600.0
"""Templates not used for so long are deleted by `sweep`."""
_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
GONE_CODES = frozenset(
    {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
    }
)

_PLAIN = NodeTemplate()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TemplateParams:
    """All that a machine is born with, ids resolved; the type, zone and count come with each launch."""

    image_id: str
    security_groups: tuple[str, ...]
    user_data: str
    template: NodeTemplate = _PLAIN
    """What the pool says of disks, metadata, monitoring and addresses."""
    instance_profile: str = ""
    placement_group: str = ""
    efa_interfaces: int = 0
    efa_card: int = 0
    """First network card that can carry EFA."""
    reservation: str = ""
    """Capacity reservation to launch into."""
    market: str = ""
    """How EC2 sells what is in it (`MarketType`), where that is not plain on-demand."""
    closed: bool = False
    """Not into an open reservation unasked."""


def template_data(params: TemplateParams) -> dict[str, Any]:
    """`LaunchTemplateData`.

    A pool that says nothing gets IMDSv2 only, one hop (no pod reaches the machine's credentials), encrypted gp3 disks.
    """
    template = params.template
    metadata = template.metadata_options
    data: dict[str, Any] = {
        "ImageId": params.image_id,
        "UserData": base64.b64encode(params.user_data.encode()).decode(),
        "MetadataOptions": {
            "HttpEndpoint": metadata.http_endpoint,
            "HttpTokens": metadata.http_tokens,
            "HttpPutResponseHopLimit": metadata.http_put_response_hop_limit,
            "HttpProtocolIpv6": metadata.http_protocol_ipv6,
        },
    }
    if disks := [block_device(each) for each in template.block_device_mappings or AMI_FAMILIES[template.family].disks]:
        data["BlockDeviceMappings"] = disks
    if template.detailed_monitoring:
        data["Monitoring"] = {"Enabled": True}
    if params.instance_profile:
        data["IamInstanceProfile"] = {"Name": params.instance_profile}
    if params.placement_group:
        data["Placement"] = {"GroupName": params.placement_group}
    if params.reservation:
        target = {"CapacityReservationId": params.reservation}
        data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    elif params.closed:
        data["CapacityReservationSpecification"] = {"CapacityReservationPreference": "none"}
    if params.market:
        data["InstanceMarketOptions"] = {"MarketType": params.market}
    if params.efa_interfaces:
        data["NetworkInterfaces"] = _interfaces(params)
    elif template.associate_public_ip_address is not None:
        plain = _interface(params, 0, "interface")
        data["NetworkInterfaces"] = [{**plain, "AssociatePublicIpAddress": template.associate_public_ip_address}]
    else:
        data["SecurityGroupIds"] = list(params.security_groups)
    return data


def block_device(mapping: BlockDeviceMapping) -> dict[str, Any]:
    """A disk as EC2 wants it; what is not said is left out."""
    ebs = mapping.ebs
    said = {
        "VolumeSize": ebs.volume_size,
        "VolumeType": ebs.volume_type,
        "Iops": ebs.iops,
        "Throughput": ebs.throughput,
        "Encrypted": ebs.encrypted,
        "KmsKeyId": ebs.kms_key_id or None,
        "SnapshotId": ebs.snapshot_id or None,
        "VolumeInitializationRate": ebs.volume_initialization_rate,
        "DeleteOnTermination": ebs.delete_on_termination,
    }
    return {
        "DeviceName": mapping.device_name,
        "Ebs": {key: value for key, value in said.items() if value is not None},
    }


def _interfaces(params: TemplateParams) -> list[dict[str, Any]]:
    """The primary interface and an EFA on each card; EFAs beside the primary take no address of the subnet.

    EC2 User Guide, "Maximize network bandwidth on instances with multiple network cards"; a card 0 without EFA still
    carries the primary interface.
    """
    first = params.efa_card
    cards = range(max(first, 1), first + params.efa_interfaces)
    primary = _interface(params, 0, "interface" if first else "efa")
    return [primary, *(_interface(params, card, "efa-only") for card in cards)]


def _interface(params: TemplateParams, card: int, kind: str) -> dict[str, Any]:
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": 0 if card == 0 else 1,
        "InterfaceType": kind,
        "Groups": list(params.security_groups),
        "DeleteOnTermination": True,
    }


def template_name(cluster: str, data: Mapping[str, Any]) -> str:
    """`muster/<hash>`; templates of two clusters differ even where their content does not."""
    content = json.dumps([cluster, data], sort_keys=True, separators=(",", ":"))
    return PREFIX + sha256(content.encode()).hexdigest()[:20]


class LaunchTemplates:
    """Creates templates on first use, remembers them, and deletes what has been idle."""

    def __init__(self, caller: Caller, client: "EC2Client", cluster: str, clock: Clock) -> None:
        self._caller = caller
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._used_s: dict[str, float] = {}

    def ensure(self, params: TemplateParams) -> str:
        """The name of a template with these parameters, which exists now."""
        data = template_data(params)
        name = template_name(self._cluster, data)
        if name not in self._used_s:
            self._create(name, data)
        self._used_s[name] = self._clock.monotonic()
        return name

    def forget(self, name: str) -> None:
        """EC2 does not know the template: create it again on next use."""
        self._used_s.pop(name, None)

    def sweep(self) -> None:
        """Delete templates of this cluster that nobody used for `IDLE_S`, including those of earlier processes."""
        now_s = self._clock.monotonic()
        for name in self._list():
            self._used_s.setdefault(name, now_s)
        for name, used_s in sorted(self._used_s.items()):
            if now_s - used_s > IDLE_S:
                self._delete(name)

    def _create(self, name: str, data: dict[str, Any]) -> None:
        tags = [{"Key": labels.CLUSTER, "Value": self._cluster}]
        arguments: Any = {
            "LaunchTemplateName": name,
            "LaunchTemplateData": data,
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}],
        }
        try:
            self._caller.idempotent(RateLimitGroup.MUTATE, lambda: self._client.create_launch_template(**arguments))
        except CloudRejected as error:
            if code_of(error) != _EXISTS:
                raise

    def _list(self) -> list[str]:
        found = pages(
            self._caller,
            RateLimitGroup.DESCRIBE,
            self._client.describe_launch_templates,
            Filters=[{"Name": f"tag:{labels.CLUSTER}", "Values": [self._cluster]}],
            MaxResults=200,
        )
        names = (str(each["LaunchTemplateName"]) for page in found for each in page["LaunchTemplates"])
        return sorted(name for name in names if name.startswith(PREFIX))

    def _delete(self, name: str) -> None:
        try:
            self._caller.idempotent(
                RateLimitGroup.MUTATE, lambda: self._client.delete_launch_template(LaunchTemplateName=name)
            )
        except CloudError as error:
            if code_of(error) not in GONE_CODES:
                _log.warning("launch template not deleted", template=name, error=str(error))
                return
        self._used_s.pop(name, None)
