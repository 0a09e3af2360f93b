"""Checks in CEL hold, do not hold, or cannot be evaluated, which is as good as not."""

from typing import Any

import pytest

from fleet.plan import declared_plan
from fleet.policy.cel import Expression, InvalidExpression
from fleet.policy.checks import CheckVerdict, Denial, cases_of, judge_plan, unreadable_checks
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.loader import InvalidFleet, load
from tests.agent.scenes import CATALOG, doc, files, pool, queue, team
from tests.support.fleets import NOW

PLAN = {
    "cost": {"usd_per_hour_after": 90},
    "resource_changes": [{"address": "team/t", "n": it} for it in range(100)],
    "refusals": [],
}


def fleet(*checks: dict[str, Any], owners: tuple[dict[str, Any], ...] = ()) -> Fleet:
    policy = doc("FleetPolicy", "p", checks=list(checks), owners=list(owners))
    declared = files(pool(), team(), queue(), policy)
    return load({path: text.encode() for path, text in declared.items()}, further=(unreadable_checks,))


def check(expression: str, **more: Any) -> dict[str, Any]:
    return {"name": "rule", "expression": expression, "message": "too dear", **more}


@pytest.mark.parametrize(
    ("expression", "held", "words"),
    [
        ("plan.cost.usd_per_hour_after <= 90.0", True, ""),
        ("plan.cost.usd_per_hour_after <= 90", True, ""),
        ("plan.cost.usd_per_hour_after < 90.0", False, ""),
        ("plan.resource_changes.all(c, c.address.startsWith('team/'))", True, ""),
        ("plan.resource_changes.exists(c, c.address.matches('^nodepool/'))", False, ""),
        ("size(plan.resource_changes) == 100 && !has(plan.exposure)", True, ""),
        ("plan.exposure.usd > 1", False, "no such member"),
        ("plan.cost", False, "not true or false"),
        ("1 + 'a' == 2", False, "no matching overload"),
    ],
)
def test_an_expression_holds_or_says_why_not(expression: str, held: bool, words: str) -> None:
    found, why = Expression(expression).holds(PLAN, [100_000])
    assert found is held
    assert words in why


DEEP = [
    "!" * 301 + "true",
    "-" * 5000 + "1 == 1",
    "plan" + ".a" * 301,
    "+".join(["1"] * 301),
    "true ? 1 : " * 301 + "1",
]


@pytest.mark.parametrize(
    "text", ["plan.", "(" * 21 + "true" + ")" * 21, "a b", "plan.x =", *DEEP, "'" + "x" * 10_240 + "'"]
)
def test_a_text_that_is_not_an_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        Expression(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "held"), [("!" * 280 + "true", True), (" || ".join(["false"] * 250) + " || true", True)]
)
def test_what_is_just_not_too_deep_is_evaluated_far_down_the_stack(text: str, held: bool) -> None:
    def asked(further: int) -> tuple[bool, str]:
        return asked(further - 1) if further else Expression(text).holds(PLAN, [100_000])

    assert asked(200) == (held, "")


DOUBLED = "plan.resource_changes.map(a, 'x')" + "".join(f".map(a, a + a + '{n}')" for n in range(40)) + ".size() > 0"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("plan.resource_changes.all(a, plan.resource_changes.all(b, plan.resource_changes.all(c, true)))", "steps"),
        (DOUBLED, "too"),
    ],
)
def test_what_evaluating_costs_is_bounded(expression: str, words: str) -> None:
    found, why = Expression(expression).holds(PLAN, [50_000])
    assert not found
    assert words in why


def test_steps_are_shared_by_the_checks_of_a_plan() -> None:
    steps = [100_000]
    Expression("plan.resource_changes.all(a, true)").holds(PLAN, steps)
    assert 0 < steps[0] < 100_000


def test_a_check_denies_warns_or_is_left_to_owners() -> None:
    owners = ({"name": "money", "users": ["ada"]},)
    assert judge_plan(fleet(check("false")), PLAN) == CheckVerdict(("check rule: too dear",))
    assert judge_plan(fleet(check("false", action="Warn")), PLAN).warnings == ("check rule: too dear",)
    left = judge_plan(fleet(check("false", overrides=["money"]), owners=owners), PLAN)
    assert left.refusals == ()
    assert left.denials == (Denial("rule", "check rule: too dear", ("money",)),)
    assert left.warnings == ("check rule: too dear; an owner of money has to agree",)
    assert judge_plan(fleet(check("true")), PLAN) == CheckVerdict()


def test_the_checks_in_force_judge_the_plan_of_the_next_revision() -> None:
    before = fleet(check("!plan.resource_changes.exists(c, c.address == 'fleetpolicy/policy')"))
    world = Snapshot(now_s=NOW, catalog=CATALOG)
    assert declared_plan(before, fleet(), world, base_revision="b").refusals == ("check rule: too dear",)
    assert declared_plan(fleet(), before, world, base_revision="b").refusals == ()


def test_cases_say_whether_a_check_says_what_is_meant() -> None:
    tests = [
        {"plan": {"n": 1}, "passes": True},
        {"plan": {"n": 3}, "passes": True},
        {"plan": {}, "passes": False},
    ]
    cases = list(cases_of(fleet(check("plan.n < 2", tests=tests))))
    assert [it.as_wanted for it in cases] == [True, False, False]
    assert "no such member" in cases[2].error


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (check("plan."), "spec.checks[0].expression: it is not CEL"),
        (check("true", overrides=["nobody"]), "there is no owner rule 'nobody'"),
    ],
)
def test_a_check_that_cannot_be_read_is_an_error_at_its_line(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidFleet) as caught:
        fleet(more)
    (problem,) = caught.value.problems
    assert words in f"{problem.path}: {problem.message}"
    assert problem.line > 1
