"""Which flavor a workload would get: every rule of the search, on queues of two or three flavors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet.quota.flavor_assigner import FlavorAssigner, is_preferred, may_stop_search
from fleet.quota.specs import (
    CandidatePolicy,
    FungibilityPolicy,
    QueueFungibility,
    QueuePreemption,
    QuotaFlavorSpec,
    QuotaResourceGroup,
)
from fleet.quota.tree import Cell, charge
from fleet.quota.workload import GranularMode, PreemptionMode, WorkloadAssignment
from fleet.reasons import Reason
from fleet.snapshot import PodSet
from model.kinds import RequirementTerm, Taint, Toleration
from tests.support.quotas import BORROWING, RECLAIM, Amounts, QuotaWorld, asks, cohort, queue

STOP, NEXT = FungibilityPolicy.STOP, FungibilityPolicy.NEXT
NOBODY = GranularMode(PreemptionMode.NO_CANDIDATES, 0)
TWO = {"f": 4, "g": 8}


def assigner(
    world: QuotaWorld, name: str = "q", oracle: Mapping[str, GranularMode] | None = None, **more: Any
) -> FlavorAssigner:
    """`oracle`: cell -> what preemption could do; nothing for the others."""
    answers = {world.cell(cell): granule for cell, granule in (oracle or {}).items()}

    def ask(cell: Cell, amount: int) -> GranularMode:
        return answers.get(cell, NOBODY)

    spec = world.scheduler.queues[name]
    return FlavorAssigner(world.tree, spec, world.node(name), world.scheduler.flavors, ask, **more)


def used(world: QuotaWorld, name: str, amounts: Amounts) -> QuotaWorld:
    charge(world.node(name), world.cells(amounts))
    return world


def chosen(found: WorkloadAssignment) -> list[dict[str, str] | None]:
    """For each pod set: resource -> flavor."""
    return [
        None if pods.choices is None else {name: choice.flavor for name, choice in sorted(pods.choices.items())}
        for pods in found.pod_sets
    ]


def only(found: WorkloadAssignment) -> tuple[str, PreemptionMode, int, int] | None:
    """Flavor, mode, borrow and resume index of the one resource of the one pod set."""
    (pods,) = found.pod_sets
    if pods.choices is None:
        return None
    (choice,) = pods.choices.values()
    return choice.flavor, choice.mode, choice.borrow, choice.next_index


# -- what makes a flavor unfit ----------------------------------------------------------------------------------------

TAINTED = QuotaFlavorSpec("f", taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),))
SOFT = QuotaFlavorSpec("f", taints=(Taint(key="gpu", value="yes", effect="PreferNoSchedule"),))
LABELLED = QuotaFlavorSpec("f", {"type": "spot", "size": "4"})
TOLERATION = Toleration(key="gpu", operator="Exists")


def term(key: str, operator: Any, *values: str) -> RequirementTerm:
    return RequirementTerm(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("flavor", "pods", "fits"),
    [
        pytest.param(QuotaFlavorSpec("f"), {}, True, id="nothing asked"),
        pytest.param(TAINTED, {}, False, id="a taint"),
        pytest.param(TAINTED, {"tolerations": (TOLERATION,)}, True, id="a taint the pods tolerate"),
        pytest.param(replace(TAINTED, tolerations=(TOLERATION,)), {}, True, id="a taint the flavor tolerates for them"),
        pytest.param(SOFT, {}, True, id="a taint that only prefers"),
        pytest.param(LABELLED, {"node_selector": {"type": "spot"}}, True, id="a selector that matches"),
        pytest.param(LABELLED, {"node_selector": {"type": "other"}}, False, id="a selector that does not"),
        pytest.param(LABELLED, {"node_selector": {"zone": "z"}}, True, id="a selector of a label it does not define"),
        pytest.param(
            LABELLED, {"node_selector": {"zone": "z", "type": "other"}}, False, id="the others still have to match"
        ),
        pytest.param(
            LABELLED, {"required_affinity": ((term("type", "In", "spot", "x"),),)}, True, id="an affinity that holds"
        ),
        pytest.param(
            LABELLED, {"required_affinity": ((term("type", "NotIn", "spot"),),)}, False, id="an affinity that does not"
        ),
        pytest.param(
            LABELLED,
            {"required_affinity": ((term("type", "In", "x"),), (term("size", "Gt", "3"),))},
            True,
            id="one of two alternatives",
        ),
        pytest.param(
            LABELLED,
            {"required_affinity": ((term("type", "In", "x"),), (term("zone", "In", "z"),))},
            True,
            id="an alternative that speaks of other labels only",
        ),
        pytest.param(
            LABELLED,
            {"required_affinity": ((term("type", "In", "x"), term("zone", "In", "z")),)},
            False,
            id="its terms on the flavor's labels must hold together",
        ),
        pytest.param(
            LABELLED,
            {"node_selector": {"type": "spot"}, "required_affinity": ((term("type", "In", "x"),),)},
            False,
            id="selector and affinity",
        ),
    ],
)
def test_flavors_that_pods_could_not_stand_on(flavor: QuotaFlavorSpec, pods: dict[str, Any], fits: bool) -> None:
    """One that is unfit is passed over for the next."""
    world = QuotaWorld.of(queue("q", "", TWO), flavors=[flavor])
    found = assigner(world).assign(asks("w", "q", [PodSet("main", 1, {"cpu": 1}, **pods)]))
    assert only(found) == (("f", PreemptionMode.FIT, 0, 0) if fits else ("g", PreemptionMode.FIT, 0, -1))
    problems = [problem.reason for problem in found.pod_sets[0].refusals]
    assert problems == ([] if fits else [Reason.NO_MATCHING_FLAVOR])


def test_only_allowed_and_nominated_flavors_are_looked_at() -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    assert only(assigner(world).assign(asks("w", "q", 1, allowed_flavors=frozenset("g")))) == (
        "g",
        PreemptionMode.FIT,
        0,
        -1,
    )
    nominated = assigner(world, only={"main": {"cpu": "g"}})
    assert only(nominated.assign(asks("w", "q", 1))) == ("g", PreemptionMode.FIT, 0, -1)
    assert only(nominated.assign(asks("w", "q", 1, allowed_flavors=frozenset("f")))) is None


def test_a_flavor_that_is_not_declared_is_passed_over() -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    found = replace(assigner(world), flavors={"g": QuotaFlavorSpec("g")}).assign(asks("w", "q", 1))
    assert only(found) == ("g", PreemptionMode.FIT, 0, -1)
    assert "f: not declared" in [problem.message for problem in found.pod_sets[0].refusals]


# -- how an amount of one cell could be had ---------------------------------------------------------------------------

RECLAIMABLE = {"f": GranularMode(PreemptionMode.RECLAIM, 0)}


@pytest.mark.parametrize(
    ("preemption", "held", "wanted", "expected", "problem"),
    [
        pytest.param(QueuePreemption(), {}, 4, ("f", PreemptionMode.FIT, 0, -1), None, id="own and free"),
        pytest.param(QueuePreemption(), {}, 5, ("f", PreemptionMode.FIT, 1, -1), None, id="borrowed and free"),
        pytest.param(QueuePreemption(), {}, 11, None, Reason.EXCEEDS_MAX_QUOTA, id="more than everybody has"),
        pytest.param(
            QueuePreemption(),
            {"other": 9},
            4,
            ("f", PreemptionMode.RECLAIM, 0, -1),
            None,
            id="own, but lent: preemption is asked",
        ),
        pytest.param(QueuePreemption(), {"other": 9}, 5, None, Reason.WAITING_FOR_QUOTA, id="borrowed and not free"),
        pytest.param(
            BORROWING,
            {"other": 9},
            5,
            ("f", PreemptionMode.RECLAIM, 0, -1),
            None,
            id="preemption while borrowing is allowed",
        ),
        pytest.param(RECLAIM, {"other": 9}, 5, None, Reason.WAITING_FOR_QUOTA, id="reclaiming does not allow that"),
    ],
)
def test_modes(
    preemption: QueuePreemption,
    held: Mapping[str, int],
    wanted: int,
    expected: tuple[str, PreemptionMode, int, int] | None,
    problem: Reason | None,
) -> None:
    """Queue `q` has 4 of 10; the oracle would say reclaim."""
    world = QuotaWorld.of(queue("q", "root", {"f": 4}, preemption=preemption), queue("other", "root", {"f": 6}))
    for name, amount in held.items():
        used(world, name, {"f": amount})
    found = assigner(world, oracle=RECLAIMABLE).assign(asks("w", "q", wanted))
    assert only(found) == expected
    assert found.no_fit_reason is problem


def test_under_fair_sharing_reclaiming_allows_preemption_while_borrowing() -> None:
    world = QuotaWorld.of(queue("q", "root", {"f": 4}, preemption=RECLAIM), queue("other", "root", {"f": 6}))
    used(world, "other", {"f": 9})
    found = assigner(world, oracle=RECLAIMABLE, fair=True).assign(asks("w", "q", 5))
    assert only(found) == ("f", PreemptionMode.RECLAIM, 0, -1)
    never = used(QuotaWorld.of(queue("q", "root", {"f": 4}), queue("other", "root", {"f": 6})), "other", {"f": 9})
    assert only(assigner(never, oracle=RECLAIMABLE, fair=True).assign(asks("w", "q", 5))) is None


def test_what_is_borrowed_below_the_root_may_be_taken_back() -> None:
    """The cohort between has the quota: preemption is asked although no policy speaks of borrowing."""
    world = QuotaWorld.of(
        cohort("root"), cohort("mid", "root", {"f": 6}), queue("q", "mid"), queue("other", "root", {"f": 1})
    )
    used(world, "other", {"f": 7})
    assert only(assigner(world, oracle=RECLAIMABLE).assign(asks("w", "q", 6))) == ("f", PreemptionMode.RECLAIM, 0, -1)
    assert only(assigner(world, oracle=RECLAIMABLE).assign(asks("w", "q", 7))) is None


# -- which of two is better, and where to stop ------------------------------------------------------------------------

FIT0, FIT1 = GranularMode(PreemptionMode.FIT, 0), GranularMode(PreemptionMode.FIT, 1)
RECLAIM0, RECLAIM1 = GranularMode(PreemptionMode.RECLAIM, 0), GranularMode(PreemptionMode.RECLAIM, 1)
PREEMPT0, PREEMPT1 = GranularMode(PreemptionMode.PREEMPT, 0), GranularMode(PreemptionMode.PREEMPT, 1)
NOBODY1, NO = GranularMode(PreemptionMode.NO_CANDIDATES, 1), GranularMode(PreemptionMode.NO_FIT, 0)

BY_DEFAULT = (FIT0, FIT1, RECLAIM0, RECLAIM1, PREEMPT0, PREEMPT1, NOBODY, NOBODY1, NO)
BY_BORROWING = (FIT0, RECLAIM0, PREEMPT0, FIT1, RECLAIM1, PREEMPT1, NOBODY, NOBODY1, NO)


@pytest.mark.parametrize(
    ("fungibility", "best_first"),
    [(QueueFungibility(), BY_DEFAULT), (QueueFungibility(NEXT, NEXT, prefer_preemption=True), BY_BORROWING)],
    ids=["borrowing over preemption", "preemption over borrowing"],
)
def test_order_of_granules(fungibility: QueueFungibility, best_first: Sequence[GranularMode]) -> None:
    for index, a in enumerate(best_first):
        for other, b in enumerate(best_first):
            assert is_preferred(a, b, fungibility) is (index < other), (a, b)


@pytest.mark.parametrize(
    ("found", "stop_stop", "stop_next", "next_stop", "next_next"),
    [
        pytest.param(NO, False, False, False, False, id="no fit"),
        pytest.param(NOBODY, False, False, False, False, id="no candidates"),
        pytest.param(PREEMPT0, True, False, True, False, id="preempt"),
        pytest.param(RECLAIM0, True, False, True, False, id="reclaim"),
        pytest.param(RECLAIM1, True, False, False, False, id="reclaim and borrow"),
        pytest.param(FIT0, True, True, True, True, id="fit"),
        pytest.param(FIT1, True, True, False, False, id="fit and borrow"),
    ],
)
def test_where_the_search_ends(
    found: GranularMode, stop_stop: bool, stop_next: bool, next_stop: bool, next_next: bool
) -> None:
    """Columns: when it can borrow, then when it can preempt."""
    given = [QueueFungibility(borrow, preempt) for borrow in (STOP, NEXT) for preempt in (STOP, NEXT)]
    assert [may_stop_search(found, fungibility) for fungibility in given] == [
        stop_stop,
        stop_next,
        next_stop,
        next_next,
    ]


def test_the_default_stops_to_borrow_and_goes_on_to_preempt() -> None:
    assert QueueFungibility() == QueueFungibility(STOP, NEXT, prefer_preemption=False)


THREE = {"f": 2, "g": 2, "h": 2}


@pytest.mark.parametrize(
    ("fungibility", "oracle", "held", "expected"),
    [
        pytest.param(QueueFungibility(), {}, {}, ("f", PreemptionMode.FIT, 0, 0), id="the first that fits"),
        pytest.param(QueueFungibility(), {}, {"f": 2}, ("f", PreemptionMode.FIT, 1, 0), id="which may borrow"),
        pytest.param(
            QueueFungibility(NEXT), {}, {"f": 2}, ("g", PreemptionMode.FIT, 0, 1), id="or another that need not"
        ),
        pytest.param(
            QueueFungibility(NEXT),
            {},
            {"f": 2, "g": 2, "h": 2},
            ("f", PreemptionMode.FIT, 1, -1),
            id="the first of equals, if all do",
        ),
        pytest.param(
            QueueFungibility(), {"f": RECLAIM0}, {"f": 4}, ("g", PreemptionMode.FIT, 0, 1), id="fit before reclaim"
        ),
        pytest.param(
            QueueFungibility(STOP, STOP),
            {"f": RECLAIM0},
            {"f": 4},
            ("f", PreemptionMode.RECLAIM, 0, 0),
            id="unless told to stop there",
        ),
        pytest.param(
            QueueFungibility(),
            {"f": PREEMPT0, "g": RECLAIM0, "h": PREEMPT0},
            {"f": 4, "g": 4, "h": 4},
            ("g", PreemptionMode.RECLAIM, 0, -1),
            id="others' victims before own",
        ),
        pytest.param(
            QueueFungibility(NEXT, NEXT, prefer_preemption=True),
            {"f": NOBODY, "g": RECLAIM0},
            {"f": 4, "g": 4, "h": 2},
            ("g", PreemptionMode.RECLAIM, 0, -1),
            id="preemption before borrowing",
        ),
        pytest.param(
            QueueFungibility(NEXT, NEXT),
            {"f": NOBODY, "g": RECLAIM0},
            {"f": 4, "g": 4, "h": 2},
            ("h", PreemptionMode.FIT, 1, -1),
            id="borrowing before preemption",
        ),
        pytest.param(
            QueueFungibility(NEXT, NEXT),
            {},
            {"f": 4, "g": 4, "h": 4},
            ("f", PreemptionMode.NO_CANDIDATES, 0, -1),
            id="nobody to preempt anywhere",
        ),
    ],
)
def test_search(
    fungibility: QueueFungibility,
    oracle: dict[str, GranularMode],
    held: dict[str, int],
    expected: tuple[str, PreemptionMode, int, int],
) -> None:
    """Two of each of three flavors, two more to borrow; what is held of a flavor uses up own quota first."""
    preemption = QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY, CandidatePolicy.LOWER)
    world = QuotaWorld.of(
        queue("q", "root", THREE, fungibility=fungibility, preemption=preemption), queue("other", "root", THREE)
    )
    used(world, "q", held)
    assert only(assigner(world, oracle=oracle).assign(asks("w", "q", 1))) == expected


# -- resume indexes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-1, ("f", PreemptionMode.FIT, 0, 0)),
        (0, ("g", PreemptionMode.FIT, 0, 1)),
        (1, ("h", PreemptionMode.FIT, 0, -1)),
    ],
)
def test_the_search_goes_on_behind_the_last_flavor_tried(
    after: int, expected: tuple[str, PreemptionMode, int, int]
) -> None:
    world = QuotaWorld.of(queue("q", "", THREE))
    assert only(assigner(world).assign(asks("w", "q", 1), resume=[{"cpu": after}])) == expected


def test_untried_flavors_are_known() -> None:
    world = QuotaWorld.of(queue("q", "", THREE))
    first = assigner(world).assign(asks("w", "q", 1))
    assert (first.indexes(), first.untried()) == ([{"cpu": 0}], True)
    last = assigner(world).assign(asks("w", "q", 1), resume=[{"cpu": 1}])
    assert (last.indexes(), last.untried()) == ([{"cpu": -1}], False)


# -- several resources, several pod sets ------------------------------------------------------------------------------


def test_resources_of_a_group_share_a_flavor_and_groups_do_not() -> None:
    given = {"f/cpu": 4, "f/mem": 4, "g/cpu": 9, "g/mem": 9, "x/gpu": 1, "y/gpu": 8}
    world = QuotaWorld.of(queue("q", "", given))
    found = assigner(world).assign(asks("w", "q", {"cpu": 1, "mem": 5, "gpu": 2}))
    assert chosen(found) == [{"cpu": "g", "gpu": "y", "mem": "g"}]
    assert found.usage == world.cells({"g/cpu": 1, "g/mem": 5, "y/gpu": 2})


def test_a_group_is_as_good_as_its_worst_resource() -> None:
    world = QuotaWorld.of(queue("q", "", {"f/cpu": 4, "f/mem": 4, "g/cpu": 4, "g/mem": 4}))
    used(world, "q", {"f/mem": 4})
    found = assigner(world, oracle={"f/mem": PREEMPT0}).assign(asks("w", "q", {"cpu": 1, "mem": 1}))
    assert chosen(found) == [{"cpu": "g", "mem": "g"}]
    used(world, "q", {"g/mem": 4, "g/cpu": 4})
    found = assigner(world, oracle={"f/mem": PREEMPT0}).assign(asks("w", "q", {"cpu": 1, "mem": 1}))
    assert (chosen(found), found.mode) == ([{"cpu": "f", "mem": "f"}], PreemptionMode.PREEMPT)
    assert found.contested(world.tree) == {world.cell("f/mem")}


def test_later_pod_sets_see_what_earlier_ones_took() -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    pods = [PodSet("one", 3, {"cpu": 1}), PodSet("two", 2, {"cpu": 1}), PodSet("three", 1, {"cpu": 1})]
    found = assigner(world).assign(asks("w", "q", pods))
    assert chosen(found) == [{"cpu": "f"}, {"cpu": "g"}, {"cpu": "f"}]
    assert found.usage == world.cells({"f": 4, "g": 2})


def test_pod_sets_of_a_group_share_their_flavor() -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    pods = [
        PodSet("leader", 1, {"cpu": 1}, group="ring"),
        PodSet("other", 1, {"cpu": 1}),
        PodSet("workers", 4, {"cpu": 1}, group="ring"),
    ]
    found = assigner(world).assign(asks("w", "q", pods))
    assert chosen(found) == [{"cpu": "g"}, {"cpu": "f"}, {"cpu": "g"}]
    assert [pods.amounts for pods in found.pod_sets] == [{"cpu": 1}, {"cpu": 1}, {"cpu": 4}]
    one_tainted = replace(pods[2], node_selector={"type": "other"})
    labelled = QuotaWorld.of(queue("q", "", TWO), flavors=[QuotaFlavorSpec("g", {"type": "spot"})])
    assert chosen(assigner(labelled).assign(asks("w", "q", [pods[0], one_tainted]))) == [None, None]


def test_one_pod_set_without_a_flavor_is_the_end() -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    found = assigner(world).assign(asks("w", "q", [PodSet("one", 1, {"cpu": 99}), PodSet("two", 1, {"cpu": 1})]))
    assert (found.mode, found.no_fit_reason) == (PreemptionMode.NO_FIT, Reason.EXCEEDS_MAX_QUOTA)


def test_a_workload_that_asks_for_nothing_fits() -> None:
    found = assigner(QuotaWorld.of(queue("q", "", TWO))).assign(asks("w", "q", {}))
    assert (found.mode, chosen(found), found.usage) == (PreemptionMode.FIT, [{}], {})


def test_counts_stand_in_for_the_pod_sets_own() -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    found = assigner(world).assign(asks("w", "q", [PodSet("main", 20, {"cpu": 1})]), counts=[3])
    assert found.given[0].count == 3
    assert found.given[0].amounts == {"cpu": 3}


def test_pods_are_counted_where_a_group_covers_them() -> None:
    spec = queue(
        "q",
        "",
        {"f/cpu": 9, "f/pods": 3, "g/cpu": 9, "g/pods": 9},
        groups=(QuotaResourceGroup(("cpu", "pods"), ("f", "g")),),
    )
    found = assigner(QuotaWorld.of(spec)).assign(asks("w", "q", [PodSet("main", 4, {"cpu": 1})]))
    assert chosen(found) == [{"cpu": "g", "pods": "g"}]
    uncounted = assigner(QuotaWorld.of(queue("q", "", TWO))).assign(asks("w", "q", [PodSet("main", 4, {"cpu": 1})]))
    assert chosen(uncounted) == [{"cpu": "f"}]


# -- what quota does not know -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ignore", "amount", "fits"),
    [(False, 1, False), (False, 0, True), (True, 1, True)],
    ids=["refused", "none of it is fine", "ignored"],
)
def test_undeclared_resources(ignore: bool, amount: int, fits: bool) -> None:
    world = QuotaWorld.of(queue("q", "", TWO))
    found = assigner(world, declared_only=ignore).assign(asks("w", "q", {"cpu": 1, "disk": amount}))
    assert chosen(found) == ([{"cpu": "f"}] if fits else [None])
    assert found.no_fit_reason is (None if fits else Reason.NO_MATCHING_FLAVOR)


@pytest.mark.parametrize(
    ("replaced", "mode"),
    [(0, PreemptionMode.NO_CANDIDATES), (3, PreemptionMode.FIT)],
    ids=["on its own", "in place of another"],
)
def test_what_it_replaces_is_its_own_already(replaced: int, mode: PreemptionMode) -> None:
    world = used(QuotaWorld.of(queue("q", "", {"f": 4})), "q", {"f": 3})
    found = assigner(world, own_usage=world.cells({"f": replaced})).assign(asks("w", "q", 4))
    assert found.mode is mode


@pytest.mark.parametrize(
    ("given", "held", "wanted", "reason"),
    [
        pytest.param({"f": 1, "g": 9}, {"g": 9}, 2, None, id="one could be had by preemption"),
        pytest.param({"f": 1, "g": 1}, {}, 2, Reason.EXCEEDS_MAX_QUOTA, id="too large for all"),
    ],
)
def test_the_least_final_reason_is_told(
    given: dict[str, Any], held: dict[str, int], wanted: int, reason: Reason | None
) -> None:
    world = used(QuotaWorld.of(queue("q", "", given)), "q", held)
    assert assigner(world).assign(asks("w", "q", wanted)).no_fit_reason is reason


def test_waiting_is_told_before_too_large() -> None:
    """Flavor `f` can be had once the other queue is done, flavor `g` never."""
    world = QuotaWorld.of(queue("q", "root", {"f": 0, "g": 0}), queue("other", "root", {"f": 4, "g": 1}))
    used(world, "other", {"f": 4})
    assert assigner(world).assign(asks("w", "q", 2)).no_fit_reason is Reason.WAITING_FOR_QUOTA
