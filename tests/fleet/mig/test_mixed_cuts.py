"""Which idle GPUs of a busy machine may be cut, and how it is put back."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.mig.layouts import gpu_part
from fleet.mig.mixed_cuts import AGAIN_AFTER_S, FRESH_S, as_before, beside_work, follows, idle_gpus, mixed_cuts
from fleet.mig.mixed_cuts import mixed_layout_of as layout_of
from fleet.nodeclaims import lifecycle
from fleet.reasons import Reason
from fleet.snapshot import Claim, MachineEvent
from fleet.snapshot.gpus import GpuHolders, GpuReading, holders_of
from model.mig.layouts import config_name, gpu_cuts, layout_resources, mixed_layout
from tests.support.fleets import NOW, P5, FleetBuilder, amounts, gang, pod_set
from tests.support.world import World

THICK, THIN = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"


def world(*, recut: bool = True, thin: Any = None) -> World:
    """A machine of eight GPUs in halves, on which one pod has a slice."""
    builder = FleetBuilder().layout("thick", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    builder.layout("thin", h100_80gb=thin or [{"profiles": {"1g.10gb": 7}}])
    mig = {"layouts": ["thick", "thin"], "recutIdleGpus": recut}
    built = builder.pool(sharing={"mig": mig}).team("a", {"h100": {THICK: 64, THIN: 64}}, namespaces=["a"])
    made = World(built.queue("qa", "a").build())
    made.machine("m0")
    made.runs(gang("g", pod_set(requests={**amounts(), THICK: 1}), queue="qa", namespace="a"), ("m0", 1))
    return made


def told(made: World, *held: int, at_s: float = NOW) -> None:
    """The exporter says that the pod holds these GPUs."""
    pods = frozenset(pod.key for pod in made.snapshot().node_pods["node-m0"])
    holders = tuple(pods if n in held else frozenset() for n in range(8))
    made.gpu_holders = {"node-m0": GpuHolders(at_s, holders, dict.fromkeys(pods, 1 if held else 0))}


def found(made: World) -> list[Any]:
    snapshot = made.snapshot()
    claim = snapshot.claims["m0"]
    return [*mixed_cuts(made.fleet, snapshot, made.fleet.node_pools["h100"], claim, snapshot.nodes["node-m0"], P5)]


def test_one_idle_gpu_or_all_of_them() -> None:
    made = world()
    told(made, 2)
    one, every = found(made)
    assert one.gpus == {THICK: 14, THIN: 7}
    assert [dict(it) for it in one.cuts][:3] == [{"1g.10gb": 7}, {"3g.40gb": 2}, {"3g.40gb": 2}]
    assert every.gpus == {THICK: 2, THIN: 49}
    assert dict(every.cuts[2]) == {"3g.40gb": 2}
    assert one.layout.startswith("mixed-")
    assert one.layout != every.layout


@pytest.mark.parametrize(
    "why",
    [
        *("not asked for", "nobody tells", "told long ago", "told before it was ready"),
        *("a pod that is not told of", "a slice that is not told of", "failed lately"),
    ],
)
def test_when_nothing_is_cut_beside_work(why: str) -> None:
    made = world(recut=why != "not asked for")
    told(made, 2)
    if why == "nobody tells":
        made.gpu_holders = {}
    elif why == "told long ago":
        told(made, 2, at_s=NOW - FRESH_S - 1)
    elif why == "told before it was ready":
        told(made, 2, at_s=made.claims["m0"].ready_at_s - 1)
    elif why == "a pod that is not told of":
        told(made)
    elif why == "a slice that is not told of":
        told_of = made.gpu_holders["node-m0"]
        made.gpu_holders = {"node-m0": told_of._replace(devices=dict.fromkeys(told_of.devices, 2))}
    elif why == "failed lately":
        failed = MachineEvent(NOW - AGAIN_AFTER_S + 1, "RecutFailed", "in use")
        made.claims["m0"] = made.claims["m0"].remembering(failed)
    assert not found(made)


def test_mig_mode_changes_on_no_gpu() -> None:
    """GPUs that stay whole in the other layout stay as they are."""
    thin = [{"devices": [0, 1, 2, 3]}, {"devices": [4, 5, 6, 7], "profiles": {"1g.10gb": 7}}]
    made = world(thin=thin)
    told(made, 2)
    assert [it.gpus for it in found(made)] == [{THICK: 14, THIN: 7}, {THICK: 8, THIN: 28}]


def test_who_holds_what_takes_an_exporter_that_tells_of_every_gpu() -> None:
    def reading(index: int, pod: str = "") -> GpuReading:
        return GpuReading("n", f"u{index}", "", "", "", "a" if pod else "", pod, 0.5, 1.0, 1.0, index)

    assert holders_of([], NOW) is None
    assert holders_of([reading(-1)], NOW) is None
    assert holders_of([reading(0), reading(2)], NOW) is None
    held = (frozenset({"a/p"}), frozenset())
    assert holders_of([reading(1), reading(0, "p"), reading(0)], NOW) == (NOW, held, {"a/p": 1})


def recutting(made: World, *held: int) -> Claim:
    """Puts the claim to be cut at one idle GPU."""
    told(made, *held)
    cut = found(made)[0]
    order = beside_work(made.claims["m0"], cut.cuts, NOW)
    assert order is not None
    before = made.claims["m0"]
    made.claims["m0"] = replace(
        before,
        layout=cut.layout,
        gpu_cuts=cut.cuts,
        resources={**{name: it for name, it in before.resources.items() if "mig" not in name}, **cut.gpus},
        recut_at_s=NOW,
        cut=order,
    )
    return before


def test_it_is_put_back_as_it_was_before_anything_was_written() -> None:
    made = world()
    before = recutting(made, 2)
    back = as_before(made.claims["m0"], NOW, "a pod has come to GPU 0")
    assert (back.layout, back.gpu_cuts, back.resources, back.cut) == (before.layout, (), before.resources, None)
    assert back.recut_at_s <= back.ready_at_s
    assert not back.history


def test_where_a_label_was_written_it_is_put_right_and_remembered() -> None:
    made = world()
    before = recutting(made, 2)
    order = made.claims["m0"].cut
    assert order is not None
    begun = replace(made.claims["m0"], cut=replace(order, began_s=NOW))
    back = as_before(begun, NOW + 60, "in use")
    assert (back.layout, gpu_part(back.resources)) == (before.layout, gpu_part(before.resources))
    assert back.cut is not None
    assert back.cut.reason == Reason.LAYOUT_DRIFT
    assert back.recut_at_s > back.ready_at_s
    assert [it.what for it in back.history] == ["RecutFailed"]


@pytest.mark.parametrize(
    ("after_s", "held", "ends"),
    [
        pytest.param(10, None, "waits", id="nobody has said it again"),
        pytest.param(10, (2,), "cut", id="they are idle still"),
        pytest.param(10, (0, 2), "back", id="a pod has come to the GPU"),
        pytest.param(400, None, "back", id="nobody says anything any more"),
    ],
)
def test_the_label_is_written_when_the_gpus_are_idle_behind_the_taint(
    after_s: float, held: tuple[int, ...] | None, ends: str
) -> None:
    made = world()
    before = recutting(made, 2)
    made.apply(lifecycle.decide(made.fleet, made.snapshot()))
    assert made.nodes["node-m0"].labels["nvidia.com/mig.config"] == before.layout, "the taint alone comes first"
    assert [it.key for it in made.nodes["node-m0"].taints] == ["muster.dev/recutting"]
    made.now_s = NOW + after_s
    made.gpu_holders = {}
    if held is not None:
        told(made, *held, at_s=NOW + after_s)
    mixed = made.claims["m0"].layout
    made.apply(lifecycle.decide(made.fleet, made.snapshot()))
    label = made.nodes["node-m0"].labels["nvidia.com/mig.config"]
    assert (label == mixed) is (ends == "cut")
    assert (made.claims["m0"].layout == before.layout) is (ends == "back")


def test_a_mixed_cut_is_one_of_its_pools_layouts_gpu_by_gpu() -> None:
    made = world()
    recutting(made, 2)
    claim, layouts = made.claims["m0"], made.fleet.mig_layouts
    allowed = {config_name(it): it for it in layouts.values()}
    assert follows(claim, P5, allowed)
    assert not follows(claim, P5, {config_name(layouts["thin"]): layouts["thin"]})
    mixed = layout_of(claim, P5)
    assert mixed is not None
    assert config_name(mixed) == claim.layout
    assert layout_of(replace(claim, gpu_cuts=()), P5) is None


def test_a_layout_of_each_gpu_says_the_same_in_groups() -> None:
    cuts = ({"3g.40gb": 2}, {}, {"1g.10gb": 7}, {"3g.40gb": 2})
    layout = mixed_layout(cuts, "h100-80gb")
    assert gpu_cuts(layout, "h100-80gb", 4) == cuts
    assert layout_resources(layout, "h100-80gb", 4) == {"nvidia.com/gpu": 1, THICK: 4, THIN: 7}


def test_idle_gpus_are_told_of_by_their_index() -> None:
    made = world()
    told(made, 2)
    snapshot = made.snapshot()
    assert idle_gpus(snapshot, snapshot.nodes["node-m0"], 0.0) == frozenset({0, 1, 3, 4, 5, 6, 7})
