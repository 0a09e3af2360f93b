"""Asks the API server who somebody is, and what they may do: TokenReview and SubjectAccessReview."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from providers.kube.resources import ResourcePath
from providers.kube.transport import KubeTransport

TOKEN_REVIEWS = ResourcePath("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS = ResourcePath("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
_READ_S = 5.0


@dataclass(frozen=True, slots=True)
class KubeUser:
    """Somebody as the API server knows them; `extra` is what an authenticator says beside."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Told(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    denied: bool = False
    user: _UserInfo | None = None


class _Review(msgspec.Struct):
    status: _Told = msgspec.field(default_factory=_Told)


_decode = msgspec.json.Decoder(_Review).decode


def user_of(api: KubeTransport, token: str) -> KubeUser | None:
    """Returns whose bearer token it is; None for nobody's. Errors: `KubeError`."""
    told = _asked(api, TOKEN_REVIEWS, "TokenReview", {"token": token})
    if not told.authenticated or told.user is None or not told.user.username:
        return None
    found = told.user
    return KubeUser(found.username, tuple(found.groups or ()), found.uid, found.extra or {})


def may(api: KubeTransport, user: KubeUser, verb: str, resource: ResourcePath, namespace: str = "") -> bool:
    """Returns whether somebody may do that in a namespace; empty = in all. Errors: `KubeError`."""
    asked = {"group": resource.group, "resource": resource.plural, "verb": verb, "namespace": namespace}
    spec = {"user": user.name, "groups": list(user.groups), "uid": user.uid, "extra": dict(user.extra)}
    told = _asked(api, ACCESS_REVIEWS, "SubjectAccessReview", {**spec, "resourceAttributes": asked})
    return told.allowed and not told.denied


def _asked(api: KubeTransport, path: ResourcePath, kind: str, spec: Mapping[str, Any]) -> _Told:
    body = {"apiVersion": path.api_version(), "kind": kind, "spec": dict(spec)}
    return _decode(api.create(path, body, read_s=_READ_S)).status
