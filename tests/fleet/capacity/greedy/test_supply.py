"""Pools, pod sets and slots as the greedy order takes them."""

from typing import Any

import pytest

from fleet.capacity.greedy import Outcome, Pod, Why, solve
from fleet.capacity.greedy.supply import Supply, ask_of, node_of, supply_of
from fleet.capacity.pools import Headroom
from fleet.capacity.shapes import Shapes
from fleet.placement.board import Slot
from fleet.snapshot import CapacityPool, PodSet
from model import labels
from model.kinds import RequirementTerm, Taint, Toleration
from tests.support.fleets import G6, GPU, M7, P4, P5, P5S, A, FleetBuilder, catalog

GPUS = {"instanceTypes": [P5.name, P5S.name], "capacityTypes": ["on-demand"]}


def market(short: Any = (), **pools: dict[str, Any]) -> Supply:
    builder = FleetBuilder()
    for name, spec in pools.items():
        builder.pool(name, **spec)
    fleet = builder.build()
    headroom = {name: Headroom.of(pool, [], {}) for name, pool in fleet.node_pools.items()}
    return supply_of(Shapes(fleet, catalog()), fleet.node_pools.values(), headroom, short)


def buy(supply: Supply, pod_set: PodSet, *slots: Slot) -> Outcome:
    ask = ask_of(pod_set)
    pods = [Pod(f"{pod_set.name}-{number}", ask) for number in range(pod_set.count)]
    return solve(pods, supply.templates, map(node_of, slots))


def test_the_cheapest_shape_of_a_claim() -> None:
    supply = market(h100=GPUS)
    outcome = buy(supply, PodSet("train", 2, {GPU: 8}))
    shapes = [supply.shape(claim) for claim in outcome.claims]
    assert [(s.offer.instance_type.name, s.offer.zone, s.offer.capacity_type) for s in shapes] == [
        (P5.name, A, "on-demand")
    ] * 2
    assert outcome.cost_usd_h == 2 * 98.0


def test_one_gpu_each_ends_on_the_machine_that_grew() -> None:
    """What the purchase solver is for: eight machines of one GPU would be dearer here, but not always."""
    supply = market(h100=GPUS)
    outcome = buy(supply, PodSet("infer", 8, {GPU: 1}))
    assert [supply.shape(claim).offer.instance_type.name for claim in outcome.claims] == [P5.name]


def test_what_is_short_is_not_bought() -> None:
    first = buy(market(h100=GPUS), PodSet("p", 1, {GPU: 8})).claims[0].options[0]
    short = CapacityPool("on-demand", P5.name, first.zone)
    second = buy(market(short={short}, h100=GPUS), PodSet("p", 1, {GPU: 8})).claims[0].options[0]
    assert first.zone != second.zone


@pytest.mark.parametrize(
    ("limits", "machines"),
    [({"nodes": 1}, 1), ({"usdPerHour": 200}, 2), ({"usdPerHour": 97}, 0), ({"resources": {GPU: "16"}}, 2), ({}, 3)],
)
def test_limits(limits: dict[str, Any], machines: int) -> None:
    outcome = buy(market(h100={**GPUS, "limits": limits}), PodSet("p", 3, {GPU: 8}))
    assert len(outcome.claims) == machines
    assert [each.why for each in outcome.unplaced] == [Why.LIMITS] * (machines < 3)


def test_a_cut_machine_is_a_machine_of_its_own() -> None:
    builder = FleetBuilder().layout("halves", a100_40gb=[{"profiles": {"3g.20gb": 2}}])
    builder.pool("cut", instanceTypes=[P4.name], sharing={"mig": {"layouts": ["halves"]}})
    fleet = builder.build()
    headroom = {"cut": Headroom.of(fleet.node_pools["cut"], [], {})}
    supply = supply_of(Shapes(fleet, catalog()), fleet.node_pools.values(), headroom)
    outcome = buy(supply, PodSet("p", 17, {"nvidia.com/mig-3g.20gb": 1}, {labels.MIG_LAYOUT: "halves"}))
    assert [len(claim.pods) for claim in outcome.claims] == [16, 1]
    assert all(supply.shape(claim).layout for claim in outcome.claims)
    (unplaced,) = buy(supply, PodSet("p", 1, {GPU: 1})).unplaced
    assert unplaced.why is Why.NO_MACHINE


def test_slots_are_used_before_anything_is_bought() -> None:
    slot = Slot("n", "n", "", {labels.ZONE: A}, (), {GPU: 8, "pods": 1}, "h100")
    outcome = buy(market(h100=GPUS), PodSet("p", 2, {GPU: 1}), slot)
    assert (outcome.seats, len(outcome.claims)) == ({"n": ("p-0",)}, 1)
    assert not node_of(Slot("new", "", "claim", {}, (), {})).initialized


def test_what_a_pod_set_asks() -> None:
    taint = Taint(key="gpu", effect="NoSchedule")
    spec = {**GPUS, "template": {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "labels": {"team": "x"}}}
    supply = market(h100=spec)
    term = RequirementTerm(key="team", operator="In", values=("x",))
    mine = PodSet("p", 1, {GPU: 1}, {labels.ZONE: A}, ((term,),), (Toleration(key="gpu", operator="Exists"),))
    (claim,) = buy(supply, mine).claims
    assert supply.shape(claim).taints == (taint,)
    assert claim.requirements.of(labels.ZONE).only == A
    strangers = PodSet(
        "p", 1, {GPU: 1}, required_affinity=((RequirementTerm(key="team", operator="In", values=("y",)),),)
    )
    assert [each.why for each in buy(supply, strangers).unplaced] == [Why.TAINTS]
    assert [each.why for each in buy(market(h100=GPUS), strangers).unplaced] == [Why.REQUIREMENTS]


def test_flexibility_asked_for_is_kept() -> None:
    term = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [G6.name, M7.name], "minValues": 2}
    outcome = buy(market(any={"requirements": [term], "capacityTypes": ["spot"]}), PodSet("p", 2, {"cpu": 8000}))
    assert [len(claim.options) for claim in outcome.claims] == [2, 2]
