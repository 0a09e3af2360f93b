"""Instances as EC2 lists them: describe by tags, terminate in chunks, tag."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import TYPE_CHECKING, Any, cast, get_args

from fleet.snapshot import Instance
from fleet.snapshot.machines import InstanceState
from model import labels
from model.kinds import CapacityType
from providers.aws.buckets import RateLimitGroup
from providers.aws.errors import code_of
from providers.aws.fleet_request import TOKEN_TAG
from providers.aws.identity import managed_by, provider_id
from providers.aws.retry import Caller, pages
from providers.ports import CloudRejected

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

CHUNK = 500
"""Ids a `TerminateInstances` call (EC2 accepts 1,000)."""
_UNKNOWN_IDS = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_ONE_SPOILS_ALL = _UNKNOWN_IDS | {"OperationNotPermitted"}
"""Refusals of a whole call for the sake of one machine; the last is termination protection."""
_READ = frozenset(
    {
        "CapacityReservationId",
        "ImageId",
        "InstanceId",
        "InstanceLifecycle",
        "InstanceType",
        "LaunchTime",
        "Placement",
        "PrivateDnsName",
        "SecurityGroups",
        "State",
        "StateTransitionReason",
        "SubnetId",
        "Tags",
    }
)
"""Of the 60 members of an instance, those that `_instance` reads."""
_STATES = frozenset(get_args(InstanceState))
_ENDED = frozenset({"shutting-down", "terminated", "stopping", "stopped"})
_TOLD_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_LIFECYCLES: Mapping[str, CapacityType] = {
    "spot": "spot",
    "capacity-block": "reserved",
    "interruptible-capacity-reservation": "reserved",
}


class Instances:
    """The machines of one cluster, found by its tag."""

    def __init__(self, caller: Caller, client: "EC2Client", cluster: str) -> None:
        self._caller = caller
        self._client = client
        _parse_only_what_is_read(client)
        self._cluster = cluster

    def all(self) -> Sequence[Instance]:
        """Every instance that carries the cluster's tag or asks it for adoption, in any state, sorted by id.

        Filters of one call must all hold, hence a second one; it most often brings an empty page.
        """
        owned = self._describe({labels.CLUSTER: self._cluster})
        asking = self._describe({labels.ADOPT: f"{self._cluster}/*"})
        found = {instance.id: instance for instance in (*owned, *asking)}
        return [found[instance_id] for instance_id in sorted(found)]

    def bought_with(self, token: str) -> Sequence[Instance]:
        """Instances that a launch with `token` brought and that are not gone."""
        found = self._describe({labels.CLUSTER: self._cluster, TOKEN_TAG: token})
        return [instance for instance in found if not instance.gone]

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Give machines back; ids that EC2 does not know are skipped.

        EC2 refuses a whole call for one unknown or protected machine, so such a call is halved until these stand
        alone; the refusal of a protected one is raised after all others have gone. An id may be unknown because it is
        seconds old: whoever owns the claims lists instances again and repeats.
        """
        unique = sorted(set(instance_ids))
        refusals: list[CloudRejected] = []
        for start in range(0, len(unique), CHUNK):
            self._terminate(unique[start : start + CHUNK], refusals)
        if refusals:
            raise refusals[0]

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Add or overwrite tags; raises `CloudRejected` for an unknown instance."""
        if not tags:
            return
        pairs: Any = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
        self._caller.idempotent(
            RateLimitGroup.TAG, lambda: self._client.create_tags(Resources=[instance_id], Tags=pairs)
        )

    def _describe(self, tags: Mapping[str, str]) -> list[Instance]:
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        read = pages(
            self._caller, RateLimitGroup.DESCRIBE, self._client.describe_instances, Filters=filters, MaxResults=1000
        )
        entries = (each for page in read for reservation in page["Reservations"] for each in reservation["Instances"])
        sets: dict[tuple[str, ...], tuple[str, ...]] = {}
        found = {entry["InstanceId"]: _instance(entry, sets) for entry in entries}
        return [found[instance_id] for instance_id in sorted(found)]

    def _terminate(self, ids: Sequence[str], refusals: list[CloudRejected]) -> None:
        self._caller.pace(RateLimitGroup.TERMINATED_INSTANCES, len(ids))
        try:
            self._caller.idempotent(
                RateLimitGroup.TERMINATE, lambda: self._client.terminate_instances(InstanceIds=list(ids))
            )
        except CloudRejected as error:
            self._caller.unused(RateLimitGroup.TERMINATED_INSTANCES, len(ids))
            if code_of(error) not in _ONE_SPOILS_ALL:
                raise
            if len(ids) > 1:
                middle = len(ids) // 2
                self._terminate(ids[:middle], refusals)
                self._terminate(ids[middle:], refusals)
            elif code_of(error) not in _UNKNOWN_IDS:
                refusals.append(error)


def _parse_only_what_is_read(client: "EC2Client") -> None:
    """Leave the other members out of the client's model: parsing a listing then takes half the time."""
    listing: Any = client.meta.service_model.operation_model("DescribeInstances").output_shape
    members = listing.members["Reservations"].member.members["Instances"].member.members
    for name in set(members) - _READ:
        del members[name]


def _instance(entry: Mapping[str, Any], sets: dict[tuple[str, ...], tuple[str, ...]]) -> Instance:
    """`sets` are the sets of security groups met so far: thousands of machines share few of what is said of them."""
    groups = tuple(sorted({group["GroupId"] for group in entry.get("SecurityGroups", ())}))
    state = entry["State"]["Name"]
    reservation = entry.get("CapacityReservationId", "")
    placement = entry.get("Placement", {})
    zone = placement.get("AvailabilityZone", "")
    tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", ())}
    plain: CapacityType = "reserved" if reservation else "on-demand"
    return Instance(
        id=entry["InstanceId"],
        instance_type=entry["InstanceType"],
        zone=zone,
        capacity_type=_LIFECYCLES.get(entry.get("InstanceLifecycle", ""), plain),
        state=cast("InstanceState", state if state in _STATES else "pending"),
        launched_at_s=entry["LaunchTime"].timestamp(),
        tags=tags,
        private_dns=entry.get("PrivateDnsName", ""),
        reservation=reservation,
        image=intern(entry.get("ImageId", "")),
        subnet=intern(entry.get("SubnetId", "")),
        security_groups=sets.setdefault(groups, groups),
        placement_group=placement.get("GroupName", ""),
        provider_id=provider_id(zone, entry["InstanceId"]),
        managed_by=managed_by(tags),
        ended_at_s=_ended_s(entry.get("StateTransitionReason", "")) if state in _ENDED else 0.0,
    )


def _ended_s(reason: str) -> float:
    """When the machine was told to stop, by EC2's words for why: `User initiated (2026-10-01 10:00:00 GMT)`.

    Source: EC2 API reference, `Instance.stateTransitionReason`. 0 where no time is told.
    """
    found = _TOLD_AT.search(reason)
    return datetime.strptime(f"{found[1]} +0000", "%Y-%m-%d %H:%M:%S %z").timestamp() if found else 0.0
