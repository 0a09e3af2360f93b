"""What an account has before the first machine: a VPC, subnets, a security group, images and the queue.

Everything here is kept in moto's backends; machines are not (see `operations`).
"""

import hashlib
import re
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import Any
from uuid import uuid4

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.sqs.exceptions import QueueDoesNotExist
from moto.sqs.models import Message, sqs_backends

from model.labels import CLUSTER
from providers.sim.ec2.account import Ec2Error

QUEUE_NAME = "muster-interruptions"
_IMAGE_OWNER = "602401143452"
_CPUS = ("x86_64", "arm64")
_VARIANTS = {
    "al2023": ("standard", "nvidia", "neuron"),
    "bottlerocket": ("standard", "nvidia"),
    "al2": ("standard", "gpu"),
}
_IMAGES = {
    (
        family,
        cpu,
        variant,
    ): f"ami-{hashlib.blake2b(f'{family}/{cpu}/{variant}'.encode(), digest_size=9).hexdigest()[:17]}"
    for family, variants in _VARIANTS.items()
    for cpu in _CPUS
    for variant in variants
}
_EKS = "/aws/service/eks/optimized-ami/[0-9.]+"
_CPU = "(?P<cpu>x86_64|arm64)"
_PARAMETERS = {
    family: re.compile(pattern)
    for family, pattern in {
        "al2023": rf"{_EKS}/amazon-linux-2023/{_CPU}/(?P<variant>\w+)/[^/]+/image_id",
        "al2": rf"{_EKS}/amazon-linux-2(-(?P<cpu>arm64)|-(?P<variant>gpu))?/[^/]+/image_id",
        "bottlerocket": rf"/aws/service/bottlerocket/aws-k8s-[0-9.]+(-(?P<variant>nvidia))?/{_CPU}/[^/]+/image_id",
    }.items()
}
_AL2023_PREFIX = "/aws/service/ami-amazon-linux-latest/al2023-ami-"


_EKS_RELEASE = re.compile(r"/aws/service/eks/optimized-ami/(?P<kubernetes>[0-9.]+)/.+/recommended/release_version")
_BOTTLEROCKET_RELEASE = re.compile(r"/aws/service/bottlerocket/.+/latest/image_version")


def public_parameter(name: str) -> str | None:
    """What a public SSM parameter holds that moto has none for: an image id or a release; None for any other.

    Images are those for EKS of Amazon Linux 2023 and 2 and of Bottlerocket, whatever the version, and
    `/aws/service/ami-amazon-linux-latest/al2023-ami-...-<architecture>`. The newest release is always the same one.
    """
    if found := _EKS_RELEASE.fullmatch(name):
        return f"{found['kubernetes']}.0-20251112"
    if _BOTTLEROCKET_RELEASE.fullmatch(name):
        return "1.49.0-713f44ce"
    if name.startswith(_AL2023_PREFIX):
        return _IMAGES["al2023", "arm64" if name.endswith("arm64") else "x86_64", "standard"]
    for family, pattern in _PARAMETERS.items():
        if match := pattern.fullmatch(name):
            return _IMAGES.get((family, match["cpu"] or "x86_64", match["variant"] or "standard"))
    return None


class SubnetAddresses:
    """The addresses of one moto subnet, in order; one that came back is used again only when no fresh one is left."""

    def __init__(self, subnet: Any) -> None:
        self._subnet = subnet
        self._fresh = islice(subnet.cidr.hosts(), 3, None)
        self._used: deque[str] = deque()

    def free(self) -> int:
        """Addresses left."""
        return int(self._subnet.available_ip_address_count)

    def take(self) -> str:
        """The next address; moto counts network interfaces, which our machines have none of, so we count here."""
        self._subnet._available_ip_addresses -= 1  # noqa: SLF001 - moto has no other way to say it
        fresh = next(self._fresh, None)
        return self._used.popleft() if fresh is None else str(fresh)

    def give_back(self, address: str) -> None:
        """Free an address."""
        self._subnet._available_ip_addresses += 1  # noqa: SLF001
        self._used.append(address)


class Site:
    """One account in one region of moto, furnished for one cluster."""

    def __init__(self, account_id: str, region: str, cluster: str) -> None:
        self.account_id = account_id
        self.region = region
        self.cluster = cluster
        self.backend: Any = ec2_backends[account_id][region]
        self.zones: list[str] = sorted(zone.name for zone in self.backend.describe_availability_zones())
        self._offered = {
            (offering["InstanceType"], offering["Location"])
            for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ())
        }
        self._addresses: dict[str, SubnetAddresses] = {}
        self._furnish()

    def _furnish(self) -> None:
        tags = {CLUSTER: self.cluster, f"kubernetes.io/cluster/{self.cluster}": "owned"}
        self.vpc = self.backend.create_vpc("10.0.0.0/16", tags=_moto_tags(tags))
        self.subnets = [
            self.backend.create_subnet(
                self.vpc.id, f"10.0.{32 * index}.0/19", availability_zone=zone, tags={"subnet": tags | {"Name": zone}}
            )
            for index, zone in enumerate(self.zones[:8])
        ]
        self.security_group = self.backend.create_security_group(
            f"{self.cluster}-nodes", "nodes", vpc_id=self.vpc.id, tags=tags
        )
        for (family, cpu, variant), image_id in _IMAGES.items():
            self._register(f"amazon-eks-node-{family}-{cpu}-{variant}", cpu, image_id)
        self._queues = sqs_backends[self.account_id][self.region]
        self._queues.create_queue(QUEUE_NAME, {"cluster": self.cluster}, MessageRetentionPeriod=300)

    def _register(self, name: str, architecture: str, image_id: str) -> None:
        self.backend.amis[image_id] = Ami(
            self.backend,
            image_id,
            name=name,
            owner_id=_IMAGE_OWNER,
            public=True,
            virtualization_type="hvm",
            architecture=architecture,
            root_device_type="ebs",
            root_device_name="/dev/xvda",
            region_name=self.zones[0],
        )

    def close(self) -> None:
        """Forget the account, so that a process that starts many fakes does not keep them all."""
        for backends in (ec2_backends, sqs_backends):
            backends.pop(self.account_id, None)

    def send(self, body: str) -> None:
        """Put a message on the interruption queue; a message for a queue that was deleted is lost."""
        with suppress(QueueDoesNotExist):
            queue = self._queues.get_queue(QUEUE_NAME)
            message = Message(str(uuid4()), body)  # the backend's send_message would look at every message there is
            message.mark_sent(delay_seconds=0)
            queue.add_message(message)

    def offers(self, instance_type: str, zone: str) -> bool:
        """Whether the zone has the type at all."""
        return (instance_type, zone) in self._offered

    def knows(self, instance_type: str) -> bool:
        """Whether it is an instance type."""
        return instance_type in INSTANCE_TYPES

    def pools(self, instance_types: list[str]) -> list[tuple[str, str]]:
        """(type, zone) of everything on offer, in order; only the given types if any are given."""
        wanted = set(instance_types)
        return sorted(pair for pair in self._offered if not wanted or pair[0] in wanted)

    def subnet(self, subnet_id: str) -> Any:
        """A subnet of moto; raises moto's InvalidSubnetID.NotFound."""
        return self.backend.get_subnet(subnet_id)

    def default_subnet(self, zone: str) -> Any:
        """The default VPC's subnet in a zone, or in the first zone for an empty one."""
        subnets = self.backend.get_default_subnets()
        subnet = subnets.get(zone or self.zones[0])
        if subnet is None:
            raise Ec2Error("MissingInput", f"No default subnet for availability zone: '{zone}'.")
        return subnet

    def addresses(self, subnet: Any) -> SubnetAddresses:
        """The addresses of a subnet."""
        return self._addresses.setdefault(subnet.id, SubnetAddresses(subnet))


def vcpus() -> dict[str, int]:
    """VCPUs of every instance type moto knows."""
    return {name: int(facts["VCpuInfo"]["DefaultVCpus"]) for name, facts in INSTANCE_TYPES.items()}


def _moto_tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
