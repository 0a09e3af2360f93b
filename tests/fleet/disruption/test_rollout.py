"""A layout that changed: idle machines are cut anew in place, machines with work when they are idle."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import PublishLayouts, SaveClaim
from fleet.disruption import rollout
from fleet.mig.layouts import gpu_part
from fleet.snapshot import NodeDisruption, PublishedLayouts
from model import labels
from model.fleet import Fleet
from model.kinds import NEVER
from model.mig import config_name
from tests.support.fleets import NOW, FleetBuilder, amounts, foreign_pod, gang, pod_set
from tests.support.world import World

SMALL, LARGE = labels.MIG_RESOURCE_PREFIX + "1g.10gb", labels.MIG_RESOURCE_PREFIX + "3g.40gb"


def fleet(*layouts: str, **pool: Any) -> Fleet:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    spec = {"replicas": 2, "sharing": {"mig": {"layouts": list(layouts)}}, **pool}
    return builder.pool(**spec).team(quotas={"h100": {"cpu": "999"}}).queue().build()


def standing() -> World:
    """Two machines cut to `small`, of a pool that now wants `large`."""
    world = World(fleet("small"))
    world.machine("m0")
    world.machine("m1")
    world.fleet = fleet("large")
    return world


@pytest.mark.parametrize(
    ("held", "busy", "written"),
    [
        pytest.param(PublishedLayouts(), (), True, id="never written"),
        pytest.param(PublishedLayouts("of before", NOW), (), True, id="the layouts have changed"),
        pytest.param(None, (), False, id="whoever plans writes none"),
        pytest.param("as it is", (), False, id="it stands"),
        pytest.param("long ago", (), True, id="somebody may have deleted it"),
        pytest.param(PublishedLayouts(), ("layouts",), False, id="being written, or paused after a refusal"),
    ],
)
def test_the_configuration_of_the_layouts(
    held: PublishedLayouts | str | None, busy: tuple[str, ...], written: bool
) -> None:
    world = World(fleet("small"))
    snapshot = replace(world.snapshot(), layouts=PublishedLayouts(), busy=frozenset())
    (first,) = rollout.decide(world.fleet, snapshot)
    assert isinstance(first, PublishLayouts)
    assert ("1g.10gb" in first.config, "3g.40gb" in first.config) == (True, True)
    if isinstance(held, str):
        held = PublishedLayouts(first.config, NOW - (rollout.REPUBLISHED_AFTER_S if held == "long ago" else 1))
    found = rollout.decide(world.fleet, replace(snapshot, layouts=held, busy=frozenset(busy)))
    assert list(found) == ([first] if written else [])


def published(world: World, held: PublishedLayouts) -> PublishLayouts | None:
    snapshot = replace(world.snapshot(), layouts=held, busy=frozenset())
    return next((it for it in rollout.decide(world.fleet, snapshot) if isinstance(it, PublishLayouts)), None)


def test_what_is_declared_no_more_stays_as_long_as_a_machine_carries_it() -> None:
    world = World(fleet("small"))
    world.machine("m0")
    before = config_name(world.fleet.mig_layouts["small"])
    changed = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 6}}])
    world.fleet = changed.pool(sharing={"mig": {"layouts": ["small"]}}).team().queue().build()
    written = published(world, PublishedLayouts())
    assert written is not None
    assert before not in written.config
    assert written.carried == {before}
    stands = PublishedLayouts(written.config, NOW, written.carried)
    assert published(world, stands) is None
    assert published(world, replace(stands, carried=frozenset())) == written  # a node that carries it has come
    assert published(world, replace(stands, carried=frozenset({before, "gone"}))) is None  # none is in a hurry to go


def test_what_nodes_of_others_carry_stays_too() -> None:
    world = World(fleet("small"))
    world.machine("m0")
    (name,) = world.nodes
    label = {**world.nodes[name].labels, labels.MIG_CONFIG: "all-1g.5gb"}
    world.nodes[name] = replace(world.nodes[name], labels=label)
    written = published(world, PublishedLayouts())
    assert written is not None
    assert written.carried == {"all-1g.5gb"}


@pytest.mark.parametrize("name", ["all-disabled", "all-enabled"])
def test_what_every_file_has_is_not_carried(name: str) -> None:
    world = World(fleet("small"))
    world.machine("m0")
    (node,) = world.nodes
    world.nodes[node] = replace(world.nodes[node], labels={**world.nodes[node].labels, labels.MIG_CONFIG: name})
    written = published(world, PublishedLayouts())
    assert written is not None
    assert written.carried == frozenset()
    assert f"{name}:" in written.config


def test_without_layouts_nothing_is_published() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    assert list(rollout.decide(world.fleet, replace(world.snapshot(), layouts=PublishedLayouts()))) == []


def recut(world: World) -> dict[str, str]:
    found = [it.claim for it in rollout.decide(world.fleet, world.snapshot()) if isinstance(it, SaveClaim)]
    assert all(claim.recut_at_s > claim.ready_at_s for claim in found)
    return {claim.name: claim.layout for claim in found}


def large() -> str:
    return config_name(fleet("large").mig_layouts["large"])


def test_idle_machines_are_cut_to_the_first_layout() -> None:
    world = standing()
    assert recut(world) == {"m0": large(), "m1": large()}
    world.apply(rollout.decide(world.fleet, world.snapshot()))
    assert gpu_part(world.claims["m0"].resources) == {LARGE: 16}
    assert recut(world) == {}


@pytest.mark.parametrize("layouts", [("large", "small"), ("small", "large")])
def test_a_cut_that_is_still_allowed_stays(layouts: tuple[str, ...]) -> None:
    world = standing()
    world.fleet = fleet(*layouts)
    assert recut(world) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.runs(gang("g", pod_set(requests={**amounts(), SMALL: 1})), ("m0", 1)),
        lambda w: w.stands(foreign_pod("x", "node-m0", {SMALL: 1})),
        lambda w: setattr(w, "busy", frozenset({"claim/m0"})),
        lambda w: w.claims.update(m0=replace(w.claims["m0"], disruption=NodeDisruption("Empty", "x", NOW, NEVER))),
        lambda w: w.claims.update(m0=replace(w.claims["m0"], recut_at_s=NOW)),
        lambda w: w.nodes.update({"node-m0": replace(w.nodes["node-m0"], ready=False)}),
    ],
    ids=["a gang", "slices of somebody else", "busy", "leaving", "being cut", "not ready"],
)
def test_when_a_machine_keeps_its_cut(change: Any) -> None:
    world = standing()
    change(world)
    assert recut(world) == {"m1": large()}


def test_changed_content_under_the_same_name_is_another_cut() -> None:
    world = standing()
    world.fleet = _same_name_other_content()
    assert set(recut(world)) == {"m0", "m1"}


def _same_name_other_content() -> Fleet:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"2g.20gb": 3}}])
    spec: dict[str, Any] = {"replicas": 2, "sharing": {"mig": {"layouts": ["small"]}}}
    return builder.pool(**spec).team(quotas={"h100": {"cpu": "999"}}).queue().build()


def test_machines_that_are_not_cut_are_not_touched() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    assert recut(world) == {}


def test_a_rollout_runs_to_its_end_and_then_nothing_happens() -> None:
    world = standing()
    g = world.runs(gang("g", pod_set(requests={**amounts(), SMALL: 1})), ("m0", 1))
    world.settle_down()
    assert world.claims["m1"].layout == large()
    assert world.claims["m0"].layout != large()
    assert world.nodes["node-m1"].allocatable[LARGE] == 16
    assert not [t for node in world.nodes.values() for t in node.taints]
    world.jobs.pop(g.uid)
    world.pods.clear()
    world.settle_down()
    assert world.claims["m0"].layout == large()
    for _ in range(10):
        world.now_s += 60
        assert world.pass_once() == []


def test_a_gang_waits_for_the_cut_it_needs_and_then_runs() -> None:
    world = World(fleet("small", "large"))
    world.machine("m0")
    world.machine("m1")
    world.waits(gang("g", pod_set(count=16, requests={**amounts(), LARGE: 1})))
    world.settle_down()
    g = world.gang("g")
    assert (g.reason, {pin.claim for pin in g.pins}) == ("PodsReady", {"m0"})
    assert world.claims["m0"].layout == large()
    assert world.claims["m1"].layout != large()
