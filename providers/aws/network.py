"""Where a machine is plugged in: the subnet with the most free addresses in a zone, and its security groups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from providers.aws.buckets import Group
from providers.aws.retry import Caller, pages
from providers.clock import Clock
from providers.ports import CloudRejected

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

_FRESH_S = 60.0

Tags = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Subnet:
    """A subnet and how many addresses are free, less those our launches have taken since it was read."""

    id: str
    vpc: str
    zone: str
    free: int


class Network:
    """Looks up subnets and security groups by tags; both are believed for a minute."""

    def __init__(self, caller: Caller, client: "EC2Client", clock: Clock) -> None:
        self._caller = caller
        self._client = client
        self._clock = clock
        self._subnets: dict[Tags, tuple[float, list[Subnet]]] = {}
        self._groups: dict[tuple[Tags, str], tuple[float, tuple[str, ...]]] = {}

    def subnet(self, tags: Mapping[str, str], zone: str, addresses: int) -> Subnet:
        """The subnet in `zone` with the most free addresses, of which `addresses` are counted as taken from now on.

        Raises `CloudRejected` where no subnet of the zone carries the tags.
        """
        found = [each for each in self._tagged_subnets(tags) if each.zone == zone]
        if not found:
            raise CloudRejected(f"no subnet in {zone} carries the tags {_text(tags)}")
        best = min(found, key=lambda each: (-each.free, each.id))
        best.free -= addresses
        return best

    def zones(self, tags: Mapping[str, str]) -> frozenset[str]:
        """Zones that have a subnet with these tags."""
        return frozenset(each.zone for each in self._tagged_subnets(tags))

    def exhausted(self, subnet_id: str) -> None:
        """EC2 says the subnet is full: others of its zone come first until subnets are read again."""
        for _, subnets in list(self._subnets.values()):
            for each in subnets:
                if each.id == subnet_id:
                    each.free = 0

    def security_groups(self, tags: Mapping[str, str], vpc: str) -> tuple[str, ...]:
        """Ids, sorted, of the groups of `vpc` that carry the tags; raises `CloudRejected` where there is none."""
        key, now_s = (_key(tags), vpc), self._clock.monotonic()
        read_s, ids = self._groups.get(key, (0.0, ()))
        if not ids or now_s - read_s > _FRESH_S:
            filters = _filters(tags)
            filters.append({"Name": "vpc-id", "Values": [vpc]})
            read = self._pages(self._client.describe_security_groups, "SecurityGroups", filters)
            ids = tuple(sorted(str(group["GroupId"]) for group in read))
            if not ids:
                raise CloudRejected(f"no security group of {vpc} carries the tags {_text(tags)}")
            self._groups[key] = (now_s, ids)
        return ids

    def _tagged_subnets(self, tags: Mapping[str, str]) -> list[Subnet]:
        key, now_s = _key(tags), self._clock.monotonic()
        read_s, subnets = self._subnets.get(key, (0.0, []))
        if not subnets or now_s - read_s > _FRESH_S:
            read = self._pages(self._client.describe_subnets, "Subnets", _filters(tags))
            subnets = [
                Subnet(each["SubnetId"], each["VpcId"], each["AvailabilityZone"], each["AvailableIpAddressCount"])
                for each in read
            ]
            self._subnets[key] = (now_s, subnets)
        return subnets

    def _pages(self, call: Callable[..., Any], result: str, filters: "list[FilterTypeDef]") -> list[dict[str, Any]]:
        found = pages(self._caller, Group.DESCRIBE, call, Filters=filters, MaxResults=200)
        return [each for page in found for each in page[result]]


def _key(tags: Mapping[str, str]) -> Tags:
    return tuple(sorted(tags.items()))


def _filters(tags: Mapping[str, str]) -> "list[FilterTypeDef]":
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in sorted(tags.items())]


def _text(tags: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(tags.items())) or "(none given)"
