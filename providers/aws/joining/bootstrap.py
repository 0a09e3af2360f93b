"""Amazon Linux 2 (and Ubuntu's images for EKS): `/etc/eks/bootstrap.sh`, after what the pool says, as MIME parts.

Source: awslabs/amazon-eks-ami `templates/al2/runtime/bootstrap.sh`, kubelet's flags.
"""

import shlex
from collections.abc import Iterator, Mapping

from model.kinds.kubelet import Kubelet
from providers.aws.joining.access import Joining, kubelet_flags
from providers.aws.joining.mime import SCRIPT, MimePart, document, is_mime, parts_of, with_interpreter
from providers.aws.joining.nodeadm import kubelet_config


def user_data(told: Joining) -> str:
    """The MIME document (plain text)."""
    text = told.template.user_data
    own = parts_of(text) if is_mime(text) else [MimePart(SCRIPT, with_interpreter(text))] if text.strip() else []
    return document([*own, MimePart(SCRIPT, _script(told))])


def _script(told: Joining) -> str:
    access, kubelet = told.access, told.template.kubelet
    words = ["/etc/eks/bootstrap.sh", access.name]
    if access.endpoint:
        words += ["--apiserver-endpoint", access.endpoint]
    if access.certificate_authority:
        words += ["--b64-cluster-ca", access.certificate_authority]
    if kubelet.cluster_dns:
        words += ["--dns-cluster-ip", kubelet.cluster_dns[0]]
        words += ["--ip-family", "ipv6"] if ":" in kubelet.cluster_dns[0] else []
    if kubelet.max_pods is not None:
        words += ["--use-max-pods", "false"]
    if flags := [*kubelet_flags(told), *_flags(kubelet)]:
        words += ["--kubelet-extra-args", " ".join(flags)]  # it puts them into a unit of systemd, where quotes stay
    if told.template.instance_store_policy == "RAID0":
        words += ["--local-disks", "raid0"]
    return "#!/bin/bash -xe\n" + " ".join(shlex.quote(word) for word in words) + "\n"


def _flags(kubelet: Kubelet) -> Iterator[str]:
    config = kubelet_config(kubelet)
    for key, (flag, sign) in _MAPPINGS.items():
        if said := config.get(key):
            yield f"--{flag}=" + ",".join(f"{name}{sign}{value}" for name, value in sorted(said.items()))
    for key, flag in _SCALARS.items():
        if key in config:
            value = config[key]
            yield f"--{flag}={str(value).lower() if isinstance(value, bool) else value}"


_MAPPINGS: Mapping[str, tuple[str, str]] = {
    "systemReserved": ("system-reserved", "="),
    "kubeReserved": ("kube-reserved", "="),
    "evictionHard": ("eviction-hard", "<"),
    "evictionSoft": ("eviction-soft", "<"),
    "evictionSoftGracePeriod": ("eviction-soft-grace-period", "="),
}
_SCALARS: Mapping[str, str] = {
    "maxPods": "max-pods",
    "podsPerCore": "pods-per-core",
    "evictionMaxPodGracePeriod": "eviction-max-pod-grace-period",
    "imageGCHighThresholdPercent": "image-gc-high-threshold",
    "imageGCLowThresholdPercent": "image-gc-low-threshold",
    "cpuCFSQuota": "cpu-cfs-quota",
}
