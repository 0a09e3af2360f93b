"""Who may do what: bearer tokens to users, and the roles that the store holds (RBAC) for those who are not admins.

Source: apiserver `pkg/endpoints/filters`, `plugin/pkg/auth/authorizer/rbac`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from providers.sim.apiserver.routes import Route
from providers.sim.store import Store, StoreForbidden, StoreUnauthorized

Obj = dict[str, Any]
_RBAC: Final = "rbac.authorization.k8s.io"
# What everybody may read (the roles system:discovery and system:public-info-viewer).
_PUBLIC: Final = ("/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version")


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One request as RBAC sees it; `path` alone where it is for no resource."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Access:
    """Users by bearer token. A request without a token is an admin's; a token nobody has is nobody's."""

    def __init__(self, store: Store, tokens: Mapping[str, str]) -> None:
        self._store = store
        self._tokens = tokens

    def user(self, authorization: str) -> str | None:
        """The user behind an `Authorization` header, None for the admin. Unauthorized when there is none."""
        if not authorization:
            return None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token not in self._tokens:
            raise StoreUnauthorized("Unauthorized")
        return self._tokens[token]

    def holder(self, token: str) -> str:
        """Returns whose bearer token it is; empty for nobody's."""
        return self._tokens.get(token, "")

    def check_path(self, user: str | None, path: str) -> None:
        """Forbidden when `user` may not read that path, which is no resource's."""
        public = any(path == known or path.startswith(f"{known}/") for known in _PUBLIC)
        if user is not None and not public and not self._allows(user, AccessRequest("get", path)):
            raise StoreForbidden(f'forbidden: User "{user}" cannot get path "{path}"')

    def check(self, user: str | None, verb: str, route: Route) -> None:
        """Forbidden when `user` may not do that."""
        asked = AccessRequest(verb, "", route.group, route.plural, route.subresource, route.namespace, route.name)
        if user is None or self._allows(user, asked):
            return
        whole = f"{route.plural}.{route.group}" if route.group else route.plural
        which = f'{whole} "{route.name}"' if route.name else whole
        part = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
        where = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
        told = {"name": route.name, "group": route.group, "kind": route.plural}
        raise StoreForbidden(
            f'{which} is forbidden: User "{user}" cannot {verb} resource "{part}" in API group "{route.group}" {where}',
            {key: value for key, value in told.items() if value},
        )

    def allows(self, user: str | None, spec: Obj) -> bool:
        """Whether a review of access with that `spec` is answered with yes."""
        if user is None:
            return True
        path, asked = spec.get("nonResourceAttributes") or {}, spec.get("resourceAttributes") or {}
        if path:
            return self._allows(user, AccessRequest(path.get("verb", ""), path.get("path", "")))
        words = ("group", "resource", "subresource", "namespace", "name")
        return self._allows(user, AccessRequest(asked.get("verb", ""), "", *(asked.get(word) or "" for word in words)))

    def _allows(self, user: str, asked: AccessRequest) -> bool:
        return any(_covers(rule, asked) for rule in self._rules(user, asked.namespace))

    def _rules(self, user: str, namespace: str) -> Iterator[Obj]:
        for binding in self._held("clusterrolebindings"):
            yield from self._bound(binding, user, "")
        if namespace:
            for binding in self._held("rolebindings", namespace):
                yield from self._bound(binding, user, namespace)

    def _held(self, plural: str, namespace: str = "") -> Sequence[Obj]:
        return self._store.list(self._store.resource(plural, _RBAC), namespace)

    def _bound(self, binding: Obj, user: str, namespace: str) -> Sequence[Obj]:
        subjects = binding.get("subjects") or ()
        if not any(it.get("kind") in ("User", None) and it.get("name") == user for it in subjects):
            return ()
        role = binding["roleRef"]
        plural, where = ("roles", namespace) if role.get("kind") == "Role" else ("clusterroles", "")
        found = [it for it in self._held(plural, where) if it["metadata"]["name"] == role.get("name")]
        return [rule for it in found for rule in it.get("rules") or ()]


def _covers(rule: Obj, asked: AccessRequest) -> bool:
    if not _among(asked.verb, rule.get("verbs")):
        return False
    if asked.path:
        paths = rule.get("nonResourceURLs") or ()
        return any(asked.path == it or (it.endswith("*") and asked.path.startswith(it[:-1])) for it in paths)
    part = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    resources = rule.get("resources") or ()
    any_part = bool(asked.subresource) and f"*/{asked.subresource}" in resources
    names = rule.get("resourceNames") or ()
    named = not names or asked.name in names
    return _among(asked.group, rule.get("apiGroups")) and (_among(part, resources) or any_part) and named


def _among(word: str, words: Sequence[str] | None) -> bool:
    return bool(words) and ("*" in (words or ()) or word in (words or ()))
