"""Every resource the agent reads or writes; `deploy/base/rbac.yaml` grants exactly these."""

from typing import Final

from providers.kube.objects.names import GROUP
from providers.kube.resources import PODS, ResourcePath

_VERSION: Final = "v1alpha1"

NODES: Final = ResourcePath("", "v1", "nodes", namespaced=False)
EVENTS: Final = ResourcePath("", "v1", "events", namespaced=True)
CONFIG_MAPS: Final = ResourcePath("", "v1", "configmaps", namespaced=True)
DAEMON_SETS: Final = ResourcePath("apps", "v1", "daemonsets", namespaced=True)
JOBS: Final = ResourcePath("batch", "v1", "jobs", namespaced=True)
JOB_SETS: Final = ResourcePath("jobset.x-k8s.io", "v1alpha2", "jobsets", namespaced=True)
WORKLOADS: Final = ResourcePath(GROUP, _VERSION, "workloads", namespaced=True)
NODE_CLAIMS: Final = ResourcePath(GROUP, _VERSION, "nodeclaims", namespaced=False)
FLEET_SYNCS: Final = ResourcePath(GROUP, _VERSION, "fleetsyncs", namespaced=False)
QUEUES: Final = ResourcePath(GROUP, _VERSION, "queues", namespaced=False)
NODE_POOLS: Final = ResourcePath(GROUP, _VERSION, "nodepools", namespaced=False)

JOB_KINDS: Final = {"Job": JOBS, "JobSet": JOB_SETS}
"""Kind of a `JobRef` -> where it lives."""

ALL: Final = (
    NODES,
    PODS,
    EVENTS,
    CONFIG_MAPS,
    DAEMON_SETS,
    JOBS,
    JOB_SETS,
    WORKLOADS,
    NODE_CLAIMS,
    FLEET_SYNCS,
    QUEUES,
    NODE_POOLS,
)
