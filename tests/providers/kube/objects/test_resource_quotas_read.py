"""What is foreseen of ResourceQuotas is what the embedded API server, written apart, makes of them."""

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import NamespaceQuota, PodSet, QuotaScope
from fleet.snapshot.resource_quotas import counts_in, unsaid, usage_of
from providers.clock import VirtualClock
from providers.kube.objects import decode_namespace_quota
from providers.kube.objects.pod_templates import PodOrigin, PodTemplate, pod_set_of
from providers.sim.store import Store, StoreForbidden, StoreInvalid
from tests.providers.kube.objects.test_limit_ranges_read import Obj, specs

GPU = "requests.nvidia.com/gpu"
_templates = msgspec.json.Decoder(PodTemplate)


def pods_of(spec: Obj) -> PodSet:
    return pod_set_of("main", 1, _templates.decode(msgspec.json.encode({"spec": spec})), {}, PodOrigin("t"))


bounds = st.dictionaries(
    st.sampled_from(("cpu", "requests.cpu", "limits.cpu", "requests.memory", "limits.memory", GPU, "pods")),
    st.sampled_from(("0", "1", "2", "3Gi")),
    min_size=1,
    max_size=3,
)
terms = st.one_of(
    st.builds(
        lambda operator, values: {"scopeName": "PriorityClass", "operator": operator, "values": values},
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from(("low", "high")), min_size=1, max_size=2, unique=True),
    ),
    st.sampled_from(("Exists", "DoesNotExist")).map(lambda it: {"scopeName": "PriorityClass", "operator": it}),
    st.sampled_from(("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")).map(
        lambda it: {"scopeName": it, "operator": "Exists"}
    ),
)
quotas = st.builds(
    lambda hard, chosen: {"hard": hard, **({"scopeSelector": {"matchExpressions": chosen}} if chosen else {})},
    bounds,
    st.lists(terms, max_size=2),
)
more = st.fixed_dictionaries({}, optional={"activeDeadlineSeconds": st.just(9), "priorityClassName": st.just("high")})


@given(spec=specs, more=more, quota=quotas)
def test_as_the_api_server_does(spec: Obj, more: Obj, quota: Obj) -> None:
    store = Store(VirtualClock())
    store.create(store.resource("namespaces"), {"metadata": {"name": "t"}})
    store.create(store.resource("priorityclasses"), {"metadata": {"name": "high"}, "value": 1})
    kind = store.resource("resourcequotas")
    made = store.create(kind, {"metadata": {"name": "q"}, "spec": quota}, namespace="t")
    status = {"hard": quota["hard"], "used": dict.fromkeys(quota["hard"], "0")}
    stored = store.update(kind, {**made, "status": status}, subresource="status")
    read, pods = decode_namespace_quota(msgspec.json.encode(stored)), pods_of(spec | more)
    usage = usage_of(pods)
    over = any(usage.get(name, 0) > most for name, most in read.hard.items())
    foreseen = counts_in(read, pods) and (over or bool(list(unsaid(read, pods))))
    body = {"metadata": {"name": "p"}, "spec": spec | more}
    if pods.forbidden:
        with pytest.raises((StoreForbidden, StoreInvalid)):
            store.create(store.resource("pods"), body, namespace="t")
        return
    with pytest.raises(StoreForbidden) if foreseen else nullcontext():
        store.create(store.resource("pods"), body, namespace="t")


READ: list[tuple[Obj, Obj, NamespaceQuota]] = [
    ({}, {}, NamespaceQuota("t", "q", {})),
    (
        {"hard": {"cpu": "2", "services": "1", GPU: "8"}},
        {},
        NamespaceQuota("t", "q", {"cpu": 2000, GPU: 8}),
    ),
    (
        {"hard": {"cpu": "2"}},
        {"hard": {"cpu": "1"}, "used": {"cpu": "500m", "services": "1"}},
        NamespaceQuota("t", "q", {"cpu": 1000}, {"cpu": 500}),
    ),
    (
        {
            "hard": {"limits.memory": "1Gi"},
            "scopes": ["BestEffort"],
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a", "b"]}]
            },
        },
        {},
        NamespaceQuota(
            "t",
            "q",
            {"limits.memory": 1 << 30},
            scopes=(QuotaScope("BestEffort"), QuotaScope("PriorityClass", "In", ("a", "b"))),
        ),
    ),
]


@pytest.mark.parametrize(("spec", "status", "expected"), READ)
def test_what_is_in_force_is_read(spec: Any, status: Any, expected: NamespaceQuota) -> None:
    body = {"metadata": {"name": "q", "namespace": "t"}, "spec": spec, "status": status}
    assert decode_namespace_quota(msgspec.json.encode(body)) == expected
