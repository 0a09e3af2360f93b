"""The quick look before a what-if never says no where the what-if would have said yes."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from fleet.cost.lost_work import PAYBACK_S, lost_work_usd
from fleet.disruption.context import DisruptionContext
from fleet.disruption.prefilter import Prefilter
from fleet.disruption.simulation import CandidateGroup
from fleet.reasons import Refusal
from fleet.snapshot import PodSet
from model import labels
from tests.support.fleets import GPU, NOW, P4, P5, P5S, A, B, FleetBuilder, amounts, gang
from tests.support.world import World


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few machines of two pools, each with a gang or two that fit, some gangs on two machines."""
    kinds = {P5.name, P5S.name, P4.name}
    builder = FleetBuilder().pool(
        instanceTypes=sorted(kinds),
        capacityTypes=draw(st.sampled_from((["on-demand"], ["spot", "on-demand"], ["spot"]))),
        limits=draw(st.sampled_from(({}, {"nodes": 4}, {"usdPerHour": 250.0}))),
    )
    world = World(builder.team(quotas={"h100": {GPU: 999}}).queue().build())
    types = world.fleet.node_pools["h100"].spec.capacity_types
    for n in range(draw(st.integers(1, 4))):
        kind, zone = draw(st.sampled_from(sorted(kinds))), draw(st.sampled_from((A, B)))
        world.machine(f"m{n}", "h100", kind, zone, draw(st.sampled_from(types)))
    free = {name: claim.resources[GPU] for name, claim in world.claims.items()}
    for n in range(draw(st.integers(1, 5))):
        gpus = draw(st.sampled_from((1, 2, 4, 8)))
        fitting = [name for name, left in sorted(free.items()) if left >= gpus]
        places = draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2, unique=True)) if fitting else []
        if places:
            _run(world, draw, f"g{n}", gpus, places)
            for name in places:
                free[name] -= gpus
    if draw(st.booleans()):
        world.shortages = {offer.pool_key: NOW + 60 for offer in world.catalog.offers if offer.zone == A}
    return world


def _run(world: World, draw: st.DrawFn, name: str, gpus: int, places: list[str]) -> None:
    level = draw(st.sampled_from(("", "", labels.ZONE, labels.HOSTNAME)))
    selector: dict[str, str] = draw(st.sampled_from(({}, {}, {labels.ZONE: B})))
    pods = PodSet("main", len(places), {**amounts(), GPU: gpus}, node_selector=selector, required_topology=level)
    world.runs(gang(name, pods), *[(place, 1) for place in places], admitted_at_s=NOW - draw(st.integers(1, 20)) * 600)


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_hopeless_means_that_no_move_pays(world: World) -> None:
    context = DisruptionContext.of(world.fleet, world.snapshot())
    prefilter = Prefilter.of(world.fleet, context.snapshot)
    for _, claim in context.candidates():
        gangs = context.gangs_on(claim)
        if not gangs:
            continue
        lost = sum(lost_work_usd(it, context.snapshot) for it in gangs)
        affordable_usd_h = claim.price_usd_h - lost * 3600 / PAYBACK_S
        if affordable_usd_h > 0 and not prefilter.hopeless(claim, gangs, affordable_usd_h):
            event("worth a what-if")
            continue
        event("hopeless")
        plans = context.simulate(CandidateGroup((claim,), tuple(gangs)))
        assert isinstance(plans, Refusal) or not _pays(plans, claim, affordable_usd_h)


def _pays(plans: dict[str, Any], claim: Any, affordable_usd_h: float) -> bool:
    lots = [lot for plan in plans.values() for lot in plan.purchases]
    spot = claim.capacity_pool.capacity_type == "spot" and any(it.offering.offer.capacity_type == "spot" for it in lots)
    cost = sum(plan.cost_usd_h for plan in plans.values())
    return sum(lot.count for lot in lots) <= 1 and not spot and cost < affordable_usd_h - 1e-9
