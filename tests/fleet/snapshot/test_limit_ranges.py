"""What LimitRanges make of a pod: tables of Kubernetes' rules (`plugin/pkg/admission/limitranger`)."""

from typing import Any

import pytest

from fleet.snapshot import Job, JobRef, LimitRange, LimitRangeItem, PodSet, RuntimeClass
from fleet.snapshot.limit_ranges import ContainerAmounts, PodAmounts, admitted
from fleet.snapshot.works import works
from model.index import Index
from model.quantity import Resources

GPU = "nvidia.com/gpu"


def container(requests: Resources | None = None, limits: Resources | None = None, **more: Any) -> ContainerAmounts:
    return ContainerAmounts("spec.containers[0]", {**(limits or {}), **(requests or {})}, limits or {}, **more)


def pod(*containers: ContainerAmounts, overhead: Resources | None = None, **whole: Resources) -> PodAmounts:
    return PodAmounts(containers, overhead or {}, whole.get("requests", {}), whole.get("limits", {}))


def limits(name: str = "a", kind: str = "Container", **amounts: Resources) -> LimitRange:
    return LimitRange("t", name, (LimitRangeItem(kind, **amounts),))


HALF = limits(default={"cpu": 1000}, default_request={"cpu": 500})
DEFAULTS: list[tuple[str, PodAmounts, list[LimitRange], Resources]] = [
    ("nothing is said", pod(container()), [HALF], {"cpu": 500}),
    ("a request is kept", pod(container({"cpu": 200})), [HALF], {"cpu": 200}),
    ("a limit is the request first", pod(container(limits={"cpu": 800})), [HALF], {"cpu": 800}),
    ("an explicit zero is kept", pod(container({"cpu": 0})), [HALF], {}),
    ("each container", pod(container(), container()), [HALF], {"cpu": 1000}),
    ("an init container runs alone", pod(container(), container(init=True)), [HALF], {"cpu": 500}),
    ("a sidecar runs beside", pod(container(init=True, sidecar=True), container()), [HALF], {"cpu": 1000}),
    ("overhead is added", pod(container(), overhead={"cpu": 100}), [HALF], {"cpu": 600}),
    ("the whole pod's requests count", pod(container(), requests={"cpu": 700}), [HALF], {"cpu": 700}),
    ("the first LimitRange counts", pod(container()), [HALF, limits("b", default_request={"cpu": 9})], {"cpu": 500}),
    ("a second fills in the rest", pod(container()), [HALF, limits("b", default_request={"x": 9})],
     {"cpu": 500, "x": 9}),
    ("the last item of one LimitRange counts", pod(container()), [
        LimitRange("t", "a", tuple(LimitRangeItem("Container", default_request={"cpu": n}) for n in (1, 2)))
    ], {"cpu": 2}),
    ("a Pod's defaults are none", pod(container()), [limits(kind="Pod", default_request={"cpu": 500})], {}),
    ("devices", pod(container()), [limits(default={GPU: 8}, default_request={GPU: 8})], {GPU: 8}),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "ranges", "expected"), [it[1:] for it in DEFAULTS], ids=[it[0] for it in DEFAULTS])
def test_defaults(asked: PodAmounts, ranges: list[LimitRange], expected: Resources) -> None:
    assert (admitted(asked, ranges).requests, admitted(asked, ranges).forbidden) == (expected, ())


LEAST, MOST = limits(min={"cpu": 500}), limits(max={"cpu": 500})
WHOLE = limits(kind="Pod", max={"memory": 4 << 30})
RATIO = limits(max_ratio_milli={"cpu": 1500})
AT = "spec.containers[0]"
REFUSED: list[tuple[PodAmounts, LimitRange, str]] = [
    (pod(container()), LEAST, f"{AT}: minimum cpu usage per Container is 500m.  No request is specified"),
    (pod(container({"cpu": 1})), LEAST, f"{AT}: minimum cpu usage per Container is 500m, but request is 1m"),
    (pod(container({"cpu": 500}, {"cpu": 500})), LEAST, ""),
    (pod(container()), MOST, f"{AT}: maximum cpu usage per Container is 500m.  No limit is specified"),
    (pod(container({"cpu": 1}, {"cpu": 501})), MOST,
     f"{AT}: maximum cpu usage per Container is 500m, but limit is 501m"),
    (pod(container({"cpu": 1}, {"cpu": 500})), MOST, ""),
    (pod(container({"cpu": 100}, {"cpu": 151})), RATIO,
     f"{AT}: cpu max limit to request ratio per Container is 1500m, but provided ratio is 1.510000"),
    (pod(container({"cpu": 100}, {"cpu": 150})), RATIO, ""),
    (pod(container({"cpu": 100})), RATIO,
     f"{AT}: cpu max limit to request ratio per Container is 1500m, but no limit is specified or limit is 0"),
    (pod(container()), RATIO,
     f"{AT}: cpu max limit to request ratio per Container is 1500m, but no request is specified or request is 0"),
    (pod(*[container(limits={"memory": 3 << 30})] * 2), WHOLE,
     "spec: maximum memory usage per Pod is 4Gi, but limit is 6Gi"),
    (pod(container(limits={"memory": 3 << 30}), container(limits={"memory": 3 << 30}, init=True)), WHOLE, ""),
    (pod(container(limits={"memory": 3 << 30}), overhead={"memory": 9 << 30}), WHOLE, ""),
    (pod(container(), limits={"memory": 5 << 30}), WHOLE,
     "spec: maximum memory usage per Pod is 4Gi, but limit is 5Gi"),
    (pod(container()), LimitRange("t", "a", (LimitRangeItem("PersistentVolumeClaim", max={"storage": 1}),)), ""),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "bounds", "words"), REFUSED)
def test_bounds(asked: PodAmounts, bounds: LimitRange, words: str) -> None:
    assert admitted(asked, [bounds]).forbidden == ((f"{words} (LimitRange a)",) if words else ())


ABOVE = [
    (container({"cpu": 2000}, {"cpu": 1000}),
     'requests: Invalid value: "2": must be less than or equal to cpu limit of 1'),
    (container({GPU: 1}, {GPU: 2}), f'requests: Invalid value: "1": must be equal to {GPU} limit of 2'),
    (container({GPU: 1}), f"limits: Required value: Limit must be set for non overcommitable resources ({GPU})"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "words"), ABOVE)
def test_requests_against_limits_without_any_limit_range(asked: ContainerAmounts, words: str) -> None:
    assert admitted(pod(asked), []).forbidden == (f"spec.containers[0].resources.{words}",)


def test_what_is_told_is_bounded() -> None:
    assert len(admitted(pod(*[container()] * 40), [LEAST]).forbidden) == 16


def job(name: str, namespace: str = "t", **more: Any) -> Job:
    pods = PodSet("main", 1, {}, namespace=namespace, amounts=pod(container()), **more)
    ref = JobRef("batch/v1", "Job", namespace, name, name)
    return Job(ref, "1", "q", "", suspended=True, pod_sets=(pods,), created_at_s=0.0)


def test_a_job_is_read_anew_when_the_limit_ranges_of_its_namespace_change() -> None:
    index, jobs = Index(), {"a": job("a"), "b": job("b", "u"), "c": job("c", "v")}
    first = {"t": (HALF,), "u": (HALF,)}
    before = works(index, jobs, {}, limits=first)
    assert [it.pod_sets[0].requests for it in before.values()] == [{"cpu": 500}, {"cpu": 500}, {}]
    after = works(index, jobs, {}, limits={**first, "u": (limits(default_request={"cpu": 2}),)})
    assert after["a"] is before["a"]
    assert after["c"] is jobs["c"]
    assert after["b"].pod_sets[0].requests == {"cpu": 2}
    assert all(found is jobs[uid] for uid, found in works(index, jobs, {}).items()), "without any nothing is read"


def test_a_runtime_adds_to_what_the_defaults_give() -> None:
    kata = {"kata": RuntimeClass("kata", {"cpu": 100})}
    found = works(Index(), {"a": job("a", runtime_class="kata")}, {}, runtimes=kata, limits={"t": (HALF,)})
    assert found["a"].pod_sets[0].requests == {"cpu": 600}


def test_pods_that_were_admitted_are_not_given_defaults_again() -> None:
    plain = job("a")
    held = Job(plain.ref, "1", "q", "", suspended=True, pod_sets=(PodSet("main", 1, {}),), created_at_s=0.0)
    assert works(Index(), {"a": held}, {}, limits={"t": (HALF,)})["a"].pod_sets[0].requests == {}
