"""Where a pod may run, as admission completes it: runtime class, label keys, the host network, node selector terms."""

from collections.abc import Callable
from typing import Any

import pytest

from providers.sim.store import Store, StoreForbidden, StoreInvalid

Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MakePod = Callable[..., Obj]


def created(store: Store, pod: Obj) -> Obj:
    return store.create(store.resource("pods"), pod)["spec"]


@pytest.fixture
def kata(store: Store) -> None:
    scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    overhead = {"podFixed": {"cpu": "250m"}}
    obj = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": overhead, "scheduling": scheduling}
    store.create(store.resource("RuntimeClass"), obj)


@pytest.mark.usefixtures("kata")
class TestRuntimeClass:
    def test_adds_what_it_costs_and_where_it_runs(self, store: Store, pod: MakePod) -> None:
        spec = created(store, pod(runtimeClassName="kata", nodeSelector={"a": "b"}))
        assert spec["overhead"] == {"cpu": "250m"}
        assert spec["nodeSelector"] == {"a": "b", "kata": "yes"}
        assert {"key": "kata", "operator": "Exists"} in spec["tolerations"]

    def test_must_exist(self, store: Store, pod: MakePod) -> None:
        with pytest.raises(StoreForbidden, match='RuntimeClass "gvisor" not found'):
            created(store, pod(runtimeClassName="gvisor"))

    def test_must_not_contradict_the_pod(self, store: Store, pod: MakePod) -> None:
        with pytest.raises(StoreForbidden, match="conflict"):
            created(store, pod(runtimeClassName="kata", nodeSelector={"kata": "no"}))


def term(selector: Obj | None, **keys: list[str]) -> Obj:
    given = {} if selector is None else {"labelSelector": selector}
    return {"topologyKey": "zone", **given, **keys}


@pytest.mark.parametrize(
    ("given", "expressions"),
    [
        pytest.param(
            term({}, matchLabelKeys=["rev"]), [{"key": "rev", "operator": "In", "values": ["2"]}], id="the same"
        ),
        pytest.param(
            term({}, mismatchLabelKeys=["rev"]), [{"key": "rev", "operator": "NotIn", "values": ["2"]}], id="others"
        ),
        pytest.param(term({}, matchLabelKeys=["absent"]), None, id="a label that the pod has not"),
        pytest.param(term(None, matchLabelKeys=["rev"]), None, id="no selector means nobody"),
    ],
)
def test_label_keys_go_into_the_selector(store: Store, pod: MakePod, given: Obj, expressions: list[Obj] | None) -> None:
    affinity = {
        kind: {
            REQUIRED: [given],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": given}],
        }
        for kind in ("podAffinity", "podAntiAffinity")
    }
    spec = created(store, pod(labels={"rev": "2"}, affinity=affinity))
    for kind in ("podAffinity", "podAntiAffinity"):
        held = spec["affinity"][kind]
        terms = [*held[REQUIRED], held["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]]
        assert [(each.get("labelSelector") or {}).get("matchExpressions") for each in terms] == [expressions] * 2


def test_label_keys_of_a_spread_constraint(store: Store, pod: MakePod) -> None:
    constraint = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term({}, matchLabelKeys=["rev"])}
    (held,) = created(store, pod(labels={"rev": "2"}, topologySpreadConstraints=[constraint]))[
        "topologySpreadConstraints"
    ]
    assert held["labelSelector"]["matchExpressions"] == [{"key": "rev", "operator": "In", "values": ["2"]}]


@pytest.mark.parametrize(("host_network", "ports"), [(True, [80, 9090]), (False, [None, 9090])])
def test_on_the_host_network_container_ports_are_host_ports(
    store: Store, pod: MakePod, host_network: bool, ports: list[int | None]
) -> None:
    listed = [{"containerPort": 80}, {"containerPort": 9090, "hostPort": 9090}]
    containers = [{"name": "c", "image": "i:1", "ports": listed}]
    spec = created(store, pod(containers=containers, hostNetwork=host_network))
    assert [port.get("hostPort") for port in spec["containers"][0]["ports"]] == ports


@pytest.mark.parametrize(
    ("expression", "field", "problem"),
    [
        ({"operator": "In"}, "values", "must be specified when `operator` is 'In' or 'NotIn'"),
        ({"operator": "Exists", "values": ["a"]}, "values", "may not be specified"),
        ({"operator": "Gt", "values": ["1", "2"]}, "values", "single value"),
        ({"operator": "Gt", "values": ["-5"]}, "values[0]", "a valid label must be"),
        ({"operator": "In", "values": ["a", "b" * 64]}, "values[1]", "no more than 63"),
        ({"operator": "Near", "values": ["a"]}, "operator", "not a valid selector operator"),
    ],
)
def test_node_selector_terms_are_validated(
    store: Store, pod: MakePod, expression: Obj, field: str, problem: str
) -> None:
    terms = [{"matchExpressions": [{"key": "a", **expression}]}]
    with pytest.raises(StoreInvalid) as refused:
        created(store, pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}))
    (cause,) = refused.value.details["causes"]
    where = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
    assert cause["field"] == f"{where}.{field}"
    assert problem in cause["message"]
