"""The embedded API server: HTTP for the cluster store, good enough for kubectl and every Kubernetes client."""

from providers.sim.apiserver.faults import (
    Compact,
    CutWatch,
    Delay,
    Effect,
    FaultRule,
    FaultRules,
    GoneStatus,
    Hang,
    LoseAnswer,
    Refuse,
    Trickle,
    always,
)
from providers.sim.apiserver.server import ApiServer

__all__ = [
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
    "Refuse",
    "Trickle",
    "always",
]
