"""What the guard rails let pass: of one revision, and of a day."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.catalog import ImageKind
from fleet.plan import declared_plan, make_plan
from fleet.plan.consequences import HourlyBill
from fleet.plan.guards import MOST_TALLIES, RevisionTally, day_with, last_day
from fleet.plan.render import to_json, to_text
from fleet.snapshot import NOT_READ, Resolutions, Resolved
from model.fleet import Fleet
from model.pools import pool_hash
from tests.fleet.plan.worlds import CHANGED, QUIET, fleet, meant, plan, standing, verbs, wasteful
from tests.support.fleets import GPU, NOW, P5, FleetBuilder, gang
from tests.support.world import World

# -- guard rails ------------------------------------------------------------------------------------------------------

GONE = {"replicas": 0}
RAILS: list[tuple[str, dict[str, Any], int, str]] = [
    (
        "maxNodesRemoved",
        {"pool": GONE},
        3,
        "it removes 4 machines, guardRails.maxNodesRemoved allows 3" + meant("maxNodesRemoved: 4"),
    ),
    ("maxNodesRemoved", {"pool": GONE}, 4, ""),
    (
        "maxPercentRemoved",
        {"pool": GONE},
        74,
        "it removes 4 of 4 machines, guardRails.maxPercentRemoved allows 74 % (3)" + meant("maxPercentRemoved: 76"),
    ),
    ("maxPercentRemoved", {"pool": GONE}, 76, ""),
    ("maxPercentRemoved", {"pool": {"replicas": 3}}, 0, ""),
    (
        "maxPercentRemoved",
        {"pool": {"replicas": 2}},
        0,
        "it removes 2 of 4 machines, guardRails.maxPercentRemoved allows 0 % (1)" + meant("maxPercentRemoved: 26"),
    ),
    (
        "maxNodesAdded",
        {"pool": {"replicas": 7}},
        2,
        "it adds 3 machines, guardRails.maxNodesAdded allows 2" + meant("maxNodesAdded: 3"),
    ),
    ("maxNodesAdded", {"pool": {"replicas": 7}}, 3, ""),
    (
        "maxUsdPerHourAdded",
        {"pool": {"replicas": 6}},
        195,
        "it adds 196.00 USD/h, guardRails.maxUsdPerHourAdded allows 195.00" + meant("maxUsdPerHourAdded: 196"),
    ),
    ("maxUsdPerHourAdded", {"pool": {"replicas": 6}}, 196, ""),
    (
        "maxGangsEvicted",
        {"pool": {"replicas": 4}, "queue": {"stopPolicy": "HoldAndDrain"}},
        1,
        "it stops 2 gangs, guardRails.maxGangsEvicted allows 1" + meant("maxGangsEvicted: 2"),
    ),
    ("maxGangsEvicted", {"pool": {"replicas": 4}, "queue": {"stopPolicy": "HoldAndDrain"}}, 2, ""),
]


@pytest.mark.parametrize(("rail", "after", "most", "refusal"), RAILS)
def test_rails(rail: str, after: dict[str, Any], most: float, refusal: str) -> None:
    """The rails in force are those before the revision; it cannot lift one and run through it."""
    bound: dict[str, Any] = {rail: float(most) if rail == "maxUsdPerHourAdded" else most}
    world = standing(4, busy=2, before=fleet(pool={"replicas": 4}, **bound))
    lifted: dict[str, Any] = {rail: "Unlimited"}
    it = plan(world, fleet(**after, **lifted))
    assert it.refusals == ((refusal,) if refusal else ())
    assert to_json(it)["applyable"] is not bool(refusal)


def test_what_the_cloud_has_replaced_is_not_the_revisions_doing() -> None:
    """Machines and gangs are told of, and no rail counts them; what the revision changes it does count."""
    before = fleet(maxGangsEvicted=0, maxNodesRemoved=0)
    world = standing(2, busy=2, before=before)
    for name, machine in world.instances.items():
        world.instances[name] = replace(machine, image="ami-0")
    now = Resolved({ImageKind("amd64", "nvidia"): "ami-1"})
    world.resolved = Resolutions(NOW, {pool_hash(before.node_pools["h100"]): now})
    it = plan(world, fleet(team={"weight": 2}))
    assert it.machines == ()
    assert {change.address: change.verb for change in it.without.machines} == {
        "nodeclaim/m0": "replace",
        "nodeclaim/m1": "replace",
    }
    why = "leaves: its image is ami-0, node pool h100 now gets ami-1"
    assert [(hit.name, hit.reason) for hit in it.without.gangs] == [
        (f"ns/g{n}", f"machine node-m{n} {why}") for n in range(2)
    ]
    assert it.refusals == ()
    world.resolved = NOT_READ
    assert plan(world, fleet(pool=CHANGED)).refusals == (
        "it stops 2 gangs, guardRails.maxGangsEvicted allows 0" + meant("maxGangsEvicted: 2"),
    )


def test_the_first_revision_is_held_to_its_own_rails() -> None:
    world = standing(0)
    own = fleet(pool={"replicas": 3}, maxNodesAdded=2)
    refused = make_plan(Fleet(), own, world.snapshot(), base_revision="", head_revision="bbb")
    told = "it adds 3 machines, guardRails.maxNodesAdded allows 2" + meant("maxNodesAdded: 3", "in this revision")
    assert refused.refusals == (told,)


@pytest.mark.parametrize(("allowed", "refused"), [(False, True), (True, False)])
def test_an_empty_fleet(allowed: bool, refused: bool) -> None:
    world = standing(0, before=fleet(allowEmptyFleet=allowed))
    it = plan(world, Fleet())
    assert bool(it.refusals) is refused
    if refused:
        assert it.refusals[0].startswith("it deletes every node pool (1);")


def test_replacements_and_idle_machines_are_not_removals() -> None:
    world = standing(4, busy=2, before=fleet(maxNodesRemoved=0))
    for name in ("m2", "m3"):
        world.claims[name] = replace(world.claims[name], emptied_at_s=NOW - 999)
    it = plan(world, fleet(maxNodesRemoved=0))
    assert it.machines == ()
    assert [change.address for change in it.without.machines] == ["nodeclaim/m2", "nodeclaim/m3"]
    assert it.refusals == ()
    assert plan(world, fleet(pool=CHANGED)).refusals == ()


def test_a_revision_cannot_hide_removals_behind_a_changed_template() -> None:
    world = standing(4, busy=2, before=fleet(pool={"replicas": 4}, maxNodesRemoved=2))
    it = plan(world, fleet(pool={"replicas": 1, **CHANGED}))
    assert sorted(verbs(it).values()) == ["delete"] * 3 + ["replace"]
    assert it.refusals == ("it removes 3 machines, guardRails.maxNodesRemoved allows 2" + meant("maxNodesRemoved: 3"),)
    assert it.then == HourlyBill(98.0, {"h100": 8})


@pytest.mark.parametrize("rail", ["maxNodesRemoved", "maxNodesAdded", "maxGangsEvicted", "maxUsdPerHourAdded"])
@pytest.mark.parametrize("before", ["WhenEmpty", "WhenEmptyOrUnderutilized"])
def test_what_consolidation_does_anyway_is_not_held_against_a_revision(rail: str, before: str) -> None:
    """But a revision that brings consolidation about is held to the rails; the saving pays for nothing else."""
    world = World(fleet(pool=wasteful(consolidationPolicy=before), **{rail: 0}))
    world.machine("m0")
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    world.waits(gang("new", gpu=8))
    after = fleet(pool=wasteful(), team={"quotas": {"h100": {GPU: 98}}}, **{rail: 0})
    it = plan(world, after)
    if before == "WhenEmptyOrUnderutilized":
        assert it.machines == ()
        assert it.refusals == ()
        assert {change.verb for change in it.without.machines} == {"replace", "create"}, "the waiting gang buys one"
    else:
        assert "m0" in verbs(it)
        assert bool(it.refusals) is (rail == "maxGangsEvicted"), "m0 is replaced by what costs less"


# -- rails that are not written ---------------------------------------------------------------------------------------


def unwritten(**more: Any) -> dict[str, Any]:
    """Rails with none written but the given ones."""
    return {**dict.fromkeys(("maxNodesAdded", "maxUsdPerHourAdded", "maxGangsEvicted")), **more}


NO_MONEY = {"maxUsdPerHourAdded": "Unlimited"}
DEFAULTS: list[tuple[int, int, dict[str, Any], dict[str, Any], str]] = [
    (0, 10, {}, NO_MONEY, ""),
    (
        0,
        11,
        {},
        NO_MONEY,
        "it adds 11 machines; without guardRails.maxNodesAdded a revision may add 10 (the greater of 10 and the 0 "
        "there are)" + meant("maxNodesAdded: 11"),
    ),
    (20, 40, {}, NO_MONEY, ""),
    (
        20,
        41,
        {},
        NO_MONEY,
        "it adds 21 machines; without guardRails.maxNodesAdded a revision may add 20 (the greater of 10 and the 20 "
        "there are)" + meant("maxNodesAdded: 21"),
    ),
    (0, 2, {}, {}, ""),
    (
        0,
        3,
        {},
        {},
        "it adds 294.00 USD/h; without guardRails.maxUsdPerHourAdded a revision may add 250.00 (the greater of 250 "
        "USD/h and half of the present 0.00 USD/h)" + meant("maxUsdPerHourAdded: 294"),
    ),
    (6, 9, {}, {}, ""),
    (
        6,
        10,
        {},
        {},
        "it adds 392.00 USD/h; without guardRails.maxUsdPerHourAdded a revision may add 294.00 (the greater of 250 "
        "USD/h and half of the present 588.00 USD/h)" + meant("maxUsdPerHourAdded: 392"),
    ),
    (3, 3, {"stopPolicy": "HoldAndDrain"}, {}, ""),
    (
        4,
        4,
        {"stopPolicy": "HoldAndDrain"},
        {},
        "it stops 4 gangs; without guardRails.maxGangsEvicted a revision may stop 3 (the greater of 3 and a quarter of "
        "the 4 that run)" + meant("maxGangsEvicted: 4"),
    ),
]


@pytest.mark.parametrize(("before", "after", "queue", "rails", "refusal"), DEFAULTS)
def test_a_rail_that_is_not_written_grows_with_the_fleet(
    before: int, after: int, queue: dict[str, Any], rails: dict[str, Any], refusal: str
) -> None:
    world = standing(before, busy=before, before=fleet(pool={"replicas": before}, **unwritten(**rails)))
    it = plan(world, fleet(pool={"replicas": after}, queue=queue))
    assert it.refusals == ((refusal,) if refusal else ())


@pytest.mark.parametrize(("drained", "refused"), [(4, False), (5, True)])
def test_a_quarter_of_the_gangs_may_be_stopped_where_that_is_more(drained: int, refused: bool) -> None:
    """Sixteen run: four may go, five may not."""

    def two_queues(stop: str) -> Fleet:
        builder = FleetBuilder().pool(replicas=16).team(quotas={"h100": {GPU: 128}}).queue()
        return builder.queue("other", stopPolicy=stop).build()

    world = World(two_queues("None"))
    for n in range(16):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", queue="other" if n < drained else "q"), (f"m{n}", 1))
    it = plan(world, two_queues("HoldAndDrain"))
    assert sum(gang.stopped for gang in it.gangs) == drained
    allowed = (
        "without guardRails.maxGangsEvicted a revision may stop 4 (the greater of 3 and a quarter of the 16 that run)"
    )
    assert [allowed in refusal for refusal in it.refusals] == [True] * refused


def test_a_typo_in_replicas_is_refused_on_an_empty_cluster_too() -> None:
    """Sixty machines for six: 5,880 USD an hour."""
    world = standing(6, before=fleet(pool={"replicas": 6}, **unwritten(maxUsdPerHourExposed=None)))
    it = plan(world, fleet(pool={"replicas": 60}))
    told = ["its limits let 5880.00 USD/h be spent", "it adds 54 machines", "it adds 5292.00 USD/h"]
    assert [refusal.partition(";")[0] for refusal in it.refusals] == told
    own = fleet(pool={"replicas": 60}, **unwritten())
    first = make_plan(Fleet(), own, standing(0).snapshot(), base_revision="", head_revision="bbb")
    assert [refusal.endswith("in this revision") for refusal in first.refusals] == [True, True]


@pytest.mark.parametrize("rails", [{}, {"maxNodesReplaced": "Unlimited"}, {"maxNodesReplaced": 2}])
def test_replacements_are_left_to_the_budgets_of_pools(rails: dict[str, Any]) -> None:
    world = standing(2, busy=2, before=fleet(**rails))
    assert plan(world, fleet(pool=CHANGED)).refusals == ()


def test_a_rail_on_replacements_counts_those_that_are_held_too() -> None:
    world = standing(3, busy=3, before=fleet(maxNodesReplaced=2, pool={"disruption": {"budgets": [{"nodes": 0}]}}))
    it = plan(world, fleet(pool={"disruption": {"budgets": [{"nodes": 0}]}, **CHANGED}))
    told = "it replaces 3 machines, guardRails.maxNodesReplaced allows 2" + meant("maxNodesReplaced: 3")
    assert it.refusals == (told,)


ZEROS = dict.fromkeys(
    ("maxNodesRemoved", "maxPercentRemoved", "maxNodesReplaced", "maxNodesAdded", "maxGangsEvicted"), 0
)


@pytest.mark.parametrize(
    "after",
    [
        {"pool": CHANGED},
        {"pool": {"template": {"expireAfter": "1h"}}},
        {"pool": {"zones": ["us-east-1b"]}},
        {"queue": {"stopPolicy": "HoldAndDrain"}},
    ],
    ids=["another template", "expiry", "another zone", "a drained queue"],
)
def test_rails_of_zero_mean_that_nothing_is_touched(after: dict[str, Any]) -> None:
    world = standing(2, busy=2, before=fleet(**ZEROS))
    assert plan(world, fleet(**after)).refusals


def test_a_drained_queue_counts_its_gangs_and_the_machines_that_follow() -> None:
    world = standing(3, busy=2, before=fleet(pool=QUIET, maxGangsEvicted=1, maxNodesRemoved=1))
    it = plan(world, fleet(pool=QUIET, queue={"stopPolicy": "HoldAndDrain"}))
    assert [refusal.partition(";")[0] for refusal in it.refusals] == [
        "it removes 2 machines, guardRails.maxNodesRemoved allows 1",
        "it stops 2 gangs, guardRails.maxGangsEvicted allows 1",
    ]


def test_a_gang_that_would_only_be_moved_is_stopped_by_whoever_drains_its_queue() -> None:
    """Consolidation moves it beside the other; a rail that looked away then would be none."""
    world = standing(2, before=fleet(maxGangsEvicted=1))
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=4), (f"m{n}", 1))
    assert [gang.name for gang in plan(world, world.fleet).without.gangs] == ["ns/g1"]
    it = plan(world, fleet(queue={"stopPolicy": "HoldAndDrain"}))
    assert [(gang.name, gang.stopped) for gang in it.gangs] == [("ns/g0", True), ("ns/g1", True)]
    assert it.without.gangs == ()
    assert [refusal.partition(";")[0] for refusal in it.refusals] == [
        "it stops 2 gangs, guardRails.maxGangsEvicted allows 1"
    ]


# -- a day ------------------------------------------------------------------------------------------------------------

HOUR_S = 3600.0


def tally(hours_ago: float, **counts: Any) -> RevisionTally:
    return RevisionTally(NOW - hours_ago * HOUR_S, **counts)


DAYS: list[tuple[str, dict[str, Any], dict[str, Any], list[RevisionTally], str]] = [
    ("nothing came before", {"maxNodesAdded": 2}, {"replicas": 6}, [], ""),
    ("as much as one may", {"maxNodesAdded": 2}, {"replicas": 6}, [tally(1, nodes_added=2)], ""),
    (
        "more than twice",
        {"maxNodesAdded": 2},
        {"replicas": 6},
        [tally(23, nodes_added=2), tally(1, nodes_added=1)],
        "with the 2 revisions of the last 24 hours it adds 5 machines; without guardRails.perDay.maxNodesAdded it may "
        "be 4, twice what one may" + meant("perDay: {maxNodesAdded: 5}"),
    ),
    ("a day ago", {"maxNodesAdded": 2}, {"replicas": 6}, [tally(24, nodes_added=2), tally(1, nodes_added=1)], ""),
    (
        "a time to come",
        {"maxNodesAdded": 2},
        {"replicas": 6},
        [tally(-30, nodes_added=4)],
        "with the revision of the last 24 hours it adds 6 machines; without guardRails.perDay.maxNodesAdded it may be "
        "4, twice what one may" + meant("perDay: {maxNodesAdded: 6}"),
    ),
    (
        "written, and smaller",
        {"maxNodesAdded": 2, "perDay": {"maxNodesAdded": 1}},
        {"replicas": 6},
        [],
        "it adds 2 machines, guardRails.perDay.maxNodesAdded allows 1" + meant("perDay: {maxNodesAdded: 2}"),
    ),
    (
        "lifted",
        {"maxNodesAdded": 2, "perDay": {"maxNodesAdded": "Unlimited"}},
        {"replicas": 6},
        [tally(1, nodes_added=99)],
        "",
    ),
    (
        "a rail that is lifted has no day",
        {"maxNodesAdded": "Unlimited"},
        {"replicas": 6},
        [tally(1, nodes_added=9)],
        "",
    ),
    ("who does nothing is not held to it", {"maxNodesAdded": 0}, {"replicas": 4}, [tally(1, nodes_added=9)], ""),
    (
        "removed",
        {"maxNodesRemoved": 1},
        {"replicas": 3},
        [tally(1, nodes_removed=2, revisions=2)],
        "with the 2 revisions of the last 24 hours it removes 3 machines; without guardRails.perDay.maxNodesRemoved it "
        "may be 2, twice what one may" + meant("perDay: {maxNodesRemoved: 3}"),
    ),
    (
        "percent of the most there were",
        {"maxPercentRemoved": 30},
        {"replicas": 2},
        [tally(2, nodes_removed=3, nodes=10), tally(1, nodes_removed=2, nodes=7)],
        "with the 2 revisions of the last 24 hours it removes 7 of 10 machines, guardRails.perDay.maxPercentRemoved "
        "allows 60 % (6)" + meant("perDay: {maxPercentRemoved: 61}"),
    ),
    ("and within it", {"maxPercentRemoved": 30}, {"replicas": 3}, [tally(2, nodes_removed=5, nodes=10)], ""),
    (
        "100 percent at most",
        {"maxPercentRemoved": 80},
        {"replicas": 1},
        [tally(2, nodes_removed=2, nodes=4)],
        "with the revision of the last 24 hours it removes 5 of 4 machines, guardRails.perDay.maxPercentRemoved allows "
        "100 % (4)" + meant("perDay: {maxPercentRemoved: Unlimited}"),
    ),
    (
        "spent",
        {"maxUsdPerHourAdded": 200.0},
        {"replicas": 6},
        [tally(2, usd_h_added=200.0), tally(1, usd_h_added=98.0)],
        "with the 2 revisions of the last 24 hours it adds 494.00 USD/h; without guardRails.perDay.maxUsdPerHourAdded "
        "it may be 400.00, twice what one may" + meant("perDay: {maxUsdPerHourAdded: 494}"),
    ),
]


@pytest.mark.parametrize(
    ("rails", "pool", "day", "refusal"), [each[1:] for each in DAYS], ids=[each[0] for each in DAYS]
)
def test_a_day(rails: dict[str, Any], pool: dict[str, Any], day: list[RevisionTally], refusal: str) -> None:
    world = standing(4, before=fleet(pool={"replicas": 4}, **rails))
    it = plan(world, fleet(pool=pool), day=day)
    assert it.refusals == ((refusal,) if refusal else ())


def test_gangs_stopped_within_a_day() -> None:
    world = standing(2, busy=2, before=fleet(pool={"replicas": 2}, maxGangsEvicted=2))
    it = plan(world, fleet(pool={"replicas": 2}, queue={"stopPolicy": "HoldAndDrain"}), day=[tally(1, gangs_evicted=3)])
    assert [refusal.partition(";")[0] for refusal in it.refusals] == [
        "with the revision of the last 24 hours it stops 5 gangs"
    ]


def test_a_tally_is_what_the_plan_tells() -> None:
    world = standing(4, busy=2, before=fleet(pool={"replicas": 4}))
    drained = plan(world, fleet(pool={"replicas": 6}, queue={"stopPolicy": "HoldAndDrain"})).tally
    assert drained == RevisionTally(NOW, 0, 2, 196.0, 2, 4, usd_h_exposed=196.0)
    assert plan(world, fleet(pool={"replicas": 1})).tally == RevisionTally(NOW, 3, 0, 0.0, 1, 4)
    assert plan(world, world.fleet).tally == RevisionTally(NOW, nodes=4)


def test_a_day_is_bounded_and_loses_nothing() -> None:
    day: tuple[RevisionTally, ...] = ()
    for n in range(3 * MOST_TALLIES):
        day = day_with(day, RevisionTally(NOW + n, 1, 2, 3.0, 4, nodes=n))
        day = day_with(day, RevisionTally(NOW + n, nodes=999))
    assert len(day) == MOST_TALLIES
    assert sum(it.revisions for it in day) == sum(it.nodes_removed for it in day) == 3 * MOST_TALLIES
    assert day[0].nodes == 2 * MOST_TALLIES
    assert day[0].at_s == NOW + 2 * MOST_TALLIES, "as late as the last of those it stands for"
    assert [it.at_s for it in last_day(day, NOW - 999)] == [NOW - 999] * MOST_TALLIES
    assert last_day(day, NOW + 25 * HOUR_S) == ()


# -- what limits let be spent -----------------------------------------------------------------------------------------

UNSET = (
    "; without guardRails.maxUsdPerHourExposed it may be {} "
    "(the greater of 1000 more than the present {} USD/h and twice as much)"
)


@pytest.mark.parametrize(
    ("before", "after", "rail", "refusal"),
    [
        ({"nodes": 1}, {"nodes": 11}, None, ""),
        (
            {"nodes": 1},
            {"nodes": 800},
            None,
            "its limits let 78400.00 USD/h be spent"
            + UNSET.format("1098.00", "98.00") + meant("maxUsdPerHourExposed: 78400"),
        ),
        ({"nodes": 20}, {"nodes": 40}, None, ""),
        (
            {"nodes": 20},
            {"nodes": 41},
            None,
            "its limits let 4018.00 USD/h be spent"
            + UNSET.format("3920.00", "1960.00") + meant("maxUsdPerHourExposed: 4018"),
        ),
        ({"nodes": 20}, {"nodes": 41}, "Unlimited", ""),
        (
            {"nodes": 1},
            {"nodes": 2},
            100.0,
            "its limits let 196.00 USD/h be spent, guardRails.maxUsdPerHourExposed allows 100.00"
            + meant("maxUsdPerHourExposed: 196"),
        ),
        ({"nodes": 5}, {"nodes": 4}, 100.0, ""),
        (
            {"nodes": 1},
            {},
            None,
            "nothing bounds what node pools h100 may cost"
            + UNSET.format("1098.00", "98.00")
            + "; give them limits or, if it is meant, write maxUsdPerHourExposed: Unlimited in an earlier revision",
        ),
        ({}, {}, None, ""),
    ],
    ids=[
        "1000 more", "three zeros", "twice as much", "more than twice", "lifted", "beyond what is written",
        "lower, though still beyond", "no limits any more", "never had limits",
    ],
)  # fmt: skip
@pytest.mark.parametrize("world", [True, False], ids=["with a world", "without"])
def test_what_limits_let_be_spent(
    before: dict[str, Any], after: dict[str, Any], rail: Any, refusal: str, world: bool
) -> None:
    rails = {"maxUsdPerHourExposed": rail}
    old, new = (fleet(pool={"limits": limits, "instanceTypes": [P5.name]}, **rails) for limits in (before, after))
    make = make_plan if world else declared_plan
    it = make(old, new, World(old).snapshot(), base_revision="aaa", head_revision="bbb")
    assert it.refusals == ((refusal,) if refusal else ())


@pytest.mark.parametrize(
    ("nodes", "day", "refusal"),
    [
        (20, [tally(2, usd_h_exposed=490.0), tally(1, usd_h_exposed=490.0)], ""),
        (
            20,
            [tally(2, usd_h_exposed=882.0), tally(1, usd_h_exposed=882.0)],
            "with the 2 revisions of the last 24 hours it lets 2940.00 USD/h be spent by its limits (196.00 before); "
            "without guardRails.maxUsdPerHourExposed a day may raise it by 2000.00, twice what one revision may"
            + meant("maxUsdPerHourExposed: 2940"),
        ),
        (20, [tally(30, usd_h_exposed=1764.0)], ""),
        (40, [tally(1, usd_h_exposed=1960.0)], ""),
        (
            41,
            [tally(1, usd_h_exposed=2100.0)],
            "with the revision of the last 24 hours it lets 5978.00 USD/h be spent by its limits (1918.00 before); "
            "without guardRails.maxUsdPerHourExposed a day may raise it by 3836.00, twice what one revision may"
            + meant("maxUsdPerHourExposed: 5978"),
        ),
    ],
    ids=["twice what one may", "more", "a day ago", "as much twice", "more than that"],
)
def test_what_limits_let_be_spent_is_raised_by_so_much_a_day(
    nodes: int, day: list[RevisionTally], refusal: str
) -> None:
    """Five pushes that each double it are as bad as one with three zeros."""
    rails = {"maxUsdPerHourExposed": None}
    old, new = (
        fleet(pool={"limits": {"nodes": most}, "instanceTypes": [P5.name]}, **rails) for most in (nodes, nodes * 3 // 2)
    )
    it = plan(World(old), new, day=day)
    assert it.refusals == ((refusal,) if refusal else ())
    assert it.tally is not None
    assert it.tally.usd_h_exposed == 98.0 * (nodes * 3 // 2 - nodes)
    assert plan(World(old), old, day=day).refusals == (), "who raises nothing is not held to it"


def test_the_first_revision_is_bound_only_by_what_it_says() -> None:
    rich = {"limits": {"nodes": 800}, "instanceTypes": [P5.name]}
    seen = World(fleet()).snapshot()
    assert declared_plan(Fleet(), fleet(pool=rich, maxUsdPerHourExposed=None), seen).refusals == ()
    (refusal,) = declared_plan(Fleet(), fleet(pool=rich, maxUsdPerHourExposed=5.0), seen).refusals
    assert refusal.endswith("if it is meant, write maxUsdPerHourExposed: 78400 in this revision")


# -- what is bought for a while ---------------------------------------------------------------------------------------


def test_machines_that_are_given_back_within_the_day_are_added_all_the_same() -> None:
    """A queue is opened for twelve jobs of an hour each: nothing of it stands at the end."""
    held = fleet(queue={"stopPolicy": "Hold"}, **unwritten())
    world = World(held)
    for n in range(12):
        world.waits(gang(f"g{n}"))
        world.jobs[f"uid-g{n}"] = replace(world.jobs[f"uid-g{n}"], expected_run_s=3600.0)
    it = plan(world, fleet())
    assert it.machines == ()
    assert it.peak is not None
    assert (it.peak.nodes, it.peak.usd_h) == (12, 1176.0)
    assert [told.partition(";")[0] for told in it.refusals] == ["it adds 12 machines", "it adds 1176.00 USD/h"]
    assert "Highest on the way: 12 machines, 1176.00 USD/h (now)." in to_text(it).splitlines()
    now = {"after_s": 0.0, "held_by": None, "until": None}
    assert to_json(it)["peak"] == {"nodes": 12, "usd_per_hour": 1176.0, "when": now}


def test_a_machine_that_comes_in_the_place_of_another_is_not_one_more() -> None:
    it = plan(standing(3, busy=3), fleet(pool=CHANGED))
    assert it.now is not None
    assert it.peak is not None
    assert (it.peak.nodes, it.peak.usd_h) == (3, it.now.usd_h)
