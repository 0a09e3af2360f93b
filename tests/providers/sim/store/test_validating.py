"""Validating admission policies by contract: a policy and a request to a verdict, as the API server gives it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from providers.clock import VirtualClock
from providers.sim.store import ApiError, PatchType, Store, StoreForbidden, StoreInvalid
from providers.sim.store.cel import CelExpression
from providers.sim.store.policies import collected_warnings

Obj = dict[str, Any]
Ask = Callable[[Store], object]
RULE: Obj = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
LIVES: Obj = {**RULE, "operations": ["CREATE", "UPDATE", "DELETE"]}
UPDATES: list[Obj] = [{**RULE, "operations": ["UPDATE"]}]
N: list[Obj] = [{"name": "v", "expression": "object.data.n"}]


def policy(*expressions: str | Obj, rules: list[Obj] | None = None, match: Obj | None = None, **spec: Any) -> Obj:
    validations = [{"expression": it} if isinstance(it, str) else it for it in expressions or ("false",)]
    constraints = {"resourceRules": rules or [RULE], **(match or {})}
    return {"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, "validations": validations, **spec}}


def installed(made: Obj, actions: list[str] | None = None, **binding: Any) -> Store:
    """A store with the policy, bound, and a ConfigMap `held` with `n: "1"` that it has not looked at."""
    store = Store(VirtualClock())
    for name, labels in (("default", {}), ("team", {"tier": "gold"})):
        if name != "default":
            store.create(store.resource("namespaces"), {"metadata": {"name": name, "labels": labels}})
        made_before = {"metadata": {"name": "held", "labels": {"app": "a"}}, "data": {"n": "1"}}
        store.create(store.resource("configmaps"), made_before, namespace=name)
    store.create(store.resource("validatingadmissionpolicies"), made)
    spec = {"policyName": "p", "validationActions": actions or ["Deny"], **binding}
    store.create(store.resource("validatingadmissionpolicybindings"), {"metadata": {"name": "b"}, "spec": spec})
    return store


def creation(name: str = "c", namespace: str = "default", labels: Obj | None = None, **data: str) -> Ask:
    body = {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "data": data}
    return lambda store: store.create(store.resource("configmaps"), body, namespace=namespace)


def change(**data: str) -> Ask:
    patch = {"data": data}
    return lambda store: store.patch(store.resource("configmaps"), "held", patch, PatchType.MERGE, namespace="default")


def deletion(store: Store) -> object:
    return store.delete(store.resource("configmaps"), "held", namespace="default")


def pod(store: Store) -> object:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return store.create(store.resource("pods"), body, namespace="default")


def status_of_node(store: Store) -> object:
    node = store.create(store.resource("nodes"), {"metadata": {"name": "n"}})
    return store.update(store.resource("nodes"), {**node, "status": {"phase": "Running"}}, subresource="status")


def verdict(store: Store, ask: Ask) -> str:
    """`admitted`, or the code of the refusal."""
    try:
        ask(store)
    except ApiError as error:
        return str(error.code)
    return "admitted"


NODES = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["nodes/status"]}
GOLD = {"namespaceSelector": {"matchLabels": {"tier": "gold"}}}


@pytest.mark.parametrize(
    ("made", "ask", "expected"),
    [
        # operations x what is asked: the rule names what it means, and nothing else is looked at
        (policy(), creation(), "422"),
        (policy(), change(n="2"), "admitted"),
        (policy(), deletion, "admitted"),
        (policy(rules=UPDATES), creation(), "admitted"),
        (policy(rules=UPDATES), change(n="2"), "422"),
        (policy(rules=[{**RULE, "operations": ["DELETE"]}]), deletion, "422"),
        (policy(rules=[{**RULE, "operations": ["*"]}]), deletion, "422"),
        (policy(), pod, "admitted"),
        # groups, versions, resources, subresources, names, scopes
        (policy(rules=[{**RULE, "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]), pod, "422"),
        (policy(rules=[{**RULE, "apiGroups": ["apps"]}]), creation(), "admitted"),
        (policy(rules=[{**RULE, "apiVersions": ["v2"]}]), creation(), "admitted"),
        (policy(rules=[{**RULE, "resourceNames": ["c"]}]), creation("c"), "422"),
        (policy(rules=[{**RULE, "resourceNames": ["c"]}]), creation("d"), "admitted"),
        (policy(rules=[{**RULE, "scope": "Cluster"}]), creation(), "admitted"),
        (policy(rules=[{**RULE, "scope": "Namespaced"}]), creation(), "422"),
        (policy(rules=[NODES]), status_of_node, "422"),
        (policy(rules=[{**NODES, "resources": ["nodes"], "operations": ["UPDATE"]}]), status_of_node, "admitted"),
        (policy(match={"excludeResourceRules": [{**RULE, "resourceNames": ["c"]}]}), creation("c"), "admitted"),
        (policy(match={"excludeResourceRules": [{**RULE, "resourceNames": ["c"]}]}), creation("d"), "422"),
        # selectors: of the namespace, and of the object as it is or was
        (policy(match=GOLD), creation(namespace="team"), "422"),
        (policy(match=GOLD), creation(), "admitted"),
        (policy(match={"objectSelector": {"matchLabels": {"app": "a"}}}), creation(labels={"app": "a"}), "422"),
        (policy(match={"objectSelector": {"matchLabels": {"app": "a"}}}), creation(), "admitted"),
        (policy(match={"objectSelector": {"matchLabels": {"app": "a"}}}, rules=[LIVES]), deletion, "422"),
        # what expressions know
        (policy("object.data.n == '2'"), creation(n="2"), "admitted"),
        (policy("object.data.n == '2'"), creation(n="3"), "422"),
        (policy("object.data.n > oldObject.data.n", rules=UPDATES), change(n="2"), "admitted"),
        (policy("object.data.n > oldObject.data.n", rules=UPDATES), change(n="0"), "422"),
        (policy("oldObject == null || object == null", rules=[LIVES]), creation(), "admitted"),
        (policy("object == null && oldObject.data.n == '1'", rules=[LIVES]), deletion, "admitted"),
        (policy("request.operation == 'DELETE' && request.name == 'held'", rules=[LIVES]), deletion, "admitted"),
        (policy("request.resource.resource + request.kind.kind == 'configmapsConfigMap'"), creation(), "admitted"),
        (policy("namespaceObject.metadata.labels.tier == 'gold'"), creation(namespace="team"), "admitted"),
        (policy("namespaceObject.metadata.labels.?tier.orValue('') == 'gold'"), creation(), "422"),
        # conditions: one that does not hold counts more than one that fails
        (policy(matchConditions=[{"name": "a", "expression": "object.data.n == '1'"}]), creation(n="1"), "422"),
        (policy(matchConditions=[{"name": "a", "expression": "object.data.n == '1'"}]), creation(n="2"), "admitted"),
        (policy(matchConditions=[{"name": "a", "expression": "object.data.m == '1'"}]), creation(n="2"), "422"),
        (
            policy(
                matchConditions=[
                    {"name": "a", "expression": "object.data.m == '1'"},
                    {"name": "b", "expression": "object.data.n == '1'"},
                ]
            ),
            creation(n="2"),
            "admitted",
        ),
        # what fails: denies, or is ignored; a variable that nobody asks for does not fail
        (policy("object.data.m == '1'"), creation(n="1"), "422"),
        (policy("object.data.m == '1'", failurePolicy="Ignore"), creation(n="1"), "admitted"),
        (policy("object.data.m == '1'", "false", failurePolicy="Ignore"), creation(n="1"), "422"),
        (policy("true", variables=[{"name": "v", "expression": "object.data.m"}]), creation(n="1"), "admitted"),
        (policy("variables.v == '1'", variables=N), creation(n="1"), "admitted"),
        # reasons have their codes
        (policy({"expression": "false", "reason": "Forbidden"}), creation(), "403"),
        (policy({"expression": "false", "reason": "Unauthorized"}), creation(), "401"),
        (policy({"expression": "false", "reason": "RequestEntityTooLarge"}), creation(), "413"),
    ],
)  # fmt: skip
def test_verdicts(made: Obj, ask: Ask, expected: str) -> None:
    assert verdict(installed(made), ask) == expected


@pytest.mark.parametrize(
    ("validation", "told"),
    [
        ({}, "failed expression: false"),
        ({"message": "no "}, "no"),
        ({"message": "no", "messageExpression": "'not ' + object.data.n"}, "not 1"),
        ({"message": "no", "messageExpression": "object.data.absent"}, "no"),
        ({"message": "no", "messageExpression": "'two' + '\\n' + 'lines'"}, "no"),
        ({"messageExpression": "' '"}, "failed expression: false"),
    ],
)
def test_what_is_said(validation: Obj, told: str) -> None:
    store = installed(policy({"expression": "false", **validation}))
    with pytest.raises(StoreInvalid) as caught:
        creation(n="1")(store)
    said = f"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {told}"
    assert caught.value.message == f'configmaps "c" is forbidden: {said}'
    assert caught.value.details == {"name": "c", "kind": "configmaps", "causes": [{"message": said}]}


def test_what_fails_says_which_expression() -> None:
    with pytest.raises(StoreInvalid, match=r"expression 'object\.data\.m == 1' resulted in error: no such key: m"):
        creation(n="1")(installed(policy("object.data.m == 1")))
    failing = policy("variables.v", variables=[{"name": "v", "expression": "object.data.m"}])
    with pytest.raises(StoreInvalid, match=r'composited variable "v" fails to evaluate: no such key: m'):
        creation(n="1")(installed(failing))


def test_who_only_warns_or_audits_lets_everything_through(capsys: pytest.CaptureFixture[str]) -> None:
    with collected_warnings() as told:
        assert verdict(installed(policy(), ["Warn"]), creation()) == "admitted"
    assert told == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false"]
    with collected_warnings() as told:
        assert verdict(installed(policy(), ["Audit"]), creation()) == "admitted"
    assert told == []
    assert "validation_failure" in capsys.readouterr().out


def test_a_binding_may_mean_less_than_its_policy() -> None:
    store = installed(policy(), matchResources=GOLD)
    assert [verdict(store, creation()), verdict(store, creation(namespace="team"))] == ["admitted", "422"]


def test_a_policy_works_from_its_binding_to_the_end_of_either() -> None:
    store = installed(policy())
    asked = [verdict(store, creation("a"))]
    store.delete(store.resource("validatingadmissionpolicybindings"), "b")
    asked.append(verdict(store, creation("b")))
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    store.create(store.resource("validatingadmissionpolicybindings"), binding)
    asked.append(verdict(store, creation("c")))
    change = {"spec": {"validations": [{"expression": "true"}]}}
    store.patch(store.resource("validatingadmissionpolicies"), "p", change, PatchType.MERGE)
    asked.append(verdict(store, creation("d")))
    assert asked == ["422", "admitted", "422", "admitted"]


def test_a_rehearsal_is_judged_and_knows_that_it_is_one() -> None:
    store = installed(policy("!request.dryRun"))
    body = {"metadata": {"name": "c"}}
    with pytest.raises(StoreInvalid):
        store.create(store.resource("configmaps"), body, namespace="default", dry_run=True)
    store.create(store.resource("configmaps"), body, namespace="default")


def test_nobody_locks_himself_out_of_his_policies() -> None:
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    store = installed(policy(rules=[every]))
    assert verdict(store, creation()) == "422"
    store.delete(store.resource("validatingadmissionpolicybindings"), "b")
    assert verdict(store, creation()) == "admitted"


@pytest.mark.parametrize("made", ["object.data.m", "1 / 0 == 1 ? 'a' : 'b'", "object.data.n"])
def test_a_variable_is_computed_once_whether_it_has_a_value_or_fails(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks the one before it twice: without a memory the last would ask the first a million times."""
    chain = [f"variables.v{i} == 'x' || variables.v{i} != 'x' ? '' : ''" for i in range(20)]
    variables = [{"name": f"v{i}", "expression": text} for i, text in enumerate([made, *chain])]
    asked: list[str] = []
    computed = CelExpression.value
    monkeypatch.setattr(CelExpression, "value", lambda self, known: (asked.append(self.text), computed(self, known))[1])
    store = installed(policy("variables.v20 == 'x'", "variables.v20 == 'y'", variables=variables))
    asked.clear()
    assert verdict(store, creation(n="1")) == "422"
    assert asked.count(made) == 1
    assert len(asked) == 23


WIDE: list[Obj] = [{"name": "n", "expression": f"[{', '.join(map(str, range(100)))}]"}]
COSTLY = "variables.n.all(x, variables.n.all(y, x < 1000 && y < x + 1000))"


@pytest.mark.parametrize(("failure", "expected"), [("Fail", "422"), ("Ignore", "admitted")])
def test_a_policy_may_cost_so_much_together(failure: str, expected: str) -> None:
    for times, found in ((5, "admitted"), (20, expected)):
        asked = [f"{COSTLY} && {n} >= 0" for n in range(times)]
        store = installed(policy(*asked, "size(variables.n) == 100", variables=WIDE, failurePolicy=failure))
        assert verdict(store, creation()) == found


def test_a_chain_of_variables_that_double_a_text_ends() -> None:
    chain = [{"name": "v0", "expression": f"'{'x' * 1000}'"}]
    chain += [{"name": f"v{n}", "expression": f"variables.v{n - 1} + variables.v{n - 1}"} for n in range(1, 40)]
    with pytest.raises(StoreInvalid, match="actual cost limit exceeded"):
        creation()(installed(policy("size(variables.v39) > 0", variables=chain)))


ON_EVICTIONS = {**RULE, "resources": ["pods/eviction"]}


@pytest.mark.parametrize(
    ("rule", "expression", "expected"),
    [
        ({**RULE, "operations": ["DELETE"], "resources": ["pods"]}, "false", "admitted"),
        ({**RULE, "operations": ["UPDATE"], "resources": ["pods", "pods/status"]}, "false", "admitted"),
        ({**RULE, "operations": ["CREATE"], "resources": ["pods"]}, "false", "admitted"),
        (ON_EVICTIONS, "false", "422"),
        ({**ON_EVICTIONS, "operations": ["UPDATE", "DELETE"]}, "false", "admitted"),
        ({**ON_EVICTIONS, "resourceNames": ["q"]}, "false", "admitted"),
        (ON_EVICTIONS, "object.kind == 'Eviction' && object.apiVersion == 'policy/v1'", "admitted"),
        (ON_EVICTIONS, "object.metadata.name == 'p' && oldObject == null", "admitted"),
        (ON_EVICTIONS, "object.deleteOptions.gracePeriodSeconds == 0", "admitted"),
        (ON_EVICTIONS, "request.kind.group + request.kind.kind == 'policyEviction'", "admitted"),
        (ON_EVICTIONS, "request.resource.resource + request.subResource == 'podseviction'", "admitted"),
        (ON_EVICTIONS, "request.operation == 'CREATE' && request.name == 'p'", "admitted"),
        (ON_EVICTIONS, "namespaceObject.metadata.name == 'other'", "422"),
    ],
)
def test_an_eviction_is_created_and_no_deletion(rule: Obj, expression: str, expected: str) -> None:
    """Source: registry/core/pod/storage/eviction.go, which asks nobody of the condition and the deletion of the pod."""
    store = Store(VirtualClock())
    pod(store)
    store.create(store.resource("validatingadmissionpolicies"), policy(expression, rules=[rule]))
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    store.create(store.resource("validatingadmissionpolicybindings"), binding)
    said = {"deleteOptions": {"gracePeriodSeconds": 0}}
    ask: Ask = lambda it: it.evict("p", "default", grace_period_s=0, eviction=said)  # noqa: E731
    assert verdict(store, ask) == expected
    assert len(store.list(store.resource("pods"))) == (0 if expected == "admitted" else 1)


def test_the_booking_of_an_eviction_is_an_update_of_the_budget() -> None:
    """The API server writes it as a client of its own, so that policies see it."""
    booking = {"apiGroups": ["policy"], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    store = Store(VirtualClock())
    budgets = store.resource("poddisruptionbudgets")
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}
    made = store.create(budgets, {"metadata": {"name": "b"}, "spec": spec}, namespace="default")
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0}
    store.update(budgets, {**made, "status": {**status, "expectedPods": 1}}, subresource="status")
    body = {"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    held = store.create(store.resource("pods"), body, namespace="default")
    store.update(store.resource("pods"), {**held, "status": {"phase": "Running"}}, subresource="status")
    rules = [{**booking, "resources": ["poddisruptionbudgets/status"]}]
    store.create(store.resource("validatingadmissionpolicies"), policy(rules=rules))
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    store.create(store.resource("validatingadmissionpolicybindings"), binding)
    with pytest.raises(StoreInvalid, match="poddisruptionbudgets"):
        store.evict("p", "default")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"}), r"spec\.paramKind: Forbidden: paramKind is not"),
        (policy(auditAnnotations=[{"key": "a", "valueExpression": "'x'"}]), r"spec\.auditAnnotations: Forbidden"),
        (policy(rules=[{**RULE, "operations": ["CONNECT"]}]), r"operations\[0\]: Forbidden: CONNECT is not looked at"),
        (policy(rules=[{**RULE, "resources": ["pods/binding"]}]), r"Forbidden: the subresource binding is not"),
        (policy(rules=[{**RULE, "resources": ["*/*"]}]), r"Forbidden: the subresource \* is not"),
        (policy(rules=[{**RULE, "operations": ["MAKE"]}]), r'operations\[0\]: Unsupported value: "MAKE"'),
        (policy(rules=[{**RULE, "scope": "World"}]), r'scope: Unsupported value: "World"'),
        (policy(rules=[{**RULE, "resources": []}]), r"resources: Required value"),
        (policy(match={"resourceRules": []}), r"resourceRules: Required value"),
        (policy(match={"matchPolicy": "Near"}), r"matchPolicy: Unsupported value"),
        (
            policy(match={"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
            "not a valid selector",
        ),
        (policy(failurePolicy="Perhaps"), r"failurePolicy: Unsupported value"),
        (policy({"expression": "false", "reason": "Because"}), r"reason: Unsupported value"),
        (policy({"expression": "1"}), "must evaluate to bool but got int"),
        (policy({"expression": "true", "messageExpression": "1"}), "must evaluate to string but got int"),
        (policy({"expression": "true", "message": "a\nb"}), "must not contain line breaks"),
        (policy("params.x"), "'params' is not supported here"),
        (policy("request.userInfo.username == 'x'"), r"'request\.userInfo' is not supported here"),
        (policy("variables.w", variables=[{"name": "v", "expression": "1"}]), "undefined field 'w'"),
        (
            policy(variables=[{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]),
            r"variables\[0\]\.expression: .*undefined field 'b'",
        ),
        (policy(variables=[{"name": "a", "expression": "1"}] * 2), r"variables\[1\]\.name: Duplicate value"),
        (policy(matchConditions=[{"name": "a", "expression": "'x'"}]), "must evaluate to bool but got string"),
        (
            {"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [RULE]}}},
            "must contain at least one",
        ),
    ],
)
def test_a_policy_that_cannot_work_here_is_refused_by_name(made: Obj, words: str) -> None:
    with pytest.raises(StoreInvalid, match=words):
        installed(made)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"policyName": "", "validationActions": ["Deny"]}, "policyName: Required value"),
        ({"policyName": "p"}, "validationActions: Required value"),
        ({"policyName": "p", "validationActions": ["Shout"]}, "Unsupported value"),
        ({"policyName": "p", "validationActions": ["Warn", "Warn"]}, "Duplicate value"),
        ({"policyName": "p", "validationActions": ["Warn", "Deny"]}, "must not contain both Deny and Warn"),
        (
            {"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "x"}},
            "paramRef is not supported here",
        ),
    ],
)
def test_a_binding_that_cannot_work_here_is_refused_by_name(spec: Obj, words: str) -> None:
    store = Store(VirtualClock())
    binding = {"metadata": {"name": "b"}, "spec": spec}
    with pytest.raises(StoreInvalid, match=words):
        store.create(store.resource("validatingadmissionpolicybindings"), binding)


def test_the_policy_of_the_guide_does_what_it_says() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs/guides/faults-in-the-sandbox.md").read_text("utf-8")
    (text,) = [it for it in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "few-replicas" in it]
    store = Store(VirtualClock())
    for document in yaml.safe_load_all(text):
        store.create(store.resource(document["kind"]), document)
    for replicas, expected in ((5, "admitted"), (6, "422")):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        body = {"metadata": {"name": f"d{replicas}"}, "spec": spec}
        resource = store.resource("deployments")
        assert verdict(store, lambda it, r=resource, b=body: it.create(r, b, namespace="default")) == expected


def test_who_may_not_is_told_so() -> None:
    with pytest.raises(StoreForbidden, match="nobody may"):
        creation()(installed(policy({"expression": "false", "message": "nobody may", "reason": "Forbidden"})))
