"""Rounds over single pods: which machines go, and what is bought for them."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reference.karpenter.buy import MachineType, Peers, ProvisionerSettings, Spread, Weighted
from bench.reference.karpenter.disrupt.eligibility import CandidateNode, CandidatePod
from bench.reference.karpenter.disrupt.ground import DisruptionCandidate, DisruptionWorld, reschedulable
from bench.reference.karpenter.disrupt.rounds import DisruptionRound, decide
from fleet.reasons import Reason
from model import labels
from model.requirements import Requirement, Requirements
from tests.support.fleets import NOW
from tests.support.ground import ground, machine, pods, pool, standing

OD, SPOT = "on-demand", "spot"
SMALL = machine("small", 4, (OD, 1.0))
LARGE = machine("large", 16, (OD, 4.0))
KINDS = (SMALL, LARGE)
ON_NODE = labels.HOSTNAME


def told(found: DisruptionRound) -> tuple[str, list[str], list[tuple[str, ...]]]:
    """What is done, to whom, and the types of each purchase."""
    bought = [purchase.types for move in found.moves for purchase in move.bought]
    going = sorted(name for move in found.moves for name in move.names)
    return ("replace" if bought else "delete" if going else "none"), going, bought


NONE: tuple[str, list[str], list[tuple[str, ...]]] = ("none", [], [])


# -- emptiness and policies -------------------------------------------------------------------------------------------

EMPTY = standing("n1", SMALL)
BUSY = standing("n1", LARGE, pods(1))
"""A large machine for a pod that fits on a small one."""


@pytest.mark.parametrize(
    ("one", "disruption", "goes"),
    [
        pytest.param(EMPTY, {}, True, id="empty"),
        pytest.param(EMPTY, {"consolidationPolicy": "WhenEmpty"}, True, id="empty, WhenEmpty"),
        pytest.param(EMPTY, {"consolidateAfter": "Never"}, False, id="never"),
        pytest.param(replace(EMPTY, settled=False), {}, False, id="not quiet"),
        pytest.param(EMPTY, {"replicas": 1}, False, id="fixed pool"),
        pytest.param(EMPTY, {"budgets": [{"nodes": 0}]}, False, id="budget"),
        pytest.param(EMPTY, {"budgets": [{"nodes": 0, "reasons": ["Underutilized"]}]}, True, id="other budget"),
        pytest.param(replace(EMPTY, post=CandidateNode(do_not_disrupt="true")), {}, False, id="node protected"),
        pytest.param(replace(EMPTY, post=CandidateNode(nominated=True)), {}, False, id="nominated"),
        pytest.param(BUSY, {}, True, id="too large"),
        pytest.param(BUSY, {"consolidationPolicy": "WhenEmpty"}, False, id="busy, WhenEmpty"),
        pytest.param(BUSY, {"consolidationPolicy": "Balanced"}, True, id="balanced"),
        pytest.param(BUSY, {"consolidateAfter": "Never"}, False, id="busy, never"),
        pytest.param(replace(BUSY, settled=False), {}, False, id="busy, not quiet"),
        pytest.param(BUSY, {"replicas": 1}, False, id="busy, fixed pool"),
        pytest.param(BUSY, {"budgets": [{"nodes": 0, "reasons": ["Empty"]}]}, True, id="busy, other budget"),
        pytest.param(BUSY, {"budgets": [{"nodes": 0}]}, False, id="busy, budget"),
        pytest.param(
            replace(BUSY, post=CandidateNode(pods=(CandidatePod(pod_budgets=(0,)),))),
            {},
            False,
            id="PodDisruptionBudget",
        ),
        pytest.param(
            replace(BUSY, post=CandidateNode(pods=(CandidatePod(pod_budgets=(0,)),), grace_s=60)),
            {},
            False,
            id="grace, too",
        ),
        pytest.param(
            replace(BUSY, post=CandidateNode(pods=(CandidatePod(do_not_disrupt="5m", started_at_s=NOW - 300),))),
            {},
            True,
            id="was protected",
        ),
    ],
)
def test_one_machine(one: DisruptionCandidate, disruption: dict[str, Any], goes: bool) -> None:
    found = decide(ground(KINDS, [one], pool(**disruption)))
    assert [move.names for move in found.moves] == ([("n1",)] if goes else [])


def test_all_empty_machines_go_in_one_command_as_far_as_budgets_let_them() -> None:
    machines = [standing(f"n{n}", SMALL) for n in range(10)]
    found = decide(ground(KINDS, machines, pool(budgets=[{"nodes": "35%"}])))
    assert (len(found.moves), len(found.moves[0].names), found.reason) == (1, 4, Reason.EMPTY)


# -- one machine, or several ------------------------------------------------------------------------------------------


def test_a_cheaper_type_replaces_a_large_one_and_no_dearer_one_is_named() -> None:
    assert told(decide(ground(KINDS, [BUSY]))) == ("replace", ["n1"], [("small",)])


def test_the_machine_that_brings_most_for_what_it_disturbs_goes_first() -> None:
    two, one = standing("n1", SMALL, pods(2, 1000)), standing("n2", SMALL, pods(1, 1000))
    assert told(decide(ground(KINDS, [two, one]))) == ("delete", ["n2"], [])


def test_three_become_one() -> None:
    machines = [standing(f"n{n}", LARGE, pods(1, 1000), cpu=1) for n in range(3)]
    assert told(decide(ground(KINDS, machines))) == ("replace", ["n0", "n1", "n2"], [("small",)])


def test_machines_of_two_pools_merge() -> None:
    machines = [standing(f"n{n}", LARGE, pods(1, 1000), of=f"p{n}", cpu=1) for n in range(2)]
    found = decide(ground(KINDS, machines, pool("p0"), pool("p1")))
    assert told(found) == ("replace", ["n0", "n1"], [("small",)])


def test_two_are_not_merged_into_one_of_their_own_type() -> None:
    """Keeping one of them and deleting the other is the smaller change."""
    machines = [standing(f"n{n}", SMALL, pods(1, 1000), cpu=1) for n in range(2)]
    assert told(decide(ground(KINDS, machines))) == NONE


def test_a_machine_is_never_replaced_by_two() -> None:
    gone = machine("large", 16, (OD, 4.0), available=False)
    found = decide(ground((SMALL, gone), [standing("n1", gone, pods(2, 3000))]))
    assert told(found) == NONE
    assert found.refusals["n1"].startswith("Can't remove without creating 2")


# -- where pods may go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "goes"),
    [
        pytest.param({}, True, id="room"),
        pytest.param({"settled": False}, False, id="unsettled"),
        pytest.param({"initialized": False}, False, id="not initialized"),
        pytest.param({"cpu": 0}, False, id="full"),
    ],
)
def test_destinations(there: dict[str, Any], goes: bool) -> None:
    """`n2` is protected, so that only `n1` may go."""
    held = CandidateNode(do_not_disrupt="true", initialized=there.get("initialized", True))
    other = standing("n2", SMALL, (), post=held, **there)
    found = decide(ground((SMALL,), [standing("n1", SMALL, pods(1, 1000)), other]))
    assert told(found) == (("delete", ["n1"], []) if goes else NONE)


def test_pods_of_a_machine_that_leaves_want_a_place_too_but_may_fail_to_find_one() -> None:
    leaving = standing("n0", SMALL, pods(3, 1000), post=CandidateNode(leaving=True))
    spare = standing("n2", SMALL, (), post=CandidateNode(do_not_disrupt="true"))
    small = standing("n1", SMALL, pods(1, 2000))
    found = decide(ground((SMALL,), [leaving, spare, small], pool(budgets=[{"nodes": 2}])))
    assert told(found) == NONE  # what waits, waits for a machine of its own then: more than one purchase


def test_pods_that_can_never_run_hold_nothing_up() -> None:
    stuck = pods(1, selector=Requirements.from_labels({"no": "where"}))
    two, one = standing("n1", SMALL, pods(2)), standing("n2", SMALL, pods(1))
    assert told(decide(ground(KINDS, [two, one], pending=stuck))) == ("delete", ["n2"], [])


def test_pods_that_keep_apart_keep_their_machines() -> None:
    apart = {"labels": {"app": "a"}, "anti_affinity": (Peers(ON_NODE, Requirements.from_labels({"app": "a"})),)}
    machines = [standing(f"n{n}", SMALL, pods(1, **apart)) for n in range(3)]
    assert told(decide(ground((SMALL,), machines))) == NONE


def test_a_spread_over_zones_is_kept() -> None:
    spread = {"labels": {"app": "a"}, "spreads": (Spread(labels.ZONE, Requirements.from_labels({"app": "a"})),)}
    kinds = [machine(f"small-{zone}", 4, (OD, 1.0), zone=zone) for zone in ("z1", "z2", "z3")]
    big = machine("big-z2", 16, (OD, 4.0), zone="z2")
    held = [standing(f"n{n}", kinds[n], pods(1, 1000, **spread), cpu=1) for n in (0, 2)]
    held.append(standing("n1", big, pods(1, 1000, **spread), cpu=1))
    assert told(decide(ground([*kinds, big], held))) == ("replace", ["n1"], [("small-z2",)])


@pytest.mark.parametrize("respect", [True, False])
def test_preferences(respect: bool) -> None:
    liked = (Weighted(1, Requirements.from_labels({labels.INSTANCE_TYPE: "large"})),)
    found = decide(
        ground(
            KINDS,
            [standing("n1", LARGE, pods(1, preferred=liked))],
            rules=ProvisionerSettings(respect_preferences=respect),
        )
    )
    assert told(found) == (NONE if respect else ("replace", ["n1"], [("small",)]))


# -- prices -----------------------------------------------------------------------------------------------------------


def spots(count: int) -> tuple[MachineType, ...]:
    return tuple(machine(f"s{n:02}", 4, (SPOT, 0.1 + n / 100)) for n in range(count))


DEAR_SPOT = machine("dear", 4, (SPOT, 2.0))
MIXED = machine("mixed", 4, (SPOT, 0.2), (OD, 0.9))


@pytest.mark.parametrize(
    ("kinds", "own", "bought"),
    [
        pytest.param((machine("m", 4, (SPOT, 3.0), (SPOT, 0.1)),), SMALL, None, id="the dearest spot offer counts"),
        pytest.param((machine("m", 4, (SPOT, 0.5), (OD, 3.0)),), SMALL, ("m",), id="spot is launched first"),
        pytest.param((machine("m", 4, (OD, 1.0)),), SMALL, None, id="the same price is not cheaper"),
        pytest.param((machine("m", 4, (OD, 0.1), available=False),), SMALL, None, id="sold out"),
        pytest.param((MIXED,), SMALL, ("mixed",), id="on demand or spot"),
    ],
)
def test_what_is_sure_to_be_cheaper(kinds: Sequence[MachineType], own: MachineType, bought: Any) -> None:
    found = decide(ground([*kinds, own], [standing("n1", own, pods(1))]))
    assert told(found)[2] == ([bought] if bought else [])


def test_what_was_priced_as_spot_is_bought_as_spot_only() -> None:
    [move] = decide(ground([MIXED, SMALL], [standing("n1", SMALL, pods(1))])).moves
    assert move.bought[0].choice.requirements[labels.CAPACITY_TYPE] == Requirement.one_of(SPOT)
    assert move.saving_usd_h == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("cheaper", "enabled", "types"), [(14, True, 0), (15, True, 15), (20, True, 15), (20, False, 0)]
)
def test_spot_for_spot_needs_fifteen_cheaper_types(cheaper: int, enabled: bool, types: int) -> None:
    allowed = frozenset({"p"} if enabled else ())
    found = decide(ground([*spots(cheaper), DEAR_SPOT], [standing("n1", DEAR_SPOT, pods(1))], spot_to_spot=allowed))
    assert [len(each) for each in told(found)[2]] == ([types] if types else [])


@pytest.mark.parametrize(("least", "types"), [(16, 16), (10, 15), (21, 0)])
def test_spot_for_spot_keeps_as_many_types_as_the_pool_wants(least: int, types: int) -> None:
    wanted = {labels.INSTANCE_TYPE: Requirement(complement=True, min_values=least)}
    scene = ground(
        [*spots(20), DEAR_SPOT],
        [standing("n1", DEAR_SPOT, pods(1))],
        requirements=wanted,
        spot_to_spot=frozenset({"p"}),
    )
    assert [len(each) for each in told(decide(scene))[2]] == ([types] if types else [])


def test_several_spot_machines_need_no_fifteen() -> None:
    machines = [standing(f"n{n}", DEAR_SPOT, pods(1, 1000), cpu=1) for n in range(2)]
    scene = ground([*spots(3), DEAR_SPOT], machines, spot_to_spot=frozenset({"p"}))
    assert told(decide(scene))[:2] == ("replace", ["n0", "n1"])


def test_a_reservation_is_cheaper_than_anything() -> None:
    free = machine("free", 4, ("reserved", 1e-7), reservation_id="r-1", reserved_left=2)
    [move] = decide(ground([free, SMALL], [standing("n1", SMALL, pods(1))])).moves
    assert move.bought[0].types == ("free",)
    assert told(decide(ground([free, SMALL], [standing("n1", free, pods(1))]))) == NONE


def test_too_few_types_left_below_the_price() -> None:
    wanted = {labels.INSTANCE_TYPE: Requirement(complement=True, min_values=2)}
    found = decide(ground(KINDS, [BUSY], requirements=wanted))
    assert told(found) == NONE
    assert "minValues" in found.refusals["n1"]


def test_a_move_that_saves_little_for_what_it_disturbs() -> None:
    """Eleven pods of twelve move for a quarter of the cost."""
    machines = [standing("n1", LARGE, pods(11, 100)), standing("n2", machine("odd", 1, (OD, 8.0)), pods(1), cpu=0)]
    kinds = (machine("odd", 1, (OD, 8.0)), LARGE, machine("near", 16, (OD, 3.0)))
    held = [machines[0], replace(machines[1], post=CandidateNode(do_not_disrupt="true"))]
    assert told(decide(ground(kinds, held, pool(consolidationPolicy="Balanced")))) == NONE
    assert told(decide(ground(kinds, held, pool())))[0] == "replace"
    eager = pool(consolidationPolicy="Balanced", consolidationThreshold=20)
    assert told(decide(ground(kinds, held, eager)))[0] == "replace"


# -- drift ------------------------------------------------------------------------------------------------------------


def drifted(name: str, at_s: float = NOW - 60, running: int = 1, **facts: Any) -> DisruptionCandidate:
    return standing(name, SMALL, pods(running, 1000), drifted_at_s=at_s, **facts)


NEVER = {"consolidateAfter": "Never"}


@pytest.mark.parametrize(
    ("machines", "goes"),
    [
        pytest.param([drifted("a", NOW - 10), drifted("b", NOW - 20)], ["b"], id="the first to drift"),
        pytest.param([drifted("a", NOW - 20), drifted("b", NOW - 10, 0)], ["b"], id="empty ones before others"),
        pytest.param([drifted("a", running=0), drifted("b", running=0)], ["a", "b"], id="all empty ones"),
        pytest.param(
            [replace(drifted("a"), post=CandidateNode(pods=(CandidatePod(do_not_disrupt="true"),)))], [], id="protected"
        ),
        pytest.param(
            [replace(drifted("a"), post=CandidateNode(pods=(CandidatePod(do_not_disrupt="true"),), grace_s=60.0))],
            ["a"],
            id="protected for as long as the grace period",
        ),
    ],
)
def test_drift(machines: list[DisruptionCandidate], goes: list[str]) -> None:
    found = decide(ground(KINDS, machines, pool(**NEVER)))
    assert (told(found)[1], found.reason if goes else Reason.DRIFTED) == (goes, Reason.DRIFTED)


def test_drift_buys_as_many_as_it_takes_at_any_price() -> None:
    found = decide(ground((machine("m", 2, (OD, 9.0)),), [drifted("a", running=4)], pool(**NEVER)))
    assert [len(purchase.pods) for move in found.moves for purchase in move.bought] == [2, 2]


@pytest.mark.parametrize(
    ("replicas", "limit", "count", "budget", "commands"),
    [
        (5, None, 5, "100%", 5),
        (5, 5, 5, "100%", 0),
        (5, 7, 5, "100%", 2),
        (5, None, 5, "2", 2),
        (1, None, 2, "100%", 0),
    ],
)
def test_fixed_pools(replicas: int, limit: int | None, count: int, budget: str, commands: int) -> None:
    nodes = budget if budget.endswith("%") else int(budget)
    fixed = pool(replicas=replicas, limits={"nodes": limit}, budgets=[{"nodes": nodes}])
    found = decide(ground(KINDS, [drifted(f"n{n}") for n in range(count)], fixed))
    assert [move.bought[0].types for move in found.moves] == [("small", "large")] * commands


# -- whatever the machines --------------------------------------------------------------------------------------------


@st.composite
def scenes(draw: st.DrawFn) -> DisruptionWorld:
    machines = []
    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(KINDS))
        running = pods(draw(st.integers(0, 3)), draw(st.sampled_from((0, 1000))))
        post = draw(
            st.sampled_from(
                (CandidateNode(), CandidateNode(), CandidateNode(do_not_disrupt="true"), CandidateNode(leaving=True))
            )
        )
        facts: dict[str, Any] = {"of": draw(st.sampled_from(("p", "q"))), "post": post}
        facts |= {"settled": draw(st.booleans()), "drifted_at_s": draw(st.sampled_from((0.0, NOW - 5, NOW - 9)))}
        machines.append(standing(f"n{number}", kind, running, **facts))
    policy = draw(st.sampled_from(("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")))
    nodes = draw(st.sampled_from((0, 1, 2, "30%", "100%")))
    other = draw(st.sampled_from((0, 1, "50%")))
    pools = pool("p", consolidationPolicy=policy, budgets=[{"nodes": nodes}]), pool("q", budgets=[{"nodes": other}])
    return ground(KINDS, machines, *pools)


@settings(max_examples=60, deadline=None)
@given(scenes(), st.randoms(use_true_random=False))
def test_order_of_the_machines_decides_nothing(scene: DisruptionWorld, random: Any) -> None:
    mixed = list(scene.machines)
    random.shuffle(mixed)
    first, second = decide(scene), decide(replace(scene, machines=tuple(mixed)))
    assert (told(first), first.reason) == (told(second), second.reason)


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_no_budget_is_ever_exceeded(scene: DisruptionWorld) -> None:
    going = {name for move in decide(scene).moves for name in move.names}
    for name, declared in scene.pools.items():
        mine = [each for each in scene.machines if each.pool == name]
        [budget] = declared.spec.disruption.budgets
        most = budget.nodes if isinstance(budget.nodes, int) else -(-len(mine) * int(budget.nodes[:-1]) // 100)
        leaving = sum(1 for each in mine if each.post.leaving)
        assert sum(1 for each in mine if each.name in going) <= max(0, most - leaving)
    assert not any(scene.by_name[name].post.leaving or scene.by_name[name].post.do_not_disrupt for name in going)
    assert inf not in (scene.price_usd_h(each) for each in scene.machines)


@pytest.mark.parametrize(
    ("tenant", "moves"),
    [
        (CandidatePod(), True),
        (CandidatePod(owner="ReplicaSet"), True),
        (CandidatePod(owner="DaemonSet"), False),
        (CandidatePod(mirror=True), False),
        (CandidatePod(ended=True), False),
        (CandidatePod(leaving=True, owner="ReplicaSet"), False),
        (CandidatePod(leaving=True, owner="StatefulSet"), True),
    ],
    ids=str,
)
def test_who_would_have_to_run_elsewhere(tenant: CandidatePod, moves: bool) -> None:
    assert reschedulable(tenant) is moves
