"""`EC2NodeClass` of Karpenter, in both versions that were served: what a machine is born with.

What `v1beta1` writes differently is converted to `v1` when it is read, as Karpenter's webhook does:

| v1beta1 | v1 |
|---|---|
| `amiFamily: AL2023` without `amiSelectorTerms` | `amiSelectorTerms: [{alias: al2023@latest}]` |
| `amiFamily: Ubuntu` with `amiSelectorTerms` | `amiFamily: AL2` with a 20Gi root volume at `/dev/sda1` |
| `metadataOptions.httpPutResponseHopLimit`, 2 if unset | the same, said |
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from model.kinds import MatchCriteria
from model.kinds.aws import (
    AmiFamily,
    AmiTerm,
    AmiTerms,
    BlockDeviceMapping,
    BlockDevices,
    MetadataOptions,
    SecurityGroupTerm,
    SelectorTags,
    SubnetTerm,
    check_user_data,
    family_of,
)
from model.kinds.base import Bool, Spec, Tags
from model.kinds.errors import misplaced, unsupported
from model.kinds.kubelet import Kubelet
from model.upstream.base import UpstreamKind
from model.upstream.karpenter.node_pool import NodeMeta

_EFA = "remove it: machines for pods that ask for vpc.amazonaws.com/efa have it; placement.efa of our NodePool: all"
_UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "connectionTracking": "remove it: EC2's defaults hold",
        "context": "remove it: EC2 reserves it",
        "cpuOptions": "remove it: machines run with the processor options of their type",
        "enclaveOptions": "remove it: machines run without enclaves",
        "ipPrefixCount": "remove it: let the VPC CNI assign prefixes",
        "networkInterfaces": _EFA,
    }
)
_RESTRICTED_TAGS = frozenset(
    {"eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"}
)
_CLUSTER_TAG = "kubernetes.io/cluster"


def _check_own_tags(tags: Tags) -> Tags:
    for key in tags:
        if not key or key in _RESTRICTED_TAGS or key.startswith(_CLUSTER_TAG):
            raise misplaced((key,), f"the tag {key!r} is not for users to set" if key else "a tag needs a key")
    return tags


OwnTags = Annotated[Tags, AfterValidator(_check_own_tags)]


class PlacementGroupSelector(Spec):
    """One placement group."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({"id": "write the name of the group"})

    name: str = ""
    """The name of an existing placement group."""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not self.name:
            raise misplaced((), "give the name of a placement group")
        return self


class CapacityReservationTerm(Spec):
    """Capacity reservations by id, or by what they are."""

    id: Annotated[str, Field(pattern=r"^(cr-[0-9a-z]+)?$")] = ""
    """A reservation's id."""
    tags: SelectorTags = Field(default_factory=dict)
    """Tags a reservation must carry; `*` = any value."""
    owner_id: Annotated[str, Field(pattern=r"^([0-9]{12})?$")] = Field(default="", alias="ownerID")
    """The account that owns it."""
    instance_match_criteria: MatchCriteria | None = None
    """Whether EC2 lets any launch into it that suits (`open`), or only those that name it."""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not (self.id or self.tags or self.instance_match_criteria):
            raise ValueError("give at least one of id, tags and instanceMatchCriteria")
        if self.id and (self.tags or self.owner_id or self.instance_match_criteria):
            raise ValueError("id stands alone")
        return self


class _CommonSpec(Spec):
    """What both versions write alike."""

    unsupported: ClassVar[Mapping[str, str]] = _UNSUPPORTED

    subnet_selector_terms: Annotated[tuple[SubnetTerm, ...], Field(min_length=1, max_length=30)]
    """Where machines are put: subnets that any of these finds."""
    security_group_selector_terms: Annotated[tuple[SecurityGroupTerm, ...], Field(min_length=1, max_length=30)]
    """Their security groups: all that any of these finds."""
    user_data: str = ""
    """What machines are told beside what the agent has to say, in the form of their family."""
    role: str = ""
    """IAM role of the machines, for which the agent keeps an instance profile."""
    instance_profile: str = ""
    """IAM instance profile of the machines, instead of `role`."""
    associate_public_ip_address: Bool | None = Field(default=None, alias="associatePublicIPAddress")
    """Whether machines get a public address; unset = as the subnet says."""
    block_device_mappings: BlockDevices = ()
    """Disks; unset = 20Gi of gp3, encrypted (and 4Gi for the system of Bottlerocket)."""
    instance_store_policy: Literal["RAID0"] | None = None
    """`RAID0`: local NVMe disks become one, which pods and images use."""
    detailed_monitoring: Bool = False
    """CloudWatch metrics every minute."""
    tags: OwnTags = Field(default_factory=dict)
    """Extra EC2 tags on instances and volumes."""

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        if bool(self.role) == bool(self.instance_profile):
            raise ValueError("give exactly one of role and instanceProfile")
        return self


_WINDOWS = "machines run Linux here: remove it"


class EC2NodeClassSpec(_CommonSpec):
    """What machines are born with."""

    ami_selector_terms: AmiTerms
    """Machine images; of all that are found, the newest that suits the machine."""
    ami_family: AmiFamily | None = None
    """How the machine is told to join its cluster; unset = as the alias says. Needed without an alias."""
    kubelet: Kubelet = Kubelet.unsaid()
    """Settings of the kubelet."""
    metadata_options: MetadataOptions = MetadataOptions.unsaid()
    """How the machine, and pods on it, may ask for its metadata and credentials."""
    placement_group_selector: PlacementGroupSelector | None = None
    """An existing placement group."""
    capacity_reservation_selector_terms: Annotated[tuple[CapacityReservationTerm, ...], Field(max_length=30)] = ()
    """Capacity reservations that machines of the capacity type `reserved` come from: those that any of these finds."""

    @model_validator(mode="before")
    @classmethod
    def _no_windows(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        if str(data.get("amiFamily", "")).startswith("Windows"):
            raise unsupported(("amiFamily",), "machines of Windows are not supported", _WINDOWS)
        terms = data.get("amiSelectorTerms")
        for index, term in enumerate(terms if isinstance(terms, list) else ()):
            if isinstance(term, Mapping) and str(term.get("alias", "")).startswith("windows"):
                place = ("amiSelectorTerms", index, "alias")
                raise unsupported(place, "machines of Windows are not supported", _WINDOWS)
        return data

    @model_validator(mode="after")
    def _family_is_known(self) -> Self:
        try:
            family = family_of(self.ami_family, self.ami_selector_terms)
        except ValueError as error:
            raise misplaced(("amiSelectorTerms",), str(error)) from None
        if self.ami_family is None and not self.ami_selector_terms[0].alias:
            raise misplaced(("amiSelectorTerms",), "images without an alias need amiFamily")
        check_user_data(family, self.user_data)
        return self


class EC2NodeClass(UpstreamKind):
    """What machines of NodePools of Karpenter are born with."""

    api_version: Literal["karpenter.k8s.aws/v1"]
    kind: Literal["EC2NodeClass"] = "EC2NodeClass"
    metadata: NodeMeta
    spec: EC2NodeClassSpec


class MetadataOptionsV1Beta1(MetadataOptions):
    """How the machine, and pods on it, may ask for its metadata and credentials."""

    http_put_response_hop_limit: Annotated[int, Field(strict=True, ge=1, le=64)] = 2
    """Network hops an answer may take."""


class EC2NodeClassSpecV1Beta1(_CommonSpec):
    """What machines are born with."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {**_UNSUPPORTED, "capacityReservationSelectorTerms": "write the class in karpenter.k8s.aws/v1"}
    )

    ami_family: AmiFamily | Literal["Ubuntu"]
    """How the machine is told to join its cluster; without terms also which images: the current ones."""
    ami_selector_terms: Annotated[tuple[AmiTerm, ...], Field(max_length=30)] = ()
    """Machine images; of all that are found, the newest that suits the machine."""
    metadata_options: MetadataOptionsV1Beta1 = MetadataOptionsV1Beta1.unsaid()
    """How the machine, and pods on it, may ask for its metadata and credentials."""

    @model_validator(mode="before")
    @classmethod
    def _no_windows(cls, data: object) -> object:
        if isinstance(data, Mapping) and str(data.get("amiFamily", "")).startswith("Windows"):
            raise unsupported(("amiFamily",), "machines of Windows are not supported", _WINDOWS)
        return data

    @model_validator(mode="after")
    def _family_and_terms(self) -> Self:
        for index, term in enumerate(self.ami_selector_terms):
            if term.alias or term.ssm_parameter:
                key = "alias" if term.alias else "ssmParameter"
                raise misplaced(("amiSelectorTerms", index, key), f"{key} needs karpenter.k8s.aws/v1")
        if self.ami_family in {"Custom", "Ubuntu"} and not self.ami_selector_terms:
            raise misplaced(("amiFamily",), f"images of {self.ami_family} need amiSelectorTerms")
        check_user_data(self.ami_family, self.user_data)
        return self


class EC2NodeClassV1Beta1(UpstreamKind):
    """What machines of NodePools of Karpenter are born with, as it was written before v1."""

    api_version: Literal["karpenter.k8s.aws/v1beta1"]
    kind: Literal["EC2NodeClass"] = "EC2NodeClass"
    metadata: NodeMeta
    spec: EC2NodeClassSpecV1Beta1


_UBUNTU_ROOT = BlockDeviceMapping.model_validate(
    {
        "deviceName": "/dev/sda1",
        "rootVolume": True,
        "ebs": {"volumeSize": "20Gi", "volumeType": "gp3", "encrypted": True},
    }
)


def current_class(old: EC2NodeClassV1Beta1) -> EC2NodeClass:
    """Returns the same EC2NodeClass as `v1` says it."""
    said = {name: getattr(old.spec, name) for name in old.spec.model_fields_set}
    family = old.spec.ami_family
    if family == "Ubuntu":
        said["ami_family"] = "AL2"
        said.setdefault("block_device_mappings", (_UBUNTU_ROOT,))
    elif not old.spec.ami_selector_terms:
        del said["ami_family"]
        said["ami_selector_terms"] = (AmiTerm(alias=f"{family.lower()}@latest"),)
    options = old.spec.metadata_options
    said["metadata_options"] = MetadataOptions(
        **{name: getattr(options, name) for name in MetadataOptions.model_fields}
    )
    return EC2NodeClass.model_construct(
        api_version="karpenter.k8s.aws/v1",
        kind="EC2NodeClass",
        metadata=old.metadata,
        spec=EC2NodeClassSpec.model_construct(**said),
    )
