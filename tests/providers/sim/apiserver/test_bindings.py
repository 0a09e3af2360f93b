"""Both forms of binding: which pod is meant."""

from typing import Any

import pytest

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]}}


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"])
def test_a_binding_means_one_pod(http_client: Any, path: str) -> None:
    _, made = http_client("POST", PODS, POD)
    target = {"kind": "Node", "name": "n1"}

    def bind(query: str = "", **metadata: str) -> int:
        body = {"kind": "Binding", "metadata": {"name": "p", **metadata}, "target": target}
        status: int = http_client("POST", path + query, body)[0]
        return status

    code, refused = http_client("POST", path, {"metadata": {"name": "p", "uid": "another"}, "target": target})
    assert (code, refused["reason"]) == (409, "Conflict")
    assert "UID in precondition: another" in refused["message"]
    assert bind(resourceVersion="1") == 409
    assert bind("?dryRun=All", uid=made["metadata"]["uid"]) == 201
    assert "nodeName" not in http_client.get(f"{PODS}/p")["spec"]
    assert bind(uid=made["metadata"]["uid"], resourceVersion=made["metadata"]["resourceVersion"]) == 201
    assert http_client.get(f"{PODS}/p")["spec"]["nodeName"] == "n1"
