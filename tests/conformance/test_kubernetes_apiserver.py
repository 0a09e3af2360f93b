"""What the real API server and kubectl answered: the rows that are copied here, and all where they lie beside it."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from providers.sim.store.errors import StoreForbidden, StorePolicyDenied
from tests.conformance.__main__ import main
from tests.conformance.cases import Result, lines_of
from tests.conformance.kubernetes import SUITE, apiserver, kubectl, ran
from tests.conformance.kubernetes.likeness import RecordedNames, difference
from tests.support.shared import shared_path

FOLDER = Path(__file__).parent / "data" / "kubernetes"
CASES = list(lines_of(FOLDER / "apiserver.jsonl"))
COMMANDS = list(lines_of(FOLDER / "kubectl.jsonl"))
LEAST_WHOLE, LEAST_SAID = 0.9, 0.8


def wrong(results: list[Result]) -> list[str]:
    return [f"{result.id}: {result.note}" for result in results if not result.passed]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_copied(case: dict[str, Any]) -> None:
    assert wrong(list(apiserver.played(case))) == []


def share(results: list[Result], mark: str) -> float:
    return sum(bool(result.got and result.got[mark]) for result in results) / len(results)


def test_every_step_of_the_api_server() -> None:
    results = list(SUITE.run([shared_path("conformance/kubernetes/apiserver.jsonl")]))
    assert wrong(results) == []
    assert len(apiserver.DECLINED) <= len(results) * 0.01
    assert {result.id for result in results} >= apiserver.DECLINED.keys()
    assert share(results, "whole") >= LEAST_WHOLE
    assert share([it for it in results if (it.case or {})["status"] >= 400], "said") >= LEAST_SAID


@pytest.mark.skipif(kubectl.KUBECTL is None, reason="kubectl is not on the PATH")
@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in COMMANDS])
def test_kubectl(case: dict[str, Any]) -> None:
    result = ran("kubectl", case)
    assert result.passed, (result.expected, result.got, result.note)


@pytest.mark.slow
@pytest.mark.skipif(kubectl.KUBECTL is None, reason="kubectl is not on the PATH")
def test_every_command_of_kubectl() -> None:
    results = list(SUITE.run([shared_path("conformance/kubernetes/kubectl.jsonl")]))
    assert wrong(results) == []


# -- the comparison finds what is wrong -------------------------------------------------------------------------------


def step(**change: Any) -> Result:
    """The first step of a copied case, as recorded but for `change`."""
    case = next(it for it in CASES if it["id"] == "finalizer-names")
    first = {**case["steps"][0], **change}
    return next(iter(apiserver.played({**case, "steps": [first]})))


def test_another_status_or_reason_fails_and_another_message_is_counted() -> None:
    assert step().passed
    assert not step(status=400).passed
    recorded = next(it for it in CASES if it["id"] == "finalizer-names")["steps"][0]["got"]
    assert not step(got={**recorded, "reason": "Conflict"}).passed
    other = step(got={**recorded, "message": "something else"})
    assert (other.passed, other.got["said"]) == (True, False)


def test_a_message_that_the_product_reads_must_hold() -> None:
    case = deepcopy(next(it for it in CASES if it["id"] == "eviction-unhealthy-policy"))
    (refused,) = [it for it in case["steps"] if it.get("status") == 429]
    refused["got"] = {**refused["got"], "message": "Cannot evict pod today"}
    assert [result.passed for result in apiserver.played(case)].count(False) == 1


def test_what_the_recorder_left_out_is_not_missed_and_names_keep_their_value() -> None:
    names = RecordedNames(ns="space")
    made = {"metadata": {"namespace": "space", "resourceVersion": "7", "uid": "u", "creationTimestamp": "now"}}
    assert difference({"metadata": {"namespace": "{ns}", "resourceVersion": "{rv1}"}}, made, names) == ""
    assert "instead of" in difference("{rv1}", "8", names)
    assert difference("a ... z", "a long message z", names) == ""
    assert "also b=2" in difference({"a": 1}, {"a": 1, "b": 2}, names)
    assert "without a=1" in difference({"a": 1}, {}, names)
    assert "2 items instead of 1" in difference({"x": [1]}, {"x": [1, 2]}, names)


def test_the_table_counts_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubernetes", str(FOLDER / "apiserver.jsonl")]) == 0
    said = capsys.readouterr().out.splitlines()
    steps = sum("method" in it for case in CASES for it in case["steps"])
    assert said[-1] == f"{steps} passed, 0 failed"
    assert said[0].split() == ["family", "passed", "failed", "declined", "whole", "messages"]


def test_a_policy_that_fails_is_no_ordinary_refusal() -> None:
    """403 with the reason Invalid: who branches on the reason alone takes it for a 422."""
    case = next(it for it in CASES if it["id"] == "map-bad-condition")
    refused = next(it for it in case["steps"] if it.get("status") == 403)
    assert refused["got"]["reason"] == "Invalid"
    assert issubclass(StorePolicyDenied, StoreForbidden)
    assert (StorePolicyDenied.code, StorePolicyDenied.reason) == (403, "Invalid")
