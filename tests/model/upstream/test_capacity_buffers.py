"""CapacityBuffers and PodTemplates of a repository: how large a buffer is, what is refused and where it says so."""

from typing import Any

import pytest
import yaml

from model.loader import inspect, load
from model.problem import Code, Problem

GPU = "nvidia.com/gpu"
POOL = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "p"},
    "spec": {"instanceTypes": ["p5.48xlarge"], "serves": ["Pods"]},
}


def template(*containers: dict[str, Any], meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    told = {"containers": list(containers) or [{"resources": {"limits": {GPU: 2}}}], **spec}
    body = {**({"metadata": meta} if meta else {}), "spec": told}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "s", "namespace": "t"}, "template": body}


def buffer(version: str = "v1beta1", name: str = "b", namespace: str = "t", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling.x-k8s.io/{version}",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podTemplateRef": {"name": "s"}, **spec},
    }


def written(*docs: dict[str, Any]) -> dict[str, bytes]:
    return {"f.yaml": yaml.safe_dump_all(docs, sort_keys=False).encode()}


def problems(*docs: dict[str, Any]) -> list[Problem]:
    return list(inspect(written(POOL, *docs)).problems)


def test_both_versions_are_read_alike() -> None:
    old, new = (load(written(POOL, template(), buffer(version, replicas=2))) for version in ("v1alpha1", "v1beta1"))
    assert old.capacity_buffers == new.capacity_buffers
    assert list(new.capacity_buffers) == ["t/b"]
    assert new.pod_templates["t/s"].requests == {GPU: 2}


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 0}, 0),
        ({"replicas": 3, "limits": {GPU: 5}}, 2),
        ({"replicas": 3, "limits": {GPU: 60}}, 3),
        ({"limits": {GPU: 7}}, 3),
        ({"limits": {GPU: 7, "cpu": 1}}, 2),
        ({"limits": {GPU: 7, "cpu": "100m"}}, 0),
    ],
)
def test_how_large_a_buffer_is(spec: dict[str, Any], replicas: int) -> None:
    found = load(written(POOL, template({"resources": {"limits": {GPU: 2, "cpu": "500m"}}}), buffer(**spec)))
    assert found.capacity_buffers["t/b"].replicas(found.pod_templates["t/s"].requests) == replicas


def test_what_a_pod_asks_for_is_what_its_containers_ask_for_together() -> None:
    first = {"name": "a", "image": "i", "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 4, "memory": "1Gi"}}}
    found = load(written(POOL, template(first, {"resources": {"requests": {"cpu": "500m"}}}), buffer(replicas=1)))
    assert found.pod_templates["t/s"].requests == {"cpu": 1500, "memory": 1 << 30}


PLACED = {"containers": [{"resources": {"limits": {GPU: 2}}}]}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, Code]] = [
    ({"scalableRef": {"kind": "Deployment", "name": "d"}, "replicas": 1}, {}, "spec.scalableRef", Code.UNSUPPORTED),
    ({"percentage": 10, "replicas": 1}, {}, "spec.percentage", Code.UNSUPPORTED),
    ({"provisioningStrategy": "x/standby", "replicas": 1}, {}, "spec.provisioningStrategy", Code.INVALID_VALUE),
    ({}, {}, "spec", Code.INVALID_VALUE),
    ({"replicas": -1}, {}, "spec.replicas", Code.INVALID_VALUE),
    ({"replicas": 10_001}, {}, "spec.replicas", Code.INVALID_VALUE),
    ({"replicas": 1, "podTemplateRef": {"name": "z"}}, {}, "spec.podTemplateRef.name", Code.DANGLING_REFERENCE),
    ({"replicas": 1, "limits": {"cpu": 1}}, {}, "spec.limits.cpu", Code.INVALID_VALUE),
    ({"replicas": 1, "limits": {"nvidia.com/gpus": 1}}, {}, 'spec.limits["nvidia.com/gpus"]', Code.UNKNOWN_NAME),
    ({"replicas": 1, "fulfilledBy": {}}, {}, "spec.fulfilledBy", Code.UNKNOWN_KEY),
    *(
        ({"replicas": 1}, {**PLACED, key: {}}, f"template.spec.{key}", Code.UNSUPPORTED)
        for key in ("affinity", "topologySpreadConstraints", "volumes", "initContainers", "priorityClassName")
    ),
    ({"replicas": 1}, {**PLACED, "colour": 1}, "template.spec.colour", Code.UNKNOWN_KEY),
    (
        {"replicas": 1},
        {"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]},
        "template.spec.containers[0].ports[0].hostPort",
        Code.UNSUPPORTED,
    ),
    (
        {"replicas": 1},
        {"containers": [{"resources": {"claims": []}}]},
        "template.spec.containers[0].resources.claims",
        Code.UNSUPPORTED,
    ),
    ({"replicas": 1}, {"containers": []}, "template.spec.containers", Code.INVALID_VALUE),
]


@pytest.mark.parametrize(("spec", "pod", "path", "code"), REFUSED, ids=[it[2] for it in REFUSED])
def test_what_is_refused(spec: dict[str, Any], pod: dict[str, Any], path: str, code: Code) -> None:
    made = template()
    made["template"]["spec"] = pod or PLACED
    errors = [it for it in problems(made, buffer(**spec)) if it.severity == "error"]
    assert (path, code) in [(it.path, it.code) for it in errors]
    assert all(it.file == "f.yaml" and it.line > 1 for it in errors)


@pytest.mark.parametrize(
    ("docs", "message"),
    [
        ((template(),), "no CapacityBuffer names this template"),
        ((template(), buffer(limits={GPU: 1})), "a single pod of 's' asks for 2: there is room for none"),
        ((template(), buffer(replicas=1)), ""),
    ],
)
def test_what_has_no_effect_is_warned_of(docs: tuple[dict[str, Any], ...], message: str) -> None:
    assert [(it.severity, it.message) for it in problems(*docs)] == ([("warning", message)] if message else [])


def test_a_buffer_that_no_pool_serves() -> None:
    gangs = {**POOL, "spec": {"instanceTypes": ["p5.48xlarge"]}}
    [told] = inspect(written(gangs, template(), buffer(replicas=1))).problems
    assert (told.severity, told.message) == ("warning", "no NodePool serves pods: no machine is bought for this buffer")


def test_a_template_is_that_of_its_namespace() -> None:
    [_, told] = problems(template(), buffer(namespace="u", replicas=1))
    assert (told.code, told.message) == (Code.DANGLING_REFERENCE, "there is no PodTemplate 's' in the namespace 'u'")


def test_a_broken_template_is_told_of_once() -> None:
    found = problems(template(affinity={}), buffer(replicas=1))
    assert [it.path for it in found] == ["template.spec.affinity"]
