"""The committed schemas are current, valid JSON Schema, and agree with the loader about the examples."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from model.loader.envelope import KINDS_BY_VERSION
from model.schema import ALL_KINDS, main, schemas

ROOT = Path(__file__).resolve().parents[2]
jsonschema = pytest.importorskip("jsonschema")


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
    found = sorted((ROOT / "examples").rglob("*.yaml"))
    return [document for path in found for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def test_examples_satisfy_the_schema() -> None:
    whole = jsonschema.Draft202012Validator(json.loads(schemas()["fleet.json"]))
    for document in documents():
        kind = KINDS_BY_VERSION[document["apiVersion"], document["kind"]]
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


def test_writing(tmp_path: Path) -> None:
    main(str(tmp_path))
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == schemas()
