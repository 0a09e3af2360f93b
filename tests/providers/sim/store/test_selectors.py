"""Selectors as a table."""

from typing import Any

import pytest

from providers.sim.store import Store, StoreBadRequest
from providers.sim.store.selectors import label_predicate, matches_label_selector, selection

LABELS = {"app": "web", "tier": "front", "n": "5", "example.test/zone": "a", "empty": ""}
LABEL_CASES = [
    ("", True),
    ("app=web", True),
    ("app==web", True),
    ("app = web", True),
    ("app=db", False),
    ("app!=db", True),
    ("missing!=x", True),
    ("app", True),
    ("missing", False),
    ("!missing", True),
    ("!app", False),
    ("app in (web,db)", True),
    ("app in (db)", False),
    ("app notin (db, cache)", True),
    ("app notin (web)", False),
    ("missing notin (web)", True),
    ("missing in (web)", False),
    ("app=web,tier=front", True),
    ("app=web,tier=back", False),
    ("app in (web),tier notin (back),!missing", True),
    ("example.test/zone=a", True),
    ("n>4", True),
    ("n<5", False),
    ("app>4", False),
    ("empty=", True),
    ("missing=", False),
    ("app in (web,),tier", True),
]


@pytest.mark.parametrize(("text", "expected"), LABEL_CASES)
def test_label_selectors(text: str, expected: bool) -> None:
    predicate = label_predicate(text)
    assert (predicate is None or predicate(LABELS)) is expected


@pytest.mark.parametrize("text", ["a=b=c", "=x", "app in web", "a>b", ",", "a b", "app in (x"])
def test_malformed_label_selectors(text: str) -> None:
    with pytest.raises(StoreBadRequest):
        label_predicate(text)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
    ],
)
def test_label_selector_values(selector: Any, expected: bool) -> None:
    assert matches_label_selector(selector, LABELS) is expected


POD = {
    "metadata": {"name": "p", "namespace": "ns", "labels": LABELS},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("kind", "obj", "text", "expected"),
    [
        ("pods", POD, "metadata.name=p", True),
        ("pods", POD, "metadata.namespace!=ns", False),
        ("pods", POD, "spec.nodeName=n1,status.phase=Running", True),
        ("pods", POD, "status.phase!=Running", False),
        ("pods", POD, "spec.nodeName=", False),
        ("pods", {"metadata": {}, "spec": {}}, "spec.nodeName=", True),
        ("nodes", {"metadata": {}, "spec": {}}, "spec.unschedulable=false", True),
        ("nodes", {"metadata": {}, "spec": {"unschedulable": True}}, "spec.unschedulable=true", True),
        ("events", {"metadata": {}, "involvedObject": {"kind": "Pod"}}, "involvedObject.kind=Pod", True),
        ("events", {"metadata": {}, "source": {"component": "x"}}, "source=x", True),
        ("jobs", {"metadata": {}, "status": {}}, "metadata.name!=x", True),
    ],
)
def test_field_selectors(store: Store, kind: str, obj: Any, text: str, expected: bool) -> None:
    predicate = selection(store.resource(kind), "", text)
    assert predicate is not None
    assert predicate(obj) is expected


@pytest.mark.parametrize(("kind", "text"), [("pods", "spec.foo=x"), ("configmaps", "data=x"), ("pods", "nonsense")])
def test_unknown_fields_are_refused(store: Store, kind: str, text: str) -> None:
    with pytest.raises(StoreBadRequest):
        selection(store.resource(kind), "", text)


def test_both_selectors_must_match(store: Store) -> None:
    predicate = selection(store.resource("pods"), "app=web", "spec.nodeName=n2")
    assert predicate is not None
    assert not predicate(POD)
