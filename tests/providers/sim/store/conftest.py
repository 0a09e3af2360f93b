"""A store under virtual time, and objects to put into it."""

from collections.abc import Callable
from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.store import Store, StoreEvent

Obj = dict[str, Any]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Store:
    return Store(clock)


@pytest.fixture
def events(store: Store) -> list[StoreEvent]:
    seen: list[StoreEvent] = []
    store.subscribe(seen.append)
    return seen


@pytest.fixture
def pod() -> Callable[..., Obj]:
    def make(name: str = "p", *, labels: dict[str, str] | None = None, owner: Obj | None = None, **spec: Any) -> Obj:
        meta: Obj = {"name": name, "namespace": "default", "labels": labels or {}}
        if owner is not None:
            meta["ownerReferences"] = [owned_by(owner)]
        containers = [{"name": "c", "image": "registry.test/c:1"}]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}

    return make


@pytest.fixture
def job() -> Callable[..., Obj]:
    def make(name: str = "j", template: Obj | None = None, **spec: Any) -> Obj:
        pod_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.test/c:1"}]}
        body = {"spec": {**pod_spec, **(template or {})}}
        meta = {"name": name, "namespace": "default"}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": body, **spec}}

    return make


@pytest.fixture
def config() -> Callable[..., Obj]:
    def make(name: str = "cm", namespace: str = "default", **data: str) -> Obj:
        meta = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    return make


def owned_by(owner: Obj, *, block: bool = False) -> Obj:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }


@pytest.fixture
def reference() -> Callable[..., Obj]:
    return owned_by
