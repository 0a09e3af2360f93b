# ruff: noqa: E501 - a row of a table is a line
"""Strategic merge: which lists merge, in what order, and the directives."""

from typing import Any

import pytest

from providers.sim.store import StoreBadRequest
from providers.sim.store.listkeys import named_shape
from providers.sim.store.strategic import strategic_merge


def c(name: str, **rest: Any) -> dict[str, Any]:
    return {"name": name, **rest}


# kind, target, patch, expected
MERGES: dict[str, tuple[str, Any, Any, Any]] = {
    "containers by name": ("Pod", {"containers": [c("a", image="1"), c("b")]}, {"containers": [c("a", tty=True)]}, {"containers": [c("a", image="1", tty=True), c("b")]}),
    "new container goes last": ("Pod", {"containers": [c("a")]}, {"containers": [c("b")]}, {"containers": [c("a"), c("b")]}),
    "delete by key": ("Pod", {"containers": [c("a"), c("b")]}, {"containers": [{"$patch": "delete", "name": "a"}]}, {"containers": [c("b")]}),
    "delete what is not there": ("Pod", {"containers": [c("a")]}, {"containers": [{"$patch": "delete", "name": "z"}]}, {"containers": [c("a")]}),
    "replace a list": ("Pod", {"containers": [c("a"), c("b")]}, {"containers": [{"$patch": "replace"}, c("z")]}, {"containers": [c("z")]}),
    "replace a map": ("Pod", {"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}}, {"metadata": {"labels": {"b": "2"}}}),
    "delete a map": ("Pod", {"spec": {"affinity": {"x": 1}}}, {"spec": {"affinity": {"$patch": "delete"}}}, {"spec": {"affinity": {}}}),
    "null removes": ("Pod", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    "taints are atomic": ("Node", {"taints": [{"key": "a"}, {"key": "b"}]}, {"taints": [{"key": "c"}]}, {"taints": [{"key": "c"}]}),
    "tolerations are atomic": ("Pod", {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
    "command is atomic": ("Pod", {"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
    "finalizers are a set": ("Pod", {"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
    "delete from a set": ("Pod", {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
    "container ports by containerPort": ("Pod", {"ports": [{"containerPort": 1, "protocol": "TCP"}]}, {"ports": [{"containerPort": 1, "name": "x"}]}, {"ports": [{"containerPort": 1, "protocol": "TCP", "name": "x"}]}),
    "service ports by port": ("Service", {"ports": [{"port": 1}]}, {"ports": [{"port": 1, "name": "x"}]}, {"ports": [{"port": 1, "name": "x"}]}),
    "node addresses by type": ("Node", {"addresses": [{"type": "InternalIP", "address": "a"}]}, {"addresses": [{"type": "InternalIP", "address": "b"}]}, {"addresses": [{"type": "InternalIP", "address": "b"}]}),
    "conditions by type": ("Node", {"conditions": [{"type": "Ready", "status": "True"}]}, {"conditions": [{"type": "Ready", "status": "False"}]}, {"conditions": [{"type": "Ready", "status": "False"}]}),
    "spread by topologyKey": ("Pod", {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1}]}, {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 2}]}, {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 2}]}),
    "retainKeys drops the rest of a union": ("Pod", {"volumes": [c("v", emptyDir={})]}, {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}, {"volumes": [c("v", hostPath={"path": "/"})]}),
    "element order": ("Pod", {"containers": [c("a"), c("b")]}, {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [c("a", tty=True)]}, {"containers": [c("b"), c("a", tty=True)]}),
    "element order keeps strangers behind their neighbour": ("Pod", {"containers": [c("a"), c("x"), c("b")]}, {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, {"containers": [c("b"), c("a"), c("x")]}),
    "directives in new parts mean nothing": ("Pod", {}, {"spec": {"containers": [c("a", env=[{"name": "X", "$patch": "delete"}])]}}, {"spec": {"containers": [c("a", env=[])]}}),
}  # fmt: skip


@pytest.mark.parametrize("case", MERGES)
def test_merges(case: str) -> None:
    kind, target, patch, expected = MERGES[case]
    assert strategic_merge(target, patch, named_shape(kind)) == expected


@pytest.mark.parametrize(
    "patch",
    [{"$patch": "explode"}, {"containers": [{"image": "x"}]}, {"$retainKeys": "name"}],
)
def test_refuses(patch: dict[str, Any]) -> None:
    with pytest.raises(StoreBadRequest):
        strategic_merge({"containers": [c("a")]}, patch, named_shape("Pod"))
