"""What is foreseen of a template is what the embedded API server makes of its pod, or why it refuses that."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import LimitRange, LimitRangeItem
from fleet.snapshot.limit_ranges import admitted
from providers.clock import VirtualClock
from providers.kube.objects import decode_limit_range
from providers.kube.objects.pod_requests import PodResources, requests_of, template_amounts
from providers.sim.store import Store, StoreForbidden, StoreInvalid

Obj = dict[str, Any]
_specs = msgspec.json.Decoder(PodResources)
CPU = st.sampled_from(("250m", "500m", "1", "2"))
GPUS = st.sampled_from(("1", "2"))


def amounts(least: int = 0) -> st.SearchStrategy[Obj]:
    found = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": st.sampled_from(("1Gi", "2Gi"))})
    return found.filter(lambda it: len(it) >= least)


devices = st.fixed_dictionaries({}, optional={"nvidia.com/gpu": GPUS})
limit_sets = st.tuples(amounts(), devices).map(lambda both: both[0] | both[1])
resources = st.fixed_dictionaries({}, optional={"requests": limit_sets, "limits": limit_sets})
items = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("Container")},
        optional={
            "default": limit_sets,
            "defaultRequest": amounts(),
            "min": amounts(),
            "max": limit_sets,
            "maxLimitRequestRatio": st.fixed_dictionaries({"cpu": st.sampled_from(("1", "1500m", "4"))}),
        },
    ),
    st.fixed_dictionaries({"type": st.just("Pod")}, optional={"min": amounts(), "max": limit_sets}),
)
specs = st.builds(
    lambda main, beside, init, sidecar: {
        "containers": [
            {"name": f"c{n}", "image": "i", "resources": found} for n, found in enumerate((main, *beside))
        ],
        "initContainers": [
            {"name": f"i{n}", "image": "i", "resources": found, **({"restartPolicy": "Always"} if always else {})}
            for n, (found, always) in enumerate((*((it, False) for it in init), *((it, True) for it in sidecar)))
        ],
    },
    resources,
    st.lists(resources, max_size=1),
    st.lists(resources, max_size=1),
    st.lists(resources, max_size=1),
)  # fmt: skip


@given(spec=specs, ranges=st.lists(st.lists(items, min_size=1, max_size=2), max_size=2))
def test_as_the_api_server_does(spec: Obj, ranges: list[list[Obj]]) -> None:
    store = Store(VirtualClock())
    store.create(store.resource("namespaces"), {"metadata": {"name": "t"}})
    stored = [
        store.create(
            store.resource("limitranges"), {"metadata": {"name": f"r{n}"}, "spec": {"limits": limits}}, namespace="t"
        )
        for n, limits in enumerate(ranges)
    ]
    read = [decode_limit_range(msgspec.json.encode(it)) for it in stored]
    template, _ = template_amounts(_specs.decode(msgspec.json.encode(spec)), overhead=False)
    foreseen = admitted(template, read)
    body = {"metadata": {"name": "p"}, "spec": spec}
    if foreseen.forbidden:
        with pytest.raises((StoreForbidden, StoreInvalid)) as refused:
            store.create(store.resource("pods"), body, namespace="t")
        assert foreseen.forbidden[0].partition(" (")[0].partition(": ")[2] in str(refused.value)
        return
    pod = store.create(store.resource("pods"), body, namespace="t")
    assert requests_of(_specs.decode(msgspec.json.encode(pod["spec"]))) == foreseen.requests


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (None, ()),
        ([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}], ()),
        (
            [{"type": "Container", "default": {"cpu": "1"}, "maxLimitRequestRatio": {"memory": "1.5"}}],
            (LimitRangeItem("Container", default={"cpu": 1000}, max_ratio_milli={"memory": 1500}),),
        ),
        ([{"type": "Pod", "min": {"cpu": "1m"}, "max": None}], (LimitRangeItem("Pod", min={"cpu": 1}),)),
    ],
)
def test_a_limit_range(limits: list[Obj] | None, expected: tuple[LimitRangeItem, ...]) -> None:
    body = {"metadata": {"name": "r", "namespace": "t"}, "spec": {"limits": limits}}
    assert decode_limit_range(msgspec.json.encode(body)) == LimitRange("t", "r", expected)


def test_what_a_limit_range_leaves_out_is_filled_in_when_it_is_stored() -> None:
    store = Store(VirtualClock())
    store.create(store.resource("namespaces"), {"metadata": {"name": "t"}})
    item = {"type": "Container", "min": {"cpu": "1", "x.io/y": "1"}, "max": {"cpu": "4"}}
    body = {"metadata": {"name": "r"}, "spec": {"limits": [item]}}
    (found,) = store.create(store.resource("limitranges"), body, namespace="t")["spec"]["limits"]
    assert found == {**item, "default": {"cpu": "4"}, "defaultRequest": {"cpu": "4", "x.io/y": "1"}}
