"""The vocabulary of the AWS provider in a node template: images, network, disks, identity, metadata.

Karpenter's `EC2NodeClass` (`model.upstream.karpenter`) is made of the same parts, so that a field means one thing
however it is written. What follows from a family of images beside its validation is in `providers.aws.ami_families`.
"""

import re
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, Strict, model_validator
from pydantic.json_schema import WithJsonSchema

from model.kinds.base import Bool, Spec, Tags
from model.kinds.errors import misplaced
from model.kinds.kubelet import Kubelet
from model.kinds.releases import PinnedRelease
from model.quantity import parse_quantity

AmiFamily = Literal["AL2023", "Bottlerocket", "AL2", "Custom"]
FAMILY_OF_ALIAS: Mapping[str, AmiFamily] = MappingProxyType(
    {"al2023": "AL2023", "bottlerocket": "Bottlerocket", "al2": "AL2"}
)
_READ_TOML = frozenset({"Bottlerocket"})
_ALIAS = re.compile(rf"({'|'.join(FAMILY_OF_ALIAS)})@(latest|v[0-9][0-9.]*)")
_GIB = 1024**3
_MOST_GIB = 64 * 1024
_WITH_IOPS = frozenset({"gp3", "io1", "io2"})


def _check_alias(value: str) -> str:
    if value and not _ALIAS.fullmatch(value):
        raise ValueError(
            "an alias is a family and a version, such as al2023@latest, al2023@v20250505 or bottlerocket@v1.20.3"
        )
    return value


def _check_tags(tags: Tags) -> Tags:
    if not all(key and value for key, value in tags.items()):
        raise ValueError("a tag to select by needs a key and a value; '*' = any value")
    return tags


def _parse_volume_size(value: Any) -> int:
    size_gib = ceil(parse_quantity(value) / _GIB)
    if not 1 <= size_gib <= _MOST_GIB:
        raise ValueError("a volume has 1Gi to 64Ti")
    return size_gib


Alias = Annotated[
    str, AfterValidator(_check_alias), WithJsonSchema({"type": "string", "pattern": f"^({_ALIAS.pattern})?$"})
]
SelectorTags = Annotated[Tags, Field(max_length=20), AfterValidator(_check_tags)]
VolumeSizeGib = Annotated[
    int,
    BeforeValidator(_parse_volume_size),
    PlainSerializer(lambda gib: f"{gib}Gi", return_type=str),
    WithJsonSchema({"type": ["string", "number"]}),
]
"""A quantity of bytes, held as GiB rounded up."""


class AmiTerm(Spec):
    """One way to find machine images: exactly one of `alias`, `id`, `ssmParameter`, or tags and name."""

    alias: Alias = ""
    """Images that AWS publishes for EKS, `family@version`: `al2023@latest`, `al2023@v20250505`, `bottlerocket@v1.20.3`,
    `al2@latest`. Of the family, the one for the machine's architecture and GPUs is taken."""
    id: str = ""
    """An image id such as `ami-0abc`."""
    ssm_parameter: str = ""
    """An SSM parameter that holds the id, so that the image follows its publisher."""
    tags: SelectorTags = Field(default_factory=dict)
    """Tags an image must carry; `*` = any value."""
    name: str = ""
    """The image's name, in which `*` and `?` stand for anything."""
    owner: str = ""
    """With tags or name: an account id, `self`, `amazon` or `aws-marketplace`; unset = `self` and `amazon`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = (self.alias, self.id, self.ssm_parameter, self.tags or self.name)
        if sum(map(bool, ways)) != 1:
            raise ValueError("give exactly one of alias, id, ssmParameter, and tags with name")
        if self.owner and not (self.tags or self.name):
            raise ValueError("owner goes with tags or name")
        return self


class SubnetTerm(Spec):
    """Subnets by tags or by id."""

    tags: SelectorTags = Field(default_factory=dict)
    """Tags a subnet must carry; `*` = any value."""
    id: str = ""
    """A subnet's id."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.tags) == bool(self.id):
            raise ValueError("give exactly one of tags and id")
        return self


class SecurityGroupTerm(Spec):
    """Security groups by tags, id or name."""

    tags: SelectorTags = Field(default_factory=dict)
    """Tags a security group must carry; `*` = any value."""
    id: str = ""
    """A security group's id."""
    name: str = ""
    """A security group's name, which is not its tag `Name`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(map(bool, (self.tags, self.id, self.name))) != 1:
            raise ValueError("give exactly one of tags, id and name")
        return self


class Ebs(Spec):
    """A volume; a size or a snapshot. What is unset is up to EC2 and the image."""

    volume_size: VolumeSizeGib | None = None
    """Its size, such as `100Gi`."""
    volume_type: Literal["gp3", "gp2", "io1", "io2", "st1", "sc1", "standard"] | None = None
    """Its type."""
    iops: Annotated[int, Strict(), Field(ge=100, le=256_000)] | None = None
    """Operations a second, of gp3, io1 and io2."""
    throughput: Annotated[int, Strict(), Field(ge=125, le=2000)] | None = None
    """MiB a second, of gp3."""
    encrypted: Bool | None = None
    """Whether it is encrypted."""
    kms_key_id: str = Field(default="", alias="kmsKeyID")
    """The key it is encrypted with; unset = the account's own for EBS."""
    snapshot_id: str = Field(default="", alias="snapshotID")
    """The snapshot it is made from."""
    volume_initialization_rate: Annotated[int, Strict(), Field(ge=100, le=300)] | None = None
    """MiB a second at which the snapshot is read."""
    delete_on_termination: Bool | None = None
    """Whether it goes with the machine."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.volume_size is None and not self.snapshot_id:
            raise ValueError("a volume needs volumeSize or snapshotID")
        if self.volume_initialization_rate is not None and not self.snapshot_id:
            raise ValueError("volumeInitializationRate needs snapshotID")
        if self.iops is not None and self.volume_type not in {*_WITH_IOPS, None}:
            raise ValueError(f"volumes of type {self.volume_type} take no iops")
        if self.throughput is not None and self.volume_type not in {"gp3", None}:
            raise ValueError("only volumes of type gp3 take a throughput")
        return self


class BlockDeviceMapping(Spec):
    """A disk of the machine."""

    device_name: Annotated[str, Field(min_length=1)]
    """Such as `/dev/xvda`."""
    root_volume: Bool = False
    """Whether the kubelet keeps pods and images on it."""
    ebs: Ebs
    """The volume."""


class MetadataOptions(Spec):
    """How the machine, and pods on it, may ask for its metadata and credentials."""

    http_endpoint: Literal["enabled", "disabled"] = "enabled"
    """Whether it answers at all."""
    http_protocol_ipv6: Literal["enabled", "disabled"] = Field(default="disabled", alias="httpProtocolIPv6")
    """Whether it answers by IPv6."""
    http_put_response_hop_limit: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    """Network hops an answer may take: with 1 no pod in a network of its own gets the machine's credentials."""
    http_tokens: Literal["required", "optional"] = "required"
    """Whether a session token is needed (IMDSv2)."""


def _one_root(devices: tuple[BlockDeviceMapping, ...]) -> tuple[BlockDeviceMapping, ...]:
    if sum(device.root_volume for device in devices) > 1:
        raise ValueError("only one disk can be the rootVolume")
    return devices


def family_of(family: AmiFamily | None, terms: tuple[AmiTerm, ...]) -> AmiFamily:
    """How a machine of these images is told to join. Raises `ValueError` for terms that do not go together."""
    aliases = [term.alias for term in terms if term.alias]
    if not aliases:
        return family or "AL2023"
    if len(terms) > 1:
        raise ValueError("an alias stands alone")
    said = FAMILY_OF_ALIAS[aliases[0].partition("@")[0]]
    if family not in {None, "Custom", said}:
        raise ValueError(f"amiFamily is {family}, but the alias is of {said}")
    return family or said


AmiTerms = Annotated[tuple[AmiTerm, ...], Field(min_length=1, max_length=30)]
BlockDevices = Annotated[tuple[BlockDeviceMapping, ...], Field(max_length=50), AfterValidator(_one_root)]


def check_user_data(family: str, user_data: str) -> None:
    """Raises, at `userData`, for user data that images of the family could not read."""
    if family not in _READ_TOML:
        return
    import tomllib

    try:
        tomllib.loads(user_data)
    except tomllib.TOMLDecodeError as error:
        raise misplaced(("userData",), f"{family} reads TOML: {error}") from None


class Ec2Machine(Spec):
    """What only EC2 has of a node template, and the kubelet's settings among it, as in an `EC2NodeClass`."""

    amis: AmiTerms = (AmiTerm.known(alias="al2023@latest"),)
    """Machine images; of all that are found, the newest that suits the machine. Unset = the current image of Amazon
    Linux 2023 for EKS, with NVIDIA's drivers where the machine has GPUs."""
    images: Literal["Follow", "ProposeChange"] = "Follow"
    """What comes of a newer release of the images. `Follow`: machines drift as soon as `amis` finds another image.
    `ProposeChange`: the agent opens a pull request that raises the version in the alias, with its plan; `amis` is one
    alias with a version, and machines drift once it is merged."""
    ami_family: AmiFamily | None = None
    """How the machine is told to join its cluster; unset = as the alias says, else `AL2023`."""
    user_data: str = ""
    """For `AL2023` a shell script, a `NodeConfig` or MIME parts of both; for `Bottlerocket` settings in TOML; for `AL2`
    a script or MIME parts. What the agent has to say is added. For `Custom` it is all the machine is told."""
    role: str = ""
    """IAM role of the machines, for which the agent keeps an instance profile."""
    instance_profile: str = ""
    """IAM instance profile of the machines, instead of `role`."""
    subnets: Annotated[tuple[SubnetTerm, ...], Field(max_length=30)] = ()
    """Where machines are put: subnets that any of these finds; unset = tag `muster.dev/cluster: <cluster>`."""
    security_groups: Annotated[tuple[SecurityGroupTerm, ...], Field(max_length=30)] = ()
    """Their security groups: all that any of these finds; unset = tag `muster.dev/cluster: <cluster>`."""
    associate_public_ip_address: Bool | None = Field(default=None, alias="associatePublicIPAddress")
    """Whether machines get a public address; unset = as the subnet says."""
    kubelet: Kubelet = Kubelet.unsaid()
    """Settings of the kubelet."""
    block_device_mappings: BlockDevices = ()
    """Disks; unset = 20Gi of gp3, encrypted (and 4Gi for the system of Bottlerocket)."""
    instance_store_policy: Literal["RAID0"] | None = None
    """`RAID0`: local NVMe disks become one, which pods and images use."""
    metadata_options: MetadataOptions = MetadataOptions.unsaid()
    """How the machine, and pods on it, may ask for its metadata and credentials."""
    detailed_monitoring: Bool = False
    """CloudWatch metrics every minute."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        try:
            family = family_of(self.ami_family, self.amis)
        except ValueError as error:
            raise misplaced(("amis",), str(error)) from None
        if self.images == "ProposeChange" and self.pinned is None:
            raise misplaced(
                ("images",), "ProposeChange needs one alias with a version in amis, such as al2023@v20250505"
            )
        if self.role and self.instance_profile:
            raise misplaced(("role",), "give one of role and instanceProfile")
        check_user_data(family, self.user_data)
        return self

    @property
    def family(self) -> AmiFamily:
        """How a machine is told to join its cluster."""
        return family_of(self.ami_family, self.amis)

    @property
    def pinned(self) -> PinnedRelease | None:
        """The release that the one alias names; None where there is none, or it is `latest`."""
        family, _, version = self.amis[0].alias.partition("@") if len(self.amis) == 1 else ("", "", "latest")
        return None if not family or version == "latest" else PinnedRelease(family, version, ("amis", 0, "alias"))

    @property
    def custom_image(self) -> bool:
        """Whether the machine is told no more than the pool's own user data, so that nobody registers its taints."""
        return self.family == "Custom"
