"""The configuration of NVIDIA's device plugin for GPUs that are offered several times: one a way of sharing, by name.

A node asks for a configuration by the label `nvidia.com/device-plugin.config`. The name says all that is in it, so that
a changed declaration is another name. Source: NVIDIA/k8s-device-plugin `api/config/v1/{sharing,replicas}.go`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import yaml

from model.kinds.node_pool import Sharing
from model.labels import GPU_RESOURCE


def plugin_config_name(sharing: Sharing) -> str:
    """The configuration of a pool's machines, such as `time-slicing-4`; empty where GPUs are not offered as replicas.

    `-renamed` and `-one-each` follow where the fields of these meanings say so.
    """
    way = sharing.by_replicas
    if way is None:
        return ""
    kind = "time-slicing" if sharing.time_slicing else "mps"
    one_each = sharing.one_each and sharing.mps is None  # under MPS it goes without saying
    return f"{kind}-{way.replicas}{'-renamed' * way.rename_by_default}{'-one-each' * one_each}"


def plugin_configs(sharings: Iterable[Sharing]) -> dict[str, str]:
    """Name -> text of the configuration, for all ways of sharing among these."""
    named = {plugin_config_name(sharing): sharing for sharing in sharings}
    return {name: yaml.safe_dump(_config(sharing), sort_keys=True) for name, sharing in sorted(named.items()) if name}


def with_carried_configs(
    configs: Mapping[str, str], published: Mapping[str, str], carried: Collection[str]
) -> dict[str, str]:
    """The configurations, and those published before that nodes still carry: without its own a node has no GPUs."""
    return {name: published[name] for name in sorted(carried) if name in published} | dict(configs)


def _config(sharing: Sharing) -> dict[str, Any]:
    way, kind = sharing.by_replicas, "timeSlicing" if sharing.time_slicing else "mps"
    shared: dict[str, Any] = {"resources": [{"name": GPU_RESOURCE, "replicas": way.replicas if way else 1}]}
    if way is not None and way.rename_by_default:
        shared["renameByDefault"] = True
    if sharing.one_each:
        shared["failRequestsGreaterThanOne"] = True
    return {"version": "v1", "sharing": {kind: shared}}
