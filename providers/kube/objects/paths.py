"""Every resource the agent reads or writes; `deploy/base/rbac.yaml` grants exactly these."""

from typing import Final

from providers.kube import resources
from providers.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, ResourcePath

NAMESPACES: Final = ResourcePath("", "v1", "namespaces", namespaced=False)
PRIORITY_CLASSES: Final = ResourcePath("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
RUNTIME_CLASSES: Final = ResourcePath("node.k8s.io", "v1", "runtimeclasses", namespaced=False)
LIMIT_RANGES: Final = ResourcePath("", "v1", "limitranges", namespaced=True)
VOLUME_CLAIMS: Final = ResourcePath("", "v1", "persistentvolumeclaims", namespaced=True)
PERSISTENT_VOLUMES: Final = ResourcePath("", "v1", "persistentvolumes", namespaced=False)
STORAGE_CLASSES: Final = ResourcePath("storage.k8s.io", "v1", "storageclasses", namespaced=False)
DEVICE_CLASSES: Final = ResourcePath("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
DEVICE_TAINT_RULES: Final = ResourcePath("resource.k8s.io", "v1beta2", "devicetaintrules", namespaced=False)
RESOURCE_CLAIM_TEMPLATES: Final = ResourcePath("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
CSI_NODES: Final = ResourcePath("storage.k8s.io", "v1", "csinodes", namespaced=False)
POD_DISRUPTION_BUDGETS: Final = ResourcePath("policy", "v1", "poddisruptionbudgets", namespaced=True)
RESOURCE_QUOTAS: Final = ResourcePath("", "v1", "resourcequotas", namespaced=True)
NODES: Final = ResourcePath("", "v1", "nodes", namespaced=False)
EVENTS: Final = ResourcePath("", "v1", "events", namespaced=True)
CONFIG_MAPS: Final = ResourcePath("", "v1", "configmaps", namespaced=True)
DAEMON_SETS: Final = ResourcePath("apps", "v1", "daemonsets", namespaced=True)
STATEFUL_SETS: Final = ResourcePath("apps", "v1", "statefulsets", namespaced=True)
JOBS: Final = ResourcePath("batch", "v1", "jobs", namespaced=True)
JOB_SETS: Final = ResourcePath("jobset.x-k8s.io", "v1alpha2", "jobsets", namespaced=True)
PYTORCH_JOBS: Final = ResourcePath("kubeflow.org", "v1", "pytorchjobs", namespaced=True)
TF_JOBS: Final = ResourcePath("kubeflow.org", "v1", "tfjobs", namespaced=True)
XGBOOST_JOBS: Final = ResourcePath("kubeflow.org", "v1", "xgboostjobs", namespaced=True)
PADDLE_JOBS: Final = ResourcePath("kubeflow.org", "v1", "paddlejobs", namespaced=True)
JAX_JOBS: Final = ResourcePath("kubeflow.org", "v1", "jaxjobs", namespaced=True)
MPI_JOBS: Final = ResourcePath("kubeflow.org", "v2beta1", "mpijobs", namespaced=True)
RAY_CLUSTERS: Final = ResourcePath("ray.io", "v1", "rayclusters", namespaced=True)
RAY_JOBS: Final = ResourcePath("ray.io", "v1", "rayjobs", namespaced=True)
TRAIN_JOBS: Final = ResourcePath("trainer.kubeflow.org", "v1alpha1", "trainjobs", namespaced=True)
LEADER_WORKER_SETS: Final = ResourcePath("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", namespaced=True)
POD_GROUPS: Final = ResourcePath("scheduling.volcano.sh", "v1beta1", "podgroups", namespaced=True)
VOLCANO_JOBS: Final = ResourcePath("batch.volcano.sh", "v1alpha1", "jobs", namespaced=True)
WORKLOADS: Final = resources.WORKLOADS
NODE_CLAIMS: Final = resources.NODE_CLAIMS
FLEET_SYNCS: Final = resources.FLEET_SYNCS
QUEUES: Final = resources.QUEUES
NODE_POOLS: Final = resources.NODE_POOLS

ALL: Final = (
    NAMESPACES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    LIMIT_RANGES,
    VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    DEVICE_TAINT_RULES,
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    NODES,
    PODS,
    EVENTS,
    CONFIG_MAPS,
    DAEMON_SETS,
    STATEFUL_SETS,
    JOBS,
    JOB_SETS,
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    PADDLE_JOBS,
    JAX_JOBS,
    MPI_JOBS,
    RAY_CLUSTERS,
    RAY_JOBS,
    TRAIN_JOBS,
    LEADER_WORKER_SETS,
    VOLCANO_JOBS,
    POD_GROUPS,
    WORKLOADS,
    NODE_CLAIMS,
    FLEET_SYNCS,
    QUEUES,
    NODE_POOLS,
)
