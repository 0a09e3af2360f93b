"""Mutating admission policies in the store: which objects they meet, and what they make of them."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.store import PatchType, Store, StoreForbidden, StoreInvalid

Obj = dict[str, Any]
SUSPEND = "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}]"


def policy(expression: str = SUSPEND, condition: str = "true", **spec: Any) -> Obj:
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    return {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "c", "expression": condition}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
            "reinvocationPolicy": "Never",
            **spec,
        },
    }


def with_policy(made: Obj) -> Store:
    store = Store(VirtualClock())
    store.create(store.resource("mutatingadmissionpolicies"), made)
    return store


def bound(store: Store) -> Store:
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    store.create(store.resource("mutatingadmissionpolicybindings"), binding)
    return store


def job(store: Store, **labels: str) -> Obj:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "j", "labels": labels}, "spec": {"template": template}}
    return store.create(store.resource("jobs"), body, namespace="default")


def test_a_policy_does_nothing_until_it_is_bound() -> None:
    store = with_policy(policy())
    assert job(store)["spec"]["suspend"] is False
    store.delete(store.resource("jobs"), "j", namespace="default")
    assert job(bound(store))["spec"]["suspend"] is True


def test_conditions_and_selectors_say_which_objects() -> None:
    store = bound(with_policy(policy(condition="'queue' in object.metadata.labels && size(object.kind) > 0")))
    assert job(store, queue="x")["spec"]["suspend"] is True
    match = {**policy()["spec"]["matchConstraints"], "objectSelector": {"matchLabels": {"queue": "y"}}}
    other = bound(with_policy(policy(matchConstraints=match)))
    assert job(other, queue="x")["spec"]["suspend"] is False


def test_what_is_configured_is_laid_over_and_updates_are_another_operation() -> None:
    configuration = {"expression": "Object{spec: Object.spec{backoffLimit: 3}}"}
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": configuration}]
    store = bound(with_policy(policy(mutations=mutations)))
    assert job(store)["spec"]["backoffLimit"] == 3
    jobs, patch = store.resource("jobs"), {"spec": {"backoffLimit": 5}}
    assert store.patch(jobs, "j", patch, PatchType.MERGE, namespace="default")["spec"]["backoffLimit"] == 5


def test_expressions_know_the_request_and_the_variables_of_the_policy() -> None:
    variables = [{"name": "late", "expression": "request.operation == 'CREATE' && request.namespace == 'default'"}]
    patch = "[JSONPatch{op: 'add', path: '/spec/suspend', value: variables.late}]"
    assert job(bound(with_policy(policy(patch, variables=variables))))["spec"]["suspend"] is True


def test_a_policy_that_fails_denies_or_is_ignored() -> None:
    missing = "[JSONPatch{op: 'add', path: '/spec/suspend', value: object.metadata.labels['absent'] == 'x'}]"
    with pytest.raises(StoreForbidden, match="no such key: absent"):
        job(bound(with_policy(policy(missing))), queue="x")
    ignoring = bound(with_policy(policy(missing, failurePolicy="Ignore")))
    assert job(ignoring, queue="x")["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (policy("1 + 1"), r"jsonPatch\.expression"),
        (policy("object.("), "compilation failed"),
        (policy(condition="'x'"), "must evaluate to bool but got string"),
        (policy(mutations=[]), "mutations must contain"),
        (policy(matchConstraints=None), "matchConstraints: Required"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(made: Obj, field: str) -> None:
    with pytest.raises(StoreInvalid, match=field):
        with_policy(made)
