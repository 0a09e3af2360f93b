"""Documents that are for other programs: what they are, why they are not read here, and what to do with them.

A fleet's folder is applied by nobody: the agent reads its own declarations in it, and those of Kueue, Karpenter and
Volcano that it can act upon. Whatever else stands there was meant for somebody who will not find it: an error.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Foreign(NamedTuple):
    """What to say of a document that is for another program."""

    what: str
    why: str
    do: str


_ELSEWHERE = "keep it in a folder that is applied to the cluster, outside the fleet's"
_NOT_APPLIED = "Muster applies nothing of Kubernetes' own"
_WORK = Foreign("work", "a fleet repository declares capacity and queues", "submit it to the cluster")
_TOOL = "keep it outside the fleet's folder"
_SECRET = Foreign(
    "a Secret",
    "Muster reads no secret from git, where everybody who may read the repository reads it too",
    "remove it and change what it holds; the agent's settings name files and variables for its own",
)
_STATUS = Foreign("an object that the agent writes", "it is a report and no declaration", "remove it")
_PRIORITY = Foreign(
    "a PriorityClass of Kubernetes",
    "it orders pods, and gangs have classes of their own",
    "declare a PriorityClass of muster.dev/v1alpha1, or a WorkloadPriorityClass of Kueue",
)
_LIMITS = Foreign("a quota of a namespace", _NOT_APPLIED, "declare quotas in a Team, or apply it to the cluster")
_NODE = Foreign("a machine", "machines are bought for a NodePool and observed, not declared", "declare a NodePool")
_LIST = Foreign("a list", "each declaration is a document of its own", "write its items as documents, with --- between")

_KINDS: Final[Mapping[tuple[str, str], Foreign]] = {
    ("", "Secret"): _SECRET,
    ("", "List"): _LIST,
    ("", "Node"): _NODE,
    ("", "ResourceQuota"): _LIMITS,
    ("", "LimitRange"): _LIMITS,
    ("", "Pod"): _WORK,
    ("", "ReplicationController"): _WORK,
    ("batch", "Job"): _WORK,
    ("batch", "CronJob"): _WORK,
    ("scheduling.k8s.io", "PriorityClass"): _PRIORITY,
    **{("muster.dev", kind): _STATUS for kind in ("Workload", "NodeClaim", "FleetSync")},
}
"""(API group, kind), before anything else."""
_GROUPS: Final[tuple[tuple[str, Foreign], ...]] = (
    ("jobset.x-k8s.io", _WORK),
    ("leaderworkerset.x-k8s.io", _WORK),
    ("kubeflow.org", _WORK),
    ("ray.io", _WORK),
    ("batch.volcano.sh", _WORK),
    ("apps", Foreign("work", _NOT_APPLIED, "apply it to the cluster; its pods are served without being declared")),
    ("kustomize.config.k8s.io", Foreign("a kustomization", "Muster builds nothing: it reads files as they are", _TOOL)),
    ("toolkit.fluxcd.io", Foreign("configuration of Flux", "Flux reads it from the folder that Flux watches", _TOOL)),
    ("argoproj.io", Foreign("configuration of Argo", "Argo reads it from the cluster", _TOOL)),
    ("eksctl.io", Foreign("configuration of eksctl", "it is read by eksctl only", _TOOL)),
    ("cluster.x-k8s.io", Foreign("a part of Cluster API", "Muster buys machines by its own NodePools", _TOOL)),
    ("resource.k8s.io", Foreign("a part of dynamic resource allocation", _NOT_APPLIED, _ELSEWHERE)),
    ("apiextensions.k8s.io", Foreign("a custom resource definition", _NOT_APPLIED, _ELSEWHERE)),
    ("rbac.authorization.k8s.io", Foreign("a permission", _NOT_APPLIED, _ELSEWHERE)),
    ("monitoring.coreos.com", Foreign("configuration of Prometheus", _NOT_APPLIED, _ELSEWHERE)),
    ("k8s.io", Foreign("an object of Kubernetes", _NOT_APPLIED, _ELSEWHERE)),
    ("policy", Foreign("an object of Kubernetes", _NOT_APPLIED, _ELSEWHERE)),
    ("autoscaling", Foreign("an object of Kubernetes", _NOT_APPLIED, _ELSEWHERE)),
)
"""Endings of API groups, the first that fits."""
CORE = Foreign("an object of Kubernetes", _NOT_APPLIED, _ELSEWHERE)
"""Of the group without a name; a kind of ours in it is a slip in the version."""
_SHAPES: Final[tuple[tuple[frozenset[str], Foreign], ...]] = (
    (
        frozenset({"resources", "patches", "bases", "generators", "configMapGenerator", "secretGenerator"}),
        Foreign("a kustomization", "Muster builds nothing: it reads files as they are", _TOOL),
    ),
    (frozenset({"replicaCount", "nameOverride"}), Foreign("values of a Helm chart", "Muster renders no charts", _TOOL)),
    (frozenset({"services"}), Foreign("a Compose file", "it is no declaration", _TOOL)),
    (
        frozenset({"jobs", "stages", "repos", "steps"}),
        Foreign("configuration of a CI system", "it is run there", _TOOL),
    ),
)
"""Keys of documents without apiVersion and kind, any of which tells what they are."""
_CHART = Foreign("a Helm chart", "Muster renders no charts", "render it, or keep it outside the fleet's folder")
_TEMPLATE = re.compile(r"\{\{-?[^}\n]*\}\}")
_CORE_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")


def foreign(data: Mapping[str, Any]) -> Foreign | None:
    """What is known of a document that is none of ours; None where it may be a slip in one of ours."""
    api_version, kind = data.get("apiVersion"), data.get("kind")
    if kind == "Secret":
        return _SECRET
    if kind is None:
        return _of_shape(data)
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return None
    group = api_version.rpartition("/")[0]
    ending = next((known for end, known in _GROUPS if group == end or group.endswith(f".{end}")), None)
    core = CORE if _CORE_VERSION.fullmatch(api_version) else None
    return _KINDS.get((group, kind)) or ending or core


def _of_shape(data: Mapping[str, Any]) -> Foreign | None:
    """What is known of a document without a kind, by its keys."""
    if data.get("apiVersion") in ("v1", "v2") and {"name", "version"} <= data.keys():
        return _CHART
    if "apiVersion" in data:
        return None
    return next((known for keys, known in _SHAPES if keys & data.keys()), None)


def looks_like_a_template(text: str) -> bool:
    """Whether a file that is not YAML holds what Helm and others fill in."""
    return _TEMPLATE.search(text) is not None
