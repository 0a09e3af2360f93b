"""`requirement`: intersection, membership, compatibility."""

from typing import Any

from model.labels import WELL_KNOWN
from model.requirements import STRICT, Requirement, Requirements
from tests.conformance.cases import Case

MODES = {"strict": STRICT, "allow-undefined-well-known": WELL_KNOWN}


def run(case: Case) -> dict[str, Any]:
    """All that the two sides, or the one and a value, give rise to."""
    given = case["given"]
    if "requirement" in given:
        return {"has": requirement(given["requirement"]).has(given["value"])}
    if "key" in given:
        left, right = (_of(given["key"], given[side]) for side in ("left", "right"))
        return {"compatible": left.compatible(right, undefined=MODES[given["mode"]])}
    both = requirement(given["left"]) & requirement(given["right"])
    terms = [{"op": term.operator, "values": list(term.values)} for term in both.terms("key")]
    return {"result": canonical(both), "serialized": terms}


def requirement(given: dict[str, Any]) -> Requirement:
    """A requirement as the cases write it."""
    return Requirement.of(given["op"], given.get("values", ()), given.get("minValues"))


def requirements(given: list[dict[str, Any]]) -> Requirements:
    """A list of them, all at once."""
    out = Requirements()
    for each in given:
        out &= Requirements({each["key"]: requirement(each)})
    return out


def canonical(value: Requirement) -> dict[str, Any]:
    """The set as the cases write it."""
    optional = {"gte": value.gte, "lte": value.lte, "minValues": value.min_values}
    present = {name: number for name, number in optional.items() if number is not None}
    return {"complement": value.complement, "values": sorted(value.values), **present}


def _of(key: str, given: dict[str, Any] | None) -> Requirements:
    return Requirements({} if given is None else {key: requirement(given)})
