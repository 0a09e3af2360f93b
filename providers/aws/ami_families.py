"""Families of machine images: what follows from one, in one entry for each.

How its machines are told to join, which of its published images suits a machine, what disks they have, and what their
kubelets keep. What a pool may write of a family is in `model.kinds.aws`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from model.kinds.aws import AmiFamily, BlockDeviceMapping, Ebs
from providers.aws.joining import bootstrap, bottlerocket, nodeadm
from providers.aws.joining.access import Joining

EC2_ARCHITECTURES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "arm64"}
"""Kubernetes' word for a processor -> EC2's."""


_VERSION = re.compile(r"[0-9]{1,10}(\.[0-9]{1,10}){0,3}")


class ImageRelease(NamedTuple):
    """One of the images that are published of a family."""

    version: str
    """`latest`, or `v` and numbers."""
    kubernetes: str
    """Such as `1.34`."""
    arch: str
    """`amd64`, `arm64`."""
    accelerator: str
    """Who made the machine's GPUs or accelerators: `nvidia`, `aws`; empty = it has none."""


@dataclass(frozen=True, slots=True)
class KubeletRules:
    """What the kubelets of a family do differently when they work out the size of their node."""

    eni_limited_pods: bool = True
    """Pods are limited by addresses; otherwise 110."""
    reserves_for_eni_pods: bool = True
    """Memory is reserved for all pods the addresses allow, even where fewer may run."""
    pods_per_core: bool = True
    """Whether the setting `podsPerCore` is known."""


@dataclass(frozen=True, slots=True)
class AmiFamilyTraits:
    """All that follows from the family of a machine's image."""

    user_data: Callable[[Joining], str]
    """What a machine is told to join its cluster (plain text)."""
    parameter: Callable[[ImageRelease], str] | None = None
    """The public SSM parameter that holds the id of an image; None = none are published.

    Sources: Amazon EKS User Guide, "Retrieve recommended ... AMI IDs"; Bottlerocket, "Finding an AMI".
    """
    newest: Callable[[ImageRelease], str] | None = None
    """The public SSM parameter that holds the name of the newest release; None = none is published."""
    disks: tuple[BlockDeviceMapping, ...] = ()
    """Disks of a pool that names none; an image of one's own brings them."""
    data_device: str = ""
    """Where pods and images are kept; empty = not known."""
    kubelet: KubeletRules = KubeletRules()


def _al2023(release: ImageRelease) -> str:
    version, kubernetes, arch, accelerator = release
    cpu = EC2_ARCHITECTURES.get(arch, arch)
    variant = {"nvidia": "nvidia", "aws": "neuron"}.get(accelerator, "standard")
    found = "recommended" if version == "latest" else f"amazon-eks-node-al2023-{cpu}-{variant}-{kubernetes}-{version}"
    return f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{cpu}/{variant}/{found}/image_id"


def _al2(release: ImageRelease) -> str:
    version, kubernetes, arch, accelerator = release
    suffix, name = ("-arm64", "arm64-node") if arch == "arm64" else ("", "node")
    if accelerator in {"nvidia", "aws"}:
        suffix, name = "-gpu", "gpu-node"
    found = "recommended" if version == "latest" else f"amazon-eks-{name}-{kubernetes}-{version}"
    return f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{suffix}/{found}/image_id"


def _bottlerocket(release: ImageRelease) -> str:
    version, kubernetes, arch, accelerator = release
    variant = "-nvidia" if accelerator == "nvidia" else ""
    cpu = EC2_ARCHITECTURES.get(arch, arch)
    return f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{variant}/{cpu}/{version.removeprefix('v')}/image_id"


def _eks_release(image: Callable[[ImageRelease], str]) -> Callable[[ImageRelease], str]:
    """Beside the id of the recommended image EKS publishes its release, such as `1.34.1-20251112`."""
    return lambda release: image(release._replace(version="latest")).removesuffix("image_id") + "release_version"


def _bottlerocket_release(release: ImageRelease) -> str:
    """Beside the id of the latest image Bottlerocket publishes its version, such as `1.49.0-713f44ce`."""
    return _bottlerocket(release._replace(version="latest")).removesuffix("image_id") + "image_version"


def version_of_release(published: str) -> str:
    """Returns the version of an alias for a release as it is published; empty where it cannot be one.

    `1.34.1-20251112` of EKS is `v20251112`, `1.49.0-713f44ce` of Bottlerocket is `v1.49.0`.
    """
    first, dash, last = published.partition("-")
    version = last if len(last) == len("20251112") and last.isdigit() else first
    return f"v{version}" if dash and _VERSION.fullmatch(version) else ""


def _disk(device: str, size_gib: int) -> BlockDeviceMapping:
    volume = Ebs.known(volume_size=size_gib, volume_type="gp3", encrypted=True, delete_on_termination=True)
    return BlockDeviceMapping.known(device_name=device, ebs=volume)


AMI_FAMILIES: Mapping[AmiFamily, AmiFamilyTraits] = {
    "AL2023": AmiFamilyTraits(
        nodeadm.user_data, _al2023, _eks_release(_al2023), (_disk("/dev/xvda", 20),), "/dev/xvda"
    ),
    "AL2": AmiFamilyTraits(bootstrap.user_data, _al2, _eks_release(_al2), (_disk("/dev/xvda", 20),), "/dev/xvda"),
    "Bottlerocket": AmiFamilyTraits(
        bottlerocket.user_data,
        _bottlerocket,
        _bottlerocket_release,
        (_disk("/dev/xvda", 4), _disk("/dev/xvdb", 20)),
        "/dev/xvdb",
        KubeletRules(reserves_for_eni_pods=False, pods_per_core=False),
    ),
    "Custom": AmiFamilyTraits(lambda told: told.template.user_data),
}
