"""PodDisruptionBudgets foreseen: no method asks a gang to go that a budget holds, whole."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.disruption.context import DisruptionContext
from fleet.disruption.outcomes import DisruptionOutcome, Obstacle
from fleet.explain.verdicts import verdicts
from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.reasons import Reason
from fleet.snapshot import GangState, NodeDisruption, PodBudget
from model.kinds import NEVER
from model.upstream.selectors import LabelSelector
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, gang
from tests.support.world import World

OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}
CHANGED: dict[str, Any] = {"template": {"labels": {"a": "b"}}}
BOUNDED = {"terminationGracePeriod": "1h"}
BOTH = [P5.name, P5S.name]


def selecting(*jobs: str) -> LabelSelector:
    terms = [{"key": "job-name", "operator": "In", "values": jobs}] if jobs else []
    return LabelSelector.model_validate({"matchExpressions": terms})


def budget(allows: int = 0, *jobs: str, name: str = "keep", **more: Any) -> PodBudget:
    """Over the pods of these jobs in `ns`, or all of them."""
    facts: dict[str, Any] = {"namespace": "ns", "selector": selecting(*jobs), "disruptions_allowed": allows}
    return PodBudget(name=name, **facts | more)


def under(world: World, *budgets: PodBudget) -> World:
    world.pod_budgets = {one.key: one for one in budgets}
    return world


def running(gangs: int = 1, *, pods: int = 1, gpu: int = 1, **pool: Any) -> World:
    """Gangs `g0`, `g1`, ... each on a machine of its own."""
    kinds = {"instanceTypes": BOTH, "disruption": OPEN}
    built = FleetBuilder().pool(instanceTypes=BOTH).team(quotas={"h100": {GPU: 64}}).queue()
    world = World(built.build())
    for n in range(gangs):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", count=pods, gpu=gpu, last_checkpoint_s=NOW), (f"m{n}", pods), admitted_at_s=NOW - 900)
    world.fleet = FleetBuilder().pool(**{**kinds, **pool}).team(quotas={"h100": {GPU: 64}}).queue().build()
    return world


def drifting(**more: Any) -> World:
    return running(**{**CHANGED, **more})


def taken(actions: list[Action]) -> dict[str, str]:
    """Machine -> why it goes, or is replaced."""
    found = {
        a.claim.name: a.claim.disruption.reason for a in actions if isinstance(a, SaveClaim) and a.claim.disruption
    }
    bought = [claim for a in actions if isinstance(a, OpenClaims) for claim in a.claims]
    return {name: "replaced" for claim in bought for name in claim.replaces} | found


def passed(world: World) -> dict[str, str]:
    return taken(world.disrupted())


# -- the rule ---------------------------------------------------------------------------------------------------------

HELD, SEVERAL, FREE = Obstacle.POD_BUDGET, Obstacle.SEVERAL_POD_BUDGETS, None
ALLOWED = "PodDisruptionBudget ns/keep allows"
RULE: list[tuple[str, int, tuple[PodBudget, ...], Obstacle | None, str]] = [
    ("no budget", 1, (), FREE, ""),
    ("allows none", 1, (budget(0),), HELD, f"{ALLOWED} 0 disruptions now; it has to allow 1 for the 1 pod of ns/g0"),
    ("allows one", 1, (budget(1),), FREE, ""),
    ("less than the gang", 2, (budget(1),), HELD, f"{ALLOWED} 1 disruption now; it has to allow 2 for the 2 pods"),
    ("as much as the gang", 2, (budget(2),), FREE, ""),
    ("below zero", 1, (budget(-1),), HELD, ""),
    ("by label", 1, (budget(0, "g0"),), HELD, ""),
    ("of others", 1, (budget(0, "g1"),), FREE, ""),
    ("of another namespace", 1, (budget(0, namespace="other"),), FREE, ""),
    ("selects nothing", 1, (budget(0, selector=None),), FREE, ""),
    ("old count", 1, (budget(1, counted=False),), HELD, "0 disruptions now (its status is older than its spec)"),
    ("cannot count", 1, (budget(0, trouble="jobs do not implement the scale subresource"),), HELD, "(jobs do not"),
    ("unready would go", 1, (budget(0, unready_may_go=True),), HELD, ""),
    ("two", 1, (budget(5), budget(5, "g0", name="too")), SEVERAL, "than one PodDisruptionBudget (ns/keep, ns/too)"),
    ("two, one of them of others", 1, (budget(5), budget(5, "g1", name="too")), FREE, ""),
]  # fmt: skip


@pytest.mark.parametrize(("pods", "budgets", "obstacle", "words"), [it[1:] for it in RULE], ids=[it[0] for it in RULE])
def test_what_budgets_say_of_a_gang(pods: int, budgets: tuple[PodBudget, ...], obstacle: Obstacle, words: str) -> None:
    world = under(running(pods=pods), *budgets)
    context = DisruptionContext.of(world.fleet, world.snapshot())
    found = context.pod_budget([world.claims["m0"]], Reason.UNDERUTILIZED)
    assert (found.obstacle if found else None) is obstacle
    assert words in (found.message if found else "")


@pytest.mark.parametrize(
    ("facts", "held"),
    [
        ({}, True),
        ({"deleting": True}, False),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Failed"}, False),
        ({"ready": False}, True),
        ({"labels": ()}, True),
    ],
)
@pytest.mark.parametrize("unready_may_go", [False, True])
def test_which_pods_count(facts: dict[str, Any], held: bool, unready_may_go: bool) -> None:
    world = under(running(), budget(0, unready_may_go=unready_may_go))
    world.pods = {key: replace(pod, **facts) for key, pod in world.pods.items()}
    context = DisruptionContext.of(world.fleet, world.snapshot())
    expected = held and not (unready_may_go and facts == {"ready": False})
    assert bool(context.pod_budget([world.claims["m0"]], Reason.DRIFTED)) is expected


@pytest.mark.parametrize(
    ("allowed", "obstacle"),
    [
        ((), None),
        ((0,), Obstacle.POD_BUDGET),
        ((1,), None),
        ((-1,), Obstacle.POD_BUDGET),
        ((5,), None),
        ((0, 0), Obstacle.SEVERAL_POD_BUDGETS),
        ((5, 5), Obstacle.SEVERAL_POD_BUDGETS),
        ((0, 5), Obstacle.SEVERAL_POD_BUDGETS),
    ],
)
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("reason", [Reason.UNDERUTILIZED, Reason.DRIFTED])
def test_a_gang_of_one_pod_is_judged_as_karpenter_judges_a_pod(
    allowed: tuple[int, ...], obstacle: Obstacle | None, bounded: bool, reason: Reason
) -> None:
    """With a grace period that ends, no budget keeps what has drifted."""
    world = under(
        running(template=BOUNDED if bounded else {}), *(budget(n, name=f"b{i}") for i, n in enumerate(allowed))
    )
    found = DisruptionContext.of(world.fleet, world.snapshot()).pod_budget([world.claims["m0"]], reason)
    ends = bounded and reason is Reason.DRIFTED
    assert (found and found.obstacle) == (None if ends else obstacle)


# -- the methods ------------------------------------------------------------------------------------------------------


def second_best() -> World:
    back = {"returnToPreferred": {"after": "1h"}, "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    return running(capacityTypes=["spot", "on-demand"], disruption=back)


def advised() -> World:
    world = running(disruption={**OPEN, "onRebalance": "Replace", "consolidateAfter": "Never"})
    world.claims["m0"] = replace(world.claims["m0"], advised_at_s=NOW - 60)
    return world


def removed() -> World:
    """The pool is gone; another one could hold the gang."""
    world = running()
    flavors = {"h100": {GPU: 64}, "other": {GPU: 64}}
    world.fleet = FleetBuilder().pool("other").team(quotas=flavors).queue(flavors=["h100", "other"]).build()
    return world


def fixed() -> World:
    world = running(2, **CHANGED, replicas=2)
    world.gangs.pop("uid-g1")
    world.pods = {key: pod for key, pod in world.pods.items() if pod.workload == "job-g0"}
    return world


def old(**template: str) -> World:
    return running(template={"expireAfter": "1h", **template}, disruption={**OPEN, "consolidateAfter": "Never"})


METHODS: list[tuple[str, Callable[[], World], str, bool]] = [
    ("consolidation", running, "consolidation", True),
    ("drift", drifting, "drift", True),
    ("drift with a deadline", lambda: drifting(template={"labels": {"a": "b"}, **BOUNDED}), "drift", False),
    ("consolidation with a deadline", lambda: running(template=BOUNDED), "consolidation", True),
    ("drift of a fixed pool", fixed, "drift", True),
    ("the way back", second_best, "preference", True),
    ("advice", advised, "rebalance", True),
    ("age", old, "expiry", False),
]  # fmt: skip


@pytest.mark.parametrize(("scene", "method", "waits"), [it[1:] for it in METHODS], ids=[it[0] for it in METHODS])
def test_who_waits_for_a_budget(scene: Callable[[], World], method: str, waits: bool) -> None:
    assert "m0" in passed(scene()), "without a budget it goes"
    world = under(scene(), budget(0))
    said = {it.method: it for it in verdicts(world.fleet, world.snapshot(), world.claims["m0"])}[method]
    if waits:
        assert "m0" not in passed(world)
        assert (said.outcome, said.obstacle) == (DisruptionOutcome.WAITS, Obstacle.POD_BUDGET), said.message
        assert ALLOWED in said.message
    else:
        assert "m0" in passed(world)
        assert said.outcome is DisruptionOutcome.GOES
    assert passed(under(scene(), budget(1))) == passed(scene())


def test_nobody_waits_for_a_budget_over_an_idle_machine() -> None:
    world = under(running(), budget(0))
    world.machine("idle")
    assert passed(world) == {"idle": "Empty"}


def test_a_removed_pool_waits_as_drift_does() -> None:
    world = under(removed(), budget(0))
    said = {it.method: it for it in verdicts(world.fleet, world.snapshot(), world.claims["m0"])}["drift"]
    assert said.obstacle is Obstacle.POD_BUDGET
    assert passed(world) == {}


def test_the_whole_gang_counts_wherever_its_pods_are() -> None:
    world = World(FleetBuilder().pool(instanceTypes=BOTH).team(quotas={"h100": {GPU: 64}}).queue().build())
    world.machine("m0")
    world.machine("m1")
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1), admitted_at_s=NOW - 900)
    world.fleet = FleetBuilder().pool(instanceTypes=BOTH, disruption=OPEN, **CHANGED).team().queue().build()
    assert passed(under(world, budget(1))) == {}
    assert passed(under(world, budget(2))) == {"m0": "replaced", "m1": "replaced"}


# -- several under one budget -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("allows", "going"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_pass_takes_no_more_than_a_budget_allows(allows: int, going: int) -> None:
    assert len(passed(under(running(3, **CHANGED), budget(allows)))) == going


def on_its_way(change: Callable[[World], None]) -> int:
    """How many of two drifted machines a pass takes beside a third, `m2`, under a budget that allows two."""
    world = running(3, **CHANGED)
    change(world)
    return len({name for name in passed(under(world, budget(2))) if name != "m2"})


def _told(world: World) -> None:
    world.claims["m2"] = replace(world.claims["m2"], disruption=NodeDisruption(Reason.EXPIRED, "", NOW, NEVER))


def _evicting(world: World) -> None:
    world.gangs["uid-g2"] = replace(world.gangs["uid-g2"], state=GangState.EVICTING)


def _replaced(world: World) -> None:
    new = world.machine("new", kind=P5S.name, replaces=("m2",), ready_at_s=0.0, registered_at_s=0.0)
    world.claims["new"] = replace(new, emptied_at_s=0.0)


def _vanishes(world: World) -> None:
    """Its pods are going: the budget's controller has seen that."""
    _told(world)
    world.pods = {key: replace(pod, deleting=pod.workload == "job-g2") for key, pod in world.pods.items()}


@pytest.mark.parametrize(("change", "going"), [(_told, 1), (_evicting, 1), (_replaced, 1), (_vanishes, 2)])
def test_gangs_on_their_way_count(change: Callable[[World], None], going: int) -> None:
    assert on_its_way(change) == going


def test_a_gang_that_is_on_its_way_itself_counts_once() -> None:
    world = running(3)
    world.runs(gang("wide", count=2, gpu=1), ("m1", 1), ("m2", 1))
    _told(world)
    context = DisruptionContext.of(world.fleet, under(world, budget(2, "wide")).snapshot())
    assert context.pod_budget([world.claims["m1"]], Reason.UNDERUTILIZED) is None
    context = DisruptionContext.of(world.fleet, under(world, budget(1, "wide")).snapshot())
    assert context.pod_budget([world.claims["m1"]], Reason.UNDERUTILIZED) is not None


@pytest.mark.parametrize(("allows", "going"), [(0, ()), (1, ("m0",)), (2, ("m0", "m1")), (3, ("m0", "m1"))])
def test_of_machines_that_become_one_go_as_many_as_may(allows: int, going: tuple[str, ...]) -> None:
    world = running(2)
    world.machine("new", replaces=("m0", "m1"), ready_at_s=NOW - 10)
    assert passed(under(world, budget(allows))) == dict.fromkeys(going, "Underutilized")


def test_of_two_whose_replacements_are_ready_the_first_goes_and_the_other_follows() -> None:
    world = running(2, **CHANGED)
    for _ in range(6):
        world.pass_once()
        under(world, budget(0))
    assert all(claim.ready_at_s for claim in world.claims.values())
    assert passed(under(world, budget(0))) == {}
    assert passed(under(world, budget(1))) == {"m0": "Drifted"}
    assert passed(under(world, budget(2))) == {"m0": "Drifted", "m1": "Drifted"}


def test_a_cheaper_machine_that_is_ready_waits_for_the_budget_and_not_for_ever() -> None:
    world = running()
    world.apply(world.disrupted())
    under(world, budget(0))
    for _ in range(6):
        world.pass_once()
    assert len(world.claims) == 2
    assert all(claim.ready_at_s for claim in world.claims.values())
    assert passed(world) == {}
    said = {it.method: it for it in verdicts(world.fleet, world.snapshot(), world.claims["m0"])}["consolidation"]
    assert (said.outcome, said.obstacle) == (DisruptionOutcome.WAITS, Obstacle.POD_BUDGET)
    assert passed(under(world, budget(1))) == {"m0": "Underutilized"}
    [bought] = world.claims.keys() - {"m0"}
    world.now_s = world.claims[bought].ready_at_s + MOVES_WITHIN_S
    assert passed(under(world, budget(1))) == {"m0": "Underutilized"}
    assert passed(under(world, budget(0))) == {bought: "NotNeeded"}, "it is not paid for any longer"
    world.settle_down()
    assert world.claims.keys() == {"m0"}


def test_what_was_bought_and_has_work_of_its_own_is_not_given_back() -> None:
    world = under(running(), budget(0))
    world.machine("new", kind=P5S.name, replaces=("m0",), ready_at_s=NOW - MOVES_WITHIN_S)
    assert passed(world) == {"new": "NotNeeded"}
    world.runs(gang("h", gpu=1), ("new", 1))
    assert passed(world) == {}


# -- always -----------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Gangs of several sizes, two of them on one machine now and then; budgets over all, some or none of them."""
    count = draw(st.integers(1, 5))
    world = World(FleetBuilder().pool(instanceTypes=BOTH).team(quotas={"h100": {GPU: 64}}).queue().build())
    for n in range(count):
        world.machine(f"m{n}")
        for twin in range(draw(st.integers(1, 2))):
            pods = draw(st.integers(1, 2))
            it = gang(f"g{n}-{twin}", count=pods, gpu=1, last_checkpoint_s=NOW)
            world.runs(it, (f"m{n}", pods), admitted_at_s=NOW - 900)
    jobs = st.lists(st.sampled_from([it.job.name for it in world.gangs.values()]), max_size=3, unique=True)
    for name in draw(st.sets(st.sampled_from("ab"))):
        one = budget(draw(st.integers(0, 4)), *draw(jobs), name=name)
        world.pod_budgets[one.key] = one
    more = draw(st.sampled_from(({}, CHANGED)))
    world.fleet = FleetBuilder().pool(instanceTypes=BOTH, disruption=OPEN, **more).team().queue().build()
    return world


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_what_goes_together_is_within_every_budget(world: World) -> None:
    going = passed(world)
    moved = {it.workload for it in world.gangs.values() if any(pin.claim in going for pin in it.pins)}
    pods = [pod for pod in world.pods.values() if pod.workload in moved]
    covered = [
        [one.key for one in world.pod_budgets.values() if one.selector and one.selector.matches(dict(pod.labels))]
        for pod in pods
    ]
    assert all(len(keys) < 2 for keys in covered)
    for key, one in world.pod_budgets.items():
        assert sum(key in keys for keys in covered) <= one.allows
    if not world.pod_budgets and world.fleet.node_pools["h100"].spec.template.labels:
        assert going == dict.fromkeys(world.claims, "replaced")


def test_a_budget_that_closes_while_a_proposal_waits_keeps_the_machine() -> None:
    world = running()
    assert not world.disrupted(waits=False)
    assert world.outlook.proposals
    world.now_s += 15
    assert not taken(under(world, budget(0)).disrupted(waits=False))
    assert not world.outlook.proposals
