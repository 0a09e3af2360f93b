"""What a pass buys never costs more than what Karpenter's order would, taken pod by pod.

That order tears gangs apart, into several zones or GPU models; where it does, it is no
comparison. Pods of different sizes differ in CPU and memory, so that ties do not decide.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.actions import OpenClaims
from fleet.catalog import InstanceOffer, InstanceType
from fleet.scheduling import cycle
from fleet.snapshot import Claim
from model.quantity import Resources
from tests.support.fleets import GPU, NOW, A, B, FleetBuilder, amounts, catalog, gang, machine, pod_set
from tests.support.karpenter_order import OrderedMachine, ordered
from tests.support.world import World

_POOLS = (["on-demand"], ["spot"], ["spot", "on-demand"])


@dataclass
class Region:
    """What is sold."""

    types: list[InstanceType]
    offers: list[InstanceOffer]


@st.composite
def regions(draw: st.DrawFn) -> Region:
    types, offers = [], []
    for number in range(draw(st.integers(1, 5))):
        cpu, gpus = draw(st.sampled_from((4, 8, 16, 32, 64))), draw(st.sampled_from((0, 0, 1, 2, 4, 8)))
        model: dict[str, Any] = {"gpus": gpus, "gpu": draw(st.sampled_from(("l4", "a10g")))} if gpus else {}
        types.append(machine(f"k{number}.large", cpu=cpu, gib=4 * cpu, **model))
        for zone in (A, B):
            usd_h = draw(st.integers(cpu * 3 + gpus * 50, cpu * 7 + gpus * 200)) / 100
            offers.append(InstanceOffer(types[-1], zone, "on-demand", usd_h))
            if draw(st.integers(0, 4)):
                offers.append(InstanceOffer(types[-1], zone, "spot", round(usd_h * draw(st.integers(3, 9)) / 10, 4)))
    return Region(types, offers)


@st.composite
def sizes(draw: st.DrawFn) -> list[Resources]:
    """What pods ask for; no two the same CPU and memory."""
    found = draw(st.lists(st.tuples(st.sampled_from((0, 0, 1, 1, 2, 4)), st.integers(1, 20)), min_size=1, max_size=4))
    return [amounts(gpus, str(cpu), f"{n + 1}Gi") for n, (gpus, cpu) in enumerate(found)]


@st.composite
def worlds(draw: st.DrawFn, most: int) -> World:
    """One pool, machines that cost their price alone, and gangs that wait for up to `most` pods each."""
    region = draw(regions())
    families = [each.name.partition(".")[0] for each in region.types]
    builder = (
        FleetBuilder()
        .policy(usdPerHourPerMachine=0)
        .pool("all", instanceFamilies=families, capacityTypes=draw(st.sampled_from(_POOLS)))
    )
    quotas = {"all": {GPU: 10_000, "cpu": 10_000_000}}
    world = World(builder.team(quotas=quotas).queue(flavors=["all"]).build(), catalog=catalog(region.offers))
    asked = draw(sizes())
    for number, count in enumerate(draw(st.lists(st.integers(1, most), min_size=1, max_size=15))):
        pods = pod_set("main", count, requests=draw(st.sampled_from(asked)))
        world.waits(gang(f"g{number:02d}", pods, created_s=NOW - 100))
    return world


def bought(world: World) -> list[Claim]:
    return [
        claim for it in cycle.decide(world.fleet, world.snapshot()) if isinstance(it, OpenClaims) for claim in it.claims
    ]


def compare(world: World) -> None:
    theirs = ordered(world.gangs.values(), world.fleet, world.snapshot())
    assume(sum(sum(it.gangs.values()) for it in theirs) == sum(it.pod_sets[0].count for it in world.gangs.values()))
    torn = torn_apart(theirs, world)
    mine = bought(world)
    assert mine
    assume(not torn)
    assert sum(claim.price_usd_h for claim in mine) <= sum(it.usd_h for it in theirs) + 1e-6


def torn_apart(machines: Iterable[OrderedMachine], world: World) -> bool:
    """Whether pods of one gang stand in several zones, or those with GPUs on several models."""
    zones: dict[str, set[str]] = {}
    models: dict[str, set[str]] = {}
    uses_gpus = {it.job.name: GPU in it.pod_sets[0].requests for it in world.gangs.values()}
    for each in machines:
        for name in each.gangs:
            zones.setdefault(name, set()).add(each.zone)
            if uses_gpus[name]:
                models.setdefault(name, set()).add(each.gpu_name)
    return any(len(found) > 1 for found in (*zones.values(), *models.values()))


@settings(max_examples=50, deadline=None)
@given(worlds(most=1))
def test_for_single_pods(world: World) -> None:
    compare(world)


@settings(max_examples=50, deadline=None)
@given(worlds(most=6))
def test_for_gangs_that_karpenters_order_keeps_together(world: World) -> None:
    compare(world)
