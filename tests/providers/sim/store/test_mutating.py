"""Mutating admission policies in the store: which objects they meet, and what they make of them."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.store import PatchType, Store, StoreForbidden, StoreInvalid

Obj = dict[str, Any]
RULE: Obj = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
SUSPEND = "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}]"


def policy(expression: str = SUSPEND, condition: str = "true", **spec: Any) -> Obj:
    return {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
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


def added(path: str, value: str) -> str:
    return f"[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]"


def test_a_condition_that_does_not_hold_counts_more_than_one_that_fails() -> None:
    conditions = [
        {"name": "fails", "expression": "object.metadata.labels['absent'] == 'x'"},
        {"name": "no", "expression": "object.metadata.labels['queue'] == 'y'"},
    ]
    assert job(bound(with_policy(policy(matchConditions=conditions))), queue="x")["spec"]["suspend"] is False


def test_a_policy_that_may_be_asked_again_sees_what_a_later_one_has_made() -> None:
    counted = added("/spec/backoffLimit", "has(object.spec.parallelism) ? object.spec.parallelism : 1")
    later = added("/spec/parallelism", "4")
    for again, expected in (("Never", 1), ("IfNeeded", 4)):
        store = bound(with_policy(policy(counted, reinvocationPolicy=again)))
        store.create(store.resource("mutatingadmissionpolicies"), {**policy(later), "metadata": {"name": "q"}})
        binding = {"metadata": {"name": "q"}, "spec": {"policyName": "q"}}
        store.create(store.resource("mutatingadmissionpolicybindings"), binding)
        assert job(store)["spec"]["backoffLimit"] == expected


def test_a_binding_may_mean_less_than_its_policy() -> None:
    store = with_policy(policy())
    binding = {"policyName": "p", "matchResources": {"objectSelector": {"matchLabels": {"queue": "y"}}}}
    store.create(store.resource("mutatingadmissionpolicybindings"), {"metadata": {"name": "b"}, "spec": binding})
    assert job(store, queue="x")["spec"]["suspend"] is False


@pytest.mark.parametrize(
    "patch",
    [
        "[JSONPatch{op: 'replace', path: '/spec/nope/x', value: 1}]",
        "[JSONPatch{op: 'jump', path: '/spec'}]",
        "object",
        "[JSONPatch{op: 'add', path: '', value: 1}]",
    ],
)
def test_a_patch_that_does_not_apply_is_a_failure_of_its_policy(patch: str) -> None:
    with pytest.raises(StoreForbidden, match="policy 'p' with binding 'b' denied request: JSON Patch: "):
        job(bound(with_policy(policy(patch))))
    assert job(bound(with_policy(policy(patch, failurePolicy="Ignore"))))["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"}), "paramKind is not supported here"),
        (policy(reinvocationPolicy="Always"), r"reinvocationPolicy: Unsupported value"),
        (policy("[JSONPatch{op: 'add', path: '/x', value: params.x}]"), "'params' is not supported here"),
        (policy(condition="authorizer.path('/x').check('get').allowed()"), "'authorizer' is not supported here"),
        (
            policy(matchConstraints={"resourceRules": [{**RULE, "operations": ["DELETE"]}]}),
            "DELETE is not looked at here",
        ),
        (
            policy(matchConstraints={"resourceRules": [{**RULE, "resources": ["jobs/status"]}]}),
            "the subresource status is not looked at here",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(made: Obj, words: str) -> None:
    with pytest.raises(StoreInvalid, match=words):
        with_policy(made)


def test_a_binding_with_parameters_is_refused() -> None:
    store = with_policy(policy())
    spec = {"policyName": "p", "paramRef": {"name": "x"}}
    with pytest.raises(StoreInvalid, match="paramRef is not supported here"):
        store.create(store.resource("mutatingadmissionpolicybindings"), {"metadata": {"name": "b"}, "spec": spec})
