"""Amazon Linux 2023: a `NodeConfig` for nodeadm, and what the pool says beside it, as MIME parts.

Source: awslabs/amazon-eks-ami nodeadm `doc/api.md`. Of several configurations later ones win, and flags add up: the
pool has the last word, as with Karpenter (`pkg/providers/amifamily/bootstrap/nodeadm.go`).
"""

import json
from typing import Any

import yaml

from model.kinds.kubelet import Kubelet
from providers.aws.joining.access import Joining, kubelet_flags
from providers.aws.joining.mime import NODE_CONFIG, SCRIPT, MimePart, document, is_mime, parts_of, with_interpreter


def user_data(told: Joining) -> str:
    """The MIME document (plain text)."""
    return document([MimePart(NODE_CONFIG, node_config(told)), *said_by_pool(told.template.user_data)])


def said_by_pool(text: str) -> list[MimePart]:
    """The pool's own parts: MIME as it is, a mapping in YAML as a configuration, all else as a script."""
    if not text.strip():
        return []
    if is_mime(text):
        return parts_of(text)
    if not text.startswith("#!") and _is_mapping(text):
        return [MimePart(NODE_CONFIG, text)]
    return [MimePart(SCRIPT, with_interpreter(text))]


def node_config(told: Joining) -> str:
    """What the agent has to say, in YAML."""
    access = told.access
    cluster = {
        "name": access.name,
        "apiServerEndpoint": access.endpoint,
        "certificateAuthority": access.certificate_authority,
        "cidr": access.service_cidr,
    }
    lines = ["apiVersion: node.eks.aws/v1alpha1", "kind: NodeConfig", "spec:", "  cluster:"]
    lines += [f"    {key}: {json.dumps(value)}" for key, value in cluster.items() if value]
    if told.template.instance_store_policy == "RAID0":
        lines += ["  instance:", "    localStorage:", "      strategy: RAID0"]
    lines += ["  kubelet:"]
    if config := kubelet_config(told.template.kubelet):
        lines += ["    config:"]
        lines += [f"      {key}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(config.items())]
    lines += ["    flags:"]
    lines += [f"      - {json.dumps(flag)}" for flag in kubelet_flags(told)]
    return "\n".join(lines) + "\n"


def kubelet_config(kubelet: Kubelet) -> dict[str, Any]:
    """What is said, as a `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`) calls it."""
    return kubelet.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _is_mapping(text: str) -> bool:
    try:
        return isinstance(yaml.load(text, yaml.CSafeLoader), dict)
    except yaml.YAMLError:
        return False
