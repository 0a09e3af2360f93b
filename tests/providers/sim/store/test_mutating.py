"""Mutating admission policies in the store: which objects they meet, and what they make of them."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.store import (
    PatchType,
    Store,
    StoreBadRequest,
    StoreForbidden,
    StoreInternalError,
    StoreInvalid,
)

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


# -- what a policy leaves behind ------------------------------------------------------------------------------------

THINGS: Obj = {
    "metadata": {"name": "things.test.dev"},
    "spec": {
        "group": "test.dev",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "n": {"type": "integer", "maximum": 9},
                                    "grown": {"type": "integer", "default": 4},
                                },
                                "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n != 7"}],
                            }
                        },
                    }
                },
            }
        ],
    },
}
ON_THINGS: Obj = {"apiGroups": ["test.dev"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["things"]}


def things(expression: str, **spec: Any) -> Store:
    """A store with a custom kind and a bound policy of it."""
    store = Store(VirtualClock())
    store.create(store.resource("customresourcedefinitions"), THINGS)
    held = {"metadata": {"name": "held"}, "spec": {"n": 1}}
    store.create(store.resource("things"), held, namespace="default")
    match = {"matchConstraints": {"resourceRules": [ON_THINGS]}}
    store.create(store.resource("mutatingadmissionpolicies"), policy(expression, **{**match, **spec}))
    return bound(store)


def thing(store: Store, **spec: Any) -> Obj:
    return store.create(store.resource("things"), {"metadata": {"name": "x"}, "spec": spec}, namespace="default")


def changed_thing(store: Store, **spec: Any) -> Obj:
    return store.patch(store.resource("things"), "held", {"spec": spec}, PatchType.MERGE, namespace="default")


@pytest.mark.parametrize("write", [thing, changed_thing])
@pytest.mark.parametrize(
    ("value", "words"),
    [("'x'", "must be of type integer"), ("10", "less than or equal to 9"), ("7", "failed rule: !has")],
)
def test_what_a_policy_leaves_has_to_fit_the_schema_and_its_rules(write: Any, value: str, words: str) -> None:
    store = things(added("/spec/n", value))
    with pytest.raises(StoreInvalid, match=words):
        write(store, n=2)
    assert [it["spec"]["n"] for it in store.list(store.resource("things"))] == [1]


@pytest.mark.parametrize("write", [thing, changed_thing])
def test_a_policy_may_mend_what_does_not_fit_and_sees_the_defaults(write: Any) -> None:
    assert write(things(added("/spec/n", "object.spec.grown + 1")), n=100)["spec"] == {"n": 5, "grown": 4}


@pytest.mark.parametrize("write", [thing, changed_thing])
def test_what_a_policy_adds_and_nobody_knows_is_dropped(write: Any) -> None:
    assert write(things(added("/spec/nope", "true")), n=2)["spec"] == {"n": 2, "grown": 4}


@pytest.mark.parametrize("write", [thing, changed_thing])
def test_validating_policies_judge_what_mutating_ones_leave(write: Any) -> None:
    store = things(added("/spec/n", "3"))
    spec = {"matchConstraints": {"resourceRules": [ON_THINGS]}, "validations": [{"expression": "object.spec.n != 3"}]}
    store.create(store.resource("validatingadmissionpolicies"), {"metadata": {"name": "v"}, "spec": spec})
    binding = {"metadata": {"name": "v"}, "spec": {"policyName": "v", "validationActions": ["Deny"]}}
    store.create(store.resource("validatingadmissionpolicybindings"), binding)
    with pytest.raises(StoreInvalid, match=r"failed expression: object\.spec\.n != 3"):
        write(store, n=2)


@pytest.mark.parametrize("write", [thing, changed_thing])
@pytest.mark.parametrize(
    ("path", "value", "error", "words"),
    [
        ("/metadata/labels", "{'a b': 'c'}", StoreInvalid, r"metadata\.labels: Invalid value"),
        ("/metadata/labels", "'a'", StoreBadRequest, r"metadata\.labels, which is a dict"),
        ("/metadata/finalizers", "['x']", StoreInvalid, "finalizer"),
        ("/metadata/namespace", "'other'", StoreBadRequest, "the namespace of the provided object does not match"),
        ("/kind", "'Other'", StoreBadRequest, "Kind=Other does not match"),
    ],
)
def test_the_metadata_that_a_policy_leaves_are_checked(
    write: Any, path: str, value: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        write(things(added(path, value)), n=2)


def test_a_policy_may_name_a_new_object_and_no_old_one() -> None:
    store = things(added("/metadata/name", "'other'"))
    assert thing(store, n=2)["metadata"]["name"] == "other"
    assert sorted(it["metadata"]["name"] for it in store.list(store.resource("things"))) == ["held", "other"]
    with pytest.raises(StoreInvalid, match="field is immutable"):
        changed_thing(store, n=2)
    with pytest.raises(StoreInvalid, match=r"metadata\.name: Invalid value"):
        thing(things(added("/metadata/name", "'O_O'")), n=2)


@pytest.mark.parametrize("write", [thing, changed_thing])
def test_what_the_server_says_of_an_object_is_not_a_policys_to_say(write: Any) -> None:
    plain = write(things("[]"), n=2)["metadata"]
    for field, value in (("generation", "77"), ("creationTimestamp", "'2020-01-01T00:00:00Z'")):
        assert write(things(added(f"/metadata/{field}", value)), n=2)["metadata"][field] == plain[field]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("/spec/suspend", "'yes'", r"Internal error occurred: .*spec\.suspend"),
        ("/spec/nope", "true", 'strict decoding error: unknown field "spec.nope"'),
        ("/spec/template/spec/containers/0/resources", "{'limits': {'cpu': 'much'}}", r"resources\.limits\.cpu"),
    ],
)
def test_a_built_in_object_that_a_patch_leaves_has_to_be_one(path: str, value: str, words: str) -> None:
    """No failure policy is asked: the object cannot be read (`patch/json_patch.go`)."""
    for failure in ("Fail", "Ignore"):
        with pytest.raises(StoreInternalError, match=words):
            job(bound(with_policy(policy(added(path, value), failurePolicy=failure))))


def test_a_null_that_a_patch_adds_to_a_built_in_object_is_nothing() -> None:
    assert (
        "activeDeadlineSeconds"
        not in job(bound(with_policy(policy(added("/spec/activeDeadlineSeconds", "null")))))["spec"]
    )


def test_a_configuration_that_does_not_fit_is_a_failure_of_its_policy() -> None:
    configuration = {"expression": "Object{spec: Object.spec{suspend: 'yes'}}"}
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": configuration}]
    with pytest.raises(StoreForbidden, match=r"policy 'p' with binding 'b' denied request: .*suspend"):
        job(bound(with_policy(policy(mutations=mutations))))
    ignoring = bound(with_policy(policy(mutations=mutations, failurePolicy="Ignore")))
    assert job(ignoring)["spec"]["suspend"] is False


def test_who_was_not_asked_at_first_is_not_asked_again() -> None:
    """A second pass is of those whose conditions held in the first one, and hold now."""
    counted = added("/spec/backoffLimit", "object.spec.?parallelism.orValue(1)")
    held = "object.spec.?parallelism.orValue(1) "
    for condition, expected in (("== 4", 6), ("!= 4", 1), ("> 0", 4)):
        store = bound(with_policy(policy(counted, held + condition, reinvocationPolicy="IfNeeded")))
        store.create(
            store.resource("mutatingadmissionpolicies"),
            {**policy(added("/spec/parallelism", "4")), "metadata": {"name": "q"}},
        )
        store.create(
            store.resource("mutatingadmissionpolicybindings"), {"metadata": {"name": "q"}, "spec": {"policyName": "q"}}
        )
        assert job(store)["spec"]["backoffLimit"] == expected


def test_selectors_are_asked_again_of_what_has_become_of_the_object() -> None:
    match = {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"queue": "x"}}}
    grown = added("/spec/backoffLimit", "object.spec.?backoffLimit.orValue(0) + 1")
    for path, expected in (("/metadata/annotations", 2), ("/metadata/labels", 1)):
        store = bound(with_policy(policy(grown, reinvocationPolicy="IfNeeded", matchConstraints=match)))
        other = {**policy(added(path, "{'a': 'b'}")), "metadata": {"name": "q"}}
        store.create(store.resource("mutatingadmissionpolicies"), other)
        store.create(
            store.resource("mutatingadmissionpolicybindings"), {"metadata": {"name": "q"}, "spec": {"policyName": "q"}}
        )
        assert job(store, queue="x")["spec"]["backoffLimit"] == expected


def test_the_limits_of_a_namespace_are_filled_in_before_policies_and_once_more_after_them() -> None:
    on_pods = {"resourceRules": [{**RULE, "apiGroups": [""], "resources": ["pods"]}]}
    seen = "{'cpu': string(object.spec.containers[0].resources.limits.cpu)}"
    patch = (
        f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {seen}}},"
        " JSONPatch{op: 'add', path: '/spec/containers/-', value: {'name': 'side', 'image': 'i'}}]"
    )
    store = bound(with_policy(policy(patch, matchConstraints=on_pods)))
    limits = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}
    store.create(store.resource("limitranges"), limits, namespace="default")
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod = store.create(store.resource("pods"), body, namespace="default")
    assert pod["metadata"]["labels"] == {"cpu": "2"}
    assert [it["resources"]["limits"] for it in pod["spec"]["containers"]] == [{"cpu": "2"}] * 2


def test_a_mutation_that_fails_stops_no_other_one() -> None:
    texts = ["[JSONPatch{op: 'replace', path: '/spec/nope/x', value: 1}]", added("/spec/backoffLimit", "3")]
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": it}} for it in texts]
    ignoring = bound(with_policy(policy(mutations=mutations, failurePolicy="Ignore")))
    assert job(ignoring)["spec"]["backoffLimit"] == 3
    with pytest.raises(StoreForbidden):
        job(bound(with_policy(policy(mutations=mutations))))


def test_a_patch_whose_test_does_not_hold_leaves_the_object() -> None:
    """It is no failure (`patch/json_patch.go`)."""
    for label, expected in (("x", True), ("y", False)):
        tested = f"[JSONPatch{{op: 'test', path: '/metadata/labels/queue', value: '{label}'}}, {SUSPEND[1:]}"
        assert job(bound(with_policy(policy(tested))), queue="x")["spec"]["suspend"] is expected
