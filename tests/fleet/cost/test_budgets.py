"""Budgets: each level is told once, the highest that is reached, and those who were warned hear that it is over."""

import pytest

from fleet.cost.budgets import budget_news
from model.fleet import Fleet
from tests.support.fleets import FleetBuilder


def fleet(usd: float = 100.0) -> Fleet:
    return FleetBuilder().pool().team("a", budget={"usdPerMonth": usd}).team("free").queue("q", "a").build()


@pytest.mark.parametrize(
    ("spent", "before", "told", "after"),
    [
        (0.0, 0, None, 0),
        (49.99, 0, None, 0),
        (50.0, 0, 50, 50),
        (79.0, 50, None, 50),
        (80.0, 50, 80, 80),
        (99.0, 0, 80, 80),  # 50 is passed on the way
        (100.0, 80, 100, 100),
        (250.0, 0, 100, 100),
        (250.0, 100, None, 100),
        (60.0, 100, None, 50),  # raised: told again from where it stands now
        (0.0, 100, 0, 0),  # a new month
        (0.0, 80, 0, 0),
        (0.0, 50, None, 0),  # nobody was warned
    ],
)
def test_levels(spent: float, before: int, told: int | None, after: int) -> None:
    news, levels = budget_news(fleet(), {"a": spent, "free": 1e9}, "2026-10", {"a": before} if before else {})
    assert [it.level for it in news] == ([] if told is None else [told])
    assert levels == ({"a": after} if after else {})


def test_what_is_said() -> None:
    ((nearly, *_), _), ((spent, *_), _) = (budget_news(fleet(), {"a": usd}, "2026-10", {}) for usd in (81.5, 120.0))
    assert (nearly.reason, spent.reason) == ("BudgetNearlySpent", "BudgetSpent")
    assert nearly.message == "team 'a' has spent 81.50 of its 100.00 USD of 2026-10 (82%)"
    assert "its work waits" in spent.message
