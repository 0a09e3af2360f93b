"""What a machine is told at birth: a nodeadm `NodeConfig` (EKS AL2023) and the pool's own script, as MIME parts.

Source: awslabs/amazon-eks-ami nodeadm `doc/api.md`; kubelet `--node-labels` (kubernetes `pkg/apis/core/v1` and
`cmd/kubelet/app/options` on which kubernetes.io labels a kubelet may give itself).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from model.kinds import Taint
from providers.ports import CloudRejected

LIMIT_BYTES = 16_384
"""EC2 accepts this much user data, before base64."""

_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_OWN_KUBERNETES_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_OWN_KUBERNETES_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How a node finds and trusts its API server; `certificate_authority` is base64 of PEM."""

    name: str
    endpoint: str = ""
    certificate_authority: str = ""
    service_cidr: str = ""


def node_user_data(access: ClusterAccess, labels: Mapping[str, str], taints: Iterable[Taint], script: str) -> str:
    """The MIME document (plain text). Raises `CloudRejected` for labels or taints that are none, and when too long.

    `kubernetes.io` labels that a kubelet must not give itself are left out, as it would refuse to start; whoever
    registers the node writes them.
    """
    parts = [("application/node.eks.aws", _node_config(access, labels, taints))]
    if script:
        parts.insert(0, ('text/x-shellscript; charset="us-ascii"', _with_interpreter(script)))
    document = _mime(parts)
    if len(document.encode()) > LIMIT_BYTES:
        raise CloudRejected(f"user data is {len(document.encode())} bytes long; EC2 accepts {LIMIT_BYTES}")
    return document


def _node_config(access: ClusterAccess, labels: Mapping[str, str], taints: Iterable[Taint]) -> str:
    cluster = {
        "name": access.name,
        "apiServerEndpoint": access.endpoint,
        "certificateAuthority": access.certificate_authority,
        "cidr": access.service_cidr,
    }
    lines = ["apiVersion: node.eks.aws/v1alpha1", "kind: NodeConfig", "spec:", "  cluster:"]
    lines += [f"    {key}: {json.dumps(value)}" for key, value in cluster.items() if value]
    lines += ["  kubelet:", "    flags:"]
    lines += [f"      - {json.dumps(flag)}" for flag in kubelet_flags(labels, taints)]
    return "\n".join(lines) + "\n"


def kubelet_flags(labels: Mapping[str, str], taints: Iterable[Taint]) -> list[str]:
    """`--node-labels` and `--register-with-taints`, sorted, so that equal nodes get equal text."""
    for key, value in labels.items():
        _check(_NAME.fullmatch(key) and _VALUE.fullmatch(value), f"{key}={value} is not a label")
    chosen = [f"{key}={value}" for key, value in sorted(labels.items()) if _kubelet_may_set(key)]
    marks = sorted({(taint.key, taint.value, taint.effect) for taint in taints})
    for key, value, _ in marks:
        _check(_NAME.fullmatch(key) and _VALUE.fullmatch(value), f"{key}={value} is not a taint")
    flags = []
    if chosen:
        flags.append("--node-labels=" + ",".join(chosen))
    if marks:
        flags.append("--register-with-taints=" + ",".join(f"{key}={value}:{effect}" for key, value, effect in marks))
    return flags


def _check(valid: object, message: str) -> None:
    if not valid:
        raise CloudRejected(message)


def _kubelet_may_set(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    reserved = any(domain == name or domain.endswith("." + name) for name in ("kubernetes.io", "k8s.io"))
    if not reserved or key in _OWN_KUBERNETES_LABELS:
        return True
    return any(domain == name or domain.endswith("." + name) for name in _OWN_KUBERNETES_DOMAINS)


def _with_interpreter(script: str) -> str:
    """cloud-init runs a part only if it names its interpreter."""
    return script if script.startswith("#!") else "#!/bin/bash\n" + script


def _mime(parts: list[tuple[str, str]]) -> str:
    """Multi-part text; the boundary is a hash of the parts, so no part can contain it or forge another one."""
    boundary = "==" + sha256(json.dumps(parts).encode()).hexdigest()[:32] + "=="
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for content_type, content in parts:
        lines += [f"--{boundary}", f"Content-Type: {content_type}", "", content]
    return "\n".join([*lines, f"--{boundary}--", ""])
