"""Users of the embedded server: who may do what by the roles in the store."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.apiserver.access import Access
from providers.sim.apiserver.routes import Route
from providers.sim.store import Store, StoreForbidden, StoreUnauthorized

Obj = dict[str, Any]
PODS, NODES = Route("", "v1", "pods", "team"), Route("", "v1", "nodes")


@pytest.fixture
def store() -> Store:
    held = Store(VirtualClock())
    held.create(held.resource("namespaces"), {"metadata": {"name": "team"}})
    rules = [
        {"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["get", "list", "create"]},
        {"apiGroups": ["batch"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["mine"]},
    ]
    held.create(held.resource("clusterroles"), {"metadata": {"name": "some"}, "rules": rules})
    metrics = {"nonResourceURLs": ["/metrics*"], "verbs": ["get"]}
    held.create(held.resource("clusterroles"), {"metadata": {"name": "numbers"}, "rules": [metrics]})
    return held


def bind(store: Store, role: str, user: str, namespace: str = "") -> None:
    body: Obj = {
        "metadata": {"name": f"{role}-{user}", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    plural = "rolebindings" if namespace else "clusterrolebindings"
    store.create(store.resource(plural), body, namespace=namespace)


def may(access: Access, verb: str, route: Route) -> bool:
    try:
        access.check("ann", verb, route)
    except StoreForbidden:
        return False
    return True


def test_tokens_are_users() -> None:
    access = Access(Store(VirtualClock()), {"secret": "ann"})
    assert access.user("") is None
    assert access.user("Bearer secret") == "ann"
    for header in ("Bearer other", "Basic secret"):
        with pytest.raises(StoreUnauthorized):
            access.user(header)


def test_a_binding_holds_in_its_namespace(store: Store) -> None:
    access = Access(store, {})
    assert not may(access, "list", PODS)
    bind(store, "some", "ann", "team")
    assert may(access, "list", PODS)
    assert not may(access, "delete", PODS)
    assert not may(access, "list", Route("", "v1", "pods", "default"))
    assert may(access, "create", Route("", "v1", "pods", "team", "p", "eviction"))
    assert not may(access, "create", Route("", "v1", "pods", "team", "p", "binding"))
    assert not may(access, "list", NODES)
    assert may(access, "delete", Route("batch", "v1", "jobs", "team", "mine"))
    assert not may(access, "delete", Route("batch", "v1", "jobs", "team", "theirs"))
    access.check(None, "delete", NODES)


def test_paths_are_public_or_granted(store: Store) -> None:
    access = Access(store, {})
    access.check_path("ann", "/version")
    with pytest.raises(StoreForbidden, match='User "ann" cannot get path "/metrics"'):
        access.check_path("ann", "/metrics")
    bind(store, "numbers", "ann")
    access.check_path("ann", "/metrics/more")
    assert access.allows("ann", {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}})
    assert not access.allows("ann", {"resourceAttributes": {"verb": "get", "resource": "pods"}})
    assert access.allows(None, {})
