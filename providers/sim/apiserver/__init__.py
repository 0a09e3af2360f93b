"""The embedded API server: HTTP for the cluster store, good enough for kubectl and every Kubernetes client."""

from providers.sim.apiserver.faults import (
    WRITES,
    Compact,
    CutWatch,
    Delay,
    Effect,
    FaultRule,
    FaultRules,
    GoneStatus,
    Hang,
    LoseAnswer,
    PriorityReject,
    Refuse,
    Trickle,
    WebhookDenies,
    WebhookFails,
    always,
)
from providers.sim.apiserver.server import ApiServer

__all__ = [
    "WRITES",
    "ApiServer",
    "Compact",
    "CutWatch",
    "Delay",
    "Effect",
    "FaultRule",
    "FaultRules",
    "GoneStatus",
    "Hang",
    "LoseAnswer",
    "PriorityReject",
    "Refuse",
    "Trickle",
    "WebhookDenies",
    "WebhookFails",
    "always",
]
