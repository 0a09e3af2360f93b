"""What ResourceQuotas count of a pod: tables of Kubernetes' rules (`pkg/quota/v1/evaluator/core/pods.go`)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.snapshot import LimitRange, LimitRangeItem, NamespaceQuota, NamespaceQuotas, PodSet, QuotaScope
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, PreferredPods
from fleet.snapshot.limit_ranges import ContainerAmounts, PodAmounts, admitted, with_defaults
from fleet.snapshot.resource_quotas import bounds_pods, counts_in, recounted, strange_scopes, unsaid, usage_of
from model.quantity import Resources
from tests.support.fleets import gang, gang_pod, job_of

GPU = "nvidia.com/gpu"


def container(requests: Resources | None = None, limits: Resources | None = None, **more: Any) -> ContainerAmounts:
    return ContainerAmounts("spec.containers[0]", {**(limits or {}), **(requests or {})}, limits or {}, **more)


def pods(*containers: ContainerAmounts, overhead: Resources | None = None, **more: Any) -> PodSet:
    whole = {name: more.pop(name, {}) for name in ("pod_requests", "pod_limits")}
    facts = {name: more.pop(name) for name in ("priority_class", "has_deadline") if name in more}
    amounts = PodAmounts(containers, overhead or {}, **whole, **facts)
    return PodSet("main", 1, admitted(amounts, ()).requests, namespace="ns", amounts=amounts, **more)


ONE = {"pods": 1, "count/pods": 1}
USAGE: Mapping[str, tuple[PodSet, Resources]] = {
    "nothing": (pods(container()), ONE),
    "cpu by both names": (pods(container({"cpu": 500})), {**ONE, "cpu": 500, "requests.cpu": 500}),
    "a limit is a request": (
        pods(container(limits={"memory": 8})),
        {**ONE, "memory": 8, "requests.memory": 8, "limits.memory": 8},
    ),
    "containers together": (
        pods(container({"cpu": 1}, {"cpu": 3}), container({"cpu": 2}, {"cpu": 4})),
        {**ONE, "cpu": 3, "requests.cpu": 3, "limits.cpu": 7},
    ),
    "an init container alone": (
        pods(container({"cpu": 1}, {"cpu": 1}), container({"cpu": 9}, {"cpu": 9}, init=True)),
        {**ONE, "cpu": 9, "requests.cpu": 9, "limits.cpu": 9},
    ),
    "devices by what is requested, and never by limits": (
        pods(container(limits={GPU: 8})),
        {**ONE, f"requests.{GPU}": 8},
    ),
    "huge pages": (
        pods(container(limits={"hugepages-2Mi": 4})),
        {**ONE, "hugepages-2Mi": 4, "requests.hugepages-2Mi": 4},
    ),
    "scratch space": (
        pods(container({"ephemeral-storage": 4})),
        {**ONE, "ephemeral-storage": 4, "requests.ephemeral-storage": 4},
    ),
    "overhead, where there is a limit": (
        pods(container({"cpu": 1}, {"cpu": 2}), overhead={"cpu": 10, "memory": 5}),
        {**ONE, "cpu": 11, "requests.cpu": 11, "memory": 5, "requests.memory": 5, "limits.cpu": 12},
    ),
    "for the whole pod": (
        pods(container({"cpu": 1}), pod_requests={"cpu": 5}, pod_limits={"cpu": 6}),
        {**ONE, "cpu": 5, "requests.cpu": 5, "limits.cpu": 6},
    ),
    "pods that are there": (PodSet("main", 1, {"cpu": 7}), {**ONE, "cpu": 7, "requests.cpu": 7}),
}


@pytest.mark.parametrize("name", USAGE)
def test_what_a_pod_counts(name: str) -> None:
    asked, expected = USAGE[name]
    assert usage_of(asked) == expected


def test_defaults_of_limit_ranges_count() -> None:
    given = LimitRange("ns", "a", (LimitRangeItem("Container", default={"cpu": 4}, default_request={"cpu": 2}),))
    asked = pods(container())
    assert asked.amounts is not None
    amounts = with_defaults(asked.amounts, [given])
    filled = replace(asked, amounts=amounts, requests=admitted(asked.amounts, [given]).requests)
    assert usage_of(filled) == {**ONE, "cpu": 2, "requests.cpu": 2, "limits.cpu": 4}


@pytest.mark.parametrize(
    ("name", "is_about_pods"),
    [
        *((name, True) for name in ("pods", "count/pods", "cpu", "requests.memory", "limits.ephemeral-storage")),
        *((name, True) for name in (f"requests.{GPU}", "hugepages-2Mi", "requests.hugepages-1Gi")),
        *((name, False) for name in ("services", "count/jobs.batch", "requests.storage", "persistentvolumeclaims")),
        *((name, False) for name in (GPU, f"limits.{GPU}", "gold.storageclass.storage.k8s.io/requests.storage")),
    ],
)
def test_which_bounds_are_about_pods(name: str, is_about_pods: bool) -> None:
    assert bounds_pods(name) is is_about_pods


def near(**of: Any) -> PodConstraints:
    return PodConstraints(affinity=(PodAffinityTerm("zone", (), **of),))


ASKS, LAZY = pods(container({"cpu": 1})), pods(container())
ENDS, URGENT = pods(container(), has_deadline=True), pods(container(), priority_class="urgent")
OWN = frozenset({"ns"})
SCOPES: list[tuple[QuotaScope, PodSet, bool]] = [
    (QuotaScope("BestEffort"), LAZY, True),
    (QuotaScope("BestEffort"), ASKS, False),
    (QuotaScope("BestEffort"), pods(container(limits={GPU: 1})), True),
    (QuotaScope("BestEffort"), pods(container({"cpu": 0})), True),
    (QuotaScope("BestEffort"), pods(container(), pod_limits={"memory": 1}), False),
    (QuotaScope("NotBestEffort"), ASKS, True),
    (QuotaScope("NotBestEffort"), LAZY, False),
    (QuotaScope("Terminating"), ENDS, True),
    (QuotaScope("Terminating"), LAZY, False),
    (QuotaScope("NotTerminating"), LAZY, True),
    (QuotaScope("PriorityClass"), URGENT, True),
    (QuotaScope("PriorityClass"), LAZY, False),
    (QuotaScope("PriorityClass", "In", ("urgent", "x")), URGENT, True),
    (QuotaScope("PriorityClass", "In", ("x",)), URGENT, False),
    (QuotaScope("PriorityClass", "NotIn", ("x",)), URGENT, True),
    (QuotaScope("PriorityClass", "NotIn", ("x",)), LAZY, True),
    (QuotaScope("PriorityClass", "DoesNotExist"), LAZY, True),
    (QuotaScope("PriorityClass", "DoesNotExist"), URGENT, False),
    (QuotaScope("PriorityClass", "Resembles"), LAZY, True),
    (QuotaScope("CrossNamespacePodAffinity"), LAZY, False),
    (QuotaScope("CrossNamespacePodAffinity"), replace(LAZY, constraints=near(namespaces=OWN)), False),
    (QuotaScope("CrossNamespacePodAffinity"), replace(LAZY, constraints=near(namespaces=OWN | {"x"})), True),
    (QuotaScope("CrossNamespacePodAffinity"),
     replace(LAZY, constraints=near(namespaces=OWN, namespace_selector=())), True),
    (QuotaScope("CrossNamespacePodAffinity"), replace(LAZY, constraints=PodConstraints(
        preferred_pods=(PreferredPods(1, PodAffinityTerm("zone", (), frozenset({"x"}))),))), True),
    (QuotaScope("Phase"), LAZY, True),
]  # fmt: skip


@pytest.mark.parametrize(("scope", "asked", "counts"), SCOPES)
def test_scopes(scope: QuotaScope, asked: PodSet, counts: bool) -> None:
    assert counts_in(NamespaceQuota("ns", "q", {"pods": 1}, scopes=(scope,)), asked) is counts


def test_all_scopes_hold_and_the_default_class_counts() -> None:
    both = (QuotaScope("PriorityClass", "In", ("urgent",)), QuotaScope("Terminating"))
    quota = NamespaceQuota("ns", "q", {"pods": 1}, scopes=both)
    assert not counts_in(quota, ENDS)
    assert counts_in(quota, ENDS, default_class="urgent")
    assert not counts_in(quota, URGENT)
    assert strange_scopes(NamespaceQuota("ns", "q", {}, scopes=(*both, QuotaScope("Phase")))) == ("Phase",)


UNSAID: Mapping[str, tuple[Resources, PodSet, list[str]]] = {
    "a request": ({"requests.cpu": 1}, LAZY, ["requests.cpu for: spec.containers[0]"]),
    "by its short name": ({"cpu": 1}, LAZY, ["cpu for: spec.containers[0]"]),
    "a limit": ({"limits.memory": 1}, ASKS, ["limits.memory for: spec.containers[0]"]),
    "it is said": ({"cpu": 1}, ASKS, []),
    "devices need not be": ({f"requests.{GPU}": 1, "pods": 1, "requests.ephemeral-storage": 1}, LAZY, []),
    "for the whole pod": ({"requests.cpu": 1}, pods(container(), pod_requests={"cpu": 1}), []),
    "pods that are there": ({"cpu": 1}, PodSet("main", 1, {}), []),
}


@pytest.mark.parametrize("name", UNSAID)
def test_what_each_container_has_to_say(name: str) -> None:
    hard, asked, words = UNSAID[name]
    assert list(unsaid(NamespaceQuota("ns", "q", hard), asked)) == words


def test_a_status_follows_pods_that_come_end_and_go() -> None:
    """By what their job says of them, which the pods of a model do not carry."""
    of = gang("g", pods(container({"cpu": 2}, {"cpu": 4})))
    there = gang_pod(of, "g-0")
    seen = NamespaceQuotas({"ns": (NamespaceQuota("ns", "q", {"limits.cpu": 9, "pods": 9}, {"limits.cpu": 1}),)})

    def used(found: NamespaceQuotas) -> Resources:
        return found.by_namespace["ns"][0].used

    more = recounted(seen, None, there, lambda _pod: job_of(of))
    assert used(more) == {"limits.cpu": 5, "pods": 1}
    assert recounted(more, there, replace(there, ready=True), lambda _pod: job_of(of)) is more
    ended = recounted(more, there, replace(there, phase="Succeeded"), lambda _pod: job_of(of))
    assert used(ended) == {"limits.cpu": 1, "pods": 0}
    assert used(recounted(more, there, None, lambda _pod: job_of(of))) == {"limits.cpu": 1, "pods": 0}
    assert used(recounted(seen, None, there, lambda _pod: None)) == {"limits.cpu": 1, "pods": 1}
    other = replace(there, namespace="else")
    assert recounted(seen, None, other, lambda _pod: None) is seen
