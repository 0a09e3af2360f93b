"""The committed schemas are current, valid JSON Schema, and agree with the loader about the examples."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from model.loader.envelope import kind_named
from tools.schema import ALL_KINDS, main
from tools.schema import schemas as made

ROOT = Path(__file__).resolve().parents[2]
jsonschema = pytest.importorskip("jsonschema")
schemas = cache(made)


@pytest.mark.parametrize("name", sorted(schemas()))
def test_committed_schemas_are_current(name: str) -> None:
    assert (ROOT / "schemas" / name).read_text(encoding="utf-8") == schemas()[name], "run `make schema`"


def test_nothing_else_is_committed() -> None:
    assert {path.name for path in (ROOT / "schemas").glob("*.json")} == set(schemas())
    assert len(schemas()) == len(ALL_KINDS) + 1


@pytest.mark.parametrize("name", sorted(schemas()))
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schemas()[name]))


def documents() -> list[dict[str, Any]]:
    found = [it for it in sorted((ROOT / "examples").rglob("*.yaml")) if it.name != "patches.yaml"]
    return [document for path in found for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def test_examples_satisfy_the_schema() -> None:
    whole = jsonschema.Draft202012Validator(json.loads(schemas()["fleet.json"]))
    for document in documents():
        kind = kind_named(document["apiVersion"], document["kind"])
        assert kind is not None
        own = jsonschema.Draft202012Validator(json.loads(schemas()[f"{kind.__name__.lower()}.json"]))
        assert [error.message for error in own.iter_errors(document)] == []
        assert [error.message for error in whole.iter_errors(document)] == []


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Qeue"},
        {"apiVersion": "v1"},
        {"metadata": {}},
        {"metadata": {"name": "A_B"}},
        {"spec": {"instanceTypes": "p5.48xlarge"}},
        {"spec": {"instance_types": []}},
        {"spec": {"template": {"expireAfter": 30}}},
        {"spec": {"template": {"expireAfter": "1d"}}},
        {"spec": {"replicas": -1}},
        {"spec": {"capacityTypes": ["Spot"]}},
        {"spec": {"disruption": {"budgets": [{"nodes": "101%"}]}}},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(change: dict[str, Any]) -> None:
    from model.loader import inspect

    good = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {}}
    validator = jsonschema.Draft202012Validator(json.loads(schemas()["nodepool.json"]))
    assert validator.is_valid(good)
    bad = good | change
    assert not validator.is_valid(bad)
    assert inspect({"a.yaml": json.dumps(bad).encode()}).fleet is None


UPSTREAM = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"spec": {"cohortName": "c", "fairSharing": {"weight": "500m"}}}, True),
        ({"spec": {"fairSharing": {"weight": 0.5}}}, True),
        ({"status": {"admittedWorkloads": 1}}, True),
        ({"metadata": {"name": "a", "uid": "b", "creationTimestamp": None, "managedFields": []}}, True),
        ({"metadata": {"name": "a", "namespace": "b"}}, False),
        ({"spec": {"cohort": "c"}}, False),
        ({"spec": {"cohort": "c"}, "apiVersion": "kueue.x-k8s.io/v1beta1"}, True),
        ({"spec": {"concurrentAdmissionPolicy": {}}}, False),
        ({"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow"}}}, False),
        ({"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow"}}, "apiVersion": "kueue.x-k8s.io/v1beta1"}, True),
        ({"spec": {"admissionScope": {"admissionMode": "NoAdmissionFairSharing"}}}, True),
        ({"spec": {"admissionScope": {"admissionMode": "Usage"}}}, False),
        ({"spec": {"fairSharing": {"weight": [1]}}}, False),
        ({"kind": "Queue"}, False),
        ({"kind": "Queue", "apiVersion": "scheduling.volcano.sh/v1beta1"}, True),
        ({"kind": "Queue", "apiVersion": "scheduling.volcano.sh/v1beta1", "spec": {"type": "x"}}, False),
    ],
)
def test_the_schema_and_the_loader_agree_about_other_kinds(change: dict[str, Any], valid: bool) -> None:
    from model.loader import inspect

    validator = jsonschema.Draft202012Validator(json.loads(schemas()["fleet.json"]))
    document = UPSTREAM | change
    assert validator.is_valid(document) is valid
    assert (inspect({"a.yaml": json.dumps(document).encode()}).fleet is not None) is valid


def test_writing(tmp_path: Path) -> None:
    main(str(tmp_path))
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == schemas()
