"""The definitions: one source, structural, and readable in `kubectl get`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from agent.sandbox.example import example_fleet
from model.loader import inspect
from providers.kube.objects import node_pool_object, queue_object
from providers.kube.objects.crds import NAMES, definitions, text_of
from providers.kube.objects.paths import ALL
from tools.crds import DECLARED, texts

DEPLOYED = Path(__file__).resolve().parents[4] / "deploy" / "crds"
BY_PLURAL = {crd["spec"]["names"]["plural"]: crd for crd in definitions()}


def version_of(crd: dict[str, Any]) -> dict[str, Any]:
    versions: list[dict[str, Any]] = crd["spec"]["versions"]
    (version,) = versions
    return version


@pytest.mark.parametrize("plural", NAMES)
def test_deploy_holds_a_copy(plural: str) -> None:
    assert (DEPLOYED / f"{plural}.yaml").read_text("utf-8") == text_of(plural)


def test_deploy_holds_nothing_else() -> None:
    assert {path.stem for path in DEPLOYED.glob("*.yaml")} - {"kustomization"} == set(NAMES)


def test_every_path_of_our_group_is_defined() -> None:
    ours = {path.plural: path for path in ALL if path.group == "muster.dev"}
    assert set(ours) == set(BY_PLURAL)
    for plural, path in ours.items():
        spec = BY_PLURAL[plural]["spec"]
        assert (spec["group"], version_of(BY_PLURAL[plural])["name"]) == (path.group, path.version)
        assert (spec["scope"] == "Namespaced") is path.namespaced


@pytest.mark.parametrize("plural", NAMES)
def test_names_and_subresources(plural: str) -> None:
    crd = BY_PLURAL[plural]
    names = crd["spec"]["names"]
    assert crd["metadata"]["name"] == f"{plural}.muster.dev"
    assert names["categories"] == ["muster"]
    assert version_of(crd)["subresources"] == {"status": {}}


def test_short_names_are_distinct_and_not_kueues() -> None:
    short = [name for crd in definitions() for name in crd["spec"]["names"]["shortNames"]]
    assert len(set(short)) == len(short)
    assert not {"wl", "cq", "lq", "rf", "q"} & set(short)


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from parts(part, f"{path}.{name}")
    if "items" in schema:
        yield from parts(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from parts(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("plural", NAMES)
def test_schemas_are_structural(plural: str) -> None:
    for path, part in parts(version_of(BY_PLURAL[plural])["schema"]["openAPIV3Schema"]):
        untyped = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
        assert "type" in part or any(part.get(key) for key in untyped), path
        assert not ("properties" in part and "additionalProperties" in part), path
        assert set(part.get("required", ())) <= set(part.get("properties", ())), path
        if part.get("type") == "array":
            assert "items" in part, path
            assert part.get("x-kubernetes-list-type") in {"map", "atomic"}, path


@pytest.mark.parametrize("plural", NAMES)
def test_columns_show_fields_that_exist(plural: str) -> None:
    version = version_of(BY_PLURAL[plural])
    schema = dict(parts(version["schema"]["openAPIV3Schema"]))
    for column in version["additionalPrinterColumns"]:
        path = re.sub(r"\[\?\(.*?\)\]", "[]", column["jsonPath"])
        if path.startswith(".metadata."):
            continue
        held = schema.get(path)
        if held is None:
            assert schema[".spec"].get("x-kubernetes-preserve-unknown-fields"), path
            assert path.startswith(".spec."), path
            continue
        expected = {"date": "string"}.get(column["type"], column["type"])
        assert held["type"] == expected, path


@pytest.mark.parametrize("plural", NAMES)
def test_kubectl_explains_every_field(plural: str) -> None:
    whole = version_of(BY_PLURAL[plural])["schema"]["openAPIV3Schema"]
    silent = [
        f"{path}.{name}"
        for path, schema in parts(whole)
        for name, part in schema.get("properties", {}).items()
        if not part.get("description", "").strip()
    ]
    assert silent == []


def test_what_follows_from_the_model_is_as_the_tool_writes_it() -> None:
    """`make schema` writes it."""
    assert {plural: text_of(plural) for plural in NAMES} == texts()
    for plural, kind in DECLARED.items():
        spec = version_of(BY_PLURAL[plural])["schema"]["openAPIV3Schema"]["properties"]["spec"]
        fields = {field.alias or name for name, field in kind.model_fields["spec"].annotation.model_fields.items()}
        assert fields <= set(spec["properties"])


EXAMPLES = [*sorted({path.parent for path in (DEPLOYED.parents[1] / "examples").rglob("*.yaml")}), example_fleet()]


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda it: it.name)
def test_the_mirror_of_every_declaration_is_taken_whole(folder: Path) -> None:
    """A definition that explains more must refuse no more, and drop nothing."""
    found = inspect({path.name: path.read_bytes() for path in sorted(folder.glob("*.yaml"))}).fleet
    if found is None:
        pytest.skip("a part of a fleet")
    mirrors = {
        "queues": [queue_object(it, "main") for it in found.queues.values()],
        "nodepools": [node_pool_object(it, "main") for it in found.node_pools.values()],
    }
    for plural, objects in mirrors.items():
        schema = version_of(BY_PLURAL[plural])["schema"]["openAPIV3Schema"]
        validator = jsonschema_rs.Draft4Validator(schema)
        for each in objects:
            assert [str(it) for it in validator.iter_errors(each)] == []


def test_all_of_the_specification_of_a_workload_is_fixed_but_whether_it_is_active() -> None:
    """A new field has to be named in a rule, or people could change what a gang is admitted by."""
    schema = version_of(BY_PLURAL["workloads"])["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    rules = [it["rule"] for it in (*spec["x-kubernetes-validations"], *schema["x-kubernetes-validations"])]
    compared = {name for name in spec["properties"] for rule in rules if f".{name} == oldSelf." in rule}
    assert compared == set(spec["properties"]) - {"active"}
    guarded = {name for name in compared for rule in rules if f".{name}) || self." in rule}
    assert compared - guarded == set(spec["required"]), "has() on what may be absent"
