"""Kubernetes objects as our values, and our values as Kubernetes objects: translation, nothing else.

`decode_*` take the JSON of one object (bytes or `msgspec.Raw`) and raise `msgspec.MsgspecError`, `ValueError` or
`model.quantity.InvalidQuantity` for what cannot be read. The writers return plain JSON dicts and patches:

- `*_object` bodies are for `create` or server-side apply, `*_status` bodies for server-side apply to the `status`
  subresource with `force`. A merge patch would leave behind the fields that no longer apply.
- `*_patch` are JSON patches (RFC 6902), empty when nothing is left to do; `release_patch` is a strategic merge patch.
"""

from fleet.hard_fence import HARD_FENCE
from providers.kube.objects.claims import claim_object, claim_status, decode_claim, forget_patch
from providers.kube.objects.conditions import Condition, Finding, decode_standing
from providers.kube.objects.daemons import decode_daemonset
from providers.kube.objects.devices import (
    decode_allocated_claim,
    decode_claim_template,
    decode_device_class,
    decode_device_slice,
    decode_device_taint_rule,
)
from providers.kube.objects.events import EventSeries, event_name, event_object
from providers.kube.objects.hard_fences import decode_hard_fence, hard_fence_object
from providers.kube.objects.jobs import DECODERS, KINDS, StaleObject, kind_of, prepare_patch, start_patch, stop_patch
from providers.kube.objects.node_patches import node_patch
from providers.kube.objects.nodes import decode_node
from providers.kube.objects.pod_budgets import decode_pod_budget
from providers.kube.objects.pod_groups import decode_pod_group
from providers.kube.objects.pod_patches import release_patch, take_patch
from providers.kube.objects.pods import decode_pod
from providers.kube.objects.queues import (
    decode_drifted,
    decode_market,
    node_pool_object,
    node_pool_status,
    queue_object,
    queue_status,
)
from providers.kube.objects.reports import (
    DriftReport,
    FlavorUsage,
    NodePoolReport,
    PlanSummary,
    QueueReport,
    SyncAttempt,
    SyncProblem,
    SyncReport,
    remembered,
)
from providers.kube.objects.surroundings import (
    decode_limit_range,
    decode_namespace,
    decode_namespace_quota,
    decode_pod_priority,
    decode_runtime_class,
)
from providers.kube.objects.sync import decode_sync, sync_object, sync_status
from providers.kube.objects.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_storage_class,
    decode_volume_claim,
)
from providers.kube.objects.workload_patches import checks_patch, deactivation_patch, respecification_patch
from providers.kube.objects.workloads import decode_workload, workload_object, workload_status

__all__ = [
    "DECODERS",
    "HARD_FENCE",
    "KINDS",
    "Condition",
    "DriftReport",
    "EventSeries",
    "Finding",
    "FlavorUsage",
    "NodePoolReport",
    "PlanSummary",
    "QueueReport",
    "StaleObject",
    "SyncAttempt",
    "SyncProblem",
    "SyncReport",
    "checks_patch",
    "claim_object",
    "claim_status",
    "deactivation_patch",
    "decode_allocated_claim",
    "decode_claim",
    "decode_claim_template",
    "decode_csi_node",
    "decode_daemonset",
    "decode_device_class",
    "decode_device_slice",
    "decode_device_taint_rule",
    "decode_drifted",
    "decode_hard_fence",
    "decode_limit_range",
    "decode_market",
    "decode_namespace",
    "decode_namespace_quota",
    "decode_node",
    "decode_persistent_volume",
    "decode_pod",
    "decode_pod_budget",
    "decode_pod_group",
    "decode_pod_priority",
    "decode_runtime_class",
    "decode_standing",
    "decode_storage_class",
    "decode_sync",
    "decode_volume_claim",
    "decode_workload",
    "event_name",
    "event_object",
    "forget_patch",
    "hard_fence_object",
    "kind_of",
    "node_patch",
    "node_pool_object",
    "node_pool_status",
    "prepare_patch",
    "queue_object",
    "queue_status",
    "release_patch",
    "remembered",
    "respecification_patch",
    "start_patch",
    "stop_patch",
    "sync_object",
    "sync_status",
    "take_patch",
    "workload_object",
    "workload_status",
]
