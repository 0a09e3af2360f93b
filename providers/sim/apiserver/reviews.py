"""Requests that are answered and not stored: access reviews (everything is allowed here), identity, tokens."""

from typing import Any

from providers.sim.store import StoreBadRequest
from providers.sim.store.objects import timestamp

_USER = {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}
_SHORTEST_S, _DEFAULT_S = 600, 3600


def reviewed(group_version: str, kind: str, body: dict[str, Any], *, allowed: bool = True) -> dict[str, Any]:
    """The review with its answer in `status`."""
    status: dict[str, Any] = {"allowed": allowed}
    if allowed:
        status["reason"] = "the embedded API server does not authorize"
    if kind == "SelfSubjectReview":
        status = {"userInfo": _USER}
    return {
        "metadata": {"creationTimestamp": None},
        **body,
        "apiVersion": group_version,
        "kind": kind,
        "status": status,
    }


def token_reviewed(body: dict[str, Any], holder: str) -> dict[str, Any]:
    """A TokenReview with whose token it is; an empty `holder` is nobody.

    Source: apiserver `pkg/registry/authentication/tokenreview`: what is not authenticated has no user.
    """
    status: dict[str, Any] = {"user": {}}
    if holder:
        status = {"authenticated": True, "user": {"username": holder, "groups": ["system:authenticated"]}}
    answer = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}
    return {"metadata": {"creationTimestamp": None}, **body, **answer}


def issued_token(account: dict[str, Any], body: dict[str, Any], now_s: float) -> dict[str, Any]:
    """A TokenRequest answered with a token that nothing accepts as a credential. BadRequest for a too short life."""
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds") or _DEFAULT_S
    if not isinstance(seconds, int) or seconds < _SHORTEST_S:
        raise StoreBadRequest(f"may not specify a duration less than {_SHORTEST_S} seconds")
    meta = account["metadata"]
    token = f"test.{meta['namespace']}.{meta['name']}"
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "creationTimestamp": timestamp(now_s)},
        "spec": {**spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": timestamp(now_s + seconds)},
    }
