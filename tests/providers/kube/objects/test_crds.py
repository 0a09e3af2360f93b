"""The definitions: one source, structural, and readable in `kubectl get`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.kube.objects.crds import NAMES, definitions, text_of
from providers.kube.objects.paths import ALL

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
        assert "type" in part or part.get("x-kubernetes-int-or-string"), path
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
