"""What an account has before the first machine: a VPC, subnets, a security group, images and the queue.

Everything here is kept in moto's backends; machines are not (see `operations`).
"""

import hashlib
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
_IMAGES = {
    name: f"ami-{hashlib.blake2b(name.encode(), digest_size=9).hexdigest()[:17]}"
    for name in (f"{cpu}/{variant}" for cpu in ("x86_64", "arm64") for variant in ("standard", "nvidia", "neuron"))
}
_EKS_PREFIX = "/aws/service/eks/optimized-ami/"
_AL2023_PREFIX = "/aws/service/ami-amazon-linux-latest/al2023-ami-"


def image_parameter(name: str) -> str | None:
    """The image id behind a public SSM parameter that moto has none for; None for any other parameter.

    `/aws/service/eks/optimized-ami/<version>/amazon-linux-2023/<architecture>/<variant>/<release>/image_id` and
    `/aws/service/ami-amazon-linux-latest/al2023-ami-...-<architecture>`.
    """
    if name.startswith(_AL2023_PREFIX):
        architecture = "arm64" if name.endswith("arm64") else "x86_64"
        return _IMAGES[f"{architecture}/standard"]
    parts = name.removeprefix(_EKS_PREFIX).split("/")
    if not name.startswith(_EKS_PREFIX) or len(parts) != 6 or parts[1] != "amazon-linux-2023" or parts[5] != "image_id":
        return None
    return _IMAGES.get(f"{parts[2]}/{parts[3]}")


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
        for name, image_id in _IMAGES.items():
            self._register(name, image_id)
        self._queues = sqs_backends[self.account_id][self.region]
        self._queues.create_queue(QUEUE_NAME, {"cluster": self.cluster}, MessageRetentionPeriod=300)

    def _register(self, name: str, image_id: str) -> None:
        architecture, variant = name.split("/")
        self.backend.amis[image_id] = Ami(
            self.backend,
            image_id,
            name=f"amazon-eks-node-al2023-{architecture}-{variant}",
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
