"""Karpenter's own table of operators: a subset kept here, and the whole set where it is beside the checkout."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.labels import WELL_KNOWN
from model.requirements import STRICT, Requirement, Requirements
from tests.support.shared import SHARED, shared_path

SUBSET = Path(__file__).parent / "data" / "requirements_algebra.json"
WHOLE = "conformance/karpenter/requirements_algebra.json"
MODES = {"strict": STRICT, "allow-undefined-well-known": WELL_KNOWN}


def requirement(given: dict[str, Any]) -> Requirement:
    return Requirement.of(given["op"], given.get("values", ()), given.get("minValues"))


def requirements(key: str, given: dict[str, Any] | None) -> Requirements:
    return Requirements({} if given is None else {key: requirement(given)})


def canonical(value: Requirement) -> dict[str, Any]:
    optional = {"gte": value.gte, "lte": value.lte, "minValues": value.min_values}
    present = {name: number for name, number in optional.items() if number is not None}
    return {"complement": value.complement, "values": sorted(value.values), **present}


def decide(given: dict[str, Any], expect: dict[str, Any]) -> dict[str, Any]:
    if "has" in expect:
        return {"has": requirement(given["requirement"]).has(given["value"])}
    if "compatible" in expect:
        key = given["key"]
        left, right = requirements(key, given["left"]), requirements(key, given["right"])
        return {"compatible": left.compatible(right, undefined=MODES[given["mode"]])}
    both = requirement(given["left"]) & requirement(given["right"])
    if "serialized" in expect:
        return {"serialized": [{"op": term.operator, "values": list(term.values)} for term in both.terms("key")]}
    assert requirement(given["left"]).overlaps(requirement(given["right"])) == (not both.is_empty)
    return {"result": canonical(both)}


@pytest.mark.parametrize("case", json.loads(SUBSET.read_text())["cases"], ids=lambda case: case["id"])
def test_subset(case: dict[str, Any]) -> None:
    assert decide(case["given"], case["expect"]) == case["expect"]


@pytest.mark.parametrize("suite", ["intersect", "has", "has-bound", "bound-collapse", "compatible"])
def test_whole_table(suite: str) -> None:
    cases = json.loads(shared_path(WHOLE).read_text())["cases"]
    mine = [case for case in cases if case["id"].startswith(suite + "-")]
    assert mine
    wrong = [case["id"] for case in mine if decide(case["given"], case["expect"]) != case["expect"]]
    assert wrong == []


def test_every_row_belongs_to_a_suite() -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    ids = {case["id"].rsplit("-", 1)[0] for case in json.loads(shared_path(WHOLE).read_text())["cases"]}
    assert all(name.startswith(("intersect", "has", "bound-collapse", "compatible")) for name in ids)
