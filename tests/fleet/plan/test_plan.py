"""The plan of a revision: machines, gangs, bill, guard rails, its name, and how it is shown.

`MUSTER_GOLDEN=write` writes the golden files anew.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.actions import OpenClaims
from fleet.plan import Plan, declared_plan, make_plan, simulated_run
from fleet.plan.consequences import HourlyBill, consequences
from fleet.plan.render import to_json, to_text
from fleet.plan.sections import summary
from fleet.plan.simulated_run import SimulatedRun, TimedAction
from fleet.snapshot import GangState, NodeDisruption, PodBudget, Snapshot
from model.fleet import Fleet
from model.kinds import NEVER, NodeOverlay
from model.upstream.selectors import LabelSelector
from tests.fleet.plan.worlds import CHANGED, LIFTED, fleet, meant, plan, quiet, standing, verbs, wasteful
from tests.support.fleets import GPU, NOW, P5S, B, FleetBuilder, gang, pod_set, small_fleet
from tests.support.world import World

GOLDEN = Path(__file__).parent / "golden"
LARGE = "nvidia.com/mig-3g.40gb"


# -- what would happen ------------------------------------------------------------------------------------------------


def test_a_machine_that_is_cut_anew_once_it_stands_is_told_as_it_ends() -> None:
    """Found by the fuzzer: it was told as it was bought."""

    def sliced(replicas: int) -> Fleet:
        builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
        builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
        builder.pool(replicas=replicas, sharing={"mig": {"layouts": ["small", "large"]}})
        return builder.team(quotas={"h100": {LARGE: 16}}).queue().policy(guardRails=LIFTED).build()

    world = World(sliced(0))
    world.waits(gang("g", pod_set(requests={LARGE: 1})))
    [change] = plan(world, sliced(1)).machines
    assert (change.verb, (change.after or {})["layout"]) == ("create", "large")


def test_nothing() -> None:
    world = standing(2, busy=2)
    it = plan(world, fleet())
    assert it.empty
    assert it.counts() == {"create": 0, "update": 0, "delete": 0}
    assert (it.now, it.then) == (it.then, it.now)
    assert "No changes. The fleet is as declared." in to_text(it).splitlines()


def test_drifted_machines_are_replaced_and_their_gangs_stopped() -> None:
    it = plan(standing(2, busy=2), fleet(pool=CHANGED))
    assert verbs(it) == {"m0": "replace", "m1": "replace"}
    why = "leaves: the template of node pool h100 has changed"
    assert [(hit.name, hit.queue, hit.gpus, hit.reason, hit.stopped) for hit in it.gangs] == [
        (f"ns/g{n}", "q", 8, f"machine node-m{n} {why}", True) for n in range(2)
    ]
    assert min(hit.lost_usd for hit in it.gangs) > 0
    assert it.counts() == {"create": 2, "update": 1, "delete": 2}
    assert it.then == it.now
    assert [str(change.when) for change in it.machines] == ["in about 4m", "in about 4m"]


def test_what_comes_where_nothing_goes_in_the_end_is_one_machine_more() -> None:
    """Work came to the old machine meanwhile that may not be disturbed; found by the fuzzer."""
    world = standing(1, busy=1)
    begin = world.snapshot()
    new = replace(world.claims["m0"], name="n0", replaces=("m0",))
    end = replace(begin, claims={**begin.claims, "n0": new})
    run = SimulatedRun(begin, end, [TimedAction(NOW, OpenClaims((new,)))])
    assert [(it.verb, it.address) for it in consequences(fleet(), run).machines] == [("create", "nodeclaim/n0")]


@pytest.mark.parametrize(
    ("expires", "words", "refused"),
    [
        ("10m", "does not come to rest: what is bought expires as well after 10m", True),
        ("40m", "goes on: what is bought expires as well after 40m", False),
        ("20h", "", False),
    ],
)
def test_what_is_bought_is_not_followed_to_its_own_expiry(
    expires: str, words: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine a quarter of an hour for a day would be thousands of turns, and its last state no news."""
    turns: list[object] = []
    turn = simulated_run._turn
    monkeypatch.setattr(simulated_run, "_turn", lambda *given: (turns.append(0), turn(*given))[1])
    it = plan(standing(4, busy=4), fleet(pool={"template": {"expireAfter": expires}}))
    assert len(turns) < 800
    assert verbs(it) == {f"m{n}": "replace" for n in range(4)}
    assert it.then == it.now
    warned = [warning for warning in it.warnings if "expires" in warning]
    assert warned == ([f"node pool h100 {words}"] if words else [])
    assert bool([refusal for refusal in it.refusals if "never comes to rest" in refusal]) is refused


def test_an_idle_machine_that_is_not_what_is_declared_is_not_replaced() -> None:
    it = plan(standing(2, busy=1, before=quiet()), quiet(**CHANGED))
    assert verbs(it) == {"m0": "replace"}
    assert [(change.address, change.verb) for change in it.without.machines] == [("nodeclaim/m1", "delete")]
    assert it.then == HourlyBill(98.0, {"h100": 8})


def test_a_plan_says_what_a_budget_can_never_let_go() -> None:
    budget = {"disruption": {"budgets": [{"nodes": 1}]}}
    world = standing(3, before=fleet(pool=budget))
    world.runs(gang("wide", pod_set(count=2, gpu=8)), ("m0", 1), ("m1", 1))
    it = plan(world, fleet(pool={**budget, **CHANGED}))
    said = {change.address.partition("/")[2]: change.when.held for change in it.machines}
    words = "it stays until ns/wide end: 2 machines go together, the budget of h100 allows 1"
    assert said == {"m0": words, "m1": words}
    assert [(change.address, change.verb) for change in it.without.machines] == [("nodeclaim/m2", "delete")]
    assert summary(it) == "Plan: 0 to add, 1 to change, 0 to destroy. 2 held."


def test_a_plan_says_who_waits_for_a_pod_disruption_budget() -> None:
    world = standing(2, busy=2)
    only = LabelSelector(match_labels={"job-name": "g0"})
    world.pod_budgets["ns/keep"] = PodBudget("ns", "keep", only)
    said = {change.address.partition("/")[2]: change.when.held for change in plan(world, fleet(pool=CHANGED)).machines}
    words = "PodDisruptionBudget ns/keep allows 0 disruptions now"
    assert [words in said[name] for name in ("m0", "m1")] == [True, False]


def test_a_plan_counts_whom_it_preempts() -> None:
    def shared(mine: int, theirs: int) -> Fleet:
        builder = FleetBuilder().pool(limits={"nodes": 1}).team("org", quotas={}, namespaces=[])
        builder.team("mine", quotas={"h100": {GPU: mine}}, parent="org").queue("mine", "mine")
        builder.team("theirs", quotas={"h100": {GPU: theirs}}, parent="org").queue("theirs", "theirs")
        return builder.policy(guardRails={"maxGangsEvicted": 0}).build()

    world = World(shared(0, 8))
    world.machine("m0")
    world.runs(gang("borrower", queue="theirs", gpu=8), ("m0", 1))
    world.waits(gang("lender", queue="mine", gpu=8))
    assert plan(world, shared(0, 8)).gangs == ()
    raised = plan(world, shared(8, 0))
    assert [(hit.name, hit.stopped) for hit in raised.gangs] == [("ns/borrower", True), ("ns/lender", False)]
    assert raised.gangs[1].reason == "starts"
    assert "maxGangsEvicted" in raised.refusals[0]


def test_another_type_changes_the_bill() -> None:
    world = standing(2)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=1), (f"m{n}", 1))
    it = plan(world, fleet(pool={"instanceTypes": [P5S.name]}))
    assert set(verbs(it).values()) == {"replace"}
    assert (it.now, it.then) == (HourlyBill(196.0, {"h100": 16}), HourlyBill(28.0, {"h100": 2}))
    assert {change.after["usdPerHour"] for change in it.machines if change.after} == {14.0}


def test_a_type_that_is_too_small_for_what_runs_changes_nothing_and_says_so() -> None:
    it = plan(standing(2, busy=2), fleet(pool={"instanceTypes": [P5S.name]}))
    assert it.then == it.now
    assert all("no machine its pools may buy" in change.when.held for change in it.machines)


def test_a_removed_pool_takes_its_machines_with_it_once_their_gangs_are_gone() -> None:
    after = FleetBuilder().pool("other").team(quotas={"other": {GPU: 9}}).queue(flavors=["other"]).build()
    it = plan(standing(2, busy=1, before=quiet()), after)
    assert verbs(it) == {"m0": "delete"}
    assert [change.when.held for change in it.machines] == ["a flavor of ns/g0 is no longer declared"]
    assert it.then == HourlyBill(98.0, {"h100": 8})
    assert it.gangs == ()


def test_a_fixed_pool_that_grows_and_shrinks() -> None:
    world = standing(2, before=fleet(pool={"replicas": 2}))
    assert list(verbs(plan(world, fleet(pool={"replicas": 4}))).values()) == ["create"] * 2
    assert list(verbs(plan(world, fleet(pool={"replicas": 1}))).values()) == ["delete"]
    grown = plan(world, fleet(pool={"replicas": 4}))
    assert (grown.now, grown.then) == (HourlyBill(196.0, {"h100": 16}), HourlyBill(392.0, {"h100": 32}))
    assert grown.machines[0].reason == "one of the 4 replicas of h100"


def test_a_plan_says_what_consolidation_is_about_to_do() -> None:
    world = World(fleet(pool=wasteful()))
    world.machine("m0")
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    it = plan(world, world.fleet)
    assert it.empty
    assert (it.now, it.then) == (HourlyBill(98.0, {"h100": 8}), HourlyBill(14.0, {"h100": 1}))
    [change] = it.without.machines
    assert (change.address, change.verb) == ("nodeclaim/m0", "replace")
    assert change.after is not None
    assert (change.after["instanceType"], change.after["usdPerHour"]) == (P5S.name, 14.0)
    assert [impact.name for impact in it.without.gangs] == ["ns/g"]


def test_more_quota_lets_gangs_run_and_buys_their_machines() -> None:
    before = fleet(team={"quotas": {"h100": {GPU: 0}}})
    world = standing(0, before=before)
    world.waits(gang("w", count=2))
    it = plan(world, fleet())
    assert list(verbs(it).values()) == ["create"] * 2
    assert {change.reason for change in it.machines} == {"for 1 x main of ns/w"}
    assert it.then == HourlyBill(196.0, {"h100": 16})


def test_a_drained_queue_stops_its_gangs() -> None:
    """And empties their machines, which the rails on machines count."""
    it = plan(standing(1, busy=1, before=fleet(maxNodesRemoved=0)), fleet(queue={"stopPolicy": "HoldAndDrain"}))
    why = "queue 'q' is stopped (HoldAndDrain)"
    assert [(hit.name, hit.reason) for hit in it.gangs] == [("ns/g0", f"{why}; then it waits: QueueStopped: {why}")]
    assert verbs(it) == {"m0": "delete"}
    refusal = "it removes 1 machine, guardRails.maxNodesRemoved allows 0"
    assert it.refusals == (refusal + meant("maxNodesRemoved: 1"),)


def test_gangs_that_leave_anyway_are_not_the_revisions_doing() -> None:
    world = standing(1, busy=1)
    world.gangs["uid-g0"] = replace(world.gang("g0"), state=GangState.EVICTING)
    assert plan(world, fleet(queue={"stopPolicy": "HoldAndDrain"})).gangs == ()


def test_machines_that_leave_already_are_not_counted() -> None:
    world = standing(2, busy=1)
    world.claims["m1"] = replace(world.claims["m1"], disruption=NodeDisruption("Empty", "x", NOW, NEVER))
    it = plan(world, fleet(pool=CHANGED))
    assert verbs(it) == {"m0": "replace"}
    assert it.now == HourlyBill(98.0, {"h100": 8})


def test_without_a_world_only_declarations_are_compared() -> None:
    it = declared_plan(Fleet(), fleet(), Snapshot(now_s=NOW))
    assert [change.address for change in it.declared] == ["fleetpolicy/policy", "nodepool/h100", "queue/q", "team/t"]
    assert it.machines == ()


# -- windows ----------------------------------------------------------------------------------------------------------


def frozen_fleet(schedule: str, duration: str, *blocks: str, pool: dict[str, Any] | None = None) -> Fleet:
    """It is 08:00 UTC."""
    window = {"name": "launch-week", "schedule": schedule, "duration": duration, "blocks": list(blocks)}
    builder = FleetBuilder().pool(**{"disruption": {"budgets": [{"nodes": "100%"}]}, **(pool or {})})
    builder.team(quotas={"h100": {GPU: 99}}).queue()
    return builder.policy(guardRails={"maxPercentRemoved": "Unlimited"}, freezeWindows=[window]).build()


def test_a_plan_says_on_top_until_when_a_freeze_window_holds_it() -> None:
    before = frozen_fleet("0 7 * * *", "3h", "Sync")
    world = standing(1, busy=1, before=before)
    it = plan(world, frozen_fleet("0 7 * * *", "3h", "Sync", pool={"weight": 1}))
    words = "held: freeze window launch-week is open, until 2027-01-15T10:00:00Z; then it comes into force"
    assert it.held == words == to_json(it)["held"]
    assert to_text(it).splitlines()[7] == words
    assert it.refusals == ()
    assert plan(world, before).held == "", "there is nothing to hold"
    assert plan(world, frozen_fleet("0 7 * * *", "1m", "Sync")).held == "", "the way out of a window is open"
    closed = frozen_fleet("0 9 * * *", "3h", "Sync")
    assert plan(standing(1, before=closed), fleet(pool={"weight": 1})).held == ""
    endless = frozen_fleet("* * * * *", "1h", "Sync")
    assert "open, with no end in sight" in plan(standing(1, before=endless), fleet(pool={"weight": 1})).held
    offline = declared_plan(before, fleet(pool={"weight": 1}), Snapshot(now_s=NOW), base_revision="a")
    assert offline.held == words


def test_a_plan_says_which_freeze_window_a_replacement_waits_for() -> None:
    before = frozen_fleet("0 7 * * *", "3h", "Disruption")
    it = plan(standing(1, busy=1, before=before), frozen_fleet("0 7 * * *", "3h", "Disruption", pool=CHANGED))
    [change] = it.machines
    assert change.verb == "replace"
    assert change.when.until == "freeze window 'launch-week'"
    assert re.fullmatch(r"in about 2h(15m|30m)?, when freeze window 'launch-week' ends", str(change.when))
    assert to_json(it)["resource_changes"][-1]["when"]["until"] == "freeze window 'launch-week'"


@pytest.mark.parametrize(("reasons", "waits"), [(["Drifted"], True), ([], True), (["Empty"], False)])
def test_a_plan_says_which_budget_a_replacement_waits_for(reasons: list[str], waits: bool) -> None:
    """Working hours without disruption: what is not what is declared goes in the evening."""
    budgets: list[dict[str, Any]] = [{"nodes": 0, "schedule": "0 7 * * *", "duration": "4h"}, {"nodes": "100%"}]
    if reasons:
        budgets[0]["reasons"] = reasons
    working: dict[str, Any] = {"disruption": {"budgets": budgets}}
    it = plan(standing(1, busy=1, before=fleet(pool=working)), fleet(pool={**working, **CHANGED}))
    [change] = it.machines
    words = "the window of a budget of h100 ('0 7 * * *')"
    assert change.when.until == (words if waits else "")
    assert (change.when.after_s > 2.9 * 3600) is waits


# -- its name ---------------------------------------------------------------------------------------------------------


def test_the_name_is_the_same_for_the_same_and_another_for_anything_else() -> None:
    world = standing(2, busy=1)
    name = plan(world, fleet()).plan_id
    assert len(name) == 64
    world.gangs = dict(reversed(world.gangs.items()))
    world.claims = dict(reversed(world.claims.items()))
    assert plan(world, fleet()).plan_id == name
    assert plan(world, fleet(pool={"weight": 1})).plan_id != name
    assert plan(world, fleet(maxNodesAdded=1)).plan_id != name
    assert plan(world, fleet(queue={"stopPolicy": "Hold"})).plan_id != name


@pytest.mark.parametrize(
    ("same", "change"),
    [
        (False, lambda w: w.machine("m9")),
        (False, lambda w: w.claims.update(m1=replace(w.claims["m1"], deleting=True))),
        (True, lambda w: w.claims.update(m1=replace(w.claims["m1"], purpose="by hand"))),
        (True, lambda w: w.waits(gang("new", gpu=99))),
        (False, lambda w: w.runs(gang("g1"), ("m1", 1))),
        (False, lambda w: w.gangs.clear()),
    ],
    ids=["one more", "one leaves", "bought for another", "one waits in vain", "another gang runs", "no gang"],
)
def test_the_name_tells_consequences_not_what_was_observed(same: bool, change: Any) -> None:
    world = standing(2, busy=1)
    before = plan(world, fleet(pool=CHANGED)).plan_id
    change(world)
    assert (plan(world, fleet(pool=CHANGED)).plan_id == before) is same


def test_who_looks_later_at_the_same_world_makes_the_same_plan() -> None:
    """Also where machines are bought, whose names nobody knows yet, and gangs lose more work the longer they run."""
    plans = []
    for later_s in (0.0, 1234.5):
        world = standing(2, busy=1, before=fleet(pool={"replicas": 2}))
        world.now_s += later_s
        plans.append(plan(world, fleet(pool={"replicas": 4, **CHANGED})))
    first, second = plans
    assert (first.observed_at_s, first.gangs[0].lost_usd) != (second.observed_at_s, second.gangs[0].lost_usd)
    assert first.plan_id == second.plan_id
    assert first.counts() == second.counts()


def test_the_base_is_part_of_the_name_by_what_it_declares() -> None:
    """Not by what its revision is called: the agent and the command line call it differently."""
    world, other = standing(1), standing(1, before=fleet(maxNodesAdded=99))
    names = [make_plan(world.fleet, fleet(), world.snapshot(), base_revision=name).plan_id for name in ("a", "b")]
    assert names[0] == names[1]
    assert plan(other, fleet()).plan_id != names[0]
    assert make_plan(world.fleet, fleet(), world.snapshot()).plan_id != names[0], "nothing is in force"


# -- how it is shown --------------------------------------------------------------------------------------------------


def sample() -> Plan:
    """One of everything: an update, a creation, a deletion, a replacement, stopped gangs, a refusal."""
    low = FleetBuilder().pool().priority("low", 1).build().priority_classes
    before = replace(fleet(pool={"replicas": 2}, maxNodesAdded=0), priority_classes=low)
    world = standing(2, busy=1, before=before)
    world.machine("spare", zone=B, emptied_at_s=NOW, price_usd_h=97.5)
    builder = FleetBuilder().pool(**CHANGED, replicas=2).pool("extra", replicas=1, instanceTypes=[P5S.name])
    builder.team(quotas={"h100": {GPU: 99}}).queue().priority("high", 10)
    return plan(world, builder.policy(guardRails=LIFTED).build())


def test_the_closing_line() -> None:
    assert summary(sample()) == "Plan: 5 to add, 2 to change, 3 to destroy."


@pytest.mark.parametrize("form", ["json", "txt"])
def test_golden(form: str) -> None:
    it = replace(sample(), plan_id="0" * 64)
    shown = json.dumps(to_json(it), indent=2, sort_keys=True) if form == "json" else to_text(it)
    path = GOLDEN / f"plan.{form}"
    if os.environ.get("MUSTER_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown + "\n", "utf-8")
    assert path.read_text("utf-8") == shown + "\n"


@pytest.mark.parametrize("name", ["base", "head", "plan", "observed", "region", "prices"])
def test_what_was_planned_stands_on_top(name: str) -> None:
    lines = to_text(sample()).splitlines()
    assert [line for line in lines[:6] if line.startswith(f"# {name}: ")]


def test_every_change_has_its_sign_in_the_first_column() -> None:
    """A block marked `diff` colours a line by that column; fields of a change are no exception."""
    titles = {"Declarations:", "Machines:", "Gangs:", "Without this change as well:"}
    body = [line for line in to_text(sample()).partition("\nPlan: ")[0].splitlines() if line not in titles]
    assert {line.partition(" ")[0] for line in body if line} == {"#", "+", "~", "-", "-/+", "!"}
    assert "~   spec.guardRails.maxNodesAdded: 0 -> Unlimited" in body
    assert any(line.startswith("- nodeclaim/m1") for line in body), "happens without the change as well"


def test_a_bill_is_told_by_the_hour_and_by_the_month_and_gpus_by_model() -> None:
    world = standing(1, busy=1)
    it = replace(plan(world, fleet()), then=HourlyBill(10.0, {"h100": 4, "a10g": 8}))
    told = to_text(it)
    assert "GPUs: 0 -> 8 a10g, 8 -> 4 h100." in told
    assert "USD/h: 98.00 -> 10.00. USD a month: 71,540 -> 7,300." in told
    shown = to_json(it)
    assert shown["gpus"] == {
        "before": {"h100": 8},
        "after": {"h100": 4, "a10g": 8},
        "total": {"before": 8, "after": 12},
    }
    assert (shown["cost"]["usd_per_month_before"], shown["cost"]["usd_per_month_after"]) == (71540.0, 7300.0)


def test_colours_are_ours_alone() -> None:
    hostile = replace(sample(), refusals=("\x1b[32mall is well\x1b[0m\n+ forged",))
    text, painted = to_text(hostile), to_text(hostile, colour=True)
    assert "\x1b" not in text
    assert re.sub(r"\x1b\[\d+m", "", painted) == text
    styles = {line.partition("m")[0]: line for line in painted.splitlines() if line.startswith("\x1b")}
    assert styles.keys() == {f"\x1b[{n}" for n in (2, 31, 32, 33, 35)}
    assert all(line.count("\x1b") == 2 and line.endswith("\x1b[0m") for line in styles.values())


def test_the_json_is_plain() -> None:
    found = to_json(sample())
    assert json.loads(json.dumps(found)) == found
    assert {tuple(change["change"]["actions"]) for change in found["resource_changes"]} == {
        ("create",),
        ("update",),
        ("delete",),
        ("delete", "create"),
    }


def test_overlays_are_part_of_a_plan() -> None:
    def overlay(name: str, price: str) -> NodeOverlay:
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}}
        return NodeOverlay.model_validate({**body, "spec": {"requirements": [], "price": price}})

    before = small_fleet()
    one = replace(before, node_overlays={"a": overlay("a", "1")})
    two = replace(before, node_overlays={"a": overlay("a", "1"), "b": overlay("b", "2")})
    snapshot = World(before).snapshot()
    first, second = make_plan(before, one, snapshot), make_plan(one, two, snapshot)
    assert [change.address for change in first.declared] == ["nodeoverlay/a"]
    assert first.plan_id != second.plan_id
    assert first.warnings == ()
    [warning] = second.warnings
    assert warning.startswith("nodeoverlay/a has no effect: nodeoverlay/b has the same weight")
    assert f"? {warning}" in to_text(second).splitlines()
    assert to_json(second)["warnings"] == [warning]
