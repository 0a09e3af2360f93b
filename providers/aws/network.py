"""Where a machine is plugged in: the subnet with the most free addresses in a zone, and its security groups."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model.kinds.aws import SecurityGroupTerm, SubnetTerm
from providers.aws.buckets import RateLimitGroup
from providers.aws.images import tag_filters
from providers.aws.retry import Caller, pages
from providers.clock import Clock
from providers.ports import CloudRejected

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_FRESH_S = 60.0

Filters = list[dict[str, Any]]


@dataclass(slots=True)
class Subnet:
    """A subnet and how many addresses are free, less those our launches have taken since it was read."""

    id: str
    vpc: str
    zone: str
    free: int


class Network:
    """Looks up subnets and security groups by the terms of pools; both are believed for a minute."""

    def __init__(self, caller: Caller, client: "EC2Client", clock: Clock) -> None:
        self._caller = caller
        self._client = client
        self._clock = clock
        self._subnets: dict[str, tuple[float, list[Subnet]]] = {}
        self._groups: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {}

    def subnet(self, terms: Sequence[SubnetTerm], zone: str, addresses: int) -> Subnet:
        """The subnet in `zone` with the most free addresses, of which `addresses` are counted as taken from now on.

        Raises `CloudRejected` where the terms find no subnet of the zone.
        """
        found = [each for term in terms for each in self._of_term(term) if each.zone == zone]
        if not found:
            raise CloudRejected(f"no subnet in {zone} carries the tags or has the id of {_text(terms)}")
        best = min(found, key=lambda each: (-each.free, each.id))
        for each in found:
            if each.id == best.id:
                each.free -= addresses
        return best

    def free(self, terms: Sequence[SubnetTerm], zone: str) -> int:
        """The most addresses that one subnet in `zone` has left."""
        return max((each.free for term in terms for each in self._of_term(term) if each.zone == zone), default=0)

    def subnets(self, terms: Sequence[SubnetTerm]) -> dict[str, str]:
        """Id -> VPC of every subnet of these terms."""
        return {each.id: each.vpc for term in terms for each in self._of_term(term)}

    def zones(self, terms: Sequence[SubnetTerm]) -> frozenset[str]:
        """Zones that have a subnet of these terms."""
        return frozenset(each.zone for term in terms for each in self._of_term(term))

    def exhausted(self, subnet_id: str) -> None:
        """EC2 says the subnet is full: others of its zone come first until subnets are read again."""
        for _, subnets in list(self._subnets.values()):
            for each in subnets:
                if each.id == subnet_id:
                    each.free = 0

    def security_groups(self, terms: Sequence[SecurityGroupTerm], vpc: str) -> tuple[str, ...]:
        """Ids, sorted, of the groups of `vpc` that any term finds; raises `CloudRejected` where there is none."""
        ids = {found for term in terms for found in self._groups_of_term(term, vpc)}
        if not ids:
            raise CloudRejected(f"no security group of {vpc} carries the tags, id or name of {_text(terms)}")
        return tuple(sorted(ids))

    def _groups_of_term(self, term: SecurityGroupTerm, vpc: str) -> tuple[str, ...]:
        key, now_s = (repr(term), vpc), self._clock.monotonic()
        read_s, ids = self._groups.get(key, (0.0, ()))
        if not ids or now_s - read_s > _FRESH_S:
            filters = [*_filters(term, "group-id"), {"Name": "vpc-id", "Values": [vpc]}]
            read = self._pages(self._client.describe_security_groups, "SecurityGroups", filters)
            ids = tuple(sorted(str(group["GroupId"]) for group in read))
            self._groups[key] = (now_s, ids)
        return ids

    def _of_term(self, term: SubnetTerm) -> list[Subnet]:
        key, now_s = repr(term), self._clock.monotonic()
        read_s, subnets = self._subnets.get(key, (0.0, []))
        if not subnets or now_s - read_s > _FRESH_S:
            read = self._pages(self._client.describe_subnets, "Subnets", _filters(term, "subnet-id"))
            subnets = [
                Subnet(each["SubnetId"], each["VpcId"], each["AvailabilityZone"], each["AvailableIpAddressCount"])
                for each in read
            ]
            self._subnets[key] = (now_s, subnets)
        return subnets

    def _pages(self, call: Callable[..., Any], result: str, filters: Filters) -> list[dict[str, Any]]:
        found = pages(self._caller, RateLimitGroup.DESCRIBE, call, Filters=filters, MaxResults=200)
        return [each for page in found for each in page[result]]


def _filters(term: SubnetTerm | SecurityGroupTerm, id_filter: str) -> Filters:
    if term.id:
        return [{"Name": id_filter, "Values": [term.id]}]
    if isinstance(term, SecurityGroupTerm) and term.name:
        return [{"Name": "group-name", "Values": [term.name]}]
    return list(tag_filters(term.tags))


def _text(terms: Iterable[SubnetTerm | SecurityGroupTerm]) -> str:
    said = (
        ", ".join(f"{key}={value}" for key, value in sorted(term.tags.items())) or term.id or _name(term)
        for term in terms
    )
    return " or ".join(said)


def _name(term: SubnetTerm | SecurityGroupTerm) -> str:
    return term.name if isinstance(term, SecurityGroupTerm) else ""
