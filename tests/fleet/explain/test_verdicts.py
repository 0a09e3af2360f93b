"""What every method says of a machine: who goes is who the methods take, and for the rest there is one reason each."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import Action, OpenClaims, SaveClaim, claim_subject
from fleet.disruption.outcomes import DisruptionOutcome, Obstacle
from fleet.explain.verdicts import INVOLUNTARY, verdicts
from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, NodeDisruption
from model.kinds import NEVER
from tests.support.disruption import (
    BOTH,
    CHANGED,
    FREEZE,
    GOES,
    KEEPS,
    NOTHING,
    ROLLS,
    WAITS,
    busy,
    changed,
    frozen,
    in_hand,
    quiet,
    said,
    silent,
    world_of,
)
from tests.support.fleets import NOW, P5S, gang
from tests.support.world import World

CASES: list[tuple[str, Callable[[], World], str, DisruptionOutcome, Obstacle, str]] = [
    ("as declared", world_of, "drift", KEEPS, Obstacle.TAKEN, "emptiness takes it"),
    ("taken by drift", lambda: busy(**CHANGED), "expiry", KEEPS, Obstacle.TAKEN, "drift takes it"),
    ("about to go, frozen", lambda: frozen(busy(gpu=1, instanceTypes=BOTH)), "consolidation", WAITS, Obstacle.FREEZE,
     "saving 84.00 USD/h"),
    ("frozen", lambda: world_of(policy=FREEZE), "emptiness", WAITS, Obstacle.FREEZE, "freeze window always is open"),
    ("frozen and nothing to do", lambda: world_of(policy=FREEZE), "consolidation", KEEPS, Obstacle.TAKEN, ""),
    ("leaves", lambda: changed(world_of(), disruption=NodeDisruption(Reason.EMPTY, "", NOW, NEVER)), "drift", KEEPS,
     Obstacle.LEAVING, "leaves already: Empty"),
    ("deleted", lambda: changed(world_of(), deleting=True), "emptiness", KEEPS, Obstacle.LEAVING, "being deleted"),
    ("boots", lambda: changed(world_of(), ready_at_s=0.0), "emptiness", KEEPS, Obstacle.NOT_READY, "Registered"),
    ("is cut", lambda: changed(world_of(), recut_at_s=NOW, layout="x"), "drift", KEEPS, Obstacle.RECUTTING, "cut to x"),
    ("in hand", lambda: in_hand(world_of(), claim_subject("m0")), "drift", KEEPS, Obstacle.IN_HAND, "under way"),
    ("replacement itself", lambda: changed(world_of(2), replaces=("m1",)), "emptiness", KEEPS, Obstacle.AWAITS_MOVE,
     "m1"),
    ("not interrupted", world_of, "interruption", KEEPS, Obstacle.NOT_DUE, "announced nothing"),
    ("interrupted", lambda: changed(world_of(), disruption=NodeDisruption(Reason.INTERRUPTED, "taken", NOW, NOW + 90)),
     "interruption", GOES, NOTHING, "taken"),
    ("well", world_of, "repair", KEEPS, Obstacle.NOT_DUE, "well"),
    ("silent", lambda: silent(100), "repair", WAITS, Obstacle.QUIET_TIME, "unwell"),
    ("silent for long", lambda: silent(301), "repair", GOES, NOTHING, "condition Ready of its node was False"),
    ("all silent", lambda: silent(301, 3, 3), "repair", WAITS, Obstacle.POOL_UNWELL, "3 of 3 nodes"),
    ("no node", lambda: changed(world_of(), node=""), "repair", KEEPS, Obstacle.NOT_READY, "no node"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("scene", "method", "outcome", "obstacle", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_a_method_says(
    scene: Callable[[], World], method: str, outcome: DisruptionOutcome, obstacle: Obstacle, words: str
) -> None:
    found = said(scene())[method]
    assert (found.outcome, found.obstacle) == (outcome, obstacle), found.message
    assert words in found.message


@pytest.mark.parametrize(
    ("world", "method", "left_s"),
    [
        (changed(world_of(**quiet(600)), emptied_at_s=NOW - 60), "emptiness", 540),
        (busy(), "expiry", 720 * 3600 - 7000),
        (silent(100), "repair", 200),
        (busy(gpu=1, instanceTypes=BOTH), "consolidation", 15),
    ],
)
def test_when_time_alone_will_do(world: World, method: str, left_s: float) -> None:
    assert said(world)[method].until_s == NOW + left_s


def test_every_method_of_a_pass_has_its_word_in_its_order() -> None:
    assert list(said(world_of())) == [*(method.name for method in disrupt.METHODS), *INVOLUNTARY]


def touched(actions: list[Action]) -> set[str]:
    """Claims that voluntary disruption acts on."""
    told = {it.claim.name for it in actions if isinstance(it, SaveClaim)}
    return told | {name for it in actions if isinstance(it, OpenClaims) for new in it.claims for name in new.replaces}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = world_of(
        draw(st.integers(1, 4)),
        draw(st.sampled_from((None, None, FREEZE))),
        instanceTypes=BOTH,
        disruption={
            "budgets": [{"nodes": draw(st.sampled_from((0, 1, 2, "100%")))}],
            "consolidateAfter": draw(st.sampled_from(("0s", "60s", "Never"))),
        },
        **draw(st.sampled_from(({}, CHANGED, ROLLS, {"limits": {"nodes": 3}}, {**CHANGED, "replicas": 2}))),
    )
    for n in range(draw(st.integers(0, 3))):
        places = draw(st.lists(st.sampled_from(sorted(world.claims)), min_size=1, max_size=2, unique=True))
        run = {"admitted_at_s": NOW - draw(st.sampled_from((10, 600, 80_000)))}
        it = gang(f"g{n}", count=len(places), gpu=draw(st.sampled_from((1, 2))))
        world.runs(
            it, *((place, 1) for place in places), do_not_disrupt=draw(st.sampled_from(("", "true", "2h"))), **run
        )
    if draw(st.booleans()):
        world.shortages = {CapacityPool("on-demand", P5S.name, "us-east-1a"): NOW + 60}
    return world


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_who_goes_is_who_the_pass_takes_and_the_rest_is_explained(world: World) -> None:
    before = world.snapshot()
    acted = touched(world.disrupted(waits=False))
    for name in sorted(world.claims):
        found = {it.method: it for it in verdicts(world.fleet, before, world.claims[name])}
        if found["consolidation"].obstacle is Obstacle.PROPOSED:
            assert world.outlook.of(name), (name, found)
        goes = {method.name for method in disrupt.METHODS if found[method.name].outcome is DisruptionOutcome.GOES}
        assert bool(goes) == (name in acted), (name, found)
        assert len(goes) <= 1
        assert all(it.message for it in found.values())
        assert all((it.obstacle is Obstacle.NONE) == (it.outcome is DisruptionOutcome.GOES) for it in found.values())
