"""What a place costs: which pods count, on which machines, and which machines are kept empty."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state
from fleet.placement.opportunity_cost import MEMORY, CapacityValue, OpportunityCosts, RequestMix, request_mix
from fleet.placement.place import place_gang
from fleet.placement.plan import PlacementPlan
from fleet.snapshot import Gang, GangState, PodSet
from fleet.snapshot.lookups import holders
from model import labels
from model.fleet import Fleet
from model.index import Index
from model.kinds import RequirementTerm
from model.quantity import CPU
from tests.support.fleets import (
    G6,
    GPU,
    M7,
    P5,
    B,
    FleetBuilder,
    amounts,
    catalog,
    foreign_pod,
    gang,
    offers,
    plain_node,
    pod_set,
)
from tests.support.world import World

ROOT = Path(__file__).resolve().parents[3]
SMALL, LARGE = labels.MIG_RESOURCE_PREFIX + "1g.10gb", labels.MIG_RESOURCE_PREFIX + "3g.40gb"
ONE = amounts(1, cpu="24")
"""A GPU of a `p5.48xlarge` with the CPU that goes with it."""


def two_pools(**h100: Any) -> Fleet:
    """A queue for each of two pools."""
    builder = FleetBuilder().pool(**h100).pool("l4", instanceTypes=[G6.name]).team(quotas={"h100": {GPU: 99}})
    return builder.queue().queue("small", flavors=["l4"]).queue("both", flavors=["h100", "l4"]).build()


def by_uid(*gangs: Gang) -> dict[str, Gang]:
    return {each.uid: each for each in gangs}


# -- the mix ----------------------------------------------------------------------------------------------------------


def counted(mix: RequestMix) -> int:
    return sum(mix.values())


@pytest.mark.parametrize(
    ("waits", "pods"),
    [
        (gang(count=3), 3),
        (gang("g", pod_set("a", 2), pod_set("b", 5, gpu=1)), 7),
        (gang("g", pod_set("a", 2), pod_set("b", 5, requests=amounts())), 2),
        (gang("g", PodSet("a", 4, {SMALL: 1})), 4),
        (gang("g", PodSet("a", 4, {GPU: 0})), 0),
        (gang(count=3, queue="undeclared"), 3),
        (gang(count=3, active=False), 0),
        (gang(count=3, state=GangState.FINISHED), 0),
        (gang("g", pod_set(count=3, node_selector={labels.HOSTNAME: "n"})), 0),
        (gang("g", pod_set(count=3, node_selector={labels.ZONE: B})), 3),
    ],
    ids=["pods", "of all sets", "not without GPUs", "slices", "none of it", "no queue", "deactivated", "finished",
         "who names a host", "who names a zone"],
)  # fmt: skip
def test_who_counts(waits: Gang, pods: int) -> None:
    assert counted(request_mix(Index(), two_pools(), by_uid(waits))) == pods


@pytest.mark.parametrize("state", [GangState.RESERVED, GangState.ADMITTED, GangState.EVICTING])
def test_the_mix_is_the_same_whether_a_gang_waits_or_runs(state: GangState) -> None:
    index, fleet, waits = Index(), two_pools(), gang(queue="both")
    before = request_mix(index, fleet, by_uid(waits))
    after = request_mix(
        index, fleet, by_uid(replace(waits, state=state, flavors={"main": ("l4",)}, message="anything"))
    )
    assert after is before


def test_a_gang_that_comes_changes_it() -> None:
    index, fleet = Index(), two_pools()
    assert request_mix(index, fleet, by_uid(gang())) != request_mix(index, fleet, by_uid(gang(), gang("other")))


def test_free_cores_are_worth_what_those_who_still_fit_would_fill() -> None:
    """Half of those who ask for a GPU need 2 cores, half 14: with 8 GPUs and ever fewer cores."""
    mix = {((CPU, cores * 1000), (GPU, 1)): 1 for cores in (2, 14)}
    value = CapacityValue(mix, 2)
    worth = {cores: value.of({CPU: cores * 1000, GPU: 8, MEMORY: 0}) for cores in (64, 32, 14, 13, 4, 2, 1)}
    assert worth[64] > worth[32] > worth[14]
    assert worth[13] > worth[14], "one of the large ones would take what six small ones use"
    assert worth[13] > worth[4] > worth[2] > worth[1] == 0


# -- the worth of machines --------------------------------------------------------------------------------------------


def slot(pool: str = "h100", found: Mapping[str, str] | None = None, **free: int) -> NodeSlot:
    room = {"cpu": 10**6, MEMORY: 10**13, "pods": 99} | {name.replace("_", "/"): much for name, much in free.items()}
    return NodeSlot("n", "n", "", found or {}, (), room, pool)


def loss(fleet: Fleet, gangs: Mapping[str, Gang], where: NodeSlot, requests: Mapping[str, int]) -> int:
    return OpportunityCosts(fleet, gangs, Index()).priced(requests)(where, 1)[1]


def affinity(*zones: str) -> tuple[tuple[RequirementTerm, ...], ...]:
    return ((RequirementTerm(key=labels.ZONE, operator="In", values=zones),),)


@pytest.mark.parametrize(
    ("waits", "where", "counts"),
    [
        (gang(gpu=1), slot(), True),
        (gang(gpu=1), slot("l4"), False),
        (gang(gpu=1, queue="small"), slot("l4"), True),
        (gang(gpu=1, queue="both"), slot("l4"), True),
        (gang(gpu=1, queue="undeclared"), slot(""), True),
        (gang("g", pod_set(gpu=1, node_selector={labels.ZONE: B})), slot(found={labels.ZONE: B}), True),
        (gang("g", pod_set(gpu=1, node_selector={labels.ZONE: B})), slot(), False),
        (gang("g", pod_set(gpu=1, required_affinity=affinity("x", B))), slot(found={labels.ZONE: B}), True),
        (gang("g", pod_set(gpu=1, required_affinity=affinity("x"))), slot(found={labels.ZONE: B}), False),
    ],
    ids=["its flavor", "another's", "that one's", "one of several", "nobody knows", "selected", "not selected",
         "by affinity", "not by affinity"],
)  # fmt: skip
def test_machines_are_worth_something_to_those_who_may_stand_there(waits: Gang, where: NodeSlot, counts: bool) -> None:
    where.free[GPU] = 4
    found = loss(two_pools(), by_uid(waits), where, {GPU: 1})
    assert (found > 0) is counts


def mig_fleet(*layouts: str, **pool: Any) -> Fleet:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    sharing = {"mig": {"layouts": list(layouts)}} if layouts else pool.pop("sharing", {})
    return builder.pool(sharing=sharing, **pool).team().queue().build()


@pytest.mark.parametrize(
    ("fleet", "resource", "part"),
    [
        (mig_fleet(), GPU, 1),
        (mig_fleet("small", "large"), SMALL, 7),
        (mig_fleet("small", "large"), LARGE, 7 / 3),
        (mig_fleet(), labels.MIG_RESOURCE_PREFIX + "1c.3g.40gb", 7 / 3),
        (mig_fleet(sharing={"timeSlicing": {"replicas": 4}}), GPU, 4),
        (mig_fleet(sharing={"mps": {"replicas": 10}}), GPU + ".shared", 10),
    ],
)
def test_units_are_parts_of_a_gpu(fleet: Fleet, resource: str, part: float) -> None:
    where = slot()
    where.free[resource] = 4
    waits = gang("g", PodSet("main", 1, {resource: 1}))
    assert loss(fleet, by_uid(waits), where, {resource: 1}) == pytest.approx(1000 / part / (1 + 1 / 30), abs=1)


def test_nobody_who_asks_for_gpus_leaves_nothing_to_lose() -> None:
    fleet = two_pools()
    for gangs in ({}, by_uid(gang("g", pod_set(requests=amounts())))):
        assert OpportunityCosts(fleet, gangs, Index()).priced({GPU: 1})(slot(), 1) == (False, 0)


# -- kept empty -------------------------------------------------------------------------------------------------------


def world_of(capacity_type: Any = "on-demand", **pool: Any) -> World:
    spec = {"instanceTypes": [P5.name, M7.name], "capacityTypes": [capacity_type], **pool}
    fleet = FleetBuilder().pool(**spec).team(quotas={"h100": {GPU: 99}}).queue().build()
    sold = catalog(offers(capacity_types=(capacity_type,)))
    return World(fleet, catalog=sold)


def begun(world: World, capacity_type: Any = "on-demand") -> World:
    """An empty machine without GPUs, and one half used whose GPUs need the CPU that is left."""
    world.machine("cpus", kind=M7.name, capacity_type=capacity_type)
    world.machine("gpus", capacity_type=capacity_type)
    world.runs(gang("g", pod_set(count=4, requests=ONE)), ("gpus", 4))
    return world


def chosen(world: World, *sets: PodSet) -> list[tuple[str, int]]:
    snapshot = world.snapshot()
    supply = build_capacity(world.fleet, snapshot, may_buy=False)
    board = build_cluster_state(snapshot, holders(snapshot))
    flavors = FleetFlavors(world.fleet, supply.offerings, board)
    found = place_gang(board, supply, "uid-new", [flavors.need(pods, ("h100",)) for pods in sets])
    assert isinstance(found, PlacementPlan), found
    return [(taken.slot.name, taken.count) for taken in found.assignments]


CPUS = pod_set("cpus", requests=amounts(cpu="8"))


@pytest.mark.parametrize(
    ("world", "where"),
    [
        (begun(world_of()), "gpus"),
        (begun(world_of(replicas=2)), "cpus"),
        (begun(world_of("reserved"), "reserved"), "cpus"),
    ],
    ids=["what can be given back is used last", "a fixed pool goes by worth", "reserved capacity goes by worth"],
)
def test_empty_machines(world: World, where: str) -> None:
    assert chosen(world, CPUS) == [(f"node-{where}", 1)]


def test_a_machine_of_others_is_not_empty() -> None:
    world = begun(world_of())
    world.pods["other"] = foreign_pod("other", "node-cpus", amounts())
    assert chosen(world, CPUS) == [("node-cpus", 1)]
    world.pods["other"] = foreign_pod("other", "node-cpus", amounts(), daemon=True)
    assert chosen(world, CPUS) == [("node-gpus", 1)]


def test_an_empty_machine_is_begun_where_nothing_else_holds_it() -> None:
    world = begun(world_of())
    world.machine("whole")
    assert chosen(world, pod_set(requests=amounts(5))) == [("node-whole", 1)]


@pytest.mark.parametrize(
    ("fleet", "only_for", "kept"),
    [
        (mig_fleet("small", "large", replicas=3), set(), True),
        (mig_fleet("small", replicas=3), set(), False),
        (mig_fleet("small"), set(), True),
        (mig_fleet("small"), {"uid-g"}, False),
    ],
    ids=["it may be cut anew", "there is one cut", "it may be given back", "it waits for one gang"],
)
def test_kept_empty(fleet: Fleet, only_for: set[str], kept: bool) -> None:
    price = OpportunityCosts(fleet, {}, Index()).priced({SMALL: 1})
    where = slot()
    where.pods_when_empty, where.only_for = 99, frozenset(only_for)
    assert price(where, 1)[0] is kept
    ClusterState({"n": where}).take(where, {SMALL: 1}, 1)
    assert not price(where, 1)[0]


# -- choices ----------------------------------------------------------------------------------------------------------


def fixed(free: Mapping[str, tuple[int, int]]) -> World:
    """Nodes of nobody's pool with so many GPUs and CPUs free; whoever wants one GPU wants 10 CPUs with it."""
    world = World(FleetBuilder().flavor("h100", nodeLabels={"kind": "h100"}).team().queue().build())
    for name, (gpus, cpus) in free.items():
        room = {GPU: gpus, "cpu": cpus * 1000, MEMORY: 2**40}
        world.nodes[name] = plain_node(name, room, {"kind": "h100"})
    asks = {GPU: 1, "cpu": 10_000, MEMORY: 2**30}
    world.waits(gang("ones", pod_set(count=8, requests=asks)), gang("eights", pod_set(requests={GPU: 8})))
    return world


@pytest.mark.parametrize(
    ("free", "asked", "where"),
    [
        ({"a": (8, 800), "b": (5, 800)}, {GPU: 1}, "b"),
        ({"a": (8, 100), "b": (7, 800)}, {GPU: 1, "cpu": 20_000}, "b"),
        ({"a": (4, 40), "b": (4, 90)}, {"cpu": 30_000}, "b"),
        ({"a": (4, 40), "b": (0, 90)}, {"cpu": 30_000}, "b"),
        ({"a": (4, 20), "b": (2, 40)}, {GPU: 1}, "a"),
        ({"b": (4, 40), "a": (4, 40)}, {GPU: 1}, "a"),
    ],
    ids=["machines that eights need are not begun", "whatever the tightest room is", "CPU beside GPUs is kept",
         "where there are no GPUs nothing is lost", "GPUs without CPU go first", "the lowest name"],
)  # fmt: skip
def test_fixed_machines_go_by_worth(free: dict[str, tuple[int, int]], asked: dict[str, int], where: str) -> None:
    assert chosen(fixed(free), pod_set(requests=asked)) == [(where, 1)]


loads = st.lists(st.integers(0, 8), min_size=1, max_size=5)
waiting = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 4, 8]), st.integers(1, 6)), min_size=1, max_size=4)


def loaded(used: list[int], waits: list[tuple[int, int]], pool: dict[str, Any]) -> World:
    builder = FleetBuilder().pool(**pool).pool("other", instanceTypes=[G6.name])
    world = World(builder.team(quotas={"h100": {GPU: 999}}).queue().build())
    for number, gpus in enumerate(used):
        world.machine(f"m{number}")
        if gpus:
            world.runs(gang(f"on-{number}", pod_set(count=gpus, gpu=1)), (f"m{number}", gpus))
    for number, (gpus, count) in enumerate(waits):
        world.waits(gang(f"w{number}", pod_set(gpu=gpus, count=count)))
    return world


def every_plan(world: World, waits: list[tuple[int, int]]) -> list[list[tuple[str, int]] | None]:
    """One gang after the other; none is on the board twice."""
    snapshot = world.snapshot()
    supply = build_capacity(world.fleet, snapshot, may_buy=False)
    board = build_cluster_state(snapshot, holders(snapshot))
    flavors = FleetFlavors(world.fleet, supply.offerings, board)
    found: list[list[tuple[str, int]] | None] = []
    for number, (gpus, count) in enumerate(waits):
        before = {name: (slot.empty, dict(slot.free)) for name, slot in board.slots.items()}
        plan = place_gang(board, supply, f"uid-w{number}", [flavors.need(pod_set(gpu=gpus, count=count), ("h100",))])
        assert all(amount >= 0 for slot in board.slots.values() for amount in slot.free.values())
        if isinstance(plan, PlacementPlan):
            _no_machine_begun_for_nothing(plan, before, amounts(gpus), world.fleet)
        found.append(
            [(taken.slot.name, taken.count) for taken in plan.assignments] if isinstance(plan, PlacementPlan) else None
        )
    return found


def _no_machine_begun_for_nothing(
    plan: PlacementPlan, before: Mapping[str, tuple[bool, dict[str, int]]], requests: Mapping[str, int], fleet: Fleet
) -> None:
    if len(plan.assignments) != 1 or fleet.node_pools["h100"].spec.replicas is not None:
        return
    (only,) = plan.assignments
    fits = {
        name for name, (_, free) in before.items() if all(free.get(k, 0) >= v * only.count for k, v in requests.items())
    }
    used = {name for name in fits if not before[name][0] and not name.startswith("node-other")}
    assert not used or not before[only.slot.name][0]


@settings(max_examples=60, deadline=None)
@given(loads, waiting, st.sampled_from([{}, {"replicas": 5}]))
def test_an_unrelated_pool_and_the_order_of_nodes_change_nothing(
    used: list[int], waits: list[tuple[int, int]], pool: dict[str, Any]
) -> None:
    world = loaded(used, waits, pool)
    expected = every_plan(world, waits)
    world.nodes = dict(reversed(world.nodes.items()))
    world.gangs = dict(reversed(world.gangs.items()))
    assert every_plan(world, waits) == expected
    for number in range(2):
        world.machine(f"other-{number}", "other", G6.name)
    assert every_plan(world, waits) == expected


def test_deciding_needs_no_numpy() -> None:
    """Importing it takes longer than most passes."""
    code = (
        "import sys\n"
        "from bench import farm\n"
        "from fleet.scheduling import cycle\n"
        "from model.index import Index\n"
        "seen = farm.snapshot(4, [farm.gang('one', 'a'), farm.gang('many', 'a', 9, 1)], Index())\n"
        "assert len(cycle.decide(farm.fleet(a=32), seen)) == 2\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
