"""The built-in resources, as a table (Kubernetes API reference; JobSet v1alpha2 from jobset.sigs.k8s.io)."""

from dataclasses import replace

from providers.sim.store.jobset_schema import jobset_schema
from providers.sim.store.registry import Resource
from providers.sim.store.releases import LATEST, Release

_STATUS = frozenset({"status"})
_SCALED = frozenset({"status", "scale"})
_WORKLOAD_SCALE = (".spec.replicas", ".status.replicas", ".status.selector")

_Row = tuple[str, str, str, str, frozenset[str], bool]
_MUTATING_POLICIES: tuple[_Row, ...] = (
    ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", "C", "", frozenset(), True),
    ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "C", "", frozenset(), True),
)
_RESOURCE_CLAIMS: tuple[_Row, ...] = (
    ("deviceclasses", "DeviceClass", "C", "", frozenset(), True),
    ("resourceclaims", "ResourceClaim", "N", "", _STATUS, False),
    ("resourceclaimtemplates", "ResourceClaimTemplate", "N", "", frozenset(), False),
    ("resourceslices", "ResourceSlice", "C", "", frozenset(), True),
)
_TAINT_RULES: _Row = ("devicetaintrules", "DeviceTaintRule", "C", "", _STATUS, True)

# group/version: plural, Kind, scope (N = namespaced, C = cluster), short names, subresources, counts generations
_TABLE: dict[str, tuple[_Row, ...]] = {
    "/v1": (
        ("namespaces", "Namespace", "C", "ns", _STATUS, False),
        ("nodes", "Node", "C", "no", _STATUS, False),
        ("pods", "Pod", "N", "po", frozenset({"status", "binding", "eviction", "ephemeralcontainers", "resize"}), True),
        ("events", "Event", "N", "ev", frozenset(), False),
        ("configmaps", "ConfigMap", "N", "cm", frozenset(), False),
        ("secrets", "Secret", "N", "", frozenset(), False),
        ("services", "Service", "N", "svc", _STATUS, False),
        ("serviceaccounts", "ServiceAccount", "N", "sa", frozenset({"token"}), False),
        ("limitranges", "LimitRange", "N", "limits", frozenset(), False),
        ("persistentvolumeclaims", "PersistentVolumeClaim", "N", "pvc", _STATUS, False),
        ("persistentvolumes", "PersistentVolume", "C", "pv", _STATUS, False),
        ("endpoints", "Endpoints", "N", "ep", frozenset(), False),
        ("resourcequotas", "ResourceQuota", "N", "quota", _STATUS, False),
    ),
    "apps/v1": (
        ("controllerrevisions", "ControllerRevision", "N", "", frozenset(), False),
        ("deployments", "Deployment", "N", "deploy", _SCALED, True),
        ("daemonsets", "DaemonSet", "N", "ds", _STATUS, True),
        ("replicasets", "ReplicaSet", "N", "rs", _SCALED, True),
        ("statefulsets", "StatefulSet", "N", "sts", _SCALED, True),
    ),
    "batch/v1": (
        ("jobs", "Job", "N", "", _STATUS, True),
        ("cronjobs", "CronJob", "N", "cj", _STATUS, True),
    ),
    "policy/v1": (("poddisruptionbudgets", "PodDisruptionBudget", "N", "pdb", _STATUS, True),),
    "coordination.k8s.io/v1": (("leases", "Lease", "N", "", frozenset(), False),),
    "scheduling.k8s.io/v1": (("priorityclasses", "PriorityClass", "C", "pc", frozenset(), True),),
    "events.k8s.io/v1": (("events", "Event", "N", "ev", frozenset(), False),),
    "apiextensions.k8s.io/v1": (
        ("customresourcedefinitions", "CustomResourceDefinition", "C", "crd crds", _STATUS, True),
    ),
    "rbac.authorization.k8s.io/v1": (
        ("roles", "Role", "N", "", frozenset(), False),
        ("rolebindings", "RoleBinding", "N", "", frozenset(), False),
        ("clusterroles", "ClusterRole", "C", "", frozenset(), False),
        ("clusterrolebindings", "ClusterRoleBinding", "C", "", frozenset(), False),
    ),
    "storage.k8s.io/v1": (
        ("storageclasses", "StorageClass", "C", "sc", frozenset(), False),
        ("csinodes", "CSINode", "C", "", frozenset(), False),
    ),
    "admissionregistration.k8s.io/v1": (
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "C", "", _STATUS, True),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "C", "", frozenset(), True),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "C", "", frozenset(), True),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "C", "", frozenset(), True),
        *_MUTATING_POLICIES,
    ),
    "admissionregistration.k8s.io/v1beta1": _MUTATING_POLICIES,
    "flowcontrol.apiserver.k8s.io/v1": (
        ("flowschemas", "FlowSchema", "C", "", _STATUS, True),
        ("prioritylevelconfigurations", "PriorityLevelConfiguration", "C", "", _STATUS, True),
    ),
    "resource.k8s.io/v1": _RESOURCE_CLAIMS,
    "resource.k8s.io/v1beta2": (*_RESOURCE_CLAIMS, _TAINT_RULES),
    "resource.k8s.io/v1beta1": _RESOURCE_CLAIMS,
    "networking.k8s.io/v1": (("networkpolicies", "NetworkPolicy", "N", "netpol", frozenset(), True),),
    "node.k8s.io/v1": (("runtimeclasses", "RuntimeClass", "C", "", frozenset(), False),),
    "jobset.x-k8s.io/v1alpha2": (("jobsets", "JobSet", "N", "", _STATUS, True),),
}

_IN_ALL = {"pods", "services", "deployments", "daemonsets", "replicasets", "statefulsets", "jobs", "cronjobs"}


def builtin_resources(release: Release = LATEST) -> tuple[Resource, ...]:
    """Every resource that a fresh store of that release serves."""
    return tuple(
        _scaled(
            Resource(
                group=group_version.rpartition("/")[0],
                version=group_version.rpartition("/")[2],
                plural=plural,
                kind=kind,
                namespaced=scope == "N",
                short_names=tuple(short.split()),
                categories=("all",) if plural in _IN_ALL else (),
                subresources=frozenset(part for part in subresources if release.has_subresource(plural, part)),
                schema=jobset_schema() if kind == "JobSet" else None,
                custom=kind == "JobSet",
                generations=generations,
            )
        )
        for group_version, rows in _TABLE.items()
        for plural, kind, scope, short, subresources, generations in rows
        if release.serves(group_version, plural)
    )


def _scaled(resource: Resource) -> Resource:
    return replace(resource, scale_paths=_WORKLOAD_SCALE) if "scale" in resource.subresources else resource
