"""Approvals are of a plan, and owners agree to what their rules cover."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.plan import declared_plan
from fleet.plan.approvals import (
    APPROVALS_MOST,
    ApprovalState,
    ApprovalVerdict,
    ApprovedPlan,
    GivenApproval,
    PlanExtent,
    extent_of,
    judge_approvals,
    with_approvals,
    worse_than,
)
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.kinds.approval import ApprovalTolerance
from model.loader import InvalidFleet, load
from tests.agent.scenes import CATALOG, doc, files, pool, queue, team
from tests.support.fleets import NOW

EXACT = ApprovalTolerance(usd_per_hour=0.0)
PLAN = PlanExtent("a", "x", 2, 1, 0, 10.0, 20.0, 2, ("g1", "g2"))


def declared(*more: str, quota: int = 64, **policy: Any) -> dict[str, bytes]:
    quotas = {"h100": {"nvidia.com/gpu": quota}}
    found = files(pool(), team(quotas=quotas), queue(), doc("FleetPolicy", "p", **policy), *more)
    return {path: text.encode() for path, text in found.items()}


def fleet(*more: str, quota: int = 64, **policy: Any) -> Fleet:
    return load(declared(*more, quota=quota, **policy))


def owner(**rule: Any) -> dict[str, Any]:
    return {"name": "leads", "users": ["ada"], **rule}


def judged(before: Fleet, after: Fleet, *given: GivenApproval, signer: str = "") -> ApprovalVerdict:
    plan = declared_plan(before, after, Snapshot(now_s=NOW, catalog=CATALOG), base_revision="base")
    return judge_approvals(before, after, plan, given, signer)


def approves(before: Fleet, after: Fleet, user: str = "ada", **more: Any) -> GivenApproval:
    plan = declared_plan(before, after, Snapshot(now_s=NOW, catalog=CATALOG), base_revision="base")
    return GivenApproval(user, extent=extent_of(plan), **more)


# -- how a plan compares with one that was approved -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"plan_id": "a", "declared": "y", "nodes_added": 9}, ()),
        ({}, ()),
        ({"nodes_added": 1, "usd_h_added": 0.0, "gangs_stopped": 1, "stopped": ("g2",)}, ()),
        ({"declared": "y"}, ("it declares something else",)),
        ({"observed": False}, ("it was approved without a look at the cluster",)),
        ({"nodes_added": 3}, ("it adds 3 machines instead of 2",)),
        ({"nodes_removed": 2}, ("it removes 2 machines instead of 1",)),
        ({"nodes_replaced": 1}, ("it replaces 1 machine instead of 0",)),
        ({"usd_h_added": 10.01}, ("it adds 10.01 USD/h instead of 10.00",)),
        ({"usd_h_exposed": 21.0}, ("it lets 21.00 USD/h more be spent instead of 20.00",)),
        ({"stopped": ("g1", "g3")}, ("it stops 1 gang that the approved plan did not name",)),
        ({"gangs_stopped": 4}, ("it stops 2 gangs that the approved plan did not name",)),
    ],
)
def test_a_plan_is_the_same_milder_or_worse(now: dict[str, Any], words: tuple[str, ...]) -> None:
    assert worse_than(PLAN, replace(PLAN, **({"plan_id": "b"} | now)), EXACT) == words


def test_a_tolerance_lets_so_much_pass() -> None:
    now = replace(PLAN, plan_id="b", nodes_added=4, usd_h_added=15.0, gangs_stopped=3, stopped=("g1", "g2", "g3"))
    assert len(worse_than(PLAN, now, EXACT)) == 3
    assert worse_than(PLAN, now, ApprovalTolerance(nodes=2, usd_per_hour=5.0, gangs=1)) == ()
    assert len(worse_than(PLAN, now, ApprovalTolerance(nodes=1, usd_per_hour=4.9, gangs=0))) == 3


_counts = st.integers(0, 40)
_extents = st.builds(
    PlanExtent, st.just("p"), st.just("x"), _counts, _counts, _counts, st.floats(0, 1e4), st.floats(0, 1e4),
    st.just(0), st.just(()),
)  # fmt: skip


@given(_extents, _extents, _extents)
def test_milder_than_what_is_milder_is_milder(a: PlanExtent, b: PlanExtent, c: PlanExtent) -> None:
    a, b, c = replace(a, plan_id="a"), replace(b, plan_id="b"), replace(c, plan_id="c")
    if not worse_than(a, b, EXACT) and not worse_than(b, c, EXACT):
        assert not worse_than(a, c, EXACT)
    assert not worse_than(a, replace(a, plan_id="other"), EXACT)


# -- approvals --------------------------------------------------------------------------------------------------------


def test_nobody_is_asked_by_a_policy_that_does_not() -> None:
    assert judged(fleet(), fleet(quota=32)).state is ApprovalState.NOT_ASKED


def test_nobody_is_asked_about_what_is_in_force_already() -> None:
    before = fleet(approvals={"required": 1}, owners=[owner()])
    assert judged(before, fleet(approvals={"required": 1}, owners=[owner()])).state is ApprovalState.NOT_ASKED
    plan = declared_plan(before, before, Snapshot(now_s=NOW, catalog=CATALOG), base_revision="base")
    assert judge_approvals(before, before, plan, (), least=1).state is ApprovalState.MISSING, "the settings ask of each"
    moved = load({"elsewhere/fleet.yaml": next(iter(declared(approvals={"required": 1}, owners=[owner()]).values()))})
    assert judged(before, moved).state is ApprovalState.MISSING, "owners go by files"


def test_so_many_others_than_the_author_have_to_approve_the_plan() -> None:
    before, after = fleet(approvals={"required": 2}), fleet(quota=32, approvals={"required": 2})
    own, ada, eve = (
        approves(before, after, "bob", author=True),
        approves(before, after),
        approves(before, after, "eve"),
    )
    assert judged(before, after, own, ada) == (
        ApprovalState.MISSING, "1 of 2 approvals by others than its author", ("ada", "bob"),
    )  # fmt: skip
    assert judged(before, after, own, ada, eve).state is ApprovalState.GIVEN
    assert judged(before, after, ada, eve).sentence == "approved by ada, eve"


def test_an_approval_of_another_plan_is_stale() -> None:
    before, after = fleet(approvals={"required": 1}), fleet(quota=32, approvals={"required": 1})
    other = approves(before, fleet(quota=16, approvals={"required": 1}))
    verdict = judged(before, after, other)
    assert verdict == (
        ApprovalState.STALE, "it is not the plan that was approved any more: it declares something else", (),
    )  # fmt: skip
    assert "before any plan" in judged(before, after, GivenApproval("ada")).sentence
    assert judged(before, after, other, approves(before, after, "eve")).state is ApprovalState.GIVEN


def test_a_revision_cannot_change_who_has_to_agree_to_itself() -> None:
    before = fleet(approvals={"required": 1}, owners=[owner()])
    assert judged(before, fleet()).state is ApprovalState.MISSING
    assert judged(fleet(), before).state is ApprovalState.NOT_ASKED


# -- owners -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "covered"),
    [
        ({}, True),
        ({"kinds": ["Team"]}, True),
        ({"kinds": ["Queue", "NodePool"]}, False),
        ({"names": ["t*"]}, True),
        ({"names": ["sales"]}, False),
        ({"paths": ["fleet.yaml"]}, True),
        ({"paths": ["teams/*"]}, False),
        ({"fields": ["spec.quotas.*"]}, True),
        ({"fields": ["spec.budget*"]}, False),
        ({"maxPercent": 10}, True),
        ({"maxPercent": 9}, False),
    ],
)
def test_a_rule_covers_a_change_by_all_that_it_names(rule: dict[str, Any], covered: bool) -> None:
    before, after = fleet(owners=[owner(**rule)], quota=60), fleet(owners=[owner(**rule)], quota=66)
    verdict = judged(before, after, approves(before, after))
    assert verdict.state is (ApprovalState.GIVEN if covered else ApprovalState.MISSING), verdict
    if not covered:
        assert verdict.sentence.endswith(": no owner may do this")


def test_a_rule_with_ranges_lets_nothing_be_created_or_deleted() -> None:
    rules = [owner(maxPercent=1000), owner(name="all", users=["eve"])]
    before, after = fleet(owners=rules), fleet(pool("more"), owners=rules)
    verdict = judged(before, after, approves(before, after))
    assert verdict.sentence == "nodepool/more: an owner of all has to agree"
    assert judged(before, after, approves(before, after, "Eve")).state is ApprovalState.GIVEN


def test_owners_agree_as_members_of_a_team_or_by_their_signature() -> None:
    rules = [{"name": "leads", "teams": ["acme/leads"], "signers": ["ada@acme.com"]}]
    before, after = fleet(owners=rules), fleet(quota=32, owners=rules)
    assert judged(before, after, approves(before, after)).state is ApprovalState.MISSING
    member = approves(before, after, teams=frozenset({"acme/leads"}))
    assert judged(before, after, member).state is ApprovalState.GIVEN
    assert judged(before, after, signer="ada@acme.com").state is ApprovalState.GIVEN


def test_several_owners_agree_together_each_to_his_own() -> None:
    rules = [owner(kinds=["Team"]), {"name": "pools", "users": ["eve"], "kinds": ["NodePool"]}]
    before, after = fleet(owners=rules), fleet(pool("more"), quota=32, owners=rules)
    ada, eve = approves(before, after), approves(before, after, "eve")
    assert judged(before, after, ada).sentence == "nodepool/more: an owner of pools has to agree"
    assert judged(before, after, ada, eve).state is ApprovalState.GIVEN


def test_a_rule_of_nobody_is_an_error() -> None:
    with pytest.raises(InvalidFleet, match="nobody is named"):
        fleet(owners=[{"name": "empty"}])


# -- what is remembered -----------------------------------------------------------------------------------------------


def approved(user: str = "ada", at_s: float = 1.0, extent: PlanExtent | None = PLAN, **more: Any) -> ApprovedPlan:
    return ApprovedPlan(**({"request": 7, "head": "h", "user": user, "at_s": at_s, "extent": extent} | more))


def test_an_approval_keeps_the_plan_that_was_shown_when_it_was_given() -> None:
    worse = replace(PLAN, plan_id="b")
    known = with_approvals((), [approved()], 7, "h")
    assert with_approvals(known, [approved(extent=worse)], 7, "h") == known
    again = with_approvals(known, [approved(at_s=2.0, extent=worse)], 7, "h")
    assert [it.extent for it in again] == [worse], "whoever approves again approves what is shown now"


def test_a_review_can_be_withdrawn_and_a_command_stays() -> None:
    known = with_approvals((), [approved(), approved("eve", commanded=True)], 7, "h")
    assert [it.user for it in with_approvals(known, [], 7, "h")] == ["eve"]
    other = with_approvals(known, [approved(request=8)], 8, "h")
    assert [(it.request, it.user) for it in other] == [(7, "ada"), (7, "eve"), (8, "ada")]


def test_only_the_newest_are_remembered() -> None:
    known: tuple[ApprovedPlan, ...] = ()
    for number in range(APPROVALS_MOST + 10):
        known = with_approvals(known, [approved(request=number, at_s=float(number))], number, "h")
    assert [it.request for it in known] == list(range(10, APPROVALS_MOST + 10))
