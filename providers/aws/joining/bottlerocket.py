"""Bottlerocket: its settings in TOML, those of the pool with what the agent has to say over them.

Source: Bottlerocket's settings (`settings.kubernetes`, `settings.bootstrap-commands`, `settings.autoscaling`).
Merged as Karpenter does (`pkg/providers/amifamily/bootstrap/bottlerocket.go`).
"""

from typing import Any

from model.kinds.kubelet import Kubelet
from providers.aws.joining.access import Joining
from providers.aws.joining.nodeadm import kubelet_config
from providers.aws.joining.toml import to_toml
from providers.ports import CloudRejected

_MOUNT = "000-mount-instance-storage"
_BOUND = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
_KUBELET = {
    "maxPods": "max-pods",
    "systemReserved": "system-reserved",
    "kubeReserved": "kube-reserved",
    "evictionHard": "eviction-hard",
    "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period",
    "evictionMaxPodGracePeriod": "eviction-max-pod-grace-period",
    "cpuCFSQuota": "cpu-cfs-quota-enforced",
}
_PERCENTAGES = {
    "imageGCHighThresholdPercent": "image-gc-high-threshold-percent",
    "imageGCLowThresholdPercent": "image-gc-low-threshold-percent",
}
"""Bottlerocket wants them as text."""


def user_data(told: Joining) -> str:
    """The settings; raises `CloudRejected` for user data that is no TOML."""
    import tomllib

    try:
        said = tomllib.loads(told.template.user_data)
    except tomllib.TOMLDecodeError as error:
        raise CloudRejected(f"userData of Bottlerocket is TOML: {error}") from error
    settings = _table(said, "settings")
    kubernetes = _table(settings, "kubernetes")
    access = told.access
    cluster = {
        "cluster-name": access.name,
        "api-server": access.endpoint,
        "cluster-certificate": access.certificate_authority,
    }
    kubernetes |= {key: value for key, value in cluster.items() if value}
    kubernetes |= _kubelet(told.template.kubelet)
    kubernetes["node-labels"] = {**_table(kubernetes, "node-labels"), **told.labels}
    kubernetes["node-taints"] = _taints(told)
    if "should-wait" in (autoscaling := settings.get("autoscaling", {})):
        autoscaling["should-wait"] = False  # machines are in no scaling group; waiting for one would hold the kubelet
    if told.template.instance_store_policy == "RAID0":
        _table(settings, "bootstrap-commands")[_MOUNT] = {
            "commands": [
                ["apiclient", "ephemeral-storage", "init"],
                ["apiclient", "ephemeral-storage", "bind", "--dirs", *_BOUND],
            ],
            "essential": True,
            "mode": "always",
        }
    return to_toml(said)


def _table(within: dict[str, Any], key: str) -> dict[str, Any]:
    table = within.setdefault(key, {})
    if not isinstance(table, dict):
        raise CloudRejected(f"userData of Bottlerocket: {key} is a table")
    return table


def _kubelet(kubelet: Kubelet) -> dict[str, Any]:
    """Bottlerocket knows no `podsPerCore`."""
    config = kubelet_config(kubelet)
    found = {name: config[key] for key, name in _KUBELET.items() if key in config}
    found |= {name: str(config[key]) for key, name in _PERCENTAGES.items() if key in config}
    if kubelet.cluster_dns:
        found["cluster-dns-ip"] = kubelet.cluster_dns[0]
    return found


def _taints(told: Joining) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for mark in told.taints:
        found.setdefault(mark.key, []).append(f"{mark.value}:{mark.effect}")
    return found
