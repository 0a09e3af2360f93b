"""Buying machines: what a launch asks for, which types and offers it may name, and what its outcome means."""

from fleet.nodeclaims.launch.lots import (
    LAUNCH_GROUP_TAG,
    NODE_POOL_TAG,
    SHORTAGE_S,
    Settlement,
    launch_request,
    launch_token,
    market_of,
    own_tags,
    settle,
)

__all__ = [
    "LAUNCH_GROUP_TAG",
    "NODE_POOL_TAG",
    "SHORTAGE_S",
    "Settlement",
    "launch_request",
    "launch_token",
    "market_of",
    "own_tags",
    "settle",
]
